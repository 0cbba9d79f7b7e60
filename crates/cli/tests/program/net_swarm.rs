//! `swath get` as one of the peers of a swarm.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use crate::support::clients::has_peers;
use crate::support::seed::leecher;
use crate::support::torrent::{Client, arrives};
use crate::support::trees::bytes;
use crate::support::{Home, Running};
use swath_netlab::free_port;

/// A folder to publish, of several pieces of 64 KiB.
fn with_dataset(large: usize) -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("web/run7/detector")).unwrap();
    home.write("web/run7/detector/a.h5", bytes(1, large));
    home.write("web/run7/b.txt", bytes(2, 70_000));
    home.write("web/run7/empty", "");
    home
}

impl Home {
    /// Makes `pub/run7-KIND.torrent`; its magnet link is returned.
    fn torrent(&self, kind: &str, more: &[&str]) -> String {
        let args = ["publish", "web/run7", "-o", "pub", "--version", kind, "--torrent", kind];
        let more = ["--only", "torrent", "--piece", "64KiB"].iter().chain(more);
        let out = self.run(args.iter().chain(more)).code_is(0).out();
        out.lines().find_map(|line| line.trim().strip_prefix("magnet:")).unwrap().to_owned()
    }

    /// The dataset lies in this folder, whole.
    fn has(&self, folder: &str) {
        for path in ["detector/a.h5", "b.txt", "empty"] {
            let (wanted, there) = (format!("web/run7/{path}"), format!("{folder}/run7/{path}"));
            assert!(self.read(&there) == self.read(&wanted), "{there}");
        }
    }

    /// A fetch that runs.
    fn getting(&self, torrent: &str, to: &str, more: &[&str]) -> Running {
        let args = ["get", torrent, "-d", to];
        self.swath(args.iter().chain(more)).limit(Duration::from_secs(180)).start()
    }
}

#[test]
fn peers_find_each_other_through_a_tracker_and_pass_on_what_they_have() {
    for kind in ["v1", "v2", "hybrid"] {
        let home = with_dataset(2_000_001);
        let tracker = home.track(&[]);
        home.torrent(kind, &["--tracker", &tracker.url]);
        let torrent = format!("pub/run7-{kind}.torrent");
        let seed = home.seed(&[&torrent, "--data", "web", "--max-upload", "1500k"]);
        seed.says("listening on ");
        let running: Vec<Running> = ["one", "two", "three"]
            .iter()
            .map(|to| home.getting(&torrent, to, &["--keep-seeding", "--ratio", "0"]))
            .collect();
        for (running, to) in running.into_iter().zip(["one", "two", "three"]) {
            running.wait().code_is(0).never_says(&["trying again"]);
            home.has(to);
        }
        seed.signal(15);
        let (_, said) = seed.wait();
        println!("{said}");
    }
}

#[test]
fn a_magnet_link_is_enough() {
    let home = with_dataset(500_001);
    let tracker = home.track(&[]);
    let magnet = home.torrent("hybrid", &["--tracker", &tracker.url]);
    let seed = home.seed(&["pub/run7-hybrid.torrent", "--data", "web"]);
    let magnet = format!("magnet:{magnet}");
    home.run(["get", &magnet, "-d", "by-tracker"]).code_is(0);
    home.has("by-tracker");
    let (without, _) = magnet.split_once("&tr=").expect("a tracker in the link");
    let peer = format!("127.0.0.1:{}", seed.port);
    home.run(["get", without, "-d", "by-peer", "--peer", &peer]).code_is(0);
    home.has("by-peer");
    home.run(["get", &format!("{without}&x.pe={peer}"), "-d", "by-link"]).code_is(0);
    home.has("by-link");
    home.run(["get", without]).code_is(6).says(&["names no tracker and no peer"]);
    home.run(["get", "magnet:?xt=urn:btih:12"]).code_is(6).says(&["not a magnet link"]);
}

/// The hashes of its pieces come from peers as well.
#[test]
fn a_magnet_link_of_a_v2_torrent_is_enough() {
    let home = with_dataset(500_001);
    let tracker = home.track(&[]);
    let magnet = format!("magnet:{}", home.torrent("v2", &["--tracker", &tracker.url]));
    assert!(magnet.contains("xt=urn:btmh:1220") && !magnet.contains("btih"), "{magnet}");
    let seed = home.seed(&["pub/run7-v2.torrent", "--data", "web"]);
    // What was fetched by the link alone is passed on by the link alone.
    let running = home.getting(&magnet, "one", &["--keep-seeding"]);
    home.wait_for_bytes("one/run7/detector/a.h5", 500_001);
    drop(seed);
    home.run(["get", &magnet, "-d", "two"]).code_is(0);
    home.has("two");
    running.signal(2);
    running.wait().code_is(0);
}

#[test]
fn both_info_hashes_of_a_magnet_link_must_be_right() {
    let home = with_dataset(500_001);
    let hybrid = format!("magnet:{}", home.torrent("hybrid", &[]));
    let of_v2 = format!("magnet:{}", home.torrent("v2", &[]));
    let hash = |link: &str| link.split("1220").nth(1).unwrap()[..64].to_owned();
    let seed = home.seed(&["pub/run7-hybrid.torrent", "--data", "web"]);
    let peer = format!("127.0.0.1:{}", seed.port);
    let both = home.run(["get", &hybrid, "-d", "both", "--peer", &peer]);
    both.code_is(0);
    home.has("both");
    let only_v2 = format!("magnet:?xt=urn:btmh:1220{}", hash(&hybrid));
    home.run(["get", &only_v2, "-d", "only-v2", "--peer", &peer]).code_is(0);
    home.has("only-v2");
    let wrong = hybrid.replace(&hash(&hybrid), &hash(&of_v2));
    let wrong = home.run(["get", &wrong, "-d", "wrong", "--peer", &peer]);
    wrong.code_is(6).says(&["another v2 info-hash"]);
}

#[test]
fn when_all_peers_are_gone_the_mirror_brings_the_rest() {
    let home = with_dataset(6_000_001);
    let server = home.serve(&["web", "--anonymous", "--plain", "--limit-rate", "2M"]);
    home.torrent("hybrid", &["--mirror", &server.at("run7/")]);
    let seed = home.seed(&["pub/run7-hybrid.torrent", "--data", "web", "--max-upload", "2M"]);
    let peer = format!("127.0.0.1:{}", seed.port);
    let running = home.getting("pub/run7-hybrid.torrent", "out", &["--peer", &peer]);
    seed.says(" peer");
    std::thread::sleep(Duration::from_millis(700));
    drop(seed);
    running.wait().code_is(0).says(&[&peer, &server.at("").replace("http://", "")]);
    home.has("out");
}

#[test]
fn a_peer_that_delivers_wrong_bytes_is_named_and_left() {
    let home = with_dataset(2_000_001);
    let server = home.serve(&["web", "--anonymous", "--plain", "--limit-rate", "700k"]);
    home.torrent("v1", &["--mirror", &server.at("run7/")]);
    fs::create_dir_all(home.path("bad/run7/detector")).unwrap();
    home.write("bad/run7/detector/a.h5", vec![7; 2_000_001]);
    home.write("bad/run7/b.txt", bytes(2, 70_000));
    home.write("bad/run7/empty", "");
    let args = ["pub/run7-v1.torrent", "--data", "bad", "--no-verify", "--no-super-seed"];
    let seed = home.seed(&args);
    let peer = format!("127.0.0.1:{}", seed.port);
    let ran = home.run(["get", "pub/run7-v1.torrent", "-d", "out", "--peer", &peer]);
    ran.code_is(0).says(&[&format!("peer://{peer} delivered corrupt data"), "is used any more"]);
    home.has("out");
    // Nobody else is there: the error says what was wrong with it, not that it left.
    let more = ["--only", "torrent", "--piece", "64KiB", "--torrent", "v1", "-o", "alone"];
    home.run(["publish", "web/run7"].iter().chain(&more)).code_is(0);
    let args = ["get", "alone/run7.torrent", "-d", "alone", "--peer", &peer, "--timeout", "3s"];
    home.run(args)
        .code_is(3)
        .never_says(&["no longer connected"])
        .says(&["it delivered corrupt data"]);
}

#[test]
fn what_was_fetched_is_seeded_to_others() {
    let home = with_dataset(1_000_001);
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    home.torrent("hybrid", &["--mirror", &server.at("run7/")]);
    home.torrent("v1", &[]);
    let tracker = home.track(&[]);
    let own = ["--tracker", &tracker.url, "--keep-seeding"];
    let running = home.getting("pub/run7-hybrid.torrent", "one", &own);
    home.wait_for_bytes("one/run7/detector/a.h5", 1_000_001);
    drop(server);
    // Another swath, which knows only the tracker.
    let ran = home.run(["get", "pub/run7-hybrid.torrent", "-d", "two", "--tracker", &tracker.url]);
    ran.code_is(0);
    home.has("two");
    running.signal(2);
    running.wait().code_is(0).says(&["seeding; Ctrl-C ends it", "sent ", " to peers"]);
    // libtorrent connects to the port that it is given.
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let more = ["--listen", &listen, "--keep-seeding", "--tracker", &tracker.url];
    let mut running = home.getting("pub/run7-hybrid.torrent", "one", &more);
    while TcpStream::connect(&listen).is_err() {
        assert!(!running.is_over(), "it listens");
        std::thread::sleep(Duration::from_millis(50));
    }
    let torrent = home.path("pub/run7-hybrid.torrent");
    let Some(_client) = leecher(&home.path("by-lt"), &torrent, false, Some(port)) else { return };
    arrives(&home.path("by-lt/run7/detector/a.h5"), &home.read("web/run7/detector/a.h5"));
    running.signal(2);
    running.wait();
}

#[test]
fn selected_files_come_from_seeders_of_others() {
    let home = with_dataset(2_000_001);
    let tracker = home.track(&[]);
    let web = home.path("web");
    // All but the selected files of a torrent come later.
    let fetch = |from: &str, to: &str, more: &[&str]| {
        // In v1 its last piece has the first bytes of the other file.
        let of_one = home.getting(from, to, &[more, &["--select", "b.txt"]].concat()).wait();
        of_one.code_is(0).says(&["1 of 3 files", "127.0.0.1:"]);
        assert!(home.read(&format!("{to}/run7/b.txt")) == home.read("web/run7/b.txt"));
        assert_eq!(home.names_in(&format!("{to}/run7")), ["b.txt"]);
        let others = [more, &["--select", "a.h5", "--select", "empty"]].concat();
        home.getting(from, to, &others).wait().code_is(0);
        home.has(to);
    };
    let magnet = format!("magnet:{}", home.torrent("v1", &[]));
    let port = free_port().to_string();
    let torrent = home.path("pub/run7-v1.torrent");
    let args = ["-M", "-p", &port, "-g", "config", "-w", web.to_str().unwrap()];
    let args = [&args[..], &[torrent.to_str().unwrap()]].concat();
    let (program, work) = ("transmission-cli", home.work());
    if let Some(_seeder) = Client::start(&work, "transmission", program, &args) {
        let peer = format!("127.0.0.1:{port}");
        while TcpStream::connect(&peer).is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
        fetch("pub/run7-v1.torrent", "from-v1", &["--peer", &peer]);
        fetch(&magnet, "from-magnet", &["--peer", &peer]);
    }
    home.torrent("hybrid", &["--tracker", &tracker.url]);
    let torrent = home.path("pub/run7-hybrid.torrent");
    if let Some(seeder) = Client::libtorrent(&web, "libtorrent", &torrent) {
        seeder.says("tracker_reply_alert");
        fetch("pub/run7-hybrid.torrent", "from-hybrid", &[]);
    }
}

#[test]
fn one_selected_file_gets_the_name_that_is_wanted() {
    let home = with_dataset(1_000_001);
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    home.torrent("hybrid", &["--mirror", &server.at("run7/")]);
    home.torrent("v1", &[]);
    let torrent = "pub/run7-hybrid.torrent";
    let get = ["get", torrent, "-o", "mine.h5"];
    let ran = home.run(get.iter().chain(&["--select", "a.h5"]));
    ran.code_is(0).says(&["1 of 3 files"]);
    assert!(home.read("mine.h5") == home.read("web/run7/detector/a.h5"));
    assert!(!home.exists("run7"));
    home.run(get.iter().chain(&["--select", "a.h5"])).code_is(0).says(&["already complete"]);
    home.run(get.iter().chain(&["--select", "empty", "--overwrite"])).code_is(0);
    assert_eq!(home.read("mine.h5").len(), 0);
    let several = home.run(get.iter().chain(&["--select", "empty", "--select", "b.txt"]));
    several.code_is(2).says(&["2 files of run7 are selected: use -d DIR"]);
    home.run(get).code_is(2).says(&["run7 lists 3 files: use -d DIR"]);
    let shared = home.run(["get", "pub/run7-v1.torrent", "-o", "mine.h5", "--select", "b.txt"]);
    shared.code_is(2).says(&["the pieces of b.txt also hold bytes of other files", "use -d DIR"]);
    // It is passed on from its own name.
    let port = free_port();
    let peer = format!("127.0.0.1:{port}");
    let more = ["--listen", &peer, "--peer", "127.0.0.1:9", "--keep-seeding", "--overwrite"];
    let args = get.iter().chain(&["--select", "a.h5"]).chain(&more);
    let seeding = home.swath(args).limit(Duration::from_secs(60)).start();
    home.wait_for_bytes("mine.h5", 1_000_001);
    drop(server);
    let args = ["get", torrent, "-o", "other.h5", "--select", "a.h5", "--peer", &peer];
    home.run(args).code_is(0);
    assert!(home.read("other.h5") == home.read("web/run7/detector/a.h5"));
    seeding.signal(2);
    seeding.wait().code_is(0);
}

/// Trackers took sites that listen at different addresses of one machine for one site.
#[test]
fn trackers_are_told_the_address_at_which_peers_are_let_in() {
    let home = with_dataset(2_000_001);
    let tracker = home.track(&[]);
    home.torrent("v1", &["--tracker", &tracker.url]);
    let _seed = home.seed(&["pub/run7-v1.torrent", "--data", "web", "--max-upload", "100K"]);
    let port = free_port();
    let _sites: Vec<Running> = ["127.0.0.2", "127.0.0.3"]
        .map(|ip| home.getting("pub/run7-v1.torrent", ip, &["--listen", &format!("{ip}:{port}")]))
        .into();
    has_peers(&tracker, 3);
}

#[test]
fn a_port_that_is_taken_is_replaced_by_another_one() {
    let home = with_dataset(100_001);
    home.torrent("v1", &[]);
    let seed = home.seed(&["pub/run7-v1.torrent", "--data", "web"]);
    let taken = format!("127.0.0.1:{}", seed.port);
    let args = ["get", "pub/run7-v1.torrent", "-d", "out", "--peer", &taken, "--listen", &taken];
    home.run(args).code_is(0).says(&["cannot listen on", "another port is used"]);
    home.has("out");
    // Without an address of this machine nobody can be asked.
    let args = ["get", "pub/run7-v1.torrent", "-d", "no", "--listen", "192.0.2.1:0"];
    let ran = home.run(args.iter().chain(&["--peer", &taken]));
    ran.code_is(2).says(&["without peers: cannot listen on 192.0.2.1", "names no mirror"]);
    let ran = home.run(["get", "pub/run7-v1.torrent", "-d", "no", "--no-peers"]);
    ran.code_is(2).says(&["the torrent names no mirror, and no peers are asked", "--no-peers"]);
}

#[test]
fn a_port_that_cannot_be_is_no_name_to_look_up() {
    let home = with_dataset(100_001);
    home.torrent("v2", &[]);
    let why = "the port 99999 is not between 1 and 65535";
    home.run(["get", "pub/run7-v2.torrent", "--peers", "localhost:99999"]).code_is(2).says(&[why]);
    let args = ["seed", "pub/run7-v2.torrent", "--data", "web", "--peer", "localhost:99999"];
    home.run(args).code_is(2).says(&[why]);
}

#[test]
fn whole_pieces_of_selected_files_are_passed_on_and_no_others() {
    for kind in ["v1", "hybrid"] {
        let home = with_dataset(2_000_001);
        let server = home.serve(&["web", "--anonymous", "--plain"]);
        home.torrent(kind, &[]);
        let torrent = format!("pub/run7-{kind}.torrent");
        let port = free_port();
        let peer = format!("127.0.0.1:{port}");
        let more =
            ["--select", "a.h5", "--listen", &peer, "--keep-seeding", "--peer", "127.0.0.1:9"];
        let mirror = server.at("");
        let args = ["get", &torrent, &mirror, "-d", "one"];
        let seeding = home.swath(args.iter().chain(&more)).limit(Duration::from_secs(60)).start();
        home.wait_for_bytes("one/run7/detector/a.h5", 2_000_001);
        // The first bytes of the file lie in a piece of v1 that others need whole.
        let fetch = |to: &str, more: &[&str]| {
            let args = ["--select", "a.h5", "--peer", &peer, "--timeout", "4"];
            home.getting(&torrent, to, &[&args[..], more].concat()).wait()
        };
        let alone = fetch("two", &[]);
        match kind {
            "v1" => _ = alone.code_is(3),
            _ => _ = alone.code_is(0),
        }
        if kind == "v1" {
            let both =
                home.run(["get", &torrent, &mirror, "-d", "two", "--select", "a.h5", "--no-peers"]);
            both.code_is(0).says(&["from an earlier run"]);
        }
        assert!(home.read("two/run7/detector/a.h5") == home.read("web/run7/detector/a.h5"));
        assert_eq!(home.names_in("two/run7"), ["detector"]);
        seeding.signal(2);
        seeding.wait().code_is(0).says(&["seeding; Ctrl-C ends it"]);
    }
}
