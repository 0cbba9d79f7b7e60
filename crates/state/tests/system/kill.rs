//! `kill -9` at random instants: a process of its own notes and has it written; whenever it is
//! killed, the file is whole and knows all that was said to be written.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use swath_state::{EdgeReading, RelayNote};

const KILLS: u32 = 40;
const SITES: usize = 60;

#[test]
#[ignore = "run and killed by its parent test"]
fn child_that_notes() {
    let first: u64 = std::env::var("SWATH_SEED").unwrap().parse().unwrap();
    let (state, warning) = open_any(&place());
    assert_eq!(warning, None);
    for round in first.. {
        let edges = (0..SITES).map(|n| edge(&format!("site{n}"), round as f64));
        state.note(edges.collect());
        state
            .note_relay(RelayNote { url: format!("https://r{}", round % 7), ..Default::default() });
        if state.flush(LIMIT) {
            println!("wrote {round}");
        }
    }
}

#[test]
fn after_every_kill_the_file_is_whole_and_knows_what_was_written() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = folder();
    let path = folder.path().join("state.db");
    let mut written = 0;
    let mut rounds = 0;
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "kill::child_that_notes", "--nocapture"])
            .env("SWATH_PLACE", &path)
            .env("SWATH_SEED", (written + 1).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            let round = |line: String| line.strip_prefix("wrote ").and_then(|it| it.parse().ok());
            lines.lines().map_while(Result::ok).filter_map(round).last()
        });
        std::thread::sleep(Duration::from_micros(random.u64(1_000..150_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let said: Option<u64> = reader.join().unwrap();
        rounds += u64::from(said.is_some());
        written = said.unwrap_or(written).max(written);

        let state = open(&path);
        let found = known(&state);
        if written > 0 {
            assert_eq!(found.len(), SITES, "kill {kill}, seed {seed}");
        }
        // All of one transaction or of the next one, never some of each.
        let mut of_round: Vec<u64> = found.iter().map(|(_, rate)| *rate).collect();
        of_round.dedup();
        assert!(of_round.len() <= 1, "kill {kill}, seed {seed}: {of_round:?}");
        let round = of_round.first().copied().unwrap_or(0);
        assert!(
            round >= written,
            "kill {kill}, seed {seed}: {written} were written, {round} found"
        );
        written = round;
    }
    assert!(rounds > 5, "the children got to write before they were killed: {rounds}");
    assert_eq!(names(folder.path()), ["state.db"]);
}

/// Two that are killed while both of them make the file.
#[test]
fn kills_while_the_file_is_made_leave_one_that_can_be_used() {
    for round in 0..20 {
        let folder = folder();
        let path = folder.path().join("state.db");
        let start = || {
            Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "kill::child_that_notes", "--nocapture"])
                .env("SWATH_PLACE", &path)
                .env("SWATH_SEED", "1")
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut children = [start(), start()];
        std::thread::sleep(Duration::from_micros(500 * round));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let state = open(&path);
        let mut told = String::new();
        write(&state, vec![edge("after", 1.0), EdgeReading { is_used: true, ..edge("b", 2.0) }]);
        write!(told, "{:?}", known(&state)).unwrap();
        assert!(told.contains("after"), "{told}");
    }
}
