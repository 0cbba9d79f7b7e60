//! The running mesh: its namespaces, addresses and links.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::{MeshLink, MeshSpec};
use crate::wan::{
    Change, Engine, LabError, Link, LinkCounters, Namespace, OwnRoute, Schedule, Target, Tun,
};

/// A mesh that runs until it is dropped.
#[derive(Debug)]
pub struct Mesh {
    // The engine goes first: it holds the devices that live in the namespaces.
    engine: Engine,
    sites: Vec<Namespace>,
    spec: MeshSpec,
}

impl Mesh {
    /// Builds the sites and starts the links between them.
    pub fn start(spec: MeshSpec) -> Result<Self, LabError> {
        spec.check()?;
        let process = std::process::id();
        let mut sites = Vec::new();
        for (position, site) in spec.sites.iter().enumerate() {
            let namespace = Namespace::new(format!("netlab-{process}-{}", site.name))?;
            // Makes runs independent of each other: no memory of earlier connections.
            namespace.set_parameter("net.ipv4.tcp_no_metrics_save", "1")?;
            namespace.add_address(address(position))?;
            namespace.limit_buffers(site.send_buffer_bytes, site.receive_buffer_bytes)?;
            sites.push(namespace);
        }
        let mut links = Vec::new();
        for &MeshLink { near, far, down, up } in &spec.links {
            let end = |here: usize, there: usize| {
                let (name, own, peer) = (device(there), address(here), address(there));
                sites[here].run(|| Tun::create_toward(&name, own, peer, spec.has_offload))
            };
            links.push(Link { near: end(near, far)?, far: end(far, near)?, down, up });
        }
        for (position, (site, namespace)) in spec.sites.iter().zip(&sites).enumerate() {
            if let Some(name) = &site.congestion_control {
                namespace.set_congestion_control(name, &routes(&spec, position))?;
            }
        }
        let engine = Engine::start(links, spec.seed)?;
        Ok(Self { engine, sites, spec })
    }

    /// Returns what it was built from.
    pub fn spec(&self) -> &MeshSpec {
        &self.spec
    }

    /// Returns the namespace of a site, by its position.
    pub fn site(&self, position: usize) -> &Namespace {
        &self.sites[position]
    }

    /// Returns where every neighbour reaches a site, and itself too.
    pub fn address(&self, position: usize) -> Ipv4Addr {
        address(position)
    }

    /// Changes a link now.
    pub fn change(&self, target: Target, change: Change) {
        self.engine.change(target, change);
    }

    /// Starts the clock of a schedule: call it when the measured program starts.
    pub fn play(&self, schedule: &Schedule) {
        self.engine.play(schedule);
    }

    /// Returns what every link has carried, lost and dropped so far.
    pub fn counters(&self) -> Vec<LinkCounters> {
        self.engine.counters()
    }

    /// Returns what has arrived at a site over all of its links, in bytes on the wire.
    pub fn arrived_bytes(&self, position: usize) -> u64 {
        let links = self.spec.links.iter().zip(self.counters());
        let arrived = links.map(|(link, counters)| match position {
            _ if link.near == position => counters.down.bytes,
            _ if link.far == position => counters.up.bytes,
            _ => 0,
        });
        arrived.sum()
    }

    /// Returns what a site has sent and received over all of its links, in bytes on the wire.
    pub fn carried_bytes(&self, position: usize) -> u64 {
        let links = self.spec.links.iter().zip(self.counters());
        let own = links.filter(|(link, _)| link.near == position || link.far == position);
        own.map(|(_, counters)| counters.down.bytes + counters.up.bytes).sum()
    }

    /// Processor time of the emulator so far.
    pub fn engine_cpu_time(&self) -> Duration {
        self.engine.cpu_time()
    }

    /// What a script needs to know: `SITE_NAME`, the address of each site, and `NETNS_NAME`, its
    /// namespace for `nsenter --net="$NETNS_NAME" PROGRAM`; `SITES` has all the names. Names are
    /// in upper case, with `_` in the place of `-` and `.`.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut environment = Vec::new();
        let mut names = Vec::new();
        for (position, (site, namespace)) in self.spec.sites.iter().zip(&self.sites).enumerate() {
            let name = site.name.to_ascii_uppercase().replace(['-', '.'], "_");
            environment.push((format!("SITE_{name}"), address(position).to_string()));
            environment.push((format!("NETNS_{name}"), namespace.path()));
            names.push(name);
        }
        environment.push(("SITES".to_owned(), names.join(" ")));
        environment
    }
}

/// Returns the routes that the kernel has made for the links of a site.
fn routes(spec: &MeshSpec, site: usize) -> Vec<OwnRoute> {
    let neighbours = spec.links.iter().filter_map(|link| match site {
        _ if link.near == site => Some(link.far),
        _ if link.far == site => Some(link.near),
        _ => None,
    });
    let route = |there| OwnRoute {
        to: format!("{}/32", address(there)),
        device: device(there),
        source: address(site),
    };
    neighbours.map(route).collect()
}

/// Returns the device that leads to a site, as `ip address` shows it.
fn device(position: usize) -> String {
    format!("site{}", position + 1)
}

fn address(position: usize) -> Ipv4Addr {
    // `MeshSpec::check` has bounded the number of sites.
    Ipv4Addr::new(10, 79, 0, (position + 1) as u8)
}
