//! Scenarios drawn from a seed: every kind of source, fault and setting, mixed.

use std::time::Duration;

use swath_model::{Range, RangeSet};
use swath_plan::{Lanes, PolicyKind};

use super::scenario::Scenario;
use super::script::{Script, honest};
use super::server::{Change, Mood, SourceSpec};

/// Returns the scenario of this seed. At least one source of it stays well, except in about one of
/// fifteen, where all may fail.
pub fn random(seed: u64) -> Scenario {
    let mut rng = fastrand::Rng::with_seed(seed);
    let count = match rng.u32(0..10) {
        0 => 1,
        1..=6 => rng.usize(2..=6),
        7 | 8 => rng.usize(6..=12),
        _ => rng.usize(12..=40),
    };
    let doomed = rng.u32(0..15) == 0;
    let mut sources: Vec<SourceSpec> = (0..count).map(|_| source(&mut rng)).collect();
    if rng.u32(0..4) == 0 {
        let mut at_s = 0.0;
        for source in sources.iter_mut().skip(1) {
            at_s += 0.3 * rng.f64();
            source.known_at_s = at_s;
        }
    }
    // The one that stays well.
    let well = rng.usize(0..count);
    if !doomed {
        sources[well].mood = Mood::Well;
        // Without ranges a reset costs everything.
        sources[well].resets_per_s =
            if sources[well].ranges { sources[well].resets_per_s.min(0.1) } else { 0.0 };
    }
    let rates: f64 = sources.iter().map(|source| source.link.rate_bytes_per_s).sum();
    let size_bytes = match rng.u32(0..12) {
        0 => rng.u64(0..3),
        1 => rng.u64(0..200_000),
        _ => ((rates * 6.0 * rng.f64() * rng.f64()) as u64).clamp(1, 400 << 20),
    };
    let mut script = Script::of(sources).size_bytes(size_bytes).seed(seed);
    let mut changes = Vec::new();
    for at in 0..count {
        if rng.u32(0..3) == 0 {
            let spared = at == well && !doomed;
            happenings(&mut rng, at, spared, size_bytes, &mut changes);
        }
    }
    changes.sort_by(|a: &(f64, usize, Change), b| a.0.total_cmp(&b.0));
    script = script.scenario(|scenario| {
        scenario.changes = changes;
        scenario.step_s = 0.002;
        scenario.wants_oracle = false;
        scenario.size_known = rng.bool();
        scenario.keeps_surplus = rng.bool();
        if rng.u32(0..4) == 0 {
            scenario.missing = Some(scattered(&mut rng, size_bytes));
        }
        let config = &mut scenario.config;
        config.policy = match rng.u32(0..10) {
            0 => PolicyKind::Mdtp,
            1 => PolicyKind::Fixed,
            2 => PolicyKind::Single,
            _ => PolicyKind::Swath,
        };
        config.chunk_bytes = 1 << rng.u32(18..24);
        config.initial_chunk_bytes = 1 << rng.u32(16..23);
        config.large_chunk_bytes = 1 << rng.u32(20..26);
        config.lanes = match rng.u32(0..4) {
            0 => Lanes::Fixed(rng.u32(1..5)),
            _ => Lanes::Auto { max: rng.u32(1..17) },
        };
        if rng.u32(0..4) == 0 {
            config.max_sources = rng.usize(1..=count);
        }
        config.eager = rng.u32(0..5) > 0;
        if rng.u32(0..5) == 0 {
            config.window_bytes = Some(rng.u64(4 << 20..64 << 20));
            // What is streamed in order is not resumed.
            scenario.missing = None;
            scenario.consumer_bytes_per_s = rates * (0.2 + 2.0 * rng.f64());
            scenario.changes.retain(|(_, _, change)| !matches!(change, Change::Corrupt(_)));
        }
    });
    let mut scenario = script.build();
    scenario.limit_s = if doomed { LONG_S } else { limit_s(&scenario, well) };
    scenario
}

/// Generous: what the one good source alone would need at its worst rate, several times over, and
/// all the waiting that back-off may impose. Where the planner has to stay with whatever source
/// it began with there is no such limit, only the one on standstill.
fn limit_s(scenario: &Scenario, well: usize) -> f64 {
    let config = &scenario.config;
    if config.policy != PolicyKind::Swath || config.max_sources < scenario.sources.len() {
        return LONG_S;
    }
    let source = &scenario.sources[well];
    let link = &source.link;
    let rtt_s = 2.0 * link.delay_s + 0.002;
    // Without ranges the whole file comes, perhaps more than once.
    let bytes = if source.ranges {
        scenario.missing_bytes() as f64
    } else {
        3.0 * scenario.size_bytes as f64
    };
    let mut rate = link.rate_bytes_per_s;
    for (_, at, change) in &scenario.changes {
        if let (true, Change::Rate(other)) = (*at == well, change) {
            rate = rate.min(*other);
        }
    }
    if config.window_bytes.is_some() {
        rate = rate.min(scenario.consumer_bytes_per_s);
    }
    rate = rate.min(link.window_cap_bytes.map_or(f64::INFINITY, |cap| cap as f64 / rtt_s));
    if link.loss > 0.0 {
        rate = rate.min(1448.0 * 1.2 / link.loss.sqrt() / rtt_s);
    }
    let ranges = scenario.missing.as_ref().map_or(1, RangeSet::count) as f64;
    180.0 + 6.0 * (bytes / rate + ranges * (3.0 * rtt_s + source.think_s))
}

/// No limit worth the name.
const LONG_S: f64 = 100_000.0;

fn source(rng: &mut fastrand::Rng) -> SourceSpec {
    let rate_mbit = 10f64.powf(0.3 + 2.2 * rng.f64());
    let delay_ms = match rng.u32(0..12) {
        0 => 500.0 * rng.f64(),
        1 => 0.1,
        _ => 60.0 * rng.f64(),
    };
    let mut source = honest(rate_mbit, delay_ms);
    source.link.queue_s = 0.2 * rng.f64();
    let mut one_in = |n: u32| rng.u32(0..n) == 0;
    let (no_ranges, plain, breaks, closes, crowded) =
        (one_in(10), one_in(8), one_in(15), one_in(6), one_in(10));
    let (capped, lossy, slow, flaky, odd) =
        (one_in(6), one_in(6), one_in(8), one_in(8), one_in(10));
    source.ranges = !no_ranges;
    source.pipelines = !plain && !no_ranges;
    source.breaks_pipelining = breaks && source.pipelines;
    source.requests_max = closes.then(|| *rng.choice(&[1, 1, 2, 5, 100]).unwrap_or(&1));
    source.connections_max = crowded.then(|| rng.u32(1..5));
    source.link.window_cap_bytes = capped.then(|| 1 << rng.u32(16..21));
    source.link.loss = if lossy { 0.02 * rng.f64() } else { 0.0 };
    source.think_s = if slow { rng.f64() } else { 0.001 * rng.f64() };
    source.resets_per_s = if flaky { rng.f64() } else { 0.0 };
    if odd {
        source.mood = mood(rng);
    }
    source
}

fn mood(rng: &mut fastrand::Rng) -> Mood {
    match rng.u32(0..5) {
        0 => Mood::Refuses,
        1 => Mood::Unreachable,
        2 => Mood::Busy(Duration::from_millis(rng.u64(50..3000))),
        3 => Mood::Missing,
        _ => Mood::Closes,
    }
}

/// What happens to one source. A spared one is left well.
fn happenings(
    rng: &mut fastrand::Rng,
    at: usize,
    spared: bool,
    size_bytes: u64,
    changes: &mut Vec<(f64, usize, Change)>,
) {
    let mut when_s = 3.0 * rng.f64();
    for _ in 0..rng.u32(1..6) {
        match rng.u32(0..7) {
            0 | 1 => {
                changes.push((when_s, at, Change::Rate(125_000.0 * 10f64.powf(2.5 * rng.f64()))))
            }
            2 => {
                changes.push((when_s, at, Change::Silent(true)));
                if spared || rng.bool() {
                    when_s += 3.0 * rng.f64();
                    changes.push((when_s, at, Change::Silent(false)));
                }
            }
            3 => changes.push((when_s, at, Change::Reset)),
            4 => {
                let next = match mood(rng) {
                    // Never comes back from there.
                    Mood::Missing if spared => Mood::Refuses,
                    other => other,
                };
                changes.push((when_s, at, Change::Mood(next)));
                if rng.bool() {
                    changes.push((when_s, at, Change::Reset));
                }
                if spared || rng.bool() {
                    when_s += 2.0 * rng.f64();
                    changes.push((when_s, at, Change::Mood(Mood::Well)));
                }
            }
            5 if !spared && size_bytes > 0 => {
                let start = rng.u64(0..size_bytes);
                let end = (start + 1 + rng.u64(0..1 << 20)).min(size_bytes);
                changes.push((when_s, at, Change::Corrupt(Range::new(start, end))));
            }
            6 if !spared => changes.push((when_s, at, Change::Bad)),
            _ => {}
        }
        when_s += rng.f64();
    }
}

/// Parts of a file of this size, of every length.
fn scattered(rng: &mut fastrand::Rng, size_bytes: u64) -> RangeSet {
    let mut missing = RangeSet::new();
    let count = if rng.u32(0..4) == 0 { rng.u32(100..2000) } else { rng.u32(0..20) };
    for _ in 0..count {
        let start = rng.u64(0..=size_bytes);
        let longest = (size_bytes / u64::from(count) * 2).max(1);
        missing.insert(Range::new(start, (start + rng.u64(0..=longest)).min(size_bytes)));
    }
    missing
}
