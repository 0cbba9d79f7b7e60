//! One run of one tool from a web server over loopback to a disk.
//!
//! Server and client share a namespace that has nothing but its loopback device. The yardstick
//! is `dd oflag=direct` of the same file, which needs no network. Before a run everything is
//! written out; after it, what the tool left in the page cache is written and timed apart.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use swath_netlab::wan::{LabError, Namespace};

use crate::check::{empty, failure_of};
use crate::machine::find_program;
use crate::measure::measure;
use crate::results::Run;
use crate::tool::as_typed;

/// A tool with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTool {
    /// Copies the file without the page cache: the limit.
    Dd,
    /// The SHA-256 digest of the cached file by the program's own hasher on one core: the limit of
    /// whoever has to check it.
    Sha256,
    /// swath with the BLAKE3 digest known in advance.
    SwathBlake3,
    /// swath with the SHA-256 digest known in advance.
    SwathSha256,
    /// swath without a digest.
    Swath,
    /// aria2 with sixteen connections.
    Aria2Sixteen,
    /// aria2 as it is.
    Aria2,
    /// curl.
    Curl,
}

/// What is transferred from where to where.
#[derive(Clone, Debug)]
pub struct Place {
    /// The `swath` program.
    pub swath: PathBuf,
    /// The file that is served.
    pub data: PathBuf,
    /// Its digests in hexadecimal.
    pub blake3: String,
    /// Its digests in hexadecimal.
    pub sha256: String,
    /// A folder on the disk, for nothing else.
    pub target: PathBuf,
}

impl DiskTool {
    /// Every tool, in the order of the table.
    pub const ALL: [DiskTool; 8] = [
        DiskTool::Dd,
        DiskTool::Sha256,
        DiskTool::SwathBlake3,
        DiskTool::SwathSha256,
        DiskTool::Swath,
        DiskTool::Aria2Sixteen,
        DiskTool::Aria2,
        DiskTool::Curl,
    ];

    /// Name on the command line, in tables and pictures.
    pub fn name(self) -> &'static str {
        match self {
            DiskTool::Dd => "dd",
            DiskTool::Sha256 => "sha256",
            DiskTool::SwathBlake3 => "swath-blake3",
            DiskTool::SwathSha256 => "swath-sha256",
            DiskTool::Swath => "swath",
            DiskTool::Aria2Sixteen => "aria2-x16",
            DiskTool::Aria2 => "aria2",
            DiskTool::Curl => "curl",
        }
    }

    /// The program behind it, if it is there.
    pub fn program(self, swath: &Path) -> Option<PathBuf> {
        match self {
            DiskTool::Dd => find_program("dd"),
            DiskTool::Sha256 => std::env::current_exe().ok(),
            DiskTool::Aria2Sixteen | DiskTool::Aria2 => find_program("aria2c"),
            DiskTool::Curl => find_program("curl"),
            _ => Some(swath.to_owned()).filter(|path| path.is_file()),
        }
    }

    fn command(self, program: &Path, place: &Place) -> Command {
        let name = place.data.file_name().unwrap_or_default().to_string_lossy();
        let url = format!("http://127.0.0.1/{name}");
        let output = place.target.join(OUTPUT);
        let mut command = Command::new(program);
        match self {
            DiskTool::Dd => {
                let [mut from, mut to] = ["if=", "of="].map(std::ffi::OsString::from);
                from.push(&place.data);
                to.push(&output);
                command.arg(from).arg(to).args(["bs=4M", "oflag=direct", "status=none"]);
            }
            DiskTool::Sha256 => {
                command.arg("--hash").arg(&place.data);
            }
            DiskTool::SwathBlake3 | DiskTool::SwathSha256 | DiskTool::Swath => {
                command.args(["get", &url, "-d"]).arg(&place.target);
                command.args(["-o", OUTPUT, "--overwrite", "--quiet"]);
                match self {
                    DiskTool::SwathBlake3 => {
                        command.args(["--digest", &format!("blake3:{}", place.blake3)]);
                    }
                    DiskTool::SwathSha256 => {
                        command.args(["--digest", &format!("sha-256:{}", place.sha256)]);
                    }
                    _ => {}
                }
            }
            DiskTool::Aria2Sixteen | DiskTool::Aria2 => {
                command.args(["--no-conf", "-q", "--allow-overwrite=true", "-d"]);
                command.arg(&place.target).args(["-o", OUTPUT]);
                if self == DiskTool::Aria2Sixteen {
                    command.args(["-x16", "-s16"]);
                }
                command.arg(url);
            }
            DiskTool::Curl => {
                command.args(["-q", "-s", "-f", "-o"]).arg(output).arg(url);
            }
        }
        command
    }
}

/// Runs `tool` once. Also tells the command line.
///
/// An error means that the surroundings did not work; a tool that fails is a run with a failure.
pub fn run_once(
    namespace: &Namespace,
    tool: DiskTool,
    program: &Path,
    place: &Place,
) -> Result<(Run, String), LabError> {
    let system = |doing: &str| {
        let doing = doing.to_owned();
        move |cause| LabError::System { doing, cause }
    };
    empty(&place.target).map_err(system("empty the target folder"))?;
    // SAFETY: sync has no preconditions.
    unsafe { libc::sync() };
    let mut command = tool.command(program, place);
    let typed = as_typed(&command);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &place.target);
    let said = place.target.join("said");
    let log = File::create(&said).map_err(system("make a log"))?;
    command.stdout(log.try_clone().map_err(system("make a log"))?).stderr(log);
    namespace.confine(&mut command);
    let measured = measure(&mut command, LIMIT, || ()).map_err(system("run a tool"))?;

    let output = place.target.join(OUTPUT);
    let begin = Instant::now();
    if let Ok(file) = File::open(&output) {
        file.sync_all().map_err(system("write the file out"))?;
    }
    let sync_s = begin.elapsed().as_secs_f64();
    let output = (tool != DiskTool::Sha256).then_some(&*output);
    let failure = failure_of(measured.ending, &place.data, output, &said);
    empty(&place.target).map_err(system("empty the target folder"))?;
    let run = Run {
        elapsed_s: measured.elapsed.as_secs_f64(),
        cpu_s: measured.cpu.as_secs_f64(),
        peak_memory_bytes: measured.peak_memory_bytes,
        is_stopped: measured.is_stopped(),
        wire_bytes: 0,
        sync_s,
        figures: Vec::new(),
        failure,
    };
    Ok((run, typed))
}

const OUTPUT: &str = "output";

/// Nothing sensible takes longer.
const LIMIT: Duration = Duration::from_secs(300);
