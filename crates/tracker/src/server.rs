//! Starting a tracker: its options, where it listens, and what runs beside it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_formats::Network;
use swath_serve::{Congestion, Life, Listening, Log, ServeError, Server, Tls};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::core::{Core, Limits};
use crate::keeper::{KeepError, Keeper, keep};
use crate::lists::Lists;
use crate::tracker::Tracker;
use crate::udp::Socket;
use crate::watch::{ListError, ListFiles};

/// How to run a tracker.
#[derive(Clone, Debug)]
pub struct TrackerOptions {
    /// The name on its page.
    pub name: String,
    /// Where to listen, by TCP and UDP; port 0 takes one that is free for both.
    pub listen: Vec<SocketAddr>,
    /// How HTTP is encrypted; UDP never is.
    pub tls: Tls,
    /// The most HTTP connections; others wait.
    pub max_connections: usize,
    /// Intervals and limits.
    pub limits: Limits,
    /// Who may use it for which torrents.
    pub lists: ListFiles,
    /// Proxies that tell the addresses of their clients in `X-Forwarded-For`.
    pub proxies: Vec<Network>,
    /// The file that keeps the peers between runs.
    pub state: Option<PathBuf>,
}

/// Something that happened while the tracker runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// The peers of an earlier run are there again.
    Restored {
        /// How many.
        peers: usize,
    },
    /// The file with the peers is damaged.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its new name.
        aside: PathBuf,
    },
    /// The peers cannot be saved; it is tried again.
    Unsaved {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The peers could be saved again.
    SavedAgain {
        /// The file.
        path: PathBuf,
    },
    /// A list has changed, and all were read again.
    ListsRead {
        /// The lists that count from now on.
        lists: Lists,
    },
    /// A list has changed and cannot be read: all stay as they were.
    ListsKept {
        /// Why.
        error: ListError,
    },
}

/// Takes notes.
pub type Notes = Arc<dyn Fn(Note) + Send + Sync>;

/// Why a tracker cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrackerError {
    /// A list cannot be used.
    #[error(transparent)]
    List(#[from] ListError),
    /// The file with the peers cannot be used.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// It cannot listen by TCP.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// It cannot listen by UDP.
    #[error("cannot listen at {address} by UDP")]
    Udp {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// A tracker that listens. UDP is answered already; HTTP once `server` [runs](Server::run).
pub struct Bound {
    /// The HTTP server.
    pub server: Server,
    /// What runs beside it.
    pub background: Background,
}

/// The tasks beside the HTTP server: UDP, expiry, lists, saving.
pub struct Background {
    tracker: Arc<Tracker>,
    keeper: Option<Arc<Keeper>>,
    tasks: JoinSet<()>,
    /// Kept where no HTTP server of our own has it, since UDP ends with it.
    pub(crate) end: Option<watch::Sender<Life>>,
}

/// Starts a tracker. Must be called within a tokio runtime.
///
/// # Errors
/// [`TrackerError`].
pub fn bind(
    options: TrackerOptions,
    log: Option<Box<dyn Log>>,
    notes: Notes,
) -> BoxFuture<'static, Result<Bound, TrackerError>> {
    Box::pin(async move {
        let (end, ending) = watch::channel(Life::Open);
        let core = core(&options.lists, options.limits.clone())?;
        let (name, proxies) = (options.name.clone(), options.proxies.clone());
        let folder = options.lists.folder().map(Path::to_owned);
        let tracker = Tracker::new(core, name, proxies, folder, log, ending);
        let tracker = Arc::new(tracker);
        let (server, sockets) = listen(&tracker, &options, end).await?;
        let background = Background::begin(tracker, sockets, options.lists, options.state, notes)?;
        Ok(Bound { server, background })
    })
}

impl Background {
    pub(crate) fn begin(
        tracker: Arc<Tracker>,
        sockets: Vec<Socket>,
        lists: ListFiles,
        state: Option<PathBuf>,
        notes: Notes,
    ) -> Result<Background, TrackerError> {
        let keeper = state.map(|path| Keeper::open(path, &tracker, &notes)).transpose()?;
        let keeper = keeper.map(Arc::new);
        let mut tasks = JoinSet::new();
        for socket in sockets {
            tasks.spawn(socket.serve(Arc::clone(&tracker)));
        }
        tasks.spawn(expire(Arc::clone(&tracker)));
        tasks.spawn(crate::watch::watch(Arc::clone(&tracker), lists, Arc::clone(&notes)));
        if let Some(keeper) = &keeper {
            tasks.spawn(keep(Arc::clone(keeper), Arc::clone(&tracker), notes));
        }
        Ok(Background { tracker, keeper, tasks, end: None })
    }

    /// Ends the tasks and saves the peers.
    ///
    /// # Errors
    /// That of saving.
    pub fn finish(mut self) -> BoxFuture<'static, Result<(), KeepError>> {
        Box::pin(async move {
            self.tasks.shutdown().await;
            drop(self.end);
            let Some(keeper) = self.keeper else { return Ok(()) };
            let tracker = self.tracker;
            let saved = tokio::task::spawn_blocking(move || keeper.finish(&tracker)).await;
            saved.unwrap_or(Ok(()))
        })
    }
}

/// Listens by TCP and UDP on the same ports.
async fn listen(
    tracker: &Arc<Tracker>,
    options: &TrackerOptions,
    end: watch::Sender<Life>,
) -> Result<(Server, Vec<Socket>), TrackerError> {
    let has_free_port = options.listen.iter().any(|address| address.port() == 0);
    let mut tries_left = if has_free_port { FREE_PORT_TRIES } else { 1 };
    loop {
        tries_left -= 1;
        let service = Arc::clone(tracker) as Arc<dyn swath_serve::Service>;
        let listening = Listening {
            at: options.listen.clone(),
            tls: options.tls.clone(),
            max_connections: options.max_connections,
            // Answers are short.
            congestion: Congestion::Kernel,
        };
        let server = Server::of(service, listening, end.clone()).await?;
        // A port that TCP found free may be taken by UDP.
        match udp(&server.addresses()) {
            Ok(sockets) => return Ok((server, sockets)),
            Err(error) if tries_left == 0 => return Err(error),
            Err(_) => {}
        }
    }
}

/// Returns the state of a tracker that has no peers yet.
pub(crate) fn core(lists: &ListFiles, limits: Limits) -> Result<Core, TrackerError> {
    let mut seed = [0; 8];
    swath_serve::random(&mut seed);
    Ok(Core::new(limits, lists.read()?, u64::from_le_bytes(seed)))
}

/// Listens by UDP at these addresses.
pub(crate) fn udp(addresses: &[SocketAddr]) -> Result<Vec<Socket>, TrackerError> {
    let bind = |&address: &SocketAddr| {
        Socket::bind(address).map_err(|source| TrackerError::Udp { address, source })
    };
    addresses.iter().map(bind).collect()
}

/// Removes silent peers, some of them every second. Never ends.
async fn expire(tracker: Arc<Tracker>) {
    loop {
        tokio::time::sleep(EXPIRE_EVERY).await;
        tracker.core().expire(tracker.now());
    }
}

const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// Ports that are free for TCP and not for UDP are rare.
const FREE_PORT_TRIES: u32 = 20;
