//! What can be wrong with the file: each case has its own warning, once, and what is learnt in
//! the run can be used all the same.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::common::*;
use rusqlite::Connection;
use swath_state::{Forget, ForgetError, State, Warning};

/// It works for this run, whatever is wrong with the file.
#[track_caller]
fn works(state: &State) {
    state.note(vec![edge("learnt", 9.0)]);
    assert!(known(state).contains(&pair("learnt", 9)));
}

/// A file with something in it, and nobody has it open.
fn filled(path: &Path) -> Vec<u8> {
    let edges = (0..200).map(|n| edge(&format!("site{n}.of-a-long-name.example:443"), 1000.0));
    write(&open(path), edges.collect());
    fs::read(path).unwrap()
}

#[test]
fn a_damaged_file_is_set_aside_and_named_and_a_new_one_begun() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = folder();
    let path = folder.path().join("state.db");
    let whole = filled(&path);
    let mut set_aside = 0;
    for round in 0..120 {
        let mut bytes = whole.clone();
        match round % 4 {
            // Nothing of it is left, or other things are there.
            0 => bytes = (0..random.usize(1..20_000)).map(|_| random.u8(..)).collect(),
            1 => bytes.truncate(random.usize(1..bytes.len())),
            2 => (0..200).for_each(|_| bytes[random.usize(..whole.len())] = random.u8(..)),
            _ => {
                let at = random.usize(..whole.len() / 512) * 512;
                bytes[at..at + 512].fill(0);
            }
        }
        fs::write(&path, &bytes).unwrap();
        let (state, warning) = State::open(&path);
        match warning {
            Some(Warning::Damaged { path: named, aside }) => {
                set_aside += 1;
                assert_eq!(named, path);
                let name = aside.file_name().unwrap().to_str().unwrap().to_owned();
                assert!(name.starts_with("state.db.damaged-20"), "{name}");
                assert_eq!(fs::read(&aside).unwrap(), bytes, "round {round}, seed {seed}");
                assert_eq!(state.edges(), [], "round {round}, seed {seed}");
                fs::remove_file(aside).unwrap();
            }
            // A changed byte of a number or a name is seen by nobody, or it reads as another
            // program's or a newer one's mark; neither may be touched.
            None | Some(Warning::Foreign { .. } | Warning::Newer { .. }) if round % 4 > 1 => {}
            // So are the last row's last bytes: what lacks of the last page is read as zeros.
            None if round % 4 == 1 && bytes.len() > whole.len() - 100 => {}
            other => panic!("round {round}, seed {seed}, {} bytes: {other:?}", bytes.len()),
        }
        works(&state);
        drop(state);
        for name in names(folder.path()) {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
    }
    assert!(set_aside > 60, "{set_aside}");
}

/// Where a log is written ahead, whoever has the file open may hold enough of it in memory to go on
/// for a while; the next run sees it at the latest.
#[test]
fn a_file_that_is_damaged_while_it_is_used_fails_nobody() {
    let folder = folder();
    let path = folder.path().join("state.db");
    let size = filled(&path).len();
    let state = open(&path);
    fs::write(&path, vec![0xA5; size]).unwrap();
    works(&state);
    state.flush(LIMIT);
    let mut told = state.warnings();
    drop(state);
    let (state, warning) = State::open(&path);
    told.extend(warning);
    assert!(matches!(&told[..], [Warning::Damaged { .. }]), "{told:?}");
    works(&state);
    assert!(state.flush(LIMIT));
}

/// Several begin at the same time and find it damaged: one of them sets it aside, and none takes
/// away what another has begun.
#[test]
fn only_one_of_many_sets_a_damaged_file_aside() {
    for _ in 0..10 {
        let folder = folder();
        let path = folder.path().join("state.db");
        fs::write(&path, "no database").unwrap();
        let at_once = std::sync::Barrier::new(6);
        let one = |n: usize| {
            at_once.wait();
            let (state, warning) = State::open(&path);
            assert!(matches!(warning, None | Some(Warning::Damaged { .. })), "{warning:?}");
            write(&state, vec![edge(&format!("site{n}"), 1.0)]);
            usize::from(warning.is_some())
        };
        let told: usize = std::thread::scope(|scope| {
            let started: Vec<_> = (0..6).map(|n| scope.spawn(move || one(n))).collect();
            started.into_iter().map(|it| it.join().unwrap()).sum()
        });
        assert_eq!(told, 1);
        assert_eq!(known(&open(&path)).len(), 6);
        assert_eq!(names(folder.path()).len(), 2);
    }
}

#[test]
fn a_file_of_a_newer_version_is_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("state.db");
    filled(&path);
    let file = Connection::open(&path).unwrap();
    file.execute_batch("PRAGMA user_version = 7; ALTER TABLE edges RENAME TO lanes").unwrap();
    drop(file);
    let before = (fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
    let (state, warning) = State::open(&path);
    let wanted = Warning::Newer { path: path.clone(), version: 7, known: 1 };
    assert_eq!(warning, Some(wanted.clone()));
    works(&state);
    assert!(!state.flush(LIMIT));
    assert_eq!(state.forget(Forget::All), Err(ForgetError::File(wanted)));
    assert_eq!(state.warnings(), []);
    drop(state);
    assert_eq!(before, (fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap()));
    assert_eq!(names(folder.path()), ["state.db"]);
}

/// It may become one while we have it open.
#[test]
fn a_file_that_a_newer_version_takes_over_is_left_to_it() {
    let folder = folder();
    let path = folder.path().join("state.db");
    filled(&path);
    let state = open(&path);
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 2").unwrap();
    state.note(vec![edge("learnt", 9.0)]);
    let mut told = Vec::new();
    wait_for(|| {
        told.extend(state.warnings());
        !told.is_empty()
    });
    assert!(matches!(&told[..], [Warning::Newer { version: 2, .. }]), "{told:?}");
    drop(state);
    let count = "SELECT count(*) FROM edges";
    let file = Connection::open(&path).unwrap();
    assert_eq!(file.query_row(count, [], |row| row.get::<_, u32>(0)).unwrap(), 200);
}

#[test]
fn the_database_of_another_program_is_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("places.sqlite");
    for mark in ["", "PRAGMA application_id = 5;"] {
        let tables = format!("{mark} CREATE TABLE IF NOT EXISTS edges (here TEXT)");
        Connection::open(&path).unwrap().execute_batch(&tables).unwrap();
        let before = fs::read(&path).unwrap();
        let (state, warning) = State::open(&path);
        assert_eq!(warning, Some(Warning::Foreign { path: path.clone() }));
        works(&state);
        drop(state);
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn a_file_that_another_process_locks_is_waited_for_and_holds_up_nothing() {
    let folder = folder();
    let path = folder.path().join("state.db");
    filled(&path);
    let open_lock = |mode: &str| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "bad_luck::child_that_locks", "--nocapture"]);
        child
            .env("SWATH_PLACE", &path)
            .env("SWATH_MODE", mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let child = child.spawn().unwrap();
        wait_for(|| folder.path().join("locked").exists());
        fs::remove_file(folder.path().join("locked")).unwrap();
        child
    };
    let locked = Warning::Locked { path: path.clone() };

    // From the beginning, so that nobody may read either.
    let mut child = open_lock("PRAGMA locking_mode = EXCLUSIVE");
    let (state, warning) = State::open(&path);
    // On a busy machine that may be all that is known by then.
    let is_slow = matches!(warning, Some(Warning::Slow { .. }));
    assert!(is_slow || warning == Some(locked.clone()), "{warning:?}");
    works(&state);
    assert!(!state.flush(LIMIT));
    let began = Instant::now();
    (0..1000).for_each(|_| works(&state));
    println!("1000 notes and questions beside a lock took {:?}", began.elapsed());
    drop(child.stdin.take());
    child.wait().unwrap();
    wait_for(|| known(&state).len() == 201);
    wait_for(|| state.flush(LIMIT));
    assert!(state.warnings().iter().all(|warning| is_slow && *warning == locked));

    // While it is used: nothing is lost, and it is told once for all of the run.
    let second = open(&path);
    let mut child = open_lock("");
    second.note(vec![edge("later", 3.0)]);
    let mut told = Vec::new();
    wait_for(|| {
        told.extend(second.warnings());
        !told.is_empty()
    });
    assert_eq!(told, [locked]);
    drop(child.stdin.take());
    child.wait().unwrap();
    wait_for(|| known(&state).contains(&pair("later", 3)));
    assert_eq!(second.warnings(), []);
}

#[test]
#[ignore = "run by its parent test"]
fn child_that_locks() {
    let file = Connection::open(place()).unwrap();
    file.busy_timeout(LIMIT).unwrap();
    file.execute_batch(&std::env::var("SWATH_MODE").unwrap()).unwrap();
    file.execute_batch("BEGIN EXCLUSIVE").unwrap();
    fs::write(place().with_file_name("locked"), "").unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

#[test]
fn what_is_no_file_is_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("state.db");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("kept"), "").unwrap();
    let beneath_a_file = folder.path().join("file/state.db");
    fs::write(folder.path().join("file"), "a file").unwrap();
    for path in [&path, &beneath_a_file, Path::new("/dev/null"), Path::new("/proc/none/x.db")] {
        let (state, warning) = State::open(path);
        assert!(matches!(warning, Some(Warning::Unwritable { .. })), "{warning:?}");
        works(&state);
        assert!(!state.flush(LIMIT));
    }
    assert_eq!(names(&path), ["kept"]);
}

#[test]
fn a_file_that_is_taken_away_is_made_again() {
    let folder = folder();
    let path = folder.path().join("state.db");
    filled(&path);
    let state = open(&path);
    for name in names(folder.path()) {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    wait_for(|| path.exists());
    write(&state, vec![edge("learnt", 9.0)]);
    // Whoever takes the file away wants what it said forgotten.
    assert_eq!(known(&open(&path)), [pair("learnt", 9)]);
    assert_eq!(state.warnings(), []);
}

/// In a child of its own, with a file system of its own.
#[test]
fn a_full_disk_is_told_once_and_what_was_learnt_is_written_when_there_is_room() {
    let folder = folder();
    let shell = "mount -t tmpfs -o size=600k tmpfs \"$SWATH_PLACE\"";
    in_a_place(shell, folder.path(), "bad_luck::child_on_a_full_disk");
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
    let (state, warning) = State::open(&path);
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
        in_a_place(shell, folder.path(), "bad_luck::child_that_may_only_read");
    }
}

#[test]
#[ignore = "run by its parent test"]
fn child_that_may_only_read() {
    let path = place().join("there/state.db");
    let (state, warning) = State::open(&path);
    assert!(matches!(warning, Some(Warning::Unwritable { .. })), "{warning:?}");
    assert_eq!(known(&state).len(), 200);
    works(&state);
    assert!(!state.flush(LIMIT));
    assert!(matches!(state.forget(Forget::All), Err(ForgetError::File(_))));
    let (state, warning) = State::open(&place().join("none/state.db"));
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
