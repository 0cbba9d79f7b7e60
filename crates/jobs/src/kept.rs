//! The kept data of failed transfers.

use swath_transfer::observe::{Event, Observer};

/// The kept data of a failed transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptData {
    /// Bytes from which a later run resumes.
    pub bytes: u64,
    /// Bytes that were received or existed, reusable or not.
    pub received_bytes: u64,
    /// Whether an event reported the failure.
    pub is_reported: bool,
}

impl KeptData {
    /// Returns the kept bytes, if an event reported them.
    pub fn known_bytes(&self) -> Option<u64> {
        self.is_reported.then_some(self.bytes)
    }
}

/// Passes on the events of a transfer and records what is kept.
pub struct KeptRecorder<'a> {
    observer: &'a mut dyn Observer,
    /// The kept data so far.
    pub kept: KeptData,
}

impl<'a> KeptRecorder<'a> {
    /// Returns a recorder that passes events to `observer`.
    pub fn new(observer: &'a mut dyn Observer) -> KeptRecorder<'a> {
        KeptRecorder { observer, kept: KeptData::default() }
    }
}

impl Observer for KeptRecorder<'_> {
    fn observe(&mut self, event: &Event) {
        let received_bytes = match event {
            Event::Opened { resumed_bytes, kept_bytes, .. } => resumed_bytes + kept_bytes,
            Event::Progress(now) => now.done_bytes,
            Event::Failed { kept_bytes, summary, .. } => {
                (self.kept.bytes, self.kept.is_reported) = (*kept_bytes, true);
                summary.fetched_bytes.max(*kept_bytes)
            }
            _ => 0,
        };
        self.kept.received_bytes = self.kept.received_bytes.max(received_bytes);
        self.observer.observe(event);
    }
}
