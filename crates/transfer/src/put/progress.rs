//! Progress of a single file that goes to a server.

use std::time::Duration;

use swath_model::SourceName;
use swath_model::digest::{Algorithm, Digest};
use swath_source::LaneError;
use tokio::time::Instant;

use crate::observe::{
    Event, LimitedBy, Observer, Phase, Snapshot, SourceSnapshot, SourceState, SourceSummary,
    Summary, Verified,
};

/// Reports progress to the observer.
pub(crate) struct FileProgress<'a> {
    observer: &'a mut dyn Observer,
    to: String,
    from: String,
    began: Instant,
    size_bytes: Option<u64>,
    sent_bytes: u64,
    phase: Phase,
    state: SourceState,
    /// Time of the last report, and the bytes sent by then.
    last: (Instant, u64),
    rate_bytes_per_s: f64,
}

impl FileProgress<'_> {
    pub fn begin(observer: &mut dyn Observer, to: String, from: String) -> FileProgress<'_> {
        let began = Instant::now();
        observer.observe(&Event::Started { path: to.clone(), sources: vec![from.clone()] });
        FileProgress {
            observer,
            to,
            from,
            began,
            size_bytes: None,
            sent_bytes: 0,
            phase: Phase::Probing,
            state: SourceState::Probing,
            last: (began, 0),
            rate_bytes_per_s: 0.0,
        }
    }

    pub fn opened(&mut self, size_bytes: Option<u64>, verification: Option<Algorithm>) {
        self.size_bytes = size_bytes;
        let verification = verification.map(|by| by.name().to_owned()).unwrap_or_default();
        self.observer.observe(&Event::Opened {
            size_bytes,
            resumed_bytes: 0,
            kept_bytes: 0,
            verification,
        });
    }

    /// Reports that the server refuses for now.
    pub fn waits(&mut self, error: &LaneError, wait: Duration) {
        (self.sent_bytes, self.last) = (0, (Instant::now(), 0));
        self.state = SourceState::Waiting;
        let wait = swath_model::units::duration(wait.as_secs_f64());
        let text = format!("{}: {error}; trying again in {wait}", self.to);
        let at_s = self.began.elapsed().as_secs_f64();
        self.observer.observe(&Event::note(at_s, text, false));
    }

    pub fn running(&mut self) {
        (self.phase, self.state) = (Phase::Fetching, SourceState::Running);
        self.last.0 = Instant::now();
    }

    pub fn sent(&mut self, bytes: u64) {
        self.sent_in_all(self.sent_bytes + bytes);
    }

    /// So many bytes are sent in all.
    pub fn sent_in_all(&mut self, bytes: u64) {
        self.sent_bytes = bytes;
        let now = Instant::now();
        let span_s = now.duration_since(self.last.0).as_secs_f64();
        if span_s >= TOLD_EVERY.as_secs_f64() {
            let rate = self.sent_bytes.saturating_sub(self.last.1) as f64 / span_s;
            // Smoothed, so that it can be read.
            let share = if self.rate_bytes_per_s == 0.0 { 1.0 } else { 0.3 };
            self.rate_bytes_per_s += share * (rate - self.rate_bytes_per_s);
            self.last = (now, self.sent_bytes);
            self.progress();
        }
    }

    pub fn finishing(&mut self) {
        (self.phase, self.state) = (Phase::Finishing, SourceState::Idle);
        self.progress();
    }

    fn progress(&mut self) {
        let at_s = self.began.elapsed().as_secs_f64();
        let source = SourceSnapshot {
            source: 0,
            name: SourceName::direct(&self.from),
            state: self.state,
            rate_bytes_per_s: self.rate_bytes_per_s,
            bytes: self.sent_bytes,
            share: 1.0,
            rtt_ms: None,
            lanes: 1,
            requests: 1,
        };
        self.observer.observe(&Event::Progress(Snapshot {
            at_s,
            phase: self.phase,
            size_bytes: self.size_bytes,
            files: 1,
            done_bytes: self.sent_bytes,
            resumed_bytes: 0,
            verified_bytes: 0,
            rate_bytes_per_s: self.rate_bytes_per_s,
            eta: None,
            sources: vec![source],
        }));
    }

    /// Reports that the server has the file already, with a digest by this algorithm.
    pub fn kept(self, size_bytes: u64, by: Algorithm, digest: Option<Digest>) -> Summary {
        let summary = Summary {
            size_bytes,
            kept_bytes: size_bytes,
            kept_files: 1,
            elapsed_s: self.began.elapsed().as_secs_f64(),
            verified: Verified::Digest,
            verified_by: format!("{}, computed by the server", by.name()),
            proved: true,
            digest,
            sent: true,
            forecast: None,
            ..Summary::of_nothing(self.to)
        };
        self.observer.observe(&Event::Finished(summary.clone()));
        summary
    }

    /// Reports the end. `by` is the algorithm by which the server has shown that it has the right bytes.
    pub fn finished(
        self,
        by: Option<Algorithm>,
        digest: Option<Digest>,
        limited_by: LimitedBy,
    ) -> Summary {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let rate_bytes_per_s = self.sent_bytes as f64 / elapsed_s.max(f64::EPSILON);
        let verified_by = match by {
            Some(by) => format!("{}, computed by the server", by.name()),
            None => "the server reports no digest of the file".to_owned(),
        };
        let source = SourceSummary {
            source: 0,
            name: SourceName::direct(self.from),
            state: SourceState::Idle,
            reason: None,
            bytes: self.sent_bytes,
            share: 1.0,
            rate_bytes_per_s,
            capacity_bytes_per_s: rate_bytes_per_s,
            requests: 1,
            lanes: 1,
            settled_lanes: 0,
            rtt_ms: None,
            wasted_bytes: 0,
        };
        let summary = Summary {
            size_bytes: self.sent_bytes,
            fetched_bytes: self.sent_bytes,
            elapsed_s,
            rate_bytes_per_s,
            verified: if by.is_some() { Verified::Digest } else { Verified::None },
            verified_by,
            proved: by.is_some(),
            limited_by,
            digest,
            sources: vec![source],
            sent: true,
            forecast: None,
            ..Summary::of_nothing(self.to)
        };
        self.observer.observe(&Event::Finished(summary.clone()));
        summary
    }
}

/// Interval of snapshots.
const TOLD_EVERY: Duration = Duration::from_millis(200);
