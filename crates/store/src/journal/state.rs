//! The combined effect of all records of a journal.
//!
//! Invariant: verified bytes are durable and were verified by the pieces in the identity; every
//! hash state and every group was made from durable bytes. Records that would break this are cut
//! down.

use std::collections::BTreeMap;

use swath_model::{Range, RangeMap, RangeSet};

use super::record::{HashState, Record};
use super::sum::Sum;
use crate::Identity;

/// The combined effect of a journal's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) size_bytes: Option<u64>,
    pub(crate) identity: Identity,
    pub(crate) sources: BTreeMap<u32, String>,
    /// The source of each durable byte.
    pub(crate) delivered: RangeMap<u32>,
    /// The same bytes as `delivered`, for fast coverage checks.
    pub(crate) durable: RangeSet,
    pub(crate) verified: RangeSet,
    /// The newest state of each algorithm.
    pub(crate) hash_states: BTreeMap<String, HashState>,
    pub(crate) groups: BTreeMap<u64, (Range, [u8; 32])>,
}

impl Sum for State {
    type Record = Record;
    const MAGIC: &'static [u8; 16] = b"swath journal 2\n";

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Identity { size_bytes, identity } => {
                self.size_bytes = size_bytes.or(self.size_bytes);
                if identity.pieces.is_some() && identity.pieces != self.identity.pieces {
                    self.verified = RangeSet::new();
                }
                self.identity.merge(identity);
            }
            Record::Source { id, name } => {
                self.sources.insert(*id, name.clone());
            }
            Record::Durable { range, source } => {
                // Newly delivered bytes may differ from those that were verified or hashed here.
                self.distrust(*range);
                self.delivered.set(*range, *source);
                self.durable.insert(*range);
            }
            Record::Verified { range } => {
                let durable: Vec<Range> = self.durable.within(*range).collect();
                for part in durable {
                    self.verified.insert(part);
                }
            }
            Record::Bad { range } => self.forget(*range),
            Record::Mismatch => self.identity.digests.clear(),
            Record::HashState(hash) => {
                if self.durable.covers(Range::new(0, hash.front)) {
                    self.hash_states.insert(hash.algorithm.clone(), hash.clone());
                }
            }
            Record::Group { index, range, cv } => {
                if self.durable.covers(*range) {
                    self.groups.insert(*index, (*range, *cv));
                }
            }
        }
    }

    fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let identity =
            Record::Identity { size_bytes: self.size_bytes, identity: self.identity.clone() };
        let sources =
            self.sources.iter().map(|(&id, name)| Record::Source { id, name: name.clone() });
        let durable =
            self.delivered.iter().map(|(range, source)| Record::Durable { range, source });
        let verified = self.verified.iter().map(|range| Record::Verified { range });
        let hashes = self.hash_states.values().cloned().map(Record::HashState);
        let groups =
            self.groups.iter().map(|(&index, &(range, cv))| Record::Group { index, range, cv });
        std::iter::once(identity)
            .chain(sources)
            .chain(durable)
            .chain(verified)
            .chain(hashes)
            .chain(groups)
    }

    fn room_bytes(&self) -> u64 {
        ROOM_BYTES
    }
}

impl State {
    /// Marks `range` as no longer durable and drops everything made from it.
    pub(crate) fn forget(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        self.distrust(range);
        self.delivered.clear(range);
        self.durable.remove(range);
    }

    fn distrust(&mut self, range: Range) {
        if range.is_empty() || self.durable.bytes_within(range) == 0 {
            return;
        }
        self.verified.remove(range);
        self.hash_states.retain(|_, hash| hash.front <= range.start);
        self.groups.retain(|_, (made_from, _)| made_from.intersect(range).is_none());
    }
}

/// Some hundred records, several of them hash states.
const ROOM_BYTES: u64 = 64 << 10;
