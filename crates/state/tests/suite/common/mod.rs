//! What the tests of the state share.
#![allow(dead_code, missing_docs)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use swath_state::{By, EdgeReading, Grade, HERE, KnownEdge, Measured, State, Warning};
use tempfile::TempDir;

pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix("swath-test-").tempdir().unwrap()
}

/// A reading of the edge from this site to us.
pub fn edge(from: &str, rate_bytes_per_s: f64) -> EdgeReading {
    let measured = Measured { rate_bytes_per_s, grade: Grade::Exact, age_s: 0.0, by: By::Us };
    let (from, to) = (from.to_owned(), HERE.to_owned());
    EdgeReading { from, to, measured: Some(measured), rtt_s: None, is_used: false }
}

/// Open it, however busy the machine is, and say what is wrong with it.
pub fn open_any(path: &Path) -> (State, Option<Warning>) {
    State::open_within(path, LIMIT)
}

/// Open it, and nothing must be wrong.
#[track_caller]
pub fn open(path: &Path) -> State {
    let (state, warning) = open_any(path);
    assert_eq!(warning, None);
    state
}

/// Note it and have it written.
#[track_caller]
pub fn write(state: &State, readings: Vec<EdgeReading>) {
    state.note(readings);
    assert!(state.flush(LIMIT), "{:?}", state.warnings());
}

/// Where edges come from and how fast, in whole bytes per second.
pub fn known(state: &State) -> Vec<(String, u64)> {
    rates(&state.edges())
}

pub fn rates(edges: &[KnownEdge]) -> Vec<(String, u64)> {
    let rate = |edge: &KnownEdge| {
        let measured = edge.measured.as_ref();
        (edge.from.clone(), measured.map_or(0, |it| it.rate_bytes_per_s as u64))
    };
    edges.iter().map(rate).collect()
}

pub fn pair(from: &str, rate: u64) -> (String, u64) {
    (from.to_owned(), rate)
}

/// It works for this run, whatever is wrong with the file.
#[track_caller]
pub fn works(state: &State) {
    state.note(vec![edge("learnt", 9.0)]);
    assert!(known(state).contains(&pair("learnt", 9)));
}

/// A file with something in it, and nobody has it open.
pub fn filled(path: &Path) -> Vec<u8> {
    let edges = (0..200).map(|n| edge(&format!("site{n}.of-a-long-name.example:443"), 1000.0));
    write(&open(path), edges.collect());
    std::fs::read(path).unwrap()
}

/// Wait until it comes, but not for ever.
#[track_caller]
pub fn wait_for(mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < LIMIT, "it did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn place() -> PathBuf {
    std::env::var_os("SWATH_PLACE").expect("run by its parent test").into()
}

/// Long, because other work may keep the machine busy.
pub const LIMIT: Duration = Duration::from_secs(90);
