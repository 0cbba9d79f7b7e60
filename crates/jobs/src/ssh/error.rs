//! Why a server cannot be started where ssh leads.

use std::io;
use std::process::ExitStatus;

use swath_model::units;

use super::listen::HEARD_BYTES_MAX;
use crate::address::AddressError;

/// Why a server cannot be started on another machine, or not be reached there.
#[derive(Debug, thiserror::Error)]
#[error("{}", .fault.words(.host, .command))]
pub struct SshError {
    /// The machine, as ssh takes it.
    pub host: String,
    /// How ssh is called.
    pub command: String,
    /// What happened.
    #[source]
    pub fault: SshFault,
}

/// What happened.
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
    /// The shell there printed a lot, and nothing of swath's.
    #[error(
        "its shell printed {} and more, and nothing of swath's{}",
        units::bytes(HEARD_BYTES_MAX as u64),
        it_printed(.printed)
    )]
    TooMuch {
        /// The beginning of it.
        printed: Option<String>,
    },
    /// A command began there and has not answered.
    #[error("{ran} was begun there, and has not answered for {patience_s} s{}", it_printed(.printed))]
    Silent {
        /// The command.
        ran: Command,
        /// How long it was waited for.
        patience_s: f64,
        /// What came instead.
        printed: Option<String>,
    },
    /// ssh is in, and the shell there has run nothing.
    #[error("ssh has logged in, but what it is to run there has not begun within {patience_s} s{}", it_printed(.printed))]
    NotBegun {
        /// How long it was waited for.
        patience_s: f64,
        /// What came instead.
        printed: Option<String>,
    },
    /// The connection broke.
    #[error("the ssh connection broke (what ssh said is above)")]
    Broke,
    /// There is no connection.
    #[error("ssh could not connect (what it said is above)")]
    NoConnection,
    /// A command ended there before its time.
    #[error("{ran} ended there with {code} (what it said is above){}", it_printed(.printed))]
    Ended {
        /// The command.
        ran: Command,
        /// Its exit code.
        code: i32,
        /// What came instead of an answer.
        printed: Option<String>,
    },
    /// The account there runs no commands.
    #[error("its shell runs no commands, and ended with {code}{}", it_printed(.printed))]
    NoShell {
        /// The shell's exit code.
        code: i32,
        /// What it printed.
        printed: Option<String>,
    },
    /// A command does not start there.
    #[error("{ran} does not start there{}", it_printed(.printed))]
    NoStart {
        /// The command.
        ran: Command,
        /// What came instead.
        printed: Option<String>,
    },
    /// There is no swath.
    #[error("swath is not there")]
    Missing,
    /// A server there says what nobody understands.
    #[error("what its server says makes no sense: {0}")]
    Nonsense(Nonsense),
    /// The machine is of another kind, and this program does not run there.
    #[error("a machine of another kind ({kind}): swath must be put there by hand")]
    OtherMachine {
        /// Its system and processor.
        kind: String,
    },
    /// The program that is to be put there cannot be read.
    #[error("cannot read this program: {0}")]
    OwnProgram(io::Error),
    /// The program cannot be put there.
    #[error("this program could not be put there: {0}")]
    NotPut(Box<SshError>),
    /// There is no folder for a socket here.
    #[error("no place for a socket: {0}")]
    NoSocket(io::Error),
    /// There is no port to be had here.
    #[error("{0}")]
    OwnPort(io::Error),
    /// ssh ended before its time.
    #[error("ssh ended with {0}")]
    SshEnded(ExitStatus),
    /// ssh forwards no port.
    #[error("ssh opens no port here")]
    NoPort,
    /// A server there is not to be reached by ssh's forwarding.
    #[error("no way to its port {port}, not through ssh either: {}", .error.fault)]
    NoTunnel {
        /// Its port.
        port: u16,
        /// Why.
        error: Box<SshError>,
    },
    /// A server there is not to be reached in any way.
    #[error(
        "no way to its port {port}: it cannot be reached from here, sshd there forbids forwarding, and through ssh itself it does not work either: {error}. Open the port, or allow forwarding there (AllowTcpForwarding)"
    )]
    NoWay {
        /// Its port.
        port: u16,
        /// Why the last way does not lead there.
        error: Box<SshError>,
    },
}

/// What of a server's answer makes no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Nonsense {
    /// It shows no fingerprint.
    #[error("the fingerprint")]
    Fingerprint,
    /// It tells no address.
    #[error(transparent)]
    Address(AddressError),
}

/// A command that is run there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The look for swath.
    Look,
    /// The copy of this program.
    Copy,
    /// A server for one copy.
    Serve,
    /// A connection to its port.
    Through,
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Command::Look => "the look for swath",
            Command::Copy => "the copy of this program",
            Command::Serve => "swath serve",
            Command::Through => "swath serve --through",
        })
    }
}

impl SshFault {
    /// The sentence of the whole error.
    fn words(&self, host: &str, command: &str) -> String {
        match self {
            SshFault::Start(error) => {
                let program = command.split(' ').next().unwrap_or_default();
                format!("cannot run {program}: {error}")
            }
            SshFault::OtherMachine { .. } => format!("{host} is {self}"),
            SshFault::NotPut(error) => format!("this program could not be put there: {error}"),
            // These are about this machine.
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
    printed.as_ref().map(|printed| format!("; it printed: {printed}")).unwrap_or_default()
}
