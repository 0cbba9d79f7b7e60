//! uTP (BEP 29) with clients that speak nothing else.

use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::libtorrent::{self, Libtorrent};
use crate::support::torrent::{Client, arrives};
use crate::support::trees::bytes;

fn with_data(kind: &str) -> Home {
    let home = Home::new();
    home.write("data.bin", bytes(3, 2_000_003));
    home.publish_torrent("data.bin", kind, &[], &["--piece", "64KiB"]);
    home
}

/// libtorrent without TCP, which has or fetches `data.bin` in `folder`; `peer` is a port of this machine
/// to connect to. `None`, with a message, where this Python has no such library.
fn libtorrent(home: &Home, python: &str, folder: &str, peer: Option<u16>) -> Option<Client> {
    let settings = r#"{"enable_outgoing_tcp": false, "enable_incoming_tcp": false}"#;
    let torrent = home.path("data.bin.torrent");
    let client = Libtorrent { python, settings, peer };
    client.start(&home.path(folder), "libtorrent", &[torrent.to_str().unwrap()])
}

#[test]
fn libtorrent_fetches_by_utp() {
    for (python, kind, more) in [
        (libtorrent::NEW, "hybrid", &[][..]),
        (libtorrent::NEW, "v1", &["--require-encryption"]),
        (libtorrent::OLD, "v2", &["--allow", "127.0.0.1"]),
    ] {
        let home = with_data(kind);
        let seeding = home.seed(&[&["data.bin.torrent", "--utp"], more].concat());
        let Some(client) = libtorrent(&home, python, "got", Some(seeding.port)) else { continue };
        arrives(&home.path("got/data.bin"), &home.read("data.bin"));
        client.says("complete");
        drop(client);
        seeding.signal(15);
        let (code, said) = seeding.wait();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("data.bin: sent ") && said.contains("to 1 address in "), "{said}");
    }
}

#[test]
fn libtorrent_seeds_by_utp() {
    for python in [libtorrent::NEW, libtorrent::OLD] {
        let home = with_data("hybrid");
        let Some(client) = libtorrent(&home, python, ".", None) else { continue };
        client.says("listens at ");
        let said = client.said();
        let line = said.lines().find_map(|line| line.strip_prefix("listens at ")).unwrap();
        let peer = format!("127.0.0.1:{}", line.trim());
        client.says("complete");
        home.run(["get", "data.bin.torrent", "-d", "got", "--peer", &peer]).code_is(0);
        assert!(home.read("got/data.bin") == home.read("data.bin"), "{python}");
        // The metafile, too.
        let hash = client.said();
        let hash = hash.lines().find_map(|line| line.strip_prefix("info-hash ")).unwrap().trim();
        let link = format!("magnet:?xt=urn:btih:{hash}&x.pe={peer}");
        home.run(["get", &link, "-d", "by-link"]).code_is(0);
        assert!(home.read("by-link/data.bin") == home.read("data.bin"), "{python}");
    }
}

#[test]
fn anacrolix_fetches_by_utp() {
    let home = with_data("v1");
    let tracker = home.track(&[]);
    home.publish_torrent("data.bin", "v1", &[&tracker.url], &["--force", "--piece", "64KiB"]);
    let _seeding = home.seed(&["data.bin.torrent", "--utp"]);
    let Some(_client) = home.anacrolix_by_utp("data.bin.torrent", "got") else { return };
    arrives(&home.path("got/data.bin"), &home.read("data.bin"));
}

#[test]
fn the_upload_limit_counts_utp() {
    let home = with_data("v1");
    let seeding = home.seed(&["data.bin.torrent", "--utp", "--max-upload", "500K"]);
    let began = Instant::now();
    let Some(client) = libtorrent(&home, libtorrent::NEW, "got", Some(seeding.port)) else {
        return;
    };
    client.says("complete");
    // What may be sent at once at the beginning counts too.
    assert!(began.elapsed() > Duration::from_secs(3), "{:?}", began.elapsed());
}
