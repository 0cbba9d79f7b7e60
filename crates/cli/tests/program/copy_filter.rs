//! `swath cp --include … --exclude …`: a part of a tree, in both directions.

use std::fs;

use crate::support::Home;
use crate::support::trees::{bytes, wait_for_commits};

/// A tree of data, caches and notes.
fn plant(home: &Home) {
    for (path, length) in [
        ("a.h5", 700_000),
        ("cache/b.h5", 50_000),
        ("notes.txt", 100),
        ("run1/c.h5", 2_000_000),
        ("run1/cache/d.h5", 40_000),
        ("run1/notes.txt", 200),
        ("run2/notes.txt", 300),
    ] {
        home.write(&format!("tree/{path}"), bytes(length as u32, length));
    }
}

/// The files below a folder, by their names.
fn files(home: &Home, folder: &str) -> Vec<String> {
    fn look(folder: &std::path::Path, below: &str, all: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = format!("{below}{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() {
                look(&entry.path(), &format!("{path}/"), all);
            } else {
                all.push(path);
            }
        }
    }
    let mut all = Vec::new();
    look(&home.path(folder), "", &mut all);
    all.sort();
    all
}

fn fetched_bytes(ran: &crate::support::Ran) -> u64 {
    let events = String::from_utf8_lossy(&ran.stdout).into_owned();
    let end: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    end["fetched_bytes"].as_u64().unwrap()
}

#[test]
fn a_copy_that_was_cut_short_goes_on_with_other_patterns() {
    let home = Home::new();
    plant(&home);
    home.write("tree/run3/wide.h5", bytes(9, 40 << 20));
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let args = ["cp", "--quiet", "--limit-rate", "2M", &server.url, "copy"];
    let child = home.swath(args).start();
    home.wait_for_bytes("copy.swath.part/run3/wide.h5", 1 << 20);
    wait_for_commits(&home, "copy.swath");
    child.signal(libc::SIGKILL);
    child.wait();
    assert!(!home.exists("copy"));
    let ran = home.run(["cp", "--json", &server.url, "copy", "--include", "run3/*"]);
    ran.code_is(0);
    assert_eq!(files(&home, "copy"), ["run3/wide.h5"]);
    assert_eq!(home.read("copy/run3/wide.h5"), home.read("tree/run3/wide.h5"));
    assert!(fetched_bytes(&ran) < 40 << 20, "{}", fetched_bytes(&ran));
}

#[test]
fn what_is_no_pattern_is_said_at_once() {
    let home = Home::new();
    for (args, words) in [
        (["--exclude", "a["], "'a[' is not a valid pattern"),
        (["--include", "!a"], "has to be written"),
        (["--exclude", "*"], "leaves nothing"),
    ] {
        let ran = home.run(["cp", "https://host.invalid/", "copy"].iter().chain(&args));
        ran.code_is(2).says(&[words]);
    }
}
