//! What `--delete` never removes: what the source had when the copy began, whatever it lists later in
//! the same run, and everything, where the source holds no file.

use std::fs;

use crate::net_events::fit;
use crate::support::serve::{Served, reserved_address};
use crate::support::trees::{assert_same, bytes};
use crate::support::ways::Way;
use crate::support::{Home, Ran};

/// A tree that was copied before and is wider now, and something at the destination that it lacks.
fn home() -> Home {
    let home = Home::new();
    for name in ["kept", "sub/one", "sub/two", "turns/inner"] {
        home.write(&format!("tree/{name}"), format!("{name}\n"));
    }
    home.run(["cp", "tree/", "copy/"]).code_is(0);
    home.write("tree/wide.bin", bytes(5, 12 << 20));
    home.write("copy/surplus", "not in the tree\n");
    home.write("token", "secret");
    home.write("tokens", "secret write\n");
    home
}

/// What becomes of the source in the middle.
fn empties(home: &Home) {
    // Whoever has the folder open already sees it empty too.
    for name in home.names_in("tree") {
        let path = home.path("tree").join(name);
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.unwrap();
    }
}

fn thins(home: &Home) {
    fs::remove_dir_all(home.path("tree/sub")).unwrap();
}

fn turns(home: &Home) {
    fs::remove_dir_all(home.path("tree/turns")).unwrap();
    home.write("tree/turns", "a file now\n");
}

const SERVES: [&str; 4] = ["--plain", "--token-file", "tokens", "--write"];

fn serve(home: &Home, address: &str, folder: &str) -> Served {
    home.serve_at(address, &[&[folder], &SERVES[..]].concat())
}

/// One from and to which all would take half a minute: time for a server to come back.
fn serve_slowly(home: &Home, folder: &str) -> Served {
    let slowly = ["--limit-rate", "400k"];
    home.serve_at(&reserved_address(), &[&[folder], &SERVES[..], &slowly].concat())
}

/// Copy with `--delete`, and have this happen to the source while the wide file comes.
fn meanwhile(way: &str, home: &Home, happens: fn(&Home)) -> Ran {
    println!("{way}");
    let here = |name: &str| format!("{}/", home.path(name).display());
    let (first, second) = match way {
        "a server that came back" => (Some(serve_slowly(home, "tree")), None),
        "a replica that came back" => {
            fs::create_dir(home.path("other")).unwrap();
            let cp = ["-a", "tree/.", "other/"];
            let mut copies = std::process::Command::new("cp");
            assert!(copies.args(cp).current_dir(home.work()).status().unwrap().success());
            (Some(serve_slowly(home, "tree")), Some(serve_slowly(home, "other")))
        }
        "a receiver that came back" => (Some(serve_slowly(home, ".")), None),
        _ => (None, None),
    };
    let address = first.as_ref().map(|server| server.address().to_string());
    let mut places = match (way, &first) {
        ("a receiver that came back", Some(server)) => vec![here("tree"), server.at("copy/")],
        (_, Some(server)) => vec![server.url.clone(), here("copy")],
        (_, None) => vec![here("tree"), here("copy")],
    };
    if let Some(second) = &second {
        places.insert(1, second.url.clone());
    }
    // Slow enough that the middle is not missed on a loaded machine.
    let rate = if first.is_some() { "1000M" } else { "2M" };
    let args = ["--delete", "--limit-rate", rate, "--bearer-file", "token"].map(str::to_owned);
    let copying = home.swath([vec!["cp".to_owned()], places, args.to_vec()].concat()).start();
    home.wait_for_bytes("copy/.swath-stage.swath.part/wide.bin", 1 << 20);
    drop(first);
    happens(home);
    let served = if way == "a receiver that came back" { "." } else { "tree" };
    let _again = address.map(|address| serve(home, &address, served));
    copying.wait()
}

const WAYS: [&str; 4] = [
    "a server that came back",
    "a replica that came back",
    "a receiver that came back",
    "a folder here",
];

#[test]
fn a_source_that_loses_all_in_the_middle_takes_nothing_with_it() {
    // The index of the second look took the place of the one that the copy began with: "nothing is
    // in it, 1,643 removed", and 0. A disk that is mounted late is enough. What has come stays too.
    for way in WAYS {
        let home = home();
        let before = home.names_in("copy");
        let ran = meanwhile(way, &home, empties);
        ran.never_says(&["removed,", "1 removed"]);
        // Of what a receiver had when it was killed nothing may be of use.
        if way == "a receiver that came back" && ran.status.code() == Some(8) {
            ran.says(&[
                "6 entries kept: the source now lists fewer files than when this copy began",
            ]);
        } else {
            ran.code_is(3).says(&["copy", "none of its files is in this one; the copy is kept"]);
        }
        let after: Vec<_> = home.names_in("copy");
        let after: Vec<_> = after.into_iter().filter(|name| !name.contains(".swath")).collect();
        assert_eq!(after, before, "{ran}");
        assert_eq!(home.names_in("copy/sub"), ["one", "two"]);
    }
}

#[test]
fn a_source_that_loses_something_in_the_middle_keeps_to_its_plan() {
    for way in WAYS {
        let home = home();
        // Nothing else leads to a second look here.
        let happens: fn(&Home) = |home| {
            thins(home);
            home.write("tree/wide.bin", bytes(6, 3 << 20));
        };
        let ran = meanwhile(way, &home, happens);
        ran.code_is(8).says(&["3 entries kept", "1 removed", "the same command again"]);
        if way == "a folder here" {
            ran.says(&["not at the source any more, and so not in the copy: "]);
        }
        assert!(!home.exists("copy/surplus"), "{ran}");
        assert_eq!(home.names_in("copy/sub"), ["one", "two"]);
        let ran = home.run(["cp", "tree/", "copy/", "--delete"]);
        ran.code_is(0).says(&["3 removed"]);
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}

#[test]
fn a_folder_that_turns_into_a_file_in_the_middle_stays_with_all_that_lies_in_it() {
    for way in WAYS {
        let home = home();
        let happens: fn(&Home) = |home| {
            turns(home);
            home.write("tree/wide.bin", bytes(6, 3 << 20));
        };
        let ran = meanwhile(way, &home, happens);
        ran.code_is(3).says(&["turns changed its kind at the source"]);
        assert_eq!(home.names_in("copy/turns"), ["inner"]);
        assert!(home.exists("copy/surplus"), "{ran}");
        home.run(["cp", "tree/", "copy/", "--delete"]).code_is(0);
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}

#[test]
fn a_source_without_a_file_empties_nothing_unless_told_to() {
    for (way, home) in Way::all() {
        home.write("tree/sub/file", "file\n");
        way.sync(&home, &[]).code_is(0);
        fs::remove_file(home.path("tree/sub/file")).unwrap();
        let refused =
            ": nothing was removed: the source has no file, and --delete would remove 1 entry";
        let ran = way.sync(&home, &["--delete", "--dry-run"]);
        ran.code_is(8).says(&[refused, "--allow-empty"]);
        assert_eq!(ran.out(), "");
        way.sync(&home, &["--delete"]).code_is(8).says(&[refused, "--allow-empty"]);
        assert_eq!(home.names_in("copy/sub"), ["file"]);
        let ran = way.sync(&home, &["--delete", "--json"]);
        let told = "\"entries\":1,\"reason\":\"empty\"}";
        let out = ran.code_is(8).out();
        assert!(out.contains("{\"event\":\"not_removed\"") && out.contains(told), "{ran}");
        let ran = way.sync(&home, &["--delete", "--include", "*.none"]);
        // What is left out is not removed anyway.
        ran.code_is(0).says(&["nothing matches"]);
        let ran = way.sync(&home, &["--delete", "--include", "f*"]);
        // The folder holds nothing that takes part there.
        ran.code_is(8)
            .says(&["no file of the source matches, and --delete would remove 2 entries"]);
        assert_eq!(way.plan(&home, &["--delete", "--allow-empty"]), ["remove sub/file"]);
        way.sync(&home, &["--delete", "--allow-empty"]).code_is(0).says(&["1 removed"]);
        assert_same(&home.path("tree"), &home.path("copy"));
        // Where nothing would be removed there is nothing to refuse.
        way.sync(&home, &["--delete"]).code_is(0);
    }
    Home::new().run(["cp", "a/", "b/", "--allow-empty"]).code_is(2).says(&["--delete"]);
}

#[test]
fn what_may_not_be_removed_is_named_and_the_rest_goes() {
    // The first that would not go ended it with "Permission denied" and no name, and everything
    // before it stayed; a dry run promised all of it.
    for (way, home) in Way::all_of_nobody() {
        for name in ["aa", "mine/old", "theirs/deep/one", "theirs/two", "zz"] {
            home.write(&format!("copy/{name}"), "surplus\n");
        }
        home.write("tree/mine/new", "new\n");
        fs::create_dir(home.path("tree/theirs")).unwrap();
        home.hand_over();
        chmod(&home, "tree/mine", 0o555);
        chmod(&home, "copy/mine", 0o555);
        let theirs = home.path("copy/theirs");
        if !crate::support::trees::gives_away(&theirs) {
            println!("skipped: nobody else is there to own anything");
            continue;
        }
        let named = [
            "not removed: theirs/deep/one: Permission denied",
            "not removed: theirs/two: Permission denied",
            "3 entries c",
        ];
        let dry = way.sync(&home, &["--delete", "--dry-run"]);
        dry.code_is(8).says(&named);
        let ran = way.sync(&home, &["--delete"]);
        ran.code_is(8)
            .says(&named)
            .says(&["could not be removed; everything else is done", "3 removed"]);
        assert_eq!(home.names_in("copy"), ["mine", "theirs"], "{ran}");
        assert_eq!(home.names_in("copy/mine"), ["new"]);
        assert_eq!(home.names_in("copy/theirs"), ["deep", "two"]);
        let ran = way.sync(&home, &["--delete", "--json"]);
        assert_eq!(fit(ran.code_is(8)).last().map(String::as_str), Some("not_removed"), "{ran}");
        let out = ran.out();
        let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert_eq!(
            (&last["event"], &last["entries"]),
            (&"not_removed".into(), &3.into()),
            "{last}"
        );
        assert_eq!(last["first"][1]["path"], "theirs/two", "{last}");
        chmod(&home, "tree/mine", 0o755);
        chmod(&home, "copy/mine", 0o755);
    }
}

fn chmod(home: &Home, path: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(home.path(path), fs::Permissions::from_mode(mode)).unwrap();
}
