//! When a lane last brought something, how long it stood still, and how much its sender caused.

use swath_model::Time;

use crate::planner::TICK_S;

/// The pauses of one lane.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// When its bytes, or those behind a loss, last grew.
    pub heard_at: Time,
    /// The last byte, or when waiting for one began.
    pub last_progress: Time,
    /// How long it recently stood still at a time; fades.
    pub stop_s: f64,
    /// Since when something has been requested without a gap.
    busy_since: Time,
    /// Sum of the sender's pauses while it owed something, in seconds.
    pub paused_s: f64,
    /// The real lane's last count of pauses, ours included.
    pauses_told_s: f64,
}

impl Pauses {
    pub(super) fn new(now: Time) -> Self {
        Self {
            heard_at: now,
            last_progress: now,
            stop_s: 0.0,
            busy_since: now,
            paused_s: 0.0,
            pauses_told_s: 0.0,
        }
    }

    /// Records that it brought something, or that its waiting begins.
    pub fn heard(&mut self, now: Time) {
        self.heard_at = now;
        self.last_progress = now;
    }

    /// Records the first request after an idle time.
    pub(super) fn busy(&mut self, now: Time) {
        self.busy_since = now;
        self.heard(now);
    }

    /// Records that the real lane has counted `total_s` of pauses so far. A pause without a
    /// request, or before the answer began, is not the sender's.
    pub(super) fn paused(&mut self, now: Time, total_s: f64, trip_s: f64) {
        let pause_s = (total_s - self.pauses_told_s).max(0.0);
        self.pauses_told_s = self.pauses_told_s.max(total_s);
        let owed_s = (now.secs_since(self.busy_since) - trip_s).max(0.0);
        self.paused_s += pause_s.min(owed_s);
    }

    /// Records how long nothing arrived before these bytes.
    pub(super) fn note_stop(&mut self, now: Time, rtt_s: f64) {
        let pause_s = now.secs_since(self.last_progress);
        let fade = (-pause_s / (STOP_ROUND_TRIPS * rtt_s)).exp();
        let stop_s = (pause_s - STOP_S).clamp(0.0, STOP_MAX_ROUND_TRIPS * rtt_s);
        self.stop_s = stop_s.max(fade * self.stop_s);
    }
}

/// Round trips in which a stop is forgotten.
const STOP_ROUND_TRIPS: f64 = 10.0;
/// Meters are read every [`TICK_S`], so a shorter time is no stop …
const STOP_S: f64 = 1.5 * TICK_S;
/// … and more than this many round trips is a silence.
const STOP_MAX_ROUND_TRIPS: f64 = 2.0;
