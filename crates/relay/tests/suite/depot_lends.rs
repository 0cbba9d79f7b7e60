//! What a depot lends: space for a time, by three capabilities each of which opens one thing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use serde_json::json;
use swath_relay::RelayOptions;
use swath_store::depot::DepotOptions;

use crate::support::{
    Lease, Relay, connect, lending, lending_as, networks, options, to_end, until,
};

/// A depot with so many bytes of disk, in a folder that is gone when dropped, and of memory.
fn depot(size_bytes: u64, memory_bytes: u64) -> (tempfile::TempDir, Relay) {
    let folder = tempfile::tempdir().unwrap();
    let options =
        DepotOptions { size_bytes, memory_bytes, ..DepotOptions::in_folder(folder.path()) };
    let relay = Relay::start(lending_as(options));
    (folder, relay)
}

#[test]
fn no_more_is_promised_than_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let length_max = Duration::from_secs(3600);
    let (size_bytes, memory_bytes) = (1_000_000, 100_000);
    let limits = DepotOptions { size_bytes, memory_bytes, length_max, ..DepotOptions::default() };
    let depot = DepotOptions { folder: Some(folder.path().to_owned()), ..limits };
    let depot = Relay::start(lending_as(depot));
    let one = depot.allocate(600_000, 3600, "");
    depot.ask("POST", "/depot?size=600000&lease=60", "", b"").is(507).says("bytes are free");
    let two = depot.allocate(90_000, 3600, "&medium=memory");
    depot.ask("POST", "/depot?size=90000&lease=60&medium=memory", "", b"").is(507);
    depot.put(&two, 0, 90_000, &[7; 90_000]).is(204);
    let room = depot.ask("GET", "/depot", "", b"").is(200).json();
    assert_eq!((&room["allocations"], &room["lease_max_s"]), (&json!(2), &json!(3600)));
    let free = room["disk"]["free_bytes"].as_u64().unwrap();
    assert!((390_000..400_001).contains(&free), "{room}");
    depot.ask("DELETE", &one.manage, "", b"").is(204);
    depot.allocate(free + 500_000, 60, "");
}

#[test]
fn what_is_asked_for_in_the_wrong_words_is_told() {
    let depot = Relay::start(lending(1 << 20));
    let lease = depot.allocate(1000, 60, "");
    for (method, target, status, words) in [
        ("POST", "/depot?size=10&lease=604801".to_owned(), 400, "lease"),
        ("POST", "/depot?size=0&lease=60".to_owned(), 400, ""),
        ("POST", "/depot?lease=60".to_owned(), 400, "size= is missing"),
        ("POST", "/depot?size=10&lease=60&lease=60".to_owned(), 400, "comes twice"),
        ("POST", "/depot?size=10&lease=60&x=1".to_owned(), 400, "no parameter 'x'"),
        ("POST", "/depot?size=10&lease=60&medium=tape".to_owned(), 400, "medium= is"),
        ("POST", "/depot?size=10&lease=60&medium=disk".to_owned(), 507, ""),
        ("POST", format!("{}?extend=604801", lease.manage), 400, ""),
        ("POST", lease.manage.clone(), 400, "from= is missing"),
        ("DELETE", "/depot".to_owned(), 405, "this is done by"),
        ("PATCH", lease.write.clone(), 405, "this is done by"),
    ] {
        let told = depot.ask(method, &target, "", b"").is(status);
        assert!(told.text().contains(words), "{target}: {}", told.text());
    }
    let coded = "Content-Encoding: gzip\r\n";
    depot.ask("PUT", &lease.write, coded, &[1; 1000]).is(415);
}

#[test]
fn a_relay_without_a_depot_says_so() {
    let bare = Relay::start(options());
    bare.ask("GET", "/depot", "", b"").is(404).says("--depot");
    bare.ask("POST", "/depot?size=10&lease=60", "", b"").is(404).says("--depot");
    bare.ask("GET", &format!("/depot/{}", "0".repeat(64)), "", b"").is(404).says("--depot");
}

#[test]
fn each_capability_opens_one_thing() {
    let depot = Relay::start(lending(10 << 20));
    let lease = depot.allocate(1000, 600, "");
    for (method, target) in [
        ("PUT", lease.read.clone()),
        ("PUT", lease.manage.clone()),
        ("GET", lease.write.clone()),
        ("GET", lease.manage.clone()),
        ("DELETE", lease.read.clone()),
        ("DELETE", lease.write.clone()),
        ("POST", format!("{}?extend=900", lease.write)),
        ("POST", format!("{}?extend=900", lease.read)),
        ("POST", format!("{}?from=http://127.0.0.1:9/&range=0-1", lease.read)),
    ] {
        depot.ask(method, &target, "", b"").is(403).says("this capability opens");
    }
    for (any, opens) in
        [(&lease.read, "reading"), (&lease.write, "storing"), (&lease.manage, "managing")]
    {
        let told = depot.ask("GET", &format!("{any}?status"), "", b"").is(200).json();
        assert_eq!(told["opens"], opens);
    }
}

#[test]
fn what_nobody_leased_is_nobody_s() {
    let depot = Relay::start(lending(1 << 20));
    let nobody = format!("/depot/{}", "0".repeat(64));
    for (method, more) in [("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "?status")] {
        let told = depot.ask(method, &format!("{nobody}{more}"), "", b"").is(404);
        assert_eq!(told.field("swath-lease"), Some("0"), "{method}{more}");
    }
    // What is no address at all is no lease that has ended.
    for odd in ["/depot/short", &format!("/depot/{}", "g".repeat(64))] {
        let told = depot.ask("GET", odd, "", b"").is(404);
        assert_eq!(told.field("swath-lease"), None, "{told:?}");
    }
}

#[test]
fn nothing_is_lent_to_those_who_may_not_use_the_relay() {
    let clients = networks("192.0.2.0/24");
    let other = Relay::start(RelayOptions { clients, ..lending(1 << 20) });
    other.ask("GET", "/depot", "", b"").is(403);
    other.ask("POST", "/depot?size=10&lease=60", "", b"").is(403);
    other.ask("GET", &format!("/depot/{}", "0".repeat(64)), "", b"").is(403);
    // Nor on behalf of a page that somebody looks at, who may.
    let depot = Relay::start(lending(1 << 20));
    let from_page = "Origin: https://evil.example\r\n";
    depot.ask("POST", "/depot?size=10&lease=60", from_page, b"").is(403).says("web pages");
    depot.ask("GET", "/depot", from_page, b"").is(200);
}

#[test]
fn no_client_is_given_more_than_half_of_all_leases() {
    let memory_bytes = 1 << 20;
    let limits = DepotOptions { memory_bytes, leases_max: 4, ..DepotOptions::default() };
    let depot = Relay::start(lending_as(limits));
    let room = depot.ask("GET", "/depot", "", b"").is(200).json();
    assert_eq!(room["allocations_max"], 4);
    let first = depot.allocate(1000, 600, "");
    depot.allocate(1000, 600, "");
    let more = || depot.ask("POST", "/depot?size=1000&lease=60", "", b"");
    more().is(507).says("half of all allocations are this client's");
    depot.ask("DELETE", &first.manage, "", b"").is(204);
    more().is(201);
    more().is(507);
}

#[test]
fn a_lease_is_extended_and_shortened_by_whoever_manages_it() {
    let depot = Relay::start(lending(1 << 20));
    let lease = depot.allocate(1000, 600, "");
    let left = |lease: &Lease| depot.status(lease)["lease_s"].as_f64().unwrap();
    assert!(left(&lease) <= 600.0);
    let told = depot.ask("POST", &format!("{}?extend=1200", lease.manage), "", b"").is(200);
    assert_eq!(told.text(), "{\"lease_s\":1200.0}\n");
    assert!((600.0..=1200.0).contains(&left(&lease)), "{}", left(&lease));
    let told = depot.ask("DELETE", &lease.manage, "", b"").is(204);
    assert_eq!(told.field("swath-lease"), Some("0"));
    for (method, target) in [
        ("GET", lease.read.clone()),
        ("PUT", lease.write.clone()),
        ("DELETE", lease.manage.clone()),
        ("POST", format!("{}?extend=60", lease.manage)),
    ] {
        let told = depot.ask(method, &target, "", b"").is(410);
        assert_eq!(told.field("swath-lease"), Some("0"), "{told:?}");
    }
}

#[test]
fn a_lease_that_ends_ends_what_is_read_and_gives_its_space_back() {
    const SIZE: u64 = 40_000_000;
    let (folder, depot) = depot(50_000_000, 1_000_000);
    let lease = depot.allocate(SIZE, 600, "");
    let (small, least) = (depot.allocate(1000, 1, ""), depot.allocate(1000, 1, "&medium=memory"));
    depot.put(&lease, 0, SIZE, &vec![7; SIZE as usize]).is(204);
    // More than all the buffers on the way hold.
    let mut tcp = connect(depot.address);
    let head = format!("GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", lease.read);
    tcp.write_all(head.as_bytes()).unwrap();
    let mut got = vec![0; 1000];
    tcp.read_exact(&mut got).unwrap();
    depot.ask("DELETE", &lease.manage, "", b"").is(204);
    for ending in [&small, &least] {
        until("it ends", || {
            let told = depot.ask("GET", &format!("{}?status", ending.read), "", b"");
            assert!(told.status == 200 || told.status == 410, "{told:?}");
            told.status == 410
        });
    }
    // The other end may be a reset.
    got.extend(to_end(&mut tcp));
    assert!((1000..SIZE as usize).contains(&got.len()), "{}", got.len());
    let body = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(got[body..].iter().all(|&byte| byte == 7), "missing, not wrong");
    let told = depot.ask("DELETE", &small.manage, "", b"").is(410);
    assert_eq!(told.field("swath-lease"), Some("0"));
    assert_eq!(depot.metric("swath_depot_allocations"), 0);
    assert_eq!(depot.metric("swath_depot_stored_bytes_total"), SIZE);
    let leases = folder.path().join("leases");
    until("its file is gone", || fs::read_dir(&leases).unwrap().count() == 0);
    depot.allocate(49_000_000, 60, "");
}

#[test]
fn a_depot_that_begins_again_has_what_it_had_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let begin = || {
        let size_bytes = 10_000_000;
        let options = DepotOptions { size_bytes, ..DepotOptions::in_folder(folder.path()) };
        Relay::start(lending_as(options))
    };
    let depot = begin();
    let lease = depot.allocate(1000, 600, "");
    let given_up = depot.allocate(1000, 600, "");
    depot.put(&lease, 100, 1000, &[7; 100]).is(204);
    depot.ask("DELETE", &given_up.manage, "", b"").is(204);
    drop(depot);
    let depot = begin();
    let status = depot.status(&lease);
    assert_eq!(status["held"], json!([[100, 200]]));
    assert!(status["lease_s"].as_f64().unwrap() <= 600.0, "{status}");
    let told = depot.ask("GET", &lease.read, "Range: bytes=100-199\r\n", b"").is(206);
    assert_eq!(told.body, [7; 100]);
    let told = depot.ask("GET", &given_up.read, "", b"");
    assert!(matches!(told.status, 404 | 410), "{told:?}");
    assert_eq!(told.field("swath-lease"), Some("0"));
}

#[test]
fn a_depot_promises_no_more_than_its_disk_has() {
    // What that disk has no room for was refused as if others had filled it.
    let (_folder, depot) = depot(500_000_000_000_000, 0);
    let room = depot.ask("GET", "/depot", "", b"").is(200).json();
    let free = room["disk"]["free_bytes"].as_u64().unwrap();
    assert!(free < 500_000_000_000_000, "no test runs on such a disk");
    let told = depot.ask("POST", "/depot?size=400000000000000&lease=60", "", b"").is(507);
    assert!(told.text().contains("disk has only "), "{}", told.text());
    let (_folder, depot) = self::depot(1_000_000, 0);
    let room = depot.ask("GET", "/depot", "", b"").is(200).json();
    assert_eq!(room["disk"]["free_bytes"], 1_000_000);
}

#[test]
fn space_that_is_not_reserved_is_taken_as_bytes_are_stored() {
    let depot = Relay::start(lending(100_000));
    let taken = || {
        let room = depot.ask("GET", "/depot", "", b"").is(200).json();
        room["memory"]["taken_bytes"].as_u64().unwrap()
    };
    let lease = depot.allocate(90_000, 600, "&reserve=no");
    assert_eq!(taken(), 0);
    depot.put(&lease, 0, 90_000, &[7; 10_000]).is(204);
    assert!(taken() >= 10_000, "{}", taken());
    // What others have reserved meanwhile is not there any more.
    let free = 100_000 - taken();
    let reserved = depot.allocate(free / 4096 * 4096, 600, "");
    depot.put(&lease, 20_000, 90_000, &[7; 20_000]).is(507);
    depot.ask("DELETE", &reserved.manage, "", b"").is(204);
    depot.put(&lease, 20_000, 90_000, &[7; 20_000]).is(204);
}
