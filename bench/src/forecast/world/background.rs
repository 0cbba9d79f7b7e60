//! How much of a link others leave to us, as it changes: steps, each of some seconds.
//!
//! What others send is a usual part of the link, noise that lasts for minutes, and, where it is
//! [changing](Setting::Changing), a daily pattern and a few heavy users that come and go. How long
//! these stay is heavy-tailed: mostly minutes, sometimes hours.

use super::random::{normal, pareto};

/// How the traffic of others behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// It takes about the same part of a link at any time.
    Steady,
    /// It follows the day, and heavy users come and go.
    Changing,
}

/// The traffic of others on one link.
#[derive(Clone, Debug)]
pub struct Background {
    random: fastrand::Rng,
    now_s: f64,
    usual_part: f64,
    /// The standard deviation of the noise.
    noise_spread: f64,
    /// The present noise, in standard deviations.
    noise: f64,
    /// How much more is in use at the peak of a day than at its low.
    day_part: f64,
    /// The second of the day at which most is in use.
    peak_s: f64,
    users: Vec<User>,
}

/// A heavy user, who uses a part of the link or none of it.
#[derive(Clone, Debug)]
struct User {
    part: f64,
    is_on: bool,
    until_s: f64,
}

/// A time in which nothing changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Its end, in seconds.
    pub until_s: f64,
    /// The part of the link that is left.
    pub left_part: f64,
}

impl Background {
    /// Returns the traffic from second 0 on.
    pub fn new(setting: Setting, random: fastrand::Rng) -> Background {
        let mut background = Background {
            random,
            now_s: 0.0,
            usual_part: 0.0,
            noise_spread: STEADY_SPREAD,
            noise: 0.0,
            day_part: 0.0,
            peak_s: 0.0,
            users: Vec::new(),
        };
        background.noise = normal(&mut background.random);
        let random = &mut background.random;
        match setting {
            Setting::Steady => background.usual_part = 0.1 + 0.5 * random.f64(),
            Setting::Changing => {
                background.usual_part = 0.1 + 0.1 * random.f64();
                background.noise_spread = CHANGING_SPREAD;
                background.day_part = 0.1 + 0.1 * random.f64();
                background.peak_s = DAY_S * random.f64();
                background.users = (0..USERS).map(|_| User::new(random)).collect();
            }
        }
        background
    }

    /// Returns the next step, which begins where the last one ended.
    pub fn step(&mut self) -> Step {
        let ends = self.users.iter().map(|user| user.until_s);
        let until_s = ends.fold(self.now_s + STEP_S, f64::min);
        let day = 0.5 + 0.5 * ((self.now_s - self.peak_s) / DAY_S * std::f64::consts::TAU).cos();
        let users: f64 = self.users.iter().filter(|user| user.is_on).map(|user| user.part).sum();
        let usual = self.usual_part + self.day_part * day + users;
        let left_part = (1.0 - usual - self.noise_spread * self.noise).clamp(LEFT_MIN, 1.0);
        let kept = (-(until_s - self.now_s) / NOISE_S).exp();
        self.noise = kept * self.noise + (1.0 - kept * kept).sqrt() * normal(&mut self.random);
        self.now_s = until_s;
        for user in &mut self.users {
            user.go_on(until_s, &mut self.random);
        }
        Step { until_s, left_part }
    }
}

impl User {
    fn new(random: &mut fastrand::Rng) -> User {
        let part = 0.12 + 0.13 * random.f64();
        let mut user = User { part, is_on: random.bool(), until_s: 0.0 };
        user.go_on(0.0, random);
        user
    }

    /// Comes or goes, if it is time.
    fn go_on(&mut self, now_s: f64, random: &mut fastrand::Rng) {
        if now_s < self.until_s {
            return;
        }
        self.is_on = !self.is_on;
        let least_s = if self.is_on { ON_S_MIN } else { OFF_S_MIN };
        self.until_s = now_s + pareto(random, TAIL, least_s).min(USER_S_MAX);
    }
}

/// Steady traffic differs by so much from its mean: a few percent of the link.
const STEADY_SPREAD: f64 = 0.03;
/// The same of changing traffic, apart from its users.
const CHANGING_SPREAD: f64 = 0.04;
/// For about so long noise stays what it is.
const NOISE_S: f64 = 180.0;
/// Longest step.
const STEP_S: f64 = 10.0;
const DAY_S: f64 = 86_400.0;
/// Heavy users of a link.
const USERS: usize = 3;
/// The exponent of the times for which users stay and are away: those of real traffic lie between 1
/// and 2, where the mean is finite and the variance is not (Willinger et al., "Self-similarity
/// through high-variability", 1997).
const TAIL: f64 = 1.5;
/// Shortest stay of a user; the mean is three times as long.
const ON_S_MIN: f64 = 60.0;
/// Shortest time without one.
const OFF_S_MIN: f64 = 120.0;
/// Longest of both.
const USER_S_MAX: f64 = 6.0 * 3600.0;
/// So much of a link is always left.
const LEFT_MIN: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a link over a week: mean, standard deviation, least, most.
    fn week(setting: Setting, seed: u64) -> [f64; 4] {
        let mut background = Background::new(setting, fastrand::Rng::with_seed(seed));
        let (mut now_s, mut sum, mut squares) = (0.0, 0.0, 0.0);
        let (mut least, mut most) = (1.0_f64, 0.0_f64);
        while now_s < 7.0 * DAY_S {
            let Step { until_s, left_part } = background.step();
            assert!(until_s > now_s);
            sum += left_part * (until_s - now_s);
            squares += left_part * left_part * (until_s - now_s);
            (least, most) = (least.min(left_part), most.max(left_part));
            now_s = until_s;
        }
        let mean = sum / now_s;
        [mean, (squares / now_s - mean * mean).sqrt(), least, most]
    }

    #[test]
    fn steady_traffic_differs_by_a_few_percent() {
        for seed in 0..8 {
            let [mean, spread, ..] = week(Setting::Steady, seed);
            assert!((0.35..0.95).contains(&mean), "seed {seed}: mean {mean}");
            assert!((0.02..0.04).contains(&spread), "seed {seed}: spread {spread}");
        }
    }

    #[test]
    fn changing_traffic_differs_by_a_factor_of_three() {
        for seed in 0..8 {
            let [mean, spread, least, most] = week(Setting::Changing, seed);
            assert!((0.35..0.75).contains(&mean), "seed {seed}: mean {mean}");
            assert!(spread > 0.1 && most > 3.0 * least, "seed {seed}: {spread} {least} {most}");
        }
    }

    #[test]
    fn a_seed_is_the_same_traffic() {
        let of = || Background::new(Setting::Changing, fastrand::Rng::with_seed(1));
        let (mut one, mut other) = (of(), of());
        assert!((0..1000).all(|_| one.step() == other.step()));
    }
}
