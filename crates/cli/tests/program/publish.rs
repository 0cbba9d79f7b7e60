//! `swath publish`: what it writes, and that swath itself fetches it.

use std::fs;
use std::os::unix::fs::symlink;

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
