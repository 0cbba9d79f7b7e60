//! Servers of files that are measured themselves: swath, nginx, rsync's daemon.
//!
//! Each is started in the foreground in a process group of its own, waited for until it listens,
//! and ended by its process id; only then the kernel's accounting of it is complete.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use swath_netlab::wan::{LabError, Namespace};

use crate::measure::finish;
use crate::server::rsync_configuration;
use crate::tool::as_typed;
use crate::tree_run::wait_for;

/// What serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// `swath serve`.
    Swath {
        /// Over TLS, with [`Identity`].
        tls: bool,
    },
    /// nginx, one process, with sendfile.
    Nginx {
        /// Over TLS, with [`Identity`].
        tls: bool,
    },
    /// rsync's daemon.
    Rsync,
}

/// One certificate for all servers: ECDSA on P-256, signed by itself, for `localhost` and
/// `127.0.0.1`.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}

impl Identity {
    /// Makes one in a folder.
    pub fn make(folder: &Path) -> io::Result<Self> {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
        let identity =
            Self { certificate: folder.join("certificate.pem"), key: folder.join("key.pem") };
        fs::write(&identity.certificate, made.cert.pem())?;
        fs::write(&identity.key, made.signing_key.serialize_pem())?;
        Ok(identity)
    }
}

/// A server that stands; killed when dropped before its end was asked for.
#[derive(Debug)]
pub struct Serving {
    server: Server,
    child: Child,
    begin: Instant,
    command: String,
    is_over: bool,
}

/// What a program took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// User and system time, its children's too.
    pub cpu: Duration,
    /// Largest resident memory.
    pub peak_memory_bytes: u64,
}

impl Spent {
    /// Returns what a running process took so far, without its children; `None` if there is none.
    pub fn so_far(process: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The program's name may hold anything, so fields are counted from its end: proc(5).
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
        // SAFETY: sysconf takes an integer.
        let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let cpu = Duration::from_secs_f64((ticks(11)? + ticks(12)?) / ticks_per_s);
        Some(Self { cpu, peak_memory_bytes: high_water_bytes(process)? })
    }

    /// Returns what both took: their time together, and the memory of the larger one.
    pub fn with(self, other: Self) -> Self {
        let peak_memory_bytes = self.peak_memory_bytes.max(other.peak_memory_bytes);
        Self { cpu: self.cpu + other.cpu, peak_memory_bytes }
    }
}

impl Serving {
    /// Starts a server of `root` and waits until it listens. What it says and needs goes into
    /// `scratch`.
    pub fn start(
        server: Server,
        program: &Path,
        namespace: &Namespace,
        root: &Path,
        identity: &Identity,
        scratch: &Path,
    ) -> Result<Self, LabError> {
        let system = |doing: &str| {
            let doing = doing.to_owned();
            move |cause| LabError::System { doing, cause }
        };
        let mut command = Command::new(program);
        match server {
            Server::Swath { tls } => {
                command.args(["serve", "--anonymous", "--listen", &format!("{HOST}:{PORT}")]);
                if tls {
                    command.arg("--tls-cert").arg(&identity.certificate);
                    command.arg("--tls-key").arg(&identity.key);
                } else {
                    command.arg("--plain");
                }
                command.arg(root);
            }
            Server::Nginx { tls } => {
                let configuration = scratch.join("nginx.conf");
                fs::write(&configuration, nginx_configuration(scratch, root, identity, tls))
                    .map_err(system("write a server configuration"))?;
                command.args(["-e", "stderr", "-c"]).arg(configuration);
            }
            Server::Rsync => {
                let configuration = scratch.join("rsyncd.conf");
                fs::write(&configuration, rsync_configuration(root))
                    .map_err(system("write a server configuration"))?;
                command.args(["--daemon", "--no-detach", "--port", PORT, "--config"]);
                command.arg(configuration);
            }
        }
        let typed = as_typed(&command);
        let said = scratch.join("server-said");
        let log = File::create(&said).map_err(system("make a server log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        namespace.confine(&mut command);
        let begin = Instant::now();
        let child = command.spawn().map_err(system("start a server"))?;
        let serving = Self { server, child, begin, command: typed, is_over: false };
        match wait_for(namespace, PORT) {
            Ok(()) => Ok(serving),
            Err(_) => {
                let text = fs::read_to_string(&said).unwrap_or_default();
                let said = text.trim().lines().last().unwrap_or("it said nothing").to_owned();
                Err(LabError::ServerFailed { program: serving.server.name(), said })
            }
        }
    }

    /// Its command line.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Asks it to end, waits for that, and tells what it took.
    pub fn end(mut self) -> io::Result<Spent> {
        // Its own high-water mark: the one of the accounting begins with the memory of whoever
        // started it. A daemon that works in children is known by the accounting only.
        let own = high_water_bytes(self.child.id());
        let process = libc::pid_t::try_from(self.child.id()).map_err(io::Error::other)?;
        // SAFETY: the child has not been waited for, so its id is still its own.
        unsafe { libc::kill(process, libc::SIGTERM) };
        self.is_over = true;
        let measured = finish(&self.child, self.begin, END_LIMIT)?;
        let peak_memory_bytes = match self.server {
            Server::Rsync => measured.peak_memory_bytes,
            _ => own.unwrap_or(measured.peak_memory_bytes),
        };
        Ok(Spent { cpu: measured.cpu, peak_memory_bytes })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Server {
    /// Name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Server::Swath { .. } => "swath",
            Server::Nginx { .. } => "nginx",
            Server::Rsync => "rsync",
        }
    }

    /// What is served, as a client is told; with a slash at its end.
    pub fn url(self) -> String {
        match self {
            Server::Swath { tls } | Server::Nginx { tls } => {
                format!("{}://{HOST}:{PORT}/", if tls { "https" } else { "http" })
            }
            Server::Rsync => format!("rsync://{HOST}:{PORT}/tree/"),
        }
    }
}

/// The largest resident memory that a process had since it became this program.
pub(crate) fn high_water_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

fn nginx_configuration(scratch: &Path, root: &Path, identity: &Identity, tls: bool) -> String {
    let (scratch, root) = (scratch.display(), root.display());
    let with_tls = if tls {
        format!(
            "ssl_certificate \"{}\"; ssl_certificate_key \"{}\";",
            identity.certificate.display(),
            identity.key.display()
        )
    } else {
        String::new()
    };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("  {what}_temp_path \"{scratch}/{what}\";\n"))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\nerror_log stderr warn;\npid \"{scratch}/pid\";\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n\
         \x20 keepalive_requests 100000000;\n  keepalive_timeout 1h;\n\
         \x20 types {{ }}\n  default_type application/octet-stream;\n{temporary}\
         \x20 server {{ listen {HOST}:{PORT}{}; root \"{root}\"; {with_tls} }}\n}}\n",
        if tls { " ssl" } else { "" }
    )
}

const HOST: &str = "127.0.0.1";
const PORT: &str = "8470";
/// swath lets what is under way end, for ten seconds; nothing is under way.
const END_LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_a_certificate_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity::make(folder.path()).unwrap();
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert!(text(&identity.certificate).starts_with("-----BEGIN CERTIFICATE"));
        assert!(text(&identity.key).starts_with("-----BEGIN PRIVATE KEY"));
        let with = nginx_configuration(folder.path(), Path::new("/data"), &identity, true);
        assert!(with.contains("ssl; root \"/data\"; ssl_certificate "), "{with}");
        let without = nginx_configuration(folder.path(), Path::new("/data"), &identity, false);
        assert!(!without.contains("ssl"), "{without}");
    }

    #[test]
    fn the_high_water_of_a_process_is_its_own() {
        let own = high_water_bytes(std::process::id()).unwrap();
        assert!(own > 1 << 20, "{own}");
        assert_eq!(high_water_bytes(u32::MAX), None);
    }

    #[test]
    fn a_process_is_charged_for_what_it_did() {
        let so_far = || Spent::so_far(std::process::id()).unwrap();
        let before = so_far();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(60) && so_far().cpu == before.cpu {}
        let after = so_far();
        assert!(after.cpu > before.cpu && after.peak_memory_bytes > 1 << 20, "{after:?}");
        let both = before.with(after);
        assert_eq!(both.cpu, before.cpu + after.cpu);
        assert_eq!(both.peak_memory_bytes, before.peak_memory_bytes.max(after.peak_memory_bytes));
        assert_eq!(Spent::so_far(u32::MAX), None);
    }
}
