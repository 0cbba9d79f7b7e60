//! What is known when a transfer begins: itself, those that run, and those that have ended.

use std::collections::{BTreeMap, VecDeque};

use super::cost::Cost;
use super::forest::quantile_of;

/// A transfer before it begins.
#[derive(Clone, Debug)]
pub struct Planned {
    /// When it begins, in seconds since 1970.
    pub at_s: f64,
    /// Its bytes.
    pub bytes: f64,
    /// Its files.
    pub files: f64,
    /// Between which places: numbered by the caller, from 0 in the order of their first transfers.
    pub pair: u32,
    /// Which kind of transfer, numbered like the pairs.
    pub kind: u32,
    /// The places that send, numbered like the pairs.
    pub from: Vec<u32>,
    /// The place that receives, numbered like those that send, if it is known.
    pub to: Option<u32>,
    /// The cost to assume if no transfer between these places has ended yet, if it was measured.
    pub prior: Option<Cost>,
    /// Whatever else is known, each place with one meaning; NaN where nothing is.
    pub traits: [f32; TRAITS],
}

impl Planned {
    fn group(&self) -> (u32, u32) {
        (self.pair, self.kind)
    }
}

/// How many further facts of a transfer are looked at.
pub const TRAITS: usize = 8;

/// What forecasts are made from, each at a fixed place. Times are in seconds, sizes and rates are
/// natural logarithms; what is unknown is NaN.
pub(super) type Features = [f32; COLUMNS];

/// Number of [`Features`].
pub(super) const COLUMNS: usize = 29 + TRAITS;

/// Those that run and those that have ended, as far as they matter for the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    running: BTreeMap<u64, Planned>,
    /// By pair and kind.
    groups: BTreeMap<(u32, u32), Recent>,
    /// By pair.
    pairs: BTreeMap<u32, Recent>,
    all: Recent,
}

impl Past {
    /// A transfer begins.
    pub(super) fn begin(&mut self, id: u64, planned: &Planned) {
        self.running.retain(|_, one| planned.at_s - one.at_s < RUNNING_S_MAX);
        if self.running.len() == RUNNING_MAX {
            self.running.pop_first();
        }
        self.running.insert(id, planned.clone());
        for recent in self.recents(planned) {
            recent.begin(planned);
        }
    }

    /// A transfer that has begun is over; `took_s` is `None` if it failed.
    pub(super) fn end(&mut self, id: u64, planned: &Planned, took_s: Option<f64>) {
        self.running.remove(&id);
        let Some(took_s) = took_s else { return };
        for recent in self.recents(planned) {
            recent.end(planned, took_s);
        }
    }

    fn recents(&mut self, planned: &Planned) -> [&mut Recent; 3] {
        forget_oldest(&mut self.groups, &planned.group());
        forget_oldest(&mut self.pairs, &planned.pair);
        let group = self.groups.entry(planned.group()).or_default();
        [group, self.pairs.entry(planned.pair).or_default(), &mut self.all]
    }

    /// Returns what is known of a transfer that begins now; `own` is the logarithm of what its parts
    /// cost, of how much more that is because of what runs beside it, and how far off costs are now.
    pub(super) fn features(&self, planned: &Planned, own: [f64; 3]) -> Features {
        let none = Recent::default();
        let now = planned.at_s;
        let group = self.groups.get(&planned.group()).unwrap_or(&none);
        let pair = self.pairs.get(&planned.pair).unwrap_or(&none);
        let (mut count, mut bytes, mut own_count, mut own_bytes) = (0, 0.0, 0, 0.0);
        let (mut oldest_own, mut oldest_pair) = (f64::NAN, f64::NAN);
        for one in self.running.values() {
            count += 1;
            bytes += one.bytes;
            if one.pair == planned.pair {
                oldest_pair = oldest_pair.max(now - one.at_s);
            }
            if one.group() == planned.group() {
                own_count += 1;
                own_bytes += one.bytes;
                oldest_own = oldest_own.max(now - one.at_s);
            }
        }
        let known = [
            planned.bytes.ln_1p(),
            planned.files.ln_1p(),
            planned.pair.into(),
            planned.kind.into(),
            (now / 3600.0) % 24.0,
            own[0],
            own[1],
            own[2],
            // What runs.
            f64::from(count),
            bytes.ln_1p(),
            f64::from(own_count),
            own_bytes.ln_1p(),
            oldest_own,
            oldest_pair,
            // What has begun.
            pair.burst_age_s(now),
            pair.since_begin_s(now),
            group.since_begin_s(now),
            self.all.since_begin_s(now),
            group.begun_bytes(now).ln_1p(),
            // What has ended.
            group.like(planned.bytes),
            pair.like(planned.bytes),
            group.queue_age_min_s(now),
            pair.queue_age_min_s(now),
            group.queue_age_s(now, 0),
            pair.queue_age_s(now, 0),
            pair.queue_age_s(now, 1),
            group.last_took(),
            group.rate(),
            self.all.rate(),
        ];
        let mut features = [f32::NAN; COLUMNS];
        for (feature, known) in features.iter_mut().zip(known) {
            *feature = known as f32;
        }
        features[known.len()..].copy_from_slice(&planned.traits);
        features
    }
}

/// Makes room for another key, if it is new, by forgetting what was used longest ago.
fn forget_oldest<K: Ord + Copy>(recents: &mut BTreeMap<K, Recent>, key: &K) {
    if recents.len() < GROUPS_MAX || recents.contains_key(key) {
        return;
    }
    let used = |recent: &Recent| recent.begun.back().map_or(f64::NEG_INFINITY, |&(at, _)| at);
    let oldest = recents.iter().min_by(|a, b| used(a.1).total_cmp(&used(b.1)));
    if let Some(key) = oldest.map(|(key, _)| *key) {
        recents.remove(&key);
    }
}

/// The transfers of a group, a pair, or all.
#[derive(Clone, Debug, Default)]
struct Recent {
    /// Begin and bytes of those that began lately.
    begun: VecDeque<(f64, f64)>,
    /// When the first of those began that followed each other closely until now.
    burst_at: Option<f64>,
    /// Those that have ended, the newest last.
    ended: VecDeque<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    at_s: f64,
    bytes: f64,
    took_s: f64,
}

impl Ended {
    /// How long ago it would have had to begin, had its begin been noted only when it was ready.
    ///
    /// Transfers that are handed in together often are noted so: `begin − duration` is the same
    /// instant for all of them, when they were handed in, and the age of that instant is how long
    /// the next of them takes.
    fn queue_age_s(&self, now: f64) -> f64 {
        now - self.at_s + self.took_s
    }
}

impl Recent {
    fn begin(&mut self, planned: &Planned) {
        let now = planned.at_s;
        let goes_on = self.begun.back().is_some_and(|&(last, _)| now - last <= BURST_GAP_S);
        if !goes_on {
            self.burst_at = Some(now);
        }
        self.begun.push_back((now, planned.bytes));
        while self.begun.len() > BEGUN_MAX
            || self.begun.len() > 1 && self.begun.front().is_some_and(|&(at, _)| now - at > BEGUN_S)
        {
            self.begun.pop_front();
        }
    }

    fn end(&mut self, planned: &Planned, took_s: f64) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { at_s: planned.at_s, bytes: planned.bytes, took_s });
    }

    fn since_begin_s(&self, now: f64) -> f64 {
        self.begun.back().map_or(f64::NAN, |&(at, _)| now - at)
    }

    /// How long transfers have been following each other closely; 0 if they have not.
    fn burst_age_s(&self, now: f64) -> f64 {
        let goes_on = self.since_begin_s(now) <= BURST_GAP_S;
        self.burst_at.filter(|_| goes_on).map_or(0.0, |at| now - at)
    }

    fn begun_bytes(&self, now: f64) -> f64 {
        self.begun.iter().filter(|(at, _)| now - at <= BEGUN_S).map(|&(_, bytes)| bytes).sum()
    }

    fn queue_age_s(&self, now: f64, before_last: usize) -> f64 {
        self.ended.iter().rev().nth(before_last).map_or(f64::NAN, |ended| ended.queue_age_s(now))
    }

    fn queue_age_min_s(&self, now: f64) -> f64 {
        self.ended.iter().map(|ended| ended.queue_age_s(now)).fold(f64::NAN, f64::min)
    }

    /// The mean of what those took that were closest in size.
    fn like(&self, bytes: f64) -> f64 {
        let distance = |ended: &Ended| (ended.bytes.ln_1p() - bytes.ln_1p()).abs();
        let mut by_distance: Vec<(f64, f64)> =
            self.ended.iter().map(|ended| (distance(ended), ended.took_s.ln())).collect();
        by_distance.sort_by(|a, b| a.0.total_cmp(&b.0));
        by_distance.truncate(LIKE);
        let count = by_distance.len();
        by_distance.iter().map(|&(_, took)| took).sum::<f64>() / count as f64
    }

    fn last_took(&self) -> f64 {
        self.ended.back().map_or(f64::NAN, |ended| ended.took_s.ln())
    }

    /// The median rate of the last ones.
    fn rate(&self) -> f64 {
        let last = self.ended.iter().rev().take(RATES);
        let mut rates: Vec<f64> = last.map(|ended| (ended.bytes / ended.took_s).ln()).collect();
        quantile_of(&mut rates, 0.5).unwrap_or(f64::NAN)
    }
}

/// Transfers that follow each other within so many seconds belong together.
const BURST_GAP_S: f64 = 8.0;

/// For how long it counts that a transfer has begun.
const BEGUN_S: f64 = 1800.0;

/// Most begins that are remembered of each group.
const BEGUN_MAX: usize = 4096;

/// Transfers that are remembered after their end, of each group.
const ENDED_MAX: usize = 30;

/// How many of them are asked what a similar size took …
const LIKE: usize = 5;

/// … and how many for the usual rate.
const RATES: usize = 10;

/// Most groups, and most pairs.
const GROUPS_MAX: usize = 4096;

/// Most transfers that run.
const RUNNING_MAX: usize = 1024;

/// A transfer whose end was not told after a day does not run any more.
const RUNNING_S_MAX: f64 = 86_400.0;
