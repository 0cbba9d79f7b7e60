//! `swath seed`: trackers, several torrents on one port, encryption, restarts.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use crate::support::Home;
use crate::support::seed::{Seeding, Tracking};
use crate::support::serve::reserved_address;
use crate::support::trees::bytes;

/// A folder of three files, the second of them empty, and a file.
fn with_data() -> Home {
    let home = Home::new();
    fs::create_dir(home.path("run7")).unwrap();
    home.write("run7/a.h5", bytes(1, 1_300_001));
    home.write("run7/b", "");
    home.write("run7/c.txt", bytes(2, 77_777));
    home.write("data.bin", bytes(3, 2_000_003));
    home
}

/// These files lie in a folder, whole.
#[track_caller]
fn has(home: &Home, folder: &str, names: &[&str]) {
    for name in names {
        assert!(home.read(&format!("{folder}/{name}")) == home.read(name), "{folder}/{name}");
    }
}

fn peer(seeding: &Seeding) -> String {
    format!("127.0.0.1:{}", seeding.port)
}

#[test]
fn torrents_of_every_kind_are_served_to_those_whom_trackers_send() {
    let home = with_data();
    let tracker = home.track(&[]);
    let udp = tracker.url.replace("http://", "udp://");
    for (at, kind) in ["v1", "v2", "hybrid"].into_iter().enumerate() {
        let trackers = if at == 1 { &udp } else { &tracker.url };
        home.publish_torrent("run7", kind, &[trackers], &["--force", "--piece", "64KiB"]);
        let seeding = home.seed(&["run7.torrent"]);
        seeding.says("verified run7: ");
        seeding.says("run7: announced to ");
        home.run(["get", "run7.torrent", "-d", kind]).code_is(0);
        has(&home, kind, &["run7/a.h5", "run7/b", "run7/c.txt"]);
        seeding.signal(15);
        let (code, said) = seeding.wait();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("run7: sent 1.") && said.contains("to 1 address in "), "{said}");
    }
}

#[test]
fn a_private_torrent_is_served_to_peers_of_its_tracker() {
    let home = with_data();
    let tracker = home.track(&[]);
    home.publish_torrent("data.bin", "hybrid", &[&tracker.url], &["--private"]);
    let seeding = home.seed(&["data.bin.torrent", "--peer", "127.0.0.1:1"]);
    seeding.says("data.bin is private: --peer is ignored");
    seeding.says("announced to ");
    home.run(["get", "data.bin.torrent", "-d", "got"]).code_is(0);
    has(&home, "got", &["data.bin"]);
}

#[test]
fn a_seeder_that_requires_encryption_serves_those_who_encrypt() {
    let home = with_data();
    home.publish_torrent("data.bin", "v1", &[], &[]);
    let seeding = home.seed(&["data.bin.torrent", "--require-encryption"]);
    home.run(["get", "data.bin.torrent", "-d", "got", "--peer", &peer(&seeding)]).code_is(0);
    has(&home, "got", &["data.bin"]);
}

#[test]
fn several_torrents_and_leechers_share_one_port() {
    let home = with_data();
    let tracker = home.track(&[]);
    home.publish_torrent("run7", "v1", &[&tracker.url], &["--piece", "16KiB", "-o", "pub"]);
    home.publish_torrent("data.bin", "v1", &[&tracker.url], &["--piece", "16KiB", "-o", "pub"]);
    let seeding = home.seed(&["pub", "--data", "."]);
    seeding.says("data.bin: announced to ");
    seeding.says("run7: announced to ");
    let mut leechers = Vec::new();
    for folder in ["one", "two", "three"] {
        for torrent in ["pub/run7.torrent", "pub/data.bin.torrent"] {
            leechers.push(home.live(&["get", torrent, "-d", folder]));
        }
    }
    for leecher in leechers {
        let (code, said) = leecher.wait();
        assert_eq!(code, Some(0), "{said}");
    }
    for folder in ["one", "two", "three"] {
        has(&home, folder, &["run7/a.h5", "run7/b", "run7/c.txt", "data.bin"]);
    }
    seeding.signal(2);
    let (code, said) = seeding.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("of 2 torrents to "), "{said}");
}

#[test]
fn trackers_hear_when_it_comes_and_goes() {
    let home = with_data();
    let tracker = Tracking::start(&home, &reserved_address(), &[]);
    // A hybrid torrent is announced by both info-hashes.
    home.publish_torrent("data.bin", "hybrid", &[], &[]);
    let url = tracker.served.url.clone();
    let seeding = home.seed(&["data.bin.torrent", "--tracker", &url]);
    tracker.has_peers(2);
    seeding.signal(15);
    assert_eq!(seeding.wait().0, Some(0));
    assert!(tracker.get("/stats.json").contains("\"peers\":0,"));
    // A dead tracker causes one warning, and does not prevent a clean end.
    drop(tracker);
    let seeding = home.seed(&["data.bin.torrent", "--tracker", &url]);
    seeding.says("warning: data.bin: http://127.0.0.1:");
    seeding.signal(15);
    assert_eq!(seeding.wait().0, Some(0));
}

/// A tracker knows a peer by the address from which it announces.
#[test]
fn it_announces_from_the_address_where_it_listens() {
    let home = with_data();
    let tracker = home.track(&[]);
    let udp = tracker.url.replace("http://", "udp://");
    for (name, url) in [("run7", &tracker.url), ("data.bin", &udp)] {
        home.publish_torrent(name, "v1", &[url], &[]);
        let torrent = format!("{name}.torrent");
        let seeding = home.seed_at("127.0.0.3:0", &[&torrent]);
        seeding.says("announced to ");
        // Where it does not listen nobody finds it.
        home.run(["get", &torrent, "-d", "got"]).code_is(0).says(&["127.0.0.3:"]);
    }
}

#[test]
fn the_port_lets_peers_in_by_utp_if_asked_for_and_refuses_them_otherwise() {
    let home = with_data();
    home.publish_torrent("data.bin", "v1", &[], &["--piece", "64KiB"]);
    let at = reserved_address();
    // What it answers to who asks for a connection (BEP 29): the number of the connection, and the kind.
    let answer = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut asked = [0; 20];
        (asked[0], asked[2], asked[3], asked[17]) = (0x41, 7, 9, 1);
        socket.send_to(&asked, &at).unwrap();
        let mut told = [0; 100];
        let bytes = socket.recv(&mut told).unwrap();
        assert!(bytes >= 20 && told[2..4] == [7, 9], "{told:?}");
        told[0]
    };
    let (refused, welcome) = (0x31, 0x21);
    let seeding = home.seed_at(&at, &["data.bin.torrent"]);
    assert_eq!(answer(), refused);
    drop(seeding);
    let with = home.seed_at(&at, &["data.bin.torrent", "--utp"]);
    assert_eq!(answer(), welcome);
    drop(with);
    // Somebody else has the port: TCP is enough.
    let _taken = UdpSocket::bind(&at).unwrap();
    let seeding = home.seed_at(&at, &["data.bin.torrent", "--utp"]);
    seeding.says(&format!("no peers are let in by uTP: cannot open UDP {at}: "));
    home.run(["get", "data.bin.torrent", "-d", "got", "--peer", &at]).code_is(0);
    has(&home, "got", &["data.bin"]);
}
