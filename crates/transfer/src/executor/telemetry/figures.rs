//! What observers see: rates, shares, forecasts, the summary.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::reason::Why;
use swath_model::{SourceId, Time};
use swath_plan::SourceStatus;
use swath_plan::forecast::Delivery;
use swath_source::{Meter, plain_bytes};

use crate::executor::dataset::Dataset;
use crate::executor::integrity::agree::without_digest;
use crate::executor::integrity::audit::Audit;
use crate::executor::integrity::describe;
use crate::executor::sources::SourceEntry;
use crate::executor::state::Run;
use crate::limited::{Measured, Used};
use crate::observe::{
    DigestFrom, Eta, Event, Phase, Snapshot, SourceSnapshot, SourceState, SourceSummary, Summary,
    Verified,
};
use crate::verify::VerifierHandle;
use swath_model::units;

/// One source's figures.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Useful bytes.
    pub bytes: u64,
    pub wasted_bytes: u64,
    pub corrupt: u32,
    requests_ended: u64,
    lanes: u32,
    lanes_max: u32,
    rtt: Option<Duration>,
    busy_since: Option<Time>,
    busy_s: f64,
    /// (time, body bytes) of the last second, to find the highest rate over one second.
    recent: VecDeque<(Time, u64)>,
    capacity: f64,
    last_heard: Time,
    /// Body bytes of lanes that have ended.
    ended_bytes: u64,
    /// (time, body bytes) of the last few seconds, for the displayed rate.
    shown: VecDeque<(Time, u64)>,
    /// The highest displayed rate.
    best_shown: f64,
}

impl Figures {
    pub fn lane_opened(&mut self) {
        self.lanes += 1;
        self.lanes_max = self.lanes_max.max(self.lanes);
    }

    /// Notes the end of a lane; `was_up` tells whether it was ever connected.
    pub fn lane_ended(&mut self, was_up: bool, meter: &Meter) {
        self.lanes -= u32::from(was_up).min(self.lanes);
        self.requests_ended += meter.requests();
        self.wasted_bytes += meter.wasted_bytes();
        self.ended_bytes += meter.body_bytes();
    }

    pub fn round_trip(&mut self, rtt: Duration) {
        self.rtt = Some(self.rtt.map_or(rtt, |known| known.min(rtt)));
    }

    pub fn asked(&mut self, now: Time) {
        self.busy_since.get_or_insert(now);
    }

    pub fn answered(&mut self, now: Time, still_busy: bool) {
        if !still_busy && let Some(since) = self.busy_since.take() {
            self.busy_s += now.secs_since(since);
        }
    }

    /// Notes that a request came to nothing: the source was busy as long as anything came.
    pub fn failed(&mut self, still_busy: bool) {
        self.answered(self.last_heard, still_busy);
    }

    pub fn heard(&mut self, now: Time) {
        self.last_heard = now;
    }

    fn busy_s(&self, now: Time) -> f64 {
        self.busy_s + self.busy_since.map_or(0.0, |since| now.secs_since(since))
    }

    /// Notes how far the source is, and keeps the highest rate over one second.
    fn sample(&mut self, now: Time, body_bytes: u64) {
        self.recent.push_back((now, body_bytes));
        while self.recent.len() > 2 && now.secs_since(self.recent[1].0) >= 1.0 {
            self.recent.pop_front();
        }
        if let Some(&(from, before)) = self.recent.front()
            && now.secs_since(from) >= 0.9
        {
            let rate = body_bytes.saturating_sub(before) as f64 / now.secs_since(from);
            self.capacity = self.capacity.max(rate);
        }
    }

    /// Notes that all its lanes together have brought `body_bytes` so far.
    fn show(&mut self, now: Time, body_bytes: u64) {
        self.shown.push_back((now, body_bytes));
        while self.shown.len() > 2 && now.secs_since(self.shown[1].0) >= SHOWN_S {
            self.shown.pop_front();
        }
        let from = self.shown.front().map_or(now, |&(from, _)| from);
        if now.secs_since(from) >= 0.5 * SHOWN_S {
            self.best_shown = self.best_shown.max(self.shown_rate(now).unwrap_or(0.0));
        }
    }

    /// Notes that nothing comes from it any more: what came before is not its rate now.
    fn stop_showing(&mut self) {
        self.shown.clear();
    }

    /// Returns whether it brings much less than before.
    fn is_slow(&self, now: Time) -> bool {
        self.shown_rate(now).is_some_and(|rate| rate < 0.25 * self.best_shown)
    }

    /// Returns its rate over the last few seconds; `None` after too little time.
    fn shown_rate(&self, now: Time) -> Option<f64> {
        let (&(from, before), &(_, bytes)) = (self.shown.front()?, self.shown.back()?);
        let span_s = now.secs_since(from);
        (span_s >= SHOWN_MIN_S).then(|| bytes.saturating_sub(before) as f64 / span_s)
    }

    /// Returns its capacity: the highest rate over a few seconds, else over one second, which may
    /// be an initial burst that it cannot sustain.
    fn capacity(&self) -> f64 {
        if self.best_shown > 0.0 { self.best_shown } else { self.capacity }
    }

    fn mean_rate(&self, now: Time) -> f64 {
        let busy_s = self.busy_s(now);
        if busy_s > 0.0 { self.bytes as f64 / busy_s } else { 0.0 }
    }
}

impl Run<'_> {
    /// Returns how many of these bytes users see: all but the group hashes of a tree.
    pub(crate) fn told(&self, bytes: u64) -> u64 {
        match self.dataset {
            Dataset::Tree(_) => plain_bytes(bytes),
            Dataset::File => bytes,
        }
    }

    /// Takes a snapshot of all figures and reports it, about five times a second.
    pub(crate) fn take_figures(&mut self, now: Time) {
        let mut body = vec![0u64; self.sources.len()];
        let mut requests = vec![0u64; self.sources.len()];
        let mut lanes = vec![0u32; self.sources.len()];
        for entry in self.lanes.open.values() {
            body[entry.source] += entry.lane.meter().body_bytes();
            requests[entry.source] += entry.lane.meter().requests();
            lanes[entry.source] += 1;
        }
        for (at, entry) in self.sources.iter_mut().enumerate() {
            entry.figures.sample(now, body[at].max(entry.figures.bytes));
            let body_bytes = entry.figures.ended_bytes + body[at];
            entry.figures.show(now, body_bytes);
        }
        self.follow_states();
        for (at, entry) in self.sources.iter_mut().enumerate() {
            if lanes[at] == 0 && (entry.failures > 0 || entry.state == SourceState::Bad) {
                entry.figures.stop_showing();
            }
        }
        let total: u64 = self.sources.iter().map(|entry| entry.figures.bytes).sum();
        let mut rate = 0.0;
        let sources: Vec<SourceSnapshot> = self
            .sources
            .iter()
            .enumerate()
            .map(|(at, entry)| {
                let view = self.planner.source(SourceId(at as u32));
                let now_rate = view.as_ref().map_or(0.0, |view| view.rate_bytes_per_s);
                let is_over = lanes[at] == 0 && entry.figures.shown.is_empty();
                let own = match entry.figures.shown_rate(now) {
                    _ if is_over => 0.0,
                    Some(rate) => rate,
                    None => now_rate,
                };
                rate += own;
                SourceSnapshot {
                    source: at as u32,
                    name: entry.source.name().clone(),
                    state: entry.state,
                    rate_bytes_per_s: own,
                    bytes: self.told(entry.figures.bytes),
                    share: if total > 0 { entry.figures.bytes as f64 / total as f64 } else { 0.0 },
                    rtt_ms: entry.figures.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
                    lanes: lanes[at],
                    requests: entry.figures.requests_ended + requests[at],
                }
            })
            .collect();
        let hashed_bytes = self.integrity.verifier.as_ref().map_or(0, VerifierHandle::hashed_bytes);
        let compared_bytes = self.comparison.running.as_ref().map(Audit::compared_bytes);
        let snapshot = Snapshot {
            at_s: now.as_secs_f64(),
            phase: self.phase,
            size_bytes: self.coverage.size_bytes.map(|bytes| self.told(bytes)),
            files: self.dataset.files(),
            done_bytes: self.told(self.coverage.have.total_bytes()),
            resumed_bytes: self.told(self.coverage.resumed_bytes),
            verified_bytes: self.told(
                compared_bytes.unwrap_or_else(|| self.coverage.verified_bytes.max(hashed_bytes)),
            ),
            rate_bytes_per_s: rate,
            eta: self.eta(now),
            sources,
        };
        self.observer.observe(&Event::Progress(snapshot));
    }

    /// Returns the estimated time left.
    fn eta(&mut self, now: Time) -> Option<Eta> {
        let compared = self.comparison.running.as_ref().map(Audit::compared_bytes);
        let done_bytes = compared.unwrap_or_else(|| self.coverage.have.total_bytes());
        let left_bytes = self.coverage.size_bytes?.saturating_sub(done_bytes);
        let sources = (0..self.sources.len() as u32).map(SourceId).map(|source| {
            let view = self.planner.source(source);
            Delivery {
                bytes_per_s: view.as_ref().map_or(0.0, |view| view.rate_bytes_per_s),
                rtt: view.and_then(|view| view.rtt).unwrap_or_default(),
                limited_lanes: self.planner.paced_lanes(source),
            }
        });
        self.telemetry.pace.add(sources);
        // What was there before does not tell how far it is.
        let came_bytes = done_bytes.saturating_sub(self.coverage.resumed_bytes) as f64;
        let left_bytes = left_bytes as f64;
        let done_part = came_bytes / (came_bytes + left_bytes).max(1.0);
        let eta = self.telemetry.pace.left(left_bytes, now.as_secs_f64(), done_part);
        eta.filter(|_| matches!(self.phase, Phase::Fetching | Phase::Disputing))
    }

    /// Updates the states that users see from the planner's view.
    fn follow_states(&mut self) {
        let now = self.now();
        let is_ending = self.planner.time_left_s(now).is_none_or(|left_s| left_s < ENDING_S);
        for at in 0..self.sources.len() {
            let Some(view) = self.planner.source(SourceId(at as u32)) else { continue };
            let old = self.sources[at].state;
            if old == SourceState::Bad {
                continue;
            }
            let state = match view.status {
                SourceStatus::Spare => SourceState::Waiting,
                SourceStatus::Probing => SourceState::Probing,
                SourceStatus::Silent if view.on_probation => SourceState::Silent,
                SourceStatus::Silent
                    if now.secs_since(self.sources[at].figures.last_heard) > WAITS_S =>
                {
                    SourceState::Waiting
                }
                SourceStatus::Silent => old,
                SourceStatus::Bad => SourceState::Bad,
                // Its connection was lost; it is retried now and then.
                SourceStatus::Running if !view.busy && self.sources[at].failures > 0 => {
                    SourceState::Probing
                }
                SourceStatus::Running if !view.busy => SourceState::Idle,
                // With a rate limit here, a low rate says nothing about the source.
                SourceStatus::Running
                    if self.sources[at].figures.is_slow(now)
                        && !is_ending
                        && self.engine.limit_bytes_per_s.is_none() =>
                {
                    SourceState::Slow
                }
                SourceStatus::Running => SourceState::Running,
            };
            let reason = match state {
                SourceState::Bad => Some(
                    self.sources[at].reason.clone().unwrap_or_else(|| "it failed too often".into()),
                ),
                SourceState::Silent => Some("nothing arrives from it".into()),
                SourceState::Probing if self.sources[at].failures > 0 => {
                    self.sources[at].reason.clone()
                }
                _ => None,
            };
            self.sources[at].given_up = state == SourceState::Bad;
            self.set_state(at, state, reason);
        }
    }

    pub(crate) fn summary(&mut self) -> Summary {
        // A short transfer may end before the first look at its sources.
        self.follow_states();
        let now = self.now();
        let elapsed_s = now.as_secs_f64().max(1e-6);
        let fetch_s = self.telemetry.fetch_ended_at.unwrap_or(now).as_secs_f64().max(1e-6);
        let fetched_bytes: u64 = self.sources.iter().map(|entry| entry.figures.bytes).sum();
        let mut requests: Vec<u64> =
            self.sources.iter().map(|entry| entry.figures.requests_ended).collect();
        let mut wasted_bytes = self.coverage.wasted_bytes;
        for entry in self.lanes.open.values() {
            requests[entry.source] += entry.lane.meter().requests();
        }
        let sources: Vec<SourceSummary> = self
            .sources
            .iter()
            .enumerate()
            .map(|(at, entry)| {
                let figures = &entry.figures;
                let mean = figures.mean_rate(now);
                SourceSummary {
                    source: at as u32,
                    name: entry.source.name().clone(),
                    state: entry.state,
                    reason: entry.reason.as_ref().map(Why::to_string).filter(|_| {
                        match entry.state {
                            SourceState::Bad => true,
                            SourceState::Probing => entry.failures > 0,
                            _ => false,
                        }
                    }),
                    bytes: self.told(figures.bytes),
                    share: if fetched_bytes > 0 {
                        figures.bytes as f64 / fetched_bytes as f64
                    } else {
                        0.0
                    },
                    rate_bytes_per_s: mean,
                    capacity_bytes_per_s: figures.capacity().max(mean),
                    requests: requests[at],
                    lanes: figures.lanes_max,
                    settled_lanes: self
                        .planner
                        .source(SourceId(at as u32))
                        .map_or(0, |view| view.settled_lanes),
                    rtt_ms: figures.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
                    wasted_bytes: figures.wasted_bytes,
                }
            })
            .collect();
        wasted_bytes = wasted_bytes.max(sources.iter().map(|source| source.wasted_bytes).sum());
        let capacity: f64 = sources.iter().map(|source| source.capacity_bytes_per_s).sum();
        let efficiency =
            (capacity > 0.0).then(|| (fetched_bytes as f64 / fetch_s / capacity).min(1.0));
        let measured = self.measured(fetch_s, elapsed_s, fetched_bytes);
        let limited_by = Measured { efficiency, sources: self.used(), ..measured }.judge();
        Summary {
            sent: false,
            forecast: None,
            path: self.telemetry.name.clone(),
            size_bytes: self
                .told(self.coverage.size_bytes.unwrap_or_else(|| self.coverage.have.total_bytes())),
            fetched_bytes: self.told(fetched_bytes),
            resumed_bytes: self.told(self.coverage.resumed_bytes),
            kept_bytes: self.told(self.coverage.kept_bytes),
            kept_files: 0,
            elapsed_s,
            rate_bytes_per_s: self.told(fetched_bytes) as f64 / elapsed_s,
            wasted_bytes,
            efficiency,
            verified: self.verified(),
            verified_by: self.verified_by(),
            digest_from: self.digest_from(),
            proved: self.verified() != Verified::None,
            limited_by,
            digest: self.integrity.digest,
            sources,
        }
    }

    /// Returns whether digests prove every byte.
    pub(crate) fn is_proved(&self) -> bool {
        !self.integrity.proof.is_empty() && !self.integrity.word_of_relays
            || self.dataset.proves_blocks()
    }

    /// Returns what verified the file, in words.
    pub(crate) fn verified_by(&self) -> String {
        if !self.is_proved()
            && let Some(words) = self.word_of_relays()
        {
            return words;
        }
        if self.takes_relays_word() {
            return "relays brought blocks and checksums and could have changed both".to_owned();
        }
        let accepted = self.sources.accepted().count();
        if !self.is_proved()
            && accepted == 1
            && self.integrity.proof.voucher.is_none()
            && !self.integrity.verification.is_empty()
        {
            // A single source has no other to agree with.
            return without_digest(None).to_owned();
        }
        let mut words = self.integrity.verification.clone();
        if let compared @ 1.. = self.integrity.samples.peers.right_bytes
            && !self.is_proved()
        {
            let bytes = units::bytes(compared);
            words.push_str(&format!("; {bytes} at random places were compared and are equal"));
        }
        words
    }

    /// Returns who named the digests, if any prove the file.
    pub(crate) fn digest_from(&self) -> Option<DigestFrom> {
        let is_proved = matches!(self.verified(), Verified::Digest | Verified::Pieces);
        is_proved.then_some(match self.request.digests.is_empty() {
            false => DigestFrom::User,
            true if self.integrity.digests_offered => DigestFrom::Server,
            true => self.request.told_by,
        })
    }

    /// Describes the proof as it is now.
    pub(crate) fn describe_proof(&mut self) {
        self.integrity.verification = describe(&self.integrity.proof, self.sources.agreement);
    }

    /// Returns what verified the data, as a type.
    pub(crate) fn verified(&self) -> Verified {
        match self.dataset {
            Dataset::Tree(_) if self.takes_relays_word() => Verified::None,
            Dataset::Tree(_) => Verified::Blocks,
            Dataset::File if !self.is_proved() => Verified::None,
            Dataset::File if self.integrity.proof.wholes.is_empty() => Verified::Pieces,
            Dataset::File => Verified::Digest,
        }
    }

    /// Returns the measurements that show what limited the transfer.
    fn measured(&self, fetch_s: f64, elapsed_s: f64, fetched_bytes: u64) -> Measured {
        let disk = self.engine.disk.stats();
        Measured {
            fetched_bytes,
            fetch_s,
            elapsed_s,
            rate_limit: self.engine.limit_bytes_per_s,
            disk_s: disk
                .saturated
                .saturating_sub(self.telemetry.disk_began.saturated)
                .as_secs_f64(),
            output_s: self.output.nanos.load(Ordering::Relaxed) as f64 * 1e-9,
            hashing_s: self
                .engine
                .hash
                .busy()
                .saturating_sub(self.telemetry.hash_began)
                .as_secs_f64(),
            cpu_s: process_cpu_s() - self.telemetry.cpu_began_s,
            cores: self.engine.cores as f64,
            efficiency: None,
            is_tree: self.dataset.proves_blocks(),
            sources: Vec::new(),
        }
    }

    /// Returns the sources that delivered something.
    fn used(&self) -> Vec<Used> {
        let delivered = |(_, entry): &(usize, &SourceEntry)| entry.figures.bytes > 0;
        let used = self.sources.iter().enumerate().filter(delivered);
        used.map(|(at, entry)| {
            let is_gone = entry.state == SourceState::Bad
                || entry.state == SourceState::Silent
                || entry.state == SourceState::Probing && entry.failures > 0;
            Used {
                name: entry.source.name().to_string(),
                // Peers and other machines, which tell what they hold, come and go.
                is_lost: is_gone && entry.source.holdings().is_none(),
                is_paced: self.planner.source(SourceId(at as u32)).is_some_and(|view| view.paced),
                rtt_s: entry.figures.rtt.map(|rtt| rtt.as_secs_f64()),
            }
        })
        .collect()
    }

    /// Returns the newest modification time reported by an accepted source.
    pub(crate) fn newest_modified(&self) -> Option<std::time::SystemTime> {
        self.sources
            .accepted()
            .filter_map(|entry| entry.facts.as_ref()?.last_modified.as_deref())
            .filter_map(swath_formats::http_date::parse)
            .max()
            .map(|seconds| std::time::UNIX_EPOCH + Duration::from_secs(seconds))
    }
}

/// Returns the processor time of this process so far, in seconds.
pub(crate) fn process_cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and `time` lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Displayed rates are means over this time: limits, losses and schedulers make them swing.
const SHOWN_S: f64 = 3.0;
/// Shortest time over which a rate is shown.
const SHOWN_MIN_S: f64 = 0.5;
/// A source that was silent for this long is shown as waiting.
const WAITS_S: f64 = 1.5;
/// In the last seconds unneeded lanes close, so a low rate does not make a source slow.
const ENDING_S: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that fell silent and died kept its rate for three seconds, and its mean rate counted the
    /// silence.
    #[test]
    fn a_dead_source_is_not_busy_and_shows_no_rate() {
        let at = |seconds: f64| Time::ZERO.plus_secs(seconds);
        let mut figures = Figures { bytes: 1_000, ..Figures::default() };
        figures.asked(at(0.0));
        figures.heard(at(2.0));
        (0..10).for_each(|tenth| figures.show(at(f64::from(tenth) / 5.0), 1_000));
        figures.failed(false);
        assert!((figures.mean_rate(at(20.0)) - 500.0).abs() < 1e-6);
        assert!(figures.shown_rate(at(2.0)).is_some());
        figures.stop_showing();
        assert_eq!(figures.shown_rate(at(2.0)), None);
        // A request that was never answered costs no time.
        figures.asked(at(21.0));
        figures.failed(false);
        assert!((figures.mean_rate(at(40.0)) - 500.0).abs() < 1e-6);
    }
}
