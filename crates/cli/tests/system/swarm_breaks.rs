//! Torrents and followed datasets with kills at random instants and a full disk.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use swath_netlab::faulty::{Content, Server};

use crate::support::Home;
use crate::support::random::Random;
use crate::support::trees::bytes;

const MIB: usize = 1 << 20;

/// Kills a fetch at random instants, and starts it again.
fn is_resumed(home: &Home, get: &[&str], seed: u64, is_whole: impl Fn()) {
    let mut random = Random(seed);
    let mut resumed = 0;
    for _ in 0..4 {
        let _ = fs::remove_dir_all(home.path("out"));
        let mut running = home.swath(get.iter().chain(&["--limit-rate", "5M"])).start();
        std::thread::sleep(Duration::from_millis(900 + random.below(1_000)));
        let was_running = !running.is_over();
        running.signal(9);
        running.wait();
        assert!(!was_running || !home.exists("out/run7"), "no final name yet");
        let again = home.run(get);
        again.code_is(0);
        resumed += u32::from(again.all().contains("from an earlier run"));
        is_whole();
        assert_eq!(home.names_in("out"), ["run7"], "nothing else is left");
    }
    assert!(resumed > 0, "some run went on where the one before it was killed");
}

#[test]
fn a_fetch_from_a_web_seed_is_resumed() {
    let home = Home::new();
    home.write("web/run7/a.h5", bytes(1, 12_000_001));
    home.write("web/run7/z", bytes(4, 200_000));
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    let mirror = server.at("run7/");
    home.publish_torrent("web/run7", "hybrid", &[], &["--mirror", &mirror, "--piece", "64KiB"]);
    is_resumed(&home, &["get", "run7.torrent", "-d", "out"], 0x5eed, || {
        for name in ["a.h5", "z"] {
            let there = home.read(&format!("out/run7/{name}"));
            assert!(there == home.read(&format!("web/run7/{name}")), "{name}");
        }
    });
}

#[test]
fn a_fetch_of_segments_from_a_peer_is_resumed() {
    let home = Home::new();
    home.write("run7", bytes(1, 12 * MIB + 7_001));
    home.publish_torrent("run7", "hybrid", &[], &["--segment", "1MiB", "--piece", "64KiB"]);
    let seeding = home.seed(&["run7.torrent"]);
    let peer = format!("127.0.0.1:{}", seeding.port);
    is_resumed(&home, &["get", "run7.torrent", "-d", "out", "--peer", &peer], 0x5e9, || {
        assert!(home.read("out/run7") == home.read("run7"));
    });
}

/// The program's own test of this (`follow`) kills it whenever the server is asked for something.
#[test]
fn a_follower_killed_at_random_instants_leaves_a_whole_version() {
    let home = Home::new();
    home.write("run7/a.h5", bytes(1, 4 * MIB + 5));
    let server = Server::builder().file("/none", Content::bytes(*b"")).start().unwrap();
    let mirror = server.url("/run7/");
    let publish = |version: &str| {
        let args = ["publish", "run7", "--version", version, "-o", "pub", "-q", "--piece", "64KiB"];
        home.run(args.iter().chain(&["--mirror", &mirror])).code_is(0);
        server.put("/run7/a.h5", Content::bytes(home.read("run7/a.h5")));
        for name in home.names_in("pub") {
            let content = Content::bytes(home.read(&format!("pub/{name}")));
            server.put(&format!("/pub/{name}"), content);
        }
    };
    let feed = server.url("/pub/feed.rss");
    let once = ["follow", &feed, "-d", "data", "--once"];
    publish("1");
    home.run(once).code_is(0);
    let mut random = Random(7);
    for round in 0..6 {
        let old = home.read("run7/a.h5");
        let content = bytes(100 + round, 4 * MIB);
        home.write("run7/a.h5", &content);
        publish(&format!("round-{round}"));
        for _ in 0..4 {
            let running = home.swath(once.iter().chain(&["--limit-rate", "8M"])).start();
            std::thread::sleep(Duration::from_millis(random.below(900)));
            running.signal(libc::SIGKILL);
            running.wait();
            let there = home.read("data/run7/a.h5");
            assert!(there == old || there == content, "a whole version");
        }
        home.run(once).code_is(0);
        assert!(home.read("data/run7/a.h5") == content);
        assert_eq!(home.names_in("data"), [".swath-follow", "run7"]);
        assert_eq!(home.names_in("data/.swath-follow").len(), 2);
    }
}

#[test]
fn a_full_disk_ends_a_leecher_and_room_lets_it_resume() {
    let home = Home::new();
    home.write("run7/a.h5", bytes(1, 8_000_001));
    home.publish_torrent("run7", "hybrid", &[], &["--piece", "32KiB"]);
    let seeding = home.seed(&["run7.torrent", "--max-upload", "4M"]);
    std::fs::create_dir(home.path("got")).unwrap();
    let script = "mount -t tmpfs -o size=6M none got || exit 99
        \"$@\"; echo \"first: $?\"; mount -o remount,size=40M got
        \"$@\"; echo \"second: $?\"; cmp run7/a.h5 got/run7/a.h5 && echo same";
    let ran = |user: &[&str]| {
        Command::new("unshare")
            .args(user)
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(env!("CARGO_BIN_EXE_swath"))
            .args(["get", "run7.torrent", "-d", "got", "--peer"])
            .arg(format!("127.0.0.1:{}", seeding.port))
            .env_clear()
            .env("HOME", home.home())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(home.work())
            .stdin(Stdio::null())
            .output()
    };
    let users: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
    let output = users.iter().find_map(|user| ran(user).ok().filter(|it| it.status.success()));
    let Some(output) = output else {
        println!("skipped: nobody may mount a file system in a namespace of our own here");
        return;
    };
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    for words in ["first: 5", "No space left", "kept ", "from an earlier run", "second: 0", "same"]
    {
        assert!(said.contains(words), "{words:?} is missing: {said}");
    }
}
