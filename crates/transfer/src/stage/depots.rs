//! The state of each depot while a file is staged, and the copies that they hold together.

use std::time::Duration;

use crate::reason::{Reason, Why};
use swath_model::{Range, RangeSet, SourceName};
use swath_source::{DepotError, DepotLease, display_name};
use tokio::time::Instant;
use url::Url;

use super::StagedDepot;
use super::depot_fetch::Mirrors;
use crate::observe::{Event, Observer, SourceState};
use swath_model::units;

/// A relay's depot.
pub(super) struct Depot {
    pub relay: Url,
    /// Its name as shown to users.
    pub name: String,
    pub lease: Option<DepotLease>,
    /// How long the lease still runs.
    pub left: Duration,
    /// Its free space before any lease, if it has reported that.
    pub free_bytes: Option<u64>,
    /// Bytes that it holds, as far as it has reported.
    pub held: RangeSet,
    pub rtt: Duration,
    /// Rate of its last completed fetch.
    pub pace_bytes_per_s: Option<f64>,
    pub mirrors: Mirrors,
    pub condition: Condition,
    /// Since when it returns only errors.
    pub failing_since: Option<Instant>,
    /// The last error.
    pub failure: Option<DepotError>,
}

/// Whether a depot can take more.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    Usable,
    /// It has no room for more; its bytes count.
    Full(Why),
    /// It cannot be used; its bytes count if it confirms them.
    Lost(Why),
}

impl Condition {
    pub fn reason(&self) -> Option<&Why> {
        match self {
            Condition::Usable => None,
            Condition::Full(reason) | Condition::Lost(reason) => Some(reason),
        }
    }
}

impl Depot {
    pub fn new(relay: Url) -> Depot {
        Depot {
            name: display_name(&relay),
            relay,
            lease: None,
            left: Duration::ZERO,
            free_bytes: None,
            held: RangeSet::new(),
            rtt: Duration::ZERO,
            pace_bytes_per_s: None,
            mirrors: Mirrors::default(),
            condition: Condition::Usable,
            failing_since: None,
            failure: None,
        }
    }

    /// Returns its staged bytes, if it has a lease.
    pub fn staged(&self) -> Option<StagedDepot> {
        let lease = self.lease.as_ref()?;
        Some(StagedDepot {
            relay: self.relay.clone(),
            read: lease.read.clone(),
            manage: lease.manage.clone(),
            held: self.held.clone(),
            left: self.left,
            reason: self.condition.reason().map(Why::to_string),
        })
    }

    /// Returns whether it may be asked to fetch.
    pub fn is_usable(&self) -> bool {
        self.lease.is_some() && self.condition == Condition::Usable
    }

    /// Changes its condition, if it was usable, and tells the observer.
    pub fn tell(
        &mut self,
        at: usize,
        condition: Condition,
        began: Instant,
        observer: &mut dyn Observer,
    ) {
        if self.condition != Condition::Usable {
            return;
        }
        let reason = condition.reason().map(Why::to_string);
        self.condition = condition;
        let at_s = began.elapsed().as_secs_f64();
        let (source, name, state) = (at as u32, SourceName::direct(&self.name), SourceState::Bad);
        observer.observe(&Event::Source { at_s, source, name, state, reason });
    }
}

/// Returns the bytes with at least one copy, with at least two, and so on.
pub(super) fn copies<'a>(
    held: impl Iterator<Item = &'a RangeSet>,
    replicas: usize,
) -> Vec<RangeSet> {
    let mut layers = vec![RangeSet::new(); replicas];
    for held in held {
        let mut carried = held.clone();
        for layer in &mut layers {
            let twice: RangeSet = carried.iter().flat_map(|range| both(layer, range)).collect();
            layer.union_with(&carried);
            carried = twice;
        }
    }
    layers
}

fn both(set: &RangeSet, range: Range) -> Vec<Range> {
    set.within(range).collect()
}

/// Returns the bytes with fewer than `replicas` copies.
pub(super) fn lacking(depots: &[Depot], replicas: usize, size_bytes: u64) -> RangeSet {
    let mut lacking = RangeSet::full(size_bytes);
    if let Some(enough) = copies(depots.iter().map(|depot| &depot.held), replicas).last() {
        lacking.subtract(enough);
    }
    lacking
}

/// Returns the room of all depots, if that is less than all copies need. Each takes the file once
/// at most. Depots that have not reported may have enough, and unusable ones have none.
pub(super) fn too_little_room(depots: &[Depot], replicas: usize, size_bytes: u64) -> Option<u64> {
    // Depots count in blocks and take whole ones.
    let wanted_bytes = size_bytes.next_multiple_of(BLOCK_BYTES);
    let free = |free: u64| (free - free % BLOCK_BYTES).min(wanted_bytes);
    let room = depots.iter().map(|depot| match depot.condition {
        Condition::Usable => depot.free_bytes.map_or(wanted_bytes, free),
        _ => 0,
    });
    let room_bytes = room.fold(0, u64::saturating_add);
    (room_bytes < wanted_bytes.saturating_mul(replicas as u64)).then_some(room_bytes)
}

/// Returns the room of each depot, as reasons.
pub(super) fn rooms(depots: &[Depot]) -> Vec<Reason> {
    let why = |depot: &Depot| match (depot.condition.reason(), depot.free_bytes) {
        (Some(reason), _) => reason.clone(),
        (None, Some(free_bytes)) => format!("it has {} free", units::bytes(free_bytes)).into(),
        (None, None) => "it does not report its free space".into(),
    };
    depots.iter().map(|depot| Reason::of_depot(&depot.name, why(depot))).collect()
}

/// Returns a reason for each depot; `else_` makes that of a depot without a failure.
pub(super) fn reasons(depots: &[Depot], else_: impl Fn(&Depot) -> String) -> Vec<Reason> {
    let why = |depot: &Depot| match (depot.condition.reason(), &depot.failure) {
        (Some(reason), _) => reason.clone(),
        (None, Some(failure)) => failure.clone().into(),
        (None, None) => else_(depot).into(),
    };
    depots.iter().map(|depot| Reason::of_depot(&depot.name, why(depot))).collect()
}

/// Block size of depots.
pub(super) const BLOCK_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_each_can_take_of_one_copy() {
        let depots = |free: &[Option<u64>]| {
            let depot = |free_bytes: &Option<u64>| {
                let relay = Url::parse("http://r").unwrap();
                Depot { free_bytes: *free_bytes, ..Depot::new(relay) }
            };
            free.iter().map(depot).collect::<Vec<_>>()
        };
        const B: u64 = BLOCK_BYTES;
        let blocks = |free: &[Option<u64>], copies| {
            let free: Vec<_> = free.iter().map(|free| free.map(|blocks| blocks * B)).collect();
            too_little_room(&depots(&free), copies, 100 * B)
        };
        let lacks = |free: &[Option<u64>], copies| blocks(free, copies).map(|bytes| bytes / B);
        assert_eq!(lacks(&[Some(40), Some(60)], 1), None);
        assert_eq!(lacks(&[Some(40), Some(59)], 1), Some(99));
        assert_eq!(lacks(&[Some(900), Some(99)], 2), Some(199), "a copy lies in one depot once");
        assert_eq!(lacks(&[Some(900), Some(99), Some(1)], 2), None);
        assert_eq!(lacks(&[None, Some(0)], 1), None, "it may have enough");
        assert_eq!(lacks(&[None, Some(0)], 2), Some(100));
        // A file that ends within a block takes all of it.
        assert_eq!(too_little_room(&depots(&[Some(60_000_000)]), 1, 60_000_000), Some(59_998_208));
        assert_eq!(too_little_room(&depots(&[Some(60_002_304)]), 1, 60_000_000), None);
        let mut lost = depots(&[None, Some(50)]);
        lost[0].condition = Condition::Lost("gone".into());
        assert_eq!(too_little_room(&lost, 1, 100), Some(0));
        let told = rooms(&lost).into_iter().map(|it| it.why.to_string()).collect::<Vec<_>>();
        assert_eq!(told, ["gone", "it has 50 B free"]);
    }

    #[test]
    fn copies_are_those_that_a_naive_count_finds() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..300 {
            let size = random.u64(1..40);
            let mut held = Vec::new();
            for _ in 0..random.usize(0..5) {
                let mut set = RangeSet::new();
                for _ in 0..random.usize(0..5) {
                    let start = random.u64(..size);
                    set.insert(Range::new(start, random.u64(start..=size)));
                }
                held.push(set);
            }
            let replicas = random.usize(1..4);
            let layers = copies(held.iter(), replicas);
            assert_eq!(layers.len(), replicas);
            for at in 0..size {
                let count = held.iter().filter(|set| set.contains(at)).count();
                for (layer, set) in layers.iter().enumerate() {
                    assert_eq!(set.contains(at), count > layer, "byte {at}, layer {layer}");
                }
            }
        }
    }
}
