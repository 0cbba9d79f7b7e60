//! A limit on the rate and the lanes of one source.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Wrapper;
use crate::error::LaneError;
use crate::source::{Limits, Pending};

/// Limits one source; all its lanes share the rate.
#[derive(Debug)]
pub struct Limit {
    bytes_per_s: Option<u64>,
    lanes: Option<u32>,
    /// When the next part is due.
    due: Mutex<Instant>,
}

impl Limit {
    /// Allows so many bytes per second and so many lanes; `None` stands for any number.
    pub fn new(bytes_per_s: Option<u64>, lanes: Option<u32>) -> Limit {
        let bytes_per_s = bytes_per_s.map(|rate| rate.max(1));
        Limit { bytes_per_s, lanes, due: Mutex::new(Instant::now()) }
    }
}

impl Wrapper for Limit {
    const IS_OURS: bool = true;

    fn admit(&self, bytes: u64) -> Pending<'_, Result<u64, LaneError>> {
        Box::pin(async move {
            let Some(rate) = self.bytes_per_s else { return Ok(bytes) };
            let part = bytes.min((rate / PARTS_PER_S).max(PART_LEAST_BYTES));
            let due = {
                let mut next = self.due.lock().unwrap_or_else(PoisonError::into_inner);
                let due = (*next).max(Instant::now() - CATCH_UP);
                *next = due + Duration::from_secs_f64(part as f64 / rate as f64);
                due
            };
            sleep_until(due).await;
            Ok(part)
        })
    }

    fn limit(&self, limits: &mut Limits) {
        limits.connections = limits.connections.into_iter().chain(self.lanes).min();
    }
}

/// As often as the planner looks.
const PARTS_PER_S: u64 = 50;
/// Smaller requests are not worth their heads.
const PART_LEAST_BYTES: u64 = 1024;
/// What was not used of the last moments may be caught up with.
const CATCH_UP: Duration = Duration::from_millis(50);
