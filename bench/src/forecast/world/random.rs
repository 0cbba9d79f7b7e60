//! Random numbers of the distributions that the world is made of.

/// Returns a normally distributed number: mean 0, standard deviation 1.
pub(super) fn normal(random: &mut fastrand::Rng) -> f64 {
    // Box and Muller's.
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// Returns a number whose logarithm is normally distributed.
pub(super) fn lognormal(random: &mut fastrand::Rng, median: f64, spread: f64) -> f64 {
    median * (spread * normal(random)).exp()
}

/// Returns an exponentially distributed number.
pub(super) fn exponential(random: &mut fastrand::Rng, mean: f64) -> f64 {
    -mean * (1.0 - random.f64()).ln()
}

/// Returns a number of a heavy tail; its mean is `least · exponent / (exponent − 1)`.
pub(super) fn pareto(random: &mut fastrand::Rng, exponent: f64, least: f64) -> f64 {
    least * (1.0 - random.f64()).powf(-1.0 / exponent)
}

/// Returns a number between two, each order of magnitude as likely.
pub(super) fn log_uniform(random: &mut fastrand::Rng, low: f64, high: f64) -> f64 {
    (low.ln() + (high.ln() - low.ln()) * random.f64()).exp()
}

/// Returns a position, the first with the most weight (Zipf's law with this exponent).
pub(super) fn zipf(random: &mut fastrand::Rng, count: usize, exponent: f64) -> usize {
    let weight = |at: usize| ((at + 1) as f64).powf(-exponent);
    let mut left = random.f64() * (0..count).map(weight).sum::<f64>();
    for at in 0..count {
        left -= weight(at);
        if left < 0.0 {
            return at;
        }
    }
    count.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_the_distributions() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut mean = |draw: fn(&mut fastrand::Rng) -> f64| {
            (0..100_000).map(|_| draw(&mut random)).sum::<f64>() / 1e5
        };
        assert!(mean(normal).abs() < 0.02);
        assert!((mean(|random| normal(random).powi(2)) - 1.0).abs() < 0.03);
        assert!((mean(|random| exponential(random, 5.0)) - 5.0).abs() < 0.1);
        assert!((mean(|random| pareto(random, 3.0, 2.0)) - 3.0).abs() < 0.1);
        assert!((mean(|random| lognormal(random, 7.0, 0.5).ln()) - 7_f64.ln()).abs() < 0.02);
    }

    #[test]
    fn the_first_of_zipf_dominates() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut counts = [0; 10];
        (0..10_000).for_each(|_| counts[zipf(&mut random, 10, 1.0)] += 1);
        assert!(counts[0] > 3000 && counts[9] > 200 && counts.is_sorted_by(|a, b| a > b));
    }
}
