//! How fast units come from the origin and from others, and what follows from that.

use std::collections::VecDeque;
use std::time::Duration;

use swath_model::Time;

use crate::units::Unit;

/// The pace at which units come.
#[derive(Debug, Default)]
pub struct Pace {
    /// How long a claim usually takes.
    usual: Option<Duration>,
    /// When units came from the origin, and from others, in the last moments.
    of_origin: VecDeque<Time>,
    of_others: VecDeque<Time>,
    /// The best rate at which units came from the origin, per second.
    best_per_s: f64,
}

impl Pace {
    /// A unit has come from the origin, so long after it was claimed.
    pub fn came(&mut self, took: Duration, now: Time) {
        self.usual = Some(self.usual.map_or(took, |usual| (usual * 7 + took) / 8));
        self.of_origin.push_back(now);
    }

    /// A unit has come from others.
    pub fn passed(&mut self, now: Time) {
        self.of_others.push_back(now);
    }

    /// Forgets what is long ago.
    pub fn turn(&mut self, now: Time) {
        for times in [&mut self.of_origin, &mut self.of_others] {
            while times.front().is_some_and(|&at| now.since(at) > RATE_OVER) {
                times.pop_front();
            }
        }
        self.best_per_s = self.best_per_s.max(self.origin_per_s());
    }

    /// Returns the rate at which units come from the origin.
    pub fn origin_per_s(&self) -> f64 {
        per_s(&self.of_origin)
    }

    /// Returns how long a claim may take before somebody else may fetch the unit.
    pub fn patience(&self) -> Duration {
        self.usual.map_or(PATIENCE_AT_FIRST, |usual| usual * 4).clamp(PATIENCE_LEAST, PATIENCE_MOST)
    }

    /// Returns whether what others hold comes much more slowly than from the origin, as far as that is
    /// known, and would take long for the units that are `left`.
    pub fn are_others_slow(&self, left: Unit) -> bool {
        let others_per_s = per_s(&self.of_others);
        let is_long = f64::from(left) > others_per_s * OTHERS_LONG_S;
        is_long && (self.best_per_s == 0.0 || others_per_s < self.best_per_s / OTHERS_SLOWER)
    }
}

/// Returns how many of these times there are in a second.
fn per_s(times: &VecDeque<Time>) -> f64 {
    times.len() as f64 / RATE_OVER.as_secs_f64()
}

/// The rate is measured over this time.
const RATE_OVER: Duration = Duration::from_secs(2);
/// Before any claim has ended.
pub const PATIENCE_AT_FIRST: Duration = Duration::from_secs(5);
/// A claim may be held up for a moment …
const PATIENCE_LEAST: Duration = Duration::from_secs(2);
/// … and nobody waits for ever.
const PATIENCE_MOST: Duration = Duration::from_secs(60);
/// What takes less than this from others is not worth another copy from the origin, …
const OTHERS_LONG_S: f64 = 10.0;
/// … nor what it would not bring so many times faster.
const OTHERS_SLOWER: f64 = 4.0;
