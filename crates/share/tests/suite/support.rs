//! Books of nodes whose content has a few units, and what is told of them.

use std::time::Duration;

use swath_model::{Range, RangeSet, Time};
use swath_share::ledger::Ledger;
use swath_share::log::{Entry, NodeId, Vouch};
use swath_share::units::{Unit, Units};
use swath_transfer::{CameFrom, Judgement};

/// Enough to leave some to others.
pub const UNITS: Unit = 300;

pub fn units() -> Units {
    Units::of(u64::from(UNITS) * (256 << 10))
}

/// A node by number; ids are spread, as random ones are.
pub fn node(number: u8) -> NodeId {
    NodeId([number.wrapping_mul(151); 16])
}

/// The books of node 1.
pub fn books() -> Ledger {
    Ledger::new(units(), UNITS, node(1), 1)
}

pub fn at(seconds: f64) -> Time {
    Time::ZERO + Duration::from_secs_f64(seconds)
}

/// The hash that a unit has.
pub fn hash(unit: Unit) -> [u8; 32] {
    let mut hash = [7; 32];
    hash[..4].copy_from_slice(&unit.to_le_bytes());
    hash
}

/// What a node says that fetched this unit from the origin, and has the right bytes.
pub fn held(unit: Unit, by: u8) -> Entry {
    Entry::Held(unit, Vouch { hash: hash(unit), by: node(by) })
}

/// The same with a wrong hash.
pub fn held_wrong(unit: Unit, by: u8) -> Entry {
    Entry::Held(unit, Vouch { hash: [0; 32], by: node(by) })
}

/// The units that ranges have.
pub fn in_ranges(ranges: &RangeSet) -> Vec<Unit> {
    ranges.iter().flat_map(|range| units().around(range)).collect()
}

/// The units that a log claims and neither releases nor holds.
pub fn claimed(ledger: &Ledger) -> Vec<Unit> {
    let mut claims = std::collections::BTreeSet::new();
    for entry in ledger.log(0, usize::MAX) {
        match *entry {
            Entry::Claimed(unit) => _ = claims.insert(unit),
            Entry::Released(unit) | Entry::Held(unit, _) => _ = claims.remove(&unit),
            Entry::Cleared => claims.clear(),
        }
    }
    claims.into_iter().collect()
}

/// A node with its books, and what it has verified.
pub struct Node {
    pub ledger: Ledger,
    pub verified: RangeSet,
}

impl Node {
    pub fn new(ledger: Ledger) -> Node {
        Node { ledger, verified: RangeSet::new() }
    }

    /// A unit comes, right, from the origin or from others.
    #[track_caller]
    pub fn gets(&mut self, unit: Unit, from: CameFrom, now: Time) {
        assert_eq!(self.ledger.judge(unit, hash(unit), from), Judgement::Right);
        let range: Range = units().range(unit);
        self.verified.insert(range);
        assert!(self.ledger.verified(&self.verified, range, now).is_empty());
    }
}
