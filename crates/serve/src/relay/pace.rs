//! A connection's part in a rate limit, for whoever polls.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use swath_model::Limiter;
use tokio::time::{Instant, Sleep, sleep_until};

/// What a connection may move just now.
#[derive(Debug, Default)]
pub(super) struct PolledPace {
    limiter: Option<Arc<Limiter>>,
    allowance_bytes: usize,
    due: Option<Pin<Box<Sleep>>>,
}

impl PolledPace {
    /// A part in this limit.
    pub fn new(limiter: Option<Arc<Limiter>>) -> PolledPace {
        PolledPace { limiter, allowance_bytes: 0, due: None }
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
        if self.allowance_bytes == 0 {
            let Some((share_bytes, due)) = limiter.reserve(Instant::now().into_std()) else {
                return Poll::Ready(bytes);
            };
            self.allowance_bytes = share_bytes.max(1);
            self.due = Some(Box::pin(sleep_until(Instant::from_std(due))));
        }
        if let Some(due) = &mut self.due {
            match due.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.due = None,
            }
        }
        Poll::Ready(bytes.min(self.allowance_bytes))
    }

    /// So many bytes were moved.
    pub fn spend(&mut self, bytes: usize) {
        self.allowance_bytes = self.allowance_bytes.saturating_sub(bytes);
    }
}
