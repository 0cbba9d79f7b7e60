//! A real web server in a namespace: nginx or Apache with a minimal configuration of our own.
//!
//! Each server is started in the foreground with its files in a temporary folder, waited for
//! until it accepts connections, and stopped by its own process id. It also stops when the
//! thread that started it ends, however that happens.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::scratch_folder;
use crate::wan::{LabError, Namespace};

/// Which program serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// nginx, one process, sendfile.
    Nginx,
    /// Apache httpd with its event module.
    Apache,
}

/// A running web server on port 80 of every address in its namespace.
#[derive(Debug)]
pub struct WebServer {
    child: Child,
    // Removed with the value.
    _folder: TempDir,
}

impl WebServer {
    /// Starts a server of `root` in `namespace` and waits until it accepts connections.
    pub fn start(kind: ServerKind, namespace: &Namespace, root: &Path) -> Result<Self, LabError> {
        let root = root
            .canonicalize()
            .ok()
            .filter(|root| root.is_dir())
            .ok_or_else(|| LabError::NothingToServe(root.to_owned()))?;
        let program = kind.find()?;
        let folder =
            scratch_folder().map_err(|e| LabError::system("make a temporary folder", e))?;
        let said = folder.path().join("stderr");
        let configuration = folder.path().join("server.conf");
        let text = match kind {
            ServerKind::Nginx => nginx_configuration(folder.path(), &root),
            ServerKind::Apache => apache_configuration(folder.path(), &root),
        };
        fs::write(&configuration, text)
            .map_err(|e| LabError::system("write a server configuration", e))?;
        let log = File::create(&said).map_err(|e| LabError::system("make a server log", e))?;

        let mut command = Command::new(program);
        match kind {
            ServerKind::Nginx => command.args(["-e", "stderr", "-c"]).arg(&configuration),
            ServerKind::Apache => command.arg("-f").arg(&configuration).arg("-DFOREGROUND"),
        };
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        namespace.confine(&mut command);
        // SAFETY: prctl and setpgid are async-signal-safe and concern the child alone.
        unsafe {
            command.pre_exec(|| {
                // An own group, so that Ctrl-C reaches the measured program and not the server.
                if libc::setpgid(0, 0) != 0
                    || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong) != 0
                {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child =
            command.spawn().map_err(|e| LabError::system(format!("start {}", kind.name()), e))?;
        let mut server = Self { child, _folder: folder };
        server.wait_until_up(kind, namespace, &said)?;
        Ok(server)
    }

    fn wait_until_up(
        &mut self,
        kind: ServerKind,
        namespace: &Namespace,
        said: &Path,
    ) -> Result<(), LabError> {
        let deadline = Instant::now() + START_LIMIT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        loop {
            let gone = matches!(self.child.try_wait(), Ok(Some(_)));
            let up = !gone && namespace.run(|| Ok(TcpStream::connect(address).is_ok()))?;
            if up {
                return Ok(());
            }
            if gone || Instant::now() > deadline {
                let text = fs::read_to_string(said).unwrap_or_default();
                let said = text.trim().lines().last().unwrap_or("it said nothing").to_owned();
                return Err(LabError::ServerFailed { program: kind.name(), said });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let Ok(process) = libc::pid_t::try_from(self.child.id()) else { return };
        // SAFETY: the child has not been waited for successfully, so its id is still its own.
        unsafe { libc::kill(process, libc::SIGTERM) };
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: as above; the group was made by the child and holds only its own processes.
        unsafe { libc::kill(-process, libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

impl ServerKind {
    fn name(self) -> &'static str {
        match self {
            ServerKind::Nginx => "nginx",
            ServerKind::Apache => "apache2",
        }
    }

    /// Looks in the search path and where system administrators' programs live.
    fn find(self) -> Result<PathBuf, LabError> {
        let names: &[&str] = match self {
            ServerKind::Nginx => &["nginx"],
            ServerKind::Apache => &["apache2", "httpd"],
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path)
            .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
        for folder in folders {
            for name in names {
                let candidate = folder.join(name);
                if candidate.is_file() {
                    return Ok(candidate);
                }
            }
        }
        Err(LabError::ServerMissing { program: self.name() })
    }
}

fn nginx_configuration(folder: &Path, root: &Path) -> String {
    let (folder, root) = (folder.display(), root.display());
    format!(
        "daemon off;\n\
         master_process off;\n\
         error_log stderr warn;\n\
         pid {folder}/pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         \x20 access_log off;\n\
         \x20 sendfile on;\n\
         \x20 tcp_nopush on;\n\
         \x20 keepalive_requests 100000000;\n\
         \x20 keepalive_timeout 1h;\n\
         \x20 types {{ }}\n\
         \x20 default_type application/octet-stream;\n\
         \x20 client_body_temp_path {folder}/body;\n\
         \x20 proxy_temp_path {folder}/proxy;\n\
         \x20 fastcgi_temp_path {folder}/fastcgi;\n\
         \x20 uwsgi_temp_path {folder}/uwsgi;\n\
         \x20 scgi_temp_path {folder}/scgi;\n\
         \x20 server {{ listen {PORT}; root \"{root}\"; }}\n\
         }}\n"
    )
}

fn apache_configuration(folder: &Path, root: &Path) -> String {
    let (folder, root) = (folder.display(), root.display());
    format!(
        "ServerName localhost\n\
         ServerRoot {folder}\n\
         PidFile {folder}/pid\n\
         ErrorLog /dev/stderr\n\
         LoadModule mpm_event_module {APACHE_MODULES}/mod_mpm_event.so\n\
         LoadModule authz_core_module {APACHE_MODULES}/mod_authz_core.so\n\
         Listen {PORT}\n\
         StartServers 1\n\
         KeepAlive On\n\
         KeepAliveTimeout 3600\n\
         MaxKeepAliveRequests 0\n\
         EnableSendfile On\n\
         DocumentRoot \"{root}\"\n\
         <Directory \"{root}\">\n  Require all granted\n</Directory>\n"
    )
}

const PORT: u16 = 80;

/// Where Debian and its relatives keep Apache's modules.
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// A server is up within milliseconds; a machine under load gets more.
const START_LIMIT: Duration = Duration::from_secs(15);

/// After a polite request to stop.
const STOP_LIMIT: Duration = Duration::from_secs(2);
