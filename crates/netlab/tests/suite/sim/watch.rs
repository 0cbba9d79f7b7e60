//! Books of the simulator's own, and the rules that must hold after every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};

use swath_model::{LaneId, Range, RangeSet, SourceId, Time};
use swath_plan::{Action, Event, Lanes, Loss, Planner, PolicyKind, SourceStatus};

use super::lane::{PAUSE_S, SimLane};
use super::scenario::Scenario;
use super::server::Mood;
use super::world::SimSource;

/// What the watch knows of a source.
#[derive(Clone, Default)]
struct Marks {
    forbidden: RangeSet,
    /// Not to be asked before.
    /// No new lanes before.
    busy_until: Time,
    /// Nor requests.
    quiet_until: Time,
    bad: bool,
    /// When something last went wrong with it.
    failed_at: Option<Time>,
    failures: u32,
}

/// How everything stands.
pub(super) struct Scene<'a> {
    pub now: Time,
    pub planner: &'a Planner,
    pub sources: &'a [SimSource],
    pub lanes: &'a BTreeMap<LaneId, SimLane>,
    pub delivered: &'a RangeSet,
    /// How far an ordered consumer has told that it is.
    pub consumed: u64,
    pub layout_told: bool,
}

/// Follows events and actions and says when a rule is broken.
pub(super) struct Watch {
    pub duplicate_bytes: u64,
    pub drained_bytes: u64,
    pub hedged_bytes: u64,
    pub requests: u64,
    pub lanes_opened: u64,
    pub lanes_peak: usize,
    pub actions: u64,
    /// Bytes that were asked for twice for other reasons than haste.
    excused_bytes: u64,
    marks: Vec<Marks>,
    size_bytes: u64,
    window_bytes: Option<u64>,
    lanes_max: usize,
    sources_max: usize,
    budget_bytes: u64,
    policy: PolicyKind,
    probing: bool,
    hash: DefaultHasher,
    trace: VecDeque<String>,
    trace_lines: usize,
    broken: Option<String>,
    checks: u64,
    /// What was delivered at this very instant: a decision may have been taken before.
    fresh: (Time, RangeSet),
    /// Bytes that have arrived when they last did.
    arrived_at: Time,
}

impl Watch {
    pub fn new(scenario: &Scenario, trace_lines: usize) -> Self {
        let config = &scenario.config;
        Self {
            duplicate_bytes: 0,
            drained_bytes: 0,
            hedged_bytes: 0,
            requests: 0,
            lanes_opened: 0,
            lanes_peak: 0,
            actions: 0,
            excused_bytes: 0,
            marks: vec![Marks::default(); scenario.sources.len()],
            size_bytes: scenario.size_bytes,
            window_bytes: config.window_bytes,
            lanes_max: match config.lanes {
                Lanes::Auto { max } | Lanes::Fixed(max) => max.max(1) as usize,
            },
            sources_max: config.max_sources.max(1),
            budget_bytes: config.waste_budget_bytes(scenario.size_bytes),
            policy: config.policy,
            probing: true,
            hash: DefaultHasher::new(),
            trace: VecDeque::new(),
            trace_lines,
            broken: None,
            checks: 0,
            fresh: (Time::ZERO, RangeSet::new()),
            arrived_at: Time::ZERO,
        }
    }

    /// Returns whether nothing has arrived for so long that the executor gives up.
    pub fn stalls(&self, now: Time) -> bool {
        now.secs_since(self.arrived_at) > STALL_S
    }

    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    pub fn fingerprint(&self) -> u64 {
        self.hash.finish()
    }

    /// Returns the last lines of the log.
    pub fn steps(&self) -> String {
        self.trace.iter().fold(String::new(), |all, line| all + line + "\n")
    }

    pub fn note(&mut self, now: Time, line: impl FnOnce() -> String) {
        if self.trace_lines == 0 {
            return;
        }
        if self.trace.len() >= self.trace_lines {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:9.4} {}", now.as_secs_f64(), line()));
    }

    pub fn told(&mut self, event: &Event, now: Time) {
        match event {
            Event::Layout { .. } => self.probing = false,
            Event::Delivered { range, .. } => {
                if self.fresh.0 != now {
                    self.fresh = (now, RangeSet::new());
                }
                self.fresh.1.insert(*range);
                self.arrived_at = now;
            }
            Event::Arrived { .. } => self.arrived_at = now,
            Event::Forbidden { source, range } => {
                self.marks[source.index()].forbidden.insert(*range);
            }
            Event::SourceBad { source } => self.marks[source.index()].bad = true,
            _ => {}
        }
        self.note(now, || format!("  {event:?}"));
    }

    /// A source failed in some way, on a lane that it refuses beside others that deliver if `spare`.
    pub fn failed(&mut self, source: usize, loss: Loss, spare: bool, now: Time) {
        let marks = &mut self.marks[source];
        match loss {
            Loss::Clean => return,
            Loss::Busy(wait) => {
                marks.busy_until = marks.busy_until.max(now + wait);
                if !spare {
                    marks.quiet_until = marks.quiet_until.max(now + wait);
                }
            }
            Loss::Final => marks.bad = true,
            Loss::Broken | Loss::Unreached => {}
        }
        marks.failed_at = Some(now);
        marks.failures += 1;
    }

    pub fn action(&mut self, action: &Action, scene: &Scene) {
        let now = scene.now;
        self.actions += 1;
        let _ = write!(HashWriter(&mut self.hash), "{} {action:?}", now.as_nanos());
        self.note(now, || format!("    -> {action:?}"));
        let verdict = match *action {
            Action::OpenLane { source, lane } => self.opens(source, lane, scene),
            Action::Fetch { lane, range, .. } => self.fetches(lane, range, scene),
            Action::Trim { .. }
            | Action::CloseLane { .. }
            | Action::Finished
            | Action::Exhausted => Ok(()),
        };
        if let Err(what) = verdict {
            self.broken.get_or_insert(format!("{what} ({action:?})"));
        }
    }

    fn opens(&mut self, source: SourceId, lane: LaneId, scene: &Scene) -> Result<(), String> {
        let (now, lanes) = (scene.now, scene.lanes);
        self.lanes_opened += 1;
        let marks = &self.marks[source.index()];
        if lanes.contains_key(&lane) {
            return Err("a lane's number is used twice".into());
        }
        if marks.bad {
            return Err("a lane to a source that is out".into());
        }
        if marks.busy_until > now {
            return Err("a lane to a source that asked for patience".into());
        }
        let at_source = lanes.values().filter(|lane| lane.source == source.index()).count() + 1;
        self.lanes_peak = self.lanes_peak.max(at_source);
        let limit = if self.policy == PolicyKind::Swath { self.lanes_max } else { 1 };
        if at_source > limit {
            return Err(format!("{at_source} lanes to one source, {limit} allowed"));
        }
        Ok(())
    }

    fn fetches(&mut self, id: LaneId, range: Range, scene: &Scene) -> Result<(), String> {
        let Scene { now, lanes, delivered, consumed, .. } = *scene;
        self.requests += 1;
        let Some(lane) = lanes.get(&id) else {
            return Err("a fetch on a lane that is gone".into());
        };
        let marks = &self.marks[lane.source];
        if !lane.is_up() {
            return Err("a fetch on a lane that is not up".into());
        }
        if range.is_empty() {
            return Err("a fetch of nothing".into());
        }
        if marks.bad || marks.quiet_until > now {
            return Err("a fetch from a source that is out or asked for patience".into());
        }
        if marks.forbidden.bytes_within(range) > 0 {
            return Err("a fetch of what the source must not be asked for".into());
        }
        let waiting = lane.asks.iter().filter(|ask| !ask.outstanding().is_empty()).count();
        // A whole-file answer serves one ask after the other without further requests.
        let streams = scene.sources[lane.source].stream_told;
        if !lane.pipelines && waiting > 0 && !streams {
            return Err("a second request on a lane that does not pipeline".into());
        }
        if waiting > QUEUE_MAX {
            return Err(format!("{waiting} requests wait on one lane"));
        }
        if self.probing {
            // What is missing is not known yet, or there is only this to ask for.
            self.excused_bytes += range.len();
        } else {
            if range.end > self.size_bytes {
                return Err("a fetch beyond the end of the file".into());
            }
            let fresh_bytes =
                if self.fresh.0 == now { self.fresh.1.bytes_within(range) } else { 0 };
            self.excused_bytes += fresh_bytes;
            if fresh_bytes == 0 && delivered.covers(range) {
                return Err("a fetch of what is here".into());
            }
            if self.window_bytes.is_some_and(|window| range.end > consumed.saturating_add(window)) {
                return Err("a fetch beyond the window".into());
            }
        }
        // Asked for once more counts once, however many lanes are at it.
        let (mut hedged, mut excused) = (RangeSet::new(), RangeSet::new());
        for other in lanes.values().filter(|other| other.id != id && other.is_up()) {
            let paused = now.secs_since(other.last_progress) > PAUSE_S
                || other.resumed_at.is_some_and(|at| now.secs_since(at) < RESUMED_S);
            let twice = if paused || self.probing { &mut excused } else { &mut hedged };
            for both in other.asks.iter().filter_map(|ask| ask.outstanding().intersect(range)) {
                twice.insert(both);
            }
        }
        self.hedged_bytes += hedged.total_bytes();
        self.excused_bytes += excused.total_bytes();
        Ok(())
    }

    /// The rules that do not belong to a single action.
    pub fn check(&mut self, scene: &Scene, ticked: bool) -> Result<(), String> {
        let Scene { now, planner, sources, lanes, delivered, layout_told, .. } = *scene;
        if let Some(what) = self.broken.take() {
            return Err(what);
        }
        if !ticked {
            return Ok(());
        }
        self.checks += 1;
        let size_bytes = self.size_bytes;
        if layout_told {
            let missing_bytes = size_bytes - delivered.total_bytes();
            if planner.undelivered().total_bytes() != missing_bytes {
                return Err(format!(
                    "{missing_bytes} bytes missing, the planner says {}",
                    planner.undelivered().total_bytes()
                ));
            }
        }
        // Large books are looked through less often, or the check would be all there is to do.
        if self
            .checks
            .is_multiple_of(1 + (planner.undelivered().count() + lanes.len()) as u64 / 100)
        {
            let books = planner.audit()?;
            let slots_max = lanes.len() * (QUEUE_MAX + 8);
            if books.slots > slots_max
                || books.swaths != books.slots
                || books.lanes > lanes.len()
                || books.actions > 0
            {
                return Err(format!("the books grow: {books:?} with {} lanes", lanes.len()));
            }
            if layout_told
                && delivered.gaps_within(Range::new(0, size_bytes))
                    != planner.undelivered().iter().collect::<Vec<_>>()
            {
                return Err("the planner misses other bytes than we do".into());
            }
        }
        if now.secs_since(self.arrived_at) > STALL_S && delivered.total_bytes() < size_bytes {
            let well = |source: &&SimSource| source.mood == Mood::Well && !source.link.is_silent();
            let useful = |marks: &Marks| {
                planner.undelivered().iter().any(|run| !marks.forbidden.covers(run))
            };
            if sources
                .iter()
                .filter(well)
                .map(|source| &self.marks[source.id])
                .any(|marks| !marks.bad && useful(marks))
            {
                return Err(format!("nothing has arrived for {STALL_S} s"));
            }
        }
        let counts = |at: &usize| {
            planner.source(SourceId(*at as u32)).is_some_and(|it| it.status != SourceStatus::Silent)
        };
        // One that cannot be connected to takes nobody's place.
        let up = lanes.values().filter(|lane| lane.is_up());
        let in_use: BTreeSet<usize> = up.map(|lane| lane.source).filter(counts).collect();
        if in_use.len() > self.sources_max + SOURCES_SLACK {
            return Err(format!("{} sources in use, {} allowed", in_use.len(), self.sources_max));
        }
        if self.actions as f64
            > ACTIONS_BASE
                + ACTIONS_PER_S * self.marks.len() as f64 * (1.0 + now.as_secs_f64())
                + self.size_bytes as f64 / 16_384.0
        {
            return Err(format!("{} actions", self.actions));
        }
        Ok(())
    }

    /// The rules at the end.
    pub fn conclude(&mut self, finished: bool, scene: &Scene) -> Result<(), String> {
        let Scene { now, planner, sources, delivered, .. } = *scene;
        if finished {
            if delivered.total_bytes() != self.size_bytes {
                return Err(format!(
                    "finished with {} of {} bytes",
                    delivered.total_bytes(),
                    self.size_bytes
                ));
            }
            if self.policy == PolicyKind::Swath
                && self.hedged_bytes > self.budget_bytes + SLACK_BYTES
            {
                return Err(format!(
                    "{} bytes hedged, the budget is {}",
                    self.hedged_bytes, self.budget_bytes
                ));
            }
            let explained_bytes = self.hedged_bytes + self.excused_bytes + self.drained_bytes;
            if self.duplicate_bytes > explained_bytes + SLACK_BYTES * (1 + sources.len() as u64) {
                return Err(format!(
                    "{} bytes came twice, {explained_bytes} explained",
                    self.duplicate_bytes
                ));
            }
            return Ok(());
        }
        for (at, (source, marks)) in sources.iter().zip(&self.marks).enumerate() {
            let useful = planner.undelivered().iter().any(|run| !marks.forbidden.covers(run));
            let failing = marks.failures >= FAILURES_MIN
                && marks.failed_at.is_some_and(|when| now.secs_since(when) < 30.0);
            if source.mood == Mood::Well
                && !source.link.is_silent()
                && !marks.bad
                && useful
                && !failing
            {
                return Err(format!("given up, although source {at} is well"));
            }
        }
        Ok(())
    }
}

/// Longest time without a byte while a source is well: longer than any back-off.
const STALL_S: f64 = 60.0;
/// Feeds formatted text to a hash.
struct HashWriter<'a>(&'a mut DefaultHasher);

impl Write for HashWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// Requests that may wait on one lane.
const QUEUE_MAX: usize = 8;
/// After a pause, what was asked for in it may still be asked for elsewhere for this long: the
/// planner hears of the first byte at its next look.
const RESUMED_S: f64 = 0.05;
/// Rounding to grid and chunk.
const SLACK_BYTES: u64 = 1 << 20;
/// Sources that fell silent or wait do not count for the planner, but still have lanes here.
const SOURCES_SLACK: usize = 4;
/// A transfer begins with a burst of actions; afterwards they stay below this rate per source.
const ACTIONS_BASE: f64 = 1000.0;
/// See [`ACTIONS_BASE`].
const ACTIONS_PER_S: f64 = 400.0;
/// A source may be given up after so many failures in a row.
const FAILURES_MIN: u32 = 10;
