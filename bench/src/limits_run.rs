//! One file from three nginx that limit the rate of each answer, and perhaps the number of answers at
//! once: how long it takes, and what their owners notice of it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use swath_netlab::wan::{LabError, Namespace};

use crate::check::{empty, failure_of};
use crate::machine::find_program;
use crate::measure::{end_with_us, measure};
use crate::results::Run;
use crate::tool::as_typed;
use crate::tree_run::wait_for;

/// What each answer of the three servers is limited to, in bytes per second.
pub const RATES: [u64; 3] = [3 << 20, 2 << 20, 600 << 10];
/// Answers at once by which the time is judged, and which the servers allow where they count them.
pub const CONNECTIONS: u64 = 4;

/// Who fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitsTool {
    /// `swath get`.
    Swath,
    /// aria2 with as many connections as are allowed.
    Aria2,
}

impl LimitsTool {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Swath => "swath",
            Self::Aria2 => "aria2-x4",
        }
    }

    /// The program behind it, if it is there.
    pub fn program(self, swath: &Path) -> Option<PathBuf> {
        match self {
            Self::Swath => Some(swath.to_owned()).filter(|path| path.is_file()),
            Self::Aria2 => find_program("aria2c"),
        }
    }

    fn command(self, program: &Path, target: &Path) -> Command {
        let mut command = Command::new(program);
        match self {
            Self::Swath => command.args(["get", "--json", "--overwrite", "-d"]).arg(target),
            Self::Aria2 => command
                .args(["--no-conf", "-q", "--allow-overwrite=true", "-x4", "-s12", "-k1M", "-d"])
                .arg(target),
        };
        command.args((0..RATES.len()).map(|at| format!("http://{HOST}:{}/{NAME}", port(at))));
        command
    }
}

/// The least time that a file of this size takes with [`CONNECTIONS`] answers of each server.
pub fn bound_s(size_bytes: u64) -> f64 {
    size_bytes as f64 / (CONNECTIONS * RATES.iter().sum::<u64>()) as f64
}

/// The three servers.
#[derive(Debug)]
pub struct Limited {
    child: Child,
    scratch: PathBuf,
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Limited {
    /// Starts them in a namespace; `counts` is whether they allow only [`CONNECTIONS`] answers at once.
    pub fn start(
        namespace: &Namespace,
        root: &Path,
        scratch: &Path,
        counts: bool,
    ) -> Result<Self, LabError> {
        let system = |doing: &str| {
            let doing = doing.to_owned();
            move |cause| LabError::System { doing, cause }
        };
        let program = find_program("nginx").ok_or_else(|| LabError::System {
            doing: "find nginx".to_owned(),
            cause: io::ErrorKind::NotFound.into(),
        })?;
        let configuration = scratch.join("nginx.conf");
        fs::write(&configuration, text(scratch, root, counts))
            .map_err(system("write a server configuration"))?;
        let mut command = Command::new(program);
        command.args(["-e", "stderr", "-c"]).arg(configuration);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        end_with_us(&mut command);
        namespace.confine(&mut command);
        let child = command.spawn().map_err(system("start a server"))?;
        let limited = Self { child, scratch: scratch.to_owned() };
        wait_for(namespace, &port(RATES.len() - 1).to_string())
            .map_err(system("wait for a server"))?;
        Ok(limited)
    }

    /// (port, status, bytes sent) of the answers so far.
    fn answers(&self) -> Vec<(u16, u16, u64)> {
        let log = fs::read_to_string(self.scratch.join("access.log")).unwrap_or_default();
        let answer = |line: &str| {
            let mut words = line.split(' ');
            let port = words.next()?.parse().ok()?;
            Some((port, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        };
        log.lines().filter_map(answer).collect()
    }
}

/// Has one tool fetch the file once.
pub fn run_once(
    tool: LimitsTool,
    program: &Path,
    namespace: &Namespace,
    servers: &Limited,
    data: &Path,
    target: &Path,
) -> Result<(Run, String), LabError> {
    let system = |cause| LabError::System { doing: "measure a transfer".to_owned(), cause };
    empty(target).map_err(system)?;
    let (out, said) = (servers.scratch.join("out"), servers.scratch.join("said"));
    let mut command = tool.command(program, target);
    let typed = as_typed(&command);
    command.stdin(Stdio::null());
    command.stdout(File::create(&out).map_err(system)?);
    command.stderr(File::create(&said).map_err(system)?);
    command.env("SWATH_CONFIG", "off");
    namespace.confine(&mut command);
    let before = servers.answers().len();
    let is_over = AtomicBool::new(false);
    let (measured, most) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| most_connections(namespace, &is_over));
        let measured = measure(&mut command, LIMIT, || ());
        is_over.store(true, Ordering::Relaxed);
        (measured, watch.join().unwrap_or_default())
    });
    let measured = measured.map_err(system)?;
    // What was cut short is noted when nginx notices.
    std::thread::sleep(Duration::from_secs(2));
    let answers = servers.answers().split_off(before);
    let size_bytes = fs::metadata(data).map_err(system)?.len();
    let elapsed_s = measured.elapsed.as_secs_f64();
    let most_refused = (0..RATES.len()).map(|at| {
        answers.iter().filter(|(on, status, _)| *on == port(at) && *status == 503).count()
    });
    let sent: u64 = answers.iter().map(|(_, _, bytes)| bytes).sum();
    let mut figures = vec![
        ("of bound".to_owned(), elapsed_s / bound_s(size_bytes)),
        ("refused".to_owned(), most_refused.max().unwrap_or(0) as f64),
        ("answers".to_owned(), answers.len() as f64),
        ("connections".to_owned(), f64::from(most)),
        ("beyond %".to_owned(), 100.0 * (sent as f64 / size_bytes as f64 - 1.0)),
    ];
    if tool == LimitsTool::Swath {
        let told = fs::read_to_string(&out).map_err(system)?;
        figures.extend(of_events(&told, elapsed_s, size_bytes));
    }
    let output = target.join(NAME);
    let failure = failure_of(measured.ending, data, Some(&output), &said);
    let run = Run {
        elapsed_s,
        cpu_s: measured.cpu.as_secs_f64(),
        peak_memory_bytes: measured.peak_memory_bytes,
        is_stopped: measured.is_stopped(),
        wire_bytes: 0,
        sync_s: 0.0,
        figures,
        failure,
    };
    Ok((run, typed))
}

/// By what swath told: what it wasted, how far its forecasts of the whole were off from the fifth
/// second on, and how often a source was called silent.
fn of_events(told: &str, elapsed_s: f64, size_bytes: u64) -> Vec<(String, f64)> {
    let events: Vec<Value> = told.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
    let mut off: f64 = 0.0;
    let (mut silent, mut wasted_bytes) = (0.0, 0.0);
    for event in &events {
        wasted_bytes = event["wasted_bytes"].as_f64().unwrap_or(wasted_bytes);
        let states = event["sources"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_silent = |it: &Value| it["state"] == "silent";
        silent += f64::from(u8::from(is_silent(event) || states.iter().any(is_silent)));
        let at_s = event["at_s"].as_f64().filter(|&at_s| at_s >= FORECAST_FROM_S);
        if let (Some(at_s), Some(left_s)) = (at_s, event["eta"]["likely_s"].as_f64()) {
            off = off.max(((at_s + left_s) / elapsed_s - 1.0).abs());
        }
    }
    vec![
        ("wasted %".to_owned(), 100.0 * wasted_bytes / size_bytes as f64),
        ("eta off %".to_owned(), 100.0 * off),
        ("silent".to_owned(), silent),
    ]
}

/// The most connections to one of the servers that there ever were, looked at ten times a second.
fn most_connections(namespace: &Namespace, is_over: &AtomicBool) -> u32 {
    let mut most = 0;
    while !is_over.load(Ordering::Relaxed) {
        let read = || {
            fs::read_to_string("/proc/thread-self/net/tcp")
                .map_err(|cause| LabError::System { doing: "count connections".to_owned(), cause })
        };
        if let Ok(table) = namespace.run(read) {
            most = most.max(most_established(&table));
        }
        let next = Instant::now() + Duration::from_millis(100);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    most
}

/// By the kernel's table: established connections of the server that has most.
fn most_established(table: &str) -> u32 {
    let mut of_port: HashMap<&str, u32> = HashMap::new();
    for line in table.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, "01", ..] = words.as_slice() else { continue };
        let Some((_, local_port)) = local.split_once(':') else { continue };
        let is_ours = u16::from_str_radix(local_port, 16)
            .is_ok_and(|it| (0..RATES.len()).any(|at| port(at) == it));
        if is_ours {
            *of_port.entry(local_port).or_default() += 1;
        }
    }
    of_port.into_values().max().unwrap_or(0)
}

fn text(scratch: &Path, root: &Path, counts: bool) -> String {
    let (scratch, root) = (scratch.display(), root.display());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("  {what}_temp_path \"{scratch}/{what}\";\n"))
        .collect();
    let count = if counts { format!("limit_conn each {CONNECTIONS};") } else { String::new() };
    let servers: String = RATES
        .iter()
        .enumerate()
        .map(|(at, rate)| {
            format!(
                "  server {{ listen {HOST}:{}; root \"{root}\"; limit_rate {rate}; {count} }}\n",
                port(at)
            )
        })
        .collect();
    format!(
        "daemon off;\nmaster_process off;\nerror_log stderr crit;\npid \"{scratch}/pid\";\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  sendfile on;\n  types {{ }}\n\
         \x20 limit_conn_zone $server_port zone=each:1m;\n\
         \x20 log_format answers '$server_port $status $bytes_sent';\n\
         \x20 access_log \"{scratch}/access.log\" answers;\n{temporary}{servers}}}\n"
    )
}

fn port(server: usize) -> u16 {
    8470 + server as u16
}

const HOST: &str = "127.0.0.1";
/// The name of the file that is fetched.
pub const NAME: &str = "data";
const LIMIT: Duration = Duration::from_secs(600);
/// Forecasts count from here on.
const FORECAST_FROM_S: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn established_connections_of_the_servers_are_counted() {
        let line =
            |local: u16, state: &str| format!("0: 0100007F:{local:04X} 0100007F:9999 {state} 0");
        let table = [
            "sl local_address rem_address st".to_owned(),
            line(8470, "01"),
            line(8471, "01"),
            line(8471, "01"),
            line(8471, "06"),
            line(9000, "01"),
        ];
        assert_eq!(most_established(&table.join("\n")), 2);
    }

    #[test]
    fn forecasts_are_judged_by_the_whole_time() {
        let told = r#"{"event":"progress","at_s":1,"eta":{"likely_s":100}}
{"event":"progress","at_s":6,"eta":{"likely_s":5},"sources":[{"state":"silent"}]}
{"event":"done","wasted_bytes":10}"#;
        let figures: HashMap<String, f64> = of_events(told, 10.0, 1000).into_iter().collect();
        assert!((figures["eta off %"] - 10.0).abs() < 1e-9);
        assert_eq!((figures["wasted %"], figures["silent"]), (1.0, 1.0));
    }
}
