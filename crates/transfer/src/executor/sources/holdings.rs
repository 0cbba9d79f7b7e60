//! Sources whose holdings change: bytes that they gain and lose, and sources that leave.
//!
//! Each turn of the main loop reads the latest value, so several changes count as one.

use std::sync::Arc;

use swath_model::{Range, SourceId};
use swath_plan::Event as PlanEvent;
use swath_source::Source;

use crate::executor::state::Run;
use crate::observe::SourceState;

impl Run<'_> {
    /// Tells the planner what sources gained and lost since the last look, and which have left.
    pub(crate) fn look_at_holdings(&mut self) {
        let all = Range::new(0, u64::MAX);
        for at in 0..self.sources.len() {
            let entry = &mut self.sources[at];
            let Some(holdings) = &mut entry.holdings else { continue };
            let changed = holdings.has_changed();
            if matches!(changed, Ok(false)) {
                continue;
            }
            let source = SourceId(at as u32);
            let held = holdings.borrow_and_update().clone();
            let lost: Vec<Range> = held
                .gaps_within(all)
                .iter()
                .flat_map(|&gap| entry.lacks.gaps_within(gap))
                .collect();
            let gained: Vec<Range> = held
                .iter()
                .flat_map(|range| entry.lacks.within(range).collect::<Vec<_>>())
                .collect();
            lost.iter().for_each(|&range| _ = entry.lacks.insert(range));
            gained.iter().for_each(|&range| _ = entry.lacks.remove(range));
            let now = self.now();
            for range in lost {
                self.planner.handle(PlanEvent::Lacks { source, range }, now);
            }
            for range in gained {
                self.planner.handle(PlanEvent::Has { source, range }, now);
            }
            if changed.is_err() {
                self.sources[at].holdings = None;
                // The connection to a banned peer is closed, too: why it was banned says more.
                if !self.sources.is_bad(at) {
                    self.set_state(at, SourceState::Bad, Some("it is no longer connected".into()));
                }
                self.planner.handle(PlanEvent::SourceLeft { source }, now);
            }
        }
    }

    /// Enters a source that was found while the transfer runs.
    pub(crate) fn source_found(&mut self, source: Option<Arc<dyn Source>>) {
        match source {
            Some(source) => {
                let number = self.sources.len();
                self.enter_replica(source, None);
                self.sources[number].is_found = true;
                if self.dataset.proves_blocks() {
                    self.sources[number].accepted = Some(true);
                }
            }
            None => self.sources.discovery = None,
        }
    }

    /// Returns whether some source may yet get the missing bytes, or be found.
    pub(crate) fn waits_for_holdings(&self) -> bool {
        if self.sources.discovery.is_some() {
            return true;
        }
        let may_grow = |at: usize| self.sources[at].holdings.is_some() && !self.sources.is_bad(at);
        (0..self.sources.len()).any(may_grow)
    }
}
