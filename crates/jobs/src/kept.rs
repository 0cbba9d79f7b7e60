//! What is kept of a transfer that failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use swath_transfer::observe::{Event, Observer};

/// What is kept of a transfer that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Bytes for a later run to go on from.
    pub bytes: u64,
    /// Bytes that came or were there, whether a later run can make use of them or not.
    pub come_bytes: u64,
    /// An event told observers of the failure.
    pub is_told: bool,
}

impl Leftover {
    /// Bytes for a later run, if an event told of them.
    pub fn known_bytes(&self) -> Option<u64> {
        self.is_told.then_some(self.bytes)
    }
}

/// Observes a transfer and remembers what is kept of it; clones remember the same.
#[derive(Clone, Debug, Default)]
pub struct KeptRecorder(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicU64,
    come_bytes: AtomicU64,
    is_told: AtomicBool,
}

impl KeptRecorder {
    /// Returns what is kept.
    pub fn kept(&self) -> Leftover {
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        Leftover {
            bytes,
            come_bytes: self.0.come_bytes.load(Ordering::Relaxed).max(bytes),
            is_told: self.0.is_told.load(Ordering::Relaxed),
        }
    }
}

impl Observer for KeptRecorder {
    fn observe(&mut self, event: &Event) {
        let come_bytes = match event {
            Event::Opened { resumed_bytes, kept_bytes, .. } => resumed_bytes + kept_bytes,
            Event::Progress(now) => now.done_bytes,
            Event::Failed { kept_bytes, summary, .. } => {
                self.0.bytes.store(*kept_bytes, Ordering::Relaxed);
                self.0.is_told.store(true, Ordering::Relaxed);
                summary.fetched_bytes
            }
            _ => 0,
        };
        self.0.come_bytes.fetch_max(come_bytes, Ordering::Relaxed);
    }
}
