//! The effect of a lane's error on its source and on the planner.

use std::time::Duration;

use crate::reason::Why;
use swath_model::{LaneId, Range, SourceId};
use swath_plan::{Event as PlanEvent, Loss};
use swath_source::{Class, LaneError};

use crate::executor::arrive::SHORT_LANE_PAUSE;
use crate::executor::state::Run;
use crate::observe::{Phase, SourceState};
use swath_model::units;

impl Run<'_> {
    /// Tells the planner if the host's connection limit has changed, for this file or another.
    fn follow_host(&mut self, at: usize) {
        let now = self.now();
        let Some(entry) = self.sources.get_mut(at).filter(|it| it.on_route.is_none()) else {
            return;
        };
        let serves = entry.source.limits().connections;
        if std::mem::replace(&mut entry.host_serves, serves) != serves {
            let source = SourceId(at as u32);
            self.planner.handle(PlanEvent::LaneLimit { source, lanes: serves }, now);
        }
    }

    /// Returns the planner's view of an error, and updates the source's state and reason.
    pub(crate) fn charge(&mut self, source: usize, lane: LaneId, error: &LaneError) -> Loss {
        if self.is_of_forgotten(source, error) {
            // The source is no worse for that: another pass begins.
            return Loss::Broken;
        }
        if let LaneError::NotHeld { lacking, .. } = error {
            return self.lacks(source, lacking);
        }
        if let Some(range) = self.missing_file(source, error) {
            return self.lacks(source, &[range]);
        }
        // Some servers answer 403 to a connection over their limit.
        let one_too_many = is_denial(error) && self.others_deliver(source, lane);
        self.follow_host(source);
        let Some(entry) = self.sources.get_mut(source) else { return Loss::Clean };
        entry.failures += 1;
        // A refusal after success: perhaps the server still counts a closed connection.
        let allowed_before = error.class() == Class::Forbidden
            && entry.figures.bytes > 0
            && entry.failures <= REFUSALS_BORNE;
        let pause = SHORT_LANE_PAUSE * (2 << entry.failures.min(8));
        entry.blame_route(error);
        tracing::debug!(source = %entry.source.name(), %error, "a source failed");
        // A server may be starting, but a name that never resolves is wrong.
        let never_there = matches!(error, LaneError::Dns { .. })
            && !entry.ever_up
            && entry.failures >= UNKNOWN_TRIES;
        let why = Why::from(error.clone());
        let is_news = entry.reason.as_ref() != Some(&why);
        entry.reason = Some(why);
        entry.lied |= error.class() == Class::Lying;
        let loss = match error.class() {
            Class::Busy(wait) => Loss::Busy(wait.min(PATIENCE_MAX)),
            Class::Transient if never_there => Loss::Final,
            Class::Transient if error.is_behind_relay() => Loss::Unreached,
            Class::Transient => Loss::Broken,
            Class::Unauthenticated | Class::Forbidden if one_too_many => Loss::Broken,
            Class::Forbidden if allowed_before => Loss::Busy(pause),
            // Such an answer reports the size; the code that handles it judges a wrong one.
            Class::Lying
                if matches!(error, LaneError::BeyondEnd { .. })
                    && self.coverage.size_bytes.is_none() =>
            {
                Loss::Clean
            }
            Class::Unauthenticated
            | Class::Forbidden
            | Class::Missing
            | Class::Gone
            | Class::Lying
            | Class::Unsupported => Loss::Final,
        };
        if loss == Loss::Final && !self.sources.is_bad(source) {
            self.set_state(source, SourceState::Bad, Some(error.clone().into()));
        } else if is_news && loss != Loss::Clean && self.phase == Phase::Probing {
            // While nothing comes, the user wants to know why.
            let name = self.sources[source].source.name();
            self.note(format!("{name}: {error}; trying again"), false);
        }
        loss
    }

    /// Returns the bytes of a file that a mirror of several files does not have, or has with another
    /// length. The other files may be there, unless many are missing.
    fn missing_file(&mut self, source: usize, error: &LaneError) -> Option<Range> {
        let LaneError::InFile { range, error: within, .. } = error else { return None };
        let entry = self.sources.get_mut(source)?;
        let has_another =
            matches!(**within, LaneError::SizeMismatch { .. } | LaneError::BeyondEnd { .. });
        let is_missing = has_another || within.class() == Class::Missing;
        if !is_missing || entry.files_missing >= FILES_MISSING_MAX {
            return None;
        }
        entry.files_missing += 1;
        entry.was_short = true;
        entry.reason = Some(Why::from(error.clone()));
        let lacks = if has_another { "has another version of a file" } else { "lacks a file" };
        let text = format!("{} {lacks}: {error}", entry.source.name());
        self.note(text, true);
        Some(*range)
    }

    /// Handles a depot that lacks the requested bytes, perhaps because its disk damaged them: the
    /// rest of it is as good as before.
    fn lacks(&mut self, source: usize, lacking: &[Range]) -> Loss {
        let all = Range::new(0, self.coverage.size_bytes.unwrap_or(u64::MAX));
        let (id, now) = (SourceId(source as u32), self.now());
        let Some(entry) = self.sources.get_mut(source) else { return Loss::Clean };
        // A peer may have got some of it in the meantime, and said so already.
        let held = entry.holdings.as_ref().map(|holdings| holdings.borrow().clone());
        let still = |&range: &Range| match &held {
            Some(held) => held.gaps_within(range),
            None => vec![range],
        };
        let lacking: Vec<Range> = lacking.iter().flat_map(still).collect();
        if lacking.is_empty() {
            return Loss::Clean;
        }
        // What a source has that says so by itself changes often.
        let is_news = !std::mem::replace(&mut entry.was_short, true) && entry.holdings.is_none();
        for &range in &lacking {
            entry.lacks.insert(range);
            self.planner.handle(PlanEvent::Lacks { source: id, range }, now);
        }
        let name = entry.source.name();
        if entry.lacks.covers(all) && entry.holdings.is_none() {
            let reason = "it holds nothing of the file (any more)".into();
            self.set_state(source, SourceState::Bad, Some(reason));
            return Loss::Final;
        }
        if is_news {
            let bytes = lacking.iter().map(|range| range.len()).sum();
            let text =
                format!("{name} does not hold {} of the file (any more)", units::bytes(bytes));
            self.note(text, true);
        }
        Loss::Clean
    }

    /// Returns whether other lanes of this source have brought something. (Some servers limit
    /// requests, not connections, so even a lane that has delivered may be refused.)
    fn others_deliver(&self, source: usize, lane: LaneId) -> bool {
        self.lanes
            .of_source(source)
            .any(|(id, entry)| id != lane && entry.lane.meter().body_bytes() > 0)
    }
}

/// Returns whether the server denies access.
fn is_denial(error: &LaneError) -> bool {
    matches!(error.class(), Class::Unauthenticated | Class::Forbidden)
}

/// A mirror that lacks more files is another one, or its address is wrong.
const FILES_MISSING_MAX: u32 = 16;
/// Retries of a source that has delivered and then answers 403: they take a quarter of a minute.
const REFUSALS_BORNE: u32 = 4;
/// Tries before a source whose name cannot be resolved is given up.
const UNKNOWN_TRIES: u32 = 3;
/// Longest pause that a server may ask for.
const PATIENCE_MAX: Duration = Duration::from_secs(120);
