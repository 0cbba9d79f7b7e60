//! Relays that are asked for names which lead into their own networks. Names lead where a file of hosts
//! says, which is mounted in a namespace of the relay's own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use swath_netlab::faulty::Content;

use crate::support::Home;
use crate::support::net::{FILE, honest};
use crate::support::serve::Served;

const SIZE: u64 = 3_000_017;

/// A relay with a depot that asks these alone, where names lead where `hosts` says.
fn inner(home: &Home, upstream: &str) -> Option<Served> {
    let usual = ["relay", "--plain", "--clients", "127.0.0.0/8", "--listen", "127.0.0.1:0"];
    let more = ["--name", "inner", "--depot-memory", "10M", "--upstream", upstream];
    let swath = home.swath(usual.iter().chain(&more)).with_hosts(&home.path("hosts"))?;
    Some(Served::of(swath, &["--token-file"]))
}

/// What comes back for a request for a tunnel and one within it, up to the end of the connection or of
/// this content.
fn by_tunnel(relay: &Served, site: &str, content: &Content) -> Vec<u8> {
    let mut tcp = TcpStream::connect(relay.address()).unwrap();
    // Nobody waits as long: it ends, or it is all there.
    tcp.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    let within = format!("GET {FILE} HTTP/1.1\r\nHost: {site}\r\n\r\n");
    write!(tcp, "CONNECT {site} HTTP/1.1\r\nHost: {site}\r\n\r\n{within}").unwrap();
    let end = content.read(content.size_bytes() - 64, content.size_bytes());
    let (mut answer, mut part) = (Vec::new(), vec![0; 65536]);
    while !answer.ends_with(&end) {
        match tcp.read(&mut part) {
            Ok(bytes @ 1..) => answer.extend_from_slice(&part[..bytes]),
            _ => break,
        }
    }
    answer
}

#[test]
fn a_name_that_is_listed_leads_to_no_address_that_is_not_public_unless_that_is_listed_too() {
    // Whoever has the name could have it lead into the relay's own network, or to its machine.
    let home = Home::new();
    let content = Content::random(1, SIZE);
    let origin = honest(&content);
    home.write("hosts", "127.0.0.1 localhost inner.test\n");
    let site = format!("inner.test:{}", origin.port());
    let from = format!("http://{site}{FILE}");
    let passed_on = format!("/relay/{from}");
    let Some(relay) = inner(&home, "inner.test") else { return };
    let lease = relay.allocate(SIZE, 600, "");
    let passed = relay.ask("GET", &passed_on, "", b"").is(403);
    let fetched = relay.fetch(&lease, &from, 0, SIZE, "").is(403);
    let [passed, fetched] = [passed, fetched].map(|told| format!("{}{}", told.head, told.text()));
    let tunnelled = String::from_utf8_lossy(&by_tunnel(&relay, &site, &content)).into_owned();
    assert!(tunnelled.starts_with("HTTP/1.1 403 "), "{tunnelled}");
    for told in [passed, fetched, tunnelled] {
        let words = "it leads to an address that is not public, and that is not listed here \
                     (--upstream CIDR lists it)";
        assert!(told.contains(&format!("relay inner: {site}: {words}\n")), "{told}");
        // Or the answer would be a way to look around there.
        assert!(!told.contains("127.0.0.1") && !told.contains("loopback"), "{told}");
    }
    assert_eq!(relay.status(&lease)["held"], serde_json::json!([]));
    assert!(origin.log().is_empty(), "{:?}", origin.log());
    assert_eq!(origin.connections(), 0);
    drop(relay);
    let relay = inner(&home, "inner.test,127.0.0.1").unwrap();
    let whole = content.read(0, SIZE);
    assert!(relay.ask("GET", &passed_on, "", b"").is(200).body == whole);
    let tunnelled = by_tunnel(&relay, &site, &content);
    assert!(tunnelled.starts_with(b"HTTP/1.1 200 ") && tunnelled.ends_with(&whole));
    let lease = relay.allocate(SIZE, 600, "");
    relay.fetch(&lease, &from, 0, SIZE, "").is(200);
    assert!(relay.ask("GET", &lease.read, "", b"").is(200).body == whole);
}
