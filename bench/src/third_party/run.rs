//! One run: a fresh network, fresh servers, one client, one check.
//!
//! Timed is the client, from its start to its end; the servers run before it. Afterwards the copy is compared
//! with the original.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use swath_netlab::map::MapSpec;
use swath_netlab::mesh::{Mesh, MeshSpec};
use swath_netlab::wan::{LabError, Namespace};

use super::row::{DESTINATION, Data, FILE, Row};
use super::tool::{Tool, davix_copy, globus_copy, swath_copy};
use crate::check::empty;
use crate::data::same_content;
use crate::machine::busy_ticks;
use crate::measure::{Ending, measure};
use crate::results::Run;
use crate::server::{GRIDFTP_PORT, Running, Swath, gridftp, system, to_nobody};
use crate::tool::as_typed;
use crate::tree_data::{difference, difference_behind_links};
use crate::xrootd::{Certificates, xrootd};

/// Where a row keeps its files.
#[derive(Clone, Debug)]
pub struct Places {
    /// The `swath` program.
    pub swath: PathBuf,
    /// What the sources serve: the data is in its folder `ds`.
    pub served: PathBuf,
    /// A folder for everything that a run writes.
    pub target: PathBuf,
    /// What XRootD and those that talk to it show each other; none where openssl is missing.
    pub certificates: Option<Certificates>,
}

impl Places {
    /// Makes the folders and certificates in a folder.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn make(swath: &Path, scratch: &Path) -> std::io::Result<Places> {
        let at = |name: &str| scratch.join(name);
        let (served, target) = (at("served"), at("target"));
        fs::create_dir_all(served.join("ds"))?;
        fs::create_dir_all(&target)?;
        let certificates = Certificates::make(&at("certificates")).ok();
        Ok(Places { swath: swath.to_owned(), served, target, certificates })
    }

    /// Makes an empty folder for a program.
    pub(crate) fn own(&self, name: &str) -> Result<PathBuf, LabError> {
        let own = self.target.join(name);
        fs::create_dir_all(&own).map_err(system("make a folder"))?;
        Ok(own)
    }

    pub(crate) fn certificates(&self) -> Result<&Certificates, LabError> {
        let said = "it makes no certificates".to_owned();
        self.certificates.as_ref().ok_or(LabError::ServerFailed { program: "openssl", said })
    }
}

/// What a run was.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its measurement.
    pub run: Run,
    /// The command line.
    pub command: String,
    /// The last line that the client said.
    pub said: String,
}

/// Runs a tool once, for `limit` at most.
///
/// # Errors
/// When the laboratory does not work; a tool that fails is a run with a failure.
pub fn run_once(
    row: &Row,
    tool: Tool,
    limit: Duration,
    places: &Places,
) -> Result<Outcome, LabError> {
    empty(&places.target).map_err(system("empty the target folder"))?;
    // What earlier runs left to be written must not disturb this one.
    let _ = Command::new("sync").arg("-f").arg(&places.target).status();
    let outcome = match &row.map {
        Some(map) => between_sites(row, map, tool, limit, places),
        None => super::copy::on_one_machine(row, tool, limit, places),
    };
    empty(&places.target).map_err(system("empty the target folder"))?;
    outcome
}

fn between_sites(
    row: &Row,
    map: &MapSpec,
    tool: Tool,
    limit: Duration,
    places: &Places,
) -> Result<Outcome, LabError> {
    let mut spec = MeshSpec::of(map);
    spec.has_offload = true;
    let mesh = Mesh::start(spec)?;
    let b = map.site(DESTINATION).unwrap_or_default();
    let (copy, output) = (places.own("b/copy")?, places.target.join("b"));
    let at = |site: usize| mesh.address(site).to_string();
    let mut client = mesh.site(map.here);
    let mut running: Vec<Running> = Vec::new();
    let mut swaths: Vec<Swath> = Vec::new();
    let mut command = match tool {
        Tool::SwathByB | Tool::Swath => {
            for site in row.sources() {
                let own = places.own(&format!("source{site}"))?;
                let address = format!("{}:{SWATH_PORT}", at(site));
                let start = |more: &[&str]| {
                    let site = mesh.site(site);
                    Swath::start(&places.swath, site, &address, &places.served, &own, more)
                };
                swaths.push(start(&[])?);
            }
            let address = format!("{}:{SWATH_PORT}", at(b));
            let (own, site) = (places.own("own-b")?, mesh.site(b));
            let more = ["--write", "--third-party", "--third-party-from", "10.79.0.0/24"];
            let server = Swath::start(&places.swath, site, &address, &output, &own, &more)?;
            let mut all: Vec<&Swath> = swaths.iter().collect();
            let command = if tool == Tool::Swath {
                all.push(&server);
                swath_copy(&places.swath, &swaths, &server.url("copy/"), &all)
            } else {
                client = mesh.site(b);
                swath_copy(&places.swath, &swaths, &format!("{}/", copy.display()), &all)
            };
            swaths.push(server);
            command
        }
        Tool::GridFtp(parallel) => {
            to_nobody(&output).map_err(system("hand over a folder"))?;
            for site in row.sources().into_iter().chain([b]) {
                let own = places.own(&format!("gridftp{site}"))?;
                to_nobody(&own).map_err(system("hand over a folder"))?;
                running.push(gridftp(mesh.site(site), &at(site), &own)?);
            }
            let url = |site: usize, folder: &Path| {
                format!("ftp://{}:{GRIDFTP_PORT}{}/", at(site), folder.display())
            };
            let source = row.sources()[0];
            let (from, to) = (url(source, &places.served.join("ds")), url(b, &copy));
            globus_copy(parallel, &from, &to, row.data)
        }
        _ => {
            to_nobody(&output).map_err(system("hand over a folder"))?;
            let certificates = places.certificates()?;
            let source = row.sources()[0];
            for (site, folder) in [(source, &places.served), (b, &output)] {
                let own = places.own(&format!("xrootd{site}"))?;
                running.push(xrootd(
                    mesh.site(site),
                    XROOTD_PORT,
                    folder,
                    &own,
                    Some(certificates),
                )?);
            }
            let url = |site: usize, folder: &str| {
                format!("https://{}:{XROOTD_PORT}/{folder}/{FILE}", at(site))
            };
            let (from, to) = (url(source, "ds"), url(b, "copy"));
            davix_copy(&certificates.authorities(), true, &from, &to)
        }
    };
    let carried_before = mesh.carried_bytes(map.here);
    let mut outcome = run_client(&mut command, limit, client, places)?;
    // The last packets are still under way.
    std::thread::sleep(Duration::from_millis(100));
    let carried = (mesh.carried_bytes(map.here) - carried_before) as f64;
    drop((swaths, running, mesh));
    if outcome.run.failure.is_none() {
        let served = places.served.join("ds");
        let wrong = match row.data {
            Data::File(_) => same_content(&served.join(FILE), &copy.join(FILE))
                .map(|is_same| (!is_same).then(|| "the file is wrong".to_owned())),
            // It makes files of links, which is no reason not to count it.
            _ if matches!(tool, Tool::GridFtp(_)) => difference_behind_links(&served, &copy),
            Data::Folder(..) | Data::Tree(_) => difference(&served, &copy),
        };
        outcome.run.failure = wrong.unwrap_or_else(|error| Some(error.to_string()));
    } else if outcome.run.is_stopped {
        let count = count_files(&copy);
        let why = outcome.run.failure.get_or_insert_default();
        why.push_str(&format!("; {count} files had been begun"));
    }
    if tool != Tool::SwathByB {
        outcome.run.figures.push(("client kB".to_owned(), carried / 1e3));
        let minutes = outcome.run.elapsed_s.max(60.0) / 60.0;
        outcome.run.figures.push(("client kB/min".to_owned(), carried / 1e3 / minutes));
    }
    Ok(outcome)
}

/// Runs a client to its end or to `limit`; nothing is compared yet.
pub(crate) fn run_client(
    command: &mut Command,
    limit: Duration,
    namespace: &Namespace,
    places: &Places,
) -> Result<Outcome, LabError> {
    let home = places.own("client")?;
    let said = home.join("said");
    let log = File::create(&said).map_err(system("make a log"))?;
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &home).current_dir(&home);
    command.stdout(log.try_clone().map_err(system("make a log"))?).stderr(log);
    namespace.confine(command);
    let typed = as_typed(command);
    let before = busy_ticks();
    let measured = measure(command, limit, || ()).map_err(system("run a tool"))?;
    let after = busy_ticks();
    let busy = 100.0 * (after.0 - before.0) / (after.1 - before.1).max(1.0);
    let text = fs::read_to_string(&said).unwrap_or_default();
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let failure = match measured.ending {
        Ending::Code(0) => None,
        Ending::Code(code) => Some(format!("exit code {code}: {last}")),
        Ending::Signal(signal) => Some(format!("signal {signal}: {last}")),
        Ending::TimeLimit => Some(format!("stopped after {:.0} s", measured.elapsed.as_secs_f64())),
    };
    let run = Run {
        elapsed_s: measured.elapsed.as_secs_f64(),
        cpu_s: measured.cpu.as_secs_f64(),
        peak_memory_bytes: measured.peak_memory_bytes,
        wire_bytes: 0,
        sync_s: 0.0,
        figures: vec![("busy %".to_owned(), busy)],
        failure,
        is_stopped: measured.is_stopped(),
    };
    Ok(Outcome { run, command: typed, said: last.to_owned() })
}

/// Returns how many files there are in a folder and below it.
fn count_files(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let each = entries.flatten().map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => count_files(&entry.path()),
        _ => 1,
    });
    each.sum()
}

const SWATH_PORT: u16 = 8470;
const XROOTD_PORT: u16 = 1094;
