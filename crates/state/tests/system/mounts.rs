//! Full disks and places where nothing can be written, in a process and with mounts of its own. Skipped
//! where nothing can be mounted.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use swath_state::{Forget, ForgetError, Warning};

/// In a child of its own, with a file system of its own.
#[test]
fn a_full_disk_is_told_once_and_what_was_learnt_is_written_when_there_is_room() {
    let folder = folder();
    let shell = "mount -t tmpfs -o size=600k tmpfs \"$SWATH_PLACE\"";
    in_a_place(shell, folder.path(), "mounts::child_on_a_full_disk");
}

#[test]
#[ignore = "run by its parent test"]
fn child_on_a_full_disk() {
    let (path, filler) = (place().join("state.db"), place().join("filler"));
    fs::create_dir(place().join("swath")).unwrap();
    // Full from the beginning: not even an empty one can be made.
    let mut size = 700_000;
    while fs::write(&filler, vec![1; size]).is_err() {
        size -= 100;
    }
    let fill = || {
        while fs::OpenOptions::new()
            .append(true)
            .open(&filler)
            .is_ok_and(|mut it| std::io::Write::write_all(&mut it, &[1; 512]).is_ok())
        {}
    };
    fill();
    let (state, warning) = open_any(&path);
    assert_eq!(warning, Some(Warning::Full { path: path.clone() }));
    works(&state);
    assert!(!state.flush(LIMIT));
    fs::remove_file(&filler).unwrap();
    wait_for(|| state.flush(LIMIT));

    // Full while it is used.
    fs::write(&filler, "").unwrap();
    fill();
    let edges = |rate: f64| (0..900).map(|n| edge(&format!("site{n}"), rate)).collect();
    state.note(edges(1.0));
    assert!(!state.flush(LIMIT));
    assert_eq!((known(&state).len(), state.warnings()), (901, vec![]));
    fs::remove_file(&filler).unwrap();
    assert_eq!(state.forget(Forget::All).unwrap().edges.len(), 901);
    drop(state);
    assert_eq!(open(&path).edges().len(), 0);
}

#[test]
fn where_nothing_can_be_written_it_is_read_all_the_same() {
    let folder = folder();
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    filled(&there.join("state.db"));
    for shell in [
        // What is to be copied lies under the new one, where only who is there already finds it. It
        // was not copied once, and the case counted as skipped.
        "cd \"$SWATH_FROM\"; mount -t tmpfs tmpfs \"$SWATH_PLACE\" || exit 77; set -e; mkdir \"$SWATH_PLACE/there\"; cp state.db \"$SWATH_PLACE/there\"; mount -o remount,ro tmpfs \"$SWATH_PLACE\"",
        // The file may be written, the folder not.
        "mount --bind \"$SWATH_PLACE\" \"$SWATH_PLACE\" && mount -o remount,ro,bind \"$SWATH_PLACE\"",
    ] {
        in_a_place(shell, folder.path(), "mounts::child_that_may_only_read");
    }
}

#[test]
#[ignore = "run by its parent test"]
fn child_that_may_only_read() {
    let path = place().join("there/state.db");
    let (state, warning) = open_any(&path);
    assert!(matches!(warning, Some(Warning::Unwritable { .. })), "{warning:?}");
    assert_eq!(known(&state).len(), 200);
    works(&state);
    assert!(!state.flush(LIMIT));
    assert!(matches!(state.forget(Forget::All), Err(ForgetError::File(_))));
    let (state, warning) = open_any(&place().join("none/state.db"));
    assert!(matches!(warning, Some(Warning::Unwritable { .. })), "{warning:?}");
    works(&state);
}

/// Run a test of this file where the shell's command has prepared `place`.
fn in_a_place(shell: &str, place: &Path, test: &str) {
    let script = format!("{shell} || exit 77; exec \"$@\"");
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env("SWATH_PLACE", place)
        .env("SWATH_FROM", place.join("there"))
        .output();
    let Ok(output) = output else {
        return println!("skipped: unshare is not there");
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || text.contains("unshare:") {
        return println!("skipped: no file system can be mounted here");
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
