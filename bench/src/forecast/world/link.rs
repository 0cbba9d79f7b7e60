//! The link of a site, in virtual time: what others leave of it is split evenly among the lanes that
//! are being read from (processor sharing).

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::background::{Background, Step};

/// A link. Its life begins when it is made, at second 0 of its background.
#[derive(Debug)]
pub struct Link {
    began: Instant,
    capacity_bytes_per_s: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    background: Background,
    step: Step,
    now_s: f64,
    readers: u32,
    /// What each lane could have read from the beginning on, in bytes.
    share_bytes: f64,
    offered_bytes: f64,
}

/// What a link offers to us, all lanes together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offer {
    /// The present rate.
    pub bytes_per_s: f64,
    /// All that it has offered so far.
    pub bytes: f64,
}

impl Link {
    /// Returns an idle link. Must be called within a tokio runtime.
    pub fn new(capacity_bytes_per_s: f64, mut background: Background) -> Link {
        let step = background.step();
        let (now_s, readers, share_bytes, offered_bytes) = (0.0, 0, 0.0, 0.0);
        let state = State { background, step, now_s, readers, share_bytes, offered_bytes };
        Link { began: Instant::now(), capacity_bytes_per_s, state: Mutex::new(state) }
    }

    /// Returns what it offers to us now.
    pub fn offer(&self) -> Offer {
        self.with(|state| Offer {
            bytes_per_s: state.step.left_part * self.capacity_bytes_per_s,
            bytes: state.offered_bytes,
        })
    }

    /// Begins to read by one lane.
    pub(super) fn read(&self) -> Reading<'_> {
        let since_bytes = self.with(|state| {
            state.readers += 1;
            state.share_bytes
        });
        Reading { link: self, since_bytes }
    }

    /// Does something to its state as it is now.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance(self.began.elapsed().as_secs_f64(), self.capacity_bytes_per_s);
        act(&mut state)
    }
}

impl State {
    fn advance(&mut self, to_s: f64, capacity_bytes_per_s: f64) {
        while self.now_s < to_s {
            let until_s = self.step.until_s.min(to_s);
            let bytes = (until_s - self.now_s) * self.step.left_part * capacity_bytes_per_s;
            self.offered_bytes += bytes;
            if self.readers > 0 {
                self.share_bytes += bytes / f64::from(self.readers);
            }
            self.now_s = until_s;
            if self.now_s >= self.step.until_s {
                self.step = self.background.step();
            }
        }
    }
}

/// A lane reads, until this is dropped.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    link: &'a Link,
    since_bytes: f64,
}

impl Reading<'_> {
    /// Returns what it could have read so far, in bytes.
    pub(super) fn earned_bytes(&self) -> f64 {
        self.link.with(|state| state.share_bytes) - self.since_bytes
    }

    /// Returns its present rate.
    pub(super) fn rate_bytes_per_s(&self) -> f64 {
        let all = self.link.capacity_bytes_per_s;
        self.link.with(|state| all * state.step.left_part / f64::from(state.readers.max(1)))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.link.with(|state| state.readers -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::forecast::world::Setting;

    #[tokio::test(start_paused = true)]
    async fn lanes_share_what_is_left() {
        let background = Background::new(Setting::Changing, fastrand::Rng::with_seed(1));
        let link = Link::new(1e6, background);
        let one = link.read();
        sleep(Duration::from_secs(100)).await;
        let alone = one.earned_bytes();
        let other = link.read();
        sleep(Duration::from_secs(100)).await;
        let (one, other, all) = (one.earned_bytes(), other.earned_bytes(), link.offer().bytes);
        assert!((one - alone - other).abs() < 1.0, "{one} {alone} {other}");
        assert!((one + other - all).abs() < 1.0 && all < 2e8, "{one} {other} {all}");
    }
}
