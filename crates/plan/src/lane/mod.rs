//! One lane as the planner sees it: its state, and what it should do.
//!
//! `pipe` holds its requests, `speed` how fast it is, `pauses` when it stood still. What follows
//! from several of them is here.
//!
//! States: `Opening` → `Up` → `Closing`; an `Up` or `Opening` lane may be lost at any time.

mod pace;
mod pauses;
mod pipe;
mod speed;

use swath_model::{LaneId, Requests, SwathId, Time};

pub(crate) use pace::Pace;
use pauses::Pauses;
use pipe::Pipe;
pub(crate) use pipe::Slot;
use speed::Speed;

use crate::planner::TICK_S;
use crate::source_table::SourceKey;

/// The state of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneState {
    /// Requested but not connected yet.
    Opening,
    /// Connected.
    Up,
    /// Told to close; the loss event is still to come.
    Closing,
}

/// The planner's instructions for a lane.
#[derive(Debug, Default)]
pub(crate) struct Duty {
    /// It gets nothing more and is closed when its queue is empty.
    pub parked: bool,
    /// It is closed at the end of a trimmed swath and gets nothing more.
    pub dropping: bool,
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub id: LaneId,
    pub source: SourceKey,
    pub state: LaneState,
    pub since: Time,
    pub silent: bool,
    /// It is in the planner's list of lanes that may take more.
    pub hungry: bool,
    pub duty: Duty,
    pub pipe: Pipe,
    pub speed: Speed,
    pub pauses: Pauses,
}

impl Lane {
    pub fn new(id: LaneId, source: SourceKey, now: Time) -> Self {
        Self {
            id,
            source,
            state: LaneState::Opening,
            since: now,
            silent: false,
            hungry: false,
            duty: Duty::default(),
            pipe: Pipe::default(),
            speed: Speed::new(now),
            pauses: Pauses::new(now),
        }
    }

    pub fn is_up(&self) -> bool {
        self.state == LaneState::Up
    }

    /// Returns whether it may be given more.
    pub fn is_free(&self) -> bool {
        self.is_up() && !self.silent && !self.duty.parked && !self.duty.dropping
    }

    pub fn is_idle(&self) -> bool {
        self.pipe.queue.is_empty()
    }

    pub fn connected(&mut self, now: Time, rtt_s: f64, requests: Requests) {
        self.state = LaneState::Up;
        self.since = now;
        self.speed.connected(rtt_s, requests);
        self.pauses.heard(now);
        self.pipe.pipelines = requests != Requests::OneByOne;
        self.pipe.reached = self.pipe.received;
    }

    pub fn push(&mut self, slot: Slot, now: Time) {
        if self.is_idle() {
            self.pauses.busy(now);
        }
        self.pipe.push(slot, now);
    }

    /// Records that the meter is at `total`; returns how many bytes are new.
    pub fn arrived(&mut self, now: Time, total: u64) -> u64 {
        let Lane { pipe, speed, pauses, .. } = self;
        let new_bytes = total.saturating_sub(pipe.received);
        if new_bytes == 0 {
            return 0;
        }
        pipe.settle(total);
        if !pipe.burst && !pipe.streams && total <= pipe.base {
            // The meter is read periodically: these are the last bytes of an earlier answer and say
            // nothing of the one that is due.
            pipe.received = total;
            pauses.heard(now);
            return new_bytes;
        }
        // The last bytes of an answer already handed over may show late.
        if total > pipe.base {
            // A wait between two answers is the server's work, not a limit.
            if !pipe.burst || pipe.is_between_answers() {
                speed.pace.answer_begins();
            }
            let pause_s = now.secs_since(pauses.last_progress);
            speed.arrived_after(now, pipe.received, pause_s);
        }
        if !pipe.burst {
            // The time before the first byte is the round trip, not the rate.
            let asked_at = pipe.queue.front().map(|slot| slot.asked_at);
            if let Some(asked_at) = asked_at {
                // The meter is read once a tick, so the answer may have begun that much earlier.
                speed.answer_began(now.secs_since(asked_at) - TICK_S);
            }
            let from = asked_at.map_or(now, |asked_at| asked_at.plus_secs(speed.trip_s()));
            let from = from.max(pauses.last_progress).min(now);
            let before = if pipe.streams { pipe.received } else { pipe.received.max(pipe.base) };
            speed.restart(from, before.min(total));
            pipe.burst = true;
        } else if !speed.ramping(now) {
            // In slow start bytes come in bursts a round trip apart on any link.
            pauses.note_stop(now, speed.rtt_s);
        }
        pipe.received = total;
        pipe.reached = pipe.reached.max(total);
        pauses.heard(now);
        speed.first_byte_at.get_or_insert(now);
        speed.record(now, pipe.reached);
        new_bytes
    }

    /// Returns whether it waits for its first byte: of its connection, or after an idle time.
    pub fn waits(&self) -> bool {
        match self.state {
            LaneState::Opening => true,
            LaneState::Up => !self.duty.parked && !self.pipe.burst,
            LaneState::Closing => false,
        }
    }

    /// Returns whether anything ever arrived on it.
    pub fn was_answered(&self) -> bool {
        self.speed.first_byte_at.is_some()
    }

    /// Records that the real lane has counted `total_s` of pauses so far.
    pub fn paused(&mut self, now: Time, total_s: f64) {
        self.pauses.paused(now, total_s, self.speed.trip_s());
    }

    /// Updates its rate.
    pub fn refresh_rate(&mut self, now: Time) {
        self.speed.refresh(now, !self.is_idle() && self.pipe.burst);
    }

    /// Records that `bytes` bytes wait behind a loss; returns whether that is news.
    pub fn out_of_order(&mut self, now: Time, bytes: u64) -> bool {
        if !self.pipe.out_of_order(bytes) {
            return false;
        }
        self.pauses.heard_at = now;
        if self.pipe.burst {
            self.speed.record(now, self.pipe.reached);
        }
        true
    }

    /// Returns the seconds until bytes behind a loss can be read. The lost packet is sent again
    /// within little more than a round trip. If it has not arrived by then it was lost again, which
    /// takes about as long again as it has lasted.
    pub fn hole_s(&self, now: Time) -> f64 {
        if self.pipe.out_of_order_bytes() == 0 {
            return 0.0;
        }
        let stopped_s = now.secs_since(self.pauses.last_progress);
        let repair_s = REPAIR_ROUND_TRIPS * self.speed.rtt_s;
        if stopped_s < repair_s { repair_s - stopped_s } else { stopped_s }
    }

    /// Returns the seconds until a new answer could be read, after bytes behind a loss.
    pub fn busy_s(&self, now: Time) -> f64 {
        self.backlog_s(now).max(self.hole_s(now))
    }

    /// Returns the seconds until a new answer could begin, as far as the rate is known.
    pub fn backlog_s(&self, now: Time) -> f64 {
        if self.is_idle() {
            return 0.0;
        }
        self.speed.may_need_s(self.pipe.coming_bytes(), now).unwrap_or(self.speed.rtt_s + 0.1)
    }

    /// Takes a swath off the queue after it handed over its last byte.
    pub fn finish(&mut self, swath: SwathId) -> Option<Slot> {
        let (slot, was_first) = self.pipe.finish(swath)?;
        if was_first {
            self.speed.pace.answer_begins();
        }
        Some(slot)
    }

    /// Returns the penalty for a pause in progress, in seconds.
    pub fn overdue_s(&self, now: Time) -> f64 {
        let paused_s = now.secs_since(self.pauses.heard_at);
        // If each answer is limited there is a pause in each period.
        let usual_s = self.speed.trip_s().max(self.speed.pace.pause_s());
        if paused_s > OVERDUE_ROUND_TRIPS * usual_s + OVERDUE_S { 2.0 * paused_s } else { 0.0 }
    }
}

/// Round trips until a lost packet arrives again.
const REPAIR_ROUND_TRIPS: f64 = 1.25;
/// Data comes in bursts up to a round trip apart; a pause beyond this many …
const OVERDUE_ROUND_TRIPS: f64 = 1.2;
/// … and this counts against a lane.
const OVERDUE_S: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(n: u64, start: u64, end: u64) -> Slot {
        Slot {
            swath: SwathId(n),
            start,
            end,
            asked_end: end,
            asked_at: Time::ZERO,
            delivered_to: start,
            trailing_bytes: 0,
        }
    }

    #[test]
    fn positions_follow_the_meter_over_trimmed_and_drained_swaths() {
        let mut lane = Lane::new(LaneId(0), SourceKey::first(), Time::ZERO);
        lane.connected(Time::ZERO, 0.01, Requests::Pipelined);
        lane.push(slot(0, 1000, 2000), Time::ZERO);
        lane.push(slot(1, 5000, 6000), Time::ZERO);
        lane.arrived(Time::from_millis(20), 1300);
        let at: Vec<u64> = lane.pipe.positions().map(|(_, at)| at).collect();
        assert_eq!(at, [2000, 5300]);
        assert_eq!((lane.pipe.wanted_bytes(), lane.pipe.pipe_bytes()), (700, 700));
        lane.pipe.slot_mut(SwathId(1)).unwrap().end = 5400;
        assert_eq!((lane.pipe.wanted_bytes(), lane.pipe.pipe_bytes()), (100, 700));
        lane.finish(SwathId(0)).unwrap();
        lane.finish(SwathId(1)).unwrap();
        lane.push(slot(2, 0, 100), Time::from_millis(30));
        assert_eq!(lane.pipe.pipe_bytes(), 800, "the drained rest comes first");
        lane.arrived(Time::from_millis(40), 2050);
        assert_eq!(lane.pipe.wanted_bytes(), 50);
    }

    #[test]
    fn a_swath_that_ends_before_its_turn_is_drained_in_its_turn() {
        let mut lane = Lane::new(LaneId(0), SourceKey::first(), Time::ZERO);
        lane.connected(Time::ZERO, 0.01, Requests::Pipelined);
        for n in 0..3 {
            lane.push(slot(n, 1000 * n, 1000 * n + 1000), Time::ZERO);
        }
        lane.finish(SwathId(1)).unwrap();
        lane.arrived(Time::from_millis(20), 500);
        let at: Vec<u64> = lane.pipe.positions().map(|(_, at)| at).collect();
        assert_eq!(at, [500, 2000], "the first is not set back, the third waits behind the second");
        lane.arrived(Time::from_millis(40), 2100);
        assert_eq!(lane.pipe.positions().last().unwrap().1, 2100);
    }

    #[test]
    fn a_request_that_was_never_sent_is_not_waited_for() {
        let mut lane = Lane::new(LaneId(0), SourceKey::first(), Time::ZERO);
        lane.connected(Time::ZERO, 0.01, Requests::Pipelined);
        lane.push(slot(0, 0, 1000), Time::ZERO);
        lane.finish(SwathId(0)).unwrap();
        lane.push(slot(1, 5000, 9000), Time::ZERO);
        assert_eq!(lane.pipe.pipe_bytes(), 5000);
        lane.pipe.slot_mut(SwathId(1)).unwrap().delivered_to = 6000;
        lane.arrived(Time::from_millis(20), 1200);
        assert_eq!(lane.pipe.pipe_bytes(), 3000);
    }

    #[test]
    fn what_still_passes_for_nobody_is_not_taken_for_the_next_answer() {
        // The lane then seemed to have brought everything while its last bytes were on their way:
        // nobody asked for them elsewhere, and at the end everybody waited.
        let mut lane = Lane::new(LaneId(0), SourceKey::first(), Time::ZERO);
        lane.connected(Time::ZERO, 0.01, Requests::Pipelined);
        lane.push(slot(0, 0, 1000), Time::ZERO);
        lane.finish(SwathId(0)).unwrap();
        lane.push(slot(1, 5000, 9000), Time::ZERO);
        lane.arrived(Time::from_millis(20), 400);
        assert_eq!((lane.pipe.pipe_bytes(), lane.pipe.wanted_bytes()), (4600, 4000));
    }
}
