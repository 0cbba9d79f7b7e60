//! The running star: its namespaces, addresses and links.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::StarSpec;
use crate::wan::{Change, Engine, LabError, Link, LinkCounters, Namespace, Schedule, Tun};

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
        if let Some(bytes) = spec.receive_buffer_bytes {
            client.set_parameter("net.ipv4.tcp_rmem", &buffer_sizes(bytes))?;
        }
        let mut servers = Vec::new();
        let mut links = Vec::new();
        for link in 0..spec.links.len() {
            let server = Namespace::new(format!("netlab-{process}-server{}", link + 1))?;
            prepare(&server)?;
            if let Some(bytes) = spec.send_buffer_bytes {
                server.set_parameter("net.ipv4.tcp_wmem", &buffer_sizes(bytes))?;
            }
            let device = device(link);
            let create = |address| Tun::create(&device, address, LINK_PREFIX_BITS);
            links.push(Link {
                client: client.run(|| create(address(link, 1)))?,
                server: server.run(|| create(address(link, 2)))?,
                shape: spec.shape(link),
            });
            if let Some(name) = &spec.congestion_control {
                set_congestion_control(&server, link, name)?;
            }
            servers.push(server);
        }
        let engine = Engine::start(links, spec.seed)?;
        Ok(Self { engine, client, servers })
    }

    /// The namespace in the middle.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// The namespaces at the ends, one for each link.
    pub fn servers(&self) -> &[Namespace] {
        &self.servers
    }

    /// Where the client reaches the server of a link.
    pub fn server_address(&self, link: usize) -> Ipv4Addr {
        address(link, 2)
    }

    /// Changes a link now.
    pub fn change(&self, link: usize, change: Change) {
        self.engine.change(link, change);
    }

    /// Starts the clock of a schedule: call it when the measured program starts.
    pub fn play(&self, schedule: &Schedule) {
        self.engine.play(schedule);
    }

    /// What every link has carried, lost and dropped so far.
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

/// Makes a server use this congestion control. A kernel refuses one that its administrator has
/// not allowed for everybody; a route may still ask for it, and the machine stays as it is.
fn set_congestion_control(server: &Namespace, link: usize, name: &str) -> Result<(), LabError> {
    let refused = match server.set_parameter("net.ipv4.tcp_congestion_control", name) {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    let network = Ipv4Addr::new(10, 77, (link + 1) as u8, 0);
    let device = device(link);
    let mut command = Command::new("ip");
    command.args(["route", "replace", &format!("{network}/{LINK_PREFIX_BITS}")]);
    command.args(["dev", &device, "scope", "link", "src", &address(link, 2).to_string()]);
    command.args(["congctl", name]).stdout(Stdio::null()).stderr(Stdio::null());
    server.confine(&mut command);
    if command.status().is_ok_and(|status| status.success()) { Ok(()) } else { Err(refused) }
}

fn device(link: usize) -> String {
    format!("link{}", link + 1)
}

fn buffer_sizes(largest_bytes: u64) -> String {
    format!("4096 {} {largest_bytes}", largest_bytes.min(65_536))
}

fn address(link: usize, host: u8) -> Ipv4Addr {
    // `StarSpec::check` has bounded the number of links.
    Ipv4Addr::new(10, 77, (link + 1) as u8, host)
}

const LINK_PREFIX_BITS: u8 = 24;
