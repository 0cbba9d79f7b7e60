//! Swarms with bad luck: killed leechers, wrong data, hostile torrents.

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
    let seeding = home.seed(&["run7.torrent"]);
    let peer = format!("127.0.0.1:{}", seeding.port);
    let get = ["get", "run7.torrent", "-d", "got", "--peer", &peer, "--json"];
    let running = home.swath(get.iter().chain(&["--limit-rate", "1M"])).start();
    home.wait_for_commit("got/run7.swath");
    running.signal(9);
    running.wait();
    let ran = home.run(get);
    let events = ran.code_is(0).out();
    let opened = events.lines().find(|line| line.contains("\"event\":\"opened\"")).unwrap();
    let opened: serde_json::Value = serde_json::from_str(opened).unwrap();
    let resumed = opened["resumed_bytes"].as_u64().unwrap();
    // What was written since the last commit, which is a second or two, is not known to be on the disk.
    assert!(resumed > 100_000, "{resumed} bytes");
    assert!(home.read("got/run7/a.h5") == home.read("run7/a.h5"));
}

#[test]
fn a_peer_that_poisons_pieces_is_named_and_others_finish() {
    let home = Home::new();
    // One torrent has a single piece, which comes wrong again and again.
    for (name, length) in [("data.bin", 1_000_003), ("one.bin", 30_003)] {
        home.write(name, bytes(3, length));
        home.publish_torrent(name, "v1", &[], &["--piece", "32KiB", "-o", "pub"]);
        home.write(&format!("bad/{name}"), bytes(4, length));
    }
    let bad = home.seed(&["pub", "--data", "bad", "--no-verify", "--no-super-seed"]);
    let bad = format!("127.0.0.1:{}", bad.port);
    let banned = "no peer at 127.0.0.1 is used any more: it delivered corrupt data";
    let args = ["get", "pub/one.bin.torrent", "-d", "alone", "--peer", &bad, "--timeout", "10s"];
    let alone = home.run(args);
    assert!([3, 7].contains(&alone.code()), "{}", alone.all());
    alone.says(&[banned]);
    // Bans are by address, so the good one has another. It offers its pieces one by one, and none until
    // the bad one is known.
    let good = home.seed_at("127.0.0.2:0", &["pub/data.bin.torrent", "--data", "."]);
    good.signal(libc::SIGSTOP);
    let at = format!("127.0.0.2:{}", good.port);
    let get = ["get", "pub/data.bin.torrent", "-d", "got", "--peer", &at, "--peer", &bad];
    let leecher = home.live(&get);
    leecher.says(banned);
    good.signal(libc::SIGCONT);
    let (code, said) = leecher.wait();
    assert_eq!(code, Some(0), "{said}");
    let from = format!("a piece from peer://{bad} does not match its digest");
    assert!(said.contains(&from), "{said}");
    assert!(home.read("got/data.bin") == home.read("data.bin"));
}

#[test]
fn hostile_torrents_are_refused_and_leave_nothing() {
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
            let ran = home.run(args);
            ran.code_is(6).says(&["hostile.torrent"]);
            assert!(!ran.all().contains('\u{1b}'), "{number}: {}", ran.all());
        }
        assert_eq!(home.names(), ["hostile.torrent"], "{number}");
    }
}
