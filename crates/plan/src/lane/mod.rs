//! One lane as the planner sees it: what was asked for on it and how far it has come.
//!
//! A lane answers in the order of asking. `received` is the meter of the real lane (every body
//! byte, drained ones too); the first slot began when it stood at `base`, so positions follow
//! from arithmetic and need no event per read.
//!
//! States: `Opening` → `Up` → `Closing`; an `Up` or `Opening` lane may be lost at any time.

mod hole;
mod pace;

use std::collections::VecDeque;

use swath_model::{LaneId, Range, SwathId, Time};

pub(crate) use pace::Pace;
use pace::PaceMeter;

use crate::planner::TICK_S;
use crate::rate::RateWindow;
use crate::source_table::SourceKey;

/// Where a lane is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneState {
    /// Asked for, not connected yet.
    Opening,
    /// Connected.
    Up,
    /// Told to close; its loss is awaited.
    Closing,
}

/// One swath on a lane.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub swath: SwathId,
    pub start: u64,
    /// Where it ends now, after trimming.
    pub end: u64,
    /// Where the request ends that was sent.
    pub asked_end: u64,
    pub asked_at: Time,
    /// Everything before this was delivered by this slot (or was here already).
    pub delivered_to: u64,
    /// Behind its own bytes so many of swaths that ended before their turn must pass.
    pub trailing_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub id: LaneId,
    pub source: SourceKey,
    pub state: LaneState,
    pub since: Time,
    pub rtt_s: f64,
    /// From a request on an idle lane to the first byte of its answer, where that is much longer
    /// than the round trip: a server that fetches from tape, or asks others first.
    pub answer_s: f64,
    pub pipelines: bool,
    pub queue: VecDeque<Slot>,
    pub received: u64,
    /// The same with what waits behind a loss.
    reached: u64,
    /// When it last grew.
    pub heard_at: Time,
    /// Sum of the sender's pauses while it owed something, in seconds.
    pub paused_s: f64,
    /// What the real lane's count of pauses was when last heard of, ours included.
    pauses_told_s: f64,
    /// Since when something has been asked for without a gap.
    busy_since: Time,
    base: u64,
    /// Everything before `base` has passed: what began the queue was delivered to its end.
    settled: bool,
    /// Where the meter stood when the whole-file answer began.
    stream_base: u64,
    window: RateWindow,
    /// How its server limits each answer, if it does.
    pace: PaceMeter,
    /// Rate at the last tick, kept through idle times.
    pub rate: Option<f64>,
    /// The rate, falling only slowly: what the lane may well bring again. Lanes that share a link
    /// swing against each other, and one that is asked for little in its low ebb stays there.
    held_rate: f64,
    rated_at: Time,
    /// Rate at the tick before, to see whether it still climbs.
    pub peak_rate: f64,
    pub first_byte_at: Option<Time>,
    /// Last byte, or the moment when waiting for one began.
    pub last_progress: Time,
    /// How long it stood still at a time lately; fades.
    pub stop_s: f64,
    pub silent: bool,
    /// Gets nothing more; closed when its queue is empty.
    pub parked: bool,
    /// It will be given up at the end of a trimmed swath: gets nothing more.
    pub dropping: bool,
    /// Every answer is the whole file: what lies before a range has to be skipped.
    pub streams: bool,
    /// What its sender may have under way, as it was told.
    pub window_bytes: Option<u64>,
    /// Bytes received since the queue was last empty.
    burst: bool,
    /// When it was asked while it was idle, as long as that has not been answered.
    asked_idle_at: Option<Time>,
    pub served: u32,
    /// Waits in the planner's list of lanes that may take more.
    pub hungry: bool,
}

impl Lane {
    pub fn new(id: LaneId, source: SourceKey, now: Time) -> Self {
        Self {
            id,
            source,
            state: LaneState::Opening,
            since: now,
            rtt_s: 0.1,
            answer_s: 0.0,
            pipelines: true,
            queue: VecDeque::new(),
            received: 0,
            reached: 0,
            heard_at: now,
            paused_s: 0.0,
            pauses_told_s: 0.0,
            busy_since: now,
            base: 0,
            settled: false,
            window: RateWindow::new(0.4),
            pace: PaceMeter::default(),
            rate: None,
            held_rate: 0.0,
            rated_at: now,
            peak_rate: 0.0,
            first_byte_at: None,
            last_progress: now,
            stop_s: 0.0,
            silent: false,
            parked: false,
            dropping: false,
            streams: false,
            window_bytes: None,
            stream_base: 0,
            burst: false,
            asked_idle_at: None,
            served: 0,
            hungry: false,
        }
    }

    pub fn is_up(&self) -> bool {
        self.state == LaneState::Up
    }

    pub fn connected(&mut self, now: Time, rtt_s: f64, pipelines: bool) {
        self.state = LaneState::Up;
        self.since = now;
        self.rtt_s = rtt_s.clamp(0.000_05, 10.0);
        self.pipelines = pipelines;
        self.last_progress = now;
        self.heard_at = now;
        self.reached = self.received;
        // A long route delivers in bursts a round trip apart: the window must hold one.
        self.window.resize((1.2 * self.rtt_s).clamp(WINDOW_MIN_S, WINDOW_MAX_S));
    }

    pub fn push(&mut self, slot: Slot, now: Time) {
        if self.queue.is_empty() {
            self.busy_since = now;
            self.last_progress = now;
            self.heard_at = now;
            self.reached = self.received;
            self.burst = false;
            self.asked_idle_at = Some(now);
        }
        if self.streams && slot.start < self.stream_at() {
            // It has passed already: the answer begins anew.
            self.stream_base = self.received;
        }
        self.queue.push_back(slot);
    }

    /// The meter stands at `total`; returns how many bytes are new.
    pub fn arrived(&mut self, now: Time, total: u64) -> u64 {
        let new_bytes = total.saturating_sub(self.received);
        if new_bytes == 0 {
            return 0;
        }
        if std::mem::take(&mut self.settled) {
            // What was thought to pass for nobody before that may never have been sent.
            self.base = self.base.min(total);
        }
        if let Some(front) = self.queue.front().filter(|front| front.delivered_to > front.start)
            && !self.streams
        {
            // What was thought to pass for nobody before this may never have been sent.
            self.base = self.base.min(total.saturating_sub(front.delivered_to - front.start));
        }
        if !self.burst && !self.streams && total <= self.base {
            // The meter is read now and then: these are the last bytes of what came before, and
            // say nothing of the answer that is waited for.
            self.received = total;
            self.last_progress = now;
            self.heard_at = now;
            return new_bytes;
        }
        self.look_at_pace(now, total);
        if !self.burst {
            // The time before the first byte is the round trip, not the rate.
            if let Some(slot) = self.queue.front() {
                // The meter is read once a look, so the answer may have begun that much earlier.
                let waited_s = now.secs_since(slot.asked_at) - TICK_S;
                self.answer_s = if waited_s > self.answer_s {
                    waited_s
                } else {
                    0.5 * (self.answer_s + waited_s)
                };
            }
            let trip_s = self.trip_s();
            let from = self.queue.front().map_or(now, |slot| slot.asked_at.plus_secs(trip_s));
            let from = from.max(self.last_progress).min(now);
            let before = if self.streams { self.received } else { self.received.max(self.base) };
            self.window.restart(from, before.min(total));
            self.burst = true;
        } else {
            self.note_stop(now);
        }
        self.received = total;
        self.reached = self.reached.max(total);
        self.last_progress = now;
        self.heard_at = now;
        self.first_byte_at.get_or_insert(now);
        self.window.record(now, self.reached);
        new_bytes
    }

    /// What has come on it so far, wanted or not.
    pub fn brought_bytes(&self) -> u64 {
        self.received
    }

    /// Whether it is on its way to its first byte: of its connection, or after an idle time.
    pub fn waits(&self) -> bool {
        match self.state {
            LaneState::Opening => true,
            LaneState::Up => !self.parked && !self.burst,
            LaneState::Closing => false,
        }
    }

    /// Whether anything ever came on it.
    pub fn was_answered(&self) -> bool {
        self.first_byte_at.is_some()
    }

    /// How long its server took to begin the answer to a request on the idle lane, once. Answers
    /// that follow on one another say nothing of that.
    pub fn answer_took_s(&mut self, now: Time) -> Option<f64> {
        if self.awaits_answer() {
            return None;
        }
        self.asked_idle_at.take().map(|at| now.secs_since(at))
    }

    /// Whether the answer that is due now has not begun.
    pub fn awaits_answer(&self) -> bool {
        self.positions().next().is_some_and(|(slot, at)| at == slot.start && at < slot.asked_end)
    }

    /// The real lane has counted `total_s` of pauses so far. A pause in which we asked for nothing,
    /// or waited for the answer to begin, is none of the sender's.
    pub fn paused(&mut self, now: Time, total_s: f64) {
        let pause_s = (total_s - self.pauses_told_s).max(0.0);
        self.pauses_told_s = self.pauses_told_s.max(total_s);
        let owed_s = (now.secs_since(self.busy_since) - self.trip_s()).max(0.0);
        self.paused_s += pause_s.min(owed_s);
    }

    /// What a request costs before its answer begins.
    pub fn trip_s(&self) -> f64 {
        self.rtt_s.max(self.answer_s)
    }

    /// Bring `rate` up to date.
    pub fn refresh_rate(&mut self, now: Time) {
        if let Some(rate) = self.pace.likely().map(Pace::rate_bytes_per_s) {
            self.rate = Some(rate);
            (self.peak_rate, self.held_rate, self.rated_at) = (rate, rate, now);
            return;
        }
        if self.queue.is_empty() || !self.burst {
            return;
        }
        // Within less than a round trip there is a burst and a pause, and no rate.
        if self.window.span_s(now) < 0.9 * self.rtt_s {
            return;
        }
        if let Some(rate) = self.window.rate_bytes_per_s(now) {
            self.rate = Some(rate);
            self.peak_rate = self.peak_rate.max(rate);
            // The window of a short route holds several round trips, bursts and ebbs alike.
            let fade = match self.rtt_s < HOLD_FROM_S {
                true => 0.0,
                false => (-now.secs_since(self.rated_at) / (HOLD_ROUND_TRIPS * self.rtt_s)).exp(),
            };
            self.held_rate = rate.max(fade * self.held_rate);
            self.rated_at = now;
        }
    }

    /// Whether slow start may still be under way: a young lane whose rate has not fallen. (Data
    /// comes in bursts a round trip apart then, so the measured rate swings by a factor of two.)
    pub fn ramping(&self, now: Time) -> bool {
        if self.pace.found().is_some() {
            return false;
        }
        match (self.first_byte_at, self.rate) {
            (Some(at), Some(rate)) => {
                now.secs_since(at) < (RAMP_ROUND_TRIPS * self.rtt_s).min(RAMP_MAX_S)
                    && rate >= 0.5 * self.peak_rate
            }
            _ => true,
        }
    }

    /// How long this lane needs for `bytes` more bytes, `None` while its rate is unknown. In slow
    /// start the rate doubles every round trip, so `k` round trips bring `(2^k - 1)` times what
    /// one brings now.
    pub fn needs_s(&self, bytes: u64, now: Time) -> Option<f64> {
        let rate = self.rate?.max(1.0);
        let steady_s = bytes as f64 / rate;
        if !self.ramping(now) {
            return Some(steady_s);
        }
        Some(steady_s.min(self.rtt_s * (1.0 + steady_s / self.rtt_s).log2()))
    }

    /// As [`Lane::needs_s`], by the rate that the lane held lately if that is higher: for whoever
    /// must not take a low ebb between two bursts for a slow lane.
    pub fn may_need_s(&self, bytes: u64, now: Time) -> Option<f64> {
        let held_s = bytes as f64 / self.held_rate.max(1.0);
        Some(self.needs_s(bytes, now)?.min(held_s))
    }

    /// How many bytes this lane may bring in `seconds`: the inverse of [`Lane::may_need_s`].
    pub fn brings_bytes(&self, seconds: f64, now: Time) -> f64 {
        let rate = self.rate.unwrap_or(0.0);
        if !self.ramping(now) {
            return rate.max(self.held_rate) * seconds;
        }
        let doublings = (seconds / self.rtt_s).min(DOUBLINGS_MAX);
        rate * seconds.max(self.rtt_s * (doublings.exp2() - 1.0))
    }

    /// Where each slot stands by the meter: calls `each(slot, position)`.
    pub fn positions(&self) -> impl Iterator<Item = (&Slot, u64)> + '_ {
        let mut available = self.received.saturating_sub(self.base);
        let streams_at = self.streams.then(|| self.stream_at());
        self.queue.iter().map(move |slot| {
            let length = slot.asked_end - slot.start;
            let taken = available.min(length);
            available = (available - taken).saturating_sub(slot.trailing_bytes);
            let by_meter = match streams_at {
                Some(at) => at.clamp(slot.start, slot.asked_end),
                None => slot.start + taken,
            };
            (slot, by_meter.max(slot.delivered_to))
        })
    }

    /// How far a whole-file answer has come.
    pub fn stream_at(&self) -> u64 {
        self.received - self.stream_base
    }

    /// Bytes that must be skipped before the first swath begins.
    pub fn ahead_bytes(&self) -> u64 {
        match self.queue.front() {
            Some(slot) if self.streams => slot.start.saturating_sub(self.stream_at()),
            _ => 0,
        }
    }

    /// Bytes that pass for nobody before the next wanted one.
    pub fn drain_bytes(&self) -> u64 {
        let mut drain_bytes = self.base.saturating_sub(self.received);
        for (slot, at) in self.positions() {
            if at < slot.end {
                break;
            }
            drain_bytes += slot.asked_end - at + slot.trailing_bytes;
        }
        drain_bytes
    }

    /// Bytes asked for, still wanted and not here.
    pub fn wanted_bytes(&self) -> u64 {
        self.positions().map(|(slot, at)| slot.end.saturating_sub(at)).sum()
    }

    /// Bytes that must still cross the wire before a new request's answer could begin.
    pub fn pipe_bytes(&self) -> u64 {
        if self.streams {
            return self.ahead_bytes() + self.wanted_bytes();
        }
        let asked: u64 =
            self.queue.iter().map(|slot| slot.asked_end - slot.start + slot.trailing_bytes).sum();
        (self.base + asked).saturating_sub(self.received)
    }

    /// Seconds until a new request's answer could begin, as far as the rate is known.
    pub fn backlog_s(&self, now: Time) -> f64 {
        if self.queue.is_empty() {
            return 0.0;
        }
        self.may_need_s(self.coming_bytes(), now).unwrap_or(self.rtt_s + 0.1)
    }

    /// A swath has handed over its last byte: takes it off the queue.
    pub fn finish(&mut self, swath: SwathId) -> Option<Slot> {
        let at = self.queue.iter().position(|slot| slot.swath == swath)?;
        let slot = self.queue.remove(at)?;
        self.leave(at, slot.asked_end - slot.start + slot.trailing_bytes);
        self.settled = at == 0 && slot.delivered_to == slot.asked_end && slot.trailing_bytes == 0;
        self.served += 1;
        if at == 0 {
            self.pace.answer_begins();
        }
        Some(slot)
    }

    /// `bytes` that belonged to the swath at `at` still pass, for nobody.
    fn leave(&mut self, at: usize, bytes: u64) {
        self.settled &= bytes == 0;
        match at.checked_sub(1).and_then(|before| self.queue.get_mut(before)) {
            Some(before) => before.trailing_bytes += bytes,
            None => self.base += bytes,
        }
    }

    /// A swath's answer was no use and brought no body.
    pub fn remove(&mut self, swath: SwathId) -> Option<Slot> {
        let at = self.queue.iter().position(|slot| slot.swath == swath)?;
        let slot = self.queue.remove(at)?;
        self.leave(at, slot.trailing_bytes);
        Some(slot)
    }

    pub fn slot_mut(&mut self, swath: SwathId) -> Option<&mut Slot> {
        self.queue.iter_mut().find(|slot| slot.swath == swath)
    }

    /// The parts that are asked for and not yet delivered, by what is really in our hands.
    pub fn undelivered(&self) -> Vec<Range> {
        self.queue
            .iter()
            .map(|slot| Range::new(slot.delivered_to, slot.end))
            .filter(|r| !r.is_empty())
            .collect()
    }

    /// What a pause that the lane is in counts against it.
    pub fn overdue_s(&self, now: Time) -> f64 {
        let paused_s = now.secs_since(self.heard_at);
        // Where each answer is limited there is a pause in each period.
        let usual_s = self.trip_s().max(self.pause_s());
        if paused_s > OVERDUE_ROUND_TRIPS * usual_s + OVERDUE_S { 2.0 * paused_s } else { 0.0 }
    }

    /// After how long without a byte this lane counts as silent.
    pub fn silence_s(&self) -> f64 {
        let patience_s = if self.first_byte_at.is_some() { SILENCE_MIN_S } else { SILENCE_FIRST_S };
        let answer_s = self.answer_s.min(SILENCE_ANSWER_S);
        patience_s.max(3.0 * self.rtt_s.max(answer_s)).max(SILENCE_PERIODS * self.pause_s())
    }
}

/// From 10 packets to 4 MiB a window doubles eight times; two more for the handshake's aftermath.
const RAMP_ROUND_TRIPS: f64 = 10.0;
/// Longer than this nothing counts as slow start.
const RAMP_MAX_S: f64 = 6.0;
/// From this round trip on the rate of a lane is held through its ebbs.
const HOLD_FROM_S: f64 = 0.15;
/// The held rate falls to a third within this many round trips.
const HOLD_ROUND_TRIPS: f64 = 2.5;
/// Slow start is not extrapolated further than this: 64 times the rate of now.
const DOUBLINGS_MAX: f64 = 6.0;
/// Shortest window: shorter ones mistake the bursts of pacing for changes of the rate.
const WINDOW_MIN_S: f64 = 0.3;
/// Longest window: longer ones notice a throttle too late even on the longest routes.
const WINDOW_MAX_S: f64 = 1.5;
/// A repaired loss stops a stream for about a round trip, a lost repair for 200 ms and more.
const SILENCE_MIN_S: f64 = 0.15;
/// Where each answer is limited, so many pauses without a byte are a silence.
const SILENCE_PERIODS: f64 = 2.5;
/// An answer that came late says little of pauses within answers: no more than this of it counts.
const SILENCE_ANSWER_S: f64 = 0.4;
/// The first answer of a connection may need work at the server (opening, authorisation).
const SILENCE_FIRST_S: f64 = 0.6;
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
        lane.connected(Time::ZERO, 0.01, true);
        lane.push(slot(0, 1000, 2000), Time::ZERO);
        lane.push(slot(1, 5000, 6000), Time::ZERO);
        lane.arrived(Time::from_millis(20), 1300);
        let at: Vec<u64> = lane.positions().map(|(_, at)| at).collect();
        assert_eq!(at, [2000, 5300]);
        assert_eq!((lane.wanted_bytes(), lane.pipe_bytes()), (700, 700));
        lane.slot_mut(SwathId(1)).unwrap().end = 5400;
        assert_eq!((lane.wanted_bytes(), lane.pipe_bytes()), (100, 700));
        lane.finish(SwathId(0)).unwrap();
        lane.finish(SwathId(1)).unwrap();
        lane.push(slot(2, 0, 100), Time::from_millis(30));
        assert_eq!(lane.pipe_bytes(), 800, "the drained rest comes first");
        lane.arrived(Time::from_millis(40), 2050);
        assert_eq!(lane.wanted_bytes(), 50);
    }

    #[test]
    fn a_swath_that_ends_before_its_turn_is_drained_in_its_turn() {
        let mut lane = Lane::new(LaneId(0), SourceKey::first(), Time::ZERO);
        lane.connected(Time::ZERO, 0.01, true);
        for n in 0..3 {
            lane.push(slot(n, 1000 * n, 1000 * n + 1000), Time::ZERO);
        }
        lane.finish(SwathId(1)).unwrap();
        lane.arrived(Time::from_millis(20), 500);
        let at: Vec<u64> = lane.positions().map(|(_, at)| at).collect();
        assert_eq!(at, [500, 2000], "the first is not set back, the third waits behind the second");
        lane.arrived(Time::from_millis(40), 2100);
        assert_eq!(lane.positions().last().unwrap().1, 2100);
    }

    #[test]
    fn a_request_that_was_never_sent_is_not_waited_for() {
        let mut lane = Lane::new(LaneId(0), SourceKey::first(), Time::ZERO);
        lane.connected(Time::ZERO, 0.01, true);
        lane.push(slot(0, 0, 1000), Time::ZERO);
        lane.finish(SwathId(0)).unwrap();
        lane.push(slot(1, 5000, 9000), Time::ZERO);
        assert_eq!(lane.pipe_bytes(), 5000);
        lane.slot_mut(SwathId(1)).unwrap().delivered_to = 6000;
        lane.arrived(Time::from_millis(20), 1200);
        assert_eq!(lane.pipe_bytes(), 3000);
    }

    #[test]
    fn what_still_passes_for_nobody_is_not_taken_for_the_next_answer() {
        // The lane then seemed to have brought everything while its last bytes were on their way:
        // nobody asked for them elsewhere, and at the end everybody waited.
        let mut lane = Lane::new(LaneId(0), SourceKey::first(), Time::ZERO);
        lane.connected(Time::ZERO, 0.01, true);
        lane.push(slot(0, 0, 1000), Time::ZERO);
        lane.finish(SwathId(0)).unwrap();
        lane.push(slot(1, 5000, 9000), Time::ZERO);
        lane.arrived(Time::from_millis(20), 400);
        assert_eq!((lane.pipe_bytes(), lane.wanted_bytes()), (4600, 4000));
    }
}
