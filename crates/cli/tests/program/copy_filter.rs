//! `swath cp --include … --exclude …`: a part of a tree, in both directions.

use std::fs;

use crate::support::Home;
use crate::support::trees::{assert_same, bytes};

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
fn only_what_takes_part_is_fetched() {
    let home = Home::new();
    plant(&home);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let ran =
        home.run(["cp", "--json", &server.url, "copy", "--include", "*.h5", "--exclude", "cache/"]);
    ran.code_is(0);
    assert_eq!(files(&home, "copy"), ["a.h5", "run1/c.h5"]);
    assert!(!home.exists("copy/run2"), "a folder of which nothing takes part is not made");
    let fetched = fetched_bytes(&ran);
    assert!((2_700_000..2_702_000).contains(&fetched), "not a byte of others: {fetched}");
    // With other patterns only the rest comes.
    let ran = home.run(["cp", "--json", &server.url, "copy", "--exclude", "/cache"]);
    ran.code_is(0);
    assert!(fetched_bytes(&ran) < 700_000, "{}", fetched_bytes(&ran));
    home.run(["cp", &server.url, "copy"]).code_is(0);
    assert_same(&home.path("tree"), &home.path("copy"));
}

#[test]
fn what_is_excluded_is_not_removed() {
    let home = Home::new();
    plant(&home);
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    for path in ["copy/own.log", "copy/old/deep/own.log", "copy/old/surplus", "copy/gone/surplus"] {
        home.write(path, "x\n");
    }
    let args = ["cp", "--delete", "--exclude", "*.log", "--exclude", "cache", &server.url, "copy"];
    let planned = home.run(args.iter().copied().chain(["-n"]));
    planned.code_is(0);
    let planned = String::from_utf8_lossy(&planned.stdout).into_owned();
    let removed: Vec<&str> = planned
        .lines()
        .filter(|line| line.starts_with("remove"))
        .map(|line| line.split_whitespace().last().unwrap())
        .collect();
    assert_eq!(removed, ["gone", "gone/surplus", "old/surplus"]);
    assert!(!planned.contains("cache"), "{planned}");
    home.run(args).code_is(0).says(&["3 removed"]);
    assert!(home.exists("copy/own.log") && home.exists("copy/old/deep/own.log"));
    assert!(!home.exists("copy/old/surplus") && !home.exists("copy/gone"));
    assert!(!home.exists("copy/cache") && home.exists("copy/run1/notes.txt"));
}

#[test]
fn only_what_takes_part_is_sent() {
    let home = Home::new();
    plant(&home);
    fs::create_dir_all(home.path("store/new")).unwrap();
    home.write("store/new/keep/own.h5", "stays\n");
    home.write("store/new/old.txt", "goes\n");
    let server = home.serve(&["store", "--write", "--plain"]);
    home.write("token", server.token());
    let to = server.at("new/");
    let args =
        ["cp", "tree/", &to, "--bearer-file", "token", "--exclude", "*.h5", "--delete", "--json"];
    let ran = home.run(args);
    ran.code_is(0);
    let expected = ["keep/own.h5", "notes.txt", "run1/notes.txt", "run2/notes.txt"];
    assert_eq!(files(&home, "store/new"), expected);
    assert!(fetched_bytes(&ran) < 5000);
}

#[test]
fn a_copy_that_was_cut_short_goes_on_with_other_patterns() {
    let home = Home::new();
    plant(&home);
    home.write("tree/run3/wide.h5", bytes(9, 40 << 20));
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    let mut child = home
        .swath(["cp", "--quiet", "--limit-rate", "10M", &server.url, "copy"])
        .command()
        .spawn()
        .unwrap();
    home.wait_for_bytes("copy.swath.part/run3/wide.h5", 6 << 20);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!home.exists("copy"));
    let ran = home.run(["cp", "--json", &server.url, "copy", "--include", "run3/*"]);
    ran.code_is(0);
    assert_eq!(files(&home, "copy"), ["run3/wide.h5"]);
    assert_eq!(home.read("copy/run3/wide.h5"), home.read("tree/run3/wide.h5"));
    assert!(fetched_bytes(&ran) < 38 << 20, "{}", fetched_bytes(&ran));
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
