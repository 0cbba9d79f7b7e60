//! How far off forecasts were.

use super::Compared;

/// Errors of forecasts, as parts of what the transfers took.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    /// The median error.
    pub median: f64,
    /// The mean error (MAPE).
    pub mean: f64,
    /// Nine of ten errors are smaller.
    pub p90: f64,
    /// The part of transfers that took as long as the interval says.
    pub coverage: f64,
    /// The median ratio of the upper to the lower end of an interval.
    pub width: f64,
}

impl Scores {
    /// Returns the scores; NaN if there are none.
    pub fn of(outcomes: &[Compared]) -> Scores {
        let error = |one: &Compared| (one.takes.likely_s / one.took_s - 1.0).abs();
        let mut errors: Vec<f64> = outcomes.iter().map(error).collect();
        let width = |one: &Compared| one.takes.high_s / one.takes.low_s;
        let mut widths: Vec<f64> = outcomes.iter().map(width).collect();
        errors.sort_by(f64::total_cmp);
        widths.sort_by(f64::total_cmp);
        let at = |sorted: &[f64], part: f64| {
            let at = (sorted.len().saturating_sub(1) as f64 * part).round() as usize;
            sorted.get(at).copied().unwrap_or(f64::NAN)
        };
        let is_covered =
            |one: &&Compared| (one.takes.low_s..=one.takes.high_s).contains(&one.took_s);
        let count = outcomes.len() as f64;
        Scores {
            median: at(&errors, 0.5),
            mean: errors.iter().sum::<f64>() / count,
            p90: at(&errors, 0.9),
            coverage: outcomes.iter().filter(is_covered).count() as f64 / count,
            width: at(&widths, 0.5),
        }
    }

    /// Returns them as the line that other programs read.
    pub fn line(&self) -> String {
        format!("{}, coverage {:.1} %", self.errors(), self.coverage * 100.0)
    }

    /// Returns the same of forecasts without intervals.
    pub fn errors(&self) -> String {
        let [median, mean, p90] = [self.median, self.mean, self.p90].map(|part| part * 100.0);
        format!("median error {median:.1} %, MAPE {mean:.1} %, p90 {p90:.1} %")
    }
}
