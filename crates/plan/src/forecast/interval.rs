//! Intervals that hold what they promise, whatever the model is worth (conformal prediction).
//!
//! For each forecast that has come true it is remembered how far off it was, in units of the spread
//! that its model expected. The next interval reaches as far as four fifths of those did. Should
//! more or fewer miss than promised, the promise is made stricter or laxer (Gibbs and Candès,
//! "Adaptive conformal inference under distribution shift", 2021), so it also holds while things
//! change.

use std::collections::VecDeque;

use super::forest::quantile_of;

/// A forecast in the making: natural logarithms of seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    pub(super) likely: f64,
    /// How much less it may well be; positive.
    pub(super) down: f64,
    /// How much more it may well be; positive.
    pub(super) up: f64,
}

impl Guess {
    /// How far off it was, in units of what was expected.
    fn miss(&self, took: f64) -> f64 {
        let off = took - self.likely;
        off / if off < 0.0 { self.down } else { self.up }
    }
}

/// How far off forecasts were.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    misses: VecDeque<f64>,
    /// The part that is allowed to fall out on each side.
    low_part: f64,
    high_part: f64,
}

impl Default for Interval {
    /// Before anything has come true, as many are off by once or twice the spread as usual.
    fn default() -> Self {
        let misses = (1..SEEDS).map(|k| {
            let part = k as f64 / SEEDS as f64;
            let tail = 2.0 * part.min(1.0 - part);
            tail.ln().abs() * (part - 0.5).signum()
        });
        Interval { misses: misses.collect(), low_part: OUT / 2.0, high_part: OUT / 2.0 }
    }
}

impl Interval {
    /// Returns the lower and the upper end.
    pub(super) fn around(&self, guess: &Guess) -> (f64, f64) {
        let mut misses: Vec<f64> = self.misses.iter().copied().collect();
        let mut at = |part: f64| quantile_of(&mut misses, part).unwrap_or(0.0);
        let (low, high) = (at(self.low_part).min(0.0), at(1.0 - self.high_part).max(0.0));
        (guess.likely + low * guess.down, guess.likely + high * guess.up)
    }

    /// A forecast came true: what was guessed and promised, and what it took.
    pub(super) fn learn(&mut self, guess: &Guess, (low, high): (f64, f64), took: f64) {
        if self.misses.len() == MISSES {
            self.misses.pop_front();
        }
        self.misses.push_back(guess.miss(took));
        let step = |part: f64, is_out: bool| {
            let out = if is_out { 1.0 } else { 0.0 };
            (part + STEP * (OUT / 2.0 - out)).clamp(PART_MIN, 0.5)
        };
        self.low_part = step(self.low_part, took < low);
        self.high_part = step(self.high_part, took > high);
    }
}

/// The part that falls out of the intervals.
const OUT: f64 = 0.2;

/// Forecasts that are remembered.
const MISSES: usize = 500;

/// Assumed ones at the beginning.
const SEEDS: usize = 20;

/// How fast the promise is corrected.
const STEP: f64 = 0.005;

/// No promise is stricter.
const PART_MIN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of 4,000 outcomes that intervals cover, with a spread that is wrong by `wrong`.
    fn covered(wrong: f64, spread: impl Fn(usize) -> f64) -> f64 {
        let mut interval = Interval::default();
        let mut random = fastrand::Rng::with_seed(1);
        let mut inside = 0;
        for i in 0..4000 {
            let guess = Guess { likely: 3.0, down: wrong, up: wrong };
            let took = 3.0 + spread(i) * (random.f64() + random.f64() - 1.0 + 0.3);
            let (low, high) = interval.around(&guess);
            inside += usize::from((low..=high).contains(&took));
            interval.learn(&guess, (low, high), took);
        }
        inside as f64 / 4000.0
    }

    #[test]
    fn eighty_percent_are_eighty_percent() {
        for wrong in [0.1, 1.0, 10.0] {
            let covered = covered(wrong, |_| 1.0);
            assert!((0.78..0.82).contains(&covered), "{wrong}: {covered}");
        }
    }

    #[test]
    fn a_change_is_followed() {
        let covered = covered(1.0, |i| if i < 2000 { 0.2 } else { 2.0 });
        assert!((0.77..0.83).contains(&covered), "{covered}");
    }

    #[test]
    fn the_first_interval_is_wide() {
        let guess = Guess { likely: 0.0, down: 0.3, up: 0.3 };
        let (low, high) = Interval::default().around(&guess);
        assert!(low < -0.3 && high > 0.3, "{low} {high}");
    }
}
