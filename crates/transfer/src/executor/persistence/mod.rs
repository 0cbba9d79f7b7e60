//! The data that outlives the run: the partial file and its journal.
//!
//! The journal numbers all sources that ever delivered bytes of the file, so that a byte of an
//! earlier run still has its deliverer.

pub(super) mod deliverer;
pub(super) mod left;
pub(super) mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use swath_model::{Range, Time};
use swath_store::{HashState, Left, OpenError, Record};

use crate::executor::coverage::Coverage;
use crate::executor::persistence::deliverer::Deliverer;
use crate::executor::sink::Sink;
use crate::verify::Saved;

/// The partial file and its journal.
pub(crate) struct Persistence {
    /// The destination of bytes, once it is open.
    pub sink: Option<Arc<dyn Sink>>,
    /// The data of an earlier run, until the target is open or no source has that version.
    pub left: Option<Left>,
    /// Whether a digest proves that the data of an earlier run is of the wanted version.
    pub resumed_by_digest: bool,
    /// The error of a target that was too large for the disk, by the size that a source reported.
    pub too_large: Option<OpenError>,
    /// Journal records whose bytes are written but not yet committed.
    pub records: Vec<Record>,
    /// Whether a commit is under way.
    pub committing: bool,
    pub committed_at: Time,
    pub commit_every: Duration,
    /// Journal number of each source, by its number in this run.
    ids: Vec<u32>,
    /// All sources in the journal, earlier runs included.
    names: BTreeMap<u32, Deliverer>,
}

impl Persistence {
    /// Creates the state before a target is open.
    pub fn new(commit_every: Duration) -> Persistence {
        Persistence {
            sink: None,
            left: None,
            resumed_by_digest: false,
            too_large: None,
            records: Vec::new(),
            committing: false,
            committed_at: Time::ZERO,
            commit_every,
            ids: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    /// Returns the sink, if written bytes can be read back.
    pub fn readable(&self) -> Option<Arc<dyn Sink>> {
        self.sink.clone().filter(|sink| sink.reads_back())
    }

    /// Records that bytes are in the part file: they may be journaled after the next sync.
    pub fn written(&mut self, range: Range, coverage: &Coverage) {
        for (part, source) in coverage.deliverers.within(range) {
            if let Some(Record::Durable { range: last, source: same }) = self.records.last_mut()
                && last.end == part.start
                && *same == source
            {
                last.end = part.end;
            } else {
                self.records.push(Record::Durable { range: part, source });
            }
        }
    }

    /// Records that a digest has proved these bytes.
    pub fn verified(&mut self, range: Range) {
        match self.records.last_mut() {
            Some(Record::Verified { range: last }) if last.end == range.start => {
                last.end = range.end;
            }
            _ => self.records.push(Record::Verified { range }),
        }
    }

    /// Returns the journal number of source `at`.
    pub fn id_of(&self, at: usize) -> u32 {
        self.ids[at]
    }

    /// Returns the source of this run with this journal number, if any.
    pub fn source_of(&self, id: u32) -> Option<usize> {
        self.ids.iter().position(|&known| known == id)
    }

    /// Returns the name that users see of the source with this journal number.
    pub fn name_of(&self, id: u32) -> String {
        self.names.get(&id).map_or_else(|| "an earlier source".to_owned(), ToString::to_string)
    }

    /// Returns the deliverer with this journal number.
    pub fn deliverer(&self, id: u32) -> Option<&Deliverer> {
        self.names.get(&id)
    }

    /// Returns whether relays could have changed the bytes of this source, in this run or an
    /// earlier one.
    pub fn is_exposed(&self, id: u32) -> bool {
        self.names.get(&id).is_some_and(|deliverer| deliverer.is_exposed)
    }

    /// Returns this source and all others in the journal that share a relay with it. If some of its
    /// relays are known to be `guilty`, only those count.
    pub fn kin(&self, id: u32, guilty: &BTreeSet<String>) -> BTreeSet<u32> {
        let relays = self.names.get(&id).map_or(&[][..], |own| &own.name.relays);
        let mut relays: Vec<&String> = relays.iter().collect();
        if relays.iter().any(|&relay| guilty.contains(relay)) {
            relays.retain(|&relay| guilty.contains(relay));
        }
        let is_kin = |(_, other): &(&u32, &Deliverer)| {
            other.is_exposed && other.name.relays.iter().any(|relay| relays.contains(&relay))
        };
        let kin = self.names.iter().filter(is_kin).map(|(&id, _)| id);
        kin.chain([id]).collect()
    }

    /// Gives the next source of this run a journal number of its own.
    pub fn enter(&mut self, mut deliverer: Deliverer) {
        let known = |names: &BTreeMap<u32, Deliverer>, wanted: &Deliverer| {
            names.iter().find(|(_, known)| *known == wanted).map(|(&id, _)| id)
        };
        while known(&self.names, &deliverer).is_some_and(|id| self.ids.contains(&id)) {
            deliverer.number += 1;
        }
        let id = known(&self.names, &deliverer).unwrap_or_else(|| {
            let id = self.names.last_key_value().map_or(0, |(&last, _)| last + 1);
            self.records.push(Record::Source { id, name: deliverer.text() });
            self.names.insert(id, deliverer);
            id
        });
        self.ids.push(id);
    }

    /// Takes over the numbers of a journal that was read, then numbers the sources of this run,
    /// `ours`, in their order.
    pub fn adopt(&mut self, known: &[(u32, String)], ours: impl Iterator<Item = Deliverer>) {
        self.names = known.iter().map(|(id, text)| (*id, Deliverer::parse(text))).collect();
        self.records.clear();
        self.ids.clear();
        ours.for_each(|deliverer| self.enter(deliverer));
    }
}

/// Returns the journal record of a partial hash.
pub(crate) fn hash_record(saved: Saved) -> Record {
    Record::HashState(HashState {
        algorithm: saved.algorithm.to_string(),
        front: saved.front,
        state: saved.state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queries are not shown. Both had one number in the journal, and what the second one did was
    /// laid on the first, for ever.
    #[test]
    fn sources_whose_addresses_look_alike_are_told_apart() {
        let mut journal = Persistence::new(Duration::ZERO);
        for _ in 0..2 {
            journal.enter(Deliverer::parse("http://a.example/f"));
            journal.enter(Deliverer::parse("http://a.example/f by r1:8471"));
        }
        let names: Vec<String> =
            (0..4).map(|at| journal.deliverer(journal.id_of(at)).unwrap().text()).collect();
        let second = ["http://a.example/f #2", "http://a.example/f #2 by r1:8471"];
        assert_eq!(
            names,
            ["http://a.example/f", "http://a.example/f by r1:8471", second[0], second[1]]
        );
        let kin = journal.kin(journal.id_of(1), &BTreeSet::new());
        assert_eq!(kin.len(), 2, "it is the same relay");
    }
}
