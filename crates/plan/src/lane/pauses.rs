//! When a lane was last heard, how long it stood still, and how much of that was its sender's doing.

use swath_model::Time;

use crate::planner::TICK_S;

/// The pauses of one lane.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// When what it brings, or what waits behind a loss, last grew.
    pub heard_at: Time,
    /// Last byte, or the moment when waiting for one began.
    pub last_progress: Time,
    /// How long it stood still at a time lately; fades.
    pub stop_s: f64,
    /// Since when something has been asked for without a gap.
    busy_since: Time,
    /// Sum of the sender's pauses while it owed something, in seconds.
    pub paused_s: f64,
    /// What the real lane's count of pauses was when last heard of, ours included.
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

    /// It is heard now, or its waiting begins now.
    pub fn heard(&mut self, now: Time) {
        self.heard_at = now;
        self.last_progress = now;
    }

    /// It is asked for something while it is idle.
    pub(super) fn busy(&mut self, now: Time) {
        self.busy_since = now;
        self.heard(now);
    }

    /// The real lane has counted `total_s` of pauses so far. A pause in which we asked for nothing,
    /// or waited for the answer to begin, is none of the sender's.
    pub(super) fn paused(&mut self, now: Time, total_s: f64, trip_s: f64) {
        let pause_s = (total_s - self.pauses_told_s).max(0.0);
        self.pauses_told_s = self.pauses_told_s.max(total_s);
        let owed_s = (now.secs_since(self.busy_since) - trip_s).max(0.0);
        self.paused_s += pause_s.min(owed_s);
    }

    /// Something has come again: takes note of how long nothing had.
    pub(super) fn note_stop(&mut self, now: Time, rtt_s: f64) {
        let pause_s = now.secs_since(self.last_progress);
        let fade = (-pause_s / (STOP_ROUND_TRIPS * rtt_s)).exp();
        let stop_s = (pause_s - STOP_S).clamp(0.0, STOP_MAX_ROUND_TRIPS * rtt_s);
        self.stop_s = stop_s.max(fade * self.stop_s);
    }
}

/// A stop is forgotten within so many round trips.
const STOP_ROUND_TRIPS: f64 = 10.0;
/// Meters are read every [`TICK_S`], so less than this is no stop …
const STOP_S: f64 = 1.5 * TICK_S;
/// … and more than so many round trips is another matter: a silence.
const STOP_MAX_ROUND_TRIPS: f64 = 2.0;
