//! One source as the planner sees it: its lanes, its failures, when it may be asked again.
//!
//! States: `Spare` → `Probing` → `Running` ⇄ `Silent`; from each of them to `Waiting` (a back-off
//! or a server's wish) and back to `Probing`; from everywhere to `Bad`, which is final.

use swath_model::{LaneId, RangeSet, SourceId, Time};

use crate::event::Loss;
use crate::tuner::Tuner;
use crate::view::SourceStatus;

#[derive(Debug)]
pub(crate) struct Source {
    pub id: SourceId,
    pub status: SourceStatus,
    pub lanes: Vec<LaneId>,
    pub max_lanes: u32,
    pub rtt_s: Option<f64>,
    pub stream_only: bool,
    pub request_limit: Option<u32>,
    pub forbidden: RangeSet,
    /// What its last lane brought, bytes per second: all that is known of a new one.
    pub lane_rate: Option<f64>,
    /// How long its lanes waited for connections and first bytes while there was work, in all.
    pub waited_s: f64,
    /// Failures since the last useful byte.
    pub failures: u32,
    /// Silences since the last byte that was not followed by another.
    pub silences: u32,
    /// No lane is to be opened before.
    pub retry_at: Time,
    /// Nothing is to be asked for before, on lanes that are open either.
    pub quiet_until: Time,
    /// Sum of its lanes' rates at the last tick.
    pub rate: f64,
    pub best_rate: f64,
    pub delivered_bytes: u64,
    pub tuner: Tuner,
}

impl Source {
    pub fn new(id: SourceId, max_lanes: u32) -> Self {
        Self {
            id,
            status: SourceStatus::Spare,
            lanes: Vec::new(),
            max_lanes: max_lanes.max(1),
            rtt_s: None,
            stream_only: false,
            request_limit: None,
            forbidden: RangeSet::new(),
            lane_rate: None,
            waited_s: 0.0,
            failures: 0,
            silences: 0,
            retry_at: Time::ZERO,
            quiet_until: Time::ZERO,
            rate: 0.0,
            best_rate: 0.0,
            delivered_bytes: 0,
            tuner: Tuner::default(),
        }
    }

    pub fn is_usable(&self) -> bool {
        self.status != SourceStatus::Bad
    }

    /// Bytes came, `bytes` of them useful: whatever was held against it is forgotten, failures only
    /// if it was of use (a whole-file answer may be cut each time before it gets there).
    pub fn delivered(&mut self, bytes: u64) {
        self.delivered_bytes += bytes;
        if bytes > 0 {
            self.failures = 0;
        }
        self.silences = 0;
        if self.is_usable() {
            self.status = SourceStatus::Running;
        }
    }

    /// A lane or a swath came to nothing; decides when the source is asked again.
    pub fn lost(&mut self, loss: Loss, now: Time, jitter: f64) {
        match loss {
            Loss::Clean => {}
            Loss::Final => self.status = SourceStatus::Bad,
            Loss::Busy(wait) => {
                self.failures += 1;
                self.retry_at = self.retry_at.max(now + wait);
                self.quiet_until = self.quiet_until.max(now + wait);
            }
            Loss::Broken => {
                self.failures += 1;
                let wait_s =
                    (BACKOFF_FIRST_S * f64::from(1u32 << self.failures.min(8))).min(BACKOFF_MAX_S);
                self.retry_at = self.retry_at.max(now.plus_secs(wait_s * (0.75 + 0.5 * jitter)));
            }
        }
        if self.failures >= FAILURES_MAX {
            self.status = SourceStatus::Bad;
        }
    }

    /// It fell silent for so long that its lanes were closed; wait before it is probed again.
    pub fn fell_silent(&mut self, now: Time, jitter: f64) {
        self.silences += 1;
        let wait_s =
            (PROBATION_FIRST_S * f64::from(1u32 << self.silences.min(8))).min(PROBATION_MAX_S);
        self.retry_at = self.retry_at.max(now.plus_secs(wait_s * (0.75 + 0.5 * jitter)));
    }

    /// On probation: it fell silent and has delivered nothing since.
    pub fn on_probation(&self) -> bool {
        self.silences > 0
    }
}

/// The first retry comes after twice this.
const BACKOFF_FIRST_S: f64 = 0.1;
/// Later retries come at most this far apart.
const BACKOFF_MAX_S: f64 = 10.0;
/// So many failures in a row without a byte, and a source is given up: about 40 s of back-off.
const FAILURES_MAX: u32 = 10;
/// The first probe of a silent source comes after twice this …
const PROBATION_FIRST_S: f64 = 0.25;
/// … and later ones at most this far apart, for as long as the transfer lasts.
const PROBATION_MAX_S: f64 = 8.0;
