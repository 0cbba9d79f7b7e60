//! What comes to nothing, and what it means for its source: swaths, lanes, whole sources, and
//! servers that allow one connection or a few.

use swath_model::{LaneId, Range, SourceId, SwathId, Time};

use crate::event::Loss;
use crate::planner::Planner;
use crate::view::SourceStatus;

impl Planner {
    pub(crate) fn swath_failed(&mut self, swath: SwathId, loss: Loss, now: Time) {
        let Some(id) = self.swaths.remove(&swath) else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let source = lane.source;
        let was_answered = lane.was_answered();
        lane.last_progress = now;
        lane.heard_at = now;
        let slot = lane.remove(swath);
        // It has answered, if only to refuse.
        self.speaks(id);
        if let Some(slot) = slot {
            self.give_back(Range::new(slot.delivered_to, slot.end));
        }
        if self.is_one_too_many(id, loss) {
            self.do_without(source, loss, now);
            self.close(id);
        } else if loss.is_break() && !was_answered && self.has_answered_lane(source) {
            self.turn_away(source, now);
            self.close(id);
        } else {
            self.charge(source, loss, now);
            if let Some(source) = self.sources.get_mut(source.index()) {
                source.quiet_until = source.retry_at;
            }
            self.make_hungry(id);
        }
        self.next_tick = now;
    }

    pub(crate) fn lane_lost(&mut self, id: LaneId, loss: Loss, now: Time) {
        let spare = self.is_one_too_many(id, loss);
        let Some(lane) = self.lanes.remove(&id) else { return };
        if let Some(source) = self.sources.get_mut(lane.source.index()) {
            source.lanes.retain(|&other| other != id);
            if lane.dropping {
                source.cut_short(now);
            }
            source.lane_rate = lane.rate.or(source.lane_rate);
        }
        for slot in &lane.queue {
            self.swaths.remove(&slot.swath);
        }
        for range in lane.undelivered() {
            self.give_back(range);
        }
        // Closed in good order, but without the answer that it owed: not to be tried for ever.
        let unanswered = lane.first_byte_at.is_none() && !lane.queue.is_empty() && !lane.dropping;
        let loss = if loss == Loss::Clean && unanswered { Loss::Broken } else { loss };
        if spare || (loss.is_break() && unanswered && self.delivers(lane.source)) {
            self.do_without(lane.source, loss, now);
        } else if loss.is_break() && unanswered && self.has_answered_lane(lane.source) {
            self.turn_away(lane.source, now);
        } else {
            self.charge(lane.source, loss, now);
        }
        self.next_tick = now;
    }

    fn turn_away(&mut self, id: SourceId, now: Time) {
        let jitter = self.rng.f64();
        if let Some(source) = self.sources.get_mut(id.index()) {
            source.turned_away(now, jitter);
        }
    }

    fn charge(&mut self, id: SourceId, loss: Loss, now: Time) {
        let jitter = self.rng.f64();
        let Some(source) = self.sources.get_mut(id.index()) else { return };
        source.lost(loss, now, jitter, self.config.give_up_s);
        if loss != Loss::Clean {
            source.tuner.reset(now);
        }
        if source.status == SourceStatus::Bad {
            self.source_bad(id, now);
        }
    }

    pub(crate) fn source_bad(&mut self, id: SourceId, now: Time) {
        let Some(source) = self.sources.get_mut(id.index()) else { return };
        source.status = SourceStatus::Bad;
        for lane in source.lanes.clone() {
            self.close(lane);
        }
        self.next_tick = now;
    }

    /// Whether a lane that comes to nothing is one more than its server allows: it has brought
    /// nothing, and another one of its source does.
    fn is_one_too_many(&self, id: LaneId, loss: Loss) -> bool {
        let Some(lane) = self.lanes.get(&id) else { return false };
        (loss.is_break() || matches!(loss, Loss::Busy(_)))
            && !lane.was_answered()
            && self.delivers(lane.source)
    }

    /// Whether one of its lanes is delivering, where there may be several.
    fn delivers(&self, source: SourceId) -> bool {
        self.manners.tunes_lanes && self.has_answered_lane(source)
    }

    fn has_answered_lane(&self, source: SourceId) -> bool {
        self.lanes.values().any(|lane| {
            // Where each answer is limited, servers pause for a second.
            let lives = !lane.silent || self.clock.secs_since(lane.heard_at) < PAUSE_BORNE_S;
            lane.source == source && lane.is_up() && lives && lane.was_answered()
        })
    }

    /// The source goes on with the lanes that work, and nothing is held against it; only new lanes
    /// must wait if it asked for patience.
    fn do_without(&mut self, id: SourceId, loss: Loss, now: Time) {
        let working = self
            .lanes
            .values()
            .filter(|lane| lane.source == id && lane.is_up() && lane.was_answered())
            .count() as u32;
        if let Some(source) = self.sources.get_mut(id.index()) {
            if let Loss::Busy(wish) = loss {
                source.busy_until = source.busy_until.max(now + wish);
                source.retry_at = source.retry_at.max(source.busy_until);
            }
            let said = matches!(loss, Loss::Busy(_));
            // A connection that has just been closed may still count there.
            let working = working.max(source.served_most).max(1);
            source.tuner.refused(working, said, now);
        }
    }
}

/// A lane that has brought something within this time counts as one that delivers.
const PAUSE_BORNE_S: f64 = 2.0;
