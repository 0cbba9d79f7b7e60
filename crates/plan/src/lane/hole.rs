//! What a lane has behind a lost packet, and how long losses stop it.

use swath_model::Time;

use super::Lane;
use crate::planner::TICK_S;

impl Lane {
    /// Something has come again: takes note of how long nothing had.
    pub(super) fn note_stop(&mut self, now: Time) {
        let pause_s = now.secs_since(self.last_progress);
        // In slow start bytes come in bursts a round trip apart, whatever the link is like.
        if self.ramping(now) {
            return;
        }
        let fade = (-pause_s / (STOP_ROUND_TRIPS * self.rtt_s)).exp();
        let stop_s = (pause_s - STOP_S).clamp(0.0, STOP_MAX_ROUND_TRIPS * self.rtt_s);
        self.stop_s = stop_s.max(fade * self.stop_s);
    }

    /// `bytes` bytes wait behind a loss; answers whether that is news.
    pub fn behind(&mut self, now: Time, bytes: u64) -> bool {
        let reached = self.received + bytes.min(self.pipe_bytes());
        if self.streams || reached <= self.reached {
            return false;
        }
        self.reached = reached;
        self.heard_at = now;
        if self.burst {
            self.window.record(now, reached);
        }
        true
    }

    /// What is here and waits behind a loss.
    pub fn behind_bytes(&self) -> u64 {
        self.reached.saturating_sub(self.received)
    }

    /// How long until what waits behind a loss can be read: the lost packet is missed and sent
    /// again within little more than a round trip. If it has not come by then it was lost again,
    /// which takes about as long as it has lasted already.
    pub fn hole_s(&self, now: Time) -> f64 {
        if self.behind_bytes() == 0 {
            return 0.0;
        }
        let stopped_s = now.secs_since(self.last_progress);
        let repair_s = REPAIR_ROUND_TRIPS * self.rtt_s;
        if stopped_s < repair_s { repair_s - stopped_s } else { stopped_s }
    }

    /// What of that is wanted.
    pub fn wanted_behind_bytes(&self) -> u64 {
        self.behind_bytes().saturating_sub(self.drain_bytes())
    }

    /// Bytes that must still cross the wire before a new request's answer could begin, without
    /// those that only wait for their turn.
    pub fn coming_bytes(&self) -> u64 {
        self.pipe_bytes().saturating_sub(self.behind_bytes())
    }

    /// Seconds until a new request's answer could be read: what waits behind a loss comes before.
    pub fn busy_s(&self, now: Time) -> f64 {
        self.backlog_s(now).max(self.hole_s(now))
    }
}

/// A lost packet comes again after so many round trips.
const REPAIR_ROUND_TRIPS: f64 = 1.25;
/// A stop is forgotten within so many round trips.
const STOP_ROUND_TRIPS: f64 = 10.0;
/// Meters are read every [`TICK_S`], so less than this is no stop …
const STOP_S: f64 = 1.5 * TICK_S;
/// … and more than so many round trips is another matter: a silence.
const STOP_MAX_ROUND_TRIPS: f64 = 2.0;
