//! Sources whose servers limit the rate of each answer (see `lane/pace.rs`).
//!
//! Each connection there brings its own rate, so a few of them pay. Each answer begins with a
//! burst. Short requests would collect many bursts, which the server's owner did not mean to give;
//! so requests are as long as what is left allows.

use crate::lane::{Lane, Pace};
use crate::ledger::Ledger;
use crate::source::Source;
use crate::source_table::SourceKey;

/// What is known of a source's limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourcePace {
    /// The limit of one answer if nothing else limits it.
    alone: Pace,
    /// How many lanes could have their full rate when more shared another limit.
    enough: Option<u32>,
}

impl SourcePace {
    /// Returns the limit of one answer if nothing else limits it.
    pub fn alone(&self) -> Pace {
        self.alone
    }

    /// Returns the rate of one lane, in bytes per second.
    pub fn lane_rate(&self) -> f64 {
        self.alone.rate_bytes_per_s()
    }
}

/// Records limits that lanes have found, and passes them on to other lanes of their source.
pub(crate) fn follow(ledger: &mut Ledger) {
    for key in ledger.sources.engaged_keys() {
        follow_source(ledger, key);
    }
}

fn follow_source(ledger: &mut Ledger, key: SourceKey) {
    let Some(source) = ledger.sources.get(key) else { return };
    let lanes = || ledger.lanes_of(source);
    let before = source.record.pace;
    // No lane shows the limit any more.
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
        // Earlier rates were those of bursts.
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

/// Returns the number of lanes for such a source: one more at a time, after the last one was
/// answered. So a server that allows fewer has to refuse only one.
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

/// Most connections to a server that limits each of them, unless the user asks for more. Its owner
/// relies on a small number.
const PACED_LANES_MAX: u32 = 4;
/// Part of their full rates that several lanes must bring, or something else limits them.
const PAYS: f64 = 0.5;
/// With fewer periods to go, another lane would only collect its first burst.
const WORTH_PERIODS: f64 = 4.0;
