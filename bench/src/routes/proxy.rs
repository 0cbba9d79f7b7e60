//! One relay over loopback: how much it forwards, and what that costs it.
//!
//! Source, relay and client share a namespace that has nothing but loopback. The relay is started
//! for the run and ended after it, so that what it took is what the run took.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use swath_netlab::wan::{LabError, Namespace};

use super::client::chain;
use super::relay::{Relay, RelayKind, RelaySpec};
use crate::check::{empty, failure_of};
use crate::machine::find_program;
use crate::measure::measure;
use crate::results::{Goal, Run};
use crate::serving::{Identity, Server, Serving};
use crate::tool::as_typed;

/// What stands between source and client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Nothing: what source and client allow.
    Nothing,
    /// A relay.
    Relay(RelayKind),
}

impl Between {
    /// Everything that is compared, in the order of the table.
    pub const ALL: [Between; 4] = [
        Between::Relay(RelayKind::Swath { cache: false }),
        Between::Relay(RelayKind::Nginx),
        Between::Relay(RelayKind::NginxLarge),
        Between::Nothing,
    ];

    /// Name on the command line, in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Between::Nothing => "nothing",
            Between::Relay(RelayKind::Swath { .. }) => "swath",
            Between::Relay(RelayKind::NginxLarge) => "nginx-large",
            Between::Relay(_) => "nginx",
        }
    }
}

/// Runs a client once, which fetches `data` several times and throws it away; also tells the
/// command lines. The data is served from its folder.
pub fn run_once(
    namespace: &Namespace,
    between: Between,
    swath: &Path,
    data: &Path,
    identity: &Identity,
    scratch: &Path,
) -> Result<(Run, String), LabError> {
    let system = |doing: &str| {
        let doing = doing.to_owned();
        move |cause| LabError::System { doing, cause }
    };
    empty(scratch).map_err(system("empty the scratch folder"))?;
    let missing = |program| LabError::ServerMissing { program };
    let nginx = find_program("nginx").ok_or_else(|| missing("nginx"))?;
    let curl = find_program("curl").ok_or_else(|| missing("curl"))?;
    let root = data.parent().unwrap_or(Path::new("/"));
    let own = scratch.join("source");
    fs::create_dir(&own).map_err(system("make the source's folder"))?;
    let server = Server::Nginx { tls: false };
    let source = Serving::start(server, &nginx, namespace, root, identity, &own)?;
    let upstreams = [server.url().trim_matches('/').rsplit('/').next().unwrap_or("").to_owned()];
    let relay = match between {
        Between::Nothing => None,
        Between::Relay(kind) => {
            let spec = RelaySpec {
                kind,
                listen: LISTEN,
                upstreams: &upstreams,
                clients: "127.0.0.0/8",
                folder: &scratch.join("relay"),
            };
            Some(Relay::start(&spec, swath, namespace)?)
        }
    };
    let file = data.file_name().unwrap_or_default().to_string_lossy();
    let through = if relay.is_some() { vec![format!("http://{LISTEN}")] } else { Vec::new() };
    let url = chain(&through, &format!("{}{file}", server.url()));
    let mut command = Command::new(curl);
    command.args(["-q", "-s", "-f", "--http1.1"]);
    for _ in 0..TIMES {
        command.args(["-o", "/dev/null", &url]);
    }
    let mut typed = as_typed(&command);
    if let Some(relay) = &relay {
        typed = format!("{} & {typed}", relay.command());
    }
    let said = scratch.join("said");
    command.stdout(File::create(&said).map_err(system("make a log"))?);
    command.stderr(File::create(scratch.join("complained")).map_err(system("make a log"))?);
    namespace.confine(&mut command);
    let measured = measure(&mut command, LIMIT, || ()).map_err(system("run a client"))?;
    let spent = relay.map(Relay::end).transpose().map_err(system("end a relay"))?;
    drop(source);

    let gigabytes = data.metadata().map_or(0, |known| known.len()) as f64 * f64::from(TIMES) / 1e9;
    let elapsed_s = measured.elapsed.as_secs_f64();
    let mut figures = vec![("GB/s".to_owned(), gigabytes / elapsed_s)];
    if let Some(spent) = spent {
        figures.push((CPU.to_owned(), spent.cpu.as_secs_f64() / gigabytes));
        let mebibytes = spent.peak_memory_bytes as f64 / f64::from(1 << 20);
        figures.push(("relay MiB".to_owned(), mebibytes));
    }
    let run = Run {
        elapsed_s,
        cpu_s: measured.cpu.as_secs_f64(),
        peak_memory_bytes: measured.peak_memory_bytes,
        is_stopped: measured.is_stopped(),
        wire_bytes: 0,
        sync_s: 0.0,
        figures,
        failure: failure_of(measured.ending, data, None, &scratch.join("complained")),
    };
    Ok((run, typed))
}

/// Adds how each run of a round compares with nginx's: with the better of its two in each figure.
pub fn compare(round: &mut [(Between, Run)]) {
    let is_nginx = |between: Between| between.name().starts_with("nginx");
    let figure = |run: &Run, name: &str| {
        let mut known = run.figures.iter().filter(|_| run.failure.is_none());
        known.find(|(known, _)| known == name).map(|(_, value)| *value)
    };
    let peers: Vec<Run> = round
        .iter()
        .filter(|(between, _)| is_nginx(*between))
        .map(|(_, run)| run.clone())
        .collect();
    let best_rate = peers.iter().filter_map(|run| figure(run, "GB/s")).reduce(f64::max);
    let best_cpu = peers.iter().filter_map(|run| figure(run, CPU)).reduce(f64::min);
    for (_, run) in round {
        let rate = figure(run, "GB/s").zip(best_rate).map(|(own, best)| own / best);
        let cpu = figure(run, CPU).zip(best_cpu).map(|(own, best)| own / best);
        let compared = [(TIMES_NGINX, rate), (CPU_TIMES_NGINX, cpu)];
        let known = compared.into_iter().filter_map(|(name, v)| Some((name.to_owned(), v?)));
        run.figures.extend(known);
    }
}

/// What is to be reached.
pub fn goals() -> Vec<Goal> {
    vec![Goal::at_least("swath", TIMES_NGINX, 0.8), Goal::at_most("swath", CPU_TIMES_NGINX, 1.0)]
}

/// How often the file is fetched.
pub const TIMES: u32 = 4;

/// Processor time of the relay for what passed.
const CPU: &str = "relay CPU s/GB";
const TIMES_NGINX: &str = "rate × nginx";
const CPU_TIMES_NGINX: &str = "CPU × nginx";
const LISTEN: &str = "127.0.0.1:8471";

/// Nothing sensible takes longer.
const LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_of_two_peers_is_the_yardstick() {
        let run = |rate: f64, cpu: f64| Run {
            elapsed_s: 1.0,
            cpu_s: 0.0,
            peak_memory_bytes: 0,
            is_stopped: false,
            wire_bytes: 0,
            sync_s: 0.0,
            figures: vec![("GB/s".to_owned(), rate), (CPU.to_owned(), cpu)],
            failure: None,
        };
        let [swath, nginx, large, _] = Between::ALL;
        let mut round = [(swath, run(1.8, 0.3)), (nginx, run(1.0, 0.5)), (large, run(2.0, 0.6))];
        compare(&mut round);
        let figures = &round[0].1.figures;
        assert_eq!(figures[2], (TIMES_NGINX.to_owned(), 0.9));
        assert_eq!(figures[3], (CPU_TIMES_NGINX.to_owned(), 0.6));
    }
}
