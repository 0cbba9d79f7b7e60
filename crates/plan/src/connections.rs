//! How many lanes each source has, and which sources have any.

use swath_model::{LaneId, Requests};

use crate::config::{Config, Lanes};
use crate::lane::{Lane, LaneState};
use crate::ledger::Ledger;
use crate::paced;
use crate::planner::TICK_S;
use crate::policy::PolicyCapabilities;
use crate::source::Source;
use crate::source_table::SourceKey;
use crate::tuner::{Begin, Reading, shared_lanes};
use crate::view::SourceStatus;

/// Returns the most lanes of a source that allows `allowed`; `None`: no limit of its own.
pub(crate) fn lanes_max(config: &Config, allowed: Option<u32>) -> u32 {
    let (Lanes::Auto { max } | Lanes::Fixed(max)) = config.lanes;
    allowed.unwrap_or(max).clamp(1, max.max(1))
}

/// Returns how many lanes a source gets before anything is known of it.
pub(crate) fn first_goal(config: &Config, capabilities: PolicyCapabilities) -> u32 {
    match config.lanes {
        Lanes::Fixed(count) if capabilities.tunes_lanes => count,
        _ => 1,
    }
}

/// Handles a connected lane. Returns whether its source should get more lanes at once.
pub(crate) fn lane_up(ledger: &mut Ledger, id: LaneId, rtt_s: f64, requests: Requests) -> bool {
    // While it connected, others may have taken its source's place.
    let is_surplus = |lane: &Lane| {
        let own = ledger.source_of(lane);
        let others = ledger.sources.engaged().filter(|it| it.key != lane.source);
        own.is_some_and(|own| own.record.rtt_s.is_none() && !ledger.takes_a_place(own))
            && others.filter(|it| ledger.takes_a_place(it)).count() >= ledger.places()
    };
    let surplus = ledger.lanes.get(id).is_some_and(is_surplus);
    let Some(lane) = ledger.lanes.get_mut(id) else { return false };
    if lane.state == LaneState::Closing {
        // It connected just as it was being closed.
        return false;
    }
    lane.connected(ledger.now, rtt_s, requests);
    let key = lane.source;
    if surplus {
        ledger.close(id);
        if let Some(source) = ledger.sources.get_mut(key) {
            source.record.rtt_s = Some(rtt_s);
            source.status = SourceStatus::Spare;
        }
        return false;
    }
    if let Some(source) = ledger.sources.get_mut(key) {
        source.record.rtt_s = Some(source.record.rtt_s.map_or(rtt_s, |before| before.min(rtt_s)));
        lane.pipe.streams = source.usage.stream_only;
        source.usage.is_peer = requests == Requests::Blocks;
        if let Some(pace) = source.record.pace {
            lane.speed.assume_pace(pace.alone());
        }
        if source.usage.request_limit.is_some_and(|limit| limit <= FLEETING_REQUESTS) {
            // It will not live long enough to measure its own rate.
            lane.speed.rate = source.record.lane_rate;
        }
    }
    let more = ledger.coverage.size_bytes.is_some() && first_lanes(ledger, key);
    ledger.lanes.make_hungry(id);
    more
}

/// Sets the first number of lanes of a connected source once the size is known. Returns whether it
/// should have more than now.
pub(crate) fn first_lanes(ledger: &mut Ledger, key: SourceKey) -> bool {
    let coverage = &ledger.coverage;
    let undelivered_bytes =
        if coverage.grows { u64::MAX } else { coverage.undelivered.total_bytes() };
    let config = &ledger.config;
    let auto = ledger.capabilities.tunes_lanes && matches!(config.lanes, Lanes::Auto { .. });
    let known_lanes = config.first_lanes;
    let sources = ledger.sources.usable() as u32;
    let Some(source) = ledger.sources.get_mut(key).filter(|_| auto) else { return false };
    let Some(rtt_s) = source.record.rtt_s else { return false };
    let lanes_max = source.usage.max_lanes;
    source.tuner.first_lane(&Begin { rtt_s, lanes_max, sources, known_lanes, undelivered_bytes });
    source.tuner.goal as usize > source.lanes.len()
}

/// Updates the rates of lanes and sources. Returns their sum in bytes per second.
pub(crate) fn refresh_rates(ledger: &mut Ledger) -> f64 {
    let (now, work) = (ledger.now, !ledger.coverage.open.is_empty());
    let mut sum = 0.0;
    ledger.sources.disengage_idle(now);
    for key in ledger.sources.engaged_keys() {
        let Some(source) = ledger.sources.get_mut(key) else { continue };
        source.record.rate = 0.0;
        let mut serving = 0;
        for id in &source.lanes {
            let Some(lane) = ledger.lanes.get_mut(*id) else { continue };
            lane.refresh_rate(now);
            if work && lane.waits() {
                source.record.waited_s += TICK_S;
            }
            if lane.is_up() && !lane.silent && !lane.is_idle() {
                source.record.rate += lane.speed.rate.unwrap_or(0.0);
                serving += u32::from(lane.was_answered());
            }
        }
        sum += source.record.rate;
        source.record.served_most = source.record.served_most.max(serving);
        source.record.best_rate = source.record.best_rate.max(source.record.rate);
    }
    sum
}

/// Closes lanes that end behind a trimmed swath and have nothing left to bring, whether or not
/// their connection has reached that point.
pub(crate) fn close_dropped(ledger: &mut Ledger) {
    let is_done = |lane: &&Lane| lane.is_up() && lane.duty.dropping && lane.is_idle();
    let done: Vec<LaneId> = ledger.lanes.iter().filter(is_done).map(|lane| lane.id).collect();
    for id in done {
        ledger.close(id);
    }
}

/// Adjusts how many lanes each source should have, and parks or closes those above that.
pub(crate) fn tune(ledger: &mut Ledger, time_left_s: Option<f64>) {
    for key in ledger.sources.engaged_keys() {
        let Some(source) = ledger.sources.get(key).filter(|it| it.is_usable()) else { continue };
        if !source.usage.rests {
            let goal = goal(ledger, source, time_left_s);
            if let Some(source) = ledger.sources.get_mut(key) {
                match goal {
                    Goal::Lanes(count) => source.tuner.goal = count,
                    Goal::AtMost(count) => source.tuner.limit(count, ledger.now),
                    Goal::Tuned(reading) => {
                        if let Some(reading) = reading {
                            source.tuner.tick(reading);
                        }
                        let allowed = source.tuner.allowed(ledger.now);
                        let most = source.usage.max_lanes.min(allowed);
                        source.tuner.goal = source.tuner.goal.min(most);
                    }
                }
            }
        }
        fit(ledger, key);
    }
}

/// How a source's number of lanes is found.
enum Goal {
    /// This many.
    Lanes(u32),
    /// By its tuner, from this reading.
    Tuned(Option<Reading>),
    /// As many as now, but at most this many.
    AtMost(u32),
}

fn goal(ledger: &Ledger, source: &Source, time_left_s: Option<f64>) -> Goal {
    let now = ledger.now;
    match ledger.config.lanes {
        _ if !ledger.capabilities.tunes_lanes => Goal::Lanes(1),
        Lanes::Fixed(count) => {
            Goal::Lanes(count.min(source.usage.max_lanes).min(source.tuner.allowed(now)))
        }
        Lanes::Auto { .. } if source.record.pace.is_some() => {
            Goal::Lanes(paced::goal(ledger, source, time_left_s).unwrap_or(1))
        }
        // Both sides announce every piece on each of their connections, and what one peer brings more
        // then, others bring less.
        Lanes::Auto { .. } if source.usage.is_peer && ledger.sources.usable() >= MANY_PEERS => {
            Goal::AtMost(shared_lanes(source.record.rtt_s.unwrap_or(0.0)))
        }
        Lanes::Auto { .. } => {
            let lanes = || ledger.lanes_of(source);
            let is_up = |it: &&Lane| it.is_up() && !it.duty.parked && it.was_answered();
            let reading = || Reading {
                now,
                rate: source.record.rate,
                paused_s: source.record.waited_s
                    + lanes().map(|lane| lane.pauses.paused_s).sum::<f64>(),
                rtt_s: source.record.rtt_s.unwrap_or(0.1),
                lanes_up: lanes().filter(is_up).count() as u32,
                lanes_max: source.usage.max_lanes,
                time_left_s: time_left_s.unwrap_or(0.0),
                has_work: !ledger.coverage.open.is_empty(),
            };
            let tunable = source.status == SourceStatus::Running
                && !source.usage.stream_only
                && !lanes().any(|lane| lane.speed.pace.suspects());
            Goal::Tuned(tunable.then(reading))
        }
    }
}

/// Parks the newest lanes above the goal, unparks lanes below it, and closes parked lanes with
/// nothing left to deliver.
fn fit(ledger: &mut Ledger, key: SourceKey) {
    let Some(source) = ledger.sources.get(key) else { return };
    let goal =
        if source.usage.rests { 0 } else { source.tuner.goal.min(source.usage.max_lanes) as usize };
    let mut lanes: Vec<&Lane> = ledger.lanes_of(source).collect();
    // Connected lanes come before those still connecting.
    lanes.sort_by_key(|lane| !lane.is_up());
    lanes.retain(|lane| lane.state != LaneState::Closing && !ledger.is_spent(lane));
    let ids: Vec<LaneId> = lanes.into_iter().map(|lane| lane.id).collect();
    let mut idle_parked = Vec::new();
    for (at, id) in ids.into_iter().enumerate() {
        let Some(lane) = ledger.lanes.get_mut(id) else { continue };
        lane.duty.parked = at >= goal;
        if lane.duty.parked && lane.is_idle() && lane.is_up() {
            idle_parked.push(id);
        }
    }
    for id in idle_parked {
        ledger.close(id);
    }
}

/// Opens the lanes that are wanted but missing.
pub(crate) fn open(ledger: &mut Ledger, time_left_s: Option<f64>) {
    let coverage = &ledger.coverage;
    let wanted = coverage.size_bytes.is_none() || coverage.grows || coverage.has_work();
    // Once everything is requested, open only lanes that could still take a share.
    if !wanted && time_left_s.is_none_or(|left| left <= OPEN_WORTH_S) {
        return;
    }
    ledger.sources.wake(ledger.now);
    let engaged = ledger.sources.engaged();
    let mut in_use = engaged.filter(|source| ledger.takes_a_place(source)).count();
    let limit = ledger.places();
    // Sources that failed lately come last.
    let has_lanes = |source: &&Source| !source.lanes.is_empty();
    let with_lanes = ledger.sources.engaged().filter(has_lanes);
    let mut with_lanes: Vec<(bool, SourceKey)> =
        with_lanes.map(|source| (source.backoff.has_failed(), source.key)).collect();
    with_lanes.sort();
    let mut with_lanes = with_lanes.into_iter().peekable();
    loop {
        // Use a further source only if there is a place for it.
        let new = ledger.sources.first_ready().filter(|_| in_use < limit);
        let own = with_lanes.peek().copied();
        let Some((_, key)) = new.into_iter().chain(own).min() else { return };
        if own.is_some_and(|own| own.1 == key) {
            with_lanes.next();
        }
        let Some(source) = ledger.sources.get(key) else { return };
        if !ledger.is_of_use(source) {
            if source.lanes.is_empty() {
                ledger.sources.set_useless(key);
            }
            continue;
        }
        if source.backoff.retry_at > ledger.now {
            continue;
        }
        if source.lanes.is_empty() {
            in_use += 1;
        }
        let have = source.lanes.len() as u32;
        for _ in have..most(ledger, source, time_left_s) {
            ledger.open(key);
        }
        if !ledger.config.eager && stays_with_few(ledger) {
            return;
        }
    }
}

/// Returns how many lanes a source may have now.
fn most(ledger: &Ledger, source: &Source, time_left_s: Option<f64>) -> u32 {
    let is_doubtful = source.backoff.on_probation() || source.status == SourceStatus::Silent;
    let goal = if is_doubtful { 1 } else { source.tuner.goal };
    let is_spent = |lane: &&Lane| ledger.is_spent(lane);
    let spent = ledger.lanes_of(source).filter(is_spent).count() as u32;
    // The successor of a lane that is about to end connects meanwhile.
    let allowed = source.usage.max_lanes.min(source.tuner.allowed(ledger.now)).max(1);
    let most = (goal.max(1) + spent.min(goal.max(1))).min(allowed);
    if is_late_for(source, time_left_s) { most.min(1 + spent.min(1)) } else { most }
}

/// Returns whether another lane of this source would come too late to bring anything.
fn is_late_for(source: &Source, time_left_s: Option<f64>) -> bool {
    // Each of its lanes brings only a few answers, so it needs the next one to continue at all.
    let is_fleeting = source.usage.request_limit.is_some_and(|limit| limit <= FLEETING_REQUESTS);
    let needs_s = LANE_ROUND_TRIPS * source.record.rtt_s.unwrap_or(0.0);
    !is_fleeting && time_left_s.is_some_and(|left_s| left_s < needs_s)
}

/// Returns whether the sources contacted so far are enough, for lists of small files.
fn stays_with_few(ledger: &Ledger) -> bool {
    let coverage = &ledger.coverage;
    let small = coverage.size_bytes.is_none() || coverage.undelivered.total_bytes() < SMALL_BYTES;
    let lively = ledger.lanes.iter().any(|lane| match lane.state {
        LaneState::Up => !lane.silent,
        LaneState::Opening => ledger.now.secs_since(lane.since) < NEXT_SOURCE_S,
        LaneState::Closing => false,
    });
    small && lively
}

/// Lanes with at most this many requests are too short-lived to measure anything. They start with
/// the rate of earlier lanes, and get a successor even shortly before the end.
const FLEETING_REQUESTS: u32 = 8;
/// From so many sources on, a peer gets no more lanes than its round trip needs. A guess: eight sites
/// gained much by it, and one or two far seeders need more lanes.
const MANY_PEERS: usize = 4;
/// Once everything is requested, a new lane would come too late with less than this to go.
const OPEN_WORTH_S: f64 = 0.5;
/// With fewer round trips to go, another lane comes too late: one to connect, one until its answer,
/// and in the third it brings next to nothing.
const LANE_ROUND_TRIPS: f64 = 3.0;
/// A file of a list up to this size is left to one source.
const SMALL_BYTES: u64 = 4 << 20;
/// How long a source of a list may take to connect before the next one is tried.
const NEXT_SOURCE_S: f64 = 0.3;
