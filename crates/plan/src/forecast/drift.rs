//! How far off costs are at present, by how far off they were lately: the traffic of others changes
//! within minutes, hours and days.
//!
//! Outcomes are kept for each place that sends, whoever received. How far they are from what they would
//! cost as is known now, as means over some spans of time and around the same time of day, are the
//! features of a linear regression whose weights are learned online.

use std::collections::{BTreeMap, VecDeque};

use super::cost::{Costs, Outcome};
use super::least_squares::solve_normal;
use super::past::Planned;

/// Features of an error to come.
pub(super) type Spans = [f64; SPANS];

/// Errors as natural logarithms, of all places.
#[derive(Clone, Debug)]
pub(super) struct Drift {
    places: BTreeMap<u32, VecDeque<Noted>>,
    weights: Spans,
    /// The normal equations: matrix and vector.
    matrix: [Spans; SPANS],
    vector: Spans,
}

#[derive(Clone, Copy, Debug)]
struct Noted {
    at_s: f64,
    /// Its pair and kind.
    group: (u32, u32),
    outcome: Outcome,
}

impl Default for Drift {
    /// Before anything is learned, half of the mean error of the last hour is expected again.
    fn default() -> Self {
        let (mut matrix, mut vector) = ([[0.0; SPANS]; SPANS], [0.0; SPANS]);
        for (k, row) in matrix.iter_mut().enumerate() {
            row[k] = RIDGE;
        }
        vector[1] = RIDGE / 2.0;
        Drift { places: BTreeMap::new(), weights: vector.map(|part| part / RIDGE), matrix, vector }
    }
}

impl Drift {
    /// Returns the features of a transfer that begins now: means of errors, drawn to zero where few are
    /// known.
    pub(super) fn spans(&self, planned: &Planned, costs: &BTreeMap<(u32, u32), Costs>) -> Spans {
        let mut spans = [0.0; SPANS];
        let known: Vec<_> =
            planned.from.iter().filter_map(|place| self.places.get(place)).collect();
        for noted in &known {
            for (span, mean) in spans.iter_mut().zip(means(noted, planned.at_s, costs)) {
                *span += mean / known.len() as f64;
            }
        }
        spans
    }

    /// Returns the error to expect.
    pub(super) fn expected(&self, spans: &Spans) -> f64 {
        dot(&self.weights, spans).clamp(-CLIP, CLIP)
    }

    /// A transfer was off by `missed` of what it was thought to cost, at these features.
    pub(super) fn learn(
        &mut self,
        planned: &Planned,
        outcome: Outcome,
        spans: &Spans,
        missed: f64,
    ) {
        let group = (planned.pair, planned.kind);
        for &place in &planned.from {
            if self.places.len() == PLACES_MAX && !self.places.contains_key(&place) {
                self.places.pop_first();
            }
            let noted = self.places.entry(place).or_default();
            if noted.len() == NOTED_MAX {
                noted.pop_front();
            }
            noted.push_back(Noted { at_s: planned.at_s, group, outcome });
        }
        let missed = missed.clamp(-CLIP, CLIP);
        for k in 0..SPANS {
            self.vector[k] += spans[k] * missed;
            for j in 0..SPANS {
                self.matrix[k][j] += spans[k] * spans[j];
            }
        }
        if let Some(weights) = solve_normal(&self.matrix, &self.vector) {
            self.weights = weights;
        }
    }
}

fn means(noted: &VecDeque<Noted>, now_s: f64, costs: &BTreeMap<(u32, u32), Costs>) -> Spans {
    let mut sums = [(0.0, 0.0); SPANS];
    for one in noted {
        let Some(shared) = costs.get(&one.group).and_then(Costs::get) else { continue };
        let error = one.outcome.error(&shared).clamp(-CLIP, CLIP);
        let age_s = (now_s - one.at_s).max(0.0);
        let apart_s = (age_s + DAY_S / 2.0).rem_euclid(DAY_S) - DAY_S / 2.0;
        let same_hour = (-0.5 * (apart_s / HOUR_SPREAD_S).powi(2)).exp();
        let parts = [
            (-age_s / 600.0).exp(),
            (-age_s / 3600.0).exp(),
            (-age_s / 21_600.0).exp(),
            same_hour,
            1.0,
        ];
        for ((sum, weights), part) in sums.iter_mut().zip(parts) {
            *sum += part * error;
            *weights += part;
        }
    }
    sums.map(|(sum, weights)| sum / (weights + DRAWN))
}

fn dot(a: &Spans, b: &Spans) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Number of features.
const SPANS: usize = 5;

/// Errors that are kept of each place.
const NOTED_MAX: usize = 200;

/// Most places.
const PLACES_MAX: usize = 4096;

/// Larger errors count as this one.
const CLIP: f64 = 1.0;

/// The ridge parameter: how much the first weights count.
const RIDGE: f64 = 0.5;

/// Errors of zero that are mixed into each mean.
const DRAWN: f64 = 0.5;

const DAY_S: f64 = 86_400.0;

/// How far apart times of day may be to be alike.
const HOUR_SPREAD_S: f64 = 5400.0;

#[cfg(test)]
mod tests {
    use super::super::beside::Beside;
    use super::*;
    use crate::forecast::{Cost, TRAITS};

    fn at(at_s: f64) -> Planned {
        let (from, prior) = (vec![1], None);
        let traits = [0.0; TRAITS];
        Planned { at_s, bytes: 1.0, files: 1.0, pair: 0, kind: 0, from, to: None, prior, traits }
    }

    /// The mean error that remains in the second half of a month, with a transfer each half hour.
    fn remains(error: impl Fn(f64) -> f64) -> f64 {
        let mut drift = Drift::default();
        let mut sum = 0.0;
        let outcome =
            |took_s| Outcome { bytes: 1e9, files: 1.0, beside: Beside::default(), took_s };
        let mut costs = Costs::default();
        (0..64).for_each(|_| costs.learn(outcome(1.0), Cost::default()));
        let costs = BTreeMap::from([((0, 0), costs)]);
        for i in 0..1440 {
            let planned = at(f64::from(i) * 1800.0);
            let (spans, error) = (drift.spans(&planned, &costs), error(planned.at_s));
            if i >= 720 {
                sum += (drift.expected(&spans) - error).abs() / 720.0;
            }
            drift.learn(&planned, outcome(error.exp()), &spans, error);
        }
        sum
    }

    #[test]
    fn what_changes_slowly_and_what_follows_the_day_is_learned() {
        let slow = |at_s: f64| 0.5 * (at_s / 20_000.0).sin();
        assert!(remains(slow) < 0.1, "{}", remains(slow));
        let daily = |at_s: f64| if (at_s / 3600.0).rem_euclid(24.0) < 8.0 { 0.6 } else { -0.3 };
        assert!(remains(daily) < 0.15, "{}", remains(daily));
        assert!(remains(|_| 0.0) < 1e-3);
        assert!(remains(|_| 700.0).is_finite());
    }
}
