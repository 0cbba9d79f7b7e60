//! Checksum files as publishers have them beside their files: `get --checksums`, `verify -c`.

use crate::support::Home;
use crate::support::net::sha256;
use swath_netlab::faulty::{Content, Server};

fn hex(content: &Content) -> String {
    sha256(content).replace("sha-256:", "")
}

#[test]
fn a_digest_is_found_beside_the_file() {
    let (iso, other) = (Content::random(1, 100_000), Content::random(2, 1_000));
    let lists = [
        ("SHA256SUMS", format!("{}  other\n{} *a b.iso\n", hex(&other), hex(&iso))),
        ("CHECKSUM", format!("# Fedora\nSHA256 (a b.iso) = {}\n", hex(&iso))),
        ("a%20b.iso.sha256", format!("{}\n", hex(&iso))),
        ("a%20b.iso.sha256", format!("{}  /build/out/a b.iso\n", hex(&iso))),
    ];
    for (list, text) in lists {
        let server = Server::builder()
            .file("/d/a%20b.iso", iso.clone())
            .file(&format!("/d/{list}"), Content::bytes(text))
            .start()
            .unwrap();
        let home = Home::new();
        home.swath(["get", "--checksums", "auto", &server.url("/d/a%20b.iso")])
            .run()
            .code_is(0)
            .says(&["the sha-256 comes from", list]);
        home.holds("a b.iso", &iso);
    }
}

/// What a list says of the file and cannot be used must not let the file come unchecked.
#[test]
fn a_list_that_says_otherwise_or_cannot_be_used_gives_no_file() {
    let iso = Content::random(1, 100_000);
    for (text, code) in [
        (format!("{}  a.iso\n", "0".repeat(64)), 4),
        (format!("SHA256 (a.iso) = {}\n", &hex(&iso)[1..]), 6),
        (format!("SKEIN (a.iso) = {}\n", hex(&iso)), 6),
        (format!("{}  a.iso\n{}  a.iso\n", hex(&iso), "0".repeat(64)), 6),
    ] {
        let server = Server::builder()
            .file("/a.iso", iso.clone())
            .file("/SHA256SUMS", Content::bytes(text.clone()))
            .start()
            .unwrap();
        let home = Home::new();
        home.swath(["get", "--checksums", "auto", &server.url("/a.iso")]).run().code_is(code);
        assert!(!home.exists("a.iso"), "{text}");
        let named = server.url("/SHA256SUMS");
        home.swath(["get", "--checksums", &named, &server.url("/a.iso")]).run().code_is(code);
        home.write("sums", &text);
        home.swath(["get", "--checksums", "sums", &server.url("/a.iso")]).run().code_is(code);
        assert!(!home.exists("a.iso"), "{text}");
    }
}

#[test]
fn a_list_that_is_named_must_know_the_file_and_one_that_is_looked_for_need_not() {
    let iso = Content::random(1, 100_000);
    let server = Server::builder().file("/a.iso", iso.clone()).start().unwrap();
    let home = Home::new();
    home.write("sums", format!("{}  other.iso\n", hex(&iso)));
    let get = |which: &str| home.swath(["get", "--checksums", which, &server.url("/a.iso")]).run();
    get("sums").code_is(6).says(&["does not list a.iso"]);
    get(&server.url("/SHA256SUMS")).code_is(7).says(&["cannot fetch the checksum file"]);
    home.lacks("a.iso");
    get("auto").code_is(0).says(&["no checksum file next to"]);
    home.holds("a.iso", &iso);
}

#[test]
fn files_here_are_checked_against_a_list() {
    let home = Home::new();
    let (one, two) = (Content::random(1, 5_000), Content::random(2, 6_000));
    home.write("one", one.read(0, one.size_bytes()));
    home.write("d/two \\ x", two.read(0, two.size_bytes()));
    home.write("SUMS", format!("{} *one\n\\{}  d/two \\\\ x\n", hex(&one), hex(&two)));
    let verify = |args: &[&str]| home.swath([&["verify"], args].concat()).run();
    let ran = verify(&["-c", "SUMS"]);
    assert_eq!(ran.code_is(0).out(), "one: sha-256 matches\nd/two \\ x: sha-256 matches\n");
    assert_eq!(verify(&["-q", "-c", "SUMS"]).code_is(0).all(), "");
    assert_eq!(verify(&["one", "-c", "SUMS"]).code_is(0).out(), "one: sha-256 matches\n");
    home.write("BSD", format!("SHA256 (one) = {}\nSHA256 (none) = {}\n", hex(&two), hex(&two)));
    verify(&["-c", "BSD"]).code_is(4).says(&["one: sha-256 is", "cannot read none"]);
    verify(&["none", "-c", "SUMS"]).code_is(6).says(&["does not list none"]);
    home.write("one.sha256", hex(&one));
    verify(&["-c", "one.sha256"]).code_is(0);
    home.write("prose", "nothing here\n");
    verify(&["-c", "prose"]).code_is(6).says(&["lists no file"]);
}
