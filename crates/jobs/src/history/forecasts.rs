//! Forecasts from the history of a user's transfers.

use std::collections::BTreeMap;

use swath_plan::forecast::{Cost, Forecast, Numbers, Outcome, Planned, Replay, TRAITS};
use swath_state::{PastTransfer, Transfer};
use swath_transfer::observe::Eta;

use super::begin::is_tuned;

/// What was learned from the history.
#[derive(Debug, Default)]
pub struct Forecasts {
    replay: Replay,
    pairs: Numbers<(String, String)>,
    kinds: Numbers<String>,
    places: Numbers<String>,
    /// Transfers that run now, and their bytes.
    beside: (u32, u64),
    /// What the history and the replay call those that run.
    running: BTreeMap<i64, u64>,
}

impl Forecasts {
    /// Learns from the transfers of a history, which are in the order of their starts.
    pub fn learn(history: &[PastTransfer]) -> Forecasts {
        let mut forecasts = Forecasts::default();
        let newest = &history[history.len().saturating_sub(LEARNED_MAX)..];
        // The forest is grown before the last fifth, which shows how good it is, and again at the end.
        let first_growth = newest.len() * 4 / 5;
        for (at, past) in newest.iter().enumerate() {
            forecasts.replay.advance(past.transfer.begun_s);
            if at == first_growth {
                forecasts.replay.forecaster().learn();
            }
            if is_tuned(past) {
                continue;
            }
            let planned = forecasts.planned(&past.transfer, past.beside, past.beside_bytes);
            let outcome = match &past.ended {
                // A transfer that was slowed down on purpose does not tell what is possible.
                Some(ended) if is_held_back(&past.transfer, ended.took_s) => {
                    Outcome::Failed { after_s: ended.took_s }
                }
                Some(ended) if ended.is_complete => Outcome::Took { seconds: ended.took_s },
                Some(ended) => Outcome::Failed { after_s: ended.took_s },
                None => {
                    forecasts.beside.0 += 1;
                    forecasts.beside.1 = forecasts.beside.1.saturating_add(past.transfer.bytes);
                    forecasts.running.insert(past.id, forecasts.replay.next());
                    Outcome::Running
                }
            };
            forecasts.replay.begin(&planned, outcome);
        }
        forecasts.replay.advance(f64::INFINITY);
        forecasts.replay.forecaster().learn();
        forecasts
    }

    /// Returns a forecast of a transfer that begins now. `prior` is what it costs if the history
    /// does not know.
    pub fn forecast(&mut self, transfer: &Transfer, prior: Option<Cost>) -> Forecast {
        let (beside, beside_bytes) = self.beside;
        let planned = Planned { prior, ..self.planned(transfer, beside, beside_bytes) };
        let forecast = self.replay.forecaster().forecast(&planned);
        let least_s = least_s(transfer).unwrap_or(0.0);
        let low_s = forecast.low_s.max((1.0 - OF_LIMIT) * least_s);
        let likely_s = forecast.likely_s.max(least_s);
        let high_s = forecast.high_s.max((1.0 + OF_LIMIT) * least_s);
        Forecast { low_s, likely_s, high_s, ..forecast }
    }

    /// A transfer begins, which the history calls `id`.
    pub fn begin(&mut self, id: i64, transfer: &Transfer) {
        let (beside, beside_bytes) = self.beside;
        let planned = self.planned(transfer, beside, beside_bytes);
        self.running.insert(id, self.replay.next());
        self.replay.begin(&planned, Outcome::Running);
    }

    /// Notes which transfers run now.
    pub fn see_running(&mut self, now: &[PastTransfer]) {
        let is_over = |id: &i64| now.iter().all(|past| past.id != *id);
        let over: Vec<i64> = self.running.keys().copied().filter(is_over).collect();
        for number in over.iter().filter_map(|id| self.running.remove(id)) {
            // How long it took does not matter any more.
            self.replay.forecaster().end(number, None);
        }
        for past in now {
            if !self.running.contains_key(&past.id) {
                self.begin(past.id, &past.transfer);
            }
        }
    }

    /// Returns how long a transfer that runs still takes, `at_s` seconds after its start, with this part
    /// of it done and this measured.
    pub fn left(&mut self, id: i64, at_s: f64, done_part: f64, measured: &Eta) -> Option<Eta> {
        let number = *self.running.get(&id)?;
        self.replay.forecaster().left(number, at_s, done_part, measured)
    }

    fn planned(&mut self, transfer: &Transfer, beside: u32, beside_bytes: u64) -> Planned {
        let mut traits = [f32::NAN; TRAITS];
        traits[0] = beside as f32;
        traits[1] = (beside_bytes as f32).ln_1p();
        // The day of the week; 0 is Thursday, with which 1970 began.
        traits[3] = transfer.from.split(' ').count() as f32;
        traits[2] = ((transfer.begun_s / 86_400.0).floor() as i64).rem_euclid(7) as f32;
        Planned {
            at_s: transfer.begun_s,
            bytes: transfer.bytes as f64,
            files: transfer.files as f64,
            pair: self.pairs.of((transfer.from.clone(), transfer.to.clone())),
            kind: self.kinds.of(transfer.kind.clone()),
            from: transfer.from.split(' ').map(|place| self.places.of(place.to_owned())).collect(),
            to: Some(self.places.of(transfer.to.clone())),
            prior: None,
            traits,
        }
    }
}

/// Returns whether the limit alone decides how long a transfer with a limited rate takes.
pub(crate) fn is_set_by_limit(low_s: f64, likely_s: f64) -> bool {
    low_s >= (1.0 - OF_LIMIT) * likely_s
}

/// Returns how long a transfer takes at least, at the rate that the user allows.
fn least_s(transfer: &Transfer) -> Option<f64> {
    transfer.limit_bytes_per_s.map(|limit| transfer.bytes as f64 / limit.max(1) as f64)
}

/// Whether a transfer was about as fast as the user allowed.
fn is_held_back(transfer: &Transfer, took_s: f64) -> bool {
    least_s(transfer).is_some_and(|least_s| took_s < HELD_BACK * least_s)
}

/// A limited rate is kept within this part.
const OF_LIMIT: f64 = 0.03;

/// Without the limit it might have taken less, if it took no more than so many times the least.
const HELD_BACK: f64 = 1.25;

/// The newest transfers, from which forecasts are learned: so many take half a second.
const LEARNED_MAX: usize = 5_000;
