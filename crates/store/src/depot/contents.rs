//! The content of an allocation's journal: size, hashes of capabilities, term, stored bytes.
//!
//! Whole groups have their hashes behind the bytes in the same file; pieces of incomplete groups
//! have theirs in the journal. Invariant: `held` is exactly the whole groups and the pieces; a
//! piece lies in one incomplete group; no two pieces share a byte. Records that would break this
//! are ignored.

use std::collections::BTreeMap;
use std::time::Duration;

use swath_model::{Range, RangeSet, Time};

use super::capability::CapabilityHash;
use super::clock::{Moment, Term};
use super::ledger::Space;
use crate::hashed_file::{GroupHash, Layout};
use crate::journal::{Bytes, Entry, Sum, put_range, put_u64};

/// One fact about an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    /// The allocation exists: the first record, and the only one of this kind.
    Grant { size_bytes: u64, hashes: [CapabilityHash; 3], term: Term, space: Space },
    /// The lease now runs for this term.
    Term(Term),
    /// These whole groups and their group hashes are stored.
    Whole { range: Range },
    /// These bytes of one group are stored and replace pieces within them.
    Piece { range: Range, group_hash: GroupHash },
    /// These bytes do not fit their group hashes: they, their groups and pieces are not stored.
    Bad { range: Range },
}

/// All records of an allocation's journal, applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) grant: Option<Grant>,
    pub(crate) held: RangeSet,
    /// Start → end and group hash.
    pub(crate) pieces: BTreeMap<u64, (u64, GroupHash)>,
    /// Stored bytes that are damaged, until they are stored again.
    pub(crate) damaged: RangeSet,
}

/// The first record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) size_bytes: u64,
    /// The capabilities to read, write and manage.
    pub(crate) hashes: [CapabilityHash; 3],
    pub(crate) term: Term,
    pub(crate) space: Space,
}

impl Contents {
    pub(crate) fn new(
        size_bytes: u64,
        hashes: [CapabilityHash; 3],
        term: Term,
        space: Space,
    ) -> Contents {
        let grant = Some(Grant { size_bytes, hashes, term, space });
        Contents { grant, ..Contents::default() }
    }

    /// Returns where things lie in its file.
    pub(crate) fn layout(&self) -> Layout {
        let size_bytes = self.grant.as_ref().map_or(0, |grant| grant.size_bytes);
        Layout { head_bytes: 0, size_bytes }
    }

    /// Returns when its space is taken.
    pub(crate) fn space(&self) -> Space {
        self.grant.as_ref().map_or(Space::Reserved, |grant| grant.space)
    }

    /// Returns the blocks of stored bytes, including damaged ones.
    pub(crate) fn covered(&self) -> RangeSet {
        let stored = self.held.iter().chain(self.damaged.iter());
        stored.map(|range| self.layout().blocks_of(range)).collect()
    }

    /// Returns the pieces that have a byte in `range`.
    pub(crate) fn pieces_within(
        &self,
        range: Range,
    ) -> impl Iterator<Item = (Range, GroupHash)> + use<'_> {
        let first = self.pieces.range(..range.start).next_back();
        let first = first.filter(|(_, (end, _))| *end > range.start);
        let rest = self.pieces.range(range.start..range.end.max(range.start));
        first
            .into_iter()
            .chain(rest)
            .map(|(&start, &(end, group_hash))| (Range::new(start, end), group_hash))
    }

    fn add_piece(&mut self, range: Range, group_hash: GroupHash) {
        let layout = self.layout();
        if range.is_empty() || range.end > layout.size_bytes {
            return;
        }
        let group = layout.group_at(range.start);
        let inside: Vec<Range> = self.pieces_within(range).map(|(piece, _)| piece).collect();
        let inside_bytes = inside.iter().map(|piece| piece.len()).sum::<u64>();
        if range.end > group.end
            || range == group
            || !inside.iter().all(|&piece| range.covers(piece))
            // The group is whole.
            || self.held.bytes_within(range) != inside_bytes
        {
            return;
        }
        for piece in inside {
            self.pieces.remove(&piece.start);
        }
        self.pieces.insert(range.start, (range.end, group_hash));
        self.held.insert(range);
        self.damaged.remove(range);
    }

    fn add_whole(&mut self, range: Range) {
        if range.is_empty() || !self.layout().is_whole(range) {
            return;
        }
        let within: Vec<u64> =
            self.pieces.range(range.start..range.end).map(|(&at, _)| at).collect();
        for start in within {
            self.pieces.remove(&start);
        }
        self.held.insert(range);
        self.damaged.remove(range);
    }

    fn forget(&mut self, range: Range) {
        let layout = self.layout();
        let Some(range) = range.intersect(Range::new(0, layout.size_bytes)) else { return };
        // Only the first and the last group may reach beyond the range.
        let (first, last) = (layout.group_at(range.start), layout.group_at(range.end - 1));
        let inner = Range::new(first.start, last.end);
        let mut lost: RangeSet = self.held.within(inner).collect();
        for (piece, _) in self.pieces_within(inner) {
            lost.remove(piece);
        }
        let pieces: Vec<Range> = self.pieces_within(range).map(|(piece, _)| piece).collect();
        for piece in pieces {
            self.pieces.remove(&piece.start);
            lost.insert(piece);
        }
        for range in lost.iter() {
            self.held.remove(range);
            self.damaged.insert(range);
        }
        // A compacted journal has this record alone for such bytes.
        for gap in self.held.gaps_within(range) {
            self.damaged.insert(gap);
        }
    }

    /// Returns the held bytes of whole groups.
    fn whole(&self) -> RangeSet {
        let mut whole = self.held.clone();
        for (&start, &(end, _)) in &self.pieces {
            whole.remove(Range::new(start, end));
        }
        whole
    }
}

impl Sum for Contents {
    type Record = Fact;
    const MAGIC: &'static [u8; 16] = b"swath lease 1  \n";

    fn apply(&mut self, fact: &Fact) {
        match fact {
            Fact::Grant { size_bytes, hashes, term, space } => {
                let (hashes, term, space) = (*hashes, *term, *space);
                let grant = Grant { size_bytes: *size_bytes, hashes, term, space };
                self.grant.get_or_insert(grant);
            }
            Fact::Term(term) => {
                if let Some(grant) = &mut self.grant {
                    grant.term = *term;
                }
            }
            Fact::Whole { range } => self.add_whole(*range),
            Fact::Piece { range, group_hash } => self.add_piece(*range, *group_hash),
            Fact::Bad { range } => self.forget(*range),
        }
    }

    fn records(&self) -> impl Iterator<Item = Fact> + '_ {
        let grant = self.grant.iter().map(|grant| Fact::Grant {
            size_bytes: grant.size_bytes,
            hashes: grant.hashes,
            term: grant.term,
            space: grant.space,
        });
        let piece = |(&start, &(end, group_hash)): (&u64, &(u64, GroupHash))| Fact::Piece {
            range: Range::new(start, end),
            group_hash,
        };
        let whole: Vec<Range> = self.whole().iter().collect();
        let damaged: Vec<Range> = self.damaged.iter().collect();
        grant
            .chain(whole.into_iter().map(|range| Fact::Whole { range }))
            .chain(self.pieces.iter().map(piece))
            .chain(damaged.into_iter().map(|range| Fact::Bad { range }))
    }

    fn room_bytes(&self) -> u64 {
        // One record per group, so that even on a full disk a promised allocation can be stored.
        match self.space() {
            Space::Reserved => FIRST_ROOM_BYTES + self.layout().groups() * GROUP_ROOM_BYTES,
            Space::AsStored => FIRST_ROOM_BYTES,
        }
    }
}

impl Entry for Fact {
    fn kind(&self) -> u8 {
        match self {
            Fact::Grant { space: Space::Reserved, .. } => KIND_GRANT,
            Fact::Grant { space: Space::AsStored, .. } => KIND_GRANT_AS_STORED,
            Fact::Term(_) => KIND_TERM,
            Fact::Whole { .. } => KIND_WHOLE,
            Fact::Piece { .. } => KIND_PIECE,
            Fact::Bad { .. } => KIND_BAD,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Fact::Grant { size_bytes, hashes, term, .. } => {
                put_u64(out, *size_bytes);
                hashes.iter().for_each(|hash| out.extend_from_slice(hash));
                put_term(out, term);
            }
            Fact::Term(term) => put_term(out, term),
            Fact::Whole { range } | Fact::Bad { range } => put_range(out, *range),
            Fact::Piece { range, group_hash } => {
                put_range(out, *range);
                out.extend_from_slice(group_hash);
            }
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Fact> {
        let mut bytes = Bytes(payload);
        let fact = match kind {
            KIND_GRANT | KIND_GRANT_AS_STORED => Fact::Grant {
                size_bytes: bytes.u64()?,
                hashes: [bytes.array()?, bytes.array()?, bytes.array()?],
                term: term(&mut bytes)?,
                space: if kind == KIND_GRANT { Space::Reserved } else { Space::AsStored },
            },
            KIND_TERM => Fact::Term(term(&mut bytes)?),
            KIND_WHOLE => Fact::Whole { range: bytes.range()? },
            KIND_PIECE => Fact::Piece { range: bytes.range()?, group_hash: bytes.array()? },
            KIND_BAD => Fact::Bad { range: bytes.range()? },
            _ => return None,
        };
        bytes.is_empty().then_some(fact)
    }
}

fn put_term(out: &mut Vec<u8>, term: &Term) {
    out.extend_from_slice(&term.from.boot);
    put_u64(out, term.from.since_boot.as_nanos());
    put_u64(out, term.from.wall_ms);
    put_u64(out, u64::try_from(term.length.as_nanos()).unwrap_or(u64::MAX));
}

fn term(bytes: &mut Bytes<'_>) -> Option<Term> {
    let boot = bytes.array()?;
    let since_boot = Time::from_nanos(bytes.u64()?);
    let from = Moment { boot, since_boot, wall_ms: bytes.u64()? };
    Some(Term { from, length: Duration::from_nanos(bytes.u64()?) })
}

const KIND_GRANT: u8 = 1;
const KIND_TERM: u8 = 2;
const KIND_WHOLE: u8 = 3;
const KIND_PIECE: u8 = 4;
const KIND_BAD: u8 = 5;
const KIND_GRANT_AS_STORED: u8 = 6;
/// The rest of the first block, behind the grant.
const FIRST_ROOM_BYTES: u64 = 3500;
/// A frame with one range.
const GROUP_ROOM_BYTES: u64 = 40;
