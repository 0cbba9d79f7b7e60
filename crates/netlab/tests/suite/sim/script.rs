//! Scenarios written as they are told: "a star of six links; after two seconds the fastest has a
//! tenth of its rate".
//!
//! ```
//! use crate::sim::Script;
//!
//! Script::star(&[20.0, 40.0, 60.0])
//!     .size_mib(8)
//!     .at_s(0.5).link(2).rate_mbit(6.0)
//!     .run()
//!     .unwrap()
//!     .expect(|it| it.finished && it.time_over_oracle() < 1.5);
//! ```
//!
//! Before the first `at_s` a step says what a link is like; after it, what happens to it then.

use std::time::Duration;

use swath_model::{Range, RangeSet};
use swath_plan::{Config, Lanes, PolicyKind};

use super::link::LinkSpec;
use super::outcome::{Outcome, Violation};
use super::scenario::Scenario;
use super::server::{Change, Mood, SourceSpec};

/// A scenario under construction.
#[derive(Clone, Debug)]
pub struct Script {
    scenario: Scenario,
    at_s: Option<f64>,
    links: std::ops::Range<usize>,
}

/// Returns a source that does everything right, behind a link of `rate_mbit` and `delay_ms` one way.
pub fn honest(rate_mbit: f64, delay_ms: f64) -> SourceSpec {
    SourceSpec {
        link: LinkSpec {
            rate_bytes_per_s: rate_mbit * 125_000.0,
            delay_s: delay_ms / 1000.0,
            queue_s: 0.1,
            window_cap_bytes: None,
            loss: 0.0,
        },
        known_at_s: 0.0,
        ranges: true,
        pipelines: true,
        breaks_pipelining: false,
        requests_max: None,
        connections_max: None,
        think_s: 0.0005,
        resets_per_s: 0.0,
        mood: Mood::Well,
    }
}

impl Script {
    /// One link for each rate in Mbit/s; the slower, the longer (60 ms one way for the first,
    /// 10 ms less for each further one, at least 10), with queues of 100 ms.
    pub fn star(rates_mbit: &[f64]) -> Self {
        Self::of(
            rates_mbit
                .iter()
                .enumerate()
                .map(|(at, &rate)| honest(rate, (60.0 - 10.0 * at as f64).max(10.0)))
                .collect(),
        )
    }

    /// These sources.
    pub fn of(sources: Vec<SourceSpec>) -> Self {
        let links = 0..sources.len();
        Self {
            scenario: Scenario {
                size_bytes: 64 << 20,
                missing: None,
                config: Config::default(),
                sources,
                changes: Vec::new(),
                size_known: false,
                consumer_bytes_per_s: f64::INFINITY,
                keeps_surplus: false,
                limit_s: 300.0,
                step_s: 0.001,
                wants_oracle: true,
                seed: 1,
            },
            at_s: None,
            links,
        }
    }

    /// Size of the file.
    pub fn size_bytes(mut self, size_bytes: u64) -> Self {
        self.scenario.size_bytes = size_bytes;
        self
    }

    /// Size of the file in MiB.
    pub fn size_mib(self, size_mib: u64) -> Self {
        self.size_bytes(size_mib << 20)
    }

    /// Only this is missing.
    pub fn missing(mut self, missing: RangeSet) -> Self {
        self.scenario.missing = Some(missing);
        self
    }

    /// Seed of the random draws.
    pub fn seed(mut self, seed: u64) -> Self {
        self.scenario.seed = seed;
        self.scenario.config.seed = seed;
        self
    }

    /// The planner's policy.
    pub fn policy(mut self, policy: PolicyKind) -> Self {
        self.scenario.config.policy = policy;
        self
    }

    /// The planner's lanes.
    pub fn lanes(mut self, lanes: Lanes) -> Self {
        self.scenario.config.lanes = lanes;
        self
    }

    /// Changes the planner's configuration.
    pub fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.scenario.config);
        self
    }

    /// Changes the scenario.
    pub fn scenario(mut self, change: impl FnOnce(&mut Scenario)) -> Self {
        change(&mut self.scenario);
        self
    }

    /// An ordered consumer with this window and pace.
    pub fn window_mib(mut self, window_mib: u64, consumer_mbit: f64) -> Self {
        self.scenario.config.window_bytes = Some(window_mib << 20);
        self.scenario.consumer_bytes_per_s = consumer_mbit * 125_000.0;
        self
    }

    /// What follows happens at this time, in seconds.
    pub fn at_s(mut self, at_s: f64) -> Self {
        self.at_s = Some(at_s);
        self
    }

    /// What follows concerns this link.
    pub fn link(mut self, link: usize) -> Self {
        self.links = link..link + 1;
        self
    }

    /// What follows concerns every link.
    pub fn all(mut self) -> Self {
        self.links = 0..self.scenario.sources.len();
        self
    }

    /// The link's rate.
    pub fn rate_mbit(self, rate_mbit: f64) -> Self {
        let rate = rate_mbit * 125_000.0;
        self.step(|source| source.link.rate_bytes_per_s = rate, Change::Rate(rate))
    }

    /// Nothing passes the link.
    pub fn silent(self) -> Self {
        self.happens(Change::Silent(true))
    }

    /// The link carries again.
    pub fn back(self) -> Self {
        self.happens(Change::Silent(false))
    }

    /// All connections are reset and new ones refused.
    pub fn dies(self) -> Self {
        self.mood(Mood::Refuses).happens(Change::Reset)
    }

    /// Its connections are reset.
    pub fn resets(self) -> Self {
        self.happens(Change::Reset)
    }

    /// How the server treats new connections and requests.
    pub fn mood(self, mood: Mood) -> Self {
        self.step(|source| source.mood = mood, Change::Mood(mood))
    }

    /// 503 with a wish for patience.
    pub fn busy_s(self, wait_s: f64) -> Self {
        self.mood(Mood::Busy(Duration::from_secs_f64(wait_s)))
    }

    /// These bytes of it turn out to be bad.
    pub fn corrupt(self, range: Range) -> Self {
        self.happens(Change::Corrupt(range))
    }

    /// Changes what the link or its server is like from the start.
    pub fn is(mut self, change: impl Fn(&mut SourceSpec)) -> Self {
        for source in &mut self.scenario.sources[self.links.clone()] {
            change(source);
        }
        self
    }

    /// The server sends the whole file whatever is asked for.
    pub fn no_ranges(self) -> Self {
        self.is(|source| source.ranges = false)
    }

    /// One-way delay.
    pub fn delay_ms(self, delay_ms: f64) -> Self {
        self.is(|source| source.link.delay_s = delay_ms / 1000.0)
    }

    /// The server closes after so many answers.
    pub fn closes_after(self, answers: u32) -> Self {
        self.is(|source| source.requests_max = Some(answers))
    }

    /// Largest window of one connection.
    pub fn window_kib(self, window_kib: u64) -> Self {
        self.is(|source| source.link.window_cap_bytes = Some(window_kib << 10))
    }

    /// Probability that a packet is lost.
    pub fn loss(self, loss: f64) -> Self {
        self.is(|source| source.link.loss = loss)
    }

    fn step(self, now: impl Fn(&mut SourceSpec), later: Change) -> Self {
        if self.at_s.is_none() { self.is(now) } else { self.happens(later) }
    }

    fn happens(mut self, change: Change) -> Self {
        let at_s = self.at_s.unwrap_or(0.0);
        for link in self.links.clone() {
            self.scenario.changes.push((at_s, link, change.clone()));
        }
        self
    }

    /// The scenario as written so far.
    pub fn build(&self) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        scenario
    }

    /// Simulates it.
    ///
    /// # Errors
    /// The first rule that was broken.
    pub fn run(&self) -> Result<Outcome, Box<Violation>> {
        self.build().run()
    }
}
