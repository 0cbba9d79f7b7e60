//! The time that a running transfer still takes: what was forecast before it began, and what is measured
//! meanwhile, each with as much weight as it is sure.

use swath_model::observe::Eta;

/// Returns the range that eight of ten cases lie in.
pub(super) fn around(likely_s: f64, spread: f64) -> Eta {
    let reach = (DEVIATIONS * spread.min(SPREAD_MAX)).exp();
    Eta { low_s: likely_s / reach, likely_s, high_s: likely_s * reach }
}

/// Combines a forecast of the whole duration with the time left as it is measured, `at_s` seconds after
/// the start.
pub fn remaining(whole: &Eta, measured: &Eta, at_s: f64) -> Eta {
    let whole_s = whole.likely_s.max(SECONDS_MIN);
    // A transfer that should have ended has a little left.
    let forecast_s = (whole_s - at_s).max(LATE_PART * whole_s);
    let measured_s = measured.likely_s.max(SECONDS_MIN);
    let unsure = spread(whole);
    let changes = unsure * (1.0 - (-measured_s / CHANGES_S).exp());
    let of_measured = spread(measured).hypot(changes);
    let of_forecast = unsure * whole_s / forecast_s;
    // A forecast that contradicts what is measured was made for something else.
    let apart = (forecast_s / measured_s).ln().abs();
    let contradicts = (apart - TOLERATED * of_forecast.hypot(of_measured)).max(0.0);
    let of_forecast = of_forecast.hypot(contradicts);
    let [by_forecast, by_measured] = [of_forecast, of_measured].map(|spread| spread.powi(-2));
    let weights = by_forecast + by_measured;
    let mean = (by_forecast * forecast_s.ln() + by_measured * measured_s.ln()) / weights;
    around(mean.exp(), weights.sqrt().recip())
}

/// Returns the standard deviation of the logarithm of a duration.
fn spread(takes: &Eta) -> f64 {
    let [low, high] = [takes.low_s, takes.high_s].map(|seconds| seconds.max(SECONDS_MIN).ln());
    ((high - low) / (2.0 * DEVIATIONS)).clamp(SPREAD_MIN, SPREAD_MAX)
}

/// Eight of ten cases are within so many standard deviations.
const DEVIATIONS: f64 = 1.28;

/// After so many seconds the traffic of others may be another.
const CHANGES_S: f64 = 600.0;

/// The part that a transfer has left that should have ended.
const LATE_PART: f64 = 0.02;

/// Standard deviations by which forecast and measurement may be apart.
const TOLERATED: f64 = 2.0;

const SPREAD_MIN: f64 = 0.02;
const SPREAD_MAX: f64 = 3.0;
const SECONDS_MIN: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    fn about(likely_s: f64, spread: f64) -> Eta {
        Eta { low_s: likely_s * (1.0 - spread), likely_s, high_s: likely_s * (1.0 + spread) }
    }

    #[test]
    fn the_forecast_counts_first_and_the_measurement_later() {
        let whole = about(100.0, 0.1);
        let first = remaining(&whole, &about(150.0, 0.6), 0.5);
        assert!((95.0..115.0).contains(&first.likely_s), "{first:?}");
        let later = remaining(&whole, &about(60.0, 0.05), 60.0);
        assert!((52.0..60.5).contains(&later.likely_s), "{later:?}");
        let late = remaining(&whole, &about(30.0, 0.05), 120.0);
        assert!((25.0..30.5).contains(&late.likely_s), "{late:?}");
        for eta in [first, later, late] {
            assert!(0.0 < eta.low_s && eta.low_s < eta.likely_s && eta.likely_s < eta.high_s);
        }
    }

    #[test]
    fn a_forecast_that_contradicts_what_is_measured_is_not_believed() {
        let faster = remaining(&about(1000.0, 0.05), &about(90.0, 0.05), 5.0);
        assert!((80.0..130.0).contains(&faster.likely_s), "{faster:?}");
        let slower = remaining(&about(10.0, 0.05), &about(900.0, 0.05), 5.0);
        assert!((500.0..950.0).contains(&slower.likely_s), "{slower:?}");
        let odd = Eta { low_s: 0.0, likely_s: 0.0, high_s: f64::MAX };
        let eta = remaining(&odd, &odd, 0.0);
        assert!(eta.likely_s.is_finite() && eta.high_s.is_finite(), "{eta:?}");
    }
}
