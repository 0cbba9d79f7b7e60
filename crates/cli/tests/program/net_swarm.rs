//! `swath get` as one of the peers of a swarm.

use std::fs;
use std::time::Duration;

use crate::support::clients::has_peers;
use crate::support::trees::bytes;
use crate::support::{Home, Running};
use swath_netlab::faulty::{Behaviour, Content, Server};
use swath_netlab::reserve_port;

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

    /// A mirror of the dataset that takes 40 s for all of it, until its limit is lifted.
    fn held_mirror(&self) -> Server {
        let file = |path: &str| Content::bytes(self.read(&format!("web{path}")));
        let paths = ["/run7/detector/a.h5", "/run7/b.txt", "/run7/empty"];
        let mirror = paths.iter().fold(Server::builder(), |all, path| all.file(path, file(path)));
        mirror.behaviour(Behaviour::rate(50_000)).start().unwrap()
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
    let home = with_dataset(2_000_001);
    let mirror = home.held_mirror();
    home.torrent("hybrid", &["--mirror", &mirror.url("/run7/")]);
    // The seeder has a part of the file.
    let mut part = home.read("web/run7/detector/a.h5");
    part[1_500_000..].fill(0);
    home.write("part/run7/detector/a.h5", part);
    home.write("part/run7/b.txt", home.read("web/run7/b.txt"));
    home.write("part/run7/empty", "");
    let seed = home.seed(&["pub/run7-hybrid.torrent", "--data", "part"]);
    let peer = format!("127.0.0.1:{}", seed.port);
    let running = home.getting("pub/run7-hybrid.torrent", "out", &["--peer", &peer]);
    home.wait_for_bytes("out/run7.swath.part/detector/a.h5", 1_000_000);
    drop(seed);
    mirror.clear();
    running.wait().code_is(0).says(&[&peer, &mirror.address().to_string()]);
    home.has("out");
}

#[test]
fn a_peer_that_delivers_wrong_bytes_is_named_and_left() {
    let home = with_dataset(2_000_001);
    let mirror = home.held_mirror();
    home.torrent("v1", &["--mirror", &mirror.url("/run7/")]);
    fs::create_dir_all(home.path("bad/run7/detector")).unwrap();
    home.write("bad/run7/detector/a.h5", vec![7; 2_000_001]);
    home.write("bad/run7/b.txt", bytes(2, 70_000));
    home.write("bad/run7/empty", "");
    let args = ["pub/run7-v1.torrent", "--data", "bad", "--no-verify", "--no-super-seed"];
    let seed = home.seed(&args);
    let peer = format!("127.0.0.1:{}", seed.port);
    let running = home.live(&["get", "pub/run7-v1.torrent", "-d", "out", "--peer", &peer]);
    running.says(&format!("peer://{peer} delivered corrupt data"));
    running.says("is used any more");
    mirror.clear();
    let (code, said) = running.wait();
    assert_eq!(code, Some(0), "{said}");
    home.has("out");
    // Nobody else is there: the error says what was wrong with it, not that it left.
    let more = ["--only", "torrent", "--piece", "64KiB", "--torrent", "v1", "-o", "alone"];
    home.run(["publish", "web/run7"].iter().chain(&more)).code_is(0);
    let args = ["get", "alone/run7.torrent", "-d", "alone", "--peer", &peer, "--timeout", "10s"];
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
    // It listens at the port that it is given, and seeds what was complete before.
    let listen = format!("127.0.0.1:{}", reserve_port());
    let more = ["--listen", &listen, "--keep-seeding", "--tracker", &tracker.url];
    let running = home.getting("pub/run7-hybrid.torrent", "one", &more);
    has_peers(&tracker, 2);
    home.run(["get", "pub/run7-hybrid.torrent", "-d", "three", "--peer", &listen]).code_is(0);
    home.has("three");
    running.signal(2);
    running.wait();
}

#[test]
fn selected_files_come_from_a_seeder() {
    let home = with_dataset(500_001);
    let magnet = format!("magnet:{}", home.torrent("v1", &[]));
    home.torrent("hybrid", &[]);
    let seed = home.seed(&["pub", "--data", "web"]);
    let peer = format!("127.0.0.1:{}", seed.port);
    for (from, to) in
        [("pub/run7-v1.torrent", "from-v1"), (&*magnet, "link"), ("pub/run7-hybrid.torrent", "new")]
    {
        let fetch =
            |select: &[&str]| home.getting(from, to, &[&["--peer", &peer], select].concat()).wait();
        // In v1 its last piece has the first bytes of the other file.
        fetch(&["--select", "b.txt"]).code_is(0).says(&["1 of 3 files", "127.0.0.1:"]);
        assert!(home.read(&format!("{to}/run7/b.txt")) == home.read("web/run7/b.txt"));
        assert_eq!(home.names_in(&format!("{to}/run7")), ["b.txt"]);
        fetch(&["--select", "a.h5", "--select", "empty"]).code_is(0);
        home.has(to);
    }
}

/// A tracker gives no peers to one that asks again too early, which a second run looked like.
#[test]
fn a_magnet_link_works_again_at_once() {
    let home = with_dataset(100_001);
    let tracker = home.track(&[]);
    let magnet = format!("magnet:{}", home.torrent("v1", &["--tracker", &tracker.url]));
    let _seed = home.seed(&["pub/run7-v1.torrent", "--data", "web"]);
    has_peers(&tracker, 1);
    for folder in ["first", "second"] {
        // The tracker may be asked again after minutes.
        home.run(["get", &magnet, "-d", folder, "--timeout", "60s"]).code_is(0);
        home.has(folder);
        // Nobody is led to a peer that is gone.
        has_peers(&tracker, 1);
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
    let port = reserve_port();
    let peer = format!("127.0.0.1:{port}");
    let more = ["--listen", &peer, "--peer", "127.0.0.1:9", "--keep-seeding", "--overwrite"];
    let args = get.iter().chain(&["--select", "a.h5"]).chain(&more);
    let seeding = home.swath(args).limit(Duration::from_secs(180)).start();
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
    let port = reserve_port();
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
        let port = reserve_port();
        let peer = format!("127.0.0.1:{port}");
        let more =
            ["--select", "a.h5", "--listen", &peer, "--keep-seeding", "--peer", "127.0.0.1:9"];
        let mirror = server.at("");
        let args = ["get", &torrent, &mirror, "-d", "one"];
        let seeding = home.swath(args.iter().chain(&more)).limit(Duration::from_secs(180)).start();
        home.wait_for_bytes("one/run7/detector/a.h5", 2_000_001);
        // The first bytes of the file lie in a piece of v1 that others need whole.
        let fetch = |to: &str, more: &[&str]| {
            // In v1 it ends when nothing comes any more.
            let timeout = if kind == "v1" { "10" } else { "60" };
            let args = ["--select", "a.h5", "--peer", &peer, "--timeout", timeout];
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
