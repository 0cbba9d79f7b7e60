//! [`State`]: the handle that a transfer holds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Wall;
use crate::edge::{EdgeReading, Key, KnownEdge, is_site};
use crate::keeper::{Handle, Keeper, Patience, Shared};
use crate::location::Journal;
use crate::memory::NewsCursor;
use crate::relay::{KnownRelay, RelayNote};
use crate::warning::Warning;

/// What is remembered, shared by all transfers of this process and, by way of the file, of this
/// user. Every call but [`State::forget`] and [`State::flush`] answers from memory at once; the file
/// is read and written by a thread, about once a second.
///
/// A clone is another member: it is told what this one notes ([`State::changed_since`]).
#[derive(Debug)]
pub struct State {
    handle: Arc<Handle>,
    member: u64,
}

impl State {
    /// Opens the file at `path`, or makes it. It takes as long as the file takes to be read, but no
    /// longer than a second: what comes later is news. Whatever is wrong with the file, the state
    /// that comes back can be used: it remembers at least for this run.
    pub fn open(path: &Path) -> (State, Option<Warning>) {
        State::open_with(path, Journal::suits, false, Patience::default())
    }

    /// The same, for who would rather wait than go on without the file: so long for it to be read, for
    /// a lock of others, and for the last writes when the state is dropped.
    pub fn open_within(path: &Path, wait: Duration) -> (State, Option<Warning>) {
        State::open_with(path, Journal::suits, false, Patience::of(wait))
    }

    /// The same as [`State::open`], for who only looks: no row of the file is written, corrected or
    /// dropped.
    pub fn look(path: &Path) -> (State, Option<Warning>) {
        State::open_with(path, Journal::suits, true, Patience::default())
    }

    fn open_with(
        path: &Path,
        journal: fn(&Path) -> Journal,
        only_reads: bool,
        patience: Patience,
    ) -> (State, Option<Warning>) {
        let shared = Keeper::start(path, journal, only_reads, patience);
        let warning = shared.wait_for_opening(path);
        (State::of(shared), warning)
    }

    /// One without a file, which remembers for this run only.
    pub fn none() -> State {
        State::of(Arc::new(Shared::new(false, Patience::default())))
    }

    fn of(shared: Arc<Shared>) -> State {
        State { member: shared.another_member(), handle: Arc::new(Handle(shared)) }
    }

    fn shared(&self) -> &Shared {
        &self.handle.0
    }

    /// All edges that are known.
    pub fn edges(&self) -> Vec<KnownEdge> {
        self.shared().memory().edges(Wall::now())
    }

    /// The edges of which others have learnt something since `mark`, which is moved behind them.
    /// Others are the other members of this process, other processes, and earlier runs; from
    /// [`NewsCursor::default`] it is all that is known but for what only this member told.
    pub fn changed_since(&self, mark: &mut NewsCursor) -> Vec<KnownEdge> {
        let (news, next) = self.shared().memory().since(*mark, self.member, Wall::now());
        *mark = next;
        news
    }

    /// Remembers this. What cannot be (rates that are no numbers, sites without a name) is left out.
    /// Tell only what was learnt in this run: what was heard from here would come back after it
    /// was forgotten.
    pub fn note(&self, readings: Vec<EdgeReading>) {
        self.shared().memory().note(readings, self.member, Wall::now());
        self.shared().wake();
    }

    /// The relays that are known.
    pub fn relays(&self) -> Vec<KnownRelay> {
        self.shared().memory().relays(Wall::now())
    }

    /// Remembers this of a relay.
    pub fn note_relay(&self, note: RelayNote) {
        self.shared().memory().note_relay(note, Wall::now());
        self.shared().wake();
    }

    /// What is found to be wrong with the file since the last call, each once.
    pub fn warnings(&self) -> Vec<Warning> {
        self.shared().take_warnings()
    }

    /// Forgets all or some, in the file as well, and says what that was. It waits for the file, as
    /// long as it takes up to some seconds: not for use within a transfer.
    pub fn forget(&self, which: Forget) -> Result<Forgotten, ForgetError> {
        self.shared().forget(which, FORGET_WAIT)
    }

    /// Has everything written, waiting for it no longer than this; whether it was.
    pub fn flush(&self, wait: Duration) -> bool {
        self.shared().flush(wait)
    }
}

impl Clone for State {
    fn clone(&self) -> State {
        State { handle: Arc::clone(&self.handle), member: self.shared().another_member() }
    }
}

/// What is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forget {
    /// Everything.
    All,
    /// These sites, by `host:port` or by their host alone, with all edges that begin or end there.
    Sites(Vec<String>),
}

impl Forget {
    pub(crate) fn means_edge(&self, key: &Key) -> bool {
        match self {
            Forget::All => true,
            Forget::Sites(sites) => sites.iter().any(|site| key.touches(site)),
        }
    }

    pub(crate) fn means_relay(&self, url: &str) -> bool {
        let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = authority.trim_end_matches('/');
        match self {
            Forget::All => true,
            Forget::Sites(sites) => sites.iter().any(|site| {
                // Addresses leave out the port that their scheme has anyway.
                is_site(authority, site) || usual_port(url, authority).is_some_and(|it| it == *site)
            }),
        }
    }
}

fn usual_port(url: &str, authority: &str) -> Option<String> {
    match url.split_once("://")?.0 {
        "https" => Some(format!("{authority}:443")),
        "http" => Some(format!("{authority}:80")),
        _ => None,
    }
}

/// What was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// From where to where, in order.
    pub edges: Vec<(String, String)>,
    /// Addresses, in order.
    pub relays: Vec<String>,
}

/// Why nothing was forgotten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForgetError {
    /// There is no file.
    #[error("nothing is remembered: there is no file for it")]
    NoFile,
    /// It is wrong with the file.
    #[error("{0}")]
    File(Warning),
    /// The file system does not answer.
    #[error("the file does not answer")]
    Silent,
}

/// Longer than a process holds the file that works.
const FORGET_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    //! With a rollback journal, as on file systems that several machines share; with a log
    //! written ahead everything is tested in `tests`.

    use std::time::Instant;

    use super::*;
    use crate::edge::{By, Grade, HERE, Measured};

    const LIMIT: Duration = Duration::from_secs(60);

    fn open(path: &Path) -> (State, Option<Warning>) {
        State::open_with(path, |_| Journal::Rollback, false, Patience::of(LIMIT))
    }

    fn edge(from: &str) -> EdgeReading {
        let measured =
            Measured { rate_bytes_per_s: 1.0, grade: Grade::Exact, age_s: 0.0, by: By::Us };
        let (from, to) = (from.to_owned(), HERE.to_owned());
        EdgeReading { from, to, measured: Some(measured), rtt_s: None, is_used: false }
    }

    #[track_caller]
    fn wait_for(mut is: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is() {
            assert!(began.elapsed() < LIMIT, "it did not come");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn machines_take_turns_and_hear_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let (one, other) = (open(&path), open(&path));
        assert_eq!((&one.1, &other.1), (&None, &None));
        one.0.note(vec![edge("a")]);
        other.0.note(vec![edge("b")]);
        wait_for(|| one.0.edges().len() == 2 && other.0.edges().len() == 2);
        let names = || std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name());
        assert!(names().all(|name| !name.to_string_lossy().ends_with("-shm")));
        drop((one, other));
        assert_eq!(names().collect::<Vec<_>>(), ["state.db"]);
    }

    #[test]
    fn a_file_that_is_damaged_while_it_is_used_is_replaced_by_what_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let (state, _) = open(&path);
        state.note(vec![edge("a"), edge("b")]);
        assert!(state.flush(LIMIT));
        let size = std::fs::read(&path).unwrap().len();
        std::fs::write(&path, vec![0xA5; size]).unwrap();
        let mut told = Vec::new();
        wait_for(|| {
            told.extend(state.warnings());
            !told.is_empty()
        });
        assert!(matches!(&told[..], [Warning::Damaged { .. }]), "{told:?}");
        assert!(state.flush(LIMIT));
        drop(state);
        let (state, warning) = open(&path);
        assert_eq!((state.edges().len(), warning), (2, None));
    }

    #[test]
    fn a_lock_is_waited_for_and_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let soon = Patience { lock: Patience::default().lock, ..Patience::of(LIMIT) };
        let (state, _) = State::open_with(&path, |_| Journal::Rollback, false, soon);
        let other = rusqlite::Connection::open(&path).unwrap();
        other.busy_timeout(LIMIT).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        state.note(vec![edge("a")]);
        let mut told = Vec::new();
        wait_for(|| {
            assert!(!state.flush(LIMIT));
            told.extend(state.warnings());
            !told.is_empty()
        });
        assert_eq!(told, [Warning::Locked { path: path.clone() }]);
        // None of them waits for the file.
        (0..1000).for_each(|_| state.note(vec![edge("b")]));
        other.execute_batch("COMMIT").unwrap();
        wait_for(|| state.flush(LIMIT));
        assert_eq!(state.warnings(), []);
    }
}
