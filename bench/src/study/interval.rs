//! The mean of a few measurements and its 95 % confidence interval, by Student's t distribution.

/// A mean and how far it may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half of the width of the 95 % confidence interval; `None` of a single value.
    pub half: Option<f64>,
}

impl Interval {
    /// Of any number of values; `None` of no values.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let half =
            t_quantile(values.len() - 1).map(|t| t * (squares / (count - 1.0) / count).sqrt());
        Some(Self { mean, half })
    }
}

/// Returns the 97.5 % quantile of Student's t distribution; none without degrees of freedom.
fn t_quantile(degrees_of_freedom: usize) -> Option<f64> {
    let at = degrees_of_freedom.checked_sub(1)?;
    Some(T_QUANTILES.get(at).copied().unwrap_or(NORMAL_QUANTILE))
}

/// For 1 to 30 degrees of freedom.
const T_QUANTILES: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// Of the normal distribution, which t approaches.
const NORMAL_QUANTILE: f64 = 1.960;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_textbook() {
        assert_eq!(Interval::of([].into_iter()), None);
        let one = Interval::of([3.0].into_iter()).unwrap();
        assert_eq!(one, Interval { mean: 3.0, half: None });
        // Standard deviation 1.5811, standard error 0.7071, t of four degrees of freedom 2.776.
        let five = Interval::of([1.0, 2.0, 3.0, 4.0, 5.0].into_iter()).unwrap();
        assert_eq!(five.mean, 3.0);
        assert!((five.half.unwrap() - 1.963).abs() < 1e-3);
        let same = Interval::of([2.0; 40].into_iter()).unwrap();
        assert_eq!(same, Interval { mean: 2.0, half: Some(0.0) });
    }

    #[test]
    fn quantiles_fall_towards_that_of_the_normal_distribution() {
        let all: Vec<f64> = (1..40).filter_map(t_quantile).collect();
        assert!(all.windows(2).all(|pair| pair[0] >= pair[1]));
        assert_eq!(
            (t_quantile(0), t_quantile(4), t_quantile(31)),
            (None, Some(2.776), Some(1.960))
        );
    }
}
