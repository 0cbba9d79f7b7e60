//! The part of one connection in a rate limit.

use std::sync::Arc;

use swath_model::Limiter;
use tokio::time::{Instant, sleep_until};

/// What a connection may move just now. Without a limit that is everything, at no cost.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    limiter: Option<Arc<Limiter>>,
    allowance_bytes: usize,
}

impl Pace {
    /// A part in this limit.
    pub fn new(limiter: Option<Arc<Limiter>>) -> Pace {
        Pace { limiter, allowance_bytes: 0 }
    }

    /// Waits until something may be moved; answers how many of `bytes` that are.
    pub async fn allowed(&mut self, bytes: u64) -> u64 {
        let Some(limiter) = &self.limiter else { return bytes };
        if self.allowance_bytes == 0 {
            let Some((share_bytes, due)) = limiter.reserve(Instant::now().into_std()) else {
                return bytes;
            };
            sleep_until(Instant::from_std(due)).await;
            self.allowance_bytes = share_bytes.max(1);
        }
        bytes.min(self.allowance_bytes as u64)
    }

    /// So many bytes were moved.
    pub fn spend(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.allowance_bytes = self.allowance_bytes.saturating_sub(bytes);
    }
}
