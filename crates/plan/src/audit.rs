//! Checks the planner's invariants on its own books, for tests and the simulator.

use swath_model::RangeSet;

use crate::ledger::Ledger;
use crate::planner::Planner;

/// The size of the planner's books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    /// Lanes open, opening or closing.
    pub lanes: usize,
    /// Swaths on them.
    pub slots: usize,
    /// Swaths known by number.
    pub swaths: usize,
    /// Disjoint ranges that no lane is asked for.
    pub open_ranges: usize,
    /// Sources that have not left for good.
    pub sources: usize,
    /// Actions not yet polled.
    pub actions: usize,
}

impl Planner {
    /// Checks that every byte is delivered, open or requested, and that the books are consistent.
    /// Costs a walk through all of them.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn audit(&self) -> Result<Books, String> {
        let Ledger { coverage, lanes, sources, .. } = &self.ledger;
        let mut books = Books {
            lanes: lanes.count(),
            slots: 0,
            swaths: lanes.swaths(),
            open_ranges: coverage.open.count(),
            sources: sources.count(),
            actions: self.ledger.actions.len(),
        };
        let mut unaccounted = coverage.undelivered.clone();
        for (name, set) in [
            ("open", &coverage.open),
            ("doubtful", &coverage.doubtful),
            ("shared", &coverage.shared),
        ] {
            for range in set.iter() {
                if coverage.size_bytes.is_some() && !coverage.undelivered.covers(range) {
                    return Err(format!("{range:?} is {name}, but delivered"));
                }
            }
        }
        unaccounted.subtract(&coverage.open);
        let mut asked = RangeSet::new();
        for lane in lanes.iter() {
            books.slots += lane.pipe.queue.len();
            for slot in &lane.pipe.queue {
                if lanes.lane_of(slot.swath) != Some(lane.id) {
                    return Err(format!(
                        "{:?} of {:?} is not known by number",
                        slot.swath, lane.id
                    ));
                }
            }
            for range in lane.pipe.undelivered() {
                asked.insert(range);
            }
            let source = self.ledger.source_of(lane);
            if !source.is_some_and(|source| source.lanes.contains(&lane.id)) {
                return Err(format!("{:?} is not listed at its source", lane.id));
            }
            if lane.hungry != lanes.is_listed(lane.id) {
                return Err(format!(
                    "{:?} is on the list of hungry lanes by mistake or not at all",
                    lane.id
                ));
            }
        }
        unaccounted.subtract(&asked);
        if coverage.size_bytes.is_some() && !unaccounted.is_empty() {
            return Err(format!(
                "neither delivered, open nor asked for: {:?}",
                unaccounted.first()
            ));
        }
        for range in coverage.doubtful.iter() {
            if !asked.covers(range) {
                return Err(format!("{range:?} is doubtful, but nobody is asked for it"));
            }
        }
        sources.audit(books.lanes)?;
        Ok(books)
    }
}
