//! Sites that each have one access link to a core network, as institutes have.
//!
//! Whatever a site sends shares its upload rate and whatever it receives its download rate, with
//! all other sites at once; the core is never the narrow place. Site `i` (from 0) is a namespace
//! with the address `10.80.0.(i+1)`. The round-trip time between two sites is twice the sum of
//! their one-way delays. Devices have segmentation offload, so that the machine can carry many
//! sites: the segments of one read are queued, delayed and delivered together, and count as what
//! they are on a wire. Everything goes away when the value is dropped, or when the process dies
//! in any other way.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::wan::{CoreLink, Engine, LabError, LinkCounters, Namespace, Queue, Shape, Tun};

/// A site's link to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSpec {
    /// From the core to the site, in bits a second on the wire.
    pub down_bits_per_s: u64,
    /// From the site to the core.
    pub up_bits_per_s: u64,
    /// Between the site and the core.
    pub one_way_delay: Duration,
}

impl AccessSpec {
    /// Returns a link with the same rate in both directions.
    pub const fn new(rate_mbit_per_s: u64, one_way_delay: Duration) -> Self {
        let rate = rate_mbit_per_s * 1_000_000;
        Self { down_bits_per_s: rate, up_bits_per_s: rate, one_way_delay }
    }

    fn shape(&self, rate_bits_per_s: u64) -> Shape {
        let queue = Queue::Time(QUEUE);
        Shape { queue, ..Shape::new(rate_bits_per_s, self.one_way_delay) }
    }
}

/// Sites and their links, running until dropped.
#[derive(Debug)]
pub struct Access {
    // The engine goes first: it holds the devices that live in the namespaces.
    engine: Engine,
    sites: Vec<Namespace>,
}

impl Access {
    /// Builds the sites and starts their links.
    pub fn start(specs: &[AccessSpec]) -> Result<Self, LabError> {
        let process = std::process::id();
        let mut sites = Vec::new();
        let mut links = Vec::new();
        for (position, spec) in specs.iter().enumerate() {
            let bad = |reason| Err(LabError::BadLink { link: position + 1, reason });
            if position >= MAX_SITES {
                return bad("a core network has at most 250 sites");
            }
            if spec.down_bits_per_s == 0 || spec.up_bits_per_s == 0 {
                return bad("a rate is zero");
            }
            let site = Namespace::new(format!("netlab-{process}-site{}", position + 1))?;
            // Makes runs independent of each other: no memory of earlier connections.
            site.set_parameter("net.ipv4.tcp_no_metrics_save", "1")?;
            let address = address(position);
            links.push(CoreLink {
                site: site.run(|| Tun::create_with_offload("core", address, PREFIX_BITS))?,
                address,
                down: spec.shape(spec.down_bits_per_s),
                up: spec.shape(spec.up_bits_per_s),
            });
            sites.push(site);
        }
        let engine = Engine::start_core(links, SEED)?;
        Ok(Self { engine, sites })
    }

    /// Returns the namespace of a site.
    pub fn site(&self, position: usize) -> &Namespace {
        &self.sites[position]
    }

    /// Returns where the other sites reach a site.
    pub fn address(&self, position: usize) -> Ipv4Addr {
        address(position)
    }

    /// Returns what every link has carried and dropped so far; `up` is from the site to the core.
    pub fn counters(&self) -> Vec<LinkCounters> {
        self.engine.counters()
    }

    /// Processor time of the emulator so far.
    pub fn engine_cpu_time(&self) -> Duration {
        self.engine.cpu_time()
    }
}

fn address(position: usize) -> Ipv4Addr {
    // `Access::start` has bounded the number of sites.
    Ipv4Addr::new(10, 80, 0, (position + 1) as u8)
}

const MAX_SITES: usize = 250;
const PREFIX_BITS: u8 = 24;
/// Of each direction of each link.
const QUEUE: Duration = Duration::from_millis(100);
/// Nothing is lost at random.
const SEED: u64 = 1;
