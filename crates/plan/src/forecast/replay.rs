//! Transfers of the past, told to a forecaster once more in the order of time: each when it begins,
//! and again when it ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::forecaster::{Forecast, Forecaster};
use super::past::Planned;

/// A forecaster, and the transfers that have begun and will end.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    forecaster: Forecaster,
    /// When transfers end, in microseconds, and their numbers.
    ends: BinaryHeap<Reverse<(u64, u64)>>,
    /// How long each of them takes; `None` if it fails.
    took_s: BTreeMap<u64, Option<f64>>,
    begun: u64,
}

impl Replay {
    /// Tells of all transfers that end until then, in seconds since 1970.
    pub fn advance(&mut self, until_s: f64) {
        while self.ends.peek().is_some_and(|Reverse((end, _))| *end <= micros(until_s)) {
            let Some(Reverse((_, id))) = self.ends.pop() else { return };
            self.forecaster.end(id, self.took_s.remove(&id).flatten());
        }
    }

    /// Returns the number of the transfer that begins next: they are counted from 0.
    pub fn next(&self) -> u64 {
        self.begun
    }

    /// Tells that a transfer begins; returns what was forecast for it.
    pub fn begin(&mut self, planned: &Planned, outcome: Outcome) -> Forecast {
        let id = self.begun;
        self.begun += 1;
        let end = match outcome {
            Outcome::Running => None,
            Outcome::Failed { after_s } => Some((after_s, None)),
            Outcome::Took { seconds } => Some((seconds, Some(seconds))),
        };
        if let Some((after_s, took_s)) = end {
            self.ends.push(Reverse((micros(planned.at_s + after_s), id)));
            self.took_s.insert(id, took_s);
        }
        self.forecaster.begin(id, planned)
    }

    /// Returns the forecaster.
    pub fn forecaster(&mut self) -> &mut Forecaster {
        &mut self.forecaster
    }
}

/// What became of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It runs.
    Running,
    /// It failed, or teaches nothing.
    Failed {
        /// After so many seconds.
        after_s: f64,
    },
    /// It is complete.
    Took {
        /// Its duration.
        seconds: f64,
    },
}

/// Numbers things in the order of their first use.
#[derive(Clone, Debug)]
pub struct Numbers<K>(BTreeMap<K, u32>);

impl<K: Ord> Numbers<K> {
    /// Returns the number of a thing.
    pub fn of(&mut self, key: K) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(key).or_insert(next)
    }
}

impl<K> Default for Numbers<K> {
    fn default() -> Self {
        Numbers(BTreeMap::new())
    }
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
