//! The transfers of a log happen once more, one after the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use swath_formats::transfer_log::LoggedTransfer;
use swath_plan::forecast::{Cost, Forecast, Forecaster, Planned};

/// What was thought of a transfer before it began, and what it took.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The forecast.
    pub forecast: Forecast,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// Forecasts each transfer at its begin, from those that had ended by then. The transfers are in the
/// order of their begins, and so are the outcomes.
pub fn replay(transfers: &[LoggedTransfer]) -> Vec<Outcome> {
    let (mut pairs, mut kinds) = (BTreeMap::new(), BTreeMap::new());
    let mut forecaster = Forecaster::default();
    // Ends to come, by time in whole microseconds.
    let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut outcomes = Vec::with_capacity(transfers.len());
    for (at, transfer) in transfers.iter().enumerate() {
        while ends.peek().is_some_and(|Reverse((end, _))| *end <= micros(transfer.start_s)) {
            if let Some(Reverse((_, ended))) = ends.pop() {
                forecaster.end(ended as u64, Some(transfers[ended].took_s));
            }
        }
        if forecaster.is_due() {
            forecaster.learn();
        }
        let planned = Planned {
            at_s: transfer.start_s,
            bytes: transfer.bytes as f64,
            files: transfer.files as f64,
            pair: number(&mut pairs, (&transfer.from, &transfer.to)),
            kind: number(&mut kinds, &transfer.kind),
            believed: Cost::default(),
            traits: transfer.facts,
        };
        let forecast = forecaster.begin(at as u64, &planned);
        outcomes.push(Outcome { forecast, took_s: transfer.took_s });
        ends.push(Reverse((micros(transfer.start_s + transfer.took_s), at)));
    }
    outcomes
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// Numbers names in the order of their first use.
fn number<K: Ord>(numbers: &mut BTreeMap<K, u32>, key: K) -> u32 {
    let next = numbers.len() as u32;
    *numbers.entry(key).or_insert(next)
}
