//! The kept data of failed transfers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use swath_transfer::observe::{Event, Observer};

/// The kept data of a failed transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Bytes from which a later run resumes.
    pub bytes: u64,
    /// Bytes that were received or existed, reusable or not.
    pub come_bytes: u64,
    /// Whether an event reported the failure.
    pub is_told: bool,
}

impl Leftover {
    /// Returns the kept bytes, if an event reported them.
    pub fn known_bytes(&self) -> Option<u64> {
        self.is_told.then_some(self.bytes)
    }
}

/// Observes a transfer and records what is kept; clones share the record.
#[derive(Clone, Debug, Default)]
pub struct KeptRecorder(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicU64,
    come_bytes: AtomicU64,
    is_told: AtomicBool,
}

impl KeptRecorder {
    /// Returns the kept data.
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
