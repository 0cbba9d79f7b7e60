//! The simulation itself: steps of virtual time in which links carry bytes, servers answer, and
//! the planner is driven as the real executor drives it.
//!
//! A step: changes of the scenario, handshakes, requests reaching their servers, bytes reaching
//! the client, then — when something happened or [`Planner::poll_timeout`] has come — meters,
//! then every action that the planner wants. Each event and action passes through the
//! [`Watch`], which keeps books of its own.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use swath_model::{LaneId, Range, RangeMap, RangeSet, SourceId, SwathId, Time};
use swath_plan::{Action, Event, Loss, Planner};

use super::lane::{Answer, Heard, SimLane};
use super::link::Link;
use super::outcome::{self, Outcome, Violation};
use super::scenario::Scenario;
use super::server::{Change, Mood, SourceSpec};
use super::watch::{Scene, Watch};

/// A source at run time.
pub(super) struct SimSource {
    pub id: usize,
    pub spec: SourceSpec,
    pub link: Link,
    pub mood: Mood,
    /// Learned by the executor from a reset.
    pub no_pipelining: bool,
    pub limit_told: bool,
    pub stream_told: bool,
    pub delivered_bytes: u64,
}

pub(super) struct World<'a> {
    pub scenario: &'a Scenario,
    pub now: Time,
    pub planner: Planner,
    pub sources: Vec<SimSource>,
    pub lanes: BTreeMap<LaneId, SimLane>,
    /// What is here, by whom.
    pub delivered: RangeSet,
    pub deliverers: RangeMap<u32>,
    pub watch: Watch,
    pub rng: fastrand::Rng,
    layout_told: bool,
    next_change: usize,
    next_source: usize,
    consumed: f64,
    consumed_told: u64,
    stirred: bool,
    end: Option<bool>,
    pub heard: Vec<Heard>,
    pub arrived: Vec<(LaneId, u64)>,
}

impl Scenario {
    /// Simulates it.
    ///
    /// # Errors
    /// The first rule that was broken, with the steps that led there.
    pub fn run(&self) -> Result<Outcome, Box<Violation>> {
        match World::new(self, 0).run() {
            (_, Ok(outcome)) => Ok(outcome),
            // The same again, this time with a log; it ends the same way.
            (_, Err(_)) => World::new(self, TRACE_LINES).run().1.map_err(Box::new),
        }
    }

    /// Every event and action of a run, one a line.
    pub fn log(&self) -> String {
        World::new(self, usize::MAX).run().0
    }
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, trace_lines: usize) -> Self {
        let mut delivered = RangeSet::from(Range::new(0, scenario.size_bytes));
        delivered.subtract(&scenario.missing());
        let mut planner = Planner::new(scenario.config.clone());
        if let Some(gap) = scenario.missing().first() {
            planner.begin_within(gap);
        }
        let sources = scenario
            .sources
            .iter()
            .enumerate()
            .map(|(id, spec)| SimSource {
                id,
                link: Link::new(&spec.link),
                mood: spec.mood,
                spec: spec.clone(),
                no_pipelining: !spec.pipelines,
                limit_told: false,
                stream_told: false,
                delivered_bytes: 0,
            })
            .collect();
        Self {
            scenario,
            now: Time::ZERO,
            planner,
            sources,
            lanes: BTreeMap::new(),
            delivered,
            deliverers: RangeMap::new(),
            watch: Watch::new(scenario, trace_lines),
            rng: fastrand::Rng::with_seed(scenario.seed),
            layout_told: false,
            next_change: 0,
            next_source: 0,
            consumed: 0.0,
            consumed_told: 0,
            stirred: false,
            end: None,
            heard: Vec::new(),
            arrived: Vec::new(),
        }
    }

    fn run(mut self) -> (String, Result<Outcome, Violation>) {
        let result = self.live();
        (self.watch.steps(), result)
    }

    fn live(&mut self) -> Result<Outcome, Violation> {
        if self.scenario.size_known {
            self.tell_layout();
        }
        loop {
            self.apply_changes();
            self.finish_handshakes();
            self.serve_requests();
            self.carry_bytes();
            let due = self.planner.poll_timeout().is_some_and(|at| at <= self.now);
            if due {
                self.read_meters();
                self.consume();
            }
            if due || std::mem::take(&mut self.stirred) {
                self.act();
            }
            let (watch, scene) = self.watched();
            if let Err(what) = watch.check(&scene, due) {
                return Err(self.violation(what));
            }
            if self.watch.stalls(self.now) {
                // As the executor does when its time-out has passed.
                self.end.get_or_insert(false);
            }
            if let Some(finished) = self.end {
                return self.conclude(finished);
            }
            if self.now.as_secs_f64() > self.scenario.limit_s {
                let left = self.scenario.size_bytes - self.delivered.total_bytes();
                let what = format!(
                    "not at an end after {} s, {left} bytes missing",
                    self.scenario.limit_s
                );
                return Err(self.violation(what));
            }
            self.pass_time();
        }
    }

    /// Returns the watch, and what it looks at.
    fn watched(&mut self) -> (&mut Watch, Scene<'_>) {
        let scene = Scene {
            now: self.now,
            planner: &self.planner,
            sources: &self.sources,
            lanes: &self.lanes,
            delivered: &self.delivered,
            consumed: self.consumed_told,
            layout_told: self.layout_told,
        };
        (&mut self.watch, scene)
    }

    fn pass_time(&mut self) {
        let step_s = self.scenario.step_s;
        let mut next = self.now.plus_secs(step_s);
        // A lone wait for a time-out need not be lived through step by step.
        if self.stirred || self.lanes.values().any(|lane| !lane.requests.is_empty()) {
        } else if self.sources.iter().all(|source| source.link.is_idle()) {
            let mut until = self.planner.poll_timeout().unwrap_or(next);
            let change = self.scenario.changes.get(self.next_change).map(|change| change.0);
            let source =
                self.scenario.sources.get(self.next_source).map(|source| source.known_at_s);
            for at_s in change.into_iter().chain(source) {
                until = until.min(Time::from_secs_f64(at_s));
            }
            for (at, _) in self.lanes.values().filter_map(|lane| lane.connects.as_ref()) {
                until = until.min(*at);
            }
            next = next.max(until);
        }
        self.now = next;
    }

    /// Everything goes to the planner through here.
    pub(super) fn tell(&mut self, event: Event) {
        self.watch.told(&event, self.now);
        self.planner.handle(event, self.now);
        self.stirred = true;
    }

    fn tell_layout(&mut self) {
        if !std::mem::replace(&mut self.layout_told, true) {
            self.tell(Event::Layout {
                size_bytes: self.scenario.size_bytes,
                missing: self.scenario.missing(),
            });
        }
    }

    fn apply_changes(&mut self) {
        let now_s = self.now.as_secs_f64();
        while let Some(spec) =
            self.scenario.sources.get(self.next_source).filter(|spec| spec.known_at_s <= now_s)
        {
            let source = SourceId(self.next_source as u32);
            self.next_source += 1;
            let max_lanes = None;
            let _ = spec;
            self.tell(Event::SourceAdded { source, max_lanes });
        }
        while let Some((_, source, change)) =
            self.scenario.changes.get(self.next_change).filter(|c| c.0 <= now_s)
        {
            self.next_change += 1;
            self.watch.note(self.now, || format!("source {source}: {change:?}"));
            self.apply(*source, change);
        }
    }

    fn apply(&mut self, at: usize, change: &Change) {
        let id = SourceId(at as u32);
        let known = at < self.next_source;
        let Some(source) = self.sources.get_mut(at) else { return };
        match change {
            Change::Rate(rate) => source.link.rate_bytes_per_s = *rate,
            Change::Silent(silent) => source.link.set_silent(*silent, self.now),
            Change::Mood(mood) => source.mood = *mood,
            Change::Reset => {
                let up: Vec<LaneId> = self
                    .lanes
                    .values()
                    .filter(|l| l.source == at && l.is_up())
                    .map(|l| l.id)
                    .collect();
                for lane in up {
                    self.lose(lane, Loss::Broken);
                }
            }
            Change::Corrupt(_) | Change::Bad if !known => {}
            Change::Corrupt(range) => {
                self.tell(Event::Forbidden { source: id, range: *range });
                for (part, deliverer) in self.deliverers.within(*range) {
                    if deliverer == id.0 && self.delivered.covers(part) {
                        self.delivered.remove(part);
                        self.deliverers.clear(part);
                        self.tell(Event::Reopened { range: part });
                    }
                }
            }
            Change::Bad => {
                source.mood = Mood::Missing;
                self.tell(Event::SourceBad { source: id });
            }
        }
    }

    /// What a lane had to say becomes events.
    pub(super) fn hear(&mut self, id: LaneId, mut heard: Vec<Heard>) {
        for word in heard.drain(..) {
            let Some(lane) = self.lanes.get(&id) else { break };
            let at = lane.source;
            let source = SourceId(at as u32);
            match word {
                Heard::Head(answer) => {
                    let state = &mut self.sources[at];
                    let limit =
                        state.spec.requests_max.filter(|&max| max == 1 && !state.limit_told);
                    state.limit_told |= limit.is_some();
                    let stream =
                        answer == Answer::Whole && !std::mem::replace(&mut state.stream_told, true);
                    if stream {
                        self.tell(Event::StreamOnly { source });
                    }
                    if let Some(requests) = limit {
                        self.tell(Event::RequestLimit { source, requests });
                    }
                    if matches!(answer, Answer::Partial | Answer::Whole) {
                        self.tell_layout();
                    }
                }
                Heard::Chunk { swath, range } => self.take(at, swath, range),
                Heard::Done(swath) => self.tell(Event::SwathDone { swath }),
                Heard::Failed(swath, loss) => {
                    let spare = self.is_spare(id);
                    self.watch.failed(at, loss, spare, self.now);
                    self.tell(Event::SwathFailed { swath, loss });
                }
                Heard::Reconnected { first } => {
                    let state = &mut self.sources[at];
                    state.link.close(id);
                    state.link.open(id);
                    let arrives_s = 1.5 * state.link.rtt_s() + state.spec.think_s;
                    if let Some(lane) = self.lanes.get_mut(&id) {
                        lane.requests.push_back((self.now.plus_secs(arrives_s), first));
                    }
                }
                Heard::Lost(loss) => {
                    let state = &mut self.sources[at];
                    if let Some(requests) = state.spec.requests_max
                        && !std::mem::replace(&mut state.limit_told, true)
                    {
                        self.tell(Event::RequestLimit { source, requests });
                    }
                    self.lose(id, loss);
                }
            }
        }
        self.heard = heard;
    }

    /// A chunk is here: what of it is new counts.
    fn take(&mut self, source: usize, swath: SwathId, range: Range) {
        let fresh = self.delivered.gaps_within(range);
        let fresh_bytes: u64 = fresh.iter().map(|part| part.len()).sum();
        self.watch.duplicate_bytes += range.len() - fresh_bytes;
        self.sources[source].delivered_bytes += fresh_bytes;
        for part in fresh {
            self.delivered.insert(part);
            self.deliverers.set(part, source as u32);
            self.tell(Event::Delivered { swath, range: part });
        }
    }

    /// A lane ends, whoever ended it.
    pub(super) fn lose(&mut self, id: LaneId, loss: Loss) {
        let spare = self.is_spare(id);
        let Some(mut lane) = self.lanes.remove(&id) else { return };
        let mut heard = Vec::new();
        lane.flush(&mut heard);
        for word in heard {
            if let Heard::Chunk { swath, range } = word {
                self.take(lane.source, swath, range);
            }
        }
        self.watch.drained_bytes += lane.drained_bytes;
        self.watch.failed(lane.source, loss, spare, self.now);
        self.sources[lane.source].link.close(id);
        self.tell(Event::LaneLost { lane: id, loss });
    }

    /// Returns whether a lane has brought nothing while another one of its source has.
    fn is_spare(&self, id: LaneId) -> bool {
        self.lanes.get(&id).is_some_and(|lane| {
            let others = |other: &SimLane| other.source == lane.source && other.meter_bytes > 0;
            lane.told_bytes == 0 && self.lanes.values().any(others)
        })
    }

    fn read_meters(&mut self) {
        let moved: Vec<(LaneId, u64)> = self
            .lanes
            .values_mut()
            .filter(|lane| lane.meter_bytes > lane.told_bytes)
            .map(|lane| {
                lane.told_bytes = lane.meter_bytes;
                (lane.id, lane.meter_bytes)
            })
            .collect();
        for (lane, total_bytes) in moved {
            self.tell(Event::Arrived { lane, total_bytes });
        }
        let behind: Vec<(LaneId, u64)> = self
            .lanes
            .values()
            .filter_map(|lane| {
                let bytes = self.sources[lane.source].link.out_of_order_bytes(lane.id);
                (bytes > 0).then_some((lane.id, bytes))
            })
            .collect();
        for (lane, bytes) in behind {
            self.tell(Event::OutOfOrder { lane, bytes });
        }
        let paused: Vec<(LaneId, f64)> = self
            .lanes
            .values_mut()
            .filter(|lane| lane.paused_s > lane.told_paused_s)
            .map(|lane| {
                lane.told_paused_s = lane.paused_s;
                (lane.id, lane.paused_s)
            })
            .collect();
        for (lane, paused_s) in paused {
            self.tell(Event::Paused { lane, total: Duration::from_secs_f64(paused_s) });
        }
    }

    /// The reader of an ordered stream takes what has come, at its own pace.
    fn consume(&mut self) {
        if self.scenario.config.window_bytes.is_none() {
            return;
        }
        let front = self.delivered.first().filter(|run| run.start == 0).map_or(0, |run| run.end);
        let pace = self.scenario.consumer_bytes_per_s * 0.02;
        self.consumed = (self.consumed + pace).min(front as f64);
        if self.consumed as u64 > self.consumed_told {
            self.consumed_told = self.consumed as u64;
            self.tell(Event::Consumed { up_to: self.consumed_told });
        }
    }

    /// Every action that the planner wants now.
    fn act(&mut self) {
        while let Some(action) = self.planner.poll(self.now) {
            let (watch, scene) = self.watched();
            watch.action(&action, &scene);
            match action {
                Action::OpenLane { source, lane } => self.connect(source, lane),
                Action::Fetch { lane: id, swath, range } => {
                    let Some(lane) = self.lanes.get_mut(&id) else { continue };
                    if lane.ask(swath, range, self.now) {
                        let source = &self.sources[lane.source];
                        let arrives_s = 0.5 * source.link.rtt_s() + source.spec.think_s;
                        lane.requests.push_back((self.now.plus_secs(arrives_s), range));
                    }
                }
                Action::Trim { lane: id, swath, end, drop_lane } => {
                    let mut heard = std::mem::take(&mut self.heard);
                    if let Some(lane) = self.lanes.get_mut(&id) {
                        lane.trim(swath, end, drop_lane, self.scenario.keeps_surplus, &mut heard);
                    }
                    self.hear(id, heard);
                }
                Action::CloseLane { lane } => self.lose(lane, Loss::Clean),
                Action::Finished => self.end = Some(true),
                // Replicas that are still to be found may go on.
                Action::Exhausted if self.next_source < self.sources.len() => {}
                Action::Exhausted => self.end = Some(false),
            }
            if self.watch.is_broken() {
                return;
            }
        }
        self.stirred = false;
    }

    /// How everything stands, for a violation.
    fn standing(&self) -> String {
        let mut text = String::new();
        for (at, source) in self.sources.iter().enumerate() {
            let view = self.planner.source(SourceId(at as u32));
            text += &format!(
                "source {at}: {:?}, silent {}, {view:?}\n",
                source.mood,
                source.link.is_silent()
            );
        }
        for lane in self.lanes.values().take(100) {
            let asks: Vec<Range> = lane.asks.iter().map(|ask| ask.outstanding()).collect();
            text += &format!(
                "{:?} to {}, up {}, last byte {:?}: {asks:?}\n",
                lane.id,
                lane.source,
                lane.is_up(),
                lane.last_progress
            );
        }
        text += &format!("{:?}\n", self.planner.audit());
        let missing: Vec<Range> = self.planner.undelivered().iter().take(10).collect();
        text + &format!("missing: {missing:?} …\n")
    }

    fn violation(&mut self, what: String) -> Violation {
        Violation {
            at_s: self.now.as_secs_f64(),
            what,
            scenario: format!("{:?}", self.scenario),
            steps: self.watch.steps() + &self.standing(),
        }
    }

    fn conclude(&mut self, finished: bool) -> Result<Outcome, Violation> {
        let (watch, scene) = self.watched();
        if let Err(what) = watch.conclude(finished, &scene) {
            return Err(self.violation(what));
        }
        let time_s = self.now.as_secs_f64();
        let drained: VecDeque<u64> = self.lanes.values().map(|lane| lane.drained_bytes).collect();
        Ok(Outcome {
            finished,
            time_s,
            bound_s: outcome::bound_s(self.scenario),
            oracle_s: if self.scenario.wants_oracle {
                outcome::oracle_s(self.scenario, 4.0 * time_s)
            } else {
                f64::NAN
            },
            duplicate_bytes: self.watch.duplicate_bytes,
            drained_bytes: self.watch.drained_bytes + drained.iter().sum::<u64>(),
            hedged_bytes: self.watch.hedged_bytes,
            requests: self.watch.requests,
            lanes_opened: self.watch.lanes_opened,
            lanes_peak: self.watch.lanes_peak,
            delivered_bytes: self.sources.iter().map(|source| source.delivered_bytes).collect(),
            fingerprint: self.watch.fingerprint(),
        })
    }
}

/// Lines of the log that a violation shows.
const TRACE_LINES: usize = 150;
