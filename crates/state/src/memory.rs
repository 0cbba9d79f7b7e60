//! The table in memory that answers all callers: what the file said, what was reported since, and
//! what of that is still to be written. Pure: times are arguments.
//!
//! Bounded: at most [`EDGES_MAX`] edges and [`RELAYS_MAX`] relays; the least useful ones go.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Wall;
use crate::edge::{EdgeReading, Key, KnownEdge, Row};
use crate::relay::{KnownRelay, RelayNote, RelayRow};
use crate::state::{Forget, Forgotten};

/// How far somebody has read the news; the default is the beginning, before everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewsCursor(u64);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    edges: BTreeMap<Key, Entry>,
    relays: BTreeMap<String, RelayRow>,
    unwritten: BTreeSet<Key>,
    unwritten_relays: BTreeSet<String>,
    /// The number of the last piece of news.
    last: u64,
}

#[derive(Debug)]
struct Entry {
    row: Row,
    /// The number of the last news of it.
    news: u64,
    /// Who told it; [`THE_FILE`] or a member.
    teller: u64,
}

/// Rows of the file, or for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows {
    pub(crate) edges: Vec<(Key, Row)>,
    pub(crate) relays: Vec<(String, RelayRow)>,
}

impl Rows {
    pub(crate) fn is_empty(&self) -> bool {
        self.edges.is_empty() && self.relays.is_empty()
    }
}

impl Memory {
    /// Enters readings that a member has.
    pub(crate) fn note(&mut self, readings: Vec<EdgeReading>, teller: u64, now: Wall) {
        for (key, row) in readings.into_iter().filter_map(|reading| Row::of(reading, now)) {
            self.enter(key.clone(), row, teller, now);
            self.unwritten.insert(key);
        }
        self.bound();
    }

    /// Enters news of a relay.
    pub(crate) fn note_relay(&mut self, note: RelayNote, now: Wall) {
        let Some((url, row)) = RelayRow::of(note, now) else { return };
        let old = self.relays.remove(&url).unwrap_or_default();
        self.relays.insert(url.clone(), old.merged(row, now));
        self.unwritten_relays.insert(url);
        self.bound();
    }

    /// Takes over what the file says now: what is not there any more goes, unless it has still to
    /// be written. Times in the future are corrected in the file too.
    pub(crate) fn read(&mut self, rows: Rows, now: Wall) {
        let there: BTreeSet<&Key> = rows.edges.iter().map(|(key, _)| key).collect();
        self.edges.retain(|key, _| there.contains(key) || self.unwritten.contains(key));
        let there: BTreeSet<&String> = rows.relays.iter().map(|(url, _)| url).collect();
        self.relays.retain(|url, _| there.contains(url) || self.unwritten_relays.contains(url));
        for (key, row) in rows.edges {
            let clamped = row.clone().clamped(now);
            if clamped != row {
                self.unwritten.insert(key.clone());
            }
            self.enter(key, clamped, THE_FILE, now);
        }
        for (url, row) in rows.relays {
            let old = self.relays.remove(&url).unwrap_or_default();
            self.relays.insert(url, old.merged(row, now));
        }
        self.bound();
    }

    fn enter(&mut self, key: Key, row: Row, teller: u64, now: Wall) {
        match self.edges.get_mut(&key) {
            Some(entry) => {
                let merged = entry.row.clone().merged(row, now);
                if merged.is_news_to(&entry.row) {
                    self.last += 1;
                    (entry.news, entry.teller) = (self.last, teller);
                }
                entry.row = merged;
            }
            None => {
                self.last += 1;
                self.edges.insert(key, Entry { row, news: self.last, teller });
            }
        }
    }

    fn bound(&mut self) {
        let worths = self.edges.iter().map(|(key, entry)| (entry.row.worth(), key.clone()));
        for key in surplus(worths, self.edges.len(), EDGES_MAX) {
            self.edges.remove(&key);
            self.unwritten.remove(&key);
        }
        let worths = self.relays.iter().map(|(url, row)| (row.worth(), url.clone()));
        for url in surplus(worths, self.relays.len(), RELAYS_MAX) {
            self.relays.remove(&url);
            self.unwritten_relays.remove(&url);
        }
    }

    /// The file is a new one: everything has to be written.
    pub(crate) fn is_to_be_written(&mut self) {
        self.unwritten = self.edges.keys().cloned().collect();
        self.unwritten_relays = self.relays.keys().cloned().collect();
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty() || !self.unwritten_relays.is_empty()
    }

    /// What has to be written, which counts as written from now on.
    pub(crate) fn take_unwritten(&mut self) -> Rows {
        let keys = std::mem::take(&mut self.unwritten);
        let urls = std::mem::take(&mut self.unwritten_relays);
        let edge = |key: Key| self.edges.get(&key).map(|entry| (key.clone(), entry.row.clone()));
        let relay = |url: String| self.relays.get(&url).map(|row| (url.clone(), row.clone()));
        Rows {
            edges: keys.into_iter().filter_map(edge).collect(),
            relays: urls.into_iter().filter_map(relay).collect(),
        }
    }

    /// It could not be written and has still to be.
    pub(crate) fn put_back(&mut self, rows: Rows) {
        let edges = rows.edges.into_iter().map(|(key, _)| key);
        self.unwritten.extend(edges.filter(|key| self.edges.contains_key(key)));
        let relays = rows.relays.into_iter().map(|(url, _)| url);
        self.unwritten_relays.extend(relays.filter(|url| self.relays.contains_key(url)));
    }

    /// All edges.
    pub(crate) fn edges(&self, now: Wall) -> Vec<KnownEdge> {
        self.edges.iter().map(|(key, entry)| entry.row.known(key, now)).collect()
    }

    /// The edges that there is news of since `mark` by others than `reader`, and a mark behind them.
    pub(crate) fn since(
        &self,
        mark: NewsCursor,
        reader: u64,
        now: Wall,
    ) -> (Vec<KnownEdge>, NewsCursor) {
        let is_news = |entry: &Entry| entry.news > mark.0 && entry.teller != reader;
        let news = self.edges.iter().filter(|(_, entry)| is_news(entry));
        (news.map(|(key, entry)| entry.row.known(key, now)).collect(), NewsCursor(self.last))
    }

    /// All relays.
    pub(crate) fn relays(&self, now: Wall) -> Vec<KnownRelay> {
        self.relays.iter().map(|(url, row)| row.known(url, now)).collect()
    }

    /// Loses what is named, written or not.
    pub(crate) fn forget(&mut self, which: &Forget) -> Forgotten {
        let mut gone = Forgotten::default();
        self.edges.retain(|key, _| {
            let is_meant = which.means_edge(key);
            if is_meant {
                gone.edges.push((key.from.clone(), key.to.clone()));
                self.unwritten.remove(key);
            }
            !is_meant
        });
        self.relays.retain(|url, _| {
            let is_meant = which.means_relay(url);
            if is_meant {
                gone.relays.push(url.clone());
                self.unwritten_relays.remove(url);
            }
            !is_meant
        });
        gone
    }
}

/// What is least worth keeping of more than there may be.
fn surplus<T: Ord>(all: impl Iterator<Item = (Wall, T)>, count: usize, most: usize) -> Vec<T> {
    if count <= most {
        return Vec::new();
    }
    let mut all: Vec<_> = all.collect();
    all.sort();
    all.into_iter().take(count - most).map(|(_, it)| it).collect()
}

/// The teller of what the file says; members have higher numbers.
pub(crate) const THE_FILE: u64 = 0;
/// Sixty sites all of whose edges are known, or a thousand mirrors each by four relays. Some
/// 500 kB in memory and in the file.
pub(crate) const EDGES_MAX: usize = 4096;
/// Far more than anybody writes into a configuration.
pub(crate) const RELAYS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::edge::{By, Grade, HERE, Measured};

    const NOW: Wall = Wall(1_800_000_000_000);

    fn reading(from: &str, rate: f64) -> EdgeReading {
        let by = By::Us;
        let measured =
            Some(Measured { rate_bytes_per_s: rate, grade: Grade::Exact, age_s: 0.0, by });
        let (from, to) = (from.to_owned(), HERE.to_owned());
        EdgeReading { from, to, measured, rtt_s: None, is_used: false }
    }

    fn names(known: &[KnownEdge]) -> Vec<&str> {
        known.iter().map(|edge| edge.from.as_str()).collect()
    }

    #[test]
    fn everybody_hears_what_others_learnt_once_and_nobody_hears_himself() {
        let mut memory = Memory::default();
        memory.note(vec![reading("a", 1.0)], 1, NOW);
        memory.note(vec![reading("b", 1.0)], 2, NOW);
        let (news, mark) = memory.since(NewsCursor::default(), 1, NOW);
        assert_eq!(names(&news), ["b"]);
        assert_eq!(memory.since(mark, 1, NOW), (vec![], mark));
        let (news, _) = memory.since(NewsCursor::default(), 3, NOW);
        assert_eq!(names(&news), ["a", "b"]);
        // That an edge is used is nothing that anybody would plan otherwise for.
        let used = EdgeReading { measured: None, is_used: true, ..reading("b", 0.0) };
        memory.note(vec![used], 2, NOW);
        assert_eq!(memory.since(mark, 1, NOW), (vec![], mark));
        memory.note(vec![reading("b", 2.0)], 2, Wall(NOW.0 + 1));
        let (news, mark) = memory.since(mark, 1, NOW);
        assert_eq!(names(&news), ["b"]);
        // What the file says of it is the same.
        let row = memory.edges.values().map(|entry| entry.row.clone()).next_back().unwrap();
        let key = Key { from: "b".into(), to: HERE.into() };
        memory.read(Rows { edges: vec![(key, row)], relays: vec![] }, NOW);
        assert_eq!(memory.since(mark, 1, NOW), (vec![], mark));
    }

    #[test]
    fn what_could_not_be_written_is_written_later_as_it_is_then() {
        let mut memory = Memory::default();
        memory.note(vec![reading("a", 1.0), reading("b", 1.0)], 1, NOW);
        let taken = memory.take_unwritten();
        assert!(taken.edges.len() == 2 && !memory.has_unwritten());
        memory.note(vec![reading("a", 5.0)], 1, Wall(NOW.0 + 1));
        memory.forget(&Forget::Sites(vec!["b".into()]));
        memory.put_back(taken);
        let again = memory.take_unwritten().edges;
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].1.rate.as_ref().unwrap().bytes_per_s, 5.0);
    }

    #[test]
    fn what_the_file_has_no_more_goes_but_not_what_was_never_written() {
        let mut memory = Memory::default();
        memory.note(vec![reading("a", 1.0)], 1, NOW);
        let written = memory.take_unwritten();
        memory.note(vec![reading("b", 1.0)], 1, NOW);
        memory.read(Rows::default(), NOW);
        assert_eq!(names(&memory.edges(NOW)), ["b"]);
        memory.read(written, NOW);
        assert_eq!(names(&memory.edges(NOW)), ["a", "b"]);
    }

    #[test]
    fn a_flood_of_reports_drives_out_nothing_that_is_used() {
        let mut memory = Memory::default();
        let used = EdgeReading { is_used: true, ..reading("used", 1.0) };
        memory.note(vec![used], 1, Wall(NOW.0 - 86_400_000));
        for n in 0..30 {
            let flood = (0..EDGES_MAX / 10).map(|m| reading(&format!("flood{n}-{m}"), 1.0));
            memory.note(flood.collect(), 1, Wall(NOW.0 + n));
        }
        let known = memory.edges(NOW);
        assert_eq!(known.len(), EDGES_MAX);
        assert!(names(&known).contains(&"used"));
        assert!(names(&known).contains(&"flood29-0"));
        assert_eq!(memory.take_unwritten().edges.len(), EDGES_MAX);
    }

    proptest! {
        /// Two that tell each other of everything by way of a file come to know the same,
        /// whatever was told to whom in which order.
        #[test]
        fn two_who_share_a_file_come_to_know_the_same(
            told in prop::collection::vec((0..2_usize, 0..5_u8, 1..100_u32, 0..50_i64, any::<bool>()), 1..60)
        ) {
            let mut both = [Memory::default(), Memory::default()];
            let mut file: BTreeMap<Key, Row> = BTreeMap::new();
            for (step, (who, site, rate, age_s, writes)) in told.into_iter().enumerate() {
                // One millisecond belongs to one reading: of two from the same either may hold.
                let now = Wall(NOW.0 + step as i64);
                let mut told = reading(&format!("s{site}"), f64::from(rate));
                told.measured.as_mut().unwrap().age_s = age_s as f64;
                both[who].note(vec![told], 1, now);
                if writes {
                    settle(&mut both[who], &mut file, now);
                }
            }
            let end = Wall(NOW.0 + 1000);
            for who in [0, 1, 0] {
                settle(&mut both[who], &mut file, end);
            }
            prop_assert_eq!(both[0].edges(end), both[1].edges(end));
            prop_assert_eq!(both[0].edges(end).len(), file.len());
        }
    }

    fn settle(memory: &mut Memory, file: &mut BTreeMap<Key, Row>, now: Wall) {
        for (key, row) in memory.take_unwritten().edges {
            let old = file.remove(&key).unwrap_or_default();
            file.insert(key, old.merged(row, now));
        }
        let edges = file.iter().map(|(key, row)| (key.clone(), row.clone())).collect();
        memory.read(Rows { edges, relays: vec![] }, now);
    }
}
