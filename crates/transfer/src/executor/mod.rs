//! The executor of one transfer: carries messages between planner, lanes, store and verifier.
//!
//! One task owns all state ([`Run`]). Lanes and hashing run elsewhere and report by channels. The
//! disk also works elsewhere; `jobs` waits for it. The planner decides and this module obeys: it
//! chooses no size, no source and no retry.
//!
//! Each folder is one part of [`Run`] with its methods: `sources` (their answers, agreement and
//! failures), `dataset` (what is fetched), `sink` (where it goes), `persistence` (what a later run
//! finds), `integrity` (proof and blame), `routes` (relays in use), `telemetry` (what observers
//! get).

mod act;
mod arrive;
mod clock;
mod coverage;
mod dataset;
mod integrity;
mod jobs;
mod lanes;
mod persistence;
mod routes;
mod sink;
mod sources;
mod state;
mod telemetry;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use swath_model::Time;
use swath_plan::forecast::STEP_S;
use swath_plan::{Action, Event as PlanEvent};
use swath_store::tree::{PartialTree, TreePlace, existing};
use swath_store::{FinishError, OpenError, look};
use tokio::time::{Instant, sleep_until};

use crate::check::Wanted;
use crate::engine::{Engine, Stop};
use crate::error::GetError;
use crate::observe::{Event, Observer, Phase, Summary};
use crate::present::{self, Unlike};
use crate::request::{Destination, Overwrite, Request};
pub(crate) use dataset::{Pass, PassEnd, run_pass};
pub use integrity::agree::{Agreement, Unlikeness, Version};
use integrity::samples::Samples;
use routes::Routing;
pub(crate) use sink::{Sink, TreeSink};
use state::Run;

/// Fetches one file.
pub(crate) async fn run(
    engine: &Engine,
    mut request: Request,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<Summary, GetError> {
    if let Some((one, other)) = request.contradiction() {
        return Err(GetError::Contradiction { one: one.into(), other: other.into() });
    }
    // Files that nothing may be in the way of, at the end either.
    let mut new_set = None;
    let left = match &request.destination {
        Destination::File(path) => {
            let path = path.clone();
            let replaces = request.overwrite == Overwrite::Always;
            let looked = match look(&path, request.beneath.as_deref(), replaces) {
                Err(OpenError::Exists(_)) => {
                    match present::complete(engine, &mut request, &path, observer, stop).await {
                        Err(GetError::Present { .. })
                            if request.overwrite == Overwrite::IfOther =>
                        {
                            request.overwrite = Overwrite::Always;
                            look(&path, request.beneath.as_deref(), true)
                        }
                        ended => return ended,
                    }
                }
                looked => looked,
            };
            looked?.filter(|_| request.resume)
        }
        Destination::Files { folder, files } => {
            let (folder, files) = (folder.clone(), Arc::clone(files));
            let beneath = request.beneath.clone();
            TreePlace { beneath, ..TreePlace::at(&folder) }.check_links()?;
            let wanted = Wanted::of(&request);
            let replaces = request.overwrite != Overwrite::Never;
            match present::complete_set(wanted, &folder, &files, replaces, observer, stop).await {
                Ok(None) => {}
                Ok(Some(summary)) => return Ok(summary),
                Err(GetError::Present { unlike, .. }) if replaces && unlike != Unlike::Link => {}
                Err(error) => return Err(error),
            }
            if !replaces && !PartialTree::is_moving(&folder) {
                new_set = Some((folder, files));
            }
            None
        }
        Destination::Writer(_) | Destination::Tree(_) | Destination::Nowhere { .. } => None,
    };
    let has_none =
        request.mirrors.is_empty() && request.sources.is_empty() && request.discovery.is_none();
    if has_none {
        return Err(GetError::NoSources);
    }
    request.mirrors.sort_by_key(|mirror| mirror.priority);
    let mut run = Run::new(engine, request, observer);
    if let Some(left) = left {
        run.hold_to(left);
    }
    run.announce();
    let result = loop {
        let ended = match run.drive(stop).await {
            Ok(()) => run.judge(stop).await,
            Err(ended) => Err(ended),
        };
        match ended {
            Ok(()) if run.lacks_digest() => break Err(GetError::NoDigest),
            Ok(()) => {
                let appeared = new_set
                    .as_ref()
                    .and_then(|(folder, files)| existing(folder, files).into_iter().next());
                match appeared {
                    Some(path) => break Err(FinishError::Exists(path).into()),
                    None => break run.finish().await,
                }
            }
            Err(Ended::Restart) => run.restart().await,
            Err(Ended::Again) => break Err(GetError::Forgotten),
            Err(Ended::Error(error)) => break Err(error),
        }
    };
    run.keep_routes();
    match result {
        Ok(()) => {
            run.warn_of_relays();
            run.warn_unverified();
            let summary = run.summary();
            run.observer.observe(&Event::Finished(summary.clone()));
            Ok(summary)
        }
        Err(GetError::Metalink { url }) => {
            // No target was opened yet.
            run.close_lanes();
            let (at_s, shown) = (run.at_s(), swath_source::display_name(&url));
            run.observer.observe(&Event::Metalink { at_s, url: shown });
            Err(GetError::Metalink { url })
        }
        Err(error) => {
            let kept_bytes = match (run.keep().await, &run.request.destination, &error) {
                // Another process is writing there, or an existing file is in the way.
                (0, _, GetError::Open(_)) => 0,
                // The target was not even opened: the data of an earlier run is still there.
                (0, Destination::File(path), _) => swath_store::kept_bytes(path),
                (kept_bytes, ..) => kept_bytes,
            };
            let failed = error.event(kept_bytes, run.summary());
            run.observer.observe(&failed);
            Err(error)
        }
    }
}

/// Why the main loop ended early.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Start again without the fetched data, as when most mirrors hold another version.
    Restart,
    /// The source of a tree has forgotten its walk; received data counts.
    Again,
    /// The transfer failed.
    Error(GetError),
}

impl<E: Into<GetError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Run<'_> {
    /// Runs the main loop until every byte is fetched, written and, piece by piece, verified.
    async fn drive(&mut self, stop: &Stop) -> Result<(), Ended> {
        loop {
            self.read_meters();
            self.look_at_holdings();
            self.look_at_routes();
            if self.waited_for_routes() {
                self.act(Action::Exhausted)?;
            }
            while let Some(action) = self.planner.poll(self.now()) {
                self.act(action)?;
            }
            if self.is_complete() {
                return Ok(());
            }
            let wake = self.wake_at();
            tokio::select! {
                biased;
                () = stop.wait() => return Err(GetError::Stopped.into()),
                Some(event) = self.lanes.events.recv() => {
                    self.lane_event(event).await?;
                    // Events that are already queued are handled before the planner runs again.
                    for _ in 0..EVENTS_PER_TURN {
                        let Ok(event) = self.lanes.events.try_recv() else { break };
                        self.lane_event(event).await?;
                    }
                }
                done = self.jobs.next() => self.job_done(done)?,
                Some(report) = self.integrity.reports.recv() => self.hash_report(report)?,
                Some(report) = self.output.reports.recv() => self.stream_report(report)?,
                answer = Samples::next(&mut self.integrity.samples) => self.sampled(answer)?,
                news = self.dataset.news() => self.tree_news(news)?,
                word = Routing::word(&mut self.routing) => self.relay_told(word),
                source = self.sources.found() => self.source_found(source),
                (source, told) = self.integrity.late.answer() => self.digest_told(source, told).await?,
                () = sleep_until(wake) => {}
            }
            if self.is_forgotten() {
                return Err(Ended::Again);
            }
            // Blocks that came in this turn go to the disk before the next turn.
            while let Some(done) = self.jobs.ended() {
                self.job_done(done)?;
            }
            self.housekeeping()?;
        }
    }

    /// Waits for the last hashes once everything is written, and acts on their results.
    async fn judge(&mut self, stop: &Stop) -> Result<(), Ended> {
        self.phase = Phase::Verifying;
        self.close_lanes();
        loop {
            if let Some((wanted, actual)) = self.integrity.take_whole() {
                if wanted == actual {
                    self.integrity.digest = Some(actual);
                    self.convict_contradicted();
                    return Ok(());
                }
                self.audit(wanted, actual, stop).await?;
                continue;
            }
            if !self.integrity.awaits_whole() {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = stop.wait() => return Err(GetError::Stopped.into()),
                done = self.jobs.next() => self.job_done(done)?,
                Some(report) = self.integrity.reports.recv() => self.hash_report(report)?,
                Some(report) = self.output.reports.recv() => self.stream_report(report)?,
                () = sleep_until(Instant::now() + SNAPSHOT) => {}
            }
            self.housekeeping()?;
        }
    }

    /// Returns when the loop must turn again even if nothing happens.
    fn wake_at(&self) -> Instant {
        let planner = self.planner.poll_timeout().unwrap_or(Time::MAX);
        let snapshot = self.telemetry.shown_at + SNAPSHOT;
        let routes =
            self.routing.as_ref().and_then(|routing| routing.wake_at()).unwrap_or(Time::MAX);
        self.clock.began + planner.min(snapshot).min(routes).max(self.now()).since(Time::ZERO)
    }

    /// Does what is due by time: snapshots, commits, the stall limit.
    fn housekeeping(&mut self) -> Result<(), Ended> {
        let now = self.now();
        if now.since(self.telemetry.shown_at) >= SNAPSHOT {
            self.telemetry.shown_at = now;
            self.take_figures(now);
            self.compare_before_end();
        }
        // An urgent commit (`committed_at` is zero) stays due until the running commit has ended.
        let waits = self.persistence.committing && self.persistence.committed_at == Time::ZERO;
        if now.since(self.persistence.committed_at) >= self.persistence.commit_every && !waits {
            self.persistence.committed_at = now;
            self.persistence.commit_every = (self.persistence.commit_every * 2).min(COMMIT_EVERY);
            self.commit();
        }
        self.look_at_disputes()?;
        self.relieve(now);
        self.look_awake(now);
        self.tell_break();
        let stall_s = self.request.stall_s;
        let waits_for_sources =
            matches!(self.phase, Phase::Probing | Phase::Fetching | Phase::Disputing);
        if self.holds_sources_up() {
            self.clock.last_arrival = now;
        } else if self.waits_for_joins() {
            if self.clock.silence_s() > stall_s {
                self.joins_ended();
            }
        } else if waits_for_sources && !self.planner_done && self.clock.silence_s() > stall_s {
            // Sources with another version than the kept one have answered; those that may have the
            // kept one are silent.
            if self.give_up_left() {
                self.clock.last_arrival = now;
                return Err(Ended::Restart);
            }
            return Err(GetError::Stalled { stall_s, reasons: self.reasons() }.into());
        }
        Ok(())
    }

    /// Tells the planner if this machine was asleep: sources that failed get another chance.
    fn look_awake(&mut self, now: Time) {
        let since = self.engine.net.awake_since();
        if since > self.clock.awake_since {
            self.clock.awake_since = since;
            self.planner.handle(PlanEvent::Awoke, now);
        }
    }

    /// Frees buffers if those waiting in an ordered stream are all there are, so that the next
    /// bytes in order can come in.
    fn relieve(&mut self, now: Time) {
        let full = self.engine.pool.free_slots() == 0;
        let Some(stream) = self.output.stream.as_ref().filter(|_| {
            full && !self.output.reader_is_behind(&self.coverage, &self.integrity.proof)
        }) else {
            self.output.starved_since = None;
            return;
        };
        let since = *self.output.starved_since.get_or_insert(now);
        if now.since(since) >= STARVED_MAX {
            stream.shed((self.engine.pool.slots() / SHED_PART).max(1));
            self.output.starved_since = None;
        }
    }

    /// Returns whether nothing comes because of this side: the rate limit, the disk, or the reader
    /// of the ordered stream. However long that lasts, no source is to blame for it.
    fn holds_sources_up(&self) -> bool {
        if self.output.reader_is_behind(&self.coverage, &self.integrity.proof)
            || (self.planner_done && (!self.jobs.is_empty() || self.integrity.late.is_asked()))
        {
            return true;
        }
        // The buffers of an ordered stream come back when its reader takes bytes. If there are none
        // to take, the wait must end like any other.
        let may_last = self.output.stream.is_none() || self.engine.limit_bytes_per_s.is_some();
        may_last && self.lanes.open.values().any(|lane| lane.held_up)
    }

    /// Tells the planner how far every lane has come.
    fn read_meters(&mut self) {
        let now = self.now();
        if now.since(self.lanes.read_at) < METERS && now.since(self.lanes.read_at) != Duration::ZERO
        {
            return;
        }
        self.lanes.read_at = now;
        let mut moved = BTreeSet::new();
        for (&id, lane) in &mut self.lanes.open {
            if lane.look_for_holds() {
                self.planner.handle(PlanEvent::HeldUp { lane: id }, now);
            }
            let total_bytes = lane.lane.meter().body_bytes();
            if total_bytes == lane.seen_bytes {
                let bytes = lane.lane.meter().out_of_order_bytes();
                self.planner.handle(PlanEvent::OutOfOrder { lane: id, bytes }, now);
                continue;
            }
            lane.seen_bytes = total_bytes;
            lane.heard_at = now;
            moved.insert(id);
            if let Some(source) = self.sources.get_mut(lane.source) {
                source.figures.heard(now);
                if !source.no_progress.is_it() {
                    self.clock.last_arrival = now;
                }
            }
            self.planner.handle(PlanEvent::Arrived { lane: id, total_bytes }, now);
            let meter = lane.lane.meter();
            let (bytes, total) = (meter.out_of_order_bytes(), meter.pauses());
            self.planner.handle(PlanEvent::OutOfOrder { lane: id, bytes }, now);
            self.planner.handle(PlanEvent::Paused { lane: id, total }, now);
            if let Some(rtt) = meter.rtt() {
                self.planner.handle(PlanEvent::RoundTrip { lane: id, rtt }, now);
            }
        }
        self.lanes.begun(&moved, now);
    }

    /// Returns whether the main loop has nothing more to wait for.
    fn is_complete(&mut self) -> bool {
        self.are_proved()
            && self.are_sampled()
            && self.planner_done
            && self.jobs.is_empty()
            && self.integrity.unjudged_bytes(&self.coverage) == 0
            && self.output.is_done(self.coverage.size_bytes)
            && !self.waits_for_joins()
            && !self.waits_for_digest()
    }
}

/// Longest wait of an ordered stream for a buffer.
const STARVED_MAX: Duration = Duration::from_millis(500);
/// One of this many buffers is freed after that wait, from the end of the stream.
const SHED_PART: usize = 8;
/// How often observers get a snapshot.
const SNAPSHOT: Duration = Duration::from_millis((STEP_S * 1e3) as u64);
/// Interval of journal commits: the time of work that a crash can cost.
const COMMIT_EVERY: Duration = Duration::from_millis(1000);
/// Time to the first commit of a large file, whose journal exists already. Each further wait is
/// twice as long, up to [`COMMIT_EVERY`].
const COMMIT_FIRST: Duration = Duration::from_millis(125);
/// Shortest interval between readings of the meters: finer steps would cost more than they show.
const METERS: Duration = Duration::from_millis(4);
/// Most further lane events handled in one turn of the loop.
const EVENTS_PER_TURN: usize = 64;
