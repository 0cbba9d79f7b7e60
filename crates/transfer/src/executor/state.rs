//! The state of one transfer.

use std::sync::Arc;

use swath_model::{Buffer, Pool, Range, RangeSet, SourceId, SwathId, Time};
use swath_plan::{Event as PlanEvent, Planner};
use swath_source::{Expected, Opening, Source};

use super::clock::Clock;
use super::coverage::Coverage;
use super::dataset::{Dataset, Tree};
use super::integrity::Integrity;
use super::integrity::audit::Comparison;
use super::integrity::suspect::Blame;
use super::jobs::Jobs;
use super::lanes::Lanes;
use super::persistence::Persistence;
use super::persistence::deliverer::Deliverer;
use super::routes::Routing;
use super::sink::Output;
use super::sources::{SourceEntry, SourceTable};
use super::telemetry::Telemetry;
use crate::engine::Engine;
use crate::observe::{Event, Observer, Outcome, Phase, SourceState, SwathRecord};
use crate::reason::{Reason, Why};
use crate::request::{Destination, Mirror, Request};

/// One transfer, composed of its parts. The parts do not know one another; whatever concerns
/// several of them is done here.
pub(super) struct Run<'a> {
    pub engine: &'a Engine,
    pub request: Request,
    pub observer: &'a mut dyn Observer,
    pub clock: Clock,
    pub planner: Planner,
    pub planner_done: bool,
    pub phase: Phase,
    pub sources: SourceTable,
    pub lanes: Lanes,
    /// Disk reads and writes under way.
    pub jobs: Jobs,
    pub coverage: Coverage,
    pub integrity: Integrity,
    pub blame: Blame,
    pub comparison: Comparison,
    pub persistence: Persistence,
    pub output: Output,
    pub telemetry: Telemetry,
    pub dataset: Dataset,
    /// The relays by which sources are reached; `None` if there are none.
    pub routing: Option<Box<Routing>>,
}

impl<'a> Run<'a> {
    pub fn new(engine: &'a Engine, request: Request, observer: &'a mut dyn Observer) -> Self {
        Self::with(engine, request, observer, Dataset::File)
    }

    /// Makes the run of a tree: the replicas of the request are sealed files.
    pub fn of_tree(
        engine: &'a Engine,
        request: Request,
        observer: &'a mut dyn Observer,
        tree: Tree,
    ) -> Self {
        let sink = Arc::clone(&tree.pass.sink);
        let mut run = Self::with(engine, request, observer, Dataset::Tree(Box::new(tree)));
        run.persistence.sink = Some(sink);
        run
    }

    fn with(
        engine: &'a Engine,
        mut request: Request,
        observer: &'a mut dyn Observer,
        dataset: Dataset,
    ) -> Self {
        request.plan.give_up_s = request.stall_s;
        let mut plan = request.plan.clone();
        if matches!(request.destination, Destination::Writer(_)) {
            // One grid cell is one slot, so the window is a number of slots.
            plan.grid_bytes = plan.grid_bytes.max(engine.pool.slot_bytes() as u64);
            plan.window_bytes = Some(window_bytes(&engine.pool));
        }
        let mut run = Self {
            engine,
            observer,
            clock: Clock::start(engine.net.awake_since()),
            planner: Planner::new(plan),
            planner_done: false,
            phase: Phase::Probing,
            sources: SourceTable::default(),
            lanes: Lanes::default(),
            jobs: Jobs::default(),
            coverage: Coverage::default(),
            integrity: Integrity::new(&request),
            blame: Blame::default(),
            comparison: Comparison::default(),
            persistence: Persistence::new(super::COMMIT_EVERY),
            output: Output::default(),
            telemetry: Telemetry::new(engine, request.destination_name()),
            dataset,
            routing: engine.routes.clone().map(|routes| Box::new(Routing::new(routes))),
            request,
        };
        run.name_relays();
        for mirror in run.request.mirrors.clone() {
            run.add_source(&mirror);
        }
        for source in std::mem::take(&mut run.request.sources) {
            run.enter_replica(source, None);
        }
        run.sources.discovery = run.request.discovery.as_ref().map(|it| it.sources());
        if run.request.plan.eager {
            run.ask_relays();
        }
        run
    }

    /// Adds a mirror, unless its address is known already. Returns whether it was added.
    pub fn add_source(&mut self, mirror: &Mirror) -> bool {
        let is_it = |entry: &SourceEntry| !entry.is_relayed() && entry.source.url() == &mirror.url;
        if self.sources.iter().any(is_it) {
            return false;
        }
        let sealed = self.dataset.length();
        let (net, url, trust) = (&self.engine.net, &mirror.url, mirror.trust);
        let source = match swath_source::open(Opening { net, url, trust, sealed }) {
            Ok(source) => match &self.request.discovery {
                Some(discovery) => discovery.named(source),
                None => source,
            },
            Err(error) => {
                self.sources.unopened.push(Reason::of_source(mirror.name(), error));
                return false;
            }
        };
        self.enter_replica(source, mirror.holds.as_ref());
        true
    }

    /// Adds a replica; `holds` is the part of the file that it has, if known.
    pub fn enter_replica(&mut self, source: Arc<dyn Source>, holds: Option<&RangeSet>) {
        self.promise_proof(&*source);
        let mut entry = SourceEntry::new(source);
        if let Some(holds) = holds {
            let all = Range::new(0, u64::MAX);
            entry.lacks = holds.gaps_within(all).into_iter().collect();
        }
        let number = self.sources.len();
        self.enter_source(entry);
        self.route_replica(number);
    }

    /// Tells the source if the user's digests will prove its bytes: its versions may differ then.
    pub fn promise_proof(&self, source: &dyn Source) {
        let wanted = self.request.known_digests().next().is_some();
        let proved = !self.dataset.proves_blocks() && (wanted || self.request.pieces.is_some());
        source.expect(Expected { size_bytes: None, proved });
    }

    /// Adds a source, with the next number.
    pub fn enter_source(&mut self, entry: SourceEntry) {
        let at = self.sources.len();
        self.persistence.enter(Deliverer::of(&*entry.source));
        self.sources.push(entry);
        self.plan_source(at);
    }

    /// Adds a source to the planner, with the ranges that it lacks or may not be asked for.
    pub fn plan_source(&mut self, at: usize) {
        let (source, now) = (SourceId(at as u32), self.now());
        let entry = &self.sources[at];
        let told = entry.source.limits().connections;
        let max_lanes = entry.lanes_max.map_or(told, |own| Some(told.unwrap_or(own).min(own)));
        self.planner.handle(PlanEvent::SourceAdded { source, max_lanes }, now);
        for range in self.sources[at].lacks.iter() {
            self.planner.handle(PlanEvent::Lacks { source, range }, now);
        }
        for range in self.may_not_judge(at) {
            self.planner.handle(PlanEvent::Forbidden { source, range }, now);
        }
        if self.is_closed_route(at) && !self.is_replacing() {
            self.planner.handle(PlanEvent::SourceRests { source, rests: true }, now);
        }
    }

    pub fn announce(&mut self) {
        let sources = self.sources.iter().map(|entry| entry.source.name().to_string()).collect();
        let path = self.request.destination_name();
        self.observer.observe(&Event::Started { path, sources });
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    pub fn at_s(&self) -> f64 {
        self.clock.began.elapsed().as_secs_f64()
    }

    pub fn note(&mut self, text: String, warning: bool) {
        let at_s = self.at_s();
        self.observer.observe(&Event::note(at_s, text, warning));
    }

    /// Changes a source's state as shown to the user.
    pub fn set_state(&mut self, at: usize, state: SourceState, reason: Option<Why>) {
        let at_s = self.at_s();
        let Some(entry) = self.sources.get_mut(at) else { return };
        if reason.is_some() {
            entry.reason.clone_from(&reason);
        }
        if entry.state == state {
            return;
        }
        entry.state = state;
        let brings = matches!(state, SourceState::Running | SourceState::Slow | SourceState::Idle);
        entry.asked_again &= !brings;
        let is_news = !entry.asked_again;
        if state == SourceState::Bad {
            self.route_failed(at);
        }
        if !is_news {
            return;
        }
        let name = self.sources[at].source.name().clone();
        let reason = reason.map(|why| why.to_string());
        self.observer.observe(&Event::Source { at_s, source: at as u32, name, state, reason });
    }

    /// Drops a source for good.
    pub fn drop_source(&mut self, at: usize, reason: impl Into<Why>) {
        let entry = self.sources.get_mut(at);
        if entry.is_some_and(|entry| std::mem::take(&mut entry.given_up)) {
            // Its route is closed already, but this reason may apply to all routes.
            self.route_failed(at);
        }
        self.set_state(at, SourceState::Bad, Some(reason.into()));
        let source = SourceId(at as u32);
        self.planner.handle(PlanEvent::SourceBad { source }, self.now());
    }

    /// Ends a swath and reports its outcome to the observer.
    pub fn close_swath(&mut self, id: SwathId, outcome: Outcome) {
        let Some(swath) = self.lanes.swaths.remove(&id) else { return };
        self.look_at_tail(&swath);
        if outcome == Outcome::Failed {
            let is_busy = self.lanes.swaths.values().any(|other| other.source == swath.source);
            if let Some(entry) = self.sources.get_mut(swath.source) {
                entry.figures.failed(is_busy);
            }
        }
        let ended_at_s = self.at_s();
        let outcome = match swath.outcome.unwrap_or(outcome) {
            // Bytes fetched for a comparison do not go into the file.
            Outcome::Done | Outcome::Trimmed if self.phase == Phase::Disputing => Outcome::Lost,
            other => other,
        };
        self.observer.observe(&Event::Swath(SwathRecord {
            source: swath.source as u32,
            lane: swath.lane.0,
            start: swath.range.start,
            end: swath.delivered_to.max(swath.range.start),
            asked_end: swath.range.end,
            asked_at_s: swath.asked_at.as_secs_f64(),
            first_byte_at_s: swath.first_byte_at.map(Time::as_secs_f64),
            ended_at_s,
            outcome,
        }));
    }

    /// Ends every lane; healthy connections are kept for the next file.
    pub fn close_lanes(&mut self) {
        for (_, entry) in std::mem::take(&mut self.lanes.open) {
            entry.lane.close();
            let meter = entry.lane.meter();
            if let Some(source) = self.sources.get_mut(entry.source) {
                source.figures.lane_ended(entry.up, meter);
            }
        }
        let open: Vec<SwathId> = self.lanes.swaths.keys().copied().collect();
        for id in open {
            self.close_swath(id, Outcome::Lost);
        }
        self.lanes.forget_events();
    }

    /// Counts a chunk as wasted and returns its buffer to the pool.
    pub fn discard(&mut self, source: usize, buffer: Buffer) {
        let bytes = buffer.len() as u64;
        self.coverage.wasted_bytes += bytes;
        if let Some(entry) = self.sources.get_mut(source) {
            entry.figures.wasted_bytes += bytes;
        }
    }
}

/// Returns how far an ordered transfer may run ahead of its consumer: the size of the pool, less a
/// sixth for the buffers that lanes are filling and for those that broken lanes leave half full.
pub(super) fn window_bytes(pool: &Pool) -> u64 {
    let slots = pool.slots().saturating_sub(pool.slots() / 6).max(2) - 1;
    (slots * pool.slot_bytes()) as u64
}
