//! `swath get` of torrents that others made, and beside seeders and leechers of others.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use swath_formats::torrent::Metainfo;
use swath_netlab::reserve_port;

use crate::support::seed::leecher;
use crate::support::torrent::{Client, arrives};
use crate::support::trees::bytes;
use crate::support::{Home, Running};

/// Files that end within pieces of 64 KiB, in an order that is not that of a listing, and an empty one.
fn with_dataset() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("web/run7/detector/deep")).unwrap();
    home.write("web/run7/detector/a.h5", bytes(1, 900_001));
    home.write("web/run7/detector.txt", bytes(2, 70_000));
    home.write("web/run7/detector/deep/b", bytes(3, 33));
    home.write("web/run7/empty", "");
    home.write("web/run7/z", bytes(4, 200_000));
    home
}

const FILES: [&str; 5] = ["detector/a.h5", "detector.txt", "detector/deep/b", "empty", "z"];

/// The dataset lies in this folder, whole.
#[track_caller]
fn has_all(home: &Home, folder: &str) {
    for path in FILES {
        let (wanted, there) = (format!("web/run7/{path}"), format!("{folder}/run7/{path}"));
        assert!(home.read(&there) == home.read(&wanted), "{there}");
    }
}

/// Makes `pub/run7-KIND.torrent`; returns its magnet link.
fn published(home: &Home, kind: &str, more: &[&str]) -> String {
    let args = ["publish", "web/run7", "-o", "pub", "--version", kind, "--torrent", kind];
    let more = ["--only", "torrent", "--piece", "64KiB"].iter().chain(more);
    let out = home.run(args.iter().chain(more)).code_is(0).out();
    let link = out.split_whitespace().find(|word| word.starts_with("magnet:"));
    link.unwrap_or_else(|| panic!("{out}")).to_owned()
}

/// A fetch that runs.
fn getting(home: &Home, torrent: &str, to: &str, more: &[&str]) -> Running {
    let args = ["get", torrent, "-d", to];
    home.swath(args.iter().chain(more)).limit(Duration::from_secs(180)).start()
}

#[test]
fn torrents_of_libtorrent_are_fetched() {
    let home = with_dataset();
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    let script = "import libtorrent as lt, sys\n\
        files = lt.file_storage()\n\
        lt.add_files(files, 'web/run7')\n\
        made = lt.create_torrent(files, 16384, eval(sys.argv[1]))\n\
        made.add_url_seed(sys.argv[2])\n\
        lt.set_piece_hashes(made, 'web')\n\
        open(sys.argv[3], 'wb').write(lt.bencode(made.generate()))\n";
    for (kind, flags) in
        [("v1", "lt.create_torrent.v1_only"), ("v2", "lt.create_torrent.v2_only"), ("hybrid", "0")]
    {
        let torrent = home.path(format!("{kind}.torrent"));
        let ran = Command::new("/usr/bin/python3")
            .args(["-c", script, flags, &server.at("")])
            .arg(&torrent)
            .current_dir(home.work())
            .output();
        if !ran.is_ok_and(|ran| ran.status.success()) {
            println!("skipped: /usr/bin/python3 has no libtorrent");
            return;
        }
        // Of v1 torrents, the files follow each other within pieces.
        let info = Metainfo::read(&fs::read(&torrent).unwrap()).unwrap().info;
        assert_eq!(info.padding().next().is_some(), kind != "v1");
        let torrent = torrent.to_str().unwrap().to_owned();
        home.run(["get", &torrent, "-d", kind]).code_is(0);
        has_all(&home, kind);
    }
}

#[test]
fn selected_files_come_from_seeders_of_others() {
    let home = with_dataset();
    let tracker = home.track(&[]);
    let web = home.path("web");
    // All but the selected files of a torrent come later.
    let fetch = |from: &str, to: &str, more: &[&str]| {
        // In v1 its pieces have bytes of both of its neighbours.
        let of_one = getting(&home, from, to, &[more, &["--select", "*.txt"]].concat()).wait();
        of_one.code_is(0).says(&["1 of 5 files", "127.0.0.1:"]);
        let there = home.read(&format!("{to}/run7/detector.txt"));
        assert!(there == home.read("web/run7/detector.txt"));
        assert_eq!(home.names_in(&format!("{to}/run7")), ["detector.txt"]);
        let others = [more, &["--select", "detector/", "--select", "empty", "--select", "z"]];
        getting(&home, from, to, &others.concat()).wait().code_is(0);
        has_all(&home, to);
    };
    let magnet = published(&home, "v1", &[]);
    let port = reserve_port();
    let torrent = home.path("pub/run7-v1.torrent");
    let (text, folder) = (port.to_string(), web.to_str().unwrap());
    let args = ["-M", "-p", &text, "-g", "config", "-w", folder, torrent.to_str().unwrap()];
    let (program, work) = ("transmission-cli", home.work());
    if let Some(_seeder) = Client::start(&work, "transmission", program, &args) {
        let peer = format!("127.0.0.1:{port}");
        listens(&peer);
        fetch("pub/run7-v1.torrent", "from-v1", &["--peer", &peer]);
        fetch(&magnet, "from-magnet", &["--peer", &peer]);
    }
    published(&home, "hybrid", &["--tracker", &tracker.url]);
    let torrent = home.path("pub/run7-hybrid.torrent");
    if let Some(seeder) = Client::libtorrent(&web, "libtorrent", &torrent) {
        seeder.says("tracker_reply_alert");
        fetch("pub/run7-hybrid.torrent", "from-hybrid", &[]);
    }
}

#[test]
fn what_is_complete_is_seeded_to_libtorrent() {
    let home = with_dataset();
    let tracker = home.track(&[]);
    published(&home, "hybrid", &[]);
    let listen = format!("127.0.0.1:{}", reserve_port());
    let more = ["--listen", &listen, "--keep-seeding", "--tracker", &tracker.url];
    let running = getting(&home, "pub/run7-hybrid.torrent", "web", &more);
    listens(&listen);
    let torrent = home.path("pub/run7-hybrid.torrent");
    let port = listen.rsplit(':').next().and_then(|port| port.parse().ok());
    let Some(_client) = leecher(&home.path("by-lt"), &torrent, false, port) else { return };
    arrives(&home.path("by-lt/run7/detector/a.h5"), &home.read("web/run7/detector/a.h5"));
    running.signal(2);
    running.wait();
}

/// With `--bt-seed-unverified`, aria2 seeds its files without checking them.
#[test]
fn aria2_that_poisons_pieces_is_named() {
    let home = Home::new();
    home.write("one.bin", bytes(3, 30_003));
    home.publish_torrent("one.bin", "v1", &[], &["--piece", "32KiB"]);
    home.write("bad/one.bin", bytes(4, 30_003));
    let torrent = home.path("one.bin.torrent").display().to_string();
    let Some((_client, port)) = home.aria2(&torrent, "bad", &["--bt-seed-unverified=true"]) else {
        return;
    };
    let bad = format!("127.0.0.1:{port}");
    let ran = home.run(["get", &torrent, "-d", "alone", "--peer", &bad, "--timeout", "20s"]);
    assert!([3, 7].contains(&ran.code()), "{ran}");
    ran.says(&["no peer at 127.0.0.1 is used any more: it delivered corrupt data"]);
}

/// Waits until something listens there.
#[track_caller]
fn listens(address: &str) {
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(began.elapsed() < Duration::from_secs(90), "nothing listens at {address}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
