//! A connection's part in a rate limit, for whoever polls.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use swath_model::{Limiter, Share};
use tokio::time::{Instant, Sleep, sleep_until};

/// What a connection may move just now.
#[derive(Debug, Default)]
pub(super) struct PolledPace {
    limiter: Option<Arc<Limiter>>,
    share: Option<Share>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl PolledPace {
    /// A part in this limit.
    pub fn new(limiter: Option<Arc<Limiter>>) -> PolledPace {
        PolledPace { limiter, share: None, sleep: None }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| limiter.is_on())
    }

    /// How many of `bytes` may be moved, once any may.
    pub fn poll_allowed(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<usize> {
        let Some(limiter) = self.limiter.as_ref().filter(|limiter| limiter.is_on()) else {
            return Poll::Ready(bytes);
        };
        if self.share.as_ref().is_none_or(|share| share.left_bytes() == 0) {
            (self.share, self.sleep) = (limiter.reserve(Instant::now().into_std()), None);
        }
        let Some(share) = &mut self.share else { return Poll::Ready(bytes) };
        while let Some(due) = share.due(Instant::now().into_std()) {
            let sleeping = || Box::pin(sleep_until(Instant::from_std(due)));
            match self.sleep.get_or_insert_with(sleeping).as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.sleep = None,
            }
        }
        Poll::Ready(bytes.min(usize::try_from(share.left_bytes()).unwrap_or(usize::MAX)))
    }

    /// Whether somebody waits for our own limit, and not for anybody else.
    pub fn is_waiting(&self) -> bool {
        self.sleep.is_some()
    }

    /// So many bytes were moved.
    pub fn spend(&mut self, bytes: usize) {
        if let Some(share) = &mut self.share {
            share.spend(bytes as u64);
        }
    }
}
