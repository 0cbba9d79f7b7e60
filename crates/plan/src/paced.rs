//! Sources whose servers limit the rate of each answer (see `lane/pace.rs`).
//!
//! There each connection brings its own rate, so a few of them are worth having. Short requests would
//! collect the burst that each answer begins with, which the server's owner did not mean to give: they
//! are as long as what is left allows.

use crate::lane::{Lane, Pace};
use crate::ledger::Ledger;
use crate::source::Source;
use crate::source_table::SourceKey;

/// What is known of the limit of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourcePace {
    /// One answer's limit, while nothing else limits it.
    alone: Pace,
    /// So many lanes had their full rate together when there were more: something else limits those.
    enough: Option<u32>,
}

impl SourcePace {
    /// One answer's limit, while nothing else limits it.
    pub fn alone(&self) -> Pace {
        self.alone
    }

    /// Returns what one lane brings, in bytes per second.
    pub fn lane_rate(&self) -> f64 {
        self.alone.rate_bytes_per_s()
    }
}

/// Takes note of lanes that have found how their answers are limited, and pass it on to the others of
/// their source.
pub(crate) fn follow(ledger: &mut Ledger) {
    for key in ledger.sources.engaged_keys() {
        follow_source(ledger, key);
    }
}

fn follow_source(ledger: &mut Ledger, key: SourceKey) {
    let Some(source) = ledger.sources.get(key) else { return };
    let lanes = || ledger.lanes_of(source);
    let before = source.record.pace;
    // Nobody keeps to it any more.
    let is_over = before.is_some()
        && lanes().any(Lane::was_answered)
        && lanes().all(|it| it.speed.pace.found().is_none());
    let own: Vec<Pace> = lanes().filter_map(|lane| lane.speed.pace.own()).collect();
    let answered = lanes().filter(|lane| lane.was_answered()).count();
    let Some(source) = ledger.sources.get_mut(key) else { return };
    if is_over {
        source.record.pace = None;
        source.record.best_rate = source.record.rate;
        return;
    }
    let Some(&first) = own.first() else { return };
    let pace = before.unwrap_or(SourcePace { alone: first, enough: None });
    if before.is_none() {
        // What was measured before were bursts.
        source.record.best_rate = pace.lane_rate();
    }
    let count = own.len() as f64;
    let sum: f64 = own.iter().map(|pace| pace.rate_bytes_per_s()).sum();
    let adds_nothing = sum < pace.lane_rate() * (1.0 + PAYS * (count - 1.0));
    source.record.pace = Some(SourcePace {
        enough: match own.len() > 1 && own.len() == answered && adds_nothing {
            true => Some((sum / pace.lane_rate()).round().max(1.0) as u32),
            false => pace.enough,
        },
        ..pace
    });
    for id in source.lanes.clone() {
        if let Some(lane) = ledger.lanes.get_mut(id)
            && lane.speed.pace.found().is_none()
            && !lane.was_answered()
        {
            lane.speed.assume_pace(pace.alone);
        }
    }
}

/// How many lanes a source of this kind gets: one more at a time, each when the one before it has
/// been answered, so that a server that allows fewer has to refuse a single one.
pub(crate) fn goal(ledger: &Ledger, source: &Source, time_left_s: Option<f64>) -> Option<u32> {
    let pace = source.record.pace?;
    let answers = |it: &&Lane| it.is_up() && !it.duty.parked && it.was_answered();
    let answered = ledger.lanes_of(source).filter(answers).count();
    let wanted = pace.enough.unwrap_or(PACED_LANES_MAX).min(PACED_LANES_MAX);
    let most = wanted.min(source.usage.max_lanes).min(source.tuner.allowed(ledger.now));
    let is_short = time_left_s.is_none_or(|left| left < WORTH_PERIODS * pace.alone.period_s);
    let next = if is_short { source.tuner.goal } else { answered as u32 + 1 };
    Some(next.max(1).min(most.max(1)))
}

/// Connections to a server that limits each of them, unless the user asks for more: their number is
/// what its owner counts on.
const PACED_LANES_MAX: u32 = 4;
/// Lanes must bring at least this part of what the same number brings where nothing else limits them.
const PAYS: f64 = 0.5;
/// With less than so many periods to go a further lane would only collect its first burst.
const WORTH_PERIODS: f64 = 4.0;
