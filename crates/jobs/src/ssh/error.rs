//! Errors of starting a server by ssh.

use std::io;
use std::process::ExitStatus;

use swath_model::units;

use super::listen::HEARD_BYTES_MAX;
use crate::address::AddressError;

/// Why a server cannot be started or reached on another machine.
#[derive(Debug, thiserror::Error)]
#[error("{}", .fault.words(.host, .command))]
pub struct SshError {
    /// The host argument of ssh.
    pub host: String,
    /// The ssh command.
    pub command: String,
    /// The error.
    #[source]
    pub fault: SshFault,
}

/// Errors of ssh and of the remote host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SshFault {
    /// ssh cannot be started.
    #[error("cannot run ssh: {0}")]
    Start(io::Error),
    /// ssh has no standard output.
    #[error("ssh has no output")]
    NoOutput,
    /// ssh has no standard input.
    #[error("ssh has no input")]
    NoInput,
    /// The remote shell printed too much.
    #[error(
        "its shell printed more than {} and did not run swath{}",
        units::bytes(HEARD_BYTES_MAX as u64),
        it_printed(.0)
    )]
    TooMuch(Option<String>),
    /// A remote command does not answer.
    #[error("{ran} did not answer within {patience_s} s{}", it_printed(.printed))]
    Silent {
        /// The command.
        ran: Command,
        /// The time limit.
        patience_s: f64,
        /// Its output.
        printed: Option<String>,
    },
    /// The remote shell does not run the command.
    #[error("ssh logged in, but the shell did not run the command within {patience_s} s{}", it_printed(.printed))]
    NotBegun {
        /// The time limit.
        patience_s: f64,
        /// Its output.
        printed: Option<String>,
    },
    /// The connection broke.
    #[error("the ssh connection broke (see ssh's message above)")]
    Broke,
    /// ssh cannot connect.
    #[error("ssh could not connect (see its message above)")]
    NoConnection,
    /// A remote command failed.
    #[error("{ran} failed with exit code {code} (see its message above){}", it_printed(.printed))]
    Ended {
        /// The command.
        ran: Command,
        /// Its exit code.
        code: i32,
        /// Its output.
        printed: Option<String>,
    },
    /// The remote account runs no commands.
    #[error("its shell does not run commands (exit code {code}){}", it_printed(.printed))]
    NoShell {
        /// The shell's exit code.
        code: i32,
        /// Its output.
        printed: Option<String>,
    },
    /// A remote command does not start.
    #[error("{ran} does not start{}", it_printed(.printed))]
    NoStart {
        /// The command.
        ran: Command,
        /// Its output.
        printed: Option<String>,
    },
    /// swath is not installed.
    #[error("swath is not installed")]
    Missing,
    /// Invalid answer of the remote server.
    #[error("invalid answer of its server: {0}")]
    InvalidHello(InvalidHello),
    /// Another system or processor.
    #[error("a different machine type ({0}): install swath there by hand")]
    OtherMachine(String),
    /// This program cannot be read.
    #[error("cannot read this program: {0}")]
    OwnProgram(io::Error),
    /// This program cannot be copied to the host.
    #[error("cannot copy this program to the host: {0}")]
    NotPut(Box<SshError>),
    /// No folder for a socket.
    #[error("cannot create a folder for a socket: {0}")]
    NoSocket(io::Error),
    /// No free local port.
    #[error("{0}")]
    OwnPort(io::Error),
    /// ssh ended.
    #[error("ssh ended with {0}")]
    SshEnded(ExitStatus),
    /// ssh forwards no port.
    #[error("ssh does not open its local port")]
    NoPort,
    /// The port is unreachable, and ssh does not forward it.
    #[error("cannot reach its port {port}, directly or through ssh: {}", .error.fault)]
    NoTunnel {
        /// Its port.
        port: u16,
        /// The error.
        error: Box<SshError>,
    },
    /// The port is unreachable in every way.
    #[error(
        "cannot reach its port {port}: sshd forbids forwarding, and the connection through ssh failed: {error}. Open the port, or allow forwarding (AllowTcpForwarding)"
    )]
    NoWay {
        /// Its port.
        port: u16,
        /// The error of the last attempt.
        error: Box<SshError>,
    },
}

/// Invalid parts of a server's answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHello {
    /// The fingerprint.
    #[error("the fingerprint")]
    Fingerprint,
    /// The address.
    #[error(transparent)]
    Address(AddressError),
}

/// Commands on the remote host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Looking for swath.
    Look,
    /// Copying this program.
    Copy,
    /// Serving one copy.
    Serve,
    /// Connecting to the server's port.
    Through,
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Command::Look => "looking for swath",
            Command::Copy => "copying this program",
            Command::Serve => "swath serve",
            Command::Through => "swath serve --through",
        })
    }
}

impl SshFault {
    /// Returns the text of the whole error.
    fn words(&self, host: &str, command: &str) -> String {
        match self {
            SshFault::Start(error) => {
                let program = command.split(' ').next().unwrap_or_default();
                format!("cannot run {program}: {error}")
            }
            SshFault::OtherMachine(..) => format!("{host} is {self}"),
            SshFault::NotPut(error) => format!("cannot copy this program: {error}"),
            // Errors of this machine.
            SshFault::NoOutput
            | SshFault::NoInput
            | SshFault::OwnProgram(_)
            | SshFault::NoSocket(_)
            | SshFault::OwnPort(_)
            | SshFault::SshEnded(_)
            | SshFault::NoPort => self.to_string(),
            _ => format!("{host}: {self}"),
        }
    }
}

fn it_printed(printed: &Option<String>) -> String {
    printed.as_ref().map(|printed| format!("; its output: {printed}")).unwrap_or_default()
}
