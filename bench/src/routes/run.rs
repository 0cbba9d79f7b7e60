//! One run of one client in a fresh mesh, with fresh relays, and what the links carried meanwhile.
//!
//! Nothing is kept between runs but what the client's memory is to have. The clock of what happens
//! on the links starts when the client starts; the check of what arrived is outside of the
//! measured time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use swath_netlab::mesh::Mesh;
use swath_netlab::star::{ServerKind, WebServer};
use swath_netlab::wan::LabError;

use super::client::{Client, Request};
use super::memory::{database, prepare};
use super::relay::{Relay, RelaySpec};
use super::scenario::{
    AFTER_OF_FLOW, ALL_CHANGES, AS_WIDEST_AFTER, CHANGES, CHANGES_TO_WIDEST, EVENT_AT, Event,
    FIRST_TIMES_WIDEST, LEAST_TIMES_DIRECT, LOST, OF_FLOW, Scenario, TIMES_DIRECT, TIMES_WIDEST,
    TWICE,
};
use super::timeline::{Carried, Timeline};
use super::told::Told;
use crate::check::{empty, failure_of};
use crate::measure::measure;
use crate::results::Run;
use crate::tool::as_typed;

/// Where a study keeps its files.
#[derive(Clone, Debug)]
pub struct Places {
    /// The `swath` program.
    pub swath: PathBuf,
    /// The folder that the source serves.
    pub served: PathBuf,
    /// The folder into which clients write.
    pub target: PathBuf,
    /// What relays keep and say.
    pub relays: PathBuf,
    /// The memory of the client that runs.
    pub memory: PathBuf,
    /// A memory that an earlier transfer has filled.
    pub filled: PathBuf,
}

/// What came of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it took.
    pub run: Run,
    /// The command line.
    pub command: String,
    /// What arrived at the receiver.
    pub here: Carried,
    /// What the client told of its routes.
    pub told: Told,
    /// After how many changes a route as wide as the widest one was in use.
    pub changes_to_widest: Option<usize>,
}

/// Runs `client` once on `data`, a file in the served folder.
///
/// An error means that the laboratory did not work; a client that fails is a run with a failure.
pub fn run_once(
    scenario: &Scenario,
    client: Client,
    program: &Path,
    places: &Places,
    data: &Path,
    seed: u64,
) -> Result<Outcome, LabError> {
    let system = |doing: &str| {
        let doing = doing.to_owned();
        move |cause| LabError::System { doing, cause }
    };
    prepare(&places.memory, client.memory(), &places.filled).map_err(system("make a memory"))?;
    for folder in [&places.target, &places.relays] {
        empty(folder).map_err(system("empty a folder"))?;
    }
    let map = &scenario.map;
    let mesh = Mesh::start(scenario.mesh(seed))?;
    let _server = WebServer::start(ServerKind::Nginx, mesh.site(map.source), &places.served)?;
    let mut relays = start_relays(scenario, client, &mesh, places)?;

    let allowed = scenario.allowed();
    let at = |site: usize| format!("http://{}:{RELAY_PORT}", mesh.address(site));
    let (all, widest): (Vec<String>, Vec<String>) =
        (map.relays().map(at).collect(), allowed.widest.iter().map(|&site| at(site)).collect());
    let name = data.file_name().unwrap_or_default().to_string_lossy();
    let url = format!("http://{}/{name}", mesh.address(map.source));
    let request =
        Request { url: &url, relays: &all, widest: &widest, folder: &places.target, file: OUTPUT };
    let mut command = client.command(program, &request);
    let typed = as_typed(&command);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &places.memory).env("SWATH_STATE", database(&places.memory));
    let (events, said) = (places.target.join("events"), places.target.join("said"));
    command.stdout(File::create(&events).map_err(system("make a log"))?);
    command.stderr(File::create(&said).map_err(system("make a log"))?);
    mesh.site(map.here).confine(&mut command);

    let schedule = scenario.schedule(mesh.spec());
    let least_s = scenario.size_bytes as f64 / allowed.flow_bytes_per_s.max(1.0);
    let limit = match client {
        Client::Curl | Client::CurlChain | Client::NginxChain => LIMIT_OF_ONE_CONNECTION,
        _ => Duration::from_secs_f64(least_s * LIMIT_OVER_BOUND) + LIMIT_AT_LEAST,
    };
    let over = AtomicBool::new(false);
    let (measured, timeline) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| Timeline::watch(&mesh, &over));
        let killed = relays.iter_mut().find(|(site, _)| Some(site) == allowed.widest.first());
        let mut killer = None;
        let measured = measure(&mut command, limit, || {
            mesh.play(&schedule);
            if let (Some(Event::Killed), Some((_, relay))) = (scenario.event, killed) {
                killer = Some(scope.spawn(|| {
                    std::thread::sleep(EVENT_AT);
                    relay.kill();
                }));
            }
        });
        if let Some(killer) = killer {
            let _ = killer.join();
        }
        over.store(true, Ordering::Release);
        (measured, watch.join().unwrap_or_default())
    });
    let measured = measured.map_err(system("run a client"))?;
    let here = timeline.carried(&mesh, |hop| hop.to == map.here);
    let failure = failure_of(measured.ending, data, Some(&places.target.join(OUTPUT)), &said);
    let told = Told::read(&events);
    let site = |name: &String| {
        map.relays().find(|&relay| *name == format!("{}:{RELAY_PORT}", mesh.address(relay)))
    };
    let changes_to_widest = told.count_to(|way| {
        let relays: Option<Vec<usize>> = way.iter().map(site).collect();
        let width = relays.and_then(|relays| scenario.width_bytes_per_s(&relays));
        width.is_some_and(|width| width >= allowed.widest_bytes_per_s * AS_WIDE)
    });
    empty(&places.target).map_err(system("empty the target folder"))?;
    let run = Run {
        elapsed_s: measured.elapsed.as_secs_f64(),
        cpu_s: measured.cpu.as_secs_f64(),
        peak_memory_bytes: measured.peak_memory_bytes,
        is_stopped: measured.is_stopped(),
        wire_bytes: mesh.arrived_bytes(map.here),
        sync_s: 0.0,
        figures: Vec::new(),
        failure,
    };
    Ok(Outcome { run, command: typed, here, told, changes_to_widest })
}

/// Every site between has a relay, of the kind that the client needs.
fn start_relays(
    scenario: &Scenario,
    client: Client,
    mesh: &Mesh,
    places: &Places,
) -> Result<Vec<(usize, Relay)>, LabError> {
    let Some(kind) = client.relay() else { return Ok(Vec::new()) };
    let map = &scenario.map;
    let mut relays = Vec::new();
    for site in map.relays() {
        let mut upstreams = vec![format!("{}:80", mesh.address(map.source))];
        let others = map.relays().filter(|&other| other != site);
        upstreams.extend(others.map(|other| format!("{}:{RELAY_PORT}", mesh.address(other))));
        let spec = RelaySpec {
            kind,
            listen: &format!("{}:{RELAY_PORT}", mesh.address(site)),
            upstreams: &upstreams,
            clients: "10.79.0.0/16",
            folder: &places.relays.join(&map.sites[site]),
        };
        relays.push((site, Relay::start(&spec, &places.swath, mesh.site(site))?));
    }
    Ok(relays)
}

/// Adds the figures that compare the runs of one round.
pub fn compare(scenario: &Scenario, round: &mut [(Client, Outcome)]) {
    let allowed = scenario.allowed();
    let good = |client: Client, round: &[(Client, Outcome)]| {
        let found =
            round.iter().find(|(other, outcome)| *other == client && outcome.run.failure.is_none());
        found.map(|(_, outcome)| outcome.clone())
    };
    let (direct, widest) = (good(Client::Direct, round), good(Client::Widest, round));
    let size_bytes = scenario.size_bytes as f64;
    for (client, outcome) in round {
        let mut figures: Vec<(&str, Option<f64>)> = Vec::new();
        let elapsed_s = outcome.run.elapsed_s;
        figures.push((OF_FLOW, Some(size_bytes / elapsed_s / allowed.flow_bytes_per_s)));
        let direct = direct.as_ref().filter(|_| *client != Client::Direct);
        if let Some(direct) = direct {
            figures.push((TIMES_DIRECT, Some(direct.run.elapsed_s / elapsed_s)));
        }
        if let Some(widest) = widest.as_ref().filter(|_| *client != Client::Widest) {
            figures.push((TIMES_WIDEST, Some(widest.run.elapsed_s / elapsed_s)));
            let first = outcome.here.bytes_at(FIRST_S) / widest.here.bytes_at(FIRST_S).max(1.0);
            figures.push((FIRST_TIMES_WIDEST, Some(first)));
        }
        if let Some(direct) = direct {
            figures.push((LEAST_TIMES_DIRECT, outcome.here.least_part(&direct.here, WINDOW_S)));
        }
        // Where links lose packets, many connections are as wide as one route or another.
        let is_clean = scenario.map.edges.iter().all(|edge| edge.loss == 0.0);
        if client.relay().is_some() && !allowed.widest.is_empty() && is_clean {
            let rate = allowed.widest_bytes_per_s * AS_WIDE;
            let after_s = outcome.here.reaches(rate, 1.0);
            let by = |after_s| outcome.told.count_by(after_s) as f64;
            figures.push((AS_WIDEST_AFTER, after_s));
            if client.chooses() {
                figures.push((CHANGES, after_s.map(by)));
                figures.push((CHANGES_TO_WIDEST, outcome.changes_to_widest.map(|n| n as f64)));
                figures.push((ALL_CHANGES, Some(outcome.told.changes.len() as f64)));
            }
        }
        if scenario.event.is_some() {
            let event_s = EVENT_AT.as_secs_f64();
            let flow = scenario.allowed_after_event().flow_bytes_per_s;
            let after = outcome.here.rate_after(event_s, SETTLED_S);
            figures.push((LOST, outcome.here.lost_s(event_s, SETTLED_S)));
            figures.push((AFTER_OF_FLOW, after.map(|after| after / flow)));
        }
        figures.push((TWICE, Some(outcome.here.total_bytes() / size_bytes - 1.0)));
        let known = figures.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        outcome.run.figures = known.collect();
    }
}

/// Where relays listen.
pub const RELAY_PORT: u16 = 8471;

const OUTPUT: &str = "output";

/// A client that is this many times slower than it could be has said what it has to say.
const LIMIT_OVER_BOUND: f64 = 30.0;
const LIMIT_AT_LEAST: Duration = Duration::from_secs(60);
/// One connection over long lossy links takes minutes, and shows what others gain.
const LIMIT_OF_ONE_CONNECTION: Duration = Duration::from_secs(900);

/// "From the first second": with the second in which connections and windows open.
const FIRST_S: f64 = 2.0;

/// In which a rate is least: long enough for the ups and downs of one connection to be even.
const WINDOW_S: f64 = 2.0;

/// As wide as the widest route: this part of it, because no transfer fills a link to the brim.
const AS_WIDE: f64 = 0.95;

/// After an event, routes have settled by then.
const SETTLED_S: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::scenario::scenarios;

    fn outcome(elapsed_s: f64, bytes_per_s: f64) -> Outcome {
        let points = (0..=100).map(|at| (f64::from(at), f64::from(at) * bytes_per_s)).collect();
        let here = Carried { points };
        let run = Run {
            elapsed_s,
            cpu_s: 0.0,
            peak_memory_bytes: 0,
            is_stopped: false,
            wire_bytes: 0,
            sync_s: 0.0,
            figures: Vec::new(),
            failure: None,
        };
        let told = Told { changes: vec![(0.5, Vec::new()), (3.5, Vec::new())] };
        Outcome { run, command: String::new(), here, told, changes_to_widest: Some(2) }
    }

    #[test]
    fn a_round_is_compared_with_its_own_runs() {
        let scenario = &scenarios()[0];
        let mut round = vec![
            (Client::Direct, outcome(30.0, 3e6)),
            (Client::Widest, outcome(15.0, 6e6)),
            (Client::Cold, outcome(12.0, 12e6)),
        ];
        compare(scenario, &mut round);
        let figure = |at: usize, name: &str| {
            let figures: &Vec<(String, f64)> = &round[at].1.run.figures;
            figures.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
        };
        assert_eq!(figure(2, TIMES_DIRECT), Some(2.5));
        assert_eq!(figure(2, TIMES_WIDEST), Some(1.25));
        assert_eq!(figure(2, FIRST_TIMES_WIDEST), Some(2.0));
        assert_eq!(figure(0, TIMES_DIRECT), None);
        assert_eq!(figure(2, AS_WIDEST_AFTER), Some(0.0));
        assert_eq!(figure(1, AS_WIDEST_AFTER), None);
        let counts = [CHANGES, CHANGES_TO_WIDEST, ALL_CHANGES].map(|name| figure(2, name));
        assert_eq!(counts, [Some(0.0), Some(2.0), Some(2.0)]);
        assert_eq!(figure(1, ALL_CHANGES), None);
        assert!(figure(2, LEAST_TIMES_DIRECT).is_some_and(|least| (least - 4.0).abs() < 1e-9));
    }
}
