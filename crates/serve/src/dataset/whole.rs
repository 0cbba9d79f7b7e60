//! Memory for whole parts: a fixed number for all clients together, used again and again.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What whole parts are read into.
pub(crate) struct WholeParts {
    permits: Arc<Semaphore>,
    /// No more than there are permits: each comes back from somebody who has one.
    idle: Mutex<Vec<Vec<u8>>>,
}

/// Leave to have a whole part in memory.
pub(super) struct Whole {
    of: Arc<WholeParts>,
    _permit: OwnedSemaphorePermit,
}

impl Default for WholeParts {
    fn default() -> WholeParts {
        let permits = Arc::new(Semaphore::new(WHOLE_PARTS));
        WholeParts { permits, idle: Mutex::default() }
    }
}

impl WholeParts {
    /// How many more there may be.
    pub(super) fn left(&self) -> usize {
        self.permits.available_permits()
    }

    /// Leaves for one more, if there is.
    pub(super) fn take(self: &Arc<WholeParts>) -> Option<Whole> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(Whole { of: Arc::clone(self), _permit: permit })
    }
}

impl Whole {
    /// Memory, with whatever was in it before.
    pub fn memory(&self) -> Vec<u8> {
        let mut idle = self.of.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop().unwrap_or_default()
    }

    /// Its part is not in memory any more: others may have the memory.
    pub fn give_back(self, memory: Vec<u8>) {
        let mut idle = self.of.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(memory);
    }
}

/// Whole parts that all clients together may have in memory: 24 MiB. With the group or two that each
/// of 200 clients has besides, and the pieces that are being read, that is about 110 MB.
pub(super) const WHOLE_PARTS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_there_is_no_more_than_so_much() {
        let parts = Arc::new(WholeParts::default());
        let mut all: Vec<Whole> = (0..WHOLE_PARTS).map(|_| parts.take().unwrap()).collect();
        assert!(parts.take().is_none());
        let first = all.pop().unwrap();
        let mut memory = first.memory();
        assert!(memory.is_empty());
        memory.resize(1000, 7);
        let place = memory.as_ptr();
        first.give_back(memory);
        assert_eq!(parts.left(), 1);
        let again = parts.take().unwrap().memory();
        assert_eq!((again.as_ptr(), again.len()), (place, 1000));
        drop(all);
        assert_eq!(parts.left(), WHOLE_PARTS);
    }
}
