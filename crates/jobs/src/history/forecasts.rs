//! Forecasts from the history of a user's transfers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use swath_plan::forecast::{Cost, Forecast, Forecaster, Planned, TRAITS};
use swath_state::{PastTransfer, Transfer};

/// What was learned from the history.
pub struct Forecasts {
    forecaster: Forecaster,
    pairs: BTreeMap<(String, String), u32>,
    kinds: BTreeMap<String, u32>,
    /// Transfers that run now, and their bytes.
    beside: (u32, u64),
}

impl Forecasts {
    /// Learns from the transfers of a history, which are in the order of their begins: each in turn is
    /// forecast, and then told, as if it happened again.
    pub fn learn(history: &[PastTransfer]) -> Forecasts {
        let mut forecasts = Forecasts {
            forecaster: Forecaster::default(),
            pairs: BTreeMap::new(),
            kinds: BTreeMap::new(),
            beside: (0, 0),
        };
        let newest = &history[history.len().saturating_sub(LEARNED_MAX)..];
        // Once before the last ones, so that they show what it is worth, and once after them.
        let first_growth = newest.len() * 4 / 5;
        let mut ends: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
        let mut took = BTreeMap::new();
        for (at, past) in newest.iter().enumerate() {
            forecasts.tell_ends(&mut ends, &mut took, past.transfer.begun_s);
            if at == first_growth {
                forecasts.forecaster.learn();
            }
            let planned = forecasts.planned(&past.transfer, past.beside, past.beside_bytes);
            let id = at as u64;
            forecasts.forecaster.begin(id, &planned);
            match &past.ended {
                Some(ended) => {
                    let end_s = past.transfer.begun_s + ended.took_s;
                    took.insert(id, ended.is_complete.then_some(ended.took_s));
                    ends.push(Reverse(((end_s * 1e3) as u64, id)));
                }
                None => {
                    forecasts.beside.0 += 1;
                    forecasts.beside.1 += past.transfer.bytes;
                }
            }
        }
        forecasts.tell_ends(&mut ends, &mut took, f64::INFINITY);
        forecasts.forecaster.learn();
        forecasts
    }

    /// Returns a forecast of a transfer that begins now. `believed` is what it costs if the history
    /// does not know.
    pub fn forecast(&mut self, transfer: &Transfer, believed: Cost) -> Forecast {
        let (beside, beside_bytes) = self.beside;
        let planned = Planned { believed, ..self.planned(transfer, beside, beside_bytes) };
        self.forecaster.forecast(&planned)
    }

    fn tell_ends(
        &mut self,
        ends: &mut BinaryHeap<Reverse<(u64, u64)>>,
        took: &mut BTreeMap<u64, Option<f64>>,
        until_s: f64,
    ) {
        while ends.peek().is_some_and(|Reverse((end, _))| *end as f64 <= until_s * 1e3) {
            let Some(Reverse((_, id))) = ends.pop() else { return };
            self.forecaster.end(id, took.remove(&id).flatten());
        }
    }

    fn planned(&mut self, transfer: &Transfer, beside: u32, beside_bytes: u64) -> Planned {
        let mut traits = [f32::NAN; TRAITS];
        traits[0] = beside as f32;
        traits[1] = (beside_bytes as f32).ln_1p();
        // Saturday is the day 0 of 1970 minus five.
        traits[2] = ((transfer.begun_s / 86_400.0).floor() as i64).rem_euclid(7) as f32;
        Planned {
            at_s: transfer.begun_s,
            bytes: transfer.bytes as f64,
            files: transfer.files as f64,
            pair: number(&mut self.pairs, (transfer.from.clone(), transfer.to.clone())),
            kind: number(&mut self.kinds, transfer.kind.clone()),
            believed: Cost::default(),
            traits,
        }
    }
}

/// Numbers names in the order of their first use.
fn number<K: Ord>(numbers: &mut BTreeMap<K, u32>, key: K) -> u32 {
    let next = numbers.len() as u32;
    *numbers.entry(key).or_insert(next)
}

/// The newest transfers, from which forecasts are learned: so many take half a second.
const LEARNED_MAX: usize = 5_000;
