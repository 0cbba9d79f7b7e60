//! One run of one tool in one scenario: a fresh star, fresh servers, one client, one check.
//!
//! Nothing is kept between runs, neither connections nor what the kernel remembers of them. The
//! scenario's clock starts when the client starts; the check of what arrived is outside of the
//! measured time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use swath_netlab::star::{Lab, ServerKind, WebServer};
use swath_netlab::wan::LabError;

use crate::check::{empty, failure_of};
use crate::measure::measure;
use crate::oracle::cut_shares;
use crate::results::Run;
use crate::scenario::Scenario;
use crate::tool::{Request, Tool, as_typed};

/// Where a study keeps its files.
#[derive(Clone, Debug)]
pub struct Places {
    /// The `swath` program.
    pub swath: PathBuf,
    /// The folder that the servers serve.
    pub served: PathBuf,
    /// The folder into which clients write.
    pub target: PathBuf,
}

/// Runs `tool` once on `data`, a file in the served folder. Also tells the command line.
///
/// An error means that the laboratory did not work; a tool that fails is a run with a failure.
pub fn run_once(
    scenario: &Scenario,
    tool: Tool,
    program: &Path,
    places: &Places,
    data: &Path,
) -> Result<(Run, String), LabError> {
    let system = |doing: &str| {
        let doing = doing.to_owned();
        move |cause| LabError::System { doing, cause }
    };
    let lab = Lab::star(&scenario.star)?;
    let servers = lab.servers().iter();
    let _servers = servers
        .map(|namespace| WebServer::start(ServerKind::Nginx, namespace, &places.served))
        .collect::<Result<Vec<_>, _>>()?;
    let name = data.file_name().unwrap_or_default().to_string_lossy();
    let urls: Vec<String> = (0..scenario.star.links.len())
        .map(|link| format!("http://{}/{name}", lab.server_address(link)))
        .collect();

    let output = places.target.join(OUTPUT);
    empty(&places.target).map_err(system("empty the target folder"))?;
    let request =
        Request { urls: &urls, best: scenario.best_link(), folder: &places.target, file: OUTPUT };
    let mut command = tool.command(program, &request);
    if tool == Tool::Oracle {
        add_shares(&mut command, scenario, &lab, &name);
    }
    let typed = as_typed(&command);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &places.target);
    // What a tool says is of no use here, except where something fails.
    let said = places.target.join("said");
    let log = std::fs::File::create(&said).map_err(system("make a log"))?;
    command.stdout(log.try_clone().map_err(system("make a log"))?).stderr(log);
    lab.client().confine(&mut command);

    let limit = scenario.bound().unwrap_or_default() * LIMIT_OVER_BOUND + LIMIT_AT_LEAST;
    let measured = measure(&mut command, limit, || lab.play(&scenario.schedule))
        .map_err(system("run a tool"))?;
    let wire_bytes = lab.counters().iter().map(|counters| counters.down.bytes).sum();
    let output = (tool != Tool::Oracle).then_some(output.as_path());
    let failure = failure_of(measured.ending, data, output, &said);
    empty(&places.target).map_err(system("empty the target folder"))?;
    let run = Run {
        elapsed_s: measured.elapsed.as_secs_f64(),
        cpu_s: measured.cpu.as_secs_f64(),
        peak_memory_bytes: measured.peak_memory_bytes,
        is_stopped: measured.is_stopped(),
        wire_bytes,
        sync_s: 0.0,
        figures: Vec::new(),
        failure,
    };
    Ok((run, typed))
}

/// Why `tool` has no part in `scenario`, if it has none.
pub fn does_not_apply(scenario: &Scenario, tool: Tool) -> Option<&'static str> {
    (tool == Tool::Oracle && scenario.exact_shares().is_none())
        .then_some("a share given in advance to a link that falls silent never ends")
}

/// `oracle HOST:PORT PATH START END …`, as the study's program understands it.
fn add_shares(command: &mut Command, scenario: &Scenario, lab: &Lab, name: &str) {
    command.arg("oracle");
    let weights = scenario.exact_shares().unwrap_or_default();
    let shares = cut_shares(scenario.size_bytes, &weights);
    for (link, (start, end)) in shares.into_iter().enumerate() {
        command.arg(format!("{}:80", lab.server_address(link)));
        command.args([format!("/{name}"), start.to_string(), end.to_string()]);
    }
}

const OUTPUT: &str = "output";

/// A tool that is this many times slower than it could be has said what it has to say.
const LIMIT_OVER_BOUND: u32 = 12;
const LIMIT_AT_LEAST: Duration = Duration::from_secs(90);
