//! The forecast of a list of files.
//!
//! It divides the remaining work by the mean of two rates: that of the last seconds and that of the
//! whole time, which also give the bounds.

use std::collections::VecDeque;

use swath_transfer::observe::Eta;

/// The window of the recent rate.
const WINDOW_S: f64 = 8.0;
/// No forecast before this much time.
const EARLIEST_S: f64 = 1.5;
/// Most points in the window.
const POINTS_MAX: usize = 100;

/// Rates of a growing amount of work.
#[derive(Clone, Debug, Default)]
pub(super) struct Forecast {
    points: VecDeque<(f64, f64)>,
}

impl Forecast {
    /// Adds that `done` units of work were done at `at_s`.
    pub(super) fn add(&mut self, at_s: f64, done: f64) {
        if self.points.is_empty() && at_s > 0.0 {
            self.points.push_back((0.0, 0.0));
        }
        let step_s = WINDOW_S / POINTS_MAX as f64;
        if self.points.back().is_some_and(|(t, _)| at_s - t < step_s) && self.points.len() > 1 {
            self.points.pop_back();
        }
        self.points.push_back((at_s, done));
        while self.points.len() > 2 && self.points.front().is_some_and(|(t, _)| at_s - t > WINDOW_S)
        {
            self.points.pop_front();
        }
    }

    /// Returns the units per second in the last `seconds`, or since the point before if that is longer.
    pub(super) fn rate_over(&self, seconds: f64) -> f64 {
        let Some(&(now, done)) = self.points.back() else { return 0.0 };
        let within = self.points.iter().find(|(t, _)| *t < now && now - t <= seconds);
        let before = self.points.len().checked_sub(2).map(|at| &self.points[at]);
        let from = within.or(before);
        match from {
            Some(&(t, before)) if now > t => (done - before).max(0.0) / (now - t),
            _ => 0.0,
        }
    }

    /// Returns the time for `left` units, if it can be forecast.
    pub(super) fn eta(&self, left: f64) -> Option<Eta> {
        let &(now, done) = self.points.back()?;
        let (recent, whole) = (self.rate_over(WINDOW_S), done / now.max(1e-9));
        if now < EARLIEST_S || recent <= 0.0 || whole <= 0.0 {
            return None;
        }
        let likely_s = left / ((recent + whole) / 2.0);
        Some(Eta {
            likely_s,
            low_s: left / recent.max(whole) * 0.92,
            high_s: left / recent.min(whole) * 1.12,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_work_has_narrow_bounds_and_uneven_work_wide_ones() {
        let mut steady = Forecast::default();
        let mut uneven = Forecast::default();
        for i in 0..200 {
            let t = f64::from(i) * 0.1;
            steady.add(t, t * 100.0);
            uneven.add(t, if t < 10.0 { t * 300.0 } else { 3_000.0 + (t - 10.0) * 100.0 });
        }
        let eta = steady.eta(1_000.0).expect("a forecast");
        assert!((eta.likely_s - 10.0).abs() < 0.3 && eta.high_s - eta.low_s < 3.0, "{eta:?}");
        let eta = uneven.eta(1_000.0).expect("a forecast");
        assert!(
            eta.low_s < 5.5
                && eta.high_s > 9.5
                && eta.low_s < eta.likely_s
                && eta.likely_s < eta.high_s,
            "{eta:?}"
        );
    }

    /// The first line of a list said 0 B/s, and so did those that came more than a window apart.
    #[test]
    fn each_point_has_a_rate() {
        let mut forecast = Forecast::default();
        for at_s in [1.0, 2.6, 12.6] {
            forecast.add(at_s, at_s * 10.0);
            assert!((forecast.rate_over(8.0) - 10.0).abs() < 1e-9, "at {at_s} s");
        }
    }

    #[test]
    fn nothing_is_said_too_early() {
        let mut forecast = Forecast::default();
        assert!(forecast.eta(1.0).is_none());
        forecast.add(0.0, 0.0);
        forecast.add(1.0, 10.0);
        assert!(forecast.eta(1.0).is_none());
        forecast.add(2.0, 10.0);
        assert!(forecast.eta(1.0).is_some());
        assert!(forecast.points.len() <= POINTS_MAX + 2);
    }
}
