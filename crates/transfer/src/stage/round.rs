//! One round of staging: a further copy of bytes with too few, planned over all depots.
//!
//! The planner's lanes are requests here: each carries one swath at a time, which a depot fetches
//! from a replica. Durable bytes of a depot count as delivered, in whole groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::{LaneId, Range, RangeSet, Requests, SourceId, SourceName, SwathId, Time};
use swath_plan::forecast::{Delivery, Pace, STEP_S};
use swath_plan::{Action, Config, Event as PlanEvent, Lanes, Loss, Planner};
use swath_source::{DepotError, Fetched, Net, display_name};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep_until};

use super::depot_fetch::{DepotFetch, DepotReport};
use super::depots::{self, Condition, Depot};
use super::rates::Rates;
use super::watch::{self, Watch};
use super::{File, StageError, since};
use crate::engine::Stop;
use crate::observe::{Event, Observer, Phase, Snapshot, SourceSnapshot, SourceState};

/// One round.
pub(super) struct Round<'a> {
    net: &'a Net,
    began: Instant,
    file: &'a File,
    depots: &'a mut [Depot],
    planner: Planner,
    lanes: BTreeMap<LaneId, Lane>,
    sender: Sender<DepotReport>,
    words: Receiver<DepotReport>,
    /// Bytes that each depot must not fetch: those it held before, and those given to others.
    barred: Vec<RangeSet>,
    /// Bytes that each depot has fetched in this round.
    brought: Vec<RangeSet>,
    /// When any depot last fetched something.
    heard_at: Instant,
    /// Recent total rates, for the estimate of the time left.
    pace: Pace,
    rates: Rates,
    replicas: usize,
    watch: Watch,
}

/// A lane of the planner: a series of requests to one depot.
struct Lane {
    depot: usize,
    /// Bytes of its ended fetches.
    before_bytes: u64,
    task: Option<Task>,
}

/// A swath under way.
struct Task {
    swath: SwathId,
    /// The replica that it comes from.
    mirror: usize,
    range: Range,
    began: Instant,
    /// Its present end.
    end: u64,
    came_bytes: u64,
    /// End of its durable bytes.
    stored_to: u64,
    /// End of its delivered bytes.
    delivered_to: u64,
    /// When more bytes last came or became durable.
    heard_at: Instant,
    /// Whether the lane ends with it.
    is_last: bool,
    _errand: DepotFetch,
}

impl Task {
    /// Returns the part that is not delivered yet.
    fn rest(&self) -> Range {
        Range::new(self.delivered_to, self.end.max(self.delivered_to))
    }
}

impl<'a> Round<'a> {
    pub fn new(
        net: &'a Net,
        began: Instant,
        file: &'a File,
        depots: &'a mut [Depot],
        replicas: usize,
        lacking: RangeSet,
    ) -> Round<'a> {
        let (sender, words) = channel(WORDS);
        let barred = depots.iter().map(|depot| depot.held.clone()).collect();
        let brought = vec![RangeSet::new(); depots.len()];
        let rates = Rates::new(began.elapsed().as_secs_f64(), held_bytes(depots));
        let watch = Watch::new(depots.len());
        let mut round = Round {
            net,
            began,
            file,
            planner: Planner::new(config(file.size_bytes, depots.len())),
            depots,
            lanes: BTreeMap::new(),
            sender,
            words,
            barred,
            brought,
            heard_at: Instant::now(),
            pace: Pace::default(),
            rates,
            replicas,
            watch,
        };
        round.lay_out(lacking);
        round
    }

    fn lay_out(&mut self, lacking: RangeSet) {
        let now = self.now();
        for (at, depot) in self.depots.iter().enumerate() {
            let source = SourceId(at as u32);
            self.planner.handle(PlanEvent::SourceAdded { source, max_lanes: None }, now);
            for range in depot.held.iter() {
                self.planner.handle(PlanEvent::Forbidden { source, range }, now);
            }
            if !depot.is_usable() {
                self.planner.handle(PlanEvent::SourceBad { source }, now);
            }
        }
        let size_bytes = self.file.size_bytes;
        self.planner.handle(PlanEvent::Layout { size_bytes, missing: lacking }, now);
    }

    /// Runs until every byte has its copy, or no depot is left for the missing ones.
    pub async fn run(
        mut self,
        observer: &mut dyn Observer,
        stop: &Stop,
        stall_s: f64,
    ) -> Result<(), StageError> {
        let mut shown_at = self.began;
        loop {
            self.leave_gone_depots(observer);
            self.leave_silent_mirrors(observer);
            self.relieve_slow_depots();
            self.keep_lanes_awake();
            while let Some(action) = self.planner.poll(self.now()) {
                match action {
                    Action::Finished | Action::Exhausted => {
                        self.show(observer);
                        return Ok(());
                    }
                    action => self.act(action, observer),
                }
            }
            if self.heard_at.max(self.net.awake_since()).elapsed().as_secs_f64() > stall_s {
                let reasons = depots::reasons(self.depots, |depot| {
                    let mirror = depot.mirrors.present().and_then(|at| self.file.replicas.get(at));
                    match mirror.map(|replica| display_name(&replica.url)) {
                        Some(mirror) => format!("it waits for {mirror}"),
                        None => "it has no source".to_owned(),
                    }
                });
                return Err(StageError::Stalled { stall_s, reasons });
            }
            if shown_at.elapsed() >= SHOW {
                shown_at = Instant::now();
                self.show(observer);
            }
            let due = self.planner.poll_timeout().unwrap_or(Time::MAX);
            let wake = self.began + due.since(Time::ZERO).min(self.began.elapsed() + LOOK);
            tokio::select! {
                biased;
                () = stop.wait() => return Err(StageError::Stopped),
                Some(said) = self.words.recv() => self.hear(said, observer),
                () = sleep_until(wake) => {}
            }
        }
    }

    fn now(&self) -> Time {
        since(self.began)
    }

    /// Drops depots that do not answer at all.
    fn leave_gone_depots(&mut self, observer: &mut dyn Observer) {
        let fetching: BTreeSet<usize> =
            self.lanes.values().filter(|own| own.task.is_some()).map(|own| own.depot).collect();
        for at in fetching {
            let Some(lease) = &self.depots[at].lease else { continue };
            let (net, manage, size_bytes) =
                (self.net.clone(), lease.manage.clone(), self.file.size_bytes);
            let ask = || async move {
                let told = net.depot_status(&manage, size_bytes).await;
                !matches!(told, Err(DepotError::Lane(_)))
            };
            if self.watch.is_gone(at, self.net.awake_since(), ask) {
                let why = match &self.depots[at].failure {
                    Some(error @ DepotError::Lane(_)) => error.clone().into(),
                    _ => format!("it did not answer for {} s", watch::GONE.as_secs()).into(),
                };
                self.reopen_brought(at);
                self.lose(at, Condition::Lost(why), observer);
            }
        }
    }

    /// Opens the bytes of a lost depot again: they may be lost with it.
    fn reopen_brought(&mut self, at: usize) {
        for range in std::mem::take(&mut self.brought[at]).iter() {
            self.planner.handle(PlanEvent::Reopened { range }, self.now());
        }
    }

    /// Leaves replicas that deliver nothing, if there is another one.
    fn leave_silent_mirrors(&mut self, observer: &mut dyn Observer) {
        let awake_since = self.net.awake_since();
        let is_silent = |own: &Lane| {
            let task = own.task.as_ref()?;
            let has_another = self.depots[own.depot].mirrors.has_beside(task.mirror);
            let is_silent = task.heard_at.max(awake_since).elapsed() >= QUIET;
            (has_another && is_silent).then_some(task.mirror)
        };
        let silent: Vec<(LaneId, usize)> = self
            .lanes
            .iter()
            .filter_map(|(&lane, own)| is_silent(own).map(|mirror| (lane, mirror)))
            .collect();
        for (lane, mirror) in silent {
            let words = format!("nothing came for {} s", QUIET.as_secs());
            self.failed(
                lane,
                mirror,
                DepotError::Source { words, may_pass: true, fault: None },
                observer,
            );
        }
    }

    /// Moves swaths of slow depots to idle ones that are much faster: the last group decides when a
    /// copy is complete.
    fn relieve_slow_depots(&mut self) {
        let is_free = |at: usize| {
            let is_busy = self.lanes.values().any(|own| own.depot == at && own.task.is_some());
            self.depots[at].is_usable() && !is_busy
        };
        let free: Vec<usize> = (0..self.depots.len()).filter(|&at| is_free(at)).collect();
        if free.is_empty() {
            return;
        }
        let slow = self.lanes.iter().filter_map(|(&lane, own)| {
            let task = own.task.as_ref()?;
            let (rest, spent_s) = (task.rest(), task.began.elapsed().as_secs_f64());
            let left_s = rest.len() as f64 * spent_s / task.came_bytes.max(1) as f64;
            let sooner = free.iter().any(|&at| {
                let may_take = self.barred[at].within(rest).next().is_none();
                let pace = self.depots[at].pace_bytes_per_s;
                let there_s = pace.map_or(UNTRIED_S, |pace| rest.len() as f64 / pace);
                may_take && left_s > RELIEF_S + RELIEF_TIMES * there_s
            });
            (spent_s >= RELIEF_S && sooner).then_some((lane, own.depot, rest))
        });
        let slow: Vec<(LaneId, usize, Range)> = slow.collect();
        for (lane, depot, range) in slow {
            tracing::debug!(depot = self.depots[depot].name, %range, "others take over from a slow depot");
            self.lanes.remove(&lane);
            self.barred[depot].insert(range);
            let (source, now) = (SourceId(depot as u32), self.now());
            self.planner.handle(PlanEvent::Forbidden { source, range }, now);
            self.planner.handle(PlanEvent::LaneLost { lane, loss: Loss::Clean }, now);
        }
    }

    /// Keeps lanes alive whose depot reports progress a few times a second: that is no silence.
    fn keep_lanes_awake(&mut self) {
        let now = self.now();
        for (&lane, own) in &self.lanes {
            if own.task.as_ref().is_some_and(|task| task.heard_at.elapsed() < QUIET) {
                self.planner.handle(PlanEvent::HeldUp { lane }, now);
            }
        }
    }

    fn act(&mut self, action: Action, observer: &mut dyn Observer) {
        let now = self.now();
        tracing::trace!(at_s = now.as_secs_f64(), ?action, "staging");
        match action {
            Action::OpenLane { source, lane } => {
                let depot = source.index();
                let rtt = self.depots[depot].rtt;
                self.lanes.insert(lane, Lane { depot, before_bytes: 0, task: None });
                self.planner
                    .handle(PlanEvent::LaneUp { lane, rtt, requests: Requests::OneByOne }, now);
            }
            Action::Fetch { lane, swath, range } => self.fetch(lane, swath, range, observer),
            Action::Trim { lane, swath, end, drop_lane } => {
                let own = self.lanes.get_mut(&lane).and_then(|own| own.task.as_mut());
                if let Some(task) = own.filter(|task| task.swath == swath) {
                    task.end = task.end.min(end.max(task.range.start));
                    task.is_last |= drop_lane;
                    if task.delivered_to >= task.end {
                        self.done(lane);
                    }
                }
            }
            Action::CloseLane { lane } => {
                self.lanes.remove(&lane);
                self.planner.handle(PlanEvent::LaneLost { lane, loss: Loss::Clean }, now);
            }
            Action::Finished | Action::Exhausted => {}
        }
    }

    fn fetch(&mut self, lane: LaneId, swath: SwathId, range: Range, observer: &mut dyn Observer) {
        let Some(own) = self.lanes.get_mut(&lane) else { return };
        let depot = &self.depots[own.depot];
        let mirror = depot.mirrors.present();
        let replica = mirror.and_then(|at| Some((at, self.file.replicas.get(at)?)));
        let (Some((mirror, replica)), Some(lease)) = (replica, &depot.lease) else {
            let at = own.depot;
            self.lose(at, Condition::Lost("it can fetch from no source".into()), observer);
            return;
        };
        // An idle depot has nothing to report, but a request to a failing one is no sign of life.
        let is_new = depot.failing_since.is_none();
        let at = own.depot;
        let words = self.sender.clone();
        let errand =
            DepotFetch::begin(self.net, &lease.write, replica, range, (lane, swath), words);
        own.task = Some(Task {
            swath,
            mirror,
            range,
            began: Instant::now(),
            end: range.end,
            came_bytes: 0,
            stored_to: range.start,
            delivered_to: range.start,
            heard_at: Instant::now(),
            is_last: false,
            _errand: errand,
        });
        let is_busy = |own: &Lane| own.depot == at && own.task.is_some();
        if is_new && self.lanes.values().filter(|own| is_busy(own)).count() == 1 {
            self.watch.heard(at);
        }
    }

    fn hear(&mut self, said: DepotReport, observer: &mut dyn Observer) {
        let DepotReport { lane, swath, word } = said;
        let Some(own) = self.lanes.get_mut(&lane) else { return };
        // A late report of an abandoned fetch is ignored.
        let Some(task) = own.task.as_mut().filter(|task| task.swath == swath) else { return };
        if !matches!(word, Err(DepotError::Lane(_))) {
            self.watch.heard(own.depot);
        }
        let length = task.range.len();
        // A depot cannot have fetched more than was requested, whatever it reports.
        let (came, stored) = match word {
            Ok(Fetched::Came(bytes)) => (bytes.min(length), 0),
            Ok(Fetched::Stored(bytes)) => (bytes.min(length), bytes.min(length)),
            Ok(Fetched::Done) => (length, length),
            Err(error) => {
                let mirror = task.mirror;
                return self.failed(lane, mirror, error, observer);
            }
        };
        let stored_to = task.range.start + stored;
        if came > task.came_bytes || stored_to > task.stored_to {
            task.heard_at = Instant::now();
        }
        task.stored_to = task.stored_to.max(stored_to);
        if came > task.came_bytes {
            task.came_bytes = came;
            self.heard_at = task.heard_at;
            let depot = &mut self.depots[own.depot];
            (depot.failing_since, depot.failure) = (None, None);
            depot.mirrors.brought();
        }
        let total_bytes = own.before_bytes + task.came_bytes;
        // Whole groups, since the planner cuts at groups.
        let whole = stored_to - stored_to % GROUP_BYTES;
        let to = if stored_to >= task.end { task.end } else { whole.min(task.end) };
        let new = (to > task.delivered_to).then(|| Range::new(task.delivered_to, to));
        task.delivered_to = task.delivered_to.max(to);
        let is_done = task.delivered_to >= task.end;
        let depot = own.depot;
        if stored_to > task.range.start {
            self.depots[depot].held.insert(Range::new(task.range.start, stored_to));
        }
        let now = self.now();
        self.planner.handle(PlanEvent::Arrived { lane, total_bytes }, now);
        if let Some(range) = new {
            self.brought[depot].insert(range);
            self.planner.handle(PlanEvent::Delivered { swath, range }, now);
        }
        if is_done {
            self.done(lane);
        }
    }

    /// Ends a lane's swath, of which everything is delivered.
    fn done(&mut self, lane: LaneId) {
        let now = self.now();
        let Some(own) = self.lanes.get_mut(&lane) else { return };
        let Some(task) = own.task.take() else { return };
        own.before_bytes += task.came_bytes;
        let pace = task.came_bytes as f64 / task.began.elapsed().as_secs_f64().max(1e-3);
        self.depots[own.depot].pace_bytes_per_s = Some(pace.max(1.0));
        self.planner.handle(PlanEvent::SwathDone { swath: task.swath }, now);
        if task.is_last {
            self.lanes.remove(&lane);
            self.planner.handle(PlanEvent::LaneLost { lane, loss: Loss::Clean }, now);
        }
    }

    /// Handles the failure of a lane that fetched from this replica.
    fn failed(
        &mut self,
        lane: LaneId,
        mirror: usize,
        error: DepotError,
        observer: &mut dyn Observer,
    ) {
        let Some(own) = self.lanes.remove(&lane) else { return };
        let at = own.depot;
        let depot = &mut self.depots[at];
        tracing::debug!(depot = depot.name, %error, "a depot failed");
        let since = *depot.failing_since.get_or_insert_with(Instant::now);
        depot.failure = Some(error.clone());
        let mut loss = if error.may_pass() { Loss::Broken } else { Loss::Final };
        let condition = match &error {
            DepotError::Full { .. } => Some(Condition::Full(error.clone().into())),
            DepotError::Source { .. } | DepotError::Changed { .. } => {
                let has_another = depot.mirrors.failed(mirror, error.may_pass());
                loss = if has_another { Loss::Clean } else { Loss::Broken };
                let is_out = !has_another && since.elapsed() >= GIVE_UP;
                let is_out = is_out || depot.mirrors.present().is_none();
                is_out.then(|| Condition::Lost(error.clone().into()))
            }
            error if !error.may_pass() || since.elapsed() >= GIVE_UP => {
                Some(Condition::Lost(error.clone().into()))
            }
            _ => None,
        };
        if condition.is_some() {
            loss = Loss::Final;
        }
        self.planner.handle(PlanEvent::LaneLost { lane, loss }, self.now());
        if let Some(condition) = condition {
            let is_elsewhere = matches!(error, DepotError::Refused { status: 404 | 410, .. });
            if is_elsewhere || matches!(error, DepotError::Lane(_) | DepotError::Ended) {
                self.reopen_brought(at);
            }
            self.lose(at, condition, observer);
        }
    }

    /// Stops using a depot.
    fn lose(&mut self, at: usize, condition: Condition, observer: &mut dyn Observer) {
        self.depots[at].tell(at, condition, self.began, observer);
        let source = SourceId(at as u32);
        self.planner.handle(PlanEvent::SourceBad { source }, self.now());
        let lanes: Vec<LaneId> =
            self.lanes.iter().filter(|(_, own)| own.depot == at).map(|(&lane, _)| lane).collect();
        for lane in lanes {
            self.lanes.remove(&lane);
            self.planner.handle(PlanEvent::LaneLost { lane, loss: Loss::Final }, self.now());
        }
    }

    /// Reports progress to the observer.
    fn show(&mut self, observer: &mut dyn Observer) {
        let size_bytes = self.file.size_bytes;
        let wanted_bytes = size_bytes * self.replicas as u64;
        let copies = depots::copies(self.depots.iter().map(|depot| &depot.held), self.replicas);
        let done_bytes = copies.iter().map(RangeSet::total_bytes).sum::<u64>();
        let at_s = self.began.elapsed().as_secs_f64();
        self.rates.look(at_s, held_bytes(self.depots));
        let mut rate_bytes_per_s = 0.0;
        let sources = self.depots.iter().enumerate().map(|(at, depot)| {
            let rate = self.rates.bytes_per_s(at);
            rate_bytes_per_s += rate;
            let own = self.lanes.values().filter(|lane| lane.depot == at);
            let lanes = own.filter(|lane| lane.task.is_some()).count() as u32;
            let bytes = depot.held.total_bytes();
            SourceSnapshot {
                source: at as u32,
                name: SourceName::direct(&depot.name),
                state: match (&depot.condition, lanes) {
                    (Condition::Usable, 0) => SourceState::Idle,
                    (Condition::Usable, _) if bytes == 0 && rate == 0.0 => SourceState::Probing,
                    (Condition::Usable, _) => SourceState::Running,
                    _ => SourceState::Bad,
                },
                rate_bytes_per_s: rate,
                bytes,
                share: bytes as f64 / size_bytes.max(1) as f64,
                rtt_ms: Some(depot.rtt.as_secs_f64() * 1e3),
                lanes,
                requests: 0,
            }
        });
        let sources = sources.collect();
        self.pace.add([Delivery { bytes_per_s: rate_bytes_per_s, ..Delivery::default() }]);
        let left_bytes = wanted_bytes.saturating_sub(done_bytes) as f64;
        let done_part = done_bytes as f64 / wanted_bytes.max(1) as f64;
        let eta = self.pace.left(left_bytes, at_s, done_part);
        observer.observe(&Event::Progress(Snapshot {
            at_s,
            phase: Phase::Staging,
            size_bytes: Some(wanted_bytes),
            files: 1,
            done_bytes,
            resumed_bytes: 0,
            verified_bytes: 0,
            rate_bytes_per_s,
            eta,
            sources,
        }));
    }
}

fn held_bytes(depots: &[Depot]) -> Vec<u64> {
    depots.iter().map(|depot| depot.held.total_bytes()).collect()
}

/// Returns the planner's configuration. A few hundred cells make up the file, so that each depot's
/// list of ranges is short. Nothing is fetched twice, since each copy takes space.
fn config(size_bytes: u64, depots: usize) -> Config {
    Config {
        lanes: Lanes::Auto { max: LANES_MAX },
        max_sources: depots.max(1),
        grid_bytes: size_bytes.div_ceil(CELLS).next_multiple_of(GROUP_BYTES).max(GROUP_BYTES),
        unit_bytes: GROUP_BYTES,
        waste_fraction: 0.0,
        waste_limit_bytes: 0,
        give_up_s: GIVE_UP.as_secs_f64(),
        ..Config::default()
    }
}

const CELLS: u64 = 256;
/// Most reports of depots in the queue.
const WORDS: usize = 64;
/// Most fetches of one depot at a time.
const LANES_MAX: u32 = 4;
/// Time of failures after which a depot is dropped.
const GIVE_UP: Duration = Duration::from_secs(10);
/// A depot reports ten times a second, except during a disk sync and before its first answer.
const QUIET: Duration = Duration::from_secs(3);
/// A swath moves to another depot if it needs more than `RELIEF_S` plus `RELIEF_TIMES` the time
/// that the other needs.
const RELIEF_S: f64 = 2.0;
const RELIEF_TIMES: f64 = 2.0;
/// Assumed time of a depot that has fetched nothing yet.
const UNTRIED_S: f64 = 5.0;
/// Longest sleep between two turns.
const LOOK: Duration = Duration::from_millis(50);
/// Interval of progress reports.
const SHOW: Duration = Duration::from_millis((STEP_S * 1e3) as u64);
