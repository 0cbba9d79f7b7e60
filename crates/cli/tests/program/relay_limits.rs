//! Relays that are full of clients: a transfer that waits for its place, and the memory that a thousand
//! take. (What the limits allow is tested in the crate `swath-relay`.)

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use swath_netlab::faulty::{Behaviour, Content};

use crate::support::depot::until;
use crate::support::net::{honest, server, sha256, url};
use crate::support::relay::{Ear, head_of};
use crate::support::serve::Served;
use crate::support::{Home, peak_bytes};

/// What to ask a relay for to have what is at `url`.
fn target(relay: &Served, url: &str) -> String {
    relay.through(url)[relay.named().len()..].to_owned()
}

fn connect(relay: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(relay).unwrap();
    // Longer than anything here takes, and shorter than for ever.
    tcp.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    tcp
}

/// The body of the answer to one request for a range; the connection ends with it.
fn ask(tcp: &mut TcpStream, target: &str, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let range = format!("Range: bytes={start}-{}", end - 1);
    let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{range}\r\nConnection: close\r\n\r\n");
    tcp.write_all(head.as_bytes())?;
    let head = head_of(tcp).ok_or_else(|| io::Error::other("no answer"))?;
    assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
    let mut body = Vec::new();
    tcp.read_to_end(&mut body)?;
    Ok(body)
}

#[test]
fn a_transfer_by_a_full_relay_ends_when_places_become_free() {
    let home = Home::new();
    let content = Content::random(3, 1_000_000);
    // It says nothing to those who have the places until the transfer has asked for one.
    let origin = server(&content, Behaviour::Silent { after: Duration::ZERO });
    let relay = home.relay(&["--max-connections", "4"]);
    let clients: Vec<_> = (0..4)
        .map(|at| {
            let (address, target) = (relay.address(), target(&relay, &url(&origin)));
            std::thread::spawn(move || ask(&mut connect(address), &target, at, 500_000).unwrap())
        })
        .collect();
    until("all places are taken", || origin.log().count("GET") == 4);
    let ear = Ear::before(relay.address(), |_| {});
    let (digest, named) = (sha256(&content), ear.url());
    let args = ["get", &url(&origin), "-o", "got", "--digest", &digest, "--route", &named];
    let getting = home.swath(args).start();
    until("it asks for a place", || ear.heard("GET /relay"));
    origin.clear();
    getting.wait().code_is(0).says(&["verified by sha-256"]);
    home.holds("got", &content);
    // Whoever was there before has lost nothing by it.
    for (at, client) in (0..).zip(clients) {
        let body = client.join().unwrap();
        assert!(body == content.read(at, 500_000), "{at}: {} bytes", body.len());
    }
}

#[test]
fn a_thousand_clients_stream_at_once_within_bounded_memory() {
    // Answers that are longer than what buffers hold.
    const CLIENTS: u64 = 1000;
    const EACH: u64 = 256_000;
    const APART: u64 = 64;
    let home = Home::new();
    let content = Content::random(4, EACH + CLIENTS * APART);
    let origin = honest(&content);
    let relay = home.relay(&[]);
    let (address, target) = (relay.address(), target(&relay, &url(&origin)));
    let (whole, target) = (Arc::new(content.read(0, content.size_bytes())), Arc::new(target));
    let all = Arc::new(Barrier::new(CLIENTS as usize));
    let client = |number: u64| {
        let (all, whole, target) = (Arc::clone(&all), Arc::clone(&whole), Arc::clone(&target));
        let run = move || {
            let mut tcp = connect(address);
            all.wait();
            let start = number * APART;
            let body = ask(&mut tcp, &target, start, start + EACH).unwrap();
            assert!(body == whole[start as usize..(start + EACH) as usize], "{number}");
        };
        std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap()
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    clients.into_iter().for_each(|it| it.join().unwrap());
    let peak_mib = peak_bytes(relay.pid()).unwrap() >> 20;
    assert!(peak_mib < 200, "{peak_mib} MiB");
}
