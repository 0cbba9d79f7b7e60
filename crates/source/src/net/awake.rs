//! Whether this process has been awake all the time: one that is stopped (SIGSTOP, a paused machine)
//! hears nothing meanwhile, which is no silence of those to whom it listens.
//!
//! Nobody tells a process that it slept. Whoever waits for something looks here several times a
//! second, whether anything comes or not; if nobody has looked for a good while, nobody was awake, and
//! all silence begins anew. The first one who looks notes it for all others, so that it does not matter
//! which of many waits ends first on waking up. (While a whole machine sleeps its clock stands still as
//! well, and there is nothing to be noted.)

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// When this process last woke up.
#[derive(Debug)]
pub(crate) struct Awake(Mutex<State>);

#[derive(Debug)]
struct State {
    looked_at: Instant,
    since: Instant,
}

impl Awake {
    /// Awake from now on.
    pub fn new() -> Awake {
        let now = Instant::now();
        Awake(Mutex::new(State { looked_at: now, since: now }))
    }

    /// Looks around: since when we have been awake.
    pub fn since(&self) -> Instant {
        self.look(Instant::now())
    }

    fn look(&self, now: Instant) -> Instant {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked_at) >= ASLEEP_MIN {
            state.since = now;
        }
        state.looked_at = state.looked_at.max(now);
        state.since
    }

    /// For how long nothing has come although we were there to hear it, if the last thing came then.
    pub fn silence(&self, heard_at: Instant) -> Duration {
        heard_at.max(self.since()).elapsed()
    }

    /// Returns what comes within `limit`. After sleep it has that long once more.
    pub async fn within<T>(&self, limit: Duration, coming: impl Future<Output = T>) -> Option<T> {
        self.until(Instant::now() + limit, limit, coming).await
    }

    /// Returns what comes until then, or after sleep within `limit`.
    pub async fn until<T>(
        &self,
        due: Instant,
        limit: Duration,
        coming: impl Future<Output = T>,
    ) -> Option<T> {
        let mut coming = std::pin::pin!(coming);
        let began = self.since();
        loop {
            let since = self.since();
            let due = if since > began { due.max(since + limit) } else { due };
            match timeout_at(due.min(Instant::now() + LOOK), &mut coming).await {
                Ok(come) => return Some(come),
                Err(_) if Instant::now() >= due && self.since() == since => return None,
                Err(_) => {}
            }
        }
    }
}

/// Whoever waits looks around this often …
const LOOK: Duration = Duration::from_millis(250);
/// … so that after so long without a look nobody was awake, however busy the machine is. Shorter sleep
/// is short of every `--timeout` there is use for.
const ASLEEP_MIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_no_silence() {
        let awake = Awake::new();
        let began = awake.since();
        let at = |ms: u64| began + Duration::from_millis(ms);
        for ms in (0..5000).step_by(900) {
            assert_eq!(awake.look(at(ms)), began);
        }
        // The second one who looks finds what the first one noted.
        assert_eq!((awake.look(at(70_000)), awake.look(at(70_001))), (at(70_000), at(70_000)));
        // A look that comes late with its time changes nothing.
        assert_eq!((awake.look(at(60_000)), awake.look(at(70_500))), (at(70_000), at(70_000)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_has_its_time() {
        let awake = Awake::new();
        let begun = Instant::now();
        let after = |s: u64| tokio::time::sleep(Duration::from_secs(s));
        assert_eq!(awake.within(Duration::from_secs(5), after(4)).await, Some(()));
        assert_eq!(awake.within(Duration::from_secs(5), after(6)).await, None);
        assert_eq!(begun.elapsed().as_secs(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_wakes_up_waits_once_more() {
        let awake = Awake::new();
        let begun = Instant::now();
        let sleeps = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            // Nobody looks meanwhile.
            tokio::time::advance(Duration::from_secs(100)).await;
            std::future::pending::<()>().await;
        };
        let waits = awake.within(Duration::from_secs(5), std::future::pending::<()>());
        tokio::select! {
            come = waits => assert_eq!(come, None),
            () = sleeps => {}
        }
        assert_eq!(begun.elapsed().as_secs(), 105);
    }
}
