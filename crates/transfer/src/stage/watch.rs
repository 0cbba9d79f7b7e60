//! Detects depots that are gone while they should fetch.
//!
//! A depot reports its progress a few times a second, but not before the source has answered it,
//! nor while its disk syncs. So a depot that is silent for a while gets another request. If it
//! answers neither, it is gone: a machine that hangs still accepts connections.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

/// When each depot last answered, and which are being asked.
pub(super) struct Watch {
    depots: Vec<Heard>,
    /// (depot, whether it has answered). Dropped with the round.
    asked: JoinSet<(usize, bool)>,
}

struct Heard {
    at: Instant,
    is_asked: bool,
}

impl Watch {
    pub fn new(depots: usize) -> Watch {
        let now = Instant::now();
        let depots = (0..depots).map(|_| Heard { at: now, is_asked: false }).collect();
        Watch { depots, asked: JoinSet::new() }
    }

    /// Notes that a depot has answered, or must answer from now on.
    pub fn heard(&mut self, depot: usize) {
        self.depots[depot].at = Instant::now();
    }

    /// Returns whether a fetching depot is gone; its silence counts from `awake` at the earliest.
    /// In doubt, `ask` finds out whether it answers.
    pub fn is_gone<F>(&mut self, depot: usize, awake: Instant, ask: impl FnOnce() -> F) -> bool
    where
        F: Future<Output = bool> + Send + 'static,
    {
        while let Some(answer) = self.asked.try_join_next() {
            // None of them panics; if one did, it has not answered.
            let Ok((other, has_answered)) = answer else { continue };
            self.depots[other].is_asked = false;
            if has_answered {
                self.heard(other);
            }
        }
        let silent = self.depots[depot].at.max(awake).elapsed();
        if silent >= GONE {
            return true;
        }
        if silent >= ASK && !self.depots[depot].is_asked {
            self.depots[depot].is_asked = true;
            let asking = ask();
            self.asked.spawn(async move { (depot, asking.await) });
        }
        false
    }
}

/// Silence after which a depot is asked.
const ASK: Duration = Duration::from_secs(3);
/// Silence after which a depot is gone.
pub(super) const GONE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_fetches_in_silence_is_there_as_long_as_it_answers() {
        let mut watch = Watch::new(2);
        let began = Instant::now();
        for _ in 0..300 {
            advance(Duration::from_millis(100)).await;
            assert!(!watch.is_gone(0, began, || ready(true)));
            // Another one that says nothing but has nothing to say is not looked at.
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_answers_nothing_is_gone_after_ten_seconds() {
        let mut watch = Watch::new(1);
        let began = Instant::now();
        let mut asked = 0;
        while !watch.is_gone(0, began, || {
            asked += 1;
            pending()
        }) {
            advance(Duration::from_millis(100)).await;
        }
        assert_eq!(began.elapsed(), GONE);
        assert_eq!(asked, 1);
        // A machine that slept has heard nobody meanwhile.
        assert!(!watch.is_gone(0, Instant::now(), pending));
        watch.heard(0);
        assert!(!watch.is_gone(0, began, pending));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_cannot_be_reached_is_asked_again() {
        let mut watch = Watch::new(1);
        let began = Instant::now();
        let mut asked = 0;
        while !watch.is_gone(0, began, || {
            asked += 1;
            ready(asked == 5)
        }) {
            advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
            assert!(began.elapsed() < Duration::from_secs(60));
        }
        assert!(began.elapsed() > GONE, "it had answered once: {:?}", began.elapsed());
    }
}
