//! `swath publish --segment`: long files are segments for other clients, and one file for swath.

use std::fs;
use std::time::Duration;

use crate::support::Home;
use crate::support::trees::bytes;
use swath_netlab::reserve_port;

const MIB: usize = 1 << 20;
const KINDS: [&str; 3] = ["v1", "v2", "hybrid"];

/// A file of three segments and a bit.
fn with_file() -> Home {
    let home = Home::new();
    home.write("survey.h5", bytes(1, 3 * MIB + 7_001));
    home
}

impl Home {
    /// Makes `pub/NAME.torrent` of `path`, with segments of 1 MiB; returns what was printed.
    fn segmented(&self, path: &str, kind: &str, more: &[&str]) -> String {
        let args = ["publish", path, "-o", "pub", "--segment", "1MiB", "--piece", "64KiB"];
        let kind = ["--torrent", kind, "--only", "torrent", "--replace"];
        self.run(args.iter().chain(&kind).chain(more)).code_is(0).out()
    }

    /// The file is there as one, and nothing else.
    #[track_caller]
    fn has_survey(&self, folder: &str) {
        assert!(self.read(&format!("{folder}/survey.h5")) == self.read("survey.h5"), "{folder}");
        assert_eq!(self.names_in(folder), ["survey.h5"], "nothing else is left");
    }

    /// Writes the segments of a file into a folder, as another client does.
    fn split(&self, file: &str, folder: &str) {
        let name = file.rsplit('/').next().unwrap();
        for (number, segment) in self.read(file).chunks(MIB).enumerate() {
            self.write(&format!("{folder}/{name}.{number:03}"), segment);
        }
    }
}

#[test]
fn a_file_is_fetched_from_mirrors_that_have_it_whole_or_in_segments() {
    let home = with_file();
    home.split("survey.h5", "parts/survey.h5");
    fs::create_dir(home.path("web")).unwrap();
    home.write("web/survey.h5", home.read("survey.h5"));
    let whole = home.serve(&["web", "--anonymous", "--plain"]);
    let parts = home.serve(&["parts", "--anonymous", "--plain"]);
    for kind in KINDS {
        let mirrors =
            [["--mirror", &whole.at("survey.h5")], ["--segment-mirror", &parts.at("survey.h5/")]];
        for (number, mirror) in mirrors.iter().enumerate() {
            let said = home.segmented("survey.h5", kind, mirror);
            assert!(said.contains(", 4 segments of 1.05 MB"), "{said}");
            let to = format!("{kind}-{number}");
            let get = ["get", "pub/survey.h5.torrent", "-d", &to];
            home.run(get).code_is(0).says(&["is a torrent: 1 file, 1 mirror", "pieces by sha-"]);
            home.has_survey(&to);
            home.run(get).code_is(0).says(&["already complete"]);
        }
        // Both deliver, at whatever rates.
        home.segmented("survey.h5", kind, &mirrors.concat());
        let get = ["get", "pub/survey.h5.torrent", "-o", "other"];
        home.run(get).code_is(0).says(&["1 file, 2 mirrors"]);
        assert!(home.read("other") == home.read("survey.h5"), "under another name");
        fs::remove_file(home.path("other")).unwrap();
        // A mirror that the torrent does not name has the file whole.
        home.segmented("survey.h5", kind, &[]);
        let (to, mirror) = (format!("{kind}-named"), whole.at("survey.h5"));
        home.run(["get", "pub/survey.h5.torrent", &mirror, "-d", &to]).code_is(0);
        home.has_survey(&to);
        for place in ["survey.h5", "web", "parts", "parts/survey.h5"] {
            home.run(["verify", place, "--torrent", "pub/survey.h5.torrent"]).code_is(0);
        }
    }
}

#[test]
fn segments_of_another_client_are_seeded_as_the_file() {
    let home = with_file();
    home.split("survey.h5", "theirs/survey.h5");
    for kind in KINDS {
        home.segmented("survey.h5", kind, &[]);
        let seeding = home.seed(&["pub/survey.h5.torrent", "--data", "theirs"]);
        seeding.says("verified survey.h5: 49 of 49 pieces are right");
        let (peer, to) = (format!("127.0.0.1:{}", seeding.port), format!("ours-{kind}"));
        home.run(["get", "pub/survey.h5.torrent", "-d", &to, "--peer", &peer]).code_is(0);
        home.has_survey(&to);
    }
}

#[test]
fn a_magnet_link_is_enough_and_what_was_fetched_is_seeded() {
    let home = with_file();
    let tracker = home.track(&[]);
    let said = home.segmented("survey.h5", "hybrid", &["--tracker", &tracker.url]);
    let link = said.split_whitespace().find(|word| word.starts_with("magnet:")).unwrap();
    let first = home.seed(&["pub/survey.h5.torrent", "--data", "."]);
    first.says("announced to ");
    let listen = format!("127.0.0.1:{}", reserve_port());
    let get = ["get", link, "-d", "one", "--keep-seeding", "--listen", &listen];
    let running = home.swath(get).limit(Duration::from_secs(180)).start();
    home.wait_for_bytes("one/survey.h5", 3 * MIB as u64 + 7_001);
    drop(first);
    home.run(["get", "pub/survey.h5.torrent", "-d", "from-one", "--peer", &listen]).code_is(0);
    home.has_survey("from-one");
    running.signal(2);
    running.wait().code_is(0);
    home.has_survey("one");
    // No peer is left but a mirror.
    fs::create_dir(home.path("web")).unwrap();
    home.write("web/survey.h5", home.read("survey.h5"));
    let server = home.serve(&["web", "--anonymous", "--plain", "--limit-rate", "2M"]);
    let again = home.seed(&["pub/survey.h5.torrent", "--data", "one"]);
    let peer = format!("127.0.0.1:{}", again.port);
    let ran = home.run(["get", link, &server.at("survey.h5"), "-d", "two", "--peer", &peer]);
    ran.code_is(0).says(&["1 file, 1 mirror"]);
    home.has_survey("two");
}

#[test]
fn a_killed_run_is_resumed() {
    let home = with_file();
    home.write("survey.h5", bytes(1, 12 * MIB + 7_001));
    home.segmented("survey.h5", "hybrid", &[]);
    let seeding = home.seed(&["pub/survey.h5.torrent", "--data", "."]);
    let peer = format!("127.0.0.1:{}", seeding.port);
    let get = ["get", "pub/survey.h5.torrent", "-d", "out", "--peer", &peer];
    let running = home.swath(get.iter().chain(&["--limit-rate", "1M"])).start();
    home.wait_for_commit("out/survey.h5.swath");
    running.signal(9);
    running.wait();
    assert!(!home.exists("out/survey.h5"), "no final name yet");
    home.run(get).code_is(0).says(&["from an earlier run"]);
    home.has_survey("out");
}

#[test]
fn in_a_folder_only_long_files_have_segments() {
    let home = Home::new();
    fs::create_dir_all(home.path("run7/deep")).unwrap();
    home.write("run7/a.txt", bytes(1, 70_001));
    home.write("run7/deep/big.h5", bytes(2, 2 * MIB + 30_000));
    home.write("run7/z", bytes(3, MIB));
    let server = home.serve(&[".", "--anonymous", "--plain"]);
    let has = |folder: &str, names: &[&str]| {
        for name in ["a.txt", "deep/big.h5", "z"] {
            let there = format!("{folder}/run7/{name}");
            assert_eq!(home.exists(&there), names.contains(&name), "{there}");
            let is_right = || home.read(&there) == home.read(&format!("run7/{name}"));
            assert!(!home.exists(&there) || is_right(), "{there}");
        }
    };
    for kind in KINDS {
        home.segmented("run7", kind, &["--mirror", &server.at("run7/")]);
        let torrent = "pub/run7.torrent";
        let to = |what: &str| format!("{kind}-{what}");
        home.run(["get", torrent, "-d", &to("all")]).code_is(0).says(&["3 files, 1 mirror"]);
        has(&to("all"), &["a.txt", "deep/big.h5", "z"]);
        let selected = home.run(["get", torrent, "-d", &to("some"), "--select", "*.h5"]);
        selected.code_is(0).says(&["1 of 3 files"]);
        has(&to("some"), &["deep/big.h5"]);
        // Another client splits the long file alone.
        home.split("run7/deep/big.h5", &to("theirs/run7/deep/big.h5"));
        for name in ["a.txt", "z"] {
            home.write(&to(&format!("theirs/run7/{name}")), home.read(&format!("run7/{name}")));
        }
        // Its folder is a web seed.
        let theirs = home.serve(&[&to("theirs"), "--anonymous", "--plain"]);
        home.segmented("run7", kind, &["--segment-mirror", &theirs.at("run7/")]);
        home.run(["get", "pub/run7.torrent", "-d", &to("joined")]).code_is(0);
        has(&to("joined"), &["a.txt", "deep/big.h5", "z"]);
        for place in ["run7", &*to("theirs")] {
            let ran = home.run(["verify", place, "--torrent", "pub/run7.torrent"]);
            ran.code_is(0);
            assert!(ran.out().contains("3 files"), "{}", ran.out());
        }
    }
}

/// The advice was --overwrite, which removes the segments.
#[test]
fn segments_of_another_client_are_joined_into_another_folder() {
    for kind in KINDS {
        let home = Home::new();
        home.write("run7/big.h5", bytes(2, 3 * MIB + 30_000));
        home.write("run7/z", bytes(3, 70_000));
        // What the folder has is not fetched: the mirror has it wrong.
        let mut mirrored = home.read("run7/big.h5");
        mirrored[..MIB].fill(7);
        home.write("web/run7/big.h5", mirrored);
        home.write("web/run7/z", vec![7; 70_000]);
        let server = home.serve(&["web", "--anonymous", "--plain"]);
        home.segmented("run7", kind, &["--mirror", &server.at("run7/")]);
        home.run(["publish", "run7", "--only", "index", "-o", "index"]).code_is(0);
        // One segment is missing, and one is damaged.
        for (number, segment) in home.read("run7/big.h5").chunks(MIB).enumerate() {
            let mut segment = segment.to_vec();
            match number {
                1 => continue,
                2 => segment[500_000] ^= 1,
                _ => {}
            }
            home.write(&format!("left/run7/big.h5/big.h5.{number:03}"), segment);
        }
        home.write("left/run7/z", home.read("run7/z"));
        let get = ["get", "pub/run7.torrent", "-d"];
        let ran = home.run(get.iter().chain(&["left", "--overwrite"]));
        ran.code_is(5).says(&["a folder with 3 of the 4 segments", "fetch into another folder"]);
        let said = ran.all();
        let mirror = said.split_whitespace().find(|word| word.starts_with("file://")).unwrap();
        let ran = home.run(get.iter().chain(&["joined", mirror.trim_end_matches(':')]));
        ran.code_is(0).never_says(&["corrupt"]);
        assert!(home.read("joined/run7/big.h5") == home.read("run7/big.h5"), "{kind}");
        assert!(home.read("joined/run7/z") == home.read("run7/z"), "{kind}");
        // An index knows whole files only.
        let verify = ["verify", "left/run7", "--index", "index/run7.index"];
        home.run(verify).code_is(4).says(&[
            "big.h5: there in segments",
            "--torrent",
            "1 of 2 files",
        ]);
    }
}

#[test]
fn a_file_in_segments_is_told_from_one_that_is_missing() {
    let home = with_file();
    home.segmented("survey.h5", "hybrid", &[]);
    home.run(["publish", "survey.h5", "--only", "index", "-o", "index"]).code_is(0);
    home.split("survey.h5", "left/survey.h5");
    let ran = home.run(["get", "pub/survey.h5.torrent", "-d", "left"]);
    ran.code_is(5).says(&["a folder with 4 of the 4 segments"]);
    let mirror = format!("file://{}", home.path("left/survey.h5").display());
    home.run(["get", "pub/survey.h5.torrent", &mirror, "-d", "joined"]).code_is(0);
    home.has_survey("joined");
    for place in ["left", "left/survey.h5"] {
        let ran = home.run(["verify", place, "--index", "index/survey.h5.index"]);
        ran.says(&["survey.h5: there in segments", "1 of 1 file does not match"]);
        ran.never_says(&["not checked"]);
    }
}

#[test]
fn another_torrent_of_the_same_content_is_told() {
    let home = with_file();
    home.run(["keys", "new", "-o", "a.key"]).code_is(0);
    let publish = ["publish", "survey.h5", "-o", "pub", "--segment"];
    let signed = home.run(publish.iter().chain(&["1MiB", "--sign", "a.key"]));
    signed.code_is(0).never_says(&["replaces", "removed"]);
    let again = home.run(publish.iter().chain(&["1MiB"]));
    again.code_is(0).never_says(&["replaces", "removed"]);
    let said = signed.out();
    let hash = said.split_whitespace().skip_while(|word| *word != "v1").nth(1).unwrap();
    let other = home.run(publish.iter().chain(&["2MiB"]));
    other.code_is(0).says(&["replaces a torrent with another info-hash", hash]);
    other.says(&["removed pub/survey.h5.index.minisig", "--sign KEY signs the new one"]);
    assert!(!home.exists("pub/survey.h5.index.minisig"));
}

#[test]
fn a_feed_announces_versions_with_segments() {
    let home = with_file();
    fs::create_dir(home.path("web")).unwrap();
    let server = home.serve(&["web", "--anonymous", "--plain"]);
    let feed = server.at("pub/feed.rss");
    for version in ["1", "2"] {
        let mut content = home.read("survey.h5");
        content[MIB..MIB + 100].iter_mut().for_each(|byte| *byte ^= 0x55);
        home.write("survey.h5", &content);
        home.write("web/survey.h5", content);
        let args = ["publish", "survey.h5", "--version", version, "-o", "web/pub", "-q"];
        let more = ["--segment", "1MiB", "--piece", "64KiB", "--mirror", &server.at("survey.h5")];
        home.run(args.iter().chain(&more)).code_is(0);
        home.run(["get", &feed, "-d", version]).code_is(0);
        home.has_survey(version);
        let ran = home.run(["follow", &feed, "-d", "data", "--once"]);
        ran.code_is(0).says(&["survey.h5"]);
        assert!(home.read("data/survey.h5") == home.read("survey.h5"), "{version}");
        if version == "2" {
            // Of four segments one has another piece.
            ran.says(&["unchanged"]);
        }
    }
    home.run(["get", "web/pub/survey.h5-2.meta4", "-d", "whole"]).code_is(0);
    home.has_survey("whole");
}

#[test]
fn segments_that_cannot_be_are_said() {
    let home = with_file();
    let publish = ["publish", "survey.h5", "--only", "torrent", "-o", "pub"];
    let with = |more: &[&str]| home.run(publish.iter().chain(more));
    for wrong in ["1000", "512KiB", "3MiB", "1GB", "0"] {
        with(&["--segment", wrong]).code_is(2).says(&["power of two from 1MiB"]);
    }
    let longer = with(&["--segment", "1MiB", "--piece", "2MiB"]);
    longer.code_is(2).says(&["--segment must not be shorter than --piece"]);
    with(&["--segment-mirror", "http://a.example/survey.h5/"]).code_is(2);
    let with_mirror = |mirror| ["--segment", "1GiB", "--segment-mirror", mirror];
    for wrong in ["http://a.example/survey.h5/?key=1", "http://a.example/#x"] {
        with(&with_mirror(wrong)).code_is(2).says(&["without '?' and '#'"]);
    }
    for only in ["index", "metalink"] {
        let ran =
            home.run(["publish", "survey.h5", "--segment", "1MiB", "--only", only, "-o", "pub"]);
        ran.code_is(2).says(&["--segment is for the torrent"]);
    }
    let ran = with(&with_mirror("http://a.example/survey.h5/"));
    ran.code_is(0).says(&["no file is longer than a segment", "lists no mirror of segments"]);
    let ran = with(&["--segment", "1GiB"]);
    ran.code_is(0).says(&["no file is longer than a segment"]);
    ran.never_says(&["mirror of segments"]);
    fs::create_dir_all(home.path("set/x")).unwrap();
    home.write("set/big", bytes(1, 2 * MIB));
    home.write("set/x/x.000", bytes(2, MIB));
    home.write("set/x/x.001", "end");
    let ran = home.run(["publish", "set", "--segment", "1MiB", "-o", "other"]);
    ran.code_is(6)
        .says(&["those in \"x\" have the names and lengths of segments", "another --segment"]);
    assert!(!home.exists("other/set.torrent"));
}
