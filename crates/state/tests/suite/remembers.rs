//! What is noted is known: at once, to other members, to other processes while they run, and to
//! the next run.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use crate::common::*;
use rusqlite::Connection;
use swath_state::{By, EdgeReading, Forget, Grade, HERE, Measured, NewsCursor, RelayNote, State};

#[test]
fn the_next_run_knows_what_this_one_learnt() {
    let folder = folder();
    let path = folder.path().join("a/b/state.db");
    let state = open(&path);
    assert_eq!(state.edges(), []);
    let told = EdgeReading {
        from: "origin:443".into(),
        to: "r1:443".into(),
        measured: Some(Measured {
            rate_bytes_per_s: 11.5e6,
            grade: Grade::AtLeast,
            age_s: 100.0,
            by: By::Relay("r1:443".into()),
        }),
        rtt_s: Some(0.048),
        is_used: true,
    };
    state.note(vec![told.clone(), edge("r1:443", 7.0)]);
    state.note_relay(RelayNote {
        url: "https://r1".into(),
        public_key: Some("key".into()),
        error: None,
    });
    // Nothing has to be flushed: the end does so.
    drop(state);

    let state = open(&path);
    let edges = state.edges();
    assert_eq!(rates(&edges), [pair("origin:443", 11_500_000), pair("r1:443", 7)]);
    let [first, second] = &edges[..] else { panic!() };
    let measured = first.measured.as_ref().unwrap();
    assert_eq!((measured.grade, &measured.by), (Grade::AtLeast, &By::Relay("r1:443".into())));
    assert!((100.0..160.0).contains(&measured.age_s), "{measured:?}");
    assert_eq!((first.rtt_s, first.to.as_str()), (Some(0.048), "r1:443"));
    assert!(first.used_age_s.is_some_and(|age_s| age_s < 60.0));
    assert_eq!((second.to.as_str(), second.used_age_s, second.rtt_s), (HERE, None, None));
    let relays = state.relays();
    assert_eq!((relays.len(), relays[0].public_key.as_deref()), (1, Some("key")));
    assert!(relays[0].seen_age_s.is_some_and(|age_s| age_s < 60.0));
    // It says whom one talks to, so nobody else may read it.
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    drop(state);
    assert_eq!(names(path.parent().unwrap()), ["state.db"]);
}

#[test]
fn members_of_one_process_hear_of_each_other_at_once() {
    let folder = folder();
    for state in [open(&folder.path().join("state.db")), State::none()] {
        let (mut mark, other, mut others) =
            (NewsCursor::default(), state.clone(), NewsCursor::default());
        assert!(state.changed_since(&mut mark).is_empty());
        other.note(vec![edge("r1:443", 5.0)]);
        assert_eq!(rates(&state.changed_since(&mut mark)), [pair("r1:443", 5)]);
        assert!(state.changed_since(&mut mark).is_empty());
        assert!(other.changed_since(&mut others).is_empty());
        assert_eq!(known(&other), [pair("r1:443", 5)]);
    }
}

#[test]
fn without_a_file_nothing_outlives_the_run() {
    let state = State::none();
    state.note(vec![edge("a", 1.0)]);
    assert!(!state.flush(LIMIT));
    assert!(state.forget(Forget::All).is_err());
    assert_eq!(known(&state), [pair("a", 1)]);
}

#[test]
fn what_is_forgotten_is_forgotten_everywhere() {
    let folder = folder();
    let path = folder.path().join("state.db");
    let (state, other) = (open(&path), open(&path));
    write(&state, vec![edge("r1:443", 1.0), edge("r2:443", 2.0), edge("r2:80", 3.0)]);
    state.note_relay(RelayNote { url: "https://r2".into(), ..RelayNote::default() });
    assert!(state.flush(LIMIT));
    wait_for(|| known(&other).len() == 3 && other.relays().len() == 1);
    let gone = state.forget(Forget::Sites(vec!["r2:443".into()])).unwrap();
    assert_eq!(gone.edges, [("r2:443".to_owned(), HERE.to_owned())]);
    assert_eq!(gone.relays, ["https://r2"]);
    assert_eq!(known(&state), [pair("r1:443", 1), pair("r2:80", 3)]);
    wait_for(|| known(&other) == known(&state) && other.relays().is_empty());
    // What was noted and not written yet is forgotten as well.
    state.note(vec![edge("r3:443", 4.0)]);
    assert_eq!(state.forget(Forget::All).unwrap().edges.len(), 3);
    assert_eq!(state.forget(Forget::All).unwrap().edges.len(), 0);
    drop((state, other));
    assert_eq!(known(&open(&path)), []);
}

/// Clocks are set back, and a file may come from a machine whose clock was wrong: an edge with a
/// time far ahead looked as if it had just been measured, until that time came.
#[test]
fn a_time_from_the_future_is_corrected_in_the_file_too() {
    let folder = folder();
    let path = folder.path().join("state.db");
    write(&open(&path), vec![edge("a", 1.0)]);
    let file = Connection::open(&path).unwrap();
    let day_ahead = "UPDATE edges SET measured_at_ms = measured_at_ms + 86400000";
    assert_eq!(file.execute(day_ahead, []).unwrap(), 1);
    let ahead_ms = || -> i64 {
        file.query_row(
            "SELECT measured_at_ms - CAST(unixepoch('subsec') * 1000 AS INTEGER) FROM edges",
            [],
            |row| row.get(0),
        )
        .unwrap()
    };
    // Whoever only looks may have the clock that is wrong, and changed the file all the same.
    let (looking, _) = State::look(&path);
    assert!(looking.edges()[0].measured.as_ref().unwrap().age_s < 60.0);
    drop(looking);
    assert!(ahead_ms() > 86_000_000);
    let state = open(&path);
    assert!(state.edges()[0].measured.as_ref().unwrap().age_s < 60.0);
    assert!(state.flush(LIMIT));
    assert!(ahead_ms() <= 0, "{}", ahead_ms());
    // What is measured from now on counts.
    write(&state, vec![edge("a", 2.0)]);
    assert_eq!(known(&open(&path)), [pair("a", 2)]);
}

/// On clusters all machines have the same home: how fast things come to another machine says
/// nothing of this one.
#[test]
fn machines_that_share_the_file_do_not_share_where_they_are() {
    let folder = folder();
    let path = folder.path().join("state.db");
    write(&open(&path), vec![edge("a", 1.0)]);
    let file = Connection::open(&path).unwrap();
    let to: String = file.query_row("SELECT to_site FROM edges", [], |row| row.get(0)).unwrap();
    assert!(to.starts_with("here@") && to.len() > 5, "{to}");
    file.execute("UPDATE edges SET to_site = 'here@another'", []).unwrap();
    let state = open(&path);
    assert_eq!(known(&state), []);
    write(&state, vec![edge("a", 3.0)]);
    let count: u32 = file.query_row("SELECT count(*) FROM edges", [], |row| row.get(0)).unwrap();
    assert_eq!((count, known(&state)), (2, vec![pair("a", 3)]));
    // But whoever wants all of it forgotten gets that.
    assert_eq!(state.forget(Forget::All).unwrap().edges.len(), 1);
    let count: u32 = file.query_row("SELECT count(*) FROM edges", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 0);
}

/// Twenty transfers at once is what the relays are for.
#[test]
fn processes_share_what_they_learn_while_they_run() {
    const COUNT: usize = 8;
    let folder = folder();
    let path = folder.path().join("state.db");
    let child = |n: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "remembers::child_that_learns_and_waits_for_all_others",
                "--nocapture",
            ])
            .env("SWATH_PLACE", &path)
            .env("SWATH_SEED", n.to_string())
            .env("SWATH_COUNT", COUNT.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..COUNT).map(child).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(known(&open(&path)).len(), COUNT);
}

#[test]
#[ignore = "run by its parent test"]
fn child_that_learns_and_waits_for_all_others() {
    let number = |name: &str| -> usize { std::env::var(name).unwrap().parse().unwrap() };
    let (seed, count) = (number("SWATH_SEED"), number("SWATH_COUNT"));
    let (state, warning) = open_any(&place());
    assert_eq!(warning, None);
    let mut mark = NewsCursor::default();
    let mut heard: std::collections::BTreeSet<String> = Default::default();
    state.note(vec![edge(&format!("site{seed}"), seed as f64)]);
    wait_for(|| {
        heard.extend(state.changed_since(&mut mark).into_iter().map(|edge| edge.from));
        heard.len() == count - 1
    });
    assert!(!heard.contains(&format!("site{seed}")));
    assert_eq!(state.warnings(), []);
}

/// Each of two processes knows fewer than there may be, and both together more.
#[test]
fn the_file_is_bounded_and_keeps_what_is_used() {
    const EACH: usize = 3000;
    let folder = folder();
    let path = folder.path().join("state.db");
    let used = EdgeReading { is_used: true, ..edge("used:443", 1.0) };
    write(&open(&path), vec![used]);
    let edges = |of: &str| (0..EACH).map(|n| edge(&format!("{of}{n}:443"), 1.0)).collect();
    let (one, other) = (open(&path), open(&path));
    one.note(edges("one"));
    other.note(edges("other"));
    assert!(one.flush(LIMIT) && other.flush(LIMIT));
    wait_for(|| known(&one).len() == 4096 && known(&one) == known(&other));
    assert!(known(&one).contains(&pair("used:443", 1)));
    let file = Connection::open(&path).unwrap();
    let count: u32 = file.query_row("SELECT count(*) FROM edges", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 4096);
}

/// Whoever can write the file, or a bit that fell over, must not make a plan of nonsense.
#[test]
fn what_the_file_says_is_believed_only_where_it_can_be() {
    let folder = folder();
    let path = folder.path().join("state.db");
    let named = ["minus", "vast", "long", "odd", "right"].map(|name| edge(name, 5.0));
    write(&open(&path), named.to_vec());
    let file = Connection::open(&path).unwrap();
    file.execute_batch(
        "UPDATE edges SET rate_bytes_per_s = -5 WHERE from_site = 'minus';
         UPDATE edges SET rate_bytes_per_s = 9e999 WHERE from_site = 'vast';
         UPDATE edges SET rtt_s = 1e6, rtt_at_ms = 1 WHERE from_site = 'long';
         UPDATE edges SET from_site = 'o' || char(10) || 'dd' WHERE from_site = 'odd';
         INSERT INTO relays (url, error, error_at_ms) VALUES ('', 'x', 5);",
    )
    .unwrap();
    let state = open(&path);
    assert_eq!(known(&state), [pair("long", 5), pair("right", 5)]);
    assert!(state.edges().iter().all(|edge| edge.rtt_s.is_none()) && state.relays().is_empty());
}
