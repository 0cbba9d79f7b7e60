//! How far off costs are at present, by how far off they were lately: the traffic of others changes
//! within minutes, hours and days.
//!
//! Errors are kept for each place that sends, whoever received. Their means over some spans of time, and
//! around the same time of day, are the features of a linear regression that is learned online
//! (recursive least squares).

use std::collections::{BTreeMap, VecDeque};

use super::past::Planned;

/// Features of an error to come.
pub(super) type Spans = [f64; SPANS];

/// Errors as natural logarithms, of all places.
#[derive(Clone, Debug)]
pub(super) struct Drift {
    places: BTreeMap<u32, VecDeque<Noted>>,
    weights: Spans,
    /// The inverse of the normal matrix.
    inverse: [Spans; SPANS],
}

#[derive(Clone, Copy, Debug)]
struct Noted {
    at_s: f64,
    error: f64,
}

impl Default for Drift {
    /// Before anything is learned, half of the mean error of the last hour is expected again.
    fn default() -> Self {
        let mut inverse = [[0.0; SPANS]; SPANS];
        for (k, row) in inverse.iter_mut().enumerate() {
            row[k] = FREEDOM;
        }
        let mut weights = [0.0; SPANS];
        weights[1] = 0.5;
        Drift { places: BTreeMap::new(), weights, inverse }
    }
}

impl Drift {
    /// Returns the features of a transfer that begins now: means of errors, drawn to zero where few are
    /// known.
    pub(super) fn spans(&self, planned: &Planned) -> Spans {
        let mut spans = [0.0; SPANS];
        let known: Vec<_> =
            planned.from.iter().filter_map(|place| self.places.get(place)).collect();
        for noted in &known {
            for (span, mean) in spans.iter_mut().zip(means(noted, planned.at_s)) {
                *span += mean / known.len() as f64;
            }
        }
        spans
    }

    /// Returns the error to expect.
    pub(super) fn expected(&self, spans: &Spans) -> f64 {
        dot(&self.weights, spans)
    }

    /// A transfer was off by `error` of what it cost, and by `missed` of what it was thought to cost,
    /// at these features.
    pub(super) fn learn(&mut self, planned: &Planned, spans: &Spans, error: f64, missed: f64) {
        for &place in &planned.from {
            if self.places.len() == PLACES_MAX && !self.places.contains_key(&place) {
                self.places.pop_first();
            }
            let noted = self.places.entry(place).or_default();
            if noted.len() == NOTED_MAX {
                noted.pop_front();
            }
            noted.push_back(Noted { at_s: planned.at_s, error: error.clamp(-CLIP, CLIP) });
        }
        let gains: Spans = std::array::from_fn(|k| dot(&self.inverse[k], spans));
        let scale = KEPT + dot(&gains, spans);
        let off = missed.clamp(-CLIP, CLIP) - self.expected(spans);
        for k in 0..SPANS {
            self.weights[k] += gains[k] / scale * off;
            for j in 0..SPANS {
                let next = (self.inverse[k][j] - gains[k] * gains[j] / scale) / KEPT;
                self.inverse[k][j] = next.clamp(-FREEDOM, FREEDOM);
            }
        }
    }
}

fn means(noted: &VecDeque<Noted>, now_s: f64) -> Spans {
    let mut sums = [(0.0, 0.0); SPANS];
    for one in noted {
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
            *sum += part * one.error;
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

/// How much of its weight an outcome keeps with each newer one.
const KEPT: f64 = 0.998;

/// How far weights may move at first.
const FREEDOM: f64 = 1.0;

/// Errors of zero that are mixed into each mean.
const DRAWN: f64 = 0.5;

const DAY_S: f64 = 86_400.0;

/// How far apart times of day may be to be alike.
const HOUR_SPREAD_S: f64 = 5400.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::{Cost, TRAITS};

    fn at(at_s: f64) -> Planned {
        let (from, prior) = (vec![1], Cost::default());
        let traits = [0.0; TRAITS];
        Planned { at_s, bytes: 1.0, files: 1.0, pair: 0, kind: 0, from, to: None, prior, traits }
    }

    /// The mean error that remains in the second half of a month, with a transfer each half hour.
    fn remains(error: impl Fn(f64) -> f64) -> f64 {
        let mut drift = Drift::default();
        let mut sum = 0.0;
        for i in 0..1440 {
            let planned = at(f64::from(i) * 1800.0);
            let (spans, error) = (drift.spans(&planned), error(planned.at_s));
            if i >= 720 {
                sum += (drift.expected(&spans) - error).abs() / 720.0;
            }
            drift.learn(&planned, &spans, error, error);
        }
        sum
    }

    #[test]
    fn what_changes_slowly_and_what_follows_the_day_is_learned() {
        let slow = |at_s: f64| 0.5 * (at_s / 20_000.0).sin();
        assert!(remains(slow) < 0.1, "{}", remains(slow));
        let daily = |at_s: f64| if (at_s / 3600.0).rem_euclid(24.0) < 8.0 { 0.6 } else { -0.3 };
        assert!(remains(daily) < 0.15, "{}", remains(daily));
        assert!(remains(|_| 0.0) < 1e-9);
        assert!(remains(|_| f64::MAX).is_finite());
    }
}
