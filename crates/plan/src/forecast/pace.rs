//! The time that a running transfer still takes, by the rates at which its sources deliver.

use std::collections::VecDeque;
use std::time::Duration;

use swath_model::observe::Eta;

use super::remaining::around;

/// The rates at which a transfer's sources delivered lately, and what follows from them.
///
/// The newest rates count most. A source whose connections still come up to speed, which takes seconds
/// where the round trip is long, is expected to become faster.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    sources: Vec<Source>,
    /// Their sums, the newest first.
    sums: VecDeque<f64>,
}

/// What a source delivers now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    /// Its rate in bytes per second.
    pub bytes_per_s: f64,
    /// Its round trip.
    pub rtt: Duration,
    /// Its connections, if its server limits each answer. With another number of them its rate is
    /// another, and earlier rates tell nothing.
    pub limited_lanes: usize,
}

/// The rates of one source in bytes per second, the newest first.
#[derive(Clone, Debug, Default)]
struct Source {
    rates: VecDeque<f64>,
    /// How many of them it had since it came up to speed; 0: it has not yet.
    steady: usize,
    /// How many times as fast it is as a round trip before; 1 while that is not known.
    growth: f64,
    limited_lanes: usize,
}

impl Pace {
    /// Adds what each source delivers, [`STEP_S`] after the last time. Sources keep their places.
    pub fn add(&mut self, sources: impl IntoIterator<Item = Delivery>) {
        let mut sum = 0.0;
        for (at, now) in sources.into_iter().enumerate() {
            if at == self.sources.len() {
                self.sources.push(Source::default());
            }
            self.sources[at].add(now);
            sum += now.bytes_per_s;
        }
        push(&mut self.sums, sum);
    }

    /// Returns the time left, `at_s` seconds after the start and with this part of the bytes done; `None`
    /// while too few rates are known, or nothing comes.
    pub fn left(&self, left_bytes: f64, at_s: f64, done_part: f64) -> Option<Eta> {
        let changed = self.sources.iter().filter(|source| source.has_changed()).count();
        let trusts_falls = changed <= (self.sources.len() / FEW).max(1);
        let (mut rate, mut climbing) = (0.0, 0.0);
        for source in &self.sources {
            let expected = source.expected(trusts_falls);
            rate += expected;
            climbing += if source.steady == 0 { expected } else { 0.0 };
        }
        if self.sums.len() < RATES_MIN || rate <= 0.0 {
            return None;
        }
        let count = self.sums.len() as f64;
        let mean = mean(&self.sums);
        let squares: f64 = self.sums.iter().map(|sum| (sum / mean - 1.0).powi(2)).sum();
        // Rates of the same second are alike.
        let swings = (squares / count / (count * STEP_S)).sqrt();
        let climbs = CLIMBS * (-at_s / CLIMBS_S).exp() + CLIMBING * climbing / rate;
        let early = EARLY * (-done_part / EARLY_PART).exp();
        Some(around(left_bytes / rate, (MEASURED + early + climbs).hypot(swings)))
    }
}

impl Source {
    fn add(&mut self, now: Delivery) {
        let rate = now.bytes_per_s;
        if rate <= 0.0 && self.rates.is_empty() {
            return;
        }
        push(&mut self.rates, rate);
        if std::mem::replace(&mut self.limited_lanes, now.limited_lanes) != now.limited_lanes {
            self.rates.truncate(1);
            self.steady = 1;
            return;
        }
        // A sender doubles its rate in every round trip until it meets a limit.
        let trip = (now.rtt.as_secs_f64() / STEP_S).ceil() as usize + 1;
        let before = self.rates.get(trip.min(RATES_KEPT - 1)).filter(|&&before| before > 0.0);
        let growth = before.map(|before| rate / before);
        self.growth = growth.map_or(1.0, |growth| growth.min(DOUBLES));
        if self.steady > 0 || growth.is_some_and(|growth| growth < STILL_CLIMBS) {
            self.steady = (self.steady + 1).min(self.rates.len());
        }
    }

    /// Returns the rate at which it is expected to go on.
    fn expected(&self, trusts_falls: bool) -> f64 {
        let newest = self.rates.front().copied().unwrap_or(0.0);
        if self.steady == 0 {
            return newest * self.growth.powf(MORE_TIMES);
        }
        let (lately, before) = self.lately_and_before();
        match trusts_falls && lately < FALLEN * before {
            true => lately,
            false => weighted(self.rates.range(..self.steady)),
        }
    }

    /// Returns whether it lately delivers far more or less than before.
    fn has_changed(&self) -> bool {
        let (lately, before) = self.lately_and_before();
        before > 0.0 && (CHANGED * lately < before || lately > CHANGED * before)
    }

    /// Returns its mean rate of the last second, and of the time before.
    fn lately_and_before(&self) -> (f64, f64) {
        let lately = self.rates.range(..self.steady.min(RATES_MIN));
        let before = self.rates.range(lately.len()..self.steady);
        (mean(lately), mean(before))
    }
}

fn push(rates: &mut VecDeque<f64>, rate: f64) {
    rates.truncate(RATES_KEPT - 1);
    rates.push_front(rate);
}

/// Returns the mean; of nothing, 0.
fn mean<'a>(rates: impl IntoIterator<Item = &'a f64>) -> f64 {
    let (sum, count) =
        rates.into_iter().fold((0.0, 0.0), |(sum, count), rate| (sum + rate, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Returns the mean with less weight for older rates.
fn weighted<'a>(newest_first: impl Iterator<Item = &'a f64>) -> f64 {
    let (mut sum, mut weights, mut weight) = (0.0, 0.0, 1.0);
    for rate in newest_first {
        sum += weight * rate;
        weights += weight;
        weight *= (-STEP_S / FADES_S).exp();
    }
    sum / weights
}

/// How far off the measured time left is, as a natural logarithm: in the long run, …
const MEASURED: f64 = 0.05;
/// … more at first, …
const EARLY: f64 = 0.12;
/// … until this part is done, …
const EARLY_PART: f64 = 0.2;
/// … more while connections come up to speed, …
const CLIMBS: f64 = 0.3;
/// … for about so many seconds, …
const CLIMBS_S: f64 = 2.0;
/// … and for as much of the rate as comes from sources that have not come up to speed.
const CLIMBING: f64 = 0.8;
/// A source that was not steady before is so when it grows less than this in a round trip, …
const STILL_CLIMBS: f64 = 1.25;
/// … and grows no faster than this.
const DOUBLES: f64 = 2.0;
/// Until then it is expected to grow so many times more as it just did: nobody knows, but one that
/// doubled five times does not stop just now.
const MORE_TIMES: f64 = 1.5;
/// A source that lately delivers less than this part of what it did is not expected to recover, …
const FALLEN: f64 = 1.0 / 3.0;
/// … unless more than one of so many sources has changed …
const FEW: usize = 4;
/// … by this factor: where that is usual, it will change again.
const CHANGED: f64 = 2.0;
/// A rate counts less the older it is, with this time constant.
const FADES_S: f64 = 3.0;
/// Seconds from one rate to the next.
pub const STEP_S: f64 = 0.2;
/// Rates of a source that count: those of 6 s.
const RATES_KEPT: usize = 30;
/// Fewest rates for an estimate, and those that count as the latest.
const RATES_MIN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bytes_per_s: f64) -> Delivery {
        Delivery { bytes_per_s, rtt: Duration::from_millis(10), ..Delivery::default() }
    }

    /// One source nearby delivers at these rates.
    fn add(pace: &mut Pace, rates: &[f64]) {
        rates.iter().for_each(|&rate| pace.add([at(rate)]));
    }

    fn likely_s(pace: &Pace) -> Option<f64> {
        pace.left(1000.0, 10.0, 0.5).map(|eta| eta.likely_s)
    }

    #[test]
    fn an_estimate_gets_surer() {
        let mut pace = Pace::default();
        add(&mut pace, &[100.0; 4]);
        assert_eq!(pace.left(1000.0, 0.8, 0.1), None);
        add(&mut pace, &[100.0]);
        let first = pace.left(1000.0, 1.0, 0.1).unwrap();
        let later = pace.left(1000.0, 10.0, 0.5).unwrap();
        assert!((first.likely_s - 10.0).abs() < 1e-9 && (later.likely_s - 10.0).abs() < 1e-9);
        assert!(first.low_s < later.low_s && later.high_s < first.high_s, "{first:?} {later:?}");
        add(&mut pace, &[60.0, 140.0].repeat(15));
        let swings = pace.left(1000.0, 10.0, 0.5).unwrap();
        assert!((9.5..10.5).contains(&swings.likely_s), "{swings:?}");
        assert!(swings.high_s / swings.likely_s > later.high_s / later.likely_s);
        pace.add([Delivery { limited_lanes: 2, ..at(50.0) }]);
        assert_eq!(likely_s(&pace), Some(20.0));
        pace.add([Delivery { limited_lanes: 4, ..at(80.0) }]);
        assert_eq!(likely_s(&pace), Some(12.5));
        pace.add([Delivery { limited_lanes: 4, ..at(120.0) }]);
        assert!(likely_s(&pace).unwrap() > 1000.0 / 120.0);
    }

    #[test]
    fn the_newest_rates_count_most_and_a_fall_is_believed_at_once() {
        let mut pace = Pace::default();
        add(&mut pace, &[100.0; 30]);
        add(&mut pace, &[200.0; 10]);
        assert!((5.0..6.5).contains(&likely_s(&pace).unwrap()));
        add(&mut pace, &[100.0; 30]);
        add(&mut pace, &[20.0; 4]);
        assert!(likely_s(&pace).unwrap() < 20.0, "perhaps a moment");
        add(&mut pace, &[20.0; 1]);
        assert_eq!(likely_s(&pace), Some(50.0));
        add(&mut pace, &[0.0; 5]);
        assert_eq!(likely_s(&pace), None);
    }

    #[test]
    fn a_source_far_away_is_expected_to_become_faster_while_it_climbs() {
        // Another brings 100; the far one doubles every half second, to 160.
        let mut pace = Pace::default();
        let far = |step: i32| Delivery {
            bytes_per_s: (1.25 * (f64::from(step) / 2.5).exp2()).min(160.0),
            rtt: Duration::from_millis(500),
            ..Delivery::default()
        };
        let mut said = Vec::new();
        for step in 0..60 {
            pace.add([at(100.0), far(step)]);
            said.extend(likely_s(&pace));
        }
        let true_s = 1000.0 / 260.0;
        let alone_s = 1000.0 / 100.0;
        // When it brings 20 and 40.
        assert!(said[12 - 4] < 0.6 * alone_s && said[15 - 4] < 1.05 * true_s, "{said:?}");
        // Nobody tells that it will not reach 640.
        let too_short = said.iter().filter(|&&left_s| left_s < 0.8 * true_s).count();
        assert!(too_short <= 7, "{said:?}");
        assert!((said[55] / true_s - 1.0).abs() < 0.01, "{said:?}");
        // It does not climb again because it becomes faster once more.
        let before_s = said[55];
        pace.add([at(100.0), Delivery { bytes_per_s: 400.0, ..far(0) }]);
        assert!(likely_s(&pace).unwrap() > 0.75 * before_s);
    }

    #[test]
    fn a_fall_is_no_surprise_where_all_sources_change() {
        let left_s = |others: [f64; 3]| {
            let mut pace = Pace::default();
            (0..20).for_each(|_| pace.add([100.0; 4].map(at)));
            (0..5).for_each(|_| pace.add([10.0, others[0], others[1], others[2]].map(at)));
            likely_s(&pace).unwrap()
        };
        assert!(left_s([100.0; 3]) > 1000.0 / 311.0);
        // As much in all, but of sources that come and go.
        assert!(left_s([20.0, 250.0, 30.0]) < 1000.0 / 311.0);
    }

    #[test]
    fn sources_may_come_later() {
        let mut pace = Pace::default();
        add(&mut pace, &[100.0; 10]);
        (0..10).for_each(|_| pace.add([at(100.0), at(0.0), at(100.0)]));
        assert_eq!(likely_s(&pace), Some(5.0));
    }
}
