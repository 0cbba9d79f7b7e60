//! Figures of a run for its observers.

pub(super) mod broken;
pub(super) mod figures;

use std::time::Duration;

use swath_model::Time;
use swath_plan::forecast::Pace;
use swath_store::DiskStats;

use crate::engine::Engine;
use crate::executor::telemetry::broken::Broken;
use crate::executor::telemetry::figures::process_cpu_s;

/// Figures of a run.
pub(crate) struct Telemetry {
    /// The destination as shown to a user.
    pub name: String,
    /// When the last snapshot was shown.
    pub shown_at: Time,
    /// When the last missing byte was fetched.
    pub fetch_ended_at: Option<Time>,
    /// Recent rates, for the estimate of the time left.
    pub pace: Pace,
    /// The broken connection to a tree's source, until bytes come again.
    pub broken: Option<Broken>,
    /// Processor time that the process had used when the run began.
    pub cpu_began_s: f64,
    pub disk_began: DiskStats,
    pub hash_began: Duration,
}

impl Telemetry {
    /// Starts the figures of a run to this destination.
    pub fn new(engine: &Engine, name: String) -> Telemetry {
        Telemetry {
            name,
            shown_at: Time::ZERO,
            fetch_ended_at: None,
            pace: Pace::default(),
            broken: None,
            cpu_began_s: process_cpu_s(),
            disk_began: engine.disk.stats(),
            hash_began: engine.hash.busy(),
        }
    }
}
