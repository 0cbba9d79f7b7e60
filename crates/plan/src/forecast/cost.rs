//! The cost of a transfer, as its parts: a start-up, a time for each byte and a time for each file.
//!
//! Fitted to the durations of transfers between the same places, by least squares of the relative
//! error; newer transfers have more weight. A prior decides what these transfers leave open.

use std::collections::VecDeque;

use super::beside::Beside;
use super::least_squares::solve_nonnegative;

/// What a transfer costs. Nothing is negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Seconds, whatever is transferred.
    pub start_s: f64,
    /// Seconds for each byte: the inverse of the rate.
    pub byte_s: f64,
    /// Seconds for each file.
    pub file_s: f64,
}

impl Cost {
    /// Returns how long a transfer takes, in seconds.
    pub fn seconds(&self, bytes: f64, files: f64) -> f64 {
        self.start_s + bytes * self.byte_s + files * self.file_s
    }
}

impl Default for Cost {
    /// Where nothing is known: 100 Mbit/s, half a second to begin, 0.1 ms for a file.
    fn default() -> Self {
        Cost { start_s: 0.5, byte_s: 8e-8, file_s: 1e-4 }
    }
}

/// What a transfer costs while others run beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shared {
    pub(super) cost: Cost,
    sharing: Sharing,
}

/// Which bytes of others cost as much as a transfer's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Those that the same places send: their links are what limits it.
    From,
    /// Those that the same place receives, too.
    Both,
    /// None: something else limits it.
    None,
}

impl Sharing {
    fn bytes(self, bytes: f64, beside: &Beside) -> f64 {
        match self {
            Sharing::From => bytes + beside.from_bytes,
            // Those of the same pair are among both.
            Sharing::Both => bytes + beside.from_bytes.max(beside.to_bytes),
            Sharing::None => bytes,
        }
    }
}

impl Shared {
    /// Returns how long a transfer takes beside others, in seconds.
    pub(super) fn seconds(&self, bytes: f64, files: f64, beside: &Beside) -> f64 {
        self.cost.seconds(self.sharing.bytes(bytes, beside), files)
    }

    /// Returns how long bytes alone take beside others, in seconds.
    pub(super) fn bytes_seconds(&self, bytes: f64, beside: &Beside) -> f64 {
        self.sharing.bytes(bytes, beside) * self.cost.byte_s
    }
}

impl From<Cost> for Shared {
    fn from(cost: Cost) -> Self {
        Shared { cost, sharing: Sharing::From }
    }
}

/// What transfers between the same places took.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    /// The newest ones, the newest last.
    outcomes: VecDeque<Outcome>,
    fitted: Option<Shared>,
}

/// What a transfer took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) bytes: f64,
    pub(super) files: f64,
    pub(super) beside: Beside,
    pub(super) took_s: f64,
}

impl Outcome {
    /// Returns how far it is off this cost, as a natural logarithm.
    pub(super) fn error(&self, shared: &Shared) -> f64 {
        let cost_s = shared.seconds(self.bytes, self.files, &self.beside);
        (self.took_s / cost_s.max(SECONDS_MIN)).ln()
    }
}

impl Costs {
    /// Adds the duration of a transfer; `prior` is the cost that is assumed without any.
    pub(super) fn learn(&mut self, outcome: Outcome, prior: Cost) {
        if self.outcomes.len() == OUTCOMES {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(outcome);
        self.fitted = self.fit(prior);
    }

    /// Returns what transfers cost; `None` before the first one.
    pub(super) fn get(&self) -> Option<Shared> {
        self.fitted
    }

    fn fit(&self, prior: Cost) -> Option<Shared> {
        let (mut best, mut least) = (None, f64::INFINITY);
        for sharing in [Sharing::From, Sharing::Both, Sharing::None] {
            let Some((cost, errors)) = self.fit_to(prior, sharing) else { continue };
            if errors < least {
                (best, least) = (Some(Shared { cost, sharing }), errors * CLEARLY_LESS);
            }
        }
        best
    }

    /// Returns the cost for this way of sharing, and the mean error that remains.
    fn fit_to(&self, prior: Cost, sharing: Sharing) -> Option<(Cost, f64)> {
        // Each unknown is measured in units of its prior, so they share one ridge parameter.
        let unit = [prior.start_s, prior.byte_s, prior.file_s].map(|x| x.max(UNIT_MIN));
        let anchor = [prior.start_s, prior.byte_s, prior.file_s];
        let anchor = std::array::from_fn(|k| anchor[k] / unit[k]);
        let aged = self.outcomes.iter().rev().enumerate();
        let rows: Vec<([f64; 3], f64, f64)> = aged
            .map(|(age, outcome)| {
                let Outcome { bytes, files, beside, took_s } = *outcome;
                let parts = [1.0, sharing.bytes(bytes, &beside), files];
                let row = std::array::from_fn(|k| parts[k] * unit[k] / took_s);
                (row, 1.0, KEPT.powi(age as i32))
            })
            .collect();
        let fit = |rows| solve_nonnegative(rows, &[RIDGE; 3], &anchor);
        let mut found = fit(rows.clone())?;
        let off = |row: &[f64; 3], target: f64, found: &[f64; 3]| {
            (row.iter().zip(found).map(|(a, b)| a * b).sum::<f64>() - target).abs()
        };
        // Transfers that were disturbed count less: Huber's weights.
        for _ in 0..ROUNDS {
            let weighted = rows.iter().map(|&(row, target, weight)| {
                (row, target, weight * TOLERATED / off(&row, target, &found).max(TOLERATED))
            });
            found = fit(weighted.collect())?;
        }
        let errors = rows.iter().map(|(row, target, weight)| weight * off(row, *target, &found));
        let [start_s, byte_s, file_s] = std::array::from_fn(|k| found[k] * unit[k]);
        Some((Cost { start_s, byte_s, file_s }, errors.sum()))
    }
}

/// Another way of sharing is used only if it leaves less than this part of the error.
const CLEARLY_LESS: f64 = 0.9;

/// Outcomes that are kept.
const OUTCOMES: usize = 64;

/// How much of its weight an outcome keeps with each newer one.
const KEPT: f64 = 0.95;

/// The ridge parameter: the weight of the prior, where a transfer has a weight of 1.
const RIDGE: f64 = 1e-4;

/// Relative errors above this count less.
const TOLERATED: f64 = 0.1;

/// Rounds of weighting; two more change nothing that can be seen.
const ROUNDS: usize = 3;

/// Nothing is thought to cost less.
pub(super) const SECONDS_MIN: f64 = 1e-3;

/// The smallest unit, so that nothing is divided by zero.
const UNIT_MIN: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    const TRUE: Cost = Cost { start_s: 2.0, byte_s: 1e-8, file_s: 1e-3 };

    fn learned(count: usize, disturb: impl Fn(usize, f64) -> f64) -> Cost {
        let mut costs = Costs::default();
        let mut random = fastrand::Rng::with_seed(1);
        for i in 0..count {
            let [bytes, files] = [(6.0, 10.0), (0.0, 4.0)]
                .map(|(low, high)| 10_f64.powf(low + (high - low) * random.f64()).floor());
            let took_s = disturb(i, TRUE.seconds(bytes, files));
            let beside = Beside::default();
            costs.learn(Outcome { bytes, files, beside, took_s }, Cost::default());
        }
        costs.get().unwrap().cost
    }

    #[test]
    fn parts_are_told_apart() {
        let cost = learned(30, |_, took_s| took_s);
        for (bytes, files) in [(1e9, 1.0), (1e6, 5000.0), (1e10, 100.0)] {
            let ratio = cost.seconds(bytes, files) / TRUE.seconds(bytes, files);
            assert!((0.95..1.05).contains(&ratio), "{ratio}: {cost:?}");
        }
    }

    #[test]
    fn one_transfer_corrects_the_rate() {
        let mut costs = Costs::default();
        let beside = Beside::default();
        let outcome = Outcome { bytes: 1e10, files: 1.0, beside, took_s: 10.0 };
        costs.learn(outcome, Cost::default());
        let again = costs.get().unwrap().cost.seconds(1e10, 1.0);
        assert!((9.0..11.5).contains(&again), "{again}");
    }

    #[test]
    fn a_disturbed_transfer_hardly_counts() {
        let cost = learned(30, |i, took_s| if i % 10 == 5 { took_s * 20.0 } else { took_s });
        let ratio = cost.seconds(1e9, 100.0) / TRUE.seconds(1e9, 100.0);
        assert!((0.9..1.2).contains(&ratio), "{ratio}: {cost:?}");
    }

    #[test]
    fn a_link_that_got_faster_is_followed() {
        let mut costs = Costs::default();
        for i in 0..40 {
            let took_s = if i < 34 { 100.0 } else { 10.0 };
            let beside = Beside::default();
            costs.learn(Outcome { bytes: 1e10, files: 1.0, beside, took_s }, Cost::default());
        }
        assert!(costs.get().unwrap().cost.seconds(1e10, 1.0) < 60.0);
    }
}
