//! Relays that break, stall, or are many people's at once.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use swath_netlab::faulty::{Behaviour, Content};

use crate::support::depot::until;
use crate::support::net::{honest, server, sha256, slow, url};
use crate::support::serve::other;
use crate::support::{Home, peak_bytes};

#[test]
fn a_relay_that_is_killed_and_started_again_brings_the_rest() {
    let home = Home::new();
    let content = Content::random(1, 24 << 20);
    let origin = slow(&content, 6 << 20);
    let relay = home.relay(&[]);
    let (address, named) = (relay.address().to_string(), relay.named());
    let digest = sha256(&content);
    let args = ["get", &url(&origin), "-o", "got", "--digest", &digest, "--route", &named];
    let getting = home.swath(args).start();
    home.wait_for_bytes("got.swath.part", 6 << 20);
    relay.signal(9);
    drop(relay);
    std::thread::sleep(Duration::from_millis(300));
    let _again = home.relay_at(&address, &[]);
    getting.wait().code_is(0);
    home.holds("got", &content);
}

#[test]
fn a_relay_that_was_away_for_seconds_is_in_use_again_at_once() {
    // Nobody had noticed that it was gone, since it could not even be asked; so when it was back it had
    // been silent for too long, and rested for a quarter of a minute.
    let home = Home::new();
    let content = Content::random(12, 1 << 30);
    let each = Behaviour::ConnectionRate { bytes_per_s: 1 << 20 };
    let origin = server(&content, each);
    let relay = home.relay(&[]);
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
    drop(relay);
    std::thread::sleep(Duration::from_millis(3500));
    let before = by_relay();
    let _again = home.relay_at(&address, &[]);
    let began = Instant::now();
    until("it is in use again", || by_relay() > before + (1 << 20));
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert!(!getting.is_over());
    getting.signal(libc::SIGINT);
    getting.wait().code_is(130);
}

#[test]
fn a_relay_that_pauses_is_waited_for_as_any_server_is() {
    // A named route was closed after a few seconds of silence, and the transfer was over.
    let home = Home::new();
    let content = Content::random(11, 24 << 20);
    let origin = slow(&content, 6 << 20);
    let relay = home.relay(&[]);
    let args = ["get", &url(&origin), "-o", "got", "--route", &relay.named()];
    let getting = home.swath(args).start();
    home.wait_for_bytes("got.swath.part", 6 << 20);
    relay.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(6));
    relay.signal(libc::SIGCONT);
    getting.wait().code_is(0);
    home.holds("got", &content);
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
    let gone = home.run([
        "get",
        "http://127.0.0.1:9/data.bin",
        "--relay",
        &relay.named(),
        "--timeout",
        "5s",
    ]);
    gone.code_is(7).says(&["cannot connect to 127.0.0.1:9"]);
}

#[test]
fn a_source_that_lets_only_relays_in_is_reached_by_them() {
    // That it did not let us in was taken for its last word on the file: the transfer ended with it.
    let home = Home::new();
    let content = Content::random(15, 8 << 20);
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
        let dead = ["--relay", "http://127.0.0.1:9", "--relay", &alive.named()];
        let args = ["get", &url(&origin), "-o", choice, "--route", choice];
        let ran = home.run([&args[..], &dead].concat());
        ran.code_is(0);
        home.holds(choice, &content);
    }
}

#[test]
fn answers_that_are_cut_short_are_no_whole_ones() {
    let home = Home::new();
    let content = Content::random(3, 1 << 20);
    let relay = home.relay(&["--timeout", "2s"]);
    for (name, rule) in [
        ("told its length", Behaviour::Truncate { after_bytes: 300_000 }),
        ("dies", Behaviour::die_after(400_000)),
    ] {
        let origin = server(&content, rule);
        let to = relay.through(&url(&origin));
        let Some((code, said)) = other(&home.work(), "curl", &["-sS", "-o", "got", &to]) else {
            return;
        };
        assert!(code == 18 || code == 56, "{name}: {code} {said}");
    }
    // A server that says nothing is named, and after the time that was given.
    let silent = server(&content, Behaviour::FirstByteDelay(Duration::from_secs(600)));
    let began = Instant::now();
    let to = relay.through(&url(&silent));
    let (_, told) = other(&home.work(), "curl", &["-sSi", &to]).unwrap();
    assert!(
        told.starts_with("HTTP/1.1 504 ") && told.contains("connection_read_timeout"),
        "{told}"
    );
    assert!(began.elapsed() < Duration::from_secs(60));
    // What is no HTTP is no answer.
    let nonsense = server(&content, Behaviour::GarbageStatus("SSH-2.0-OpenSSH".to_owned()));
    let (_, told) =
        other(&home.work(), "curl", &["-sSi", &relay.through(&url(&nonsense))]).unwrap();
    assert!(told.starts_with("HTTP/1.1 502 ") && told.contains("http_protocol_error"), "{told}");
}

#[test]
fn whoever_leaves_is_left_at_once() {
    // Nothing more is taken from an origin for somebody who is gone.
    let home = Home::new();
    let content = Content::random(4, 400 << 20);
    let origin = slow(&content, 20 << 20);
    let relay = home.relay(&[]);
    let target = relay.through(&url(&origin));
    let target = &target[relay.named().len()..];
    let mut tcp = TcpStream::connect(relay.address()).unwrap();
    tcp.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    let mut some = vec![0; 1 << 20];
    tcp.read_exact(&mut some).unwrap();
    assert!(origin.handle().open_connections() > 0);
    drop(tcp);
    let left = |it: &swath_netlab::faulty::Handle| it.open_connections() == 0;
    assert!(origin.handle().wait_until(Duration::from_secs(20), left), "it is still asked");
    // And nobody who takes nothing has an origin's answer gathered in memory.
    let mut tcp = TcpStream::connect(relay.address()).unwrap();
    tcp.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    tcp.read_exact(&mut some).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let peak_mib = peak_bytes(relay.pid()).unwrap() >> 20;
    assert!(peak_mib < 100, "{peak_mib} MiB");
}

#[test]
fn a_thousand_clients_are_served_within_bounded_memory() {
    let home = Home::new();
    let content = Content::random(5, 1 << 20);
    let origin = honest(&content);
    let relay = home.relay(&[]);
    let target = relay.through(&url(&origin));
    let target = &target[relay.named().len()..];
    let mut all: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(relay.address()).unwrap()).collect();
    for (at, tcp) in all.iter_mut().enumerate() {
        let start = at * 1000;
        let range = format!("bytes={start}-{}", start + 999);
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n");
        tcp.write_all(request.as_bytes()).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
    for (at, tcp) in all.iter_mut().enumerate() {
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        let end = loop {
            let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end.filter(|end| answer.len() >= end + 4 + 1000) {
                break end + 4;
            }
            match tcp.read(&mut part) {
                Ok(bytes @ 1..) => answer.extend_from_slice(&part[..bytes]),
                other => panic!("{at}: {other:?}: {}", String::from_utf8_lossy(&answer)),
            }
        };
        assert!(answer[end..] == content.read(at as u64 * 1000, (at as u64 + 1) * 1000), "{at}");
    }
    let peak_mib = peak_bytes(relay.pid()).unwrap() >> 20;
    assert!(peak_mib < 200, "{peak_mib} MiB");
}

/// A server whose answer for `/a` has something behind it, at once; all others are in order.
fn too_much(excess: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = tcp.unwrap();
            std::thread::spawn(move || {
                loop {
                    let (mut head, mut byte) = (Vec::new(), [0]);
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(1) = tcp.read(&mut byte) else { return };
                        head.push(byte[0]);
                    }
                    let is_odd = head.starts_with(b"GET /a ");
                    let (body, more) = if is_odd { ("fine\n", excess) } else { ("good\n", "") };
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}{more}", 5);
                    if tcp.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn what_comes_behind_an_answer_is_nobodys() {
    // It was taken for the answer to what was asked next, which was a 502 for somebody who had done
    // nothing, or whatever the server liked.
    let home = Home::new();
    for (excess, is_like_http) in
        [("junk", false), ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nevil\n", true)]
    {
        let relay = home.relay(&[]);
        let origin = too_much(excess);
        let at = |path: &str| relay.through(&format!("http://{origin}{path}"));
        let curl = |urls: &[&str]| other(&home.work(), "curl", &[&["-sS"], urls].concat());
        for _ in 0..5 {
            // On the connection of the same client, and on one that was kept.
            let Some(told) = curl(&[&at("/a"), &at("/b"), &at("/a")]) else { return };
            assert_eq!(told, (0, "fine\ngood\nfine\n".to_owned()), "{excess}");
            assert_eq!(curl(&[&at("/b")]), Some((0, "good\n".to_owned())), "{excess}");
        }
        if is_like_http {
            continue;
        }
        // What was sent ahead is sent once more.
        let path = |path: &str| {
            format!("GET {} HTTP/1.1\r\nHost: r\r\n\r\n", &at(path)[relay.named().len()..])
        };
        let answers = relay.raw((path("/a") + &path("/b")).as_bytes());
        let text = String::from_utf8_lossy(&answers).into_owned();
        assert!(text.contains("\r\n\r\nfine\n") && text.ends_with("\r\n\r\ngood\n"), "{text}");
    }
}
