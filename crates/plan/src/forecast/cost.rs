//! The cost of a transfer, as its parts: a start-up, a time for each byte and a time for each file.
//!
//! Fitted to the durations of transfers between the same places, by least squares of the relative
//! error; newer transfers have more weight. A prior decides what these transfers leave open.

use std::collections::VecDeque;

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

/// What transfers between the same places took.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    /// Bytes, files and seconds of the newest ones, the newest last.
    outcomes: VecDeque<(f64, f64, f64)>,
    fitted: Option<Cost>,
}

impl Costs {
    /// Adds the duration of a transfer; `prior` is the cost that is assumed without any.
    pub(super) fn learn(&mut self, bytes: f64, files: f64, took_s: f64, prior: Cost) {
        if self.outcomes.len() == OUTCOMES {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back((bytes, files, took_s));
        self.fitted = self.fit(prior);
    }

    /// Returns what transfers cost; `None` before the first one.
    pub(super) fn get(&self) -> Option<Cost> {
        self.fitted
    }

    fn fit(&self, prior: Cost) -> Option<Cost> {
        // Each unknown is measured in units of its prior, so they share one ridge parameter.
        let unit = [prior.start_s, prior.byte_s, prior.file_s].map(|x| x.max(UNIT_MIN));
        let anchor = [prior.start_s, prior.byte_s, prior.file_s];
        let anchor = std::array::from_fn(|k| anchor[k] / unit[k]);
        let aged = self.outcomes.iter().rev().enumerate();
        let rows: Vec<([f64; 3], f64, f64)> = aged
            .map(|(age, &(bytes, files, took_s))| {
                let row = [unit[0], bytes * unit[1], files * unit[2]].map(|part| part / took_s);
                (row, 1.0, KEPT.powi(age as i32))
            })
            .collect();
        let fit = |rows| solve_nonnegative(rows, &[RIDGE; 3], &anchor);
        let mut found = fit(rows.clone())?;
        // Transfers that were disturbed count less: Huber's weights.
        for _ in 0..ROUNDS {
            let weighted = rows.iter().map(|&(row, target, weight)| {
                let cost: f64 = row.iter().zip(&found).map(|(a, b)| a * b).sum();
                (row, target, weight * TOLERATED / (cost - target).abs().max(TOLERATED))
            });
            found = fit(weighted.collect())?;
        }
        let [start_s, byte_s, file_s] = std::array::from_fn(|k| found[k] * unit[k]);
        Some(Cost { start_s, byte_s, file_s })
    }
}

/// Outcomes that are kept.
const OUTCOMES: usize = 64;

/// How much of its weight an outcome keeps with each newer one.
const KEPT: f64 = 0.9;

/// The ridge parameter: the weight of the prior, where a transfer has a weight of 1.
const RIDGE: f64 = 1e-4;

/// Relative errors above this count less.
const TOLERATED: f64 = 0.1;

/// Rounds of weighting; two more change nothing that can be seen.
const ROUNDS: usize = 3;

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
            costs.learn(bytes, files, took_s, Cost::default());
        }
        costs.get().unwrap()
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
        costs.learn(1e10, 1.0, 10.0, Cost::default());
        let again = costs.get().unwrap().seconds(1e10, 1.0);
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
            costs.learn(1e10, 1.0, took_s, Cost::default());
        }
        assert!(costs.get().unwrap().seconds(1e10, 1.0) < 60.0);
    }
}
