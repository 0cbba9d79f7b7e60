//! The running star: its namespaces, addresses and links.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::StarSpec;
use crate::wan::{
    Change, Engine, LabError, Link, LinkCounters, Namespace, OwnRoute, Schedule, Target, Tun,
};

/// A star that runs until it is dropped.
///
/// Link `i` (from 0) joins the client at `10.77.(i+1).1` with its server at `10.77.(i+1).2`.
#[derive(Debug)]
pub struct Lab {
    // The engine goes first: it holds the devices that live in the namespaces.
    engine: Engine,
    client: Namespace,
    servers: Vec<Namespace>,
}

impl Lab {
    /// Builds the star and starts its links.
    pub fn star(spec: &StarSpec) -> Result<Self, LabError> {
        spec.check()?;
        let process = std::process::id();
        let client = Namespace::new(format!("netlab-{process}-client"))?;
        prepare(&client)?;
        client.limit_buffers(None, spec.receive_buffer_bytes)?;
        let mut servers = Vec::new();
        let mut links = Vec::new();
        for link in 0..spec.links.len() {
            let server = Namespace::new(format!("netlab-{process}-server{}", link + 1))?;
            prepare(&server)?;
            server.limit_buffers(spec.send_buffer_bytes, None)?;
            let device = device(link);
            let create = |address| Tun::create(&device, address, LINK_PREFIX_BITS);
            links.push(Link {
                near: client.run(|| create(address(link, 1)))?,
                far: server.run(|| create(address(link, 2)))?,
                down: spec.shape(link),
                up: spec.shape(link),
            });
            if let Some(name) = &spec.congestion_control {
                let to = format!("{}/{LINK_PREFIX_BITS}", address(link, 0));
                let source = address(link, 2);
                server.set_congestion_control(name, &[OwnRoute { to, device, source }])?;
            }
            servers.push(server);
        }
        let engine = Engine::start(links, spec.seed)?;
        Ok(Self { engine, client, servers })
    }

    /// Returns the namespace in the middle.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// Returns the namespaces at the ends, one for each link.
    pub fn servers(&self) -> &[Namespace] {
        &self.servers
    }

    /// Returns where the client reaches the server of a link.
    pub fn server_address(&self, link: usize) -> Ipv4Addr {
        address(link, 2)
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

    /// Processor time of the emulator so far.
    pub fn engine_cpu_time(&self) -> Duration {
        self.engine.cpu_time()
    }
}

/// Makes runs independent of each other: no memory of earlier connections to the same address.
fn prepare(namespace: &Namespace) -> Result<(), LabError> {
    namespace.set_parameter("net.ipv4.tcp_no_metrics_save", "1")
}

fn device(link: usize) -> String {
    format!("link{}", link + 1)
}

fn address(link: usize, host: u8) -> Ipv4Addr {
    // `StarSpec::check` has bounded the number of links.
    Ipv4Addr::new(10, 77, (link + 1) as u8, host)
}

const LINK_PREFIX_BITS: u8 = 24;
