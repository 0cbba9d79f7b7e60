//! The programs that take part, and how the client of each one is started.

use std::path::Path;
use std::process::Command;

use super::row::{Data, FILE};
use crate::machine::find_program;
use crate::server::Swath;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `swath cp` at the destination.
    SwathByB,
    /// `swath cp` with URLs at both ends, at the client.
    Swath,
    /// `globus-url-copy` between two servers; as it is, or with this many connections.
    GridFtp(Option<u32>),
    /// `davix-cp` between two XRootD servers; the destination pulls.
    Davix,
    /// On one machine: `davix-cp`, XRootD pulls from XRootD.
    XrootdPulls,
    /// On one machine: `davix-cp`, XRootD pushes to XRootD.
    XrootdPushes,
    /// On one machine: `COPY` at swath, which pulls from XRootD.
    SwathPulls,
    /// On one machine: `COPY` at XRootD, which pushes to swath.
    XrootdPushesToSwath,
    /// On one machine: `COPY` at swath, which pushes to XRootD.
    SwathPushes,
    /// On one machine: `COPY` at XRootD, which pulls from swath.
    XrootdPullsFromSwath,
    /// On one machine: `COPY` at swath, which pulls from swath.
    SwathAlone,
}

impl Tool {
    /// Those that cross emulated links.
    pub const ALL: [Tool; 7] = [
        Tool::SwathByB,
        Tool::Swath,
        Tool::GridFtp(None),
        Tool::GridFtp(Some(4)),
        Tool::GridFtp(Some(8)),
        Tool::GridFtp(Some(16)),
        Tool::Davix,
    ];

    /// Those on one machine.
    pub const COPIES: [Tool; 7] = [
        Tool::XrootdPulls,
        Tool::XrootdPushes,
        Tool::SwathPulls,
        Tool::XrootdPushesToSwath,
        Tool::SwathPushes,
        Tool::XrootdPullsFromSwath,
        Tool::SwathAlone,
    ];

    /// Returns the name in the table and for `--tools`.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::SwathByB => "swath-by-b",
            Tool::Swath => "swath",
            Tool::GridFtp(None) => "gridftp",
            Tool::GridFtp(Some(4)) => "gridftp-p4",
            Tool::GridFtp(Some(8)) => "gridftp-p8",
            Tool::GridFtp(Some(_)) => "gridftp-p16",
            Tool::Davix => "davix",
            Tool::XrootdPulls => "xrootd-pulls",
            Tool::XrootdPushes => "xrootd-pushes",
            Tool::SwathPulls => "swath-pulls",
            Tool::XrootdPushesToSwath => "xrootd-pushes-to-swath",
            Tool::SwathPushes => "swath-pushes",
            Tool::XrootdPullsFromSwath => "xrootd-pulls-from-swath",
            Tool::SwathAlone => "swath-alone",
        }
    }

    /// Returns why it does not take part, if it does not.
    pub fn missing(self, data: Data) -> Option<String> {
        let programs: &[&str] = match self {
            Tool::SwathByB | Tool::Swath => &[],
            Tool::GridFtp(_) => &["globus-gridftp-server", "globus-url-copy", "setpriv"],
            Tool::Davix | Tool::XrootdPulls | Tool::XrootdPushes => {
                &["xrootd", "davix-cp", "openssl", "setpriv"]
            }
            Tool::SwathAlone => &["openssl", "curl"],
            _ => &["xrootd", "curl", "openssl", "setpriv"],
        };
        if self == Tool::Davix && !matches!(data, Data::File(_)) {
            return Some("it cannot copy folders between servers".to_owned());
        }
        let missing = programs.iter().find(|name| find_program(name).is_none())?;
        Some(format!("{missing} is not installed"))
    }

    /// Returns the tool that XRootD alone does likewise: the yardstick of the rows on one machine.
    pub fn yardstick(self) -> Option<Tool> {
        match self {
            Tool::SwathPulls | Tool::XrootdPullsFromSwath | Tool::SwathAlone => {
                Some(Tool::XrootdPulls)
            }
            Tool::SwathPushes | Tool::XrootdPushesToSwath => Some(Tool::XrootdPushes),
            _ => None,
        }
    }
}

/// Returns `swath cp` from servers to a folder at the end of `output`: a path, or a server's address.
pub fn swath_copy(program: &Path, sources: &[Swath], output: &str, servers: &[&Swath]) -> Command {
    let mut command = Command::new(program);
    command.args(["cp", "--quiet"]);
    for server in servers {
        command.args(["--fingerprint", &server.fingerprint]);
    }
    command.args(sources.iter().map(|it| it.url("ds/"))).arg(output);
    command
}

/// Returns `globus-url-copy` of a folder from one server to a folder of another one.
pub fn globus_copy(parallel: Option<u32>, from: &str, to: &str, data: Data) -> Command {
    let mut command = Command::new("globus-url-copy");
    command.arg("-nodcau");
    if let Some(parallel) = parallel {
        command.args(["-fast", "-p", &parallel.to_string()]);
    }
    match data {
        Data::File(_) => command.args([format!("{from}{FILE}"), format!("{to}{FILE}")]),
        Data::Folder(..) | Data::Tree(_) => {
            command.args(["-r", "-cd"]);
            if parallel.is_some() {
                command.args(["-pp", "-cc", FOLDER_CONCURRENCY]);
            }
            command.args([from, to])
        }
    };
    command
}

/// Returns `davix-cp` between two servers.
pub fn davix_copy(authorities: &Path, is_pull: bool, from: &str, to: &str) -> Command {
    let mut command = Command::new("davix-cp");
    command.args(["--copy-mode", if is_pull { "pull" } else { "push" }, "--capath"]);
    // Nothing is delegated: both servers serve everybody.
    command.arg(authorities).args(["-H", "Credential: none", from, to]);
    command
}

/// Files at a time; more were no faster.
const FOLDER_CONCURRENCY: &str = "8";
