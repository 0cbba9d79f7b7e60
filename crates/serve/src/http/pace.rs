//! The share of one connection in a rate limit.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use swath_model::{Limiter, Share};
use tokio::time::{Instant, Sleep, sleep_until};

/// What a connection may move just now. Without a limit that is everything, at no cost.
#[derive(Debug, Default)]
pub struct Pace {
    limiter: Option<Arc<Limiter>>,
    share: Option<Share>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// A part in this limit.
    pub fn new(limiter: Option<Arc<Limiter>>) -> Pace {
        Pace { limiter, share: None, sleep: None }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_on())
    }

    /// Whether the limit, and nobody else, is what is waited for.
    pub fn is_waiting(&self) -> bool {
        self.sleep.is_some()
    }

    /// How many of `bytes` may be moved, as soon as any may.
    pub fn poll_allowed(&mut self, cx: &mut Context<'_>, bytes: u64) -> Poll<u64> {
        let Some(limiter) = self.limiter.as_ref().filter(|limiter| limiter.is_on()) else {
            return Poll::Ready(bytes);
        };
        if self.share.as_ref().is_none_or(|share| share.left_bytes() == 0) {
            (self.share, self.sleep) = (limiter.reserve(Instant::now().into_std()), None);
        }
        let Some(share) = &mut self.share else { return Poll::Ready(bytes) };
        while let Some(due) = share.due(Instant::now().into_std()) {
            let sleeping = || Box::pin(sleep_until(Instant::from_std(due)));
            ready!(self.sleep.get_or_insert_with(sleeping).as_mut().poll(cx));
            self.sleep = None;
        }
        Poll::Ready(bytes.min(share.left_bytes()))
    }

    /// Waits until something may be moved; answers how many of `bytes` that are.
    pub async fn allowed(&mut self, bytes: u64) -> u64 {
        poll_fn(|cx| self.poll_allowed(cx, bytes)).await
    }

    /// So many bytes were moved.
    pub fn spend(&mut self, bytes: u64) {
        if let Some(share) = &mut self.share {
            share.spend(bytes);
        }
    }

    /// Waits until all of `bytes` may be moved.
    pub async fn spend_all(&mut self, mut bytes: u64) {
        while bytes > 0 {
            let now = self.allowed(bytes).await;
            self.spend(now);
            bytes -= now;
        }
    }
}
