//! The time of a run, and how long nothing has come.

use swath_model::Time;
use tokio::time::Instant;

/// The time of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub began: Instant,
    /// When something of use came last.
    pub last_arrival: Time,
    /// Since when we have been awake: nothing before that was a silence of our sources.
    pub awake_since: Instant,
}

impl Clock {
    /// The run begins now.
    pub fn start(awake_since: Instant) -> Clock {
        Clock { began: Instant::now(), last_arrival: Time::ZERO, awake_since }
    }

    /// Time since the run began.
    pub fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// For how long nothing has come from any source while we were awake.
    pub fn silence_s(&self) -> f64 {
        let last_arrival = self.began + self.last_arrival.since(Time::ZERO);
        last_arrival.max(self.awake_since).elapsed().as_secs_f64()
    }
}
