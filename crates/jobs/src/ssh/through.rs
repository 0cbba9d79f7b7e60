//! Connections to a remote port through ssh where sshd forbids forwarding: for each connection ssh runs
//! `swath serve --through PORT`, whose standard input and output carry the bytes.
//!
//! They share one ssh connection, the user's shared one if configured, else a new one, so that no
//! password is asked for again.

use std::future::pending;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::LOOK_AGAIN;
use super::error::{Command, SshError, SshFault};
use super::host::SshHost;
use super::listen::ends;

/// A local port that leads to the remote one, as long as this exists.
pub struct Through {
    /// The local port.
    pub port: u16,
    _taking: AbortOnDropHandle<()>,
    _shared: Option<Shared>,
}

impl Through {
    /// Opens a local port for the remote `port`, and tries one connection. `program` is the remote swath.
    pub async fn open(
        host: &SshHost,
        program: &str,
        port: u16,
        runtime: &Path,
    ) -> Result<Through, SshError> {
        let shared = if host.shares { None } else { Some(Shared::open(host, runtime).await?) };
        let starts = Arc::new(PumpStarter {
            host: shared.as_ref().map_or_else(|| host.clone(), |shared| host.by(shared.options())),
            line: format!("exec {program} serve --through {port}"),
            ready: Mutex::new(None),
            places: Semaphore::new(PUMPS_MAX),
        });
        *starts.ready.lock().await = Some(starts.pump().await?);
        let failed = |error| host.error(SshFault::OwnPort(error));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let taking = AbortOnDropHandle::new(tokio::spawn(take(listener, starts)));
        Ok(Through { port, _taking: taking, _shared: shared })
    }
}

/// Accepts local connections.
async fn take(listener: TcpListener, starts: Arc<PumpStarter>) {
    let mut pumps = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok(_) if pumps.len() >= WAITING_MAX => {}
                Ok((ours, _)) => {
                    pumps.spawn(carry(ours, Arc::clone(&starts)));
                }
                Err(_) => sleep(LOOK_AGAIN).await,
            },
            Some(_) = pumps.join_next() => {}
        }
    }
}

/// Serves one connection.
async fn carry(ours: TcpStream, starts: Arc<PumpStarter>) {
    // Connections above the limit wait.
    let Ok(_place) = starts.places.acquire().await else { return };
    let pump = {
        // One starts at a time: sshd limits unauthenticated connections.
        let mut ready = starts.ready.lock().await;
        match ready.take() {
            Some(pump) => Ok(pump),
            None => starts.pump().await,
        }
    };
    let Ok(Pump { mut to, mut from, _ssh }) = pump else { return };
    let _ = ours.set_nodelay(true);
    let (read, mut write) = ours.into_split();
    let mut read = BufReader::with_capacity(PART_BYTES, read);
    let there = async {
        let _ = tokio::io::copy_buf(&mut read, &mut to).await;
        drop(to);
        pending::<()>().await;
    };
    let back = async {
        let _ = tokio::io::copy_buf(&mut from, &mut write).await;
        let _ = write.shutdown().await;
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

/// Starts pumps.
struct PumpStarter {
    host: SshHost,
    line: String,
    /// The pump of the first attempt. Locked while another one starts.
    ready: Mutex<Option<Pump>>,
    places: Semaphore,
}

/// A remote command that carries one connection.
struct Pump {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    _ssh: Child,
}

impl PumpStarter {
    async fn pump(&self) -> Result<Pump, SshError> {
        let mut run = self.host.run(&self.line).await?;
        if let Err(unheard) = run.output.listen(|line| ends(line, READY)).await {
            return Err(self.host.why(&mut run, unheard, Command::Through).await);
        }
        let to = run.input.ok_or_else(|| self.host.error(SshFault::NoInput))?;
        Ok(Pump { to, from: run.output.into_inner(), _ssh: run.ssh })
    }
}

/// A shared ssh connection.
struct Shared {
    ssh: Child,
    folder: PathBuf,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.ssh.start_kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Shared {
    async fn open(host: &SshHost, runtime: &Path) -> Result<Shared, SshError> {
        let folder = own_folder(runtime);
        let folder = folder.map_err(|error| host.error(SshFault::NoSocket(error)))?;
        let mut ssh = host.ssh();
        ssh.args(["-o", "ControlMaster=yes", "-o"]);
        ssh.arg(control_path(&folder)).args(["-o", "ControlPersist=no", "--", &host.host]);
        // Ends with this process in any case.
        ssh.arg("exec cat >/dev/null").stdin(Stdio::piped());
        let ssh = host.start(ssh);
        let mut shared = match ssh {
            Ok(ssh) => Shared { ssh, folder },
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                return Err(error);
            }
        };
        while !shared.folder.join(SOCKET).exists() {
            if let Ok(Some(status)) = shared.ssh.try_wait() {
                return Err(host.error(SshFault::SshEnded(status)));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(shared)
    }

    /// Returns the options that use it.
    fn options(&self) -> [String; 2] {
        ["ControlMaster=no".to_owned(), control_path(&self.folder)]
    }
}

/// Returns the option with the path of the socket, with `%` and spaces escaped.
fn control_path(folder: &Path) -> String {
    let path = folder.join(SOCKET).display().to_string();
    format!("ControlPath=\"{}\"", path.replace('%', "%%"))
}

/// Creates a private folder with a short name, because paths of sockets are limited.
fn own_folder(runtime: &Path) -> std::io::Result<PathBuf> {
    let fits = runtime.is_dir() && runtime.as_os_str().len() <= FOLDER_LENGTH_MAX;
    let above = if fits { runtime } else { Path::new("/tmp") };
    let own = std::process::id();
    let mut number = 0;
    loop {
        let folder = above.join(format!("swath-ssh-{own}-{number}"));
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 1000 => {
                number += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether the server answers through a local port. ssh accepts connections before it knows whether sshd
/// forwards them.
pub async fn carries(port: u16) -> bool {
    let asked = async {
        let mut tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        // An HTTPS server answers plain HTTP with an error.
        tcp.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        tcp.read(&mut [0]).await
    };
    matches!(timeout(CARRIES_WITHIN, asked).await, Ok(Ok(1)))
}

/// The first line of `swath serve --through`, when it is connected.
pub const READY: &str = "swath: connected";
/// Most connections: sshd allows ten sessions per ssh connection (`MaxSessions`), and one may be the
/// server.
const PUMPS_MAX: usize = 9;
/// Connections for data; the others are for control.
pub const LANES_MAX: u32 = 6;
/// Most connections, waiting ones included.
const WAITING_MAX: usize = 64;
/// Bytes per read.
const PART_BYTES: usize = 256 << 10;
/// The socket's name within its folder.
const SOCKET: &str = "s";
/// A socket path has at most 107 bytes, and ssh first creates a longer one.
const FOLDER_LENGTH_MAX: usize = 50;
/// An answer takes a few round trips.
const CARRIES_WITHIN: Duration = Duration::from_secs(20);
