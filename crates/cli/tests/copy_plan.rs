//! `swath cp --dry-run`: what would be done, in lines for people and for programs, and what it
//! comes to.

mod support;

use std::fs;

use serde_json::{Value, json};
use support::Home;
use support::ways::Way;

fn plan(home: &Home) {
    home.write("tree/a/first", "alpha\n");
    fs::hard_link(home.path("tree/a/first"), home.path("tree/other")).unwrap();
}

#[test]
fn further_names_are_told_with_the_bytes_that_they_take_and_of_which_file_they_are() {
    // They were told as 0 B, and programs got the lines for people.
    for (way, home) in Way::all() {
        plan(&home);
        home.write("copy/old", "old\n");
        let lines = |more: &[&str]| -> Vec<Value> {
            let ran = way.sync(&home, &[&["--dry-run", "--json", "--delete"], more].concat());
            ran.code_is(0);
            ran.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let expected = |bytes: u64| {
            [
                json!({"event": "copy", "path": "a", "bytes": 0}),
                json!({"event": "copy", "path": "a/first", "bytes": 6}),
                json!({"event": "remove", "path": "old"}),
                json!({"event": "copy", "path": "other", "bytes": bytes, "same_as": "a/first"}),
                json!({"event": "planned", "copied": 3, "bytes": 6 + bytes, "removed": 1}),
            ]
        };
        assert_eq!(lines(&[]), expected(6), "{}", way.name);
        assert_eq!(lines(&["--preserve", "mode,times,links"]), expected(0), "{}", way.name);
        let ran = way.sync(&home, &["--dry-run", "--delete"]);
        ran.code_is(0).says(&["3 entries to copy, 12 B; 1 to remove"]);
        let last = "copy          6 B  other (another name of a/first)\n";
        assert!(ran.out().ends_with(last), "{ran}");
        assert!(home.exists("copy/old") && !home.exists("copy/a"));
        way.sync(&home, &["--delete"]).code_is(0);
        let nothing = [json!({"event": "planned", "copied": 0, "bytes": 0, "removed": 0})];
        assert_eq!(lines(&[]), nothing);
        way.sync(&home, &["--dry-run"]).code_is(0).says(&["nothing to do"]);
    }
}

#[test]
fn patterns_that_nothing_matches_are_told_of() {
    // It looked as if something had been copied and verified.
    for (way, home) in Way::all() {
        plan(&home);
        for more in [&[][..], &["--dry-run"]] {
            let ran = way.sync(&home, &[&["--include", "*.none"], more].concat());
            ran.code_is(0).says(&["nothing matches"]);
        }
    }
}
