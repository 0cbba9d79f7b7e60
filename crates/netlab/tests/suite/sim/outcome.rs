//! What a simulated transfer came to, and the yardsticks: the bound and the oracle.

use std::fmt;

use swath_model::{LaneId, Time};

use super::link::Link;
use super::scenario::Scenario;
use super::server::{Change, Mood};

/// How a simulated transfer ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Every byte was delivered; otherwise no source was left.
    pub finished: bool,
    /// When it ended, in seconds.
    pub time_s: f64,
    /// Bytes over the sum of the links' rates (their integral where they change).
    pub bound_s: f64,
    /// The same links, one connection each, every share known in advance.
    pub oracle_s: f64,
    /// Bytes that came although they were here already.
    pub duplicate_bytes: u64,
    /// Bytes that came behind a trimmed end.
    pub drained_bytes: u64,
    /// Bytes asked for twice although the first lane was lively.
    pub hedged_bytes: u64,
    /// Requests sent.
    pub requests: u64,
    /// Connections asked for.
    pub lanes_opened: u64,
    /// Most lanes open at once at one source.
    pub lanes_peak: usize,
    /// Bytes that counted, by source.
    pub delivered_bytes: Vec<u64>,
    /// Hash of every action and its time.
    pub fingerprint: u64,
}

impl Outcome {
    /// Returns how many times the bound it took.
    pub fn time_over_bound(&self) -> f64 {
        self.time_s / self.bound_s
    }

    /// Returns how many times the oracle's time it took.
    pub fn time_over_oracle(&self) -> f64 {
        self.time_s / self.oracle_s
    }

    /// Checks a statement about the outcome; the outcome is printed if it does not hold.
    ///
    /// # Panics
    /// When the statement does not hold.
    #[track_caller]
    pub fn expect(self, statement: impl FnOnce(&Outcome) -> bool) -> Outcome {
        assert!(statement(&self), "not as expected:\n{self}");
        self
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} in {:.3} s = {:.3} x bound = {:.3} x oracle; {} requests on {} lanes (at most {} at one source), \
             duplicates {} kB, drained {} kB, hedged {} kB; shares {:?} MB",
            if self.finished { "finished" } else { "exhausted" },
            self.time_s,
            self.time_over_bound(),
            self.time_over_oracle(),
            self.requests,
            self.lanes_opened,
            self.lanes_peak,
            self.duplicate_bytes / 1000,
            self.drained_bytes / 1000,
            self.hedged_bytes / 1000,
            self.delivered_bytes.iter().map(|bytes| bytes / 1_000_000).collect::<Vec<_>>(),
        )
    }
}

/// A rule that was broken, with what led to it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("at {at_s:.3} s: {what}\nscenario: {scenario}\nlast steps:\n{steps}")]
pub struct Violation {
    /// When, in seconds.
    pub at_s: f64,
    /// What is wrong.
    pub what: String,
    /// The scenario, to run it again.
    pub scenario: String,
    /// The last events and actions.
    pub steps: String,
}

/// The rate at which a source can deliver between its changes, for the bound.
#[derive(Clone, Copy)]
struct Ability {
    rate: f64,
    silent: bool,
    mood: Mood,
}

impl Ability {
    fn rate(self) -> f64 {
        if self.silent || self.mood != Mood::Well { 0.0 } else { self.rate }
    }
}

/// When the links could have carried all that is missing; infinite if never.
pub(super) fn bound_s(scenario: &Scenario) -> f64 {
    let mut left = scenario.missing_bytes() as f64;
    let mut abilities: Vec<Ability> = scenario
        .sources
        .iter()
        .map(|source| Ability {
            rate: source.link.rate_bytes_per_s,
            silent: false,
            mood: source.mood,
        })
        .collect();
    let mut at_s = 0.0;
    for (next_s, source, change) in &scenario.changes {
        let rate: f64 = abilities.iter().map(|ability| ability.rate()).sum();
        let step_s = (next_s - at_s).max(0.0);
        if rate * step_s >= left {
            break;
        }
        left -= rate * step_s;
        at_s += step_s;
        let Some(ability) = abilities.get_mut(*source) else { continue };
        match change {
            Change::Rate(rate) => ability.rate = *rate,
            Change::Silent(silent) => ability.silent = *silent,
            Change::Mood(mood) => ability.mood = *mood,
            Change::Bad => ability.rate = 0.0,
            Change::Reset | Change::Corrupt(_) => {}
        }
    }
    let rate: f64 = abilities.iter().map(|ability| ability.rate()).sum();
    if left <= 0.0 { at_s } else { at_s + left / rate }
}

/// One connection on each link from the start, each given its perfect share: the time at which
/// all together have brought what is missing. Infinite if they would need more than `limit_s`.
pub(super) fn oracle_s(scenario: &Scenario, limit_s: f64) -> f64 {
    let missing_bytes = scenario.missing_bytes();
    let mut rng = fastrand::Rng::with_seed(scenario.seed);
    let mut links: Vec<(Link, bool)> =
        scenario.sources.iter().map(|s| (Link::new(&s.link), s.mood == Mood::Well)).collect();
    let lane = LaneId(0);
    let (mut came_bytes, mut next_change) = (0, 0);
    let mut arrived = Vec::new();
    let steps = (limit_s / scenario.step_s) as u64;
    for step in 1..=steps {
        let now = Time::from_secs_f64(step as f64 * scenario.step_s);
        while let Some((at_s, source, change)) = scenario.changes.get(next_change) {
            if *at_s > now.as_secs_f64() {
                break;
            }
            next_change += 1;
            let Some((link, well)) = links.get_mut(*source) else { continue };
            match change {
                Change::Rate(rate) => link.rate_bytes_per_s = *rate,
                Change::Silent(silent) => link.set_silent(*silent, now),
                Change::Mood(mood) => *well = *mood == Mood::Well,
                Change::Bad => *well = false,
                Change::Reset | Change::Corrupt(_) => {}
            }
        }
        for (link, well) in &mut links {
            // Handshake, then the request's way there; the answer's way back is the link's own.
            let starts = Time::from_secs_f64(1.5 * link.rtt_s());
            if *well && now >= starts {
                if now.secs_since(starts) < scenario.step_s {
                    link.open(lane);
                    link.send(lane, u64::MAX / 2);
                }
                link.step(now, scenario.step_s, &mut rng, &mut arrived);
            }
        }
        came_bytes += arrived.drain(..).map(|(_, bytes)| bytes).sum::<u64>();
        if came_bytes >= missing_bytes {
            return now.as_secs_f64();
        }
    }
    f64::INFINITY
}
