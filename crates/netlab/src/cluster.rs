//! A cluster: machines on one switch, each on a link of its own rate, without delay.
//!
//! The kernel does all of it (veth pairs, a bridge, token buckets), so the links cost no processor time
//! of ours. Everything goes away when the value is dropped, or when the process dies in any other way.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::wan::{LabError, Namespace};

/// Machines on one switch.
#[derive(Debug)]
pub struct Cluster {
    machines: Vec<Namespace>,
    // Holds the other ends of the links.
    _switch: Namespace,
}

impl Cluster {
    /// Builds a machine for each of these rates, in bits per second of each direction.
    ///
    /// # Errors
    /// [`LabError`] if the system refuses, or without `ip` and `tc`.
    pub fn start(rates_bits_per_s: &[u64]) -> Result<Cluster, LabError> {
        let switch = Namespace::new("netlab-switch")?;
        run(&switch, "ip link add switch type bridge")?;
        run(&switch, "ip link set switch up")?;
        let mut machines = Vec::new();
        for (at, &rate) in rates_bits_per_s.iter().enumerate() {
            let reason = "a switch has at most 250 machines, with a rate each";
            if at >= MACHINES_MAX || rate == 0 {
                return Err(LabError::BadLink { link: at + 1, reason });
            }
            let machine = Namespace::new(format!("netlab-machine{}", at + 1))?;
            // Makes runs independent of each other: no memory of earlier connections.
            machine.set_parameter("net.ipv4.tcp_no_metrics_save", "1")?;
            let port = format!("port{at}");
            let far = machine.path();
            run(&switch, &format!("ip link add {port} type veth peer name eth0 netns {far}"))?;
            run(&switch, &format!("ip link set {port} master switch up"))?;
            run(&machine, &format!("ip address add {}/24 dev eth0", address(at)))?;
            run(&machine, "ip link set eth0 up")?;
            // A whole segment of the kernel must fit in.
            let burst = (rate / 8 / 500).max(BURST_LEAST_BYTES);
            let shape = format!("root tbf rate {rate}bit burst {burst} latency 50ms");
            run(&machine, &format!("tc qdisc add dev eth0 {shape}"))?;
            run(&switch, &format!("tc qdisc add dev {port} {shape}"))?;
            machines.push(machine);
        }
        Ok(Cluster { machines, _switch: switch })
    }

    /// Returns the namespace of a machine.
    pub fn machine(&self, at: usize) -> &Namespace {
        &self.machines[at]
    }

    /// Returns the address of a machine.
    pub fn address(&self, at: usize) -> Ipv4Addr {
        address(at)
    }

    /// Returns how many bytes a machine has sent, with the heads of packets.
    ///
    /// # Errors
    /// [`LabError`] if the system does not say.
    pub fn sent_bytes(&self, at: usize) -> Result<u64, LabError> {
        self.machines[at].run(|| {
            let path = "/proc/thread-self/net/dev";
            let failed = |cause| LabError::System { doing: format!("read {path}"), cause };
            let text = std::fs::read_to_string(path).map_err(failed)?;
            let fields = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
            let sent = fields.and_then(|fields| fields.split_whitespace().nth(8)?.parse().ok());
            sent.ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))
        })
    }
}

/// Runs a command in a namespace.
fn run(namespace: &Namespace, text: &str) -> Result<(), LabError> {
    let mut words = text.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null());
    namespace.confine(&mut command);
    let failed = |cause| LabError::System { doing: text.to_owned(), cause };
    let out = command.output().map_err(failed)?;
    match out.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            Err(failed(std::io::Error::other(said)))
        }
    }
}

fn address(at: usize) -> Ipv4Addr {
    // `Cluster::start` has bounded the number of machines.
    Ipv4Addr::new(10, 79, 0, (at + 1) as u8)
}

const MACHINES_MAX: usize = 250;
const BURST_LEAST_BYTES: u64 = 128 << 10;
