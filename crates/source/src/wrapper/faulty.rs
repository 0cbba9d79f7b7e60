//! A source that is far away, stalls, breaks, refuses and lies, for tests.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Wrapper;
use crate::error::LaneError;
use crate::facts::Facts;
use crate::source::Pending;

/// What is wrong with a source.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The beginning of its life.
    pub since: Instant,
    /// How much later each answer begins.
    pub delay: Duration,
    /// When it is not as usual.
    pub periods: Vec<FaultPeriod>,
    /// Bytes at these offsets come wrong, always.
    pub wrong_at: Vec<u64>,
    /// How many bytes too many it says its file has.
    pub size_off_by: u64,
}

/// A time in which something is wrong, in seconds of the source's life.
#[derive(Clone, Debug)]
pub struct FaultPeriod {
    /// Its beginning.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// What is wrong.
    pub fault: Fault,
}

/// What may be wrong with a source for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing comes, and nobody says why.
    Stalls,
    /// It takes no connection, and those that it has break.
    Down,
    /// Answers end before their time.
    Short,
    /// It answers with this status, and would like to be asked again after a second.
    Refuses(u16),
}

impl Faults {
    /// Waits until no period keeps it from answering.
    async fn answers(&self, wanted: u64) -> Result<(), LaneError> {
        loop {
            let now_s = self.since.elapsed().as_secs_f64();
            let now = |period: &&FaultPeriod| (period.from_s..period.to_s).contains(&now_s);
            let Some(period) = self.periods.iter().find(now) else { return Ok(()) };
            match period.fault {
                Fault::Stalls => sleep(Duration::from_secs_f64(period.to_s - now_s)).await,
                Fault::Down => return Err(LaneError::Reset { reason: "it is down".to_owned() }),
                Fault::Short => return Err(LaneError::Truncated { got: 0, wanted }),
                Fault::Refuses(code) => {
                    return Err(LaneError::status(code, "Not Now", Some(Duration::from_secs(1))));
                }
            }
        }
    }
}

impl Default for Faults {
    fn default() -> Faults {
        let (since, delay) = (Instant::now(), Duration::ZERO);
        Faults { since, delay, periods: Vec::new(), wrong_at: Vec::new(), size_off_by: 0 }
    }
}

impl Wrapper for Faults {
    const IS_OURS: bool = false;

    fn admit(&self, bytes: u64) -> Pending<'_, Result<u64, LaneError>> {
        Box::pin(async move {
            self.answers(bytes).await?;
            Ok(bytes.min(PART_BYTES))
        })
    }

    fn reach(&self) -> Pending<'_, Result<(), LaneError>> {
        Box::pin(async {
            sleep(self.delay).await;
            self.answers(0).await
        })
    }

    fn delay(&self) -> Duration {
        self.delay
    }

    fn change_facts(&self, facts: &mut Facts) {
        facts.size_bytes = facts.size_bytes.map(|size| size + self.size_off_by);
    }

    fn change_bytes(&self, offset: u64, bytes: &mut [u8]) {
        for wrong in self.wrong_at.iter().filter_map(|at| at.checked_sub(offset)) {
            if let Some(byte) = bytes.get_mut(wrong as usize) {
                *byte ^= 0x5a;
            }
        }
    }
}

/// Smaller than any file that is worth breaking off.
const PART_BYTES: u64 = 32 << 10;
