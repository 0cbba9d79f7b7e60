//! How many slots of the pool verifiers may keep, over all files of a process.
//!
//! Always holds: what is kept is never more than what [`Allowance::new`] was given, so the rest of
//! the pool goes round and every lane, of whichever file, gets a buffer in time. Nobody waits
//! here: what may not be kept is on the disk already, and is read back when its turn comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all verifiers together may keep; clones are the same allowance.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    left: Arc<AtomicUsize>,
}

/// One verifier's part of it, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    left: Arc<AtomicUsize>,
    held: usize,
}

impl Allowance {
    /// `slots` may be kept in all.
    pub fn new(slots: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(slots)) }
    }

    /// A part of it, empty so far.
    pub fn share(&self) -> Share {
        Share { left: Arc::clone(&self.left), held: 0 }
    }
}

impl Share {
    /// Come as near to `wanted` as there is room; returns how many slots may be kept now.
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
