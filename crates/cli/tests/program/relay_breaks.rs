//! Relays that break and come back, and sources that only relays reach.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use swath_netlab::faulty::{Behaviour, Content};

use crate::support::Home;
use crate::support::depot::until;
use crate::support::net::{honest, server, sha256, slow, url};
use crate::support::relay::asked_in_vain;
use crate::support::serve::reserved_address;

#[test]
fn a_relay_that_is_killed_and_started_again_brings_the_rest() {
    let home = Home::new();
    let content = Content::random(1, 24 << 20);
    let origin = slow(&content, 6 << 20);
    let relay = home.relay_at(&reserved_address(), &[]);
    let (address, named) = (relay.address().to_string(), relay.named());
    let digest = sha256(&content);
    let args = ["get", &url(&origin), "-o", "got", "--digest", &digest, "--route", &named];
    let getting = home.swath(args).start();
    home.wait_for_bytes("got.swath.part", 6 << 20);
    relay.signal(9);
    relay.wait();
    asked_in_vain(&address);
    let _again = home.relay_at(&address, &[]);
    getting.wait().code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_relay_that_was_away_is_in_use_again_when_it_is_back() {
    // Nobody had noticed that it was gone, since it could not even be asked; so when it was back it had
    // been silent for too long. (How soon it is in use again is tested in virtual time: `what_was_silent_
    // is_back_when_it_answers`.)
    let home = Home::new();
    let content = Content::random(12, 1 << 30);
    let each = Behaviour::ConnectionRate { bytes_per_s: 1 << 20 };
    let origin = server(&content, each);
    let relay = home.relay_at(&reserved_address(), &[]);
    let (address, named) = (relay.address().to_string(), relay.named());
    let args = ["get", &url(&origin), "-o", "got", "--relay", &named, "--route", "multi"];
    let mut getting = home.swath(args).start();
    let by_relay = || {
        let log = origin.log();
        let passed = log.records.iter().filter(|it| it.header("via").is_some());
        passed.map(|it| it.sent_bytes).sum::<u64>()
    };
    until("it is in use", || by_relay() > 8 << 20);
    relay.signal(9);
    relay.wait();
    asked_in_vain(&address);
    let before = by_relay();
    let _again = home.relay_at(&address, &[]);
    until("it is in use again", || by_relay() > before + (1 << 20));
    assert!(!getting.is_over());
    getting.signal(libc::SIGINT);
    getting.wait().code_is(130);
}

/// Before a server, for relays alone: whoever is none is let in, and hears this.
fn for_relays_alone(server: SocketAddr, refusal: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let mut near = near.unwrap();
            std::thread::spawn(move || {
                let mut head = vec![0; 16384];
                let Ok(bytes @ 1..) = near.read(&mut head) else { return };
                head.truncate(bytes);
                if !String::from_utf8_lossy(&head).to_lowercase().contains("\r\nvia:") {
                    let _ = near.write_all(refusal.as_bytes());
                    return;
                }
                let mut far = TcpStream::connect(server).unwrap();
                far.write_all(&head).unwrap();
                let (mut from, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || io::copy(&mut from, &mut to));
                let _ = io::copy(&mut far, &mut near);
            });
        }
    });
    address
}

#[test]
fn a_source_that_only_relays_reach_is_reached_by_them() {
    // Relays were asked only once a source had answered, so that none ever was.
    let home = Home::new();
    let content = Content::random(12, 8 << 20);
    let origin = honest(&content);
    let address = for_relays_alone(origin.address(), "");
    let relay = home.relay(&[]);
    for choice in ["auto", "multi", "widest"] {
        let source = format!("http://{address}/data.bin");
        let ran =
            home.run(["get", &source, "-o", choice, "--relay", &relay.named(), "--route", choice]);
        ran.code_is(0).says(&[" by ", "NOT VERIFIED"]);
        home.holds(choice, &content);
    }
    // Nobody listens there at all: that is told as before.
    let nobody = reserved_address();
    let from = format!("http://{nobody}/data.bin");
    let gone = home.run(["get", &from, "--relay", &relay.named()]);
    gone.code_is(7).says(&[&format!("cannot connect to {nobody}")]);
}

#[test]
fn a_source_that_lets_only_relays_in_is_reached_by_them() {
    // That it did not let us in was taken for its last word on the file: the transfer ended with it.
    let home = Home::new();
    let content = Content::random(15, 1 << 20);
    let origin = honest(&content);
    let refused = |status: &'static str| for_relays_alone(origin.address(), status);
    let relay = home.relay(&[]);
    for (name, address) in [
        ("forbidden", refused("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")),
        ("unknown", refused("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")),
    ] {
        let source = format!("http://{address}/data.bin");
        let ran = home.run(["get", &source, "-o", name, "--relay", &relay.named()]);
        ran.code_is(0).says(&[" by "]);
        home.holds(name, &content);
    }
    // Where the file is not, no relay finds it.
    let gone = refused("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let source = format!("http://{gone}/data.bin");
    let ran = home.run(["get", &source, "-o", "no", "--relay", &relay.named()]);
    ran.code_is(7).says(&["404 Not Found"]).never_says(&[" by "]);
}

#[test]
fn a_dead_relay_costs_nothing_where_there_are_other_ways() {
    let home = Home::new();
    let content = Content::random(2, 8 << 20);
    let origin = honest(&content);
    let alive = home.relay(&[]);
    for choice in ["auto", "multi", "widest"] {
        let gone = format!("http://{}", reserved_address());
        let dead = ["--relay", &gone, "--relay", &alive.named()];
        let args = ["get", &url(&origin), "-o", choice, "--route", choice];
        let ran = home.run([&args[..], &dead].concat());
        ran.code_is(0);
        home.holds(choice, &content);
    }
}
