//! The state of one transfer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::reason::{Reason, Why};
use swath_model::digest::Digest;
use swath_model::{Buffer, LaneId, Pool, Range, RangeMap, RangeSet, SourceId, SwathId, Time};
use swath_plan::routes::Fault;
use swath_plan::{Event as PlanEvent, Planner};
use swath_source::{Carriage, Expected, Facts, Lane, LaneEvent, Opening, Source};
use swath_store::{Left, OpenError, Record, Target};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::agree::Agreement;
use super::audit::{Audit, Hypothesis};
use super::barren::Barren;
use super::broken::Broken;
use super::deliverer::Deliverer;
use super::figures::Figures;
use super::in_order::InOrder;
use super::jobs::Jobs;
use super::ordered::{Ordered, Word};
use super::samples::Samples;
use super::sealed::Tree;
use super::suspect::Suspicion;
use super::ways::{OnRoute, Ways};
use crate::engine::Engine;
use crate::observe::{Event, Observer, Outcome, Phase, SourceState, SwathRecord};
use crate::request::{Destination, Mirror, Request};
use crate::verify::{Proof, Report, VerifierHandle};

/// One source of this transfer.
pub(super) struct SourceEntry {
    pub source: Arc<dyn Source>,
    pub facts: Option<Facts>,
    /// What of the file it does not have.
    pub lacks: RangeSet,
    /// Whether its file is the one that we fetch; `None` while it has not said.
    pub accepted: Option<bool>,
    pub state: SourceState,
    pub reason: Option<Why>,
    pub ever_up: bool,
    /// It has answered with a Metalink in place of the file once.
    pub metalink_passed: bool,
    /// How often it was begun anew, because no two of its answers are of one version.
    pub one_answers: u32,
    /// Left out because its file is another version than the one being fetched.
    pub left_out_for_version: bool,
    /// It contradicted itself.
    pub lied: bool,
    pub failures: u32,
    /// Connections in a row that broke after a few bytes.
    pub short_lanes: u32,
    /// It turned out not to hold all that it was to hold.
    pub was_short: bool,
    pub barren: Barren,
    pub figures: Figures,
    /// Where it belongs in the graph of routes.
    pub on_route: Option<OnRoute>,
    /// Most lanes that it may have while its way is on trial.
    pub lanes_max: Option<u32>,
    /// So many connections its host serves, as the planner was told.
    pub host_serves: Option<u32>,
    /// What it has delivered by the books of planners before the one in use.
    pub planned_bytes: u64,
    /// What its last error says of the way that it is reached by.
    pub fault: Fault,
    /// That error is about the file there, by whatever way it is reached.
    pub is_gone: bool,
    /// It is out because nothing came of it for long, and for nothing else.
    pub given_up: bool,
    /// It was given up before, is asked once more, and has brought nothing yet: no news.
    pub asked_again: bool,
}

impl SourceEntry {
    /// Whether relays lead to it.
    pub fn is_relayed(&self) -> bool {
        self.source.relaying().is_some()
    }

    /// Whether relays could change what comes of it.
    pub fn is_exposed(&self) -> bool {
        self.source.relaying().is_some_and(|relaying| relaying.is_exposed)
    }

    /// Whether relays answer its requests, and see what they pass on.
    pub fn is_passed(&self) -> bool {
        self.source.relaying().is_some_and(|it| it.carriage == Carriage::Passed)
    }

    /// Of which nothing is known yet.
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            lacks: RangeSet::new(),
            facts: None,
            accepted: None,
            state: SourceState::Waiting,
            reason: None,
            ever_up: false,
            metalink_passed: false,
            one_answers: 0,
            left_out_for_version: false,
            lied: false,
            failures: 0,
            short_lanes: 0,
            was_short: false,
            barren: Barren::default(),
            figures: Figures::default(),
            on_route: None,
            lanes_max: None,
            host_serves: None,
            planned_bytes: 0,
            fault: Fault::Broken,
            is_gone: false,
            given_up: false,
            asked_again: false,
        }
    }
}

/// One open lane.
pub(super) struct LaneEntry {
    pub lane: Box<dyn Lane>,
    pub source: usize,
    /// It is connected, or was.
    pub up: bool,
    pub seen_bytes: u64,
    pub seen_holds: u64,
    /// We held it up ourselves at the last look, or since the one before.
    pub held_up: bool,
    pub opened_at: Time,
    /// When the last of its bytes were seen.
    pub heard_at: Time,
    /// Something of use came of it.
    pub brought: bool,
    /// Nothing that still comes of it counts.
    pub is_void: bool,
}

impl LaneEntry {
    pub fn new(lane: Box<dyn Lane>, source: usize, now: Time) -> Self {
        Self {
            lane,
            source,
            up: false,
            seen_bytes: 0,
            seen_holds: 0,
            held_up: false,
            opened_at: now,
            heard_at: now,
            brought: false,
            is_void: false,
        }
    }

    /// Look whether we hold it up; a hold in progress has an odd count.
    pub fn look_for_holds(&mut self) -> bool {
        let holds = self.lane.meter().holds();
        self.held_up = holds != self.seen_holds || holds % 2 == 1;
        self.seen_holds = holds;
        self.held_up
    }
}

/// One swath that is asked for.
#[derive(Clone)]
pub(super) struct SwathEntry {
    pub lane: LaneId,
    pub source: usize,
    pub range: Range,
    pub asked_at: Time,
    pub first_byte_at: Option<Time>,
    pub delivered_to: u64,
    pub outcome: Option<Outcome>,
}

pub(super) struct Run<'a> {
    pub engine: &'a Engine,
    pub request: Request,
    pub observer: &'a mut dyn Observer,
    pub began: Instant,
    pub planner: Planner,
    pub planner_done: bool,
    pub phase: Phase,
    pub sources: Vec<SourceEntry>,
    pub lanes: BTreeMap<LaneId, LaneEntry>,
    pub swaths: BTreeMap<SwathId, SwathEntry>,
    pub lane_sender: UnboundedSender<LaneEvent>,
    pub lane_events: UnboundedReceiver<LaneEvent>,
    /// Disk reads and writes under way.
    pub jobs: Jobs,
    pub size_bytes: Option<u64>,
    /// In our hands, whether written yet or not.
    pub have: RangeSet,
    /// Number of the source (in the journal's numbering) of every byte that we have.
    pub deliverers: RangeMap<u32>,
    pub resumed_bytes: u64,
    /// What of a tree is at the destination already and stays as it is.
    pub kept_bytes: u64,
    /// What an earlier run left, less what proved bad.
    pub resumed: RangeSet,
    /// The digests of the request came from a source's answer.
    pub digests_offered: bool,
    /// They came by relays, which could have changed them with the bytes, and the source itself has
    /// not told them.
    pub word_of_relays: bool,
    pub verified_bytes: u64,
    pub proof: Proof,
    pub verification: String,
    pub target: Option<Arc<Target>>,
    pub ordered: Option<Ordered>,
    /// Time that whoever reads the ordered stream has let us wait.
    pub output_nanos: Arc<AtomicU64>,
    pub ordered_sender: UnboundedSender<Word>,
    pub ordered_words: UnboundedReceiver<Word>,
    pub verifier: Option<VerifierHandle>,
    /// Written and not hashed yet, for a hash that goes from front to back.
    pub in_order: Option<InOrder>,
    pub reports: UnboundedReceiver<Report>,
    pub report_sender: UnboundedSender<Report>,
    pub verified: RangeSet,
    /// What digests of the whole came to: (wanted, actual).
    pub wholes: Vec<(Digest, Digest)>,
    pub digest: Option<Digest>,
    /// Journal records whose bytes are written but not yet committed.
    pub records: Vec<Record>,
    pub committing: bool,
    /// Bad pieces until they come right, by where they begin.
    pub suspicions: BTreeMap<u64, Suspicion>,
    /// Who was named for corrupt data, in the journal's numbering.
    pub convicted: BTreeSet<u32>,
    pub audit: Option<Audit>,
    /// Number in the journal of each source, by our own number.
    pub journal_ids: Vec<u32>,
    /// All sources that the journal knows, earlier runs included.
    pub journal_names: BTreeMap<u32, Deliverer>,
    /// Replicas that are no source at all, and why.
    pub unopened: Vec<Reason>,
    pub discovered: usize,
    pub wasted_bytes: u64,
    pub last_meters: Time,
    pub last_snapshot: Time,
    pub last_commit: Time,
    pub last_arrival: Time,
    /// Since when we have been awake: nothing before that was a silence of our sources.
    pub awake_since: Instant,
    /// The way broke, and nothing went on since.
    pub(super) broken: Option<Broken>,
    pub cpu_began_s: f64,
    pub disk_began: swath_store::DiskStats,
    pub hash_began: std::time::Duration,
    pub fetch_ended_at: Option<Time>,
    /// The destination as shown to a user.
    pub name: String,
    /// Bytes go to an ordered stream, not to a file.
    pub is_stream: bool,
    /// Since when the ordered stream waits for bytes for which there is no buffer.
    pub starved_since: Option<Time>,
    /// What the ordered stream has written.
    pub consumed: u64,
    pub bad_pieces: u64,
    /// (deliverer, contradicted by), in journal numbers.
    pub disputed: RangeMap<(u32, u32)>,
    /// What no second source could be asked for in a comparison.
    pub uncompared_bytes: u64,
    /// What is still to be tried of what could explain the disputes; the first is being tried.
    pub hypotheses: VecDeque<Hypothesis>,
    /// What is fetched again for it.
    pub replaced: Vec<Range>,
    /// All bytes are there and do not come to the digest wanted.
    pub mismatch: bool,
    /// What an earlier run left, until the target is open or nobody has that version.
    pub left: Option<Left>,
    /// What was taken over from an earlier run is, by its digest, of the version wanted.
    pub resumed_by_digest: bool,
    /// The weakest agreement between the mirrors in use; `None` with one mirror.
    pub agreement: Option<Agreement>,
    /// The target could not be opened for a size that was told.
    pub too_large: Option<OpenError>,
    pub commit_every: std::time::Duration,
    /// Total rates of the last snapshots.
    pub rates: VecDeque<f64>,
    /// Connections with limited answers at the last snapshot.
    pub paced_lanes: usize,
    /// The tree that is fetched, if it is no single file.
    pub tree: Option<Tree>,
    /// By which relays the sources are reached; `None` where there are none.
    pub ways: Option<Box<Ways>>,
    /// What is compared of what relays passed on.
    pub samples: Samples,
}

impl<'a> Run<'a> {
    pub fn new(engine: &'a Engine, request: Request, observer: &'a mut dyn Observer) -> Self {
        Self::with(engine, request, observer, None)
    }

    /// For a tree: the replicas of the request are sealed files.
    pub fn of_tree(
        engine: &'a Engine,
        request: Request,
        observer: &'a mut dyn Observer,
        tree: Tree,
    ) -> Self {
        Self::with(engine, request, observer, Some(tree))
    }

    fn with(
        engine: &'a Engine,
        mut request: Request,
        observer: &'a mut dyn Observer,
        tree: Option<Tree>,
    ) -> Self {
        let (lane_sender, lane_events) = unbounded_channel();
        let (report_sender, reports) = unbounded_channel();
        let (ordered_sender, ordered_words) = unbounded_channel();
        request.plan.give_up_s = request.stall_s;
        let mut plan = request.plan.clone();
        if matches!(request.destination, Destination::Writer(_)) {
            // One grid cell is one slot, so the window can be told in slots.
            plan.grid_bytes = plan.grid_bytes.max(engine.pool.slot_bytes() as u64);
            plan.window_bytes = Some(window_bytes(&engine.pool));
        }
        let mut run = Self {
            engine,
            observer,
            began: Instant::now(),
            planner: Planner::new(plan),
            planner_done: false,
            phase: Phase::Probing,
            sources: Vec::new(),
            lanes: BTreeMap::new(),
            swaths: BTreeMap::new(),
            lane_sender,
            lane_events,
            jobs: Jobs::default(),
            size_bytes: None,
            have: RangeSet::new(),
            deliverers: RangeMap::new(),
            resumed_bytes: 0,
            kept_bytes: 0,
            resumed: RangeSet::new(),
            digests_offered: false,
            word_of_relays: false,
            verified_bytes: 0,
            proof: Proof { wholes: Vec::new(), pieces: request.pieces.clone() },
            verification: String::new(),
            target: None,
            ordered: None,
            output_nanos: Arc::default(),
            starved_since: None,
            ordered_sender,
            ordered_words,
            verifier: None,
            in_order: None,
            reports,
            report_sender,
            verified: RangeSet::new(),
            wholes: Vec::new(),
            digest: None,
            records: Vec::new(),
            committing: false,
            suspicions: BTreeMap::new(),
            convicted: BTreeSet::new(),
            audit: None,
            journal_ids: Vec::new(),
            journal_names: BTreeMap::new(),
            unopened: Vec::new(),
            discovered: 0,
            wasted_bytes: 0,
            last_meters: Time::ZERO,
            last_snapshot: Time::ZERO,
            last_commit: Time::ZERO,
            last_arrival: Time::ZERO,
            awake_since: engine.net.awake_since(),
            broken: None,
            cpu_began_s: super::figures::process_cpu_s(),
            disk_began: engine.disk.stats(),
            hash_began: engine.hash.busy(),
            fetch_ended_at: None,
            name: request.destination_name(),
            is_stream: false,
            consumed: 0,
            bad_pieces: 0,
            disputed: RangeMap::new(),
            uncompared_bytes: 0,
            hypotheses: VecDeque::new(),
            replaced: Vec::new(),
            mismatch: false,
            left: None,
            resumed_by_digest: false,
            agreement: None,
            too_large: None,
            commit_every: super::COMMIT_EVERY,
            rates: VecDeque::new(),
            paced_lanes: 0,
            tree,
            samples: Samples::default(),
            ways: engine.routes.clone().map(|routes| Box::new(Ways::new(routes))),
            request,
        };
        run.name_relays();
        for mirror in run.request.mirrors.clone() {
            run.add_source(&mirror);
        }
        for source in std::mem::take(&mut run.request.sources) {
            run.enter_replica(source, None);
        }
        if run.request.plan.eager {
            run.ask_relays();
        }
        run
    }

    /// Make a mirror known to the planner, unless its address is already.
    pub fn add_source(&mut self, mirror: &Mirror) -> bool {
        let is_it = |entry: &SourceEntry| !entry.is_relayed() && entry.source.url() == &mirror.url;
        if self.sources.iter().any(is_it) {
            return false;
        }
        let sealed = self.tree.as_ref().map(Tree::length);
        let (net, url, trust) = (&self.engine.net, &mirror.url, mirror.trust);
        let source = match swath_source::open(Opening { net, url, trust, sealed }) {
            Ok(source) => source,
            Err(error) => {
                self.unopened.push(Reason::of_source(mirror.name(), error));
                return false;
            }
        };
        self.enter_replica(source, mirror.holds.as_ref());
        true
    }

    /// One more replica, which holds no more than this of the file if that is known.
    fn enter_replica(&mut self, source: Arc<dyn Source>, holds: Option<&RangeSet>) {
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

    /// A digest of the user's will prove what comes, so that the versions that answers name may differ.
    pub fn promise_proof(&self, source: &dyn Source) {
        let wanted = self.request.known_digests().next().is_some();
        let proved = self.tree.is_none() && (wanted || self.request.pieces.is_some());
        source.expect(Expected { size_bytes: None, proved });
    }

    /// One more source, with the next number.
    pub fn enter_source(&mut self, entry: SourceEntry) {
        let at = self.sources.len();
        self.enter_in_journal(Deliverer::of(&*entry.source));
        self.sources.push(entry);
        self.plan_source(at);
    }

    /// The planner hears of a source, and of what it does not have before it is asked for anything.
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
        if self.is_closed_way(at) && !self.is_replacing() {
            self.planner.handle(PlanEvent::SourceRests { source, rests: true }, now);
        }
    }

    /// Whether a source has any of these bytes.
    pub fn has_some(&self, at: usize, range: Range) -> bool {
        self.sources.get(at).is_some_and(|entry| !entry.lacks.covers(range))
    }

    pub fn announce(&mut self) {
        let sources = self.sources.iter().map(|entry| entry.source.name().to_string()).collect();
        let path = self.request.destination_name();
        self.observer.observe(&Event::Started { path, sources });
    }

    pub fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    pub fn at_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub fn note(&mut self, text: String, warning: bool) {
        let at_s = self.at_s();
        self.observer.observe(&Event::note(at_s, text, warning));
    }

    /// Change a source's state as shown to a user.
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
            self.way_failed(at);
        }
        if !is_news {
            return;
        }
        let name = self.sources[at].source.name().clone();
        let reason = reason.map(|why| why.to_string());
        self.observer.observe(&Event::Source { at_s, source: at as u32, name, state, reason });
    }

    /// A source is out for good.
    pub fn drop_source(&mut self, at: usize, reason: impl Into<Why>) {
        let entry = self.sources.get_mut(at);
        if entry.is_some_and(|entry| std::mem::take(&mut entry.given_up)) {
            // Its way is closed already; this may hold over all ways.
            self.way_failed(at);
        }
        self.set_state(at, SourceState::Bad, Some(reason.into()));
        let source = SourceId(at as u32);
        self.planner.handle(PlanEvent::SourceBad { source }, self.now());
    }

    /// Out for what it said or did, and not only because nothing came of it for long.
    pub fn is_out(&self, at: usize) -> bool {
        self.is_bad(at) && self.sources.get(at).is_none_or(|entry| !entry.given_up)
    }

    pub fn is_bad(&self, at: usize) -> bool {
        self.sources.get(at).is_none_or(|entry| entry.state == SourceState::Bad)
    }

    /// A swath is over: tell the observer what became of it.
    pub fn close_swath(&mut self, id: SwathId, outcome: Outcome) {
        let Some(swath) = self.swaths.remove(&id) else { return };
        self.look_at_tail(&swath);
        let ended_at_s = self.at_s();
        let outcome = match swath.outcome.unwrap_or(outcome) {
            // What came for a comparison is not what the file is made of.
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

    /// End every lane; connections in good order are kept for the next file.
    pub fn close_lanes(&mut self) {
        for (_, entry) in std::mem::take(&mut self.lanes) {
            entry.lane.close();
            let meter = entry.lane.meter();
            if let Some(source) = self.sources.get_mut(entry.source) {
                source.figures.lane_ended(entry.up, meter);
            }
        }
        let open: Vec<SwathId> = self.swaths.keys().copied().collect();
        for id in open {
            self.close_swath(id, Outcome::Lost);
        }
        // Late events of these lanes must not be taken for those of lanes to come.
        let (sender, events) = unbounded_channel();
        self.lane_sender = sender;
        self.lane_events = events;
    }

    /// Keep a chunk's buffer out of the pool's free list no longer than needed.
    pub fn discard(&mut self, source: usize, buffer: Buffer) {
        let bytes = buffer.len() as u64;
        self.wasted_bytes += bytes;
        if let Some(entry) = self.sources.get_mut(source) {
            entry.figures.wasted_bytes += bytes;
        }
    }
}

/// How far an ordered transfer may run ahead of its consumer: what the pool holds, less a sixth
/// for the buffers that lanes are filling and for those that broken lanes leave half full.
pub(super) fn window_bytes(pool: &Pool) -> u64 {
    let slots = pool.slots().saturating_sub(pool.slots() / 6).max(2) - 1;
    (slots * pool.slot_bytes()) as u64
}
