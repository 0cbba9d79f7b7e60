//! The time of a run, and how long nothing has come.

use swath_model::Time;
use tokio::time::Instant;

/// The time of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub began: Instant,
    /// When useful bytes last came.
    pub last_arrival: Time,
    /// When this machine last woke up: time before that is not a silence of the sources.
    pub awake_since: Instant,
}

impl Clock {
    /// Starts the clock of a run.
    pub fn start(awake_since: Instant) -> Clock {
        Clock { began: Instant::now(), last_arrival: Time::ZERO, awake_since }
    }

    /// Returns the time since the run began.
    pub fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Returns how long nothing has come from any source while this machine was awake.
    pub fn silence_s(&self) -> f64 {
        let last_arrival = self.began + self.last_arrival.since(Time::ZERO);
        last_arrival.max(self.awake_since).elapsed().as_secs_f64()
    }
}
