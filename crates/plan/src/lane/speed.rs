//! How fast a lane is: its round trip and its rate, as its server lets it be.

use swath_model::{Requests, Time};

use super::pace::{Pace, PaceMeter};
use crate::rate::RateWindow;

/// The times and rates of one lane.
#[derive(Debug)]
pub(crate) struct Speed {
    pub rtt_s: f64,
    /// The round trip now, with what waits in queues.
    queued_rtt_s: f64,
    /// From a request on an idle lane to the first byte of its answer. Much longer than the round
    /// trip if the server fetches from tape, or asks others first.
    answer_s: f64,
    pub first_byte_at: Option<Time>,
    window: RateWindow,
    /// An answer is more than a block of a peer.
    has_answers: bool,
    /// Measures how its server limits each answer, if it does.
    pub pace: PaceMeter,
    /// Rate at the last tick, kept through idle times.
    pub rate: Option<f64>,
    /// The rate, falling only slowly: what the lane may well bring again. Lanes that share a link
    /// swing against each other; one asked for little in its low ebb would stay there.
    held_rate: f64,
    rated_at: Time,
    /// The highest rate so far, to see whether the lane still climbs.
    peak_rate: f64,
}

impl Speed {
    pub(super) fn new(now: Time) -> Self {
        Self {
            rtt_s: 0.1,
            queued_rtt_s: 0.0,
            answer_s: 0.0,
            first_byte_at: None,
            window: RateWindow::new(0.4),
            has_answers: true,
            pace: PaceMeter::default(),
            rate: None,
            held_rate: 0.0,
            rated_at: now,
            peak_rate: 0.0,
        }
    }

    pub(super) fn connected(&mut self, rtt_s: f64, requests: Requests) {
        self.has_answers = requests != Requests::Blocks;
        self.rtt_s = rtt_s.clamp(0.000_05, 10.0);
        // A long route delivers in bursts a round trip apart: the window must hold one.
        self.window.resize((1.2 * self.rtt_s).clamp(WINDOW_MIN_S, WINDOW_MAX_S));
    }

    /// Records the round trip that requests and answers have now.
    pub fn note_rtt(&mut self, rtt_s: f64) {
        self.queued_rtt_s = rtt_s.min(QUEUED_RTT_MAX_S);
    }

    /// Records that an answer began `waited_s` after its request.
    pub(super) fn answer_began(&mut self, waited_s: f64) {
        self.answer_s =
            if waited_s > self.answer_s { waited_s } else { 0.5 * (self.answer_s + waited_s) };
    }

    /// Restarts the rate measurement at `from`, with the meter at `at`.
    pub(super) fn restart(&mut self, from: Time, at: u64) {
        self.window.restart(from, at);
    }

    /// Records bytes of an answer that came after a pause; the meter was at `before`.
    pub(super) fn arrived_after(&mut self, now: Time, before: u64, pause_s: f64) {
        // Between peers, pauses come from the piece that is not there yet, and from other peers.
        if self.has_answers {
            self.pace.arrived(now, before, pause_s, self.rtt_s);
        }
    }

    /// Records the meter's value.
    pub(super) fn record(&mut self, now: Time, at: u64) {
        self.window.record(now, at);
    }

    /// Returns the time from a request to the first byte of its answer.
    pub fn trip_s(&self) -> f64 {
        let trip_s = self.rtt_s.max(self.answer_s).max(self.queued_rtt_s);
        trip_s + if self.has_answers { 0.0 } else { PEER_BUSY_S }
    }

    /// Updates `rate`; `is_bringing` if an answer is coming.
    pub(super) fn refresh(&mut self, now: Time, is_bringing: bool) {
        if let Some(rate) = self.pace.likely().map(Pace::rate_bytes_per_s) {
            self.rate = Some(rate);
            (self.peak_rate, self.held_rate, self.rated_at) = (rate, rate, now);
            return;
        }
        if !is_bringing {
            return;
        }
        // Less than a round trip shows only a burst and a pause, not a rate.
        if self.window.span_s(now) < 0.9 * self.rtt_s {
            return;
        }
        if let Some(rate) = self.window.rate_bytes_per_s(now) {
            self.rate = Some(rate);
            self.peak_rate = self.peak_rate.max(rate);
            // The window of a short route holds several round trips, with bursts and ebbs.
            let fade = match self.rtt_s < HOLD_FROM_S {
                true => 0.0,
                false => (-now.secs_since(self.rated_at) / (HOLD_ROUND_TRIPS * self.rtt_s)).exp(),
            };
            self.held_rate = rate.max(fade * self.held_rate);
            self.rated_at = now;
        }
    }

    /// Returns whether slow start may still be under way: a young lane whose rate has not fallen.
    /// (Bytes come in bursts a round trip apart then, so the measured rate may double or halve.)
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

    /// Returns how long this lane needs for `bytes` more bytes, `None` while its rate is unknown.
    /// In slow start the rate doubles every round trip, so `k` round trips bring `(2^k - 1)` times
    /// what one brings now.
    pub fn needs_s(&self, bytes: u64, now: Time) -> Option<f64> {
        let rate = self.rate?.max(1.0);
        let steady_s = bytes as f64 / rate;
        if !self.ramping(now) {
            return Some(steady_s);
        }
        Some(steady_s.min(self.rtt_s * (1.0 + steady_s / self.rtt_s).log2()))
    }

    /// Returns [`Speed::needs_s`], or the time at the recently held rate if that is shorter: a low
    /// ebb between two bursts does not make a lane slow.
    pub fn may_need_s(&self, bytes: u64, now: Time) -> Option<f64> {
        let held_s = bytes as f64 / self.held_rate.max(1.0);
        Some(self.needs_s(bytes, now)?.min(held_s))
    }

    /// Returns how many bytes this lane may bring in `seconds`: inverse of [`Speed::may_need_s`].
    pub fn brings_bytes(&self, seconds: f64, now: Time) -> f64 {
        let rate = self.rate.unwrap_or(0.0);
        if !self.ramping(now) {
            return rate.max(self.held_rate) * seconds;
        }
        let doublings = (seconds / self.rtt_s).min(DOUBLINGS_MAX);
        rate * seconds.max(self.rtt_s * (doublings.exp2() - 1.0))
    }

    /// Adopts the limit of each answer that another lane of its source has found.
    pub fn assume_pace(&mut self, pace: Pace) {
        self.pace.assume(pace);
        self.rate = Some(pace.rate_bytes_per_s());
    }

    /// Returns how long this lane may bring nothing before it counts as silent.
    pub fn silence_s(&self) -> f64 {
        let patience_s = if self.first_byte_at.is_some() { SILENCE_MIN_S } else { SILENCE_FIRST_S };
        let answer_s = self.answer_s.min(SILENCE_ANSWER_S);
        patience_s.max(3.0 * self.rtt_s.max(answer_s)).max(SILENCE_PERIODS * self.pace.pause_s())
    }
}

/// A peer that serves many comes to a request only after a while, which no round trip shows.
const PEER_BUSY_S: f64 = 0.15;
/// Requests are not sent farther ahead than this, whatever waits in queues: they bind us.
const QUEUED_RTT_MAX_S: f64 = 1.0;
/// From 10 packets to 4 MiB a window doubles eight times; plus two trips after the handshake.
const RAMP_ROUND_TRIPS: f64 = 10.0;
/// Longest time that counts as slow start.
const RAMP_MAX_S: f64 = 6.0;
/// Round trip from which a lane's rate is held through its ebbs.
const HOLD_FROM_S: f64 = 0.15;
/// Round trips in which the held rate falls to a third.
const HOLD_ROUND_TRIPS: f64 = 2.5;
/// Most doublings extrapolated in slow start: 64 times the present rate.
const DOUBLINGS_MAX: f64 = 6.0;
/// Shortest window: shorter ones mistake the bursts of pacing for changes of the rate.
const WINDOW_MIN_S: f64 = 0.3;
/// Longest window: longer ones notice a throttle too late even on the longest routes.
const WINDOW_MAX_S: f64 = 1.5;
/// A repaired loss stops a stream for about a round trip, a lost repair for 200 ms and more.
const SILENCE_MIN_S: f64 = 0.15;
/// Pauses without a byte that count as silence if each answer is limited.
const SILENCE_PERIODS: f64 = 2.5;
/// Longest answer time that counts: a late answer says little of pauses within answers.
const SILENCE_ANSWER_S: f64 = 0.4;
/// Patience for a connection's first answer: the server may have to open files and authorise.
const SILENCE_FIRST_S: f64 = 0.6;
