//! What `swath publish` says of versions that its catalogue has, and of files in its way. What it does with
//! them is tested where it is done (`publish/tests/suite/publications.rs`).

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

#[test]
fn other_content_of_a_version_is_refused_until_it_is_to_be_replaced() {
    let home = with_dataset();
    home.run(["keys", "new", "-o", "lab.key"]).code_is(0);
    publish(&home, "1", &["--sign", "lab.key", "--feed-url", "https://a.example/pub"]).code_is(0);
    // The same content again, with a mirror: its index and its signature stay.
    publish(&home, "1", &["--mirror", "http://m.invalid/run7/"]).code_is(0);
    home.run(["verify", "run7", "--trust", "lab.pub", "--index", "pub/run7-1.index"]).code_is(0);
    let rss = String::from_utf8(home.read("pub/feed.rss")).unwrap();
    assert!(rss.contains("\"https://a.example/pub/run7-1.torrent\""), "{rss}");
    home.write("run7/a.h5", bytes(2, 100_001));
    let ran = publish(&home, "1", &[]);
    ran.code_is(5).says(&["run7 version 1 was published with other content", "--replace"]);
    publish(&home, "1", &["--replace", "--only", "index"]).code_is(0);
    let names = ["catalogue.json", "feed.atom", "feed.rss", "run7-1.index"];
    assert_eq!(home.names_in("pub"), names);
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
    for version in ["1", "2"] {
        let args = ["publish", "run7", "--version", version, "-o", "run7/pub"];
        let said = home.run(args).code_is(0).out();
        let of = format!("run7 version {version}: 1 file, 100 kB");
        assert!(said.contains(&of), "{said}");
    }
    home.run(["verify", "run7", "--torrent", "run7/pub/run7-2.torrent"]).code_is(0);
}
