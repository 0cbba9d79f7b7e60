//! How busy the disk was, to tell whether it limited a transfer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::Direction;

/// What a disk did since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Bytes written to part files.
    pub written_bytes: u64,
    /// Bytes read back.
    pub read_bytes: u64,
    /// Time with at least one read or write in flight.
    pub busy: Duration,
    /// Time with more jobs waiting than the engine works on at once. If this is close to the length
    /// of the transfer, the disk was the limit.
    pub saturated: Duration,
    /// Total time of syncs (concurrent ones add up).
    pub syncing: Duration,
}

/// Collects [`DiskStats`].
pub(crate) struct Meter {
    state: Mutex<State>,
    /// Number of jobs from which on the engine is saturated.
    saturated_from: usize,
}

#[derive(Default)]
struct State {
    stats: DiskStats,
    under_way: usize,
    busy_since: Option<Instant>,
    saturated_since: Option<Instant>,
}

impl Meter {
    pub(crate) fn new(saturated_from: usize) -> Meter {
        Meter { state: Mutex::default(), saturated_from: saturated_from.max(1) }
    }

    pub(crate) fn begin(&self) {
        let mut state = self.lock();
        state.under_way += 1;
        if state.under_way == 1 {
            state.busy_since = Some(Instant::now());
        }
        if state.under_way == self.saturated_from {
            state.saturated_since = Some(Instant::now());
        }
    }

    pub(crate) fn end(&self, direction: Direction, bytes: usize) {
        let mut state = self.lock();
        match direction {
            Direction::Write => state.stats.written_bytes += bytes as u64,
            Direction::Read => state.stats.read_bytes += bytes as u64,
        }
        if state.under_way == self.saturated_from
            && let Some(since) = state.saturated_since.take()
        {
            state.stats.saturated += since.elapsed();
        }
        state.under_way = state.under_way.saturating_sub(1);
        if state.under_way == 0
            && let Some(since) = state.busy_since.take()
        {
            state.stats.busy += since.elapsed();
        }
    }

    pub(crate) fn synced(&self, took: Duration) {
        self.lock().stats.syncing += took;
    }

    /// Returns the figures up to now.
    pub(crate) fn stats(&self) -> DiskStats {
        let state = self.lock();
        let mut stats = state.stats;
        stats.busy += state.busy_since.map_or(Duration::ZERO, |since| since.elapsed());
        stats.saturated += state.saturated_since.map_or(Duration::ZERO, |since| since.elapsed());
        stats
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
