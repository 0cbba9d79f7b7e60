//! Forecasts of transfers, from those that have ended.
//!
//! Before a transfer between the same places has ended, its prior is all there is. Then several models
//! forecast each transfer, and their mean is used, in which each has the more weight the smaller its
//! errors between the same places were lately:
//! - the cost of the parts of a transfer, and of what runs beside it;
//! - the same, corrected by the errors of the last three transfers;
//! - the same, corrected by the errors of the places that send, lately and at this time of day;
//! - a forest of trees, which sees what runs, what has just begun and what similar transfers took.
//!
//! Nothing is learned from a transfer before it has ended.

use std::collections::{BTreeMap, VecDeque};

use swath_model::observe::Eta;

use super::beside::{Beside, Running};
use super::cost::{Cost, Costs, Outcome, SECONDS_MIN, Shared};
use super::drift::{Drift, Spans};
use super::forest::{Forest, Growth};
use super::interval::{Guess, Interval};
use super::past::{COLUMNS, Features, Past, Planned};
use super::remaining::remaining;

/// How long a transfer will take, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// It takes less in one of ten cases.
    pub low_s: f64,
    /// As often more as less.
    pub likely_s: f64,
    /// It takes more in one of ten cases.
    pub high_s: f64,
    /// The model that had the most weight.
    pub by: Model,
    /// Transfers between the same places that have ended; without any it is a guess.
    pub outcomes: u32,
}

/// The part of cases in which something takes at most `within_s`, from what it takes in one, five and
/// nine of ten cases (in seconds, ascending).
pub fn chance(within_s: f64, [low_s, likely_s, high_s]: [f64; 3]) -> f64 {
    let [at, low, likely, high] =
        [within_s, low_s, likely_s, high_s].map(|seconds| seconds.max(SECONDS_MIN).ln());
    let part = |from: f64, to: f64| if to > from { (at - from) / (to - from) } else { 1.0 };
    if at < low {
        // As if it became ten times less likely with each such distance again.
        0.1 * 10_f64.powf(-(low - at) / (likely - low).max(SPREAD_MIN))
    } else if at < likely {
        0.1 + 0.4 * part(low, likely)
    } else if at < high {
        0.5 + 0.4 * part(likely, high)
    } else {
        1.0 - 0.1 * 10_f64.powf(-(at - high) / (high - likely).max(SPREAD_MIN))
    }
}

/// What makes forecasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The cost that the caller assumes.
    Prior,
    /// A start-up, a time for each byte and a time for each file.
    Cost,
    /// The same, as much off as the last transfers were.
    Recent,
    /// The same, as much off as is to be expected now.
    Drift,
    /// Boosted trees.
    Forest,
}

/// Learns from transfers, and makes forecasts of others.
///
/// Call [`begin`](Self::begin) when a transfer begins and [`end`](Self::end) when it ends, in the
/// order of time.
#[derive(Clone, Debug, Default)]
pub struct Forecaster {
    past: Past,
    running: Running,
    costs: BTreeMap<(u32, u32), Costs>,
    /// By pair, for kinds that are new there.
    pair_costs: BTreeMap<u32, Costs>,
    /// By the places that send, for receivers that are new.
    from_costs: BTreeMap<Vec<u32>, Costs>,
    drift: Drift,
    /// By pair, how far off each model was lately.
    errors: BTreeMap<u32, Errors>,
    all_errors: Errors,
    interval: Interval,
    begun: BTreeMap<u64, Begun>,
    rows: VecDeque<(Features, f64)>,
    /// Rows since the forests were grown.
    new_rows: usize,
    forests: Option<Forests>,
}

impl Forecaster {
    /// Returns a forecast for a transfer that would begin now.
    pub fn forecast(&self, planned: &Planned) -> Forecast {
        self.look(planned).forecast
    }

    /// A transfer begins; the caller names it by a number that no other one that runs has.
    pub fn begin(&mut self, id: u64, planned: &Planned) -> Forecast {
        let begun = self.look(planned);
        let forecast = begun.forecast;
        self.past.begin(id, planned);
        self.running.begin(id, planned, forecast.likely_s);
        if self.begun.len() == BEGUN_MAX {
            self.begun.pop_first();
        }
        self.begun.insert(id, begun);
        forecast
    }

    /// Returns the time left of a running transfer, from its forecast and from the time left that it
    /// measures itself. `at_s` is the time since its start in seconds; `done_part` is from 0 to 1. `None`
    /// if it does not run.
    pub fn left(&self, id: u64, at_s: f64, done_part: f64, measured: &Eta) -> Option<Eta> {
        let Begun { planned, shared, forecast, .. } = self.begun.get(&id)?;
        let &Forecast { low_s, likely_s, high_s, .. } = forecast;
        let whole = Eta { low_s, likely_s, high_s };
        let left_bytes = planned.bytes * (1.0 - done_part).clamp(0.0, 1.0);
        let now_s = planned.at_s + at_s;
        let [ahead, as_now] = self.running.ahead_of(id, now_s, left_bytes)?;
        // What is measured is how fast it is beside those that run now.
        let [ahead_s, as_now_s] =
            [ahead, as_now].map(|beside| shared.bytes_seconds(left_bytes, &beside));
        let part = if as_now_s > 0.0 { ahead_s / as_now_s } else { 1.0 };
        let measured = measured.map(|left_s| left_s * part);
        Some(remaining(&whole, &measured, at_s))
    }

    /// A transfer has taken `took_s` seconds, or has failed.
    pub fn end(&mut self, id: u64, took_s: Option<f64>) {
        let Some(begun) = self.begun.remove(&id) else { return };
        let took_s = took_s.filter(|took_s| took_s.is_finite() && *took_s > 0.0);
        let planned = &begun.planned;
        self.past.end(id, planned, took_s);
        let beside = self.running.end(id, took_s);
        let Some(took_s) = took_s else { return };
        let took = took_s.ln();
        let errors = self.errors.entry(planned.pair).or_default();
        errors.outcomes = errors.outcomes.saturating_add(1);
        for (model, guess) in begun.guesses.iter().enumerate() {
            let Some(guess) = guess else { continue };
            let error = took - guess.likely;
            errors.learn(model, error);
            self.all_errors.learn(model, error);
        }
        let outcome = Outcome { bytes: planned.bytes, files: planned.files, beside, took_s };
        if begun.is_known {
            self.interval.learn(&begun.guess, begun.range, took);
            let as_thought = Outcome { beside: begun.beside, ..outcome };
            let missed = as_thought.error(&begun.shared);
            self.drift.learn(planned, outcome, &begun.spans, missed);
        }
        let group = self.costs.entry((planned.pair, planned.kind)).or_default();
        let pair = self.pair_costs.entry(planned.pair).or_default();
        let from = self.from_costs.entry(planned.from.clone()).or_default();
        for costs in [group, pair, from] {
            costs.learn(outcome, planned.prior.unwrap_or_default());
        }
        if self.rows.len() == ROWS_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back((begun.features, took));
        self.new_rows += 1;
    }

    /// Whether so much is new that [`learn`](Self::learn) pays.
    pub fn is_due(&self) -> bool {
        self.rows.len() >= ROWS_MIN && self.new_rows * GROWTH >= self.rows.len()
    }

    /// Grows new forests from all that have ended: half a second for ten thousand transfers.
    pub fn learn(&mut self) {
        self.forests = Forests::grow(&self.rows);
        self.new_rows = 0;
    }

    /// Makes the guesses of all models.
    fn look(&self, planned: &Planned) -> Begun {
        let group = self.costs.get(&(planned.pair, planned.kind));
        let costs = group.or_else(|| self.pair_costs.get(&planned.pair)).and_then(Costs::get);
        let is_first = costs.is_none();
        let costs = costs.or(planned.prior.map(Shared::from));
        let costs = costs.or_else(|| self.from_costs.get(&planned.from).and_then(Costs::get));
        let shared = costs.unwrap_or(Cost::default().into());
        let beside = self.running.ahead(planned);
        let seconds =
            |beside| shared.seconds(planned.bytes, planned.files, beside).max(SECONDS_MIN);
        let cost_s = seconds(&beside);
        let spans = self.drift.spans(planned, &self.costs);
        let drift = self.drift.expected(&spans);
        let alone_s = seconds(&Beside::default());
        let own_features = [alone_s.ln(), (cost_s / alone_s).ln(), drift];
        let features = self.past.features(planned, own_features);
        let own = self.errors.get(&planned.pair);
        let around = |likely: f64, model: Model| {
            let usual = self.all_errors.spread(model as usize, SPREAD);
            let spread = own.map_or(usual, |own| own.spread(model as usize, usual));
            Guess { likely, down: spread, up: spread }
        };
        let own = own.filter(|errors| errors.outcomes >= OUTCOMES_MIN);
        let errors = own.unwrap_or(&self.all_errors);
        // How far off other guesses were tells nothing of this one.
        let prior = is_first.then_some(Guess { likely: cost_s.ln(), down: SPREAD, up: SPREAD });
        let cost = (!is_first).then(|| around(cost_s.ln(), Model::Cost));
        let recent = own.map(|own| around(cost_s.ln() + own.last_median(), Model::Recent));
        let drift = (!is_first).then(|| around(cost_s.ln() + drift, Model::Drift));
        let forest = self.forests.as_ref().map(|forests| forests.guess(&features));
        let guesses = [prior, cost, recent, drift, forest];
        let best = if is_first { Model::Prior } else { best(&guesses, errors) };
        let guess = match best {
            Model::Prior => prior,
            _ => mixed(&guesses, errors),
        };
        let guess = guess.unwrap_or_else(|| around(cost_s.ln(), best));
        let is_known = !is_first;
        let range = match is_known {
            true => self.interval.around(&guess),
            false => Interval::default().around(&guess),
        };
        let (low, high) = range;
        let forecast = Forecast {
            low_s: low.exp(),
            likely_s: guess.likely.exp(),
            high_s: high.exp(),
            by: best,
            outcomes: self.errors.get(&planned.pair).map_or(0, |errors| errors.outcomes),
        };
        let planned = planned.clone();
        Begun {
            planned,
            shared,
            beside,
            spans,
            features,
            guesses,
            guess,
            is_known,
            range,
            forecast,
        }
    }
}

/// Returns the model with the smallest error.
fn best(guesses: &[Option<Guess>; MODELS], errors: &Errors) -> Model {
    let models = [Model::Prior, Model::Cost, Model::Recent, Model::Drift, Model::Forest];
    let known = models.into_iter().filter(|&model| guesses[model as usize].is_some());
    let mean = |model: Model| errors.mean(model as usize);
    known.min_by(|&a, &b| mean(a).total_cmp(&mean(b))).unwrap_or(Model::Prior)
}

/// Returns the mean of all guesses; each has the more weight the smaller its errors were.
fn mixed(guesses: &[Option<Guess>; MODELS], errors: &Errors) -> Option<Guess> {
    let (mut sum, mut weights) = (Guess { likely: 0.0, down: 0.0, up: 0.0 }, 0.0);
    for (model, guess) in guesses.iter().enumerate().skip(1) {
        let Some(guess) = guess else { continue };
        let weight = errors.mean(model).max(SPREAD_MIN).powi(-SHARPNESS);
        sum.likely += weight * guess.likely;
        sum.down += weight * guess.down;
        sum.up += weight * guess.up;
        weights += weight;
    }
    let part = |sum: f64| sum / weights;
    (weights > 0.0).then(|| Guess {
        likely: part(sum.likely),
        down: part(sum.down),
        up: part(sum.up),
    })
}

/// A transfer that has begun, and what was thought of it.
#[derive(Clone, Debug)]
struct Begun {
    planned: Planned,
    shared: Shared,
    /// What ran beside it then.
    beside: Beside,
    spans: Spans,
    features: Features,
    guesses: [Option<Guess>; MODELS],
    /// The one that was used, …
    guess: Guess,
    /// … whether it knew any earlier transfer, and its range.
    is_known: bool,
    range: (f64, f64),
    forecast: Forecast,
}

/// How far off the models were, as natural logarithms of ratios.
#[derive(Clone, Debug, Default)]
struct Errors {
    outcomes: u32,
    /// Means over the last outcomes, and how much weight they have.
    means: [(f64, f64); MODELS],
    /// The last errors of the cost, the newest last.
    last: [f64; LAST],
}

impl Errors {
    fn learn(&mut self, model: usize, error: f64) {
        let (mean, weight) = &mut self.means[model];
        *weight = *weight * KEPT + 1.0;
        *mean += (error.abs() - *mean) / *weight;
        if model == Model::Cost as usize {
            self.last.rotate_left(1);
            self.last[LAST - 1] = error;
        }
    }

    /// The mean error of a model; a new one has yet to prove itself.
    fn mean(&self, model: usize) -> f64 {
        let (mean, weight) = self.means[model];
        if weight > 0.0 { mean } else { f64::INFINITY }
    }

    /// The mean error, mixed with the `usual` one, which counts as much as one outcome.
    fn spread(&self, model: usize, usual: f64) -> f64 {
        let (mean, weight) = self.means[model];
        ((mean * weight + usual) / (weight + 1.0)).max(SPREAD_MIN)
    }

    fn last_median(&self) -> f64 {
        let mut last = self.last;
        last.sort_by(f64::total_cmp);
        last[LAST / 2]
    }
}

/// Forests for the middle and for the two ends of the interval.
#[derive(Clone, Debug)]
struct Forests {
    low: Forest<COLUMNS>,
    likely: Forest<COLUMNS>,
    high: Forest<COLUMNS>,
}

impl Forests {
    fn grow(rows: &VecDeque<(Features, f64)>) -> Option<Self> {
        if rows.len() < ROWS_MIN {
            return None;
        }
        let (features, targets): (Vec<Features>, Vec<f64>) = rows.iter().copied().unzip();
        let growth = Growth {
            trees: 150,
            leaves: 31,
            rate: 0.1,
            leaf_rows: (rows.len() / 50).clamp(5, 20),
            rows_part: 0.5,
            columns_part: 0.5,
            seed: 1,
        };
        let grow = |quantile| Forest::grow(&features, &targets, quantile, &growth);
        Some(Forests { low: grow(0.1), likely: grow(0.5), high: grow(0.9) })
    }

    fn guess(&self, features: &Features) -> Guess {
        let likely = self.likely.answer(features);
        let down = (likely - self.low.answer(features)).max(SPREAD_MIN);
        let up = (self.high.answer(features) - likely).max(SPREAD_MIN);
        Guess { likely, down, up }
    }
}

/// A model with twice the error has half the weight, so many times over.
const SHARPNESS: i32 = 4;

/// Number of models.
const MODELS: usize = 5;

/// A model of a pair is judged after so many outcomes.
const OUTCOMES_MIN: u32 = 3;

/// So many of the last errors correct the cost; their median follows an upgraded link after two.
const LAST: usize = 3;

/// How much of its weight an error keeps with each newer one.
const KEPT: f64 = 0.9;

/// How far off forecasts are assumed to be before anything is known: by half, or twice as long.
const SPREAD: f64 = 0.5;

/// The smallest spread, as a natural logarithm: two percent.
const SPREAD_MIN: f64 = 0.02;

/// A forest needs so many transfers; with fewer it learns them by heart.
const ROWS_MIN: usize = 200;

/// Transfers that forests are grown from: the newest ones.
const ROWS_MAX: usize = 60_000;

/// Forests are grown anew when one transfer in so many is new.
const GROWTH: usize = 20;

/// Most transfers that run.
const BEGUN_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::TRAITS;

    /// Transfers of 10 GB between two places, one an hour.
    #[derive(Default)]
    struct Link {
        forecaster: Forecaster,
        count: u64,
    }

    impl Link {
        fn next(&mut self, took_s: f64) -> Forecast {
            let planned = Planned {
                at_s: 3600.0 * self.count as f64,
                bytes: 1e10,
                files: 1.0,
                pair: 0,
                kind: 0,
                from: vec![0],
                to: Some(1),
                prior: None,
                traits: [f32::NAN; TRAITS],
            };
            let forecast = self.forecaster.begin(self.count, &planned);
            self.forecaster.end(self.count, Some(took_s));
            self.count += 1;
            forecast
        }
    }

    #[test]
    fn a_wrong_guess_before_the_first_transfer_is_forgotten() {
        let mut link = Link::default();
        let first = link.next(20.0);
        assert_eq!((first.by, first.outcomes), (Model::Prior, 0));
        assert!(first.likely_s > 500.0, "{first:?}");
        let second = link.next(20.0);
        assert_eq!(second.outcomes, 1);
        assert!((17.0..25.0).contains(&second.likely_s), "{second:?}");
        assert!(second.low_s > 6.0 && second.high_s < 60.0, "{second:?}");
    }

    #[test]
    fn ranges_become_narrow_where_nothing_changes() {
        let mut link = Link::default();
        for i in 0..30 {
            link.next(100.0 + f64::from(i % 3));
        }
        let forecast = link.next(100.0);
        assert!(forecast.low_s > 80.0 && forecast.high_s < 125.0, "{forecast:?}");
    }

    #[test]
    fn a_link_ten_times_as_fast_is_believed_after_three_transfers() {
        let mut link = Link::default();
        for _ in 0..40 {
            link.next(100.0);
        }
        for _ in 0..3 {
            link.next(10.0);
        }
        let forecast = link.next(10.0);
        assert!((8.0..14.0).contains(&forecast.likely_s), "{forecast:?}");
    }

    #[test]
    fn chances_grow_with_time() {
        let takes = [40.0, 46.0, 55.0];
        let chances = [20.0, 40.0, 43.0, 46.0, 50.0, 55.0, 80.0].map(|at| chance(at, takes));
        assert!(chances.is_sorted(), "{chances:?}");
        assert!(chances[0] < 0.01 && chances[6] > 0.98, "{chances:?}");
        for (at, wanted) in [(1, 0.1), (3, 0.5), (5, 0.9)] {
            assert!((chances[at] - wanted).abs() < 1e-9, "{chances:?}");
        }
        assert_eq!([9.9, 10.0].map(|at| chance(at, [10.0; 3]) > 0.5), [false, true]);
        assert!(chance(5.0, [0.0, 0.0, 0.0]) > 0.9 && !chance(f64::MAX, takes).is_nan());
    }
}
