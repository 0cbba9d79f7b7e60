//! The planner's invariants, checked from its own books: for tests and the simulator.

use swath_model::RangeSet;

use crate::planner::Planner;

/// How much the planner keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    /// Lanes open, opening or closing.
    pub lanes: usize,
    /// Swaths on them.
    pub slots: usize,
    /// Swaths known by number.
    pub swaths: usize,
    /// Disjoint ranges that nobody is asked for.
    pub open_ranges: usize,
    /// Actions not yet polled.
    pub actions: usize,
}

impl Planner {
    /// Check that every byte is delivered, open or asked for, and that the books agree with each
    /// other. Costs a walk through all of them.
    ///
    /// # Errors
    /// What does not hold.
    pub fn audit(&self) -> Result<Books, String> {
        let mut books = Books {
            lanes: self.lanes.len(),
            slots: 0,
            swaths: self.swaths.len(),
            open_ranges: self.open.count(),
            actions: self.actions.len(),
        };
        let mut unaccounted = self.undelivered.clone();
        for (name, set) in
            [("open", &self.open), ("doubtful", &self.doubtful), ("shared", &self.shared)]
        {
            for range in set.iter() {
                if self.size_bytes.is_some() && !self.undelivered.covers(range) {
                    return Err(format!("{range:?} is {name}, but delivered"));
                }
            }
        }
        unaccounted.subtract(&self.open);
        let mut asked = RangeSet::new();
        for lane in self.lanes.values() {
            books.slots += lane.queue.len();
            for slot in &lane.queue {
                if self.swaths.get(&slot.swath) != Some(&lane.id) {
                    return Err(format!(
                        "{:?} of {:?} is not known by number",
                        slot.swath, lane.id
                    ));
                }
            }
            for range in lane.undelivered() {
                asked.insert(range);
            }
            let listed = self
                .sources
                .get(lane.source.index())
                .is_some_and(|source| source.lanes.contains(&lane.id));
            if !listed {
                return Err(format!("{:?} is not listed at its source", lane.id));
            }
            if lane.hungry != self.hungry.contains(&lane.id) {
                return Err(format!(
                    "{:?} is on the list of hungry lanes by mistake or not at all",
                    lane.id
                ));
            }
        }
        unaccounted.subtract(&asked);
        if self.size_bytes.is_some() && !unaccounted.is_empty() {
            return Err(format!(
                "neither delivered, open nor asked for: {:?}",
                unaccounted.first()
            ));
        }
        for range in self.doubtful.iter() {
            if !asked.covers(range) {
                return Err(format!("{range:?} is doubtful, but nobody is asked for it"));
            }
        }
        let listed: usize = self.sources.iter().map(|source| source.lanes.len()).sum();
        if listed != self.lanes.len() {
            return Err(format!("{listed} lanes at the sources, {} in all", self.lanes.len()));
        }
        Ok(books)
    }
}
