//! How fast a lane is: its round trip, its rate, and what its server makes of both.

use swath_model::Time;

use super::pace::{Pace, PaceMeter};
use crate::rate::RateWindow;

/// The times and rates of one lane.
#[derive(Debug)]
pub(crate) struct Speed {
    pub rtt_s: f64,
    /// From a request on an idle lane to the first byte of its answer, where that is much longer
    /// than the round trip: a server that fetches from tape, or asks others first.
    answer_s: f64,
    pub first_byte_at: Option<Time>,
    window: RateWindow,
    /// How its server limits each answer, if it does.
    pub pace: PaceMeter,
    /// Rate at the last tick, kept through idle times.
    pub rate: Option<f64>,
    /// The rate, falling only slowly: what the lane may well bring again. Lanes that share a link
    /// swing against each other, and one that is asked for little in its low ebb stays there.
    held_rate: f64,
    rated_at: Time,
    /// The highest rate so far, to see whether it still climbs.
    peak_rate: f64,
}

impl Speed {
    pub(super) fn new(now: Time) -> Self {
        Self {
            rtt_s: 0.1,
            answer_s: 0.0,
            first_byte_at: None,
            window: RateWindow::new(0.4),
            pace: PaceMeter::default(),
            rate: None,
            held_rate: 0.0,
            rated_at: now,
            peak_rate: 0.0,
        }
    }

    pub(super) fn connected(&mut self, rtt_s: f64) {
        self.rtt_s = rtt_s.clamp(0.000_05, 10.0);
        // A long route delivers in bursts a round trip apart: the window must hold one.
        self.window.resize((1.2 * self.rtt_s).clamp(WINDOW_MIN_S, WINDOW_MAX_S));
    }

    /// An answer began `waited_s` after it was asked for.
    pub(super) fn answer_began(&mut self, waited_s: f64) {
        self.answer_s =
            if waited_s > self.answer_s { waited_s } else { 0.5 * (self.answer_s + waited_s) };
    }

    /// The rate is measured anew from `from` on, when the meter stood at `at`.
    pub(super) fn restart(&mut self, from: Time, at: u64) {
        self.window.restart(from, at);
    }

    /// The meter stands at `at` now.
    pub(super) fn record(&mut self, now: Time, at: u64) {
        self.window.record(now, at);
    }

    /// What a request costs before its answer begins.
    pub fn trip_s(&self) -> f64 {
        self.rtt_s.max(self.answer_s)
    }

    /// Brings `rate` up to date; `is_bringing` if an answer is coming.
    pub(super) fn refresh(&mut self, now: Time, is_bringing: bool) {
        if let Some(rate) = self.pace.likely().map(Pace::rate_bytes_per_s) {
            self.rate = Some(rate);
            (self.peak_rate, self.held_rate, self.rated_at) = (rate, rate, now);
            return;
        }
        if !is_bringing {
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

    /// Returns how long this lane needs for `bytes` more bytes, `None` while its rate is unknown. In slow
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

    /// As [`Speed::needs_s`], by the rate that the lane held lately if that is higher: for whoever
    /// must not take a low ebb between two bursts for a slow lane.
    pub fn may_need_s(&self, bytes: u64, now: Time) -> Option<f64> {
        let held_s = bytes as f64 / self.held_rate.max(1.0);
        Some(self.needs_s(bytes, now)?.min(held_s))
    }

    /// How many bytes this lane may bring in `seconds`: the inverse of [`Speed::may_need_s`].
    pub fn brings_bytes(&self, seconds: f64, now: Time) -> f64 {
        let rate = self.rate.unwrap_or(0.0);
        if !self.ramping(now) {
            return rate.max(self.held_rate) * seconds;
        }
        let doublings = (seconds / self.rtt_s).min(DOUBLINGS_MAX);
        rate * seconds.max(self.rtt_s * (doublings.exp2() - 1.0))
    }

    /// Another lane of its source has shown that its server limits each answer.
    pub fn assume_pace(&mut self, pace: Pace) {
        self.pace.assume(pace);
        self.rate = Some(pace.rate_bytes_per_s());
    }

    /// After how long without a byte this lane counts as silent.
    pub fn silence_s(&self) -> f64 {
        let patience_s = if self.first_byte_at.is_some() { SILENCE_MIN_S } else { SILENCE_FIRST_S };
        let answer_s = self.answer_s.min(SILENCE_ANSWER_S);
        patience_s.max(3.0 * self.rtt_s.max(answer_s)).max(SILENCE_PERIODS * self.pace.pause_s())
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
