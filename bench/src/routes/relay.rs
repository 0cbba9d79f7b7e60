//! The relays at the sites: swath's, or nginx as anybody could set it up.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use swath_netlab::wan::{LabError, Namespace};

use crate::machine::find_program;
use crate::measure::{end_with_us, finish};
use crate::serving::{Spent, high_water_bytes};
use crate::tool::as_typed;
use crate::tree_run::wait_for;

/// What forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayKind {
    /// `swath relay`.
    Swath {
        /// Whether it keeps what passes.
        cache: bool,
    },
    /// nginx that forwards to whatever its URL names, as swath's relays do; its buffers are those
    /// that it has by itself.
    Nginx,
    /// The same with buffers of half a mebibyte.
    NginxLarge,
    /// The same; it keeps what passes, and asks for it once.
    NginxCache,
}

/// One relay to be started.
#[derive(Clone, Debug)]
pub struct RelaySpec<'a> {
    /// What forwards.
    pub kind: RelayKind,
    /// `ADDRESS:PORT` where it listens.
    pub listen: &'a str,
    /// `HOST` or `HOST:PORT` of all that it may contact.
    pub upstreams: &'a [String],
    /// Who may use it, as a network.
    pub clients: &'a str,
    /// A folder of its own.
    pub folder: &'a Path,
}

/// A relay that stands; killed when dropped before its end was asked for.
#[derive(Debug)]
pub struct Relay {
    child: Child,
    begin: Instant,
    command: String,
    is_over: bool,
}

impl RelayKind {
    /// Name of the program.
    pub fn name(self) -> &'static str {
        match self {
            RelayKind::Swath { .. } => "swath relay",
            RelayKind::Nginx | RelayKind::NginxLarge | RelayKind::NginxCache => "nginx",
        }
    }

    /// What it lacks on this machine, if anything.
    pub fn lacks(self, swath: &Path) -> Option<&'static str> {
        let RelayKind::Swath { cache } = self else {
            return find_program("nginx").is_none().then_some("not installed");
        };
        let help = Command::new(swath).args(["relay", "--help"]).output();
        match help {
            Ok(help) if help.status.success() => {
                let knows_cache = String::from_utf8_lossy(&help.stdout).contains("--cache");
                (cache && !knows_cache).then_some("this swath's relays keep nothing")
            }
            _ => Some("this swath has no relays"),
        }
    }
}

impl Relay {
    /// Starts a relay in a namespace and waits until it listens.
    pub fn start(
        spec: &RelaySpec<'_>,
        swath: &Path,
        namespace: &Namespace,
    ) -> Result<Self, LabError> {
        let system = |doing: &str| {
            let doing = doing.to_owned();
            move |cause| LabError::System { doing, cause }
        };
        fs::create_dir_all(spec.folder).map_err(system("make a relay's folder"))?;
        let mut command = command(spec, swath).map_err(system("write a relay's configuration"))?;
        let typed = as_typed(&command);
        let said = spec.folder.join("said");
        let log = File::create(&said).map_err(system("make a relay's log"))?;
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", spec.folder).env("SWATH_STATE", spec.folder.join("state.db"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        namespace.confine(&mut command);
        end_with_us(&mut command);
        let begin = Instant::now();
        let child = command.spawn().map_err(system("start a relay"))?;
        let relay = Self { child, begin, command: typed, is_over: false };
        let port = spec.listen.rsplit(':').next().unwrap_or_default();
        if wait_for(namespace, port).is_err() {
            let text = fs::read_to_string(&said).unwrap_or_default();
            let said = text.trim().lines().last().unwrap_or("it said nothing").to_owned();
            return Err(LabError::ServerFailed { program: spec.kind.name(), said });
        }
        Ok(relay)
    }

    /// Its command line.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Kills it, as a power cut would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Asks it to end, waits for that, and tells what it took.
    pub fn end(mut self) -> io::Result<Spent> {
        let own = high_water_bytes(self.child.id());
        let process = libc::pid_t::try_from(self.child.id()).map_err(io::Error::other)?;
        // SAFETY: the child has not been waited for, so its id is still its own.
        unsafe { libc::kill(process, libc::SIGTERM) };
        self.is_over = true;
        let measured = finish(&self.child, self.begin, END_LIMIT)?;
        let peak_memory_bytes = own.unwrap_or(measured.peak_memory_bytes);
        Ok(Spent { cpu: measured.cpu, peak_memory_bytes })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn command(spec: &RelaySpec<'_>, swath: &Path) -> io::Result<Command> {
    let mut command;
    match spec.kind {
        RelayKind::Swath { cache } => {
            command = Command::new(swath);
            command.args(["relay", "--listen", spec.listen, "--plain"]);
            command.args(["--upstream", &spec.upstreams.join(","), "--clients", spec.clients]);
            if cache {
                command.arg("--cache").arg(spec.folder.join("kept"));
            }
        }
        RelayKind::Nginx | RelayKind::NginxLarge | RelayKind::NginxCache => {
            let configuration = spec.folder.join("nginx.conf");
            fs::write(&configuration, nginx_configuration(spec))?;
            command = Command::new(find_program("nginx").unwrap_or_else(|| "nginx".into()));
            command.args(["-e", "stderr", "-c"]).arg(configuration);
        }
    }
    Ok(command)
}

/// One process, connections to the next one kept, nothing written to temporary files.
fn nginx_configuration(spec: &RelaySpec<'_>) -> String {
    let folder = spec.folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("  {what}_temp_path \"{folder}/{what}\";\n"))
        .collect();
    let keeping = match spec.kind {
        RelayKind::NginxCache => format!(
            "  proxy_cache_path \"{folder}/kept\" keys_zone=kept:1m max_size=10g;\n\
             \x20 proxy_cache kept;\n  proxy_cache_lock on;\n  proxy_cache_lock_timeout 1h;\n\
             \x20 proxy_cache_lock_age 1h;\n  proxy_cache_valid 200 206 1h;\n"
        ),
        RelayKind::NginxLarge => "  proxy_max_temp_file_size 0;\n  proxy_buffers 8 64k;\n\
             \x20 proxy_buffer_size 64k;\n  proxy_busy_buffers_size 256k;\n"
            .to_owned(),
        _ => "  proxy_max_temp_file_size 0;\n".to_owned(),
    };
    // What stands before the first slash of the rest is the next one: connections to those that
    // are known beforehand are kept.
    let known: String = spec
        .upstreams
        .iter()
        .enumerate()
        .map(|(number, host)| format!("  upstream u{number} {{ server {host}; keepalive 32; }}\n"))
        .collect();
    let names: String = spec
        .upstreams
        .iter()
        .enumerate()
        .map(|(number, host)| format!(" \"{host}\" u{number};"))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\nerror_log stderr warn;\npid \"{folder}/pid\";\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  tcp_nopush on;\n\
         \x20 keepalive_requests 100000000;\n  keepalive_timeout 1h;\n\
         \x20 types {{ }}\n  default_type application/octet-stream;\n{temporary}{keeping}{known}\
         \x20 proxy_http_version 1.1;\n  proxy_set_header Connection \"\";\n\
         \x20 proxy_set_header Host $next;\n\
         \x20 map $next $known {{ default $next;{names} }}\n\
         \x20 server {{\n    listen {};\n    merge_slashes off;\n\
         \x20   location ~ ^/relay/http:/+(?<next>[^/]+)(?<rest>/.*)$ {{ proxy_pass http://$known$rest; }}\n\
         \x20 }}\n}}\n",
        spec.listen
    )
}

/// swath lets what is under way end.
const END_LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_are_told_whom_they_serve() {
        let upstreams = ["10.79.0.1:80".to_owned(), "10.79.0.2:8471".to_owned()];
        let spec = RelaySpec {
            kind: RelayKind::Swath { cache: false },
            listen: "10.79.0.3:8471",
            upstreams: &upstreams,
            clients: "10.79.0.0/16",
            folder: Path::new("/x"),
        };
        assert_eq!(
            as_typed(&command(&spec, Path::new("/bin/swath")).unwrap()),
            "swath relay --listen 10.79.0.3:8471 --plain --upstream 10.79.0.1:80,10.79.0.2:8471 \
             --clients 10.79.0.0/16"
        );
        let cache = RelaySpec { kind: RelayKind::Swath { cache: true }, ..spec.clone() };
        let typed = as_typed(&command(&cache, Path::new("/bin/swath")).unwrap());
        assert!(typed.ends_with(" --cache /x/kept"), "{typed}");
        let nginx = nginx_configuration(&RelaySpec { kind: RelayKind::Nginx, ..spec.clone() });
        assert!(nginx.contains("upstream u1 { server 10.79.0.2:8471;"), "{nginx}");
        assert!(!nginx.contains("proxy_cache"), "{nginx}");
        let kept = nginx_configuration(&RelaySpec { kind: RelayKind::NginxCache, ..spec });
        assert!(kept.contains("proxy_cache_lock on"), "{kept}");
    }
}
