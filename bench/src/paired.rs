//! How much slower is the later of two builds? The ratio of paired times, with its 90 % interval.
//!
//! Two runs that follow each other are a pair. The ratio of each pair is taken on a logarithmic
//! scale, where twice as slow and twice as fast are equally far from 1. The estimate is that of
//! Hodges and Lehmann: the median of the means of any two of these ratios. The interval is that of
//! Wilcoxon's signed-rank test (Hollander, Wolfe and Chicken, "Nonparametric Statistical Methods",
//! section 3.3): exact for any number of pairs and any symmetric error. A run that other work slowed
//! down moves neither of them far.

/// How long the later build takes, as a multiple of the earlier one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioInterval {
    /// The estimate.
    pub ratio: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl RatioInterval {
    /// Returns the interval of pairs of positive times, the earlier build's first; `None` of fewer
    /// than [`LEAST_PAIRS`].
    pub fn of(pairs: impl Iterator<Item = [f64; 2]>) -> Option<Self> {
        let logs: Vec<f64> = pairs.map(|[before, after]| (after / before).ln()).collect();
        if logs.len() < LEAST_PAIRS {
            return None;
        }
        let each = |first: usize| logs[first..].iter().map(move |other| (first, other));
        let means =
            (0..logs.len()).flat_map(each).map(|(first, other)| (logs[first] + other) / 2.0);
        let mut means: Vec<f64> = means.collect();
        means.sort_by(f64::total_cmp);
        let cut = critical_rank_sum(logs.len())?;
        let last = means.len() - 1;
        let median = (means[last / 2] + means[last.div_ceil(2)]) / 2.0;
        Some(Self { ratio: median.exp(), low: means[cut].exp(), high: means[last - cut].exp() })
    }
}

/// Returns the largest sum of ranks that Wilcoxon's statistic does not exceed with a probability of
/// 5 %; `None` if even zero is more probable.
fn critical_rank_sum(pairs: usize) -> Option<usize> {
    // The probability of each sum, when each rank is in it or not with equal chances.
    let mut probability = vec![0.0; pairs * (pairs + 1) / 2 + 1];
    probability[0] = 1.0;
    for rank in 1..=pairs {
        for sum in (0..probability.len()).rev() {
            let without = probability[sum];
            let with = sum.checked_sub(rank).map_or(0.0, |rest| probability[rest]);
            probability[sum] = (without + with) / 2.0;
        }
    }
    let mut below = 0.0;
    let too_many = probability.iter().position(|of_sum| {
        below += of_sum;
        below > ONE_SIDE
    });
    too_many?.checked_sub(1)
}

/// Four pairs agree by chance too often for an interval of 90 %.
pub const LEAST_PAIRS: usize = 5;
/// What lies beyond each end of an interval of 90 %.
const ONE_SIDE: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> Option<RatioInterval> {
        RatioInterval::of(ratios.iter().map(|ratio| [2.0, 2.0 * ratio]))
    }

    #[test]
    fn critical_values_are_those_of_the_tables() {
        let known = [(5, 0), (6, 2), (7, 3), (8, 5), (9, 8), (10, 10), (15, 30), (20, 60)];
        for (pairs, value) in known {
            assert_eq!(critical_rank_sum(pairs), Some(value), "{pairs} pairs");
        }
        assert_eq!(critical_rank_sum(4), None);
    }

    #[test]
    fn five_pairs_span_from_the_least_to_the_greatest() {
        assert_eq!(of(&[1.0; 4]), None);
        let five = of(&[1.02, 1.0, 1.04, 1.01, 0.98]).unwrap();
        assert!((five.low - 0.98).abs() < 1e-12 && (five.high - 1.04).abs() < 1e-12, "{five:?}");
        // The eighth of fifteen means: of 1.00 and 1.02, or of 1.01 and 1.01.
        assert!((five.ratio - 1.01).abs() < 1e-4, "{five:?}");
        let same = of(&[1.0; 12]).unwrap();
        assert_eq!(same, RatioInterval { ratio: 1.0, low: 1.0, high: 1.0 });
    }

    #[test]
    fn twice_as_slow_and_twice_as_fast_cancel_out() {
        let ratios = [2.0, 0.5, 2.0, 0.5, 1.0, 4.0, 0.25];
        let interval = of(&ratios).unwrap();
        assert!((interval.ratio - 1.0).abs() < 1e-12, "{interval:?}");
        assert!((interval.low * interval.high - 1.0).abs() < 1e-12, "{interval:?}");
    }

    #[test]
    fn a_disturbed_run_moves_the_interval_little() {
        let mut ratios = [1.024, 1.025, 1.026, 1.027, 1.023, 1.025, 1.024, 1.026, 1.025, 1.027];
        ratios[3] = 1.6;
        let interval = of(&ratios).unwrap();
        assert!((interval.ratio - 1.025).abs() < 1e-3, "{interval:?}");
        assert!(interval.low > 1.02 && interval.high < 1.03, "{interval:?}");
    }

    /// Nine of ten intervals hold the true ratio, also where some runs are disturbed.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut random = fastrand::Rng::with_seed(7);
        for pairs in [5, 8, 20] {
            let mut time = |true_s: f64| {
                let noise = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
                let disturbed = if random.f64() < 0.1 { 1.3 } else { 1.0 };
                true_s * (0.01 * noise).exp() * disturbed
            };
            let mut held = 0;
            for _ in 0..2000 {
                let pairs = (0..pairs).map(|_| [time(5.0), time(5.0 * 1.02)]);
                let interval = RatioInterval::of(pairs).unwrap();
                held += u32::from(interval.low <= 1.02 && 1.02 <= interval.high);
            }
            assert!(held > 1780, "{pairs} pairs: {held} of 2000");
        }
    }
}
