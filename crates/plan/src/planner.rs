//! The planner's books and its two calls.
//!
//! Always holds, for every byte of the file: it is delivered, or open (nobody is asked for it),
//! or asked for on at least one lane. `doubtful` are bytes asked for on lanes that fell silent;
//! `shared` are bytes asked for on more than one lane.

use std::collections::{BTreeMap, HashMap, VecDeque};

use swath_model::{LaneId, Range, RangeSet, SourceId, SwathId, Time};

use crate::config::{Config, Lanes};
use crate::event::{Action, Event};
use crate::lane::{Lane, LaneState};
use crate::policy::{self, Manners, Policy};
use crate::source::Source;
use crate::view::SourceStatus;

/// Decides every swath of one transfer.
pub struct Planner {
    pub(crate) config: Config,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) manners: Manners,
    pub(crate) size_bytes: Option<u64>,
    /// The file may still grow.
    pub(crate) grows: bool,
    pub(crate) open: RangeSet,
    pub(crate) doubtful: RangeSet,
    pub(crate) shared: RangeSet,
    pub(crate) undelivered: RangeSet,
    pub(crate) lanes: BTreeMap<LaneId, Lane>,
    pub(crate) sources: Vec<Source>,
    pub(crate) swaths: HashMap<SwathId, LaneId>,
    pub(crate) actions: VecDeque<Action>,
    /// Lanes that may take more; each at most once.
    pub(crate) hungry: VecDeque<LaneId>,
    pub(crate) next_lane: u32,
    pub(crate) next_swath: u64,
    /// The time of the call that is under way.
    pub(crate) clock: Time,
    pub(crate) next_tick: Time,
    /// When everything would end if all went on as at the last tick; `None` while unknown.
    pub(crate) end_at: Option<Time>,
    pub(crate) rate: f64,
    /// The same with lanes that have nothing to do just now.
    pub(crate) able_rate: f64,
    /// Sources not given up, counted at the last tick.
    pub(crate) usable_sources: usize,
    pub(crate) hedged_bytes: u64,
    pub(crate) consumed: u64,
    pub(crate) ended: bool,
    /// Where the first request lies while the size is unknown; moves on with what it brings.
    pub(crate) first_gap: Range,
    /// When bytes last came from anybody.
    pub(crate) heard_at: Time,
    /// Looks in a row at which no lane had work although some was open.
    pub(crate) ticks_at_rest: u32,
    pub(crate) rng: fastrand::Rng,
}

impl Planner {
    /// A planner that knows no source and no size yet.
    pub fn new(config: Config) -> Self {
        let policy = policy::of(&config);
        Self {
            manners: policy.manners(),
            policy,
            size_bytes: None,
            grows: false,
            open: RangeSet::new(),
            doubtful: RangeSet::new(),
            shared: RangeSet::new(),
            undelivered: RangeSet::new(),
            lanes: BTreeMap::new(),
            sources: Vec::new(),
            swaths: HashMap::new(),
            actions: VecDeque::new(),
            hungry: VecDeque::new(),
            next_lane: 0,
            next_swath: 0,
            clock: Time::ZERO,
            next_tick: Time::ZERO,
            end_at: None,
            rate: 0.0,
            able_rate: 0.0,
            usable_sources: 0,
            hedged_bytes: 0,
            consumed: 0,
            ended: false,
            first_gap: Range::new(0, u64::MAX),
            heard_at: Time::ZERO,
            ticks_at_rest: 0,
            rng: fastrand::Rng::with_seed(config.seed),
            config,
        }
    }

    /// Where the first request lies while the size is unknown: in what an earlier run left missing
    /// first.
    pub fn begin_within(&mut self, gap: Range) {
        self.first_gap = gap;
    }

    /// Something happened at `now`; times never go backwards.
    pub fn handle(&mut self, event: Event, now: Time) {
        self.clock = now;
        match event {
            Event::SourceAdded { source, max_lanes } => {
                debug_assert_eq!(source.index(), self.sources.len());
                self.sources.push(Source::new(source, self.lanes_max(max_lanes)));
                self.next_tick = now;
                // A new replica may go on where all others have failed.
                self.ended &= self.size_bytes.is_some() && !self.misses_something();
            }
            Event::Layout { size_bytes, missing } => self.layout(size_bytes, missing, now),
            Event::Grown { size_bytes, missing, more } => self.grown(size_bytes, &missing, more),
            Event::LaneUp { lane, rtt, pipelines } => {
                self.lane_up(lane, rtt.as_secs_f64(), pipelines, now)
            }
            Event::Arrived { lane, total_bytes } => self.arrived(lane, total_bytes, now),
            Event::Behind { lane, bytes } => {
                if self.lanes.get_mut(&lane).is_some_and(|lane| lane.behind(now, bytes)) {
                    self.heard_at = now;
                    self.speaks(lane);
                }
            }
            Event::Paused { lane, total } => {
                if let Some(lane) = self.lanes.get_mut(&lane) {
                    lane.paused(now, total.as_secs_f64());
                }
            }
            Event::HeldUp { lane } => {
                if let Some(lane) = self.lanes.get_mut(&lane) {
                    lane.last_progress = now;
                    lane.heard_at = now;
                }
                self.speaks(lane);
            }
            Event::Awoke => self.sources.iter_mut().for_each(|source| source.awoke(now)),
            Event::Delivered { swath, range } => self.delivered(swath, range),
            Event::SwathDone { swath } => self.swath_done(swath, now),
            Event::SwathFailed { swath, loss } => self.swath_failed(swath, loss, now),
            Event::LaneLost { lane, loss } => self.lane_lost(lane, loss, now),
            Event::Reopened { range } => {
                self.undelivered.insert(range);
                self.reopen(range);
                self.ended = false;
            }
            Event::Forbidden { source, range } => {
                if let Some(source) = self.sources.get_mut(source.index()) {
                    source.forbidden.insert(range);
                }
            }
            Event::Lacks { source, range } => {
                if let Some(source) = self.sources.get_mut(source.index()) {
                    source.lacks.insert(range);
                    source.forbidden.insert(range);
                }
            }
            Event::Allowed { source, range } => {
                if let Some(source) = self.sources.get_mut(source.index()) {
                    for range in source.lacks.gaps_within(range) {
                        source.forbidden.remove(range);
                    }
                }
                self.ended = false;
            }
            Event::StreamOnly { source } => {
                if let Some(source) = self.sources.get_mut(source.index()) {
                    source.stream_only = true;
                    source.max_lanes = 1;
                    for id in source.lanes.clone() {
                        if let Some(lane) = self.lanes.get_mut(&id) {
                            lane.streams = true;
                            lane.pipelines = false;
                        }
                    }
                }
            }
            Event::RequestLimit { source, requests } => {
                if let Some(source) = self.sources.get_mut(source.index()) {
                    source.request_limit = Some(requests);
                }
            }
            Event::SourceRests { source, rests } => {
                if let Some(source) = self.sources.get_mut(source.index()) {
                    source.rests = rests;
                }
                self.ended &= rests || !self.misses_something();
                self.next_tick = now;
            }
            Event::LaneLimit { source, lanes } => {
                let most = self.lanes_max(lanes);
                if let Some(source) = self.sources.get_mut(source.index())
                    && !source.stream_only
                {
                    source.max_lanes = most;
                }
                self.next_tick = now;
            }
            Event::SourceBad { source } => self.source_bad(source, now),
            Event::SourceAgain { source } => {
                let is_out = |it: &&mut Source| !it.is_usable() || it.has_failed();
                let out = self.sources.get_mut(source.index()).filter(is_out);
                let Some(source) = out else { return };
                source.again();
                self.ended &= self.size_bytes.is_some() && !self.misses_something();
                self.next_tick = now;
            }
            Event::Consumed { up_to } => {
                self.consumed = self.consumed.max(up_to);
                self.all_hungry();
            }
        }
    }

    /// Most lanes of a source that allows so many.
    fn lanes_max(&self, allowed: Option<u32>) -> u32 {
        let (Lanes::Auto { max } | Lanes::Fixed(max)) = self.config.lanes;
        allowed.unwrap_or(max).clamp(1, max.max(1))
    }

    /// What to do next at `now`; `None` when there is nothing until the next event or
    /// [`Planner::poll_timeout`].
    pub fn poll(&mut self, now: Time) -> Option<Action> {
        self.clock = now;
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if self.ended {
            return None;
        }
        if now >= self.next_tick {
            self.tick(now);
        }
        while let Some(lane) = self.hungry.pop_front() {
            if let Some(lane) = self.lanes.get_mut(&lane) {
                lane.hungry = false;
            }
            self.feed(lane, now);
            if !self.actions.is_empty() {
                break;
            }
        }
        if self.actions.is_empty() && self.size_bytes.is_some() && !self.misses_something() {
            self.ended = true;
            self.actions.push_back(Action::Finished);
        }
        self.actions.pop_front()
    }

    /// Whether there is, or may yet be, anything to deliver.
    pub(crate) fn misses_something(&self) -> bool {
        self.grows || !self.undelivered.is_empty()
    }

    /// When [`Planner::poll`] wants to be called again even if nothing happens.
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.ended).then_some(self.next_tick)
    }

    /// Bytes that are still to be delivered.
    pub fn undelivered(&self) -> &RangeSet {
        &self.undelivered
    }

    /// Seconds until the end if all goes on as now, `None` while that is unknown.
    pub fn time_left_s(&self, now: Time) -> Option<f64> {
        self.end_at.filter(|&at| at < Time::MAX).map(|at| at.secs_since(now))
    }

    /// Nothing may be asked for from here on.
    pub(crate) fn reach(&self) -> u64 {
        self.config.window_bytes.map_or(u64::MAX, |window| self.consumed.saturating_add(window))
    }

    /// Bytes asked for a second time to shorten the end, so far.
    pub fn hedged_bytes(&self) -> u64 {
        self.hedged_bytes
    }

    fn layout(&mut self, size_bytes: u64, missing: RangeSet, now: Time) {
        self.size_bytes = Some(size_bytes);
        self.grows = false;
        self.undelivered = missing;
        self.open = self.undelivered.clone();
        self.doubtful = RangeSet::new();
        self.shared = RangeSet::new();
        // What the probes were asked for is on its way; clip it to the file.
        let ids: Vec<LaneId> = self.lanes.keys().copied().collect();
        for id in ids {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            let mut asked = Vec::new();
            for slot in &mut lane.queue {
                slot.end = slot.end.min(size_bytes);
                slot.asked_end = slot.asked_end.min(size_bytes).max(slot.start);
                asked.push(Range::new(slot.start.min(size_bytes), slot.end));
            }
            for range in asked {
                let missing: Vec<Range> = self.undelivered.within(range).collect();
                for range in missing {
                    if self.open.remove(range) < range.len() {
                        self.shared.insert(range);
                    }
                }
            }
        }
        for at in 0..self.sources.len() {
            self.first_lanes(SourceId(at as u32));
        }
        self.next_tick = now;
        self.all_hungry();
    }

    fn grown(&mut self, size_bytes: u64, missing: &RangeSet, more: bool) {
        self.size_bytes = Some(size_bytes);
        self.grows = more;
        for range in missing.iter() {
            self.undelivered.insert(range);
            self.open.insert(range);
        }
        self.ended = false;
        self.all_hungry();
    }

    fn lane_up(&mut self, id: LaneId, rtt_s: f64, pipelines: bool, now: Time) {
        // While it took its time to connect, others may have taken its source's place.
        let surplus = self.lanes.get(&id).is_some_and(|lane| {
            let own = self.sources.get(lane.source.index());
            let in_use = |it: &&Source| it.id != lane.source && self.takes_a_place(it, now);
            own.is_some_and(|own| own.rtt_s.is_none() && !self.takes_a_place(own, now))
                && self.sources.iter().filter(in_use).count() >= self.places()
        });
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.state == LaneState::Closing {
            // It connected again just when it was told to close.
            return;
        }
        lane.connected(now, rtt_s, pipelines);
        if surplus {
            let source = lane.source;
            self.close(id);
            if let Some(source) = self.sources.get_mut(source.index()) {
                source.rtt_s = Some(rtt_s);
                source.status = SourceStatus::Spare;
            }
            return;
        }
        let id_of_source = lane.source;
        if let Some(source) = self.sources.get_mut(lane.source.index()) {
            source.rtt_s = Some(source.rtt_s.map_or(rtt_s, |before| before.min(rtt_s)));
            lane.streams = source.stream_only;
            if let Some(pace) = source.pace {
                lane.assume_pace(pace.alone());
            }
            if source.request_limit.is_some_and(|limit| limit <= FLEETING_REQUESTS) {
                // It will not live long enough to find out for itself.
                lane.rate = source.lane_rate;
            }
        }
        if self.size_bytes.is_some() {
            self.first_lanes(id_of_source);
        }
        self.make_hungry(id);
    }

    /// A source is connected and the size is known: how many lanes it has at first.
    fn first_lanes(&mut self, id: SourceId) {
        let left_bytes = if self.grows { u64::MAX } else { self.undelivered.total_bytes() };
        let auto = self.manners.tunes_lanes && matches!(self.config.lanes, Lanes::Auto { .. });
        let usable = self.sources.iter().filter(|source| source.is_usable()).count() as u32;
        if let Some(source) = self.sources.get_mut(id.index()).filter(|_| auto)
            && let Some(rtt_s) = source.rtt_s
        {
            let starters = self.config.starters;
            source.tuner.first_lane(rtt_s, source.max_lanes, usable, starters, left_bytes);
            if source.tuner.lanes() as usize > source.lanes.len() {
                // Its other lanes are not to wait for the next look.
                self.next_tick = self.clock;
            }
        }
    }

    fn arrived(&mut self, id: LaneId, total_bytes: u64, now: Time) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.arrived(now, total_bytes) == 0 {
            return;
        }
        self.heard_at = now;
        lane.refresh_rate(now);
        if let Some(source) = self.sources.get_mut(lane.source.index()) {
            if let Some(took_s) = lane.answer_took_s(now) {
                source.answered(took_s);
            }
            source.delivered(0);
        }
        self.speaks(id);
        self.make_hungry(id);
    }

    /// A lane that may have been silent is not: what it still owes is its own again, unless
    /// somebody else took it meanwhile.
    pub(crate) fn speaks(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if std::mem::replace(&mut lane.silent, false) {
            for range in lane.undelivered() {
                self.doubtful.remove(range);
            }
        }
    }

    fn delivered(&mut self, swath: SwathId, range: Range) {
        let Range { start, end } = self.first_gap;
        if self.size_bytes.is_none() && range.start <= start && range.end > start {
            // An answer that does not tell its length: the next request goes on behind it.
            let end = if range.end < end { end } else { u64::MAX };
            self.first_gap = Range::new(range.end, end);
        }
        let new_bytes = self.undelivered.remove(range);
        self.open.remove(range);
        self.doubtful.remove(range);
        // What a closed lane still had, or lies behind a trimmed end, may be asked for elsewhere.
        let mut unexpected = true;
        let mut skipped = None;
        if let Some(id) = self.swaths.get(&swath).copied()
            && let Some(lane) = self.lanes.get_mut(&id)
        {
            self.heard_at = self.clock;
            if let Some(slot) = lane.slot_mut(swath) {
                skipped = (slot.delivered_to < range.start)
                    .then(|| Range::new(slot.delivered_to, range.start.min(slot.end)));
                slot.delivered_to = slot.delivered_to.max(range.end.min(slot.asked_end));
                unexpected = range.end > slot.end;
            }
            let is_first = lane.first_byte_at.is_none();
            lane.first_byte_at.get_or_insert(self.clock);
            if let Some(source) = self.sources.get_mut(lane.source.index()) {
                if is_first {
                    source.let_in();
                }
                // The meters are looked at now and then: it may be known from here first.
                if let Some(took_s) = lane.answer_took_s(self.clock) {
                    source.answered(took_s);
                }
                source.delivered(new_bytes);
            }
        }
        if let Some(skipped) = skipped {
            // A lane's bytes come in order: what it passed over does not come from it any more.
            self.give_back(skipped);
        }
        if self.shared.remove(range) > 0 || unexpected {
            self.release_others(swath, range);
        }
    }

    /// The first copy of `range` is here: others that are fetching it need not.
    fn release_others(&mut self, winner: SwathId, range: Range) {
        let mut trims = Vec::new();
        for lane in self.lanes.values() {
            for (slot, at) in lane.positions() {
                let left = Range::new(at, slot.end);
                if slot.swath == winner || left.intersect(range).is_none() {
                    continue;
                }
                let end = self.undelivered.within(left).last().map_or(at, |last| last.end);
                if end < slot.end {
                    trims.push((lane.id, slot.swath, end));
                }
            }
        }
        for (lane, swath, end) in trims {
            self.trim(lane, swath, end);
        }
    }

    fn swath_done(&mut self, swath: SwathId, now: Time) {
        let Some(id) = self.swaths.remove(&swath) else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(slot) = lane.finish(swath) else { return };
        let source = lane.source;
        self.policy.swath_ended(source, slot.asked_end - slot.start, now.secs_since(slot.asked_at));
        // Bytes of it that are not in our hands after all (a short answer) must not get lost.
        self.give_back(Range::new(slot.delivered_to, slot.end));
        self.make_hungry(id);
    }

    /// Close a lane; what it owes goes to others now, not when the loss is confirmed.
    pub(crate) fn close(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.state == LaneState::Closing {
            return;
        }
        lane.state = LaneState::Closing;
        let queue = std::mem::take(&mut lane.queue);
        if !queue.is_empty()
            && let Some(source) = self.sources.get_mut(lane.source.index())
        {
            source.cut_short(self.clock);
        }
        for slot in queue {
            self.swaths.remove(&slot.swath);
            self.give_back(Range::new(slot.delivered_to, slot.end));
        }
        self.actions.push_back(Action::CloseLane { lane: id });
    }

    /// `range` is no longer asked for by its lane: whatever of it is still missing and on no
    /// other lane is open again.
    pub(crate) fn give_back(&mut self, range: Range) {
        let missing: Vec<Range> = self.undelivered.within(range).collect();
        for range in missing {
            self.reopen(range);
        }
    }

    fn reopen(&mut self, range: Range) {
        let mut free = RangeSet::from(range);
        let mut doubtful = RangeSet::new();
        if self.shared.bytes_within(range) > 0 || self.doubtful.bytes_within(range) > 0 {
            for lane in self.lanes.values() {
                for asked in
                    lane.undelivered().into_iter().filter_map(|asked| asked.intersect(range))
                {
                    if lane.silent {
                        doubtful.insert(asked);
                    } else {
                        free.remove(asked);
                    }
                }
            }
        }
        for range in free.iter() {
            self.shared.remove(range);
            self.doubtful.remove(range);
            self.open.insert(range);
            // What a silent lane owes stays its own as well, should it speak again.
            for range in doubtful.within(range) {
                self.open.remove(range);
                self.doubtful.insert(range);
            }
        }
        if !free.is_empty() {
            self.all_hungry();
        }
    }

    /// Let a swath end at `end`; the caller has taken care of the bytes behind it.
    pub(crate) fn trim(&mut self, id: LaneId, swath: SwathId, end: u64) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let reopen_s = DROP_ROUND_TRIPS * lane.rtt_s + DROP_S;
        let Some(slot) = lane.slot_mut(swath) else { return };
        let end = end.max(slot.start);
        slot.end = slot.end.min(end);
        let surplus_bytes = slot.asked_end - slot.end;
        let drain_s = lane.needs_s(surplus_bytes, self.clock).unwrap_or(0.0);
        let needed = !self.open.is_empty();
        // Near the end nothing more will be asked for on this lane, so draining costs nothing.
        // A whole-file answer waits at the new end, and goes on from there if that is wanted.
        let drop_lane = !lane.streams && needed && drain_s > reopen_s;
        lane.dropping |= drop_lane;
        self.actions.push_back(Action::Trim { lane: id, swath, end, drop_lane });
    }

    pub(crate) fn make_hungry(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && !std::mem::replace(&mut lane.hungry, true)
        {
            self.hungry.push_back(id);
        }
    }

    pub(crate) fn all_hungry(&mut self) {
        for lane in self.lanes.values_mut() {
            if lane.is_up() && !std::mem::replace(&mut lane.hungry, true) {
                self.hungry.push_back(lane.id);
            }
        }
    }
}

/// Lanes of so few requests do not live long enough to find out anything: they begin with the rate
/// of those before them, and are followed by the next one even shortly before the end.
pub(crate) const FLEETING_REQUESTS: u32 = 8;
/// A trimmed body is drained if that takes less than this many round trips (what a new connection
/// costs: its handshake, the request and several steps of slow start) …
const DROP_ROUND_TRIPS: f64 = 5.0;
/// … and this.
const DROP_S: f64 = 0.02;
