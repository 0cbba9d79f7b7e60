//! Copies between servers that go through this machine.

use std::fs;

use swath_netlab::faulty::{Content, Server};

use crate::gate::Gate;
use crate::support::serve::reserved_address;
use crate::support::trees::bytes;
use crate::support::{Home, Ran};
use crate::third_party_servers::{args, at};

const THROUGH: &str = "the data goes through this machine, at most as fast as its links";

fn with_dataset() -> Home {
    let home = Home::new();
    for (path, seed, length) in [("x.h5", 1, 3_000_001), ("sub/y", 2, 70_000), ("empty", 4, 0)] {
        home.write(&format!("a/ds/{path}"), bytes(seed, length));
    }
    fs::create_dir(home.path("b")).unwrap();
    home
}

fn has_dataset(home: &Home, folder: &str) {
    for path in ["x.h5", "sub/y", "empty"] {
        assert!(
            home.read(&format!("{folder}/{path}")) == home.read(&format!("a/ds/{path}")),
            "{path}"
        );
    }
}

#[test]
fn trees_and_files_go_through_this_machine() {
    let home = with_dataset();
    let log = home.path("a.log");
    let a = home.serve(&["a", "--log", log.to_str().unwrap()]);
    let b_log = home.path("b.log");
    let b = home.serve(&["b", "--write", "--log", b_log.to_str().unwrap()]);
    let cp = |from: &str, to: &str, more: &[&str]| -> Ran {
        let command = args(&[&a, &b], &[at(&a, from), at(&b, to)]);
        home.run(command.iter().map(String::as_str).chain(more.iter().copied()))
    };
    let asked = cp("ds/", "copy/", &["--through-here"]);
    asked.code_is(0).says(&["3 files", "verified by the checksum of every block"]);
    assert!(!asked.all().contains(THROUGH), "the user knows: {}", asked.all());
    has_dataset(&home, "b/copy");
    cp("ds/", "copy/", &["--through-here"]).code_is(0).says(&["3 files are the same"]);
    // The destination fetches nothing itself.
    cp("ds", "named/", &[]).code_is(0).says(&[THROUGH, "without --third-party"]);
    has_dataset(&home, "b/named/ds");
    cp("ds/x.h5", "new-name", &["--through-here"]).code_is(0);
    assert!(home.read("b/new-name") == bytes(1, 3_000_001));
    cp("ds/x.h5", "named/", &["--through-here"]).code_is(0);
    assert!(home.read("b/named/x.h5") == bytes(1, 3_000_001));
    // What is deleted at the source, and what a filter leaves out.
    fs::remove_file(home.path("a/ds/sub/y")).unwrap();
    cp("ds/", "copy/", &["--through-here", "--delete", "--exclude", "*.h5"]).code_is(0);
    assert!(!home.exists("b/copy/sub/y") && home.exists("b/copy/x.h5"));
    let plan = cp("ds/", "other/", &["--through-here", "--dry-run"]);
    plan.code_is(0);
    assert!(plan.out().contains("x.h5") && !home.exists("b/other"), "{}", plan.out());
    // Neither server has seen the token of the other.
    let logs = fs::read_to_string(b_log).unwrap() + &fs::read_to_string(log).unwrap();
    assert!(!logs.contains(a.token()) && !logs.contains(b.token()));
}

#[test]
fn a_source_that_is_started_again_delivers_the_rest() {
    let home = with_dataset();
    let free = reserved_address();
    let a = home.serve_at(&free, &["a"]);
    let b = home.serve(&["b", "--write"]);
    let gate = Gate::before(&a, 2_500_000);
    let from = gate.on_the_way(&a, &at(&a, "ds/"));
    let command = args(&[&a, &b], &[from, at(&b, "copy/")]);
    let copying = home.swath(command.iter().map(String::as_str).chain(["--through-here"])).start();
    home.wait_for_bytes("b/copy.swath.part/x.h5", 300_000);
    assert!(!home.exists("b/copy/x.h5"));
    a.signal(9);
    a.wait();
    let _again = home.serve_at(&free, &["a"]);
    gate.open();
    copying.wait().code_is(0);
    has_dataset(&home, "b/copy");
}

#[test]
fn a_source_that_is_gone_is_named() {
    let home = with_dataset();
    let a = home.serve(&["a"]);
    let b = home.serve(&["b", "--write"]);
    let command = args(&[&a, &b], &[at(&a, "none/"), at(&b, "copy/")]);
    let missing = home.run(command.iter().map(String::as_str).chain(["--through-here"]));
    missing.code_is(7).says(&["404"]);
    let command = args(&[&a, &b], &[at(&a, "ds/"), at(&b, "copy/")]);
    a.signal(9);
    a.wait();
    let gone = home.run(command.iter().map(String::as_str).chain(["--through-here"]));
    gone.code_is(7).says(&["Connection refused"]);
}

/// It ended with an error after everything had been copied, and later without a word on what proves it.
#[test]
fn a_web_folder_is_fetched_by_the_destination() {
    let files = [("x.h5", Content::random(1, 3_000_001)), ("sub/y", Content::random(2, 70_000))];
    let page = |links: &str| Content::bytes(links.as_bytes().to_vec());
    let web = Server::builder()
        .file_as(
            "/",
            "text/html",
            page("<a href=\"../\">..</a><a href=\"sub/\">sub</a><a href=\"x.h5\">x</a>"),
        )
        .file_as("/sub/", "text/html", page("<a href=\"../\">..</a><a href=\"y\">y</a>"))
        .file("/x.h5", files[0].1.clone())
        .file("/sub/y", files[1].1.clone())
        .start()
        .unwrap();
    let home = with_dataset();
    let from = ["--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    let b = home.serve(&[&["b"][..], &from].concat());
    let command = args(&[&b], &[web.url("/"), at(&b, "web/")]);
    let copied = home.run(&command);
    copied.code_is(0).says(&[
        "2 files",
        "3.07 MB",
        "NOT VERIFIED: no digests of 2 files are known",
    ]);
    for (name, content) in &files {
        home.holds(&format!("b/web/{name}"), content);
    }
    // Again: compared only by size and time.
    home.run(&command).code_is(0).says(&["nothing to copy", "no digests of 2 files are known"]);
}
