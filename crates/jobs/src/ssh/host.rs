//! A host reached by ssh, and commands on it.
//!
//! It runs the user's ssh with the user's configuration. OpenSSH (which supports `-G`) also gets a time
//! limit for connecting, and a command to print a line after the login, so that a silent command can be
//! distinguished from a password prompt.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::SshOptions;
use super::error::{Command as Ran, SshError, SshFault};
use super::listen::{BEGUN, LOGGED_IN, NoLine, OutputReader};

/// How a host is reached.
#[derive(Clone, Debug)]
pub struct SshHost {
    /// The ssh command with its arguments before the host.
    ssh: Vec<String>,
    /// The host argument of ssh.
    pub host: String,
    /// The host name for connections; `host` may be an alias of ssh's configuration.
    pub name: String,
    /// Whether the configuration forwards ports.
    pub forwards: bool,
    /// Whether ssh connections are shared.
    pub shares: bool,
    /// The time limit of silence.
    pub patience: Duration,
    /// Options of every ssh that may connect.
    connects: Vec<String>,
    /// Options of every ssh that runs a command.
    tells: Vec<String>,
}

/// A running remote command, which ends when this is dropped.
pub struct RemoteCommand {
    /// The ssh process.
    pub ssh: Child,
    /// Its standard input.
    pub input: Option<ChildStdin>,
    /// Its output.
    pub output: OutputReader<BufReader<ChildStdout>>,
}

impl SshHost {
    /// Reads the configuration of ssh for this host.
    pub async fn of(options: &SshOptions, host: &str) -> SshHost {
        let known = known(&options.command, host).await;
        let value = |name: &str| {
            let mut values = known.lines().filter_map(|line| line.split_once(' '));
            values.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        let alone = host.rsplit('@').next().unwrap_or(host);
        let mut host = SshHost {
            ssh: options.command.clone(),
            host: host.to_owned(),
            name: value("hostname").unwrap_or_else(|| alone.to_owned()),
            forwards: ["localforward", "remoteforward", "dynamicforward"]
                .iter()
                .any(|key| value(key).is_some()),
            shares: value("controlpath").is_some_and(|path| path != "none"),
            patience: options.patience,
            connects: Vec::new(),
            tells: Vec::new(),
        };
        if value("connecttimeout").as_deref() == Some("none") {
            let limit_s = options.patience.as_secs_f64().ceil() as u64;
            host.connects = with_o([format!("ConnectTimeout={}", limit_s.max(1))]);
        }
        // Overrides options for interactive sessions, if set: an option that this ssh does not know
        // would be an error.
        let has = |key: &str, wanted: &str| value(key).is_some_and(|value| value != wanted);
        if has("remotecommand", "none") {
            host.connects.extend(with_o(["RemoteCommand=none".to_owned()]));
        }
        if has("stdinnull", "no") {
            host.connects.extend(with_o(["StdinNull=no".to_owned()]));
        }
        if has("forkafterauthentication", "no") {
            host.connects.extend(with_o(["ForkAfterAuthentication=no".to_owned()]));
        }
        if let Some(permits) = value("permitlocalcommand") {
            // The user's own LocalCommand still runs.
            let own = value("localcommand").filter(|own| permits == "yes" && own != "none");
            let own = own.map(|own| format!("; {own}")).unwrap_or_default();
            let tell = format!("LocalCommand=echo {LOGGED_IN}{own}");
            host.tells = with_o(["PermitLocalCommand=yes".to_owned(), tell]);
        }
        if has("sessiontype", "default") {
            host.tells.extend(with_o(["SessionType=default".to_owned()]));
        }
        // Another ssh may have the ports already.
        if host.forwards {
            host.tells.extend(with_o(["ClearAllForwardings=yes".to_owned()]));
        }
        host
    }

    /// Returns the host over an existing connection with these options.
    pub fn by(&self, shared: [String; 2]) -> SshHost {
        let mut host = self.clone();
        host.shares = true;
        host.connects.extend(with_o(shared));
        host
    }

    /// Returns the common part of an ssh command, whose messages go to standard error.
    pub fn ssh(&self) -> Command {
        let mut ssh = Command::new(&self.ssh[0]);
        ssh.args(&self.ssh[1..]).args(&self.connects).arg("-T");
        ssh.stdout(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
        ssh
    }

    /// Runs a shell command on the host.
    pub async fn run(&self, line: &str) -> Result<RemoteCommand, SshError> {
        // A shared connection needs no login.
        let is_in = self.shares && self.is_there().await;
        let mut ssh = self.ssh();
        ssh.args(&self.tells).args(["--", &self.host]).arg(format!("echo {BEGUN}; {line}"));
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ssh = self.start(ssh)?;
        let (input, output) = (ssh.stdin.take(), ssh.stdout.take());
        let output = BufReader::with_capacity(
            PART_BYTES,
            output.ok_or_else(|| self.error(SshFault::NoOutput))?,
        );
        Ok(RemoteCommand { ssh, input, output: OutputReader::new(output, self.patience, is_in) })
    }

    /// Starts an ssh command.
    pub fn start(&self, mut ssh: Command) -> Result<Child, SshError> {
        ssh.spawn().map_err(|error| self.error(SshFault::Start(error)))
    }

    /// Whether there is a shared connection.
    async fn is_there(&self) -> bool {
        let mut ask = self.ssh();
        ask.args(["-O", "check", "--", &self.host]).stdin(Stdio::null()).stderr(Stdio::null());
        timeout(END_WITHIN, ask.status()).await.is_ok_and(|it| it.is_ok_and(|it| it.success()))
    }

    /// Returns an error of this host.
    pub fn error(&self, fault: SshFault) -> SshError {
        SshError { host: self.host.clone(), command: self.ssh.join(" "), fault }
    }

    /// Returns why a command did not answer.
    pub async fn why(&self, run: &mut RemoteCommand, unheard: NoLine, ran: Ran) -> SshError {
        let (printed, has_begun) = (run.output.noise(), run.output.has_begun());
        let patience_s = self.patience.as_secs_f64();
        self.error(match unheard {
            NoLine::TooMuch => SshFault::TooMuch(printed),
            NoLine::TooLate if has_begun => SshFault::Silent { ran, patience_s, printed },
            NoLine::TooLate => SshFault::NotBegun { patience_s, printed },
            NoLine::Ended => match run.code().await {
                Some(255) if run.output.is_in() => SshFault::Broke,
                Some(255) => SshFault::NoConnection,
                Some(code) if has_begun => SshFault::Ended { ran, code, printed },
                Some(code) => SshFault::NoShell { code, printed },
                None => SshFault::NoStart { ran, printed },
            },
        })
    }
}

impl RemoteCommand {
    /// Whether it ended with the exit code of a missing command.
    pub async fn is_missing(&mut self, unheard: NoLine) -> bool {
        let has_ended = unheard == NoLine::Ended && self.output.has_begun();
        has_ended && self.code().await == Some(127)
    }

    /// Returns its exit code, if it has ended with one.
    async fn code(&mut self) -> Option<i32> {
        let status = timeout(END_WITHIN, self.ssh.wait()).await;
        status.ok()?.ok()?.code()
    }
}

/// Returns ssh's configuration for a host; empty if it is not OpenSSH.
async fn known(ssh: &[String], host: &str) -> String {
    let mut ask = Command::new(&ssh[0]);
    ask.args(&ssh[1..]).args(["-G", "--", host]).stdin(Stdio::null()).stderr(Stdio::null());
    let answer = timeout(ASKS_WITHIN, ask.kill_on_drop(true).output()).await;
    let answer = answer.ok().and_then(Result::ok);
    answer.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default()
}

fn with_o(values: impl IntoIterator<Item = String>) -> Vec<String> {
    values.into_iter().flat_map(|value| ["-o".to_owned(), value]).collect()
}

/// Bytes per read.
const PART_BYTES: usize = 256 << 10;
/// ssh only reads its configuration, and runs its `Match exec` commands.
const ASKS_WITHIN: Duration = Duration::from_secs(20);
/// ssh ends soon after its command.
const END_WITHIN: Duration = Duration::from_secs(5);
