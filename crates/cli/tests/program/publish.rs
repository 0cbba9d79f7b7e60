//! `swath publish`: what it writes is what other programs make and swath itself fetches.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::Home;
use crate::support::trees::bytes;

/// Three files whose lengths are no multiples of pieces, one of them empty.
fn with_dataset() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("run7/detector")).unwrap();
    home.write("run7/detector/a.h5", bytes(1, 300_001));
    home.write("run7/b.txt", bytes(2, 70_000));
    home.write("run7/empty", "");
    home
}

/// The info-hashes of a torrent of `path` as libtorrent makes it; `None`, with a message, without it.
fn by_libtorrent(path: &Path, piece_bytes: u32, flags: &str) -> Option<[String; 2]> {
    let script = format!(
        "import libtorrent as lt, os, sys\n\
         files = lt.file_storage()\n\
         above = os.path.dirname(sys.argv[1])\n\
         below = [os.path.join(d, n) for d, _, names in os.walk(sys.argv[1]) for n in names]\n\
         for path in sorted(below, key=lambda p: p.split('/')) or [sys.argv[1]]:\n\
         \x20 files.add_file(os.path.relpath(path, above), os.path.getsize(path))\n\
         made = lt.create_torrent(files, {piece_bytes}, {flags})\n\
         lt.set_piece_hashes(made, above)\n\
         hashes = lt.torrent_info(made.generate()).info_hashes()\n\
         print(hashes.v1, hashes.v2)\n"
    );
    let ran = Command::new("/usr/bin/python3").args(["-c", &script]).arg(path).output();
    match ran.ok().filter(|ran| ran.status.success()) {
        Some(ran) => {
            let text = String::from_utf8(ran.stdout).unwrap();
            let mut words = text.split_whitespace().map(str::to_owned);
            Some([words.next().unwrap(), words.next().unwrap()])
        }
        None => {
            println!("skipped: /usr/bin/python3 has no libtorrent");
            None
        }
    }
}

#[test]
fn info_hashes_are_those_that_libtorrent_finds() {
    let home = with_dataset();
    for (kind, flags) in
        [("hybrid", "0"), ("v1", "lt.create_torrent.v1_only"), ("v2", "lt.create_torrent.v2_only")]
    {
        for path in ["run7", "run7/detector/a.h5"] {
            let Some([v1, v2]) = by_libtorrent(&home.path(path), 32_768, flags) else { return };
            let only =
                ["--only", "torrent", "--torrent", kind, "--piece", "32KiB", "--json", "--replace"];
            let ran = home.run(["publish", path, "-o", "pub"].iter().chain(&only));
            ran.code_is(0);
            let event: serde_json::Value = serde_json::from_str(&ran.out()).unwrap();
            let none = |hash: &str| hash.bytes().all(|digit| digit == b'0');
            let is = |found: &serde_json::Value, hash: &str| match found.as_str() {
                Some(found) => found == hash,
                None => none(hash),
            };
            assert!(is(&event["infohash_v1"], &v1), "{kind} {path}: {event} {v1}");
            assert!(is(&event["infohash_v2"], &v2), "{kind} {path}: {event} {v2}");
        }
    }
}

#[test]
fn a_folder_is_published_and_fetched_from_its_mirror() {
    let home = with_dataset();
    let server = home.serve(&[".", "--anonymous", "--plain"]);
    let mirror = server.at("run7/");
    let ran = home.run([
        "publish",
        "run7",
        "--version",
        "2",
        "--mirror",
        &mirror,
        "--tracker",
        "udp://t.invalid:6969",
        "-o",
        "pub",
        "--piece",
        "64KiB",
    ]);
    let out = ran.code_is(0).out();
    for words in ["run7 version 2: 3 files, ", "info-hash v1 ", "magnet:?xt=urn:btih:"] {
        assert!(out.contains(words), "{out}");
    }
    ran.never_says(&["warning"]);
    let names = ["catalogue.json", "feed.atom", "feed.rss", "run7-2.index", "run7-2.meta4"];
    assert_eq!(home.names_in("pub"), [&names[..], &["run7-2.torrent"]].concat());
    let index = String::from_utf8(home.read("pub/run7-2.index")).unwrap();
    assert!(index.starts_with("swath-index 1\nname run7\nversion 2\npublished "), "{index}");
    assert!(index.contains(" 300001 detector/a.h5\n"), "{index}");

    home.run(["get", "pub/run7-2.meta4", "-d", "there"]).code_is(0);
    for path in ["detector/a.h5", "b.txt", "empty"] {
        assert_eq!(
            home.read(&format!("there/run7/{path}")),
            home.read(&format!("run7/{path}")),
            "{path}"
        );
    }
    // If the mirror has one wrong byte, the file is refused.
    let mut wrong = home.read("run7/detector/a.h5");
    wrong[200_000] ^= 1;
    home.write("run7/detector/a.h5", &wrong);
    home.run(["get", "pub/run7-2.meta4", "-d", "elsewhere"]).says(&["a.h5"]);
    assert!(!home.exists("elsewhere/run7/detector/a.h5"));
}

#[test]
fn what_cannot_be_published_is_said_and_nothing_is_written() {
    let home = with_dataset();
    home.run(["publish", "nowhere", "-o", "pub"])
        .code_is(6)
        .says(&["error: cannot read nowhere: "]);
    fs::create_dir(home.path("bare")).unwrap();
    home.run(["publish", "bare", "-o", "pub"])
        .code_is(6)
        .says(&["error: there are no files to publish"]);
    home.run(["publish", "run7", "--name", "a/b", "-o", "pub"]).says(&["cannot name a dataset"]);
    home.run(["publish", "run7", "--version", "../x", "-o", "pub"])
        .says(&["cannot name a dataset"]);
    home.run(["publish", "run7", "--piece", "48KiB", "-o", "pub"])
        .code_is(2)
        .says(&["power of two"]);
    home.run(["publish", "run7", "--tracker", "ftp://t/", "-o", "pub"])
        .code_is(2)
        .says(&["udp://HOST"]);
    let ran =
        home.run(["publish", "run7", "--mirror", "http://ann:secret@m.invalid/run7/", "-o", "pub"]);
    ran.code_is(2).says(&["user name and password"]);
    assert!(!home.exists("pub"));
    home.run(["publish", "run7", "-o", "pub", "-q"]).code_is(0);
    let before = home.read("pub/run7.torrent");
    fs::remove_file(home.path("pub/catalogue.json")).unwrap();
    home.run(["publish", "run7", "-o", "pub"])
        .code_is(5)
        .says(&["run7.torrent exists", "--replace"]);
    assert_eq!(home.read("pub/run7.torrent"), before);
}

#[test]
fn links_and_mirrors_that_lead_elsewhere_are_warned_of() {
    let home = with_dataset();
    symlink("/etc/hostname", home.path("run7/link")).unwrap();
    let ran = home.run(["publish", "run7", "--mirror", "http://m.invalid/data/", "-o", "pub"]);
    ran.code_is(0).says(&["not published: link", "does not list http://m.invalid/data/", "--name"]);
    let metalink = String::from_utf8(home.read("pub/run7.meta4")).unwrap();
    assert!(metalink.contains("http://m.invalid/data/detector/a.h5"), "{metalink}");
    let torrent = home.read("pub/run7.torrent");
    assert!(!torrent.windows(8).any(|window| window == b"url-list"));
    home.run([
        "publish",
        "run7",
        "--name",
        "data",
        "--mirror",
        "http://m.invalid/data/",
        "-o",
        "pub",
    ])
    .code_is(0)
    .never_says(&["does not list"]);
    let torrent = home.read("pub/data.torrent");
    assert!(torrent.windows(8).any(|window| window == b"url-list"));
}

/// libtorrent takes a v2 torrent with one file for a file without a folder.
#[test]
fn a_v2_torrent_of_a_folder_with_one_file_causes_a_warning() {
    let home = with_dataset();
    home.write("one/a.h5", bytes(3, 100_001));
    for (kind, path, warns) in [
        ("v2", "one", true),
        ("hybrid", "one", false),
        ("v2", "one/a.h5", false),
        ("v2", "run7", false),
    ] {
        let ran = home.run(["publish", path, "--torrent", kind, "-o", "pub", "--replace"]);
        ran.code_is(0);
        assert_eq!(ran.stderr.contains("without the folder 'one'"), warns, "{kind} {path}");
    }
}
