//! Ten clients behind one relay that keeps what passes: how often does a file cross the long link?

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use swath_netlab::map::MapSpec;
use swath_netlab::mesh::{Mesh, MeshSpec};
use swath_netlab::star::{ServerKind, WebServer};
use swath_netlab::wan::LabError;

use super::client::chain;
use super::memory::database;
use super::relay::{Relay, RelayKind, RelaySpec};
use super::run::{Places, RELAY_PORT};
use super::timeline::PAYLOAD_SHARE;
use crate::check::{empty, failure_of};
use crate::machine::find_program;
use crate::measure::{end_with_us, finish};
use crate::results::{Goal, Run};
use crate::tool::as_typed;

/// Clients and their relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowd {
    /// curl through a swath relay that keeps what passes.
    Curl,
    /// swath through the same.
    Swath,
    /// curl through nginx that keeps what passes.
    Nginx,
    /// curl through a swath relay that keeps nothing.
    Uncached,
}

impl Crowd {
    /// All of them, in the order of the table.
    pub const ALL: [Crowd; 4] = [Crowd::Curl, Crowd::Swath, Crowd::Nginx, Crowd::Uncached];

    /// Name on the command line, in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            Crowd::Curl => "curl",
            Crowd::Swath => "swath",
            Crowd::Nginx => "nginx-curl",
            Crowd::Uncached => "uncached",
        }
    }

    /// The relay.
    pub fn relay(self) -> RelayKind {
        match self {
            Crowd::Curl | Crowd::Swath => RelayKind::Swath { cache: true },
            Crowd::Uncached => RelayKind::Swath { cache: false },
            Crowd::Nginx => RelayKind::NginxCache,
        }
    }

    /// What one of the clients runs.
    fn command(self, swath: &Path, relay: &str, url: &str, output: &Path) -> Option<Command> {
        let mut command;
        if self == Crowd::Swath {
            command = Command::new(swath);
            command.args(["get", url, "--relay", relay, "--route", relay]);
            command.arg("-d").arg(output.parent()?).arg("-o").arg(output.file_name()?);
            command.args(["--overwrite", "--quiet"]);
        } else {
            command = Command::new(find_program("curl")?);
            let through = chain(&[relay.to_owned()], url);
            command.args(["-q", "-s", "-f", "-o"]).arg(output).arg(through);
        }
        Some(command)
    }
}

/// A source, a relay beyond a long link, and the clients' site beyond a short one.
pub fn map() -> MapSpec {
    let text = "sites source relay here\nsource source\nhere here\n\
                source = relay 100/40\nrelay = here 1000/1\n";
    text.parse().expect("a map that is written here is right: a test reads it")
}

/// What the map allows: the file crosses the long link once, in seconds.
pub fn bound_s(size_bytes: u64) -> f64 {
    let map = map();
    let long = map.edge(map.source, 1).map_or(1.0, |edge| edge.mbit * 1e6 / 8.0);
    size_bytes as f64 / (long * PAYLOAD_SHARE)
}

/// Runs ten clients at once on `data`, a file in the served folder.
pub fn run_once(
    crowd: Crowd,
    places: &Places,
    data: &Path,
    seed: u64,
) -> Result<(Run, String), LabError> {
    let system = |doing: &str| {
        let doing = doing.to_owned();
        move |cause| LabError::System { doing, cause }
    };
    for folder in [&places.target, &places.relays] {
        empty(folder).map_err(system("empty a folder"))?;
    }
    let map = map();
    let mut spec = MeshSpec::of(&map);
    spec.seed = seed;
    let mesh = Mesh::start(spec)?;
    let relay_site = map.relays().next().unwrap_or_default();
    let _server = WebServer::start(ServerKind::Nginx, mesh.site(map.source), &places.served)?;
    let upstreams = [format!("{}:80", mesh.address(map.source))];
    let listen = format!("{}:{RELAY_PORT}", mesh.address(relay_site));
    let spec = RelaySpec {
        kind: crowd.relay(),
        listen: &listen,
        upstreams: &upstreams,
        clients: "10.79.0.0/16",
        folder: &places.relays.join("relay"),
    };
    let relay = Relay::start(&spec, &places.swath, mesh.site(relay_site))?;

    let name = data.file_name().unwrap_or_default().to_string_lossy();
    let url = format!("http://{}/{name}", upstreams[0].trim_end_matches(":80"));
    let mut typed = String::new();
    let begin = Instant::now();
    let mut running = Vec::new();
    for number in 0..CLIENTS {
        let folder = places.target.join(number.to_string());
        std::fs::create_dir(&folder).map_err(system("make a client's folder"))?;
        let output = folder.join("output");
        let missing = || LabError::ServerMissing { program: "curl" };
        let command = crowd.command(&places.swath, &format!("http://{listen}"), &url, &output);
        let mut command = command.ok_or_else(missing)?;
        typed = format!("{} & {CLIENTS} × {}", relay.command(), as_typed(&command));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &folder).env("SWATH_STATE", database(&folder));
        let said = folder.join("said");
        let log = File::create(&said).map_err(system("make a log"))?;
        command.stdout(log.try_clone().map_err(system("make a log"))?).stderr(log);
        mesh.site(map.here).confine(&mut command);
        end_with_us(&mut command);
        let child = command.process_group(0).spawn().map_err(system("start a client"))?;
        running.push((child, output, said));
    }
    let (mut cpu, mut peak_memory_bytes, mut failure) = (Duration::ZERO, 0, None);
    for (child, output, said) in &running {
        let measured = finish(child, begin, LIMIT).map_err(system("wait for a client"))?;
        cpu += measured.cpu;
        peak_memory_bytes = peak_memory_bytes.max(measured.peak_memory_bytes);
        failure = failure.or_else(|| failure_of(measured.ending, data, Some(output), said));
    }
    let elapsed_s = begin.elapsed().as_secs_f64();
    let spent = relay.end().map_err(system("end a relay"))?;
    let size_bytes = data.metadata().map_or(1, |known| known.len()) as f64;
    let carried = mesh.arrived_bytes(relay_site) - requests_bytes(&mesh, relay_site, map.here);
    empty(&places.target).map_err(system("empty the target folder"))?;
    let run = Run {
        elapsed_s,
        cpu_s: cpu.as_secs_f64(),
        peak_memory_bytes,
        is_stopped: false,
        wire_bytes: mesh.arrived_bytes(map.here),
        sync_s: 0.0,
        figures: vec![
            (COPIES.to_owned(), carried as f64 * PAYLOAD_SHARE / size_bytes),
            ("relay CPU s".to_owned(), spent.cpu.as_secs_f64()),
            ("relay MiB".to_owned(), spent.peak_memory_bytes as f64 / f64::from(1 << 20)),
        ],
        failure,
    };
    Ok((run, typed))
}

/// What came to the relay from the clients: acknowledgements for the most part.
fn requests_bytes(mesh: &Mesh, relay: usize, here: usize) -> u64 {
    let links = mesh.spec().links.iter().zip(mesh.counters());
    let from_here = links.map(|(link, counters)| match (link.near, link.far) {
        ends if ends == (relay, here) => counters.down.bytes,
        ends if ends == (here, relay) => counters.up.bytes,
        _ => 0,
    });
    from_here.sum()
}

/// What is to be reached.
pub fn goals() -> Vec<Goal> {
    [Crowd::Curl, Crowd::Swath].map(|crowd| Goal::at_most(crowd.name(), COPIES, 1.02)).to_vec()
}

/// Payload that came over the long link, in sizes of the file.
const COPIES: &str = "copies";

/// So many institutes.
pub const CLIENTS: usize = 10;

/// Nothing sensible takes longer, ten copies one after the other included.
const LIMIT: Duration = Duration::from_secs(180);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_link_is_the_bound() {
        // 100 Mbit/s without framing.
        assert!((bound_s(50_000_000) - 4.1436).abs() < 1e-3, "{}", bound_s(50_000_000));
    }

    #[test]
    fn clients_ask_through_the_relay() {
        let typed = |crowd: Crowd| {
            let (swath, output) = (Path::new("/bin/swath"), Path::new("/out/output"));
            let command = crowd.command(swath, "http://r:8471", "http://s/f", output);
            command.map(|command| as_typed(&command))
        };
        assert_eq!(
            typed(Crowd::Swath).unwrap(),
            "swath get http://s/f --relay http://r:8471 --route http://r:8471 -d /out -o output \
             --overwrite --quiet"
        );
        if let Some(typed) = typed(Crowd::Nginx) {
            assert_eq!(typed, "curl -q -s -f -o /out/output http://r:8471/relay/http://s/f");
        }
    }
}
