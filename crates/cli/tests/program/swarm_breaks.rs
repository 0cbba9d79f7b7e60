//! Swarms with bad luck: killed leechers, wrong data, full disks, hostile torrents.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::trees::bytes;

/// A folder to publish, whose file has this length.
fn with_folder(length: usize) -> Home {
    let home = Home::new();
    home.write("run7/a.h5", bytes(1, length));
    home
}

/// The pieces of a super-seeder come in any order, so what was verified has many gaps.
#[test]
fn a_killed_leecher_does_not_fetch_verified_pieces_again() {
    let home = with_folder(12_000_001);
    home.publish_torrent("run7", "hybrid", &[], &["--piece", "32KiB"]);
    let seeding = home.seed(&["run7.torrent", "--max-upload", "3M"]);
    let peer = format!("127.0.0.1:{}", seeding.port);
    let get = ["get", "run7.torrent", "-d", "got", "--peer", &peer, "--json"];
    let running = home.swath(get).start();
    home.wait_for_bytes("got/run7.swath.part/a.h5", 8_000_000);
    running.signal(9);
    running.wait();
    let ran = home.run(get);
    let events = ran.code_is(0).out();
    let opened = events.lines().find(|line| line.contains("\"event\":\"opened\"")).unwrap();
    let opened: serde_json::Value = serde_json::from_str(opened).unwrap();
    let resumed = opened["resumed_bytes"].as_u64().unwrap();
    // What was written in the last second or two is not known to be on the disk.
    assert!(resumed > 2_000_000, "{resumed} of 8,000,000 bytes");
    assert!(home.read("got/run7/a.h5") == home.read("run7/a.h5"));
}

/// With `--bt-seed-unverified`, aria2 seeds its files without checking them.
#[test]
fn a_peer_that_poisons_pieces_is_named_and_others_finish() {
    let home = Home::new();
    let mut torrents = Vec::new();
    // One torrent has a single piece, which comes wrong again and again.
    for (name, length) in [("data.bin", 1_000_003), ("one.bin", 30_003)] {
        home.write(name, bytes(3, length));
        home.publish_torrent(name, "v1", &[], &["--piece", "32KiB"]);
        home.write(&format!("bad/{name}"), bytes(4, length));
        torrents.push(home.path(format!("{name}.torrent")).display().to_string());
    }
    let more = ["--bt-seed-unverified=true", &torrents[1]];
    let Some((_client, port)) = home.aria2(&torrents[0], "bad", &more) else { return };
    let bad = format!("127.0.0.1:{port}");
    let banned = "no peer at 127.0.0.1 is used any more: it delivered corrupt data";
    let args = ["get", &torrents[1], "-d", "alone", "--peer", &bad, "--timeout", "3s"];
    let alone = home.run(args);
    assert!([3, 7].contains(&alone.code()), "{}", alone.all());
    alone.says(&[banned]);
    // Bans are by address, so the good one has another. It offers its pieces one by one.
    let args = ["data.bin.torrent", "--max-upload", "500k"];
    let good = home.seed_at("127.0.0.2:0", &args);
    let good = format!("127.0.0.2:{}", good.port);
    let ran = home.run(["get", &torrents[0], "-d", "got", "--peer", &good, "--peer", &bad]);
    let from = format!("a piece from peer://{bad} does not match its digest");
    ran.code_is(0).says(&[&from, banned]);
    assert!(home.read("got/data.bin") == home.read("data.bin"));
}

#[test]
fn a_full_disk_ends_a_leecher_and_room_lets_it_resume() {
    let home = with_folder(8_000_001);
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

#[test]
fn hostile_torrents_are_refused_at_once_and_leave_nothing() {
    let home = Home::new();
    let text = |text: &str| format!("{}:{text}", text.len());
    let file = |path: &[&str], length: &str| {
        let path: String = path.iter().map(|part| text(part)).collect();
        format!("d6:lengthi{length}e4:pathl{path}ee")
    };
    let torrent = |files: &[String], name: &str| {
        let files = format!("5:filesl{}e4:name{}", files.concat(), text(name));
        let info = format!("d{files}12:piece lengthi16384e6:pieces20:{}e", "x".repeat(20));
        format!("d4:info{info}e").into_bytes()
    };
    let deep = [b"d4:info".to_vec(), b"l".repeat(1 << 20), b"e".repeat((1 << 20) + 1)].concat();
    let long = [b"d4:junk104857600:".to_vec(), vec![b'x'; 104_857_600], b"e".to_vec()].concat();
    for (number, bytes) in [
        torrent(&[file(&["..", "x"], "5")], "a"),
        torrent(&[file(&["x"], "5")], ".."),
        torrent(&[file(&["/etc/x"], "5")], "a"),
        torrent(&[file(&["x"], "5"), file(&["x"], "5")], "a"),
        torrent(&[file(&["x"], "5"), file(&["x", "y"], "5")], "a"),
        torrent(&[file(&["x"], "4611686018427387904")], "a"),
        torrent(&[file(&["x"], "-5")], "a"),
        torrent(&[file(&["x\u{1b}[2J"], "5")], "a"),
        deep,
        long,
    ]
    .into_iter()
    .enumerate()
    {
        home.write("hostile.torrent", bytes);
        for args in [
            &["get", "hostile.torrent", "-d", "in/got"][..],
            &["seed", "hostile.torrent", "--listen", "127.0.0.1:0"],
        ] {
            let began = Instant::now();
            let ran = home.run(args);
            ran.code_is(6).says(&["hostile.torrent"]);
            assert!(!ran.all().contains('\u{1b}'), "{number}: {}", ran.all());
            assert!(began.elapsed() < Duration::from_secs(20), "{number}");
        }
        assert_eq!(home.names(), ["hostile.torrent"], "{number}");
    }
}
