//! What can be wrong with the file: each case has its own warning, once, and what is learnt in
//! the run can be used all the same.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::*;
use rusqlite::Connection;
use swath_state::{Forget, ForgetError, State, Warning};

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
        let (state, warning) = open_any(&path);
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
    let (state, warning) = open_any(&path);
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
            let (state, warning) = open_any(&path);
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
    let (state, warning) = open_any(&path);
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
        let (state, warning) = open_any(&path);
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
    // None of these waits for the file.
    (0..1000).for_each(|_| works(&state));
    drop(child.stdin.take());
    child.wait().unwrap();
    wait_for(|| known(&state).len() == 201);
    wait_for(|| state.flush(LIMIT));
    assert!(state.warnings().iter().all(|warning| is_slow && *warning == locked));

    // While it is used: nothing is lost, and it is told once for all of the run.
    let (second, warning) = State::open(&path);
    assert!(matches!(warning, None | Some(Warning::Slow { .. })), "{warning:?}");
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
        let (state, warning) = open_any(path);
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
