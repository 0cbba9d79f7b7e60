//! Carries out the planner's decisions.

use std::sync::Arc;
use swath_plan::{Action, Event as PlanEvent, Loss};

use swath_source::AfterTrim;

use super::Ended;
use super::lanes::{LaneEntry, SwathEntry};
use super::state::Run;
use crate::error::GetError;
use crate::observe::{Outcome, SourceState};

impl Run<'_> {
    /// Carries out one action of the planner.
    pub(super) fn act(&mut self, action: Action) -> Result<(), Ended> {
        let now = self.now();
        tracing::trace!(at_s = now.as_secs_f64(), ?action, "planned");
        match action {
            Action::OpenLane { source, lane } => {
                let Some(entry) = self.sources.get_mut(source.index()) else { return Ok(()) };
                let handle = Arc::clone(&entry.source).open_lane(
                    lane,
                    &self.engine.pool,
                    self.lanes.sender.clone(),
                );
                let first = entry.state == SourceState::Waiting;
                self.lanes.open.insert(lane, LaneEntry::new(handle, source.index(), now));
                if first {
                    self.set_state(source.index(), SourceState::Probing, None);
                }
            }
            Action::Fetch { lane, swath, range } => {
                let Some(entry) = self.lanes.open.get(&lane) else { return Ok(()) };
                let source = entry.source;
                self.lanes.swaths.insert(
                    swath,
                    SwathEntry {
                        lane,
                        source,
                        range,
                        asked_at: now,
                        first_byte_at: None,
                        delivered_to: range.start,
                        outcome: None,
                    },
                );
                if let Some(source) = self.sources.get_mut(source) {
                    source.figures.asked(now);
                }
                // A lane that has just ended reports that in its last event; the planner then gives
                // the range to another lane.
                entry.lane.fetch(swath, range);
            }
            Action::Trim { lane, swath, end, drop_lane } => {
                if let Some(entry) = self.lanes.swaths.get_mut(&swath) {
                    entry.outcome = Some(if end <= entry.delivered_to {
                        Outcome::Lost
                    } else {
                        Outcome::Trimmed
                    });
                }
                if let Some(entry) = self.lanes.open.get(&lane) {
                    entry.lane.trim(
                        swath,
                        end,
                        if drop_lane { AfterTrim::Drop } else { AfterTrim::Drain },
                    );
                }
            }
            Action::CloseLane { lane } => {
                if let Some(entry) = self.lanes.open.get(&lane) {
                    entry.lane.close();
                } else {
                    self.planner.handle(PlanEvent::LaneLost { lane, loss: Loss::Clean }, now);
                }
            }
            Action::Finished => {
                self.planner_done = true;
                self.telemetry.fetch_ended_at.get_or_insert(now);
            }
            // In a comparison, bytes that no other source can deliver stay uncompared.
            Action::Exhausted if self.comparison.running.is_some() => self.planner_done = true,
            Action::Exhausted
                if self.persistence.readable().is_some()
                    && self
                        .sources
                        .iter()
                        .all(|entry| entry.lied || entry.accepted != Some(true))
                    && self.other_version("it contradicts itself about its file") =>
            {
                return Err(Ended::Restart);
            }
            Action::Exhausted if self.persistence.sink.is_none() && self.give_up_left() => {
                return Err(Ended::Restart);
            }
            Action::Exhausted if self.lift_suspicions() => {}
            Action::Exhausted if self.waits_for_routes() || self.waits_for_holdings() => {}
            Action::Exhausted => {
                if let Some(error) = self.persistence.too_large.take() {
                    return Err(error.into());
                }
                let has_some = !self.coverage.have.is_empty();
                return Err(GetError::Exhausted { has_some, reasons: self.reasons() }.into());
            }
        }
        Ok(())
    }

    /// Starts again without the bytes received so far.
    pub(super) async fn restart(&mut self) {
        self.throw_away().await;
        self.reset_books();
    }

    /// Ends what is under way, and throws away what has come: none of it may be taken for other content.
    pub(super) async fn throw_away(&mut self) {
        self.close_lanes();
        self.jobs.forget();
        if let Some(sink) = self.persistence.sink.take() {
            sink.discard().await;
        }
    }
}
