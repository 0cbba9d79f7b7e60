//! Scenarios written as they are told: "seven sites; after five seconds Denver is gone".
//!
//! ```
//! use swath_netlab::map::MapSpec;
//! use swath_netlab::routes::RouteScript;
//!
//! RouteScript::on(MapSpec::seven_sites())
//!     .size_mb(100)
//!     .at_s(2.0).relay("Denver").dies()
//!     .run()
//!     .expect(|it| it.first().finished);
//! ```
//!
//! Before the first `at_s` a step says what a site or a link is like; after it, what happens then.

use swath_plan::routes::{Mode, Reading, RouterConfig};

use super::net::{Change, Mood, Net};
use super::outcome::RouteOutcome;
use super::world;
use crate::map::MapSpec;

/// A scenario under construction.
#[derive(Clone, Debug)]
pub struct RouteScript {
    pub(super) map: MapSpec,
    pub(super) more_sources: Vec<usize>,
    pub(super) size_bytes: f64,
    pub(super) config: RouterConfig,
    pub(super) memory: Vec<(usize, usize, Reading)>,
    pub(super) transfers: usize,
    pub(super) apart_s: f64,
    pub(super) limit_s: f64,
    pub(super) share_memory: bool,
    pub(super) changes: Vec<(f64, Change)>,
    swing: f64,
    lies: Vec<(usize, f64)>,
    misleads: Vec<usize>,
    answers_s: f64,
    sends: Vec<(usize, f64)>,
    receives: Vec<(usize, f64)>,
    at_s: f64,
    site: usize,
    edge: (usize, usize),
}

impl RouteScript {
    /// One transfer of 100 MB on a map.
    pub fn on(map: MapSpec) -> Self {
        Self {
            map,
            more_sources: Vec::new(),
            size_bytes: 100e6,
            config: RouterConfig { seed: 1, ..RouterConfig::default() },
            memory: Vec::new(),
            transfers: 1,
            apart_s: 0.0,
            limit_s: 3600.0,
            share_memory: false,
            changes: Vec::new(),
            swing: 0.0,
            lies: Vec::new(),
            misleads: Vec::new(),
            answers_s: 0.0,
            sends: Vec::new(),
            receives: Vec::new(),
            at_s: 0.0,
            site: 0,
            edge: (0, 0),
        }
    }

    /// Size of the file.
    pub fn size_mb(mut self, size_mb: u64) -> Self {
        self.size_bytes = size_mb as f64 * 1e6;
        self
    }

    /// Which ways may be used.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.config.mode = mode;
        self
    }

    /// Seed of all draws.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Changes the router's settings.
    pub fn config(mut self, change: impl FnOnce(&mut RouterConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// So many transfers, each beginning so much after the one before it.
    pub fn transfers(mut self, count: usize, apart_s: f64) -> Self {
        (self.transfers, self.apart_s) = (count, apart_s);
        self
    }

    /// What one of them learns the others hear within a second, as from the state of one machine.
    pub fn share_memory(mut self) -> Self {
        self.share_memory = true;
        self
    }

    /// It ends after this, finished or not.
    pub fn limit_s(mut self, limit_s: f64) -> Self {
        self.limit_s = limit_s;
        self
    }

    /// Rates swing by this part, within about a second.
    pub fn swing(mut self, part: f64) -> Self {
        self.swing = part;
        self
    }

    /// A further replica is at this site, which is no relay then.
    pub fn replica_at(mut self, name: &str) -> Self {
        let site = self.known(name);
        self.more_sources.push(site);
        self
    }

    /// What a site sends in all, in Mbit/s.
    pub fn sends(mut self, name: &str, mbit: f64) -> Self {
        self.sends.push((self.known(name), mbit * 125e3));
        self
    }

    /// What a site receives in all, in Mbit/s.
    pub fn receives(mut self, name: &str, mbit: f64) -> Self {
        self.receives.push((self.known(name), mbit * 125e3));
        self
    }

    /// What is remembered: from, to (positions in the map), reading.
    pub fn remembers(mut self, memory: &[(usize, usize, Reading)]) -> Self {
        self.memory = memory.to_vec();
        self
    }

    /// What is remembered is as plausible as this, and says the contrary: the widest edge has the
    /// least of the rates, the second widest the second least, and so on.
    pub fn misremembers(self, memory: &[(usize, usize, Reading)]) -> Self {
        let mut ranked = memory.to_vec();
        ranked.sort_by(|a, b| a.2.rate_bytes_per_s.total_cmp(&b.2.rate_bytes_per_s));
        let rates: Vec<f64> = ranked.iter().rev().map(|it| it.2.rate_bytes_per_s).collect();
        for (remembered, rate) in ranked.iter_mut().zip(rates) {
            remembered.2.rate_bytes_per_s = rate;
        }
        self.remembers(&ranked)
    }

    /// From now on steps tell of this moment.
    pub fn at_s(mut self, at_s: f64) -> Self {
        self.at_s = at_s;
        self
    }

    /// The next steps are about this relay.
    pub fn relay(mut self, name: &str) -> Self {
        self.site = self.known(name);
        self
    }

    /// The next steps are about this direction of a link.
    pub fn edge(mut self, from: &str, to: &str) -> Self {
        self.edge = (self.known(from), self.known(to));
        self
    }

    /// Nothing comes from the relay any more, nor does it say so.
    pub fn dies(self) -> Self {
        let (site, mood) = (self.site, Mood::Silent);
        self.happens(Change::Mood { site, mood })
    }

    /// The relay resets what there is and refuses what is new.
    pub fn refuses(self) -> Self {
        let (site, mood) = (self.site, Mood::Refuses);
        self.happens(Change::Mood { site, mood })
    }

    /// The relay is well again.
    pub fn recovers(self) -> Self {
        let (site, mood) = (self.site, Mood::Well);
        self.happens(Change::Mood { site, mood })
    }

    /// The relay changes what passes.
    pub fn corrupts(self) -> Self {
        let site = self.site;
        self.happens(Change::Corrupts { site, corrupts: true })
    }

    /// The relay multiplies what it reports, from the beginning.
    pub fn lies(mut self, times: f64) -> Self {
        self.lies.push((self.site, times));
        self
    }

    /// Relays take so long to answer whether they are well.
    pub fn answers_after_s(mut self, answers_s: f64) -> Self {
        self.answers_s = answers_s;
        self
    }

    /// The relay says that it was held up when it was not, and the other way round, from the beginning:
    /// who believes it takes another hop for the narrow one.
    pub fn misleads(mut self) -> Self {
        self.misleads.push(self.site);
        self
    }

    /// The edge has this rate.
    pub fn mbit(self, mbit: f64) -> Self {
        let (from, to) = self.edge;
        self.happens(Change::Rate { from, to, bytes_per_s: mbit * 125e3 })
    }

    fn happens(mut self, change: Change) -> Self {
        self.changes.push((self.at_s, change));
        self
    }

    fn known(&self, name: &str) -> usize {
        self.map.site(name).unwrap_or_else(|| panic!("no site {name} on this map"))
    }

    pub(super) fn sources(&self) -> Vec<usize> {
        std::iter::once(self.map.source).chain(self.more_sources.iter().copied()).collect()
    }

    /// The network as it is at the beginning.
    pub(super) fn net(&self) -> Net {
        let mut net = Net::new(&self.map, self.config.seed);
        net.swing = self.swing;
        net.answers_s = self.answers_s;
        self.lies.iter().for_each(|&(site, times)| net.lies[site] = times);
        self.misleads.iter().for_each(|&site| net.misleads[site] = true);
        self.sends.iter().for_each(|&(site, rate)| net.sends[site] = rate);
        self.receives.iter().for_each(|&(site, rate)| net.receives[site] = rate);
        for (_, change) in self.changes.iter().filter(|change| change.0 <= 0.0) {
            net.apply(*change);
        }
        net
    }

    /// Simulates it.
    pub fn run(&self) -> RouteOutcome {
        world::run(self)
    }
}
