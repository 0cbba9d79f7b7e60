//! `swath cp --dry-run`: what would be done, in lines for people and for programs, and what it
//! comes to.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::net_events::fit;
use crate::support::Home;
use crate::support::ways::Way;
use serde_json::{Value, json};

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
            fit(ran.code_is(0));
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
            ran.code_is(0).says(&["nothing matches"]).never_says(&[", verified by"]);
        }
    }
}

/// The last event, and all that is said to people.
fn again(way: &Way, home: &Home, options: &[&str]) -> (Value, String) {
    let told = way.sync(home, options).code_is(0).stderr.clone();
    assert!(!told.contains("earlier run") && !told.contains("had not answered"), "{told}");
    // The same as for people, once more.
    let ran = way.sync(home, &[options, &["--json"]].concat());
    (serde_json::from_str(ran.code_is(0).out().lines().last().unwrap()).unwrap(), told)
}

#[test]
fn what_was_left_alone_is_not_said_to_be_verified() {
    // Of four bytes that were overwritten, with size and time kept, it was said that the group hash of
    // every block had verified them.
    for (way, home) in Way::all() {
        plan(&home);
        home.write("tree/big", vec![7; 1_500_000]);
        way.sync(&home, &[]).code_is(0).says(&["verified by the checksum of every block"]);
        let (end, told) = again(&way, &home, &[]);
        let by = "2 files are the same by size and time";
        assert!(told.contains(&format!("nothing to copy: {by}")), "{told}");
        assert!(!told.contains("verified"), "{told}");
        assert_eq!((&end["verified"], &end["verified_by"]), (&"none".into(), &by.into()));
        assert_eq!((&end["proved"], &end["kept_files"]), (&false.into(), &2.into()));
        assert_eq!((&end["fetched_bytes"], &end["resumed_bytes"]), (&0.into(), &0.into()));
        let (end, told) = again(&way, &home, &["--checksum"]);
        assert!(told.contains("nothing to copy: 2 files are the same by content"));
        assert_eq!(end["proved"], true);
        // A part comes.
        home.write("tree/new", vec![8; 300_000]);
        let ran = way.sync(&home, &[]);
        ran.code_is(0).never_says(&["earlier run"]).says(&[
            "verified by the checksum of every block; 2 files were the same by size and time",
            "in files that already existed",
        ]);
    }
}

#[test]
fn a_plan_that_cannot_be_carried_out_or_told_is_none() {
    // It ended with 0 where the copy itself was refused, and where half of it could not be written.
    for (way, home) in Way::all() {
        plan(&home);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        for more in [&["--dry-run"][..], &["--dry-run", "--json"]] {
            let mut swath = home.swath(way.command(&home, more));
            swath.command().stdout(full.try_clone().unwrap());
            let ran = swath.run();
            ran.code_is(5);
            let words = ran.stderr.matches("cannot write to standard output").count();
            assert_eq!(words, 1, "{ran}");
        }
        std::os::unix::fs::symlink("nowhere", home.path("copy")).unwrap();
        for more in [&["--dry-run"][..], &[]] {
            let ran = way.sync(&home, more);
            ran.code_is(5);
            if !way.sends() {
                ran.says(&["a link that leads to nothing"]);
            }
        }
    }
    let Some(home) = Home::of_nobody() else { return };
    plan(&home);
    fs::create_dir(home.path("closed")).unwrap();
    home.hand_over();
    fs::set_permissions(home.path("closed"), fs::Permissions::from_mode(0o555)).unwrap();
    for to in ["closed", "closed/none/below"] {
        let ran = home.run(["cp", "-n", "tree/", to]);
        ran.code_is(5).says(&["Permission denied"]);
    }
}

#[test]
fn a_single_file_that_would_be_refused_is_refused_in_a_plan_too() {
    // Both ended with 2: as if the command line were wrong.
    let home = Home::new();
    home.write("file", "x\n");
    home.write("tree/file", "x\n");
    let server = home.serve(&["tree", "--plain"]);
    home.write("token", server.token());
    let (here, none) = (server.at(""), server.at("none"));
    let of = |words: &[&str], more: &[&str]| {
        let token = ["--bearer-file", "token"];
        let ran = home.run(["cp"].iter().chain(words).chain(&token).chain(more));
        (
            ran.code(),
            ran.stderr
                .lines()
                .skip_while(|it| !it.starts_with("error: "))
                .map(str::to_owned)
                .collect(),
        )
    };
    for (words, code) in [(["file", &*here], 5), ([&*none, "into/"], 7)] {
        let real: (i32, Vec<String>) = of(&words, &[]);
        let dry = of(&words, &["--dry-run"]);
        assert!((real.0, dry.0) == (code, code) && !real.1.is_empty(), "{real:?}: {dry:?}");
        // It may tell more of what the server said.
        assert!(dry.1.iter().zip(&real.1).all(|(dry, real)| dry.starts_with(real)), "{dry:?}");
    }
    let (code, said) = of(&[&server.at("file"), "into/"], &["--dry-run", "--delete"]);
    assert!(code == 2 && said[0].contains("are for folders"), "{said:?}");
}
