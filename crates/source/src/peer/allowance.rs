//! What a rate limit lets one connection move, counted in whole blocks.
//!
//! Shares of a limiter may be smaller than a block: a block may begin as soon as something is left,
//! and what it takes too much is made up for by the shares that follow.

use std::sync::Arc;

use swath_model::{Limiter, Share};
use tokio::time::Instant;

/// One connection's part of a limit.
#[derive(Debug)]
pub(super) struct Allowance {
    limiter: Arc<Limiter>,
    share: Option<Share>,
    left_bytes: i64,
}

impl Allowance {
    pub fn new(limiter: Arc<Limiter>) -> Allowance {
        Allowance { limiter, share: None, left_bytes: 0 }
    }

    /// Returns how many bytes may be begun now, or the time to wait for.
    pub fn now(&mut self) -> Result<u64, Instant> {
        if !self.limiter.is_on() {
            (self.share, self.left_bytes) = (None, 0);
            return Ok(u64::MAX);
        }
        let now = Instant::now().into_std();
        while self.left_bytes <= 0 {
            if self.share.is_none() {
                self.share = self.limiter.reserve(now);
            }
            let Some(share) = &mut self.share else { return Ok(u64::MAX) };
            if let Some(due) = share.due(now) {
                return Err(Instant::from_std(due));
            }
            let bytes = share.left_bytes();
            share.spend(bytes);
            self.left_bytes += bytes.max(1) as i64;
            self.share = None;
        }
        Ok(self.left_bytes as u64)
    }

    /// Records that this much was begun.
    pub fn spend(&mut self, bytes: u64) {
        if self.limiter.is_on() {
            self.left_bytes -= bytes as i64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn blocks_larger_than_a_share_keep_the_rate() {
        let mut allowance = Allowance::new(Arc::new(Limiter::new(Some(100_000))));
        // Limiters read the real clock's instants, which tokio's paused clock moves along.
        let begin = Instant::now();
        let mut moved = 0;
        while moved < 1_000_000 {
            match allowance.now() {
                Ok(_) => {
                    allowance.spend(16_384);
                    moved += 16_384;
                }
                Err(due) => tokio::time::sleep_until(due).await,
            }
        }
        let took_s = begin.elapsed().as_secs_f64();
        assert!((9.0..11.0).contains(&took_s), "{took_s} s for 10 s of data");
    }

    #[tokio::test]
    async fn without_a_limit_everything_is_allowed() {
        let mut allowance = Allowance::new(Arc::new(Limiter::new(None)));
        for _ in 0..3 {
            assert_eq!(allowance.now(), Ok(u64::MAX));
            allowance.spend(1 << 40);
        }
    }
}
