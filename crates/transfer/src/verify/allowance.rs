//! Limits the slots of the pool that verifiers keep, over all files of a process.
//!
//! Invariant: verifiers never keep more slots than [`Allowance::new`] was given. So the rest of the
//! pool circulates, and every lane of every file gets a buffer in time. Nothing waits here: buffers
//! over the limit are on the disk already, and are read back when their turn comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The slots that all verifiers together may keep; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    left: Arc<AtomicUsize>,
}

/// One verifier's part of an allowance, returned when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    left: Arc<AtomicUsize>,
    held: usize,
}

impl Allowance {
    /// Makes an allowance of `slots`.
    pub fn new(slots: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(slots)) }
    }

    /// Makes an empty part of it.
    pub fn share(&self) -> Share {
        Share { left: Arc::clone(&self.left), held: 0 }
    }
}

impl Share {
    /// Changes the part to `wanted` slots, or as near as possible. Returns how many it has now.
    pub fn fit(&mut self, wanted: usize) -> usize {
        if wanted < self.held {
            self.left.fetch_add(self.held - wanted, Ordering::Relaxed);
            self.held = wanted;
        }
        while self.held < wanted && self.take_one() {
            self.held += 1;
        }
        self.held
    }

    fn take_one(&self) -> bool {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.fit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_come_to_more_than_the_whole() {
        let allowance = Allowance::new(5);
        let (mut one, mut two) = (allowance.share(), allowance.share());
        assert_eq!(one.fit(3), 3);
        assert_eq!(two.fit(4), 2);
        assert_eq!(one.fit(1), 1);
        assert_eq!(two.fit(4), 4);
        drop(two);
        assert_eq!(one.fit(9), 5);
    }
}
