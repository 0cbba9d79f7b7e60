//! `swath get X.torrent`: the content of torrents, from their web seeds and other mirrors.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use swath_netlab::faulty::{Behaviour, Content, Server};

use crate::support::trees::bytes;
use crate::support::{Home, Ran};
use swath_netlab::reserve_port;

/// Files that end within pieces, in an order that is not that of a listing, and an empty one.
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

impl Home {
    /// The files lie in this folder, and no others.
    fn has_all(&self, folder: &str) {
        for path in FILES {
            let (wanted, there) = (format!("web/run7/{path}"), format!("{folder}/run7/{path}"));
            assert!(self.read(&there) == self.read(&wanted), "{there}");
        }
        let names = ["detector", "detector.txt", "empty", "z"];
        assert_eq!(self.names_in(&format!("{folder}/run7")), names);
    }

    fn publish(&self, kind: &str, mirrors: &[&str]) {
        let mut args = vec!["publish", "web/run7", "-o", "pub", "--version", kind, "--force"];
        args.extend(["--only", "torrent", "--torrent", kind, "--piece", "64KiB"]);
        args.extend(mirrors.iter().flat_map(|mirror| ["--mirror", *mirror]));
        self.run(args).code_is(0);
    }
}

#[test]
fn every_kind_is_fetched_from_a_web_seed() {
    let home = with_dataset();
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    for kind in ["v1", "v2", "hybrid"] {
        home.publish(kind, &[&server.at("run7/")]);
        let (torrent, to) = (format!("pub/run7-{kind}.torrent"), format!("out-{kind}"));
        let ran = home.run(["get", &torrent, "-d", &to]);
        let proof = if kind == "v1" { "pieces by sha-1" } else { "pieces by sha-256" };
        ran.code_is(0).says(&["is a torrent: 5 files, 1 mirror", proof]);
        home.has_all(&to);
        home.run(["get", &torrent, "-d", &to]).code_is(0).says(&["already complete"]);
        assert_eq!(home.names_in(&to), ["run7"], "nothing else is left");
    }
    // From its address, with a mirror that it does not name.
    home.publish("hybrid", &[]);
    fs::rename(home.path("pub"), home.path("web/pub")).unwrap();
    let torrent = server.at("pub/run7-hybrid.torrent");
    home.run(["get", &torrent, &server.at(""), "-d", "by-name"]).code_is(0);
    home.has_all("by-name");
}

#[test]
fn only_selected_files_are_fetched() {
    let home = with_dataset();
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    for kind in ["v1", "v2", "hybrid"] {
        home.publish(kind, &[&server.at("run7/")]);
        let (torrent, to) = (format!("pub/run7-{kind}.torrent"), format!("out-{kind}"));
        let get = ["get", &torrent, "-d", &to];
        let select = |patterns: &[&str]| {
            let select = patterns.iter().flat_map(|pattern| ["--select", pattern]);
            home.run(get.into_iter().chain(["--json"]).chain(select))
        };
        let bytes = |ran: &Ran| {
            let end: serde_json::Value =
                serde_json::from_str(ran.code_is(0).out().lines().last().unwrap()).unwrap();
            let of_sources = end["sources"].as_array().unwrap().iter();
            of_sources.map(|source| source["bytes"].as_u64().unwrap()).sum::<u64>()
        };
        let has = |names: &[&str]| {
            for path in FILES {
                let there = format!("{to}/run7/{path}");
                assert_eq!(home.exists(&there), names.contains(&path), "{kind} {path}");
                if home.exists(&there) {
                    assert!(home.read(&there) == home.read(&format!("web/run7/{path}")), "{there}");
                }
            }
        };
        // In v1 it shares pieces of 64 KiB with both of its neighbours.
        let moved = bytes(&select(&["*.txt"]));
        match kind {
            "v1" => assert!((70_001..=70_000 + 2 * 65_536).contains(&moved), "{moved}"),
            _ => assert_eq!(moved, 70_000, "nothing else moves"),
        }
        has(&["detector.txt"]);
        assert_eq!(home.names_in(&format!("{to}/run7")), ["detector.txt"], "nothing else is left");
        let ran = home.run(get.into_iter().chain(["--select", "*.txt"]));
        ran.code_is(0).says(&["1 of 5 files", "already complete"]);
        // Others join it; a folder, and a file without bytes.
        select(&["/detector/deep/", "empty"]).code_is(0);
        has(&["detector.txt", "detector/deep/b", "empty"]);
        // Not all of these are missing.
        let ran = home.run(get.into_iter().chain(["--select", "*.txt", "--select", "z"]));
        ran.code_is(5).says(&["detector.txt exists already, but 1 other files do not"]);
        let mut wrong = home.read(&format!("{to}/run7/detector.txt"));
        wrong[66_000] ^= 1;
        home.write(&format!("{to}/run7/detector.txt"), wrong);
        let all = ["*.txt", "z", "*.h5", "detector/", "empty"].iter();
        let all = all.flat_map(|pattern| ["--select", pattern]).chain(["--overwrite"]);
        home.run(get.into_iter().chain(all)).code_is(0).says(&["5 of 5 files"]);
        home.has_all(&to);
    }
}

#[test]
fn a_selection_that_is_none_is_said() {
    let home = with_dataset();
    home.publish("v1", &[]);
    let get = ["get", "pub/run7-v1.torrent", "--select"];
    let none = home.run(get.into_iter().chain(["*.nc"]));
    none.code_is(6).says(&["no file of pub/run7-v1.torrent matches; it has detector/a.h5"]);
    home.run(get.into_iter().chain(["a["])).code_is(2).says(&["'a[' is not a valid pattern"]);
    for other in ["http://127.0.0.1:9/data.bin", "http://127.0.0.1:9/data.meta4"] {
        let ran = home.run(["get", other, "--select", "*.h5"]);
        ran.code_is(2).says(&["--select is for the files of a torrent"]);
    }
    home.run(["get", "-i", "list", "--select", "*.h5"]).code_is(2);
}

#[test]
fn wrong_bytes_of_one_mirror_are_replaced_and_of_all_refused() {
    let home = with_dataset();
    let good = home.serve(&["web", "--anonymous", "--plain"]);
    fs::create_dir_all(home.path("bad/run7/detector/deep")).unwrap();
    for path in FILES {
        let mut bytes = home.read(&format!("web/run7/{path}"));
        if path == "detector/a.h5" {
            bytes[500_000] ^= 1;
        }
        home.write(&format!("bad/run7/{path}"), bytes);
    }
    let bad = home.serve(&["bad", "--anonymous", "--plain"]);
    for kind in ["v1", "hybrid"] {
        home.publish(kind, &[&bad.at("run7/")]);
        let torrent = format!("pub/run7-{kind}.torrent");
        let alone = home.run(["get", &torrent, "-d", "alone"]);
        assert_ne!(alone.code(), 0);
        alone.says(&["digest"]);
        assert!(!home.exists("alone/run7"), "no wrong byte under a final name");
        let both = home.run(["get", &torrent, &good.at(""), "-d", kind]);
        both.code_is(0);
        home.has_all(kind);
    }
}

/// One missing file made swath give up the whole mirror.
#[test]
fn mirrors_that_lack_a_file_are_used_for_the_others() {
    let home = with_dataset();
    for (mirror, lacking) in [("one", "detector.txt"), ("two", "z")] {
        for path in FILES.iter().filter(|path| **path != lacking) {
            home.write(&format!("{mirror}/run7/{path}"), home.read(&format!("web/run7/{path}")));
        }
    }
    let serve = |folder| home.serve(&[folder, "--anonymous", "--plain"]);
    let (one, two) = (serve("one"), serve("two"));
    for kind in ["v1", "hybrid"] {
        home.publish(kind, &[&one.at("run7/"), &two.at("run7/")]);
        let (torrent, to) = (format!("pub/run7-{kind}.torrent"), format!("out-{kind}"));
        home.run(["get", &torrent, "-d", &to]).code_is(0);
        home.has_all(&to);
    }
    // A file of another length is one that it lacks, too.
    for (mirror, odd, bytes) in [("one", "detector.txt", 3), ("two", "z", 700_000)] {
        home.write(&format!("{mirror}/run7/{odd}"), vec![7; bytes]);
    }
    home.run(["get", "pub/run7-hybrid.torrent", "-d", "odd"]).code_is(0);
    home.has_all("odd");
    home.publish("v2", &[&one.at("run7/")]);
    let alone = home.run(["get", "pub/run7-v2.torrent", "-d", "alone"]);
    let says =
        ["has another version of a file: ", "/run7/detector.txt: the file there has 3 bytes"];
    alone.code_is(3).says(&says);
    fs::remove_file(home.path("one/run7/detector.txt")).unwrap();
    let alone = home.run(["get", "pub/run7-v2.torrent", "-d", "alone"]);
    alone.code_is(3).says(&["lacks a file: ", "/run7/detector.txt: "]);
    fs::write(home.path("one/run7/detector.txt"), home.read("web/run7/detector.txt")).unwrap();
    home.run(["get", "pub/run7-v2.torrent", "-d", "alone"]).code_is(0);
    home.has_all("alone");
}

#[test]
fn a_killed_run_is_resumed() {
    let home = with_dataset();
    home.write("web/run7/detector/a.h5", bytes(1, 12_000_001));
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    home.publish("hybrid", &[&server.at("run7/")]);
    let get = ["get", "pub/run7-hybrid.torrent", "-d", "out"];
    let running = home.swath(get.iter().chain(&["--limit-rate", "1M"])).start();
    home.wait_for_commit("out/run7.swath");
    running.signal(9);
    running.wait();
    assert!(!home.exists("out/run7"), "no final name yet");
    home.run(get).code_is(0).says(&["from an earlier run"]);
    home.has_all("out");
    assert_eq!(home.names_in("out"), ["run7"], "nothing else is left");
}

/// Begins `get`, and ends it with a signal when it has a part of the large file.
fn interrupt(home: &Home, get: &[&str]) {
    let running = home.swath(get.iter().chain(&["--limit-rate", "800k"])).start();
    home.wait_for_bytes("out/run7.swath.part/detector/a.h5", 500_000);
    running.signal(2);
    running.wait().code_is(130).says(&["kept"]);
}

#[test]
fn bytes_of_another_version_do_not_count() {
    // What an interrupted run had left of a file counted as verified for another file of its path and size.
    let home = with_dataset();
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    for kind in ["v1", "hybrid"] {
        home.write("web/run7/detector/a.h5", bytes(1, 12_000_001));
        home.publish(kind, &[&server.at("run7/")]);
        fs::rename(home.path("pub"), home.path(format!("old-{kind}"))).unwrap();
        let old = format!("old-{kind}/run7-{kind}.torrent");
        interrupt(&home, &["get", &old, "-d", "out"]);
        home.write("web/run7/detector/a.h5", bytes(9, 12_000_001));
        home.publish(kind, &[&server.at("run7/")]);
        let new = format!("pub/run7-{kind}.torrent");
        home.run(["get", &new, "-d", "out"]).code_is(0);
        home.has_all("out");
        fs::remove_dir_all(home.path("out")).unwrap();
        fs::remove_dir_all(home.path("pub")).unwrap();
    }
}

#[test]
fn files_in_the_way_are_not_replaced_unasked() {
    let home = with_dataset();
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    home.publish("v1", &[&server.at("run7/")]);
    let get = ["get", "pub/run7-v1.torrent", "-d", "out"];
    fs::create_dir_all(home.path("out/run7")).unwrap();
    home.write("out/run7/own", "mine");
    home.write("out/run7/z", "other");
    let ran = home.run(get);
    assert_ne!(ran.code(), 0);
    ran.says(&["out/run7/z", "4 other files do not", "--overwrite"]);
    home.run(get.iter().chain(&["--overwrite"])).code_is(0);
    assert_eq!(home.read("out/run7/own"), b"mine");
    assert_eq!(home.read("out/run7/z"), home.read("web/run7/z"));
    let mut z = home.read("out/run7/z");
    z[7] ^= 1;
    home.write("out/run7/z", z);
    home.run(get).says(&["is another file"]);
    home.write("out/run7/z", "short");
    home.run(get).says(&["out/run7/z is another file: it has 5 bytes"]);
}

/// All was fetched again for one wrong byte.
#[test]
fn what_is_right_already_is_not_fetched_again() {
    let home = with_dataset();
    home.write("web/run7/detector/a.h5", bytes(1, 3_000_001));
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    for kind in ["v1", "v2", "hybrid"] {
        home.publish(kind, &[&server.at("run7/")]);
        let (torrent, to) = (format!("pub/run7-{kind}.torrent"), format!("out-{kind}"));
        let get = ["get", &torrent, "-d", &to];
        home.run(get).code_is(0);
        let path = format!("{to}/run7/detector/a.h5");
        let mut wrong = home.read(&path);
        wrong[500_000] ^= 1;
        home.write(&path, wrong);
        home.run(get).code_is(5).says(&["one of its pieces is wrong", "--overwrite"]);
        repair(&home, &get, kind);
        // The end is missing.
        let mut cut = home.read(&path);
        cut.truncate(2_970_000);
        home.write(&path, cut);
        repair(&home, &get, kind);
        let mut wrong = home.read(&path);
        wrong[2_000_000] ^= 1;
        home.write(&path, wrong);
        repair(&home, &[&get[..], &["--select", "detector/a.h5"]].concat(), kind);
        // Something was appended.
        let longer = [home.read(&path), vec![1; 1_000]].concat();
        home.write(&path, longer);
        home.run(get).code_is(5);
        let ran = home.run(get.iter().chain(&["--overwrite", "--no-peers"]));
        ran.code_is(0);
        assert!(home.read(&path) == home.read("web/run7/detector/a.h5"), "{kind}");
    }
}

/// Runs `get` with `--overwrite`, which moves no more than a piece and leaves all files right.
fn repair(home: &Home, get: &[&str], kind: &str) {
    let ran = home.run(get.iter().chain(&["--overwrite", "--json"]));
    let end: serde_json::Value =
        serde_json::from_str(ran.code_is(0).out().lines().last().unwrap()).unwrap();
    let sources = end["sources"].as_array().unwrap().iter();
    let mirrors = sources.filter(|it| it["name"].as_str().unwrap().starts_with("http"));
    let moved: u64 = mirrors.map(|source| source["bytes"].as_u64().unwrap()).sum();
    assert!((1..=65_536).contains(&moved), "{kind}: {moved} bytes moved");
    for name in FILES {
        let wanted = home.read(&format!("web/run7/{name}"));
        assert!(home.read(&format!("out-{kind}/run7/{name}")) == wanted, "{kind}: {name}");
    }
}

/// Whoever has everything needs nobody to find that out.
#[test]
fn complete_content_and_empty_files_need_no_source() {
    let home = with_dataset();
    home.publish("v2", &[]);
    let get = ["get", "pub/run7-v2.torrent", "-d", "web"];
    home.run(get).code_is(0).says(&["already complete"]);
    home.write("web/run7/z", "damaged");
    home.run(get).code_is(5).says(&["web/run7/z is another file"]);
    let alone = home.run(get.iter().chain(&["--overwrite", "--timeout", "3"]));
    assert_ne!(alone.code(), 0);
    assert_eq!(home.read("web/run7/z"), b"damaged");
    home.write("web/empty", "");
    home.run(["publish", "web/empty", "--version", "1", "-o", "pub"]).code_is(0);
    home.run(["get", "pub/empty-1.torrent", "-d", "out"]).code_is(0);
    assert_eq!(home.read("out/empty"), b"");
}

/// What an interrupted run had left made the next one replace whatever had the names of its files.
#[test]
fn own_files_are_not_replaced_by_the_run_after_an_interrupted_one() {
    let home = with_dataset();
    home.write("web/run7/detector/a.h5", bytes(1, 12_000_001));
    let mut mirror = Server::builder();
    for name in FILES {
        let content = Content::bytes(home.read(&format!("web/run7/{name}")));
        mirror = mirror.file(&format!("/run7/{name}"), content);
    }
    let mirror = mirror.start().unwrap();
    home.publish("v2", &[&mirror.url("/run7/")]);
    let get = ["get", "pub/run7-v2.torrent", "-d", "out"];
    interrupt(&home, &get);
    fs::create_dir_all(home.path("out/run7")).unwrap();
    home.write("out/run7/z", "mine");
    home.run(get).code_is(5).says(&["out/run7/z exists already", "--overwrite"]);
    assert_eq!(home.read("out/run7/z"), b"mine");
    fs::remove_dir_all(home.path("out/run7")).unwrap();
    home.run(get).code_is(0);
    // It appears while they are fetched.
    fs::remove_dir_all(home.path("out")).unwrap();
    mirror.set(Behaviour::rate(1_000_000));
    let running = home.swath(get).start();
    home.wait_for_bytes("out/run7.swath.part/detector/a.h5", 1);
    fs::create_dir_all(home.path("out/run7")).unwrap();
    home.write("out/run7/z", "mine");
    mirror.clear();
    running.wait().code_is(5).says(&["out/run7/z", "created meanwhile", "--overwrite"]);
    assert_eq!(home.read("out/run7/z"), b"mine");
    home.run(get.iter().chain(&["--overwrite"])).code_is(0);
    assert_eq!(home.read("out/run7/z"), home.read("web/run7/z"));
}

#[test]
fn overwrite_keeps_modes_and_links() {
    let home = with_dataset();
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    home.publish("v2", &[&server.at("run7/")]);
    let get = ["get", "pub/run7-v2.torrent", "-d", "out"];
    home.run(get).code_is(0);
    let mode = |path: &str| home.path(path).metadata().unwrap().permissions().mode() & 0o777;
    for (path, mode) in [("detector", 0o700), ("detector/a.h5", 0o600), ("z", 0o440)] {
        let path = home.path(format!("out/run7/{path}"));
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    home.write("out/run7/detector.txt", "damaged");
    home.run(get.iter().chain(&["--overwrite"])).code_is(0);
    home.has_all("out");
    assert_eq!(mode("out/run7/detector"), 0o700);
    assert_eq!(mode("out/run7/detector/a.h5"), 0o600);
    assert_eq!(mode("out/run7/z"), 0o440);
    fs::rename(home.path("out/run7/z"), home.path("z")).unwrap();
    std::os::unix::fs::symlink("../../z", home.path("out/run7/z")).unwrap();
    let ran = home.run(get.iter().chain(&["--overwrite"]));
    ran.code_is(5).says(&["out/run7/z is a symbolic link, which is never replaced by a file"]);
    assert!(home.path("out/run7/z").is_symlink());
}

/// Pieces that hold bytes of other files too are not compared: damage in them counted as complete.
#[test]
fn a_selected_file_is_repaired_in_pieces_that_others_share() {
    let home = with_dataset();
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    home.publish("v1", &[&server.at("run7/")]);
    let get = ["get", "pub/run7-v1.torrent", "-d", "out", "--select", "detector/deep/b"];
    home.run(get).code_is(0);
    home.write("out/run7/detector/deep/b", [0; 33]);
    home.run(get).code_is(0).says(&["already complete, 33 B", "were not compared", "--overwrite"]);
    home.run(get.iter().chain(&["--overwrite"])).code_is(0);
    assert_eq!(home.read("out/run7/detector/deep/b"), bytes(3, 33));
}

#[test]
fn why_no_peer_is_connected_is_said() {
    let home = with_dataset();
    home.publish("v1", &[]);
    let port = reserve_port();
    let peer = format!("127.0.0.1:{port}");
    let ran = home.run(["get", "pub/run7-v1.torrent", "--peer", &peer, "--timeout", "9"]);
    ran.code_is(7).says(&["waiting for peers: none is connected yet; ", &peer, "refused"]);
    let ran = home.run(["get", "pub/run7-v1.torrent", "--peer", "seeder.example"]);
    ran.code_is(2).says(&["peer seeder.example has no port", "HOST:PORT"]);
}

#[test]
fn options_for_torrents_that_change_nothing_are_said() {
    let home = with_dataset();
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    let words = "the options for torrents have no effect";
    for option in ["--keep-seeding", "--utp", "--max-upload=1M"] {
        let ran = home.run(["get", &server.at("run7/z"), "-d", "out", option, "--overwrite"]);
        ran.code_is(0).says(&[words]);
    }
    home.run(["get", &server.at("run7/z"), "-d", "out"]).code_is(0).never_says(&[words]);
}

#[test]
fn what_is_no_torrent_is_said() {
    let home = with_dataset();
    home.write("rubbish.torrent", "d4:infod6:lengthi-1eee");
    home.write("nothing.torrent", "");
    for (torrent, words) in [
        ("rubbish.torrent", "rubbish.torrent: "),
        ("nothing.torrent", "nothing.torrent: "),
        ("missing.torrent", "cannot read missing.torrent: No such file"),
    ] {
        let ran = home.run(["get", torrent]);
        ran.code_is(6).says(&[words]);
        assert_eq!(ran.all().lines().count(), 1, "{}", ran.all());
    }
    home.publish("v1", &[]);
    home.run(["get", "pub/run7-v1.torrent"])
        .code_is(2)
        .says(&["the torrent names no mirror, and no peers are asked"]);
    let both = home.run(["get", "pub/run7-v1.torrent", "rubbish.torrent"]);
    both.code_is(2).says(&["give URLs of mirrors only"]);
    let one = home.run(["get", "pub/run7-v1.torrent", "-o", "file"]);
    one.code_is(2).says(&["use -d DIR instead of -o"]);
}
