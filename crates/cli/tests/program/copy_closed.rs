//! `swath cp` into a folder in which some belong to somebody else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::Home;
use crate::support::trees::{assert_same, bytes, gives_away};
use crate::support::ways::Way;

fn chmod(home: &Home, path: &str, mode: u32) {
    fs::set_permissions(home.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

/// Bytes that came, by the last event.
fn fetched_bytes(ran: &crate::support::Ran) -> u64 {
    let out = ran.code_is(0).out();
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    last["fetched_bytes"].as_u64().unwrap_or_else(|| panic!("{last}"))
}

#[test]
fn a_folder_of_somebody_elses_is_told_of_before_anything_is_fetched() {
    // All was fetched and nothing had its name in the end, again and again; what had come could not
    // be had in any way.
    for (way, home) in Way::all_of_nobody() {
        for name in ["d0/f0", "d1/f1", "d2/same", "zz"] {
            home.write(&format!("tree/{name}"), format!("{name}\n"));
        }
        home.write("copy/d1/old", "x\n");
        for name in ["copy/d0", "copy/d2"] {
            fs::create_dir(home.path(name)).unwrap();
        }
        home.write("copy/d2/same", "d2/same\n");
        let time = home.path("tree/d2/same").metadata().unwrap().modified().unwrap();
        let same = fs::File::options().write(true).open(home.path("copy/d2/same")).unwrap();
        same.set_modified(time).unwrap();
        home.hand_over();
        chmod(&home, "copy/d1", 0o555);
        // Nothing new comes into the second one.
        if !["copy/d0", "copy/d2"].iter().all(|path| gives_away(&home.path(path))) {
            println!("skipped: nobody else is there to own anything");
            return;
        }
        for options in [&["--dry-run"][..], &[], &["--no-resume"]] {
            let ran = way.sync(&home, options);
            ran.code_is(5).says(&[": permission denied: d0; nothing was changed: ask for write permission, or skip them, for example with --exclude '/", "; nothing was changed: ask for write permission, or skip them, for example with --exclude '/d0'"]);
            assert_eq!(ran.out(), "");
            assert_eq!(home.names_in("copy"), ["d0", "d1", "d2"], "{ran}");
        }
        way.sync(&home, &["--compare", "none", "-n"])
            .code_is(5)
            .says(&["permission denied: d0, d2; "]);
        way.sync(&home, &["--exclude", "/d0", "--dry-run"]).code_is(0);
        way.sync(&home, &["--exclude", "/d0"]).code_is(0);
        assert_eq!(home.names_in("copy/d1"), ["f1", "old"]);
        assert!(home.exists("copy/zz"));
    }
}

#[test]
fn what_has_come_is_had_when_a_folder_was_closed_meanwhile() {
    for (way, home) in Way::all_of_nobody() {
        home.write("tree/d0/sub/f0", bytes(1, 300_000));
        home.write("tree/wide.bin", bytes(5, 12 << 20));
        let end = |options: &[&str]| {
            let _ = fs::remove_dir_all(home.path("copy"));
            fs::create_dir_all(home.path("copy/d0")).unwrap();
            home.hand_over();
            let copying = way.start_and_hold(&home, 2 << 20);
            home.wait_for_bytes("copy/.swath-stage.swath.part/wide.bin", 1 << 18);
            let is_closed = gives_away(&home.path("copy/d0"));
            way.goes_on();
            let ran = copying.wait();
            if is_closed {
                ran.code_is(5).says(&["Permission denied"]);
                assert!(!home.exists("copy/wide.bin"));
                // What would be refused in the end loses nothing.
                way.sync(&home, &[]).code_is(5).says(&[": permission denied: d0; nothing was changed: ask for write permission, or skip them, for example with --exclude '/"]);
                home.hand_over();
                if !options.is_empty() {
                    gives_away(&home.path("copy/d0"));
                }
                let ran = way.sync(&home, &[options, &["--json"]].concat());
                assert_eq!(fetched_bytes(&ran), 0, "{ran}");
            }
            is_closed
        };
        if !end(&[]) {
            println!("skipped: nobody else is there to own anything");
            return;
        }
        assert_same(&home.path("tree"), &home.path("copy"));
        end(&["--exclude", "/d0"]);
        assert_eq!(home.read("copy/wide.bin"), home.read("tree/wide.bin"));
        assert_eq!(home.names_in("copy/d0"), [""; 0]);
        assert_eq!(home.names_in("copy"), ["d0", "wide.bin"]);
    }
}
