//! Servers of copies between namespaces: `swath serve`, GridFTP's, rsync's daemon. Each is started in
//! a namespace, waited for until it listens, and killed with all that it started when dropped.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use swath_netlab::wan::{LabError, Namespace};

use crate::measure::end_with_us;
use crate::tree_run::wait_for;

/// A program that runs. Killed when dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(group) = libc::pid_t::try_from(self.0.id()) {
            // SAFETY: the child has not been waited for, and its group is its own.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.0.wait();
    }
}

/// Starts a program in a namespace, with nothing of ours; what it says goes to `own`.
///
/// It has a namespace of process ids too: servers that work in sessions of their own would outlive both
/// the kill of their group and a killed benchmark.
pub fn start(
    program: Command,
    namespace: &Namespace,
    own: &Path,
    stdout: Stdio,
) -> Result<Running, LabError> {
    let log = File::create(own.join(SAID)).map_err(system("make a log"))?;
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]);
    command.arg(program.get_program()).args(program.get_args());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", own).current_dir(own).process_group(0);
    command.stdin(Stdio::null()).stdout(stdout).stderr(log);
    end_with_us(&mut command);
    namespace.confine(&mut command);
    Ok(Running(command.spawn().map_err(system("start a server"))?))
}

/// A `swath serve` that stands.
#[derive(Debug)]
pub struct Swath {
    /// `HOST:PORT`.
    pub address: String,
    /// As clients name it.
    pub fingerprint: String,
    /// For reading, or for writing with `--write`.
    pub token: String,
    _running: Running,
}

impl Swath {
    /// Starts it on a folder.
    pub fn start(
        program: &Path,
        namespace: &Namespace,
        address: &str,
        folder: &Path,
        own: &Path,
        more: &[&str],
    ) -> Result<Swath, LabError> {
        let mut command = Command::new(program);
        command.arg("serve").arg(folder).args(["--listen", address]).args(more);
        let mut running = start(command, namespace, own, Stdio::piped())?;
        let stdout = running.0.stdout.take();
        let mut lines = BufReader::new(stdout.ok_or_else(|| failed("swath serve", own))?).lines();
        let (mut fingerprint, mut token) = (String::new(), None);
        while token.is_none() {
            let line = lines.next().and_then(Result::ok);
            let line = line.ok_or_else(|| failed("swath serve", own))?;
            match line.split_once(' ') {
                Some(("fingerprint", value)) => value.trim().clone_into(&mut fingerprint),
                Some(("token", value)) => token = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        // What else it prints must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        let token = token.unwrap_or_default();
        Ok(Swath { address: address.to_owned(), fingerprint, token, _running: running })
    }

    /// Returns the address of a path, with the token.
    pub fn url(&self, path: &str) -> String {
        format!("https://x:{}@{}/{path}", self.token, self.address)
    }
}

/// Starts `globus-gridftp-server` for everybody, without encryption, as nobody.
pub fn gridftp(namespace: &Namespace, address: &str, own: &Path) -> Result<Running, LabError> {
    let mut command = as_nobody("globus-gridftp-server");
    command.args(["-p", GRIDFTP_PORT, "-aa", "-auth-level", "0", "-pidfile"]).arg(own.join("pid"));
    command.arg("-l").arg(own.join("log"));
    // Not `-control-interface`: it looks for the name of that address, which there is not.
    command.args(["-data-interface", address]);
    let running = start(command, namespace, own, Stdio::null())?;
    wait_for(namespace, GRIDFTP_PORT).map_err(|_| failed("globus-gridftp-server", own))?;
    Ok(running)
}

/// Starts rsync's daemon for a folder, as the module `tree`.
pub fn rsync(namespace: &Namespace, folder: &Path, own: &Path) -> Result<Running, LabError> {
    let configuration = own.join("rsyncd.conf");
    fs::write(&configuration, rsync_configuration(folder)).map_err(system("configure rsync"))?;
    let mut command = Command::new("rsync");
    command.args(["--daemon", "--no-detach", "--port", RSYNC_PORT, "--config"]).arg(configuration);
    let running = start(command, namespace, own, Stdio::null())?;
    wait_for(namespace, RSYNC_PORT).map_err(|_| failed("rsync", own))?;
    Ok(running)
}

/// Returns what makes rsync a daemon for a folder, as the module `tree`.
pub fn rsync_configuration(folder: &Path) -> String {
    format!("use chroot = no\nuid = 0\ngid = 0\n[tree]\npath = {}\n", folder.display())
}

/// Returns a program that nobody runs, and that ends with us.
pub fn as_nobody(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--pdeathsig", "KILL"]);
    command.arg(program);
    command
}

/// Gives a folder and everything in it to nobody.
pub fn to_nobody(folder: &Path) -> io::Result<()> {
    let mut command = Command::new("chown");
    let status = command.args(["-R", &format!("{NOBODY}:{NOBODY}")]).arg(folder).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("chown failed")) }
}

/// Returns that a server did not start, with its last words.
pub fn failed(program: &'static str, own: &Path) -> LabError {
    let text = fs::read_to_string(own.join(SAID)).unwrap_or_default();
    let last = text.trim().lines().last().unwrap_or("it does not start");
    LabError::ServerFailed { program, said: last.to_owned() }
}

/// Returns what makes an error of the system one of the laboratory.
pub fn system(doing: &str) -> impl FnOnce(io::Error) -> LabError {
    let doing = doing.to_owned();
    move |cause| LabError::System { doing, cause }
}

/// GridFTP's control connections.
pub const GRIDFTP_PORT: &str = "2811";
/// Where rsync's daemon listens.
pub const RSYNC_PORT: &str = "873";
const SAID: &str = "said";
/// The user of Debian, by number: `setpriv` then needs no names.
const NOBODY: &str = "65534";
