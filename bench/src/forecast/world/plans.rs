//! Who transfers what and when: sites, and transfers between them over some weeks.

use super::background::Setting;
use super::random::{exponential, log_uniform, lognormal, zipf};

/// Sites and the transfers between them. A seed decides everything.
#[derive(Clone, Debug)]
pub struct World {
    /// The traffic of others.
    pub setting: Setting,
    /// What decides it all.
    pub seed: u64,
    /// The sites.
    pub sites: Vec<Site>,
    /// The transfers, in the order of their begins.
    pub plans: Vec<Plan>,
}

/// A place that serves and fetches.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// What its link carries, in bytes per second, for all who fetch from it.
    pub link_bytes_per_s: f64,
    /// Seconds until it is ready for a transfer, usually.
    pub start_s: f64,
    /// Seconds that its disk needs for each file.
    pub file_s: f64,
    /// Where it is, in milliseconds of light in a cable.
    place: (f64, f64),
}

/// A transfer that will happen.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When it begins, in seconds.
    pub at_s: f64,
    /// The sites that have the data.
    pub from: Vec<usize>,
    /// The site that fetches it.
    pub to: usize,
    /// What kind of dataset it is.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: u64,
    /// Its files.
    pub files: u64,
    /// Seconds until the sources are ready.
    pub start_s: f64,
}

/// What kind of dataset is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One file of 0.1 to 200 GB.
    File,
    /// A hundred files, 1 to 200 GB together.
    Large,
    /// Thousands of small files.
    Small,
}

impl Kind {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Large => "large",
            Kind::Small => "small",
        }
    }
}

/// Sites between which transfers are usual.
#[derive(Clone, Debug)]
struct Route {
    from: Vec<usize>,
    to: usize,
    kinds: Vec<Usual>,
}

/// What is usually transferred there.
#[derive(Clone, Copy, Debug)]
struct Usual {
    kind: Kind,
    bytes: f64,
    files: f64,
}

impl World {
    /// Returns the world of a seed, with so many transfers.
    pub fn of(setting: Setting, seed: u64, transfers: usize) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let sites: Vec<Site> = (0..SITES).map(|number| Site::new(number, &mut random)).collect();
        let routes: Vec<Route> = (0..ROUTES).map(|_| Route::new(&mut random)).collect();
        let mut plans = Vec::with_capacity(transfers);
        let mut at_s = 0.0;
        while plans.len() < transfers {
            at_s = next_arrival_s(at_s, &mut random);
            let route = &routes[zipf(&mut random, ROUTES, ZIPF)];
            // Some users hand in several transfers at once.
            let together = if random.u32(..10) == 0 { random.usize(2..=4) } else { 1 };
            let mut begin_s = at_s;
            for _ in 0..together {
                plans.push(route.plan(begin_s, &sites, &mut random));
                begin_s += exponential(&mut random, TOGETHER_S);
            }
        }
        plans.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        plans.truncate(transfers);
        World { setting, seed, sites, plans }
    }

    /// Returns the round trip between two sites, in seconds.
    pub fn rtt_s(&self, from: usize, to: usize) -> f64 {
        let ((ax, ay), (bx, by)) = (self.sites[from].place, self.sites[to].place);
        RTT_S_MIN + 2e-3 * (ax - bx).hypot(ay - by)
    }

    /// Returns the sites from which a transfer fetches, as one name.
    pub fn from(&self, plan: &Plan) -> String {
        let names: Vec<&str> = plan.from.iter().map(|&at| self.sites[at].name.as_str()).collect();
        names.join(" ")
    }
}

impl Site {
    fn new(number: usize, random: &mut fastrand::Rng) -> Site {
        Site {
            name: format!("site{number}.example"),
            link_bytes_per_s: log_uniform(random, LINK_BYTES_PER_S.0, LINK_BYTES_PER_S.1),
            start_s: log_uniform(random, 0.3, 4.0),
            file_s: log_uniform(random, 0.2e-3, 3e-3),
            place: (40.0 * random.f64(), 20.0 * random.f64()),
        }
    }
}

impl Route {
    fn new(random: &mut fastrand::Rng) -> Route {
        let mut sites: Vec<usize> = (0..SITES).collect();
        random.shuffle(&mut sites);
        let replicas = if random.u32(..4) == 0 { random.usize(2..=3) } else { 1 };
        let to = sites[replicas];
        sites.truncate(replicas);
        sites.sort_unstable();
        let kinds = (0..random.usize(1..=2)).map(|_| Usual::new(random)).collect();
        Route { from: sites, to, kinds }
    }

    fn plan(&self, at_s: f64, sites: &[Site], random: &mut fastrand::Rng) -> Plan {
        let usual = self.kinds[random.usize(..self.kinds.len())];
        let bytes = lognormal(random, usual.bytes, SIZE_SPREAD).clamp(BYTES.0, BYTES.1);
        let files = match usual.kind {
            Kind::File => 1.0,
            Kind::Large => 100.0,
            Kind::Small => (usual.files * bytes / usual.bytes).clamp(1e3, 1e5),
        };
        let slowest = self.from.iter().map(|&at| sites[at].start_s).fold(0.0, f64::max);
        let start_s = lognormal(random, slowest, START_SPREAD);
        let (from, to, kind) = (self.from.clone(), self.to, usual.kind);
        Plan { at_s, from, to, kind, bytes: bytes as u64, files: files as u64, start_s }
    }
}

impl Usual {
    fn new(random: &mut fastrand::Rng) -> Usual {
        let kind = [Kind::File, Kind::Large, Kind::Small][random.usize(..3)];
        let (bytes, files) = match kind {
            Kind::File => (log_uniform(random, 1e9, 40e9), 1.0),
            Kind::Large => (log_uniform(random, 4e9, 50e9), 100.0),
            Kind::Small => {
                let files = log_uniform(random, 3e3, 6e4);
                (files * log_uniform(random, 50e3, 1e6), files)
            }
        };
        Usual { kind, bytes, files }
    }
}

/// Returns when the next user comes: by a Poisson process that follows the day.
fn next_arrival_s(mut at_s: f64, random: &mut fastrand::Rng) -> f64 {
    loop {
        at_s += exponential(random, ARRIVAL_S_LEAST);
        let day = 0.5 - 0.5 * (at_s / 86_400.0 * std::f64::consts::TAU).cos();
        if random.f64() < 0.2 + 0.8 * day {
            return at_s;
        }
    }
}

const SITES: usize = 8;
/// Pairs of sites, and sets of replicas with who fetches from them, between which is transferred.
const ROUTES: usize = 20;
/// The first of them has a quarter of all transfers.
const ZIPF: f64 = 1.0;
/// Links, from the slowest to the fastest: 2 to 10 Gbit/s.
const LINK_BYTES_PER_S: (f64, f64) = (250e6, 1250e6);
/// The shortest round trip.
const RTT_S_MIN: f64 = 2e-3;
/// How much the sizes of datasets of one kind differ, as a natural logarithm.
const SIZE_SPREAD: f64 = 0.7;
/// How much the start-up of a site differs.
const START_SPREAD: f64 = 0.15;
/// The smallest and the largest dataset.
const BYTES: (f64, f64) = (100e6, 200e9);
/// Mean time between transfers that one user hands in at once.
const TOGETHER_S: f64 = 10.0;
/// Mean time between users when the day is busiest.
const ARRIVAL_S_LEAST: f64 = 700.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_is_what_its_seed_says() {
        let world = World::of(Setting::Steady, 5, 500);
        assert_eq!(format!("{world:?}"), format!("{:?}", World::of(Setting::Steady, 5, 500)));
        assert_eq!(world.plans.len(), 500);
        assert!(world.plans.is_sorted_by(|a, b| a.at_s <= b.at_s));
        for plan in &world.plans {
            assert!(!plan.from.contains(&plan.to) && (1..=3).contains(&plan.from.len()));
            assert!((100_000_000..=200_000_000_000).contains(&plan.bytes), "{plan:?}");
            let rtt_s = world.rtt_s(plan.from[0], plan.to);
            assert!((0.002..0.1).contains(&rtt_s), "{rtt_s}");
        }
        let pairs: Vec<_> = world.plans.iter().map(|plan| (&plan.from, plan.to)).collect();
        let most = pairs.iter().map(|one| pairs.iter().filter(|other| one == *other).count());
        assert!(most.max() > Some(80), "none dominates");
    }
}
