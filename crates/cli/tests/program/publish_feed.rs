//! The catalogue and the feeds that `swath publish` keeps: versions are added, refused and replaced.

use std::fs;

use crate::support::trees::bytes;
use crate::support::{Home, Ran};

fn with_dataset() -> Home {
    let home = Home::new();
    fs::create_dir(home.path("run7")).unwrap();
    home.write("run7/a.h5", bytes(1, 100_001));
    home
}

fn publish(home: &Home, version: &str, more: &[&str]) -> Ran {
    home.run(["publish", "run7", "--version", version, "-o", "pub", "-q"].iter().chain(more))
}

fn text(home: &Home, name: &str) -> String {
    String::from_utf8(home.read(name)).unwrap()
}

/// Where each of these stands; all must.
fn places(text: &str, words: &[&str]) -> Vec<usize> {
    words.iter().map(|word| text.find(word).unwrap_or_else(|| panic!("{word}: {text}"))).collect()
}

#[test]
fn versions_are_announced_newest_first_with_all_their_files() {
    let home = with_dataset();
    home.run(["keys", "new", "-o", "lab.key"]).code_is(0);
    publish(&home, "1", &["--feed-url", "https://a.example/pub"]).code_is(0);
    home.write("run7/b.h5", bytes(2, 50_000));
    publish(&home, "2", &["--sign", "lab.key"]).code_is(0);
    let rss = text(&home, "pub/feed.rss");
    let words = [
        "run7 version 2",
        "<category>run7</category>",
        "<enclosure url=\"https://a.example/pub/run7-2.torrent\"",
        "run7-2.meta4",
        "run7-2.index\"",
        "run7-2.index.minisig\"",
        "run7 version 1",
        "https://a.example/pub/run7-1.torrent",
    ];
    assert!(places(&rss, &words).is_sorted(), "{rss}");
    let atom = text(&home, "pub/feed.atom");
    let words = ["<id>urn:x-swath:run7:2</id>", "run7-2.torrent", "<id>urn:x-swath:run7:1</id>"];
    assert!(places(&atom, &words).is_sorted(), "{atom}");
}

#[test]
fn other_content_of_a_version_is_refused_until_it_is_to_be_replaced() {
    let home = with_dataset();
    home.run(["keys", "new", "-o", "lab.key"]).code_is(0);
    publish(&home, "1", &["--sign", "lab.key"]).code_is(0);
    let files = ["run7-1.torrent", "run7-1.index", "feed.rss", "catalogue.json"];
    let read = || files.map(|name| home.read(&format!("pub/{name}")));
    let before = read();
    // The same content again, with a mirror: its index and its signature stay.
    let mirror = ["--mirror", "http://m.invalid/run7/"];
    publish(&home, "1", &mirror).code_is(0);
    let [torrent, index, ..] = read();
    assert_ne!(torrent, before[0]);
    assert_eq!(index, before[1]);
    home.run(["verify", "run7", "--trust", "lab.pub", "--index", "pub/run7-1.index"]).code_is(0);
    assert!(text(&home, "pub/feed.rss").contains("run7-1.index.minisig"));

    let before = read();
    let other = |at: usize| {
        let mut other = bytes(1, 100_001);
        other[at] ^= 1;
        other
    };
    for content in [other(5), bytes(1, 100_000)] {
        home.write("run7/a.h5", content);
        let ran = publish(&home, "1", &[]);
        ran.code_is(5).says(&["run7 version 1 was published with other content", "--replace"]);
        assert_eq!(read(), before);
    }
    publish(&home, "1", &["--replace", "--only", "index"]).code_is(0);
    // What is of the old content is gone.
    let names = ["catalogue.json", "feed.atom", "feed.rss", "run7-1.index"];
    assert_eq!(home.names_in("pub"), names);
    let rss = text(&home, "pub/feed.rss");
    assert_eq!(rss.matches("<item>").count(), 1, "{rss}");
    assert!(!rss.contains("torrent"), "{rss}");
}

#[test]
fn files_of_others_are_not_replaced() {
    let home = with_dataset();
    fs::create_dir(home.path("pub")).unwrap();
    home.write("pub/feed.rss", "mine");
    publish(&home, "1", &[]).code_is(5).says(&["pub/feed.rss exists"]);
    fs::remove_file(home.path("pub/feed.rss")).unwrap();
    home.write("pub/catalogue.json", "{}");
    for more in [&[][..], &["--replace"]] {
        publish(&home, "1", more)
            .code_is(5)
            .says(&["the catalogue of pub", "no catalogue of swath"]);
    }
    assert_eq!(home.names_in("pub"), ["catalogue.json"]);
}

#[test]
fn a_folder_that_has_its_own_publications_does_not_publish_them() {
    let home = with_dataset();
    for out in ["run7", "run7/pub"] {
        for version in ["1", "2"] {
            let args = ["publish", "run7", "--version", version, "-o", out];
            let said = home.run(args).code_is(0).out();
            let of = format!("run7 version {version}: 1 file, 100 kB");
            assert!(said.contains(&of), "{out}: {said}");
        }
        home.run(["verify", "run7", "--torrent", &format!("{out}/run7-2.torrent")]).code_is(0);
        for name in ["catalogue.json", "feed.rss", "feed.atom"] {
            fs::remove_file(home.path(format!("{out}/{name}"))).unwrap();
        }
        for extension in ["torrent", "meta4", "index"] {
            for version in [1, 2] {
                fs::remove_file(home.path(format!("{out}/run7-{version}.{extension}"))).unwrap();
            }
        }
    }
}
