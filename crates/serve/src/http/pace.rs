//! The part of one connection in a rate limit.

use std::sync::Arc;

use swath_model::{Limiter, Share};
use tokio::time::{Instant, sleep_until};

/// What a connection may move just now. Without a limit that is everything, at no cost.
#[derive(Debug, Default)]
pub struct Pace {
    limiter: Option<Arc<Limiter>>,
    share: Option<Share>,
}

impl Pace {
    /// A part in this limit.
    pub fn new(limiter: Option<Arc<Limiter>>) -> Pace {
        Pace { limiter, share: None }
    }

    /// Waits until something may be moved; answers how many of `bytes` that are.
    pub async fn allowed(&mut self, bytes: u64) -> u64 {
        let Some(limiter) = &self.limiter else { return bytes };
        if self.share.as_ref().is_none_or(|share| share.left_bytes() == 0) {
            self.share = limiter.reserve(Instant::now().into_std());
        }
        let Some(share) = &mut self.share else { return bytes };
        while let Some(due) = share.due(Instant::now().into_std()) {
            sleep_until(Instant::from_std(due)).await;
        }
        bytes.min(share.left_bytes())
    }

    /// So many bytes were moved.
    pub fn spend(&mut self, bytes: u64) {
        if let Some(share) = &mut self.share {
            share.spend(bytes);
        }
    }
}
