//! Resources that all transfers of a process share: network, disk, buffers, hashing threads.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use futures_util::future::BoxFuture;
use swath_model::Pool;
use swath_model::index::{Counts, Index};
use swath_model::pool::SPAN_MAX;
use swath_source::{Net, NetError, NetOptions};
use swath_store::simulated::Faults;
use swath_store::tree::{Change, PlaceGrant, Wrong};
use swath_store::{Disk, DiskError, IoMode};
use tokio::sync::Notify;

use crate::error::GetError;
use crate::executor;
use crate::observe::{Event, Observer, Summary};
use crate::put::{self, PutError, PutRequest};
use crate::remote_copy::{self, RemoteCopyError, RemoteCopyRequest};
use crate::request::{Mirror, Request};
use crate::routes::{RouteOptions, Routes};
use crate::tree::{self, Against, FolderKind, Planned, TreeRequest, TreeSummary};
use crate::verify::{Allowance, HashThreads};

/// Options of an [`Engine`].
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The network: credentials, certificates, limits.
    pub net: NetOptions,
    /// How the disk is accessed.
    pub io: IoMode,
    /// Memory for buffers, in bytes: at least eight buffers, and at most three quarters of what
    /// the machine has free.
    pub memory_bytes: usize,
    /// Size of the smallest buffer, in bytes; a fast lane fills larger ones.
    pub buffer_bytes: usize,
    /// Relays, and how they are used.
    pub routes: RouteOptions,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            net: NetOptions::default(),
            io: IoMode::Auto,
            memory_bytes: 128 << 20,
            buffer_bytes: 512 << 10,
            routes: RouteOptions::default(),
        }
    }
}

/// Runs transfers; cheap to clone, all clones share connections, buffers and threads.
#[derive(Clone)]
pub struct Engine {
    pub(crate) net: Net,
    pub(crate) disk: Disk,
    /// What may be done with files of this machine.
    pub(crate) grant: PlaceGrant,
    pub(crate) pool: Pool,
    /// Buffers for reading back, which lanes cannot use up. They are given out in the order of
    /// requests, and their holders wait only for the disk and for earlier reads, so each comes
    /// back.
    pub(crate) read_pool: Pool,
    /// The part of `pool` that verifiers may keep; the rest circulates between lanes and disk.
    pub(crate) retained: Allowance,
    pub(crate) hash: HashThreads,
    pub(crate) limit_bytes_per_s: Option<u64>,
    /// `None` if no relays are used.
    pub(crate) routes: Option<Routes>,
    /// Processors that this process may use; a query costs a walk through the control groups.
    pub(crate) cores: usize,
}

/// Why an engine cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The network options are invalid.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The disk does not support the requested mode.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The memory for buffers is too small or too large for this machine.
    #[error(
        "cannot use {wanted_bytes} bytes for buffers: from {least_bytes} to {most_bytes} are possible here now"
    )]
    Memory {
        /// The requested memory.
        wanted_bytes: usize,
        /// Eight buffers.
        least_bytes: usize,
        /// The most that the machine can spare.
        most_bytes: usize,
    },
}

impl Engine {
    /// Starts an engine; must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`EngineError`], before anything is contacted or written.
    pub fn start(options: EngineOptions) -> Result<Engine, EngineError> {
        let buffer_bytes = options.buffer_bytes.max(64 << 10);
        let memory = |most_bytes| EngineError::Memory {
            wanted_bytes: options.memory_bytes,
            least_bytes: BUFFERS_MIN * buffer_bytes,
            most_bytes,
        };
        let available_bytes = swath_store::memory::memory_free_bytes().unwrap_or(u64::MAX);
        let most_bytes = usize::try_from(available_bytes / 4 * 3).unwrap_or(usize::MAX);
        let count = options.memory_bytes / buffer_bytes;
        if count < BUFFERS_MIN || options.memory_bytes > most_bytes {
            return Err(memory(most_bytes));
        }
        let pool = Pool::try_new(count, buffer_bytes).ok_or_else(|| memory(most_bytes))?;
        let read_pool = Pool::try_new(READ_BUFFERS, buffer_bytes * read_span(count))
            .ok_or_else(|| memory(most_bytes))?;
        swath_store::prefer_huge_pages(&read_pool);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Engine {
            disk: Disk::start(&pool, options.io)?,
            grant: PlaceGrant::everything(),
            hash: HashThreads::start(cores.min(4))?,
            cores,
            limit_bytes_per_s: options.net.limit_bytes_per_s,
            routes: Routes::of(&options.routes),
            net: Net::new(NetOptions { relays: options.routes.relays, ..options.net })?,
            read_pool,
            retained: Allowance::new(pool.slots() / 2),
            pool,
        })
    }

    /// Makes an engine for simulations, which starts no threads: in a single-threaded runtime with
    /// a paused clock, its behaviour depends only on its requests.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn simulated(
        options: EngineOptions,
        faults: Arc<dyn Faults>,
    ) -> Result<Engine, EngineError> {
        let memory = |_| EngineError::Thread(std::io::ErrorKind::OutOfMemory.into());
        let count = options.memory_bytes / options.buffer_bytes;
        let pool = Pool::try_new(count, options.buffer_bytes).ok_or(()).map_err(memory)?;
        let read_pool =
            Pool::try_new(READ_BUFFERS, options.buffer_bytes).ok_or(()).map_err(memory)?;
        Ok(Engine {
            disk: Disk::simulated(&pool, faults),
            grant: PlaceGrant::everything(),
            hash: HashThreads::none(),
            cores: 1,
            limit_bytes_per_s: None,
            routes: None,
            net: Net::new(options.net)?,
            read_pool,
            retained: Allowance::new(pool.slots() / 2),
            pool,
        })
    }

    /// Returns the same engine, with further headers for the user's own sources.
    ///
    /// # Errors
    /// [`NetError::Header`] if one of them cannot be sent.
    pub fn with_headers(&self, headers: &[(String, String)]) -> Result<Engine, NetError> {
        Ok(Engine { net: self.net.with_headers(headers)?, ..self.clone() })
    }

    /// Returns the same engine, which does no more on the disk than this permits: for what somebody else
    /// has ordered.
    #[must_use]
    pub fn granted(&self, grant: PlaceGrant) -> Engine {
        Engine { grant, ..self.clone() }
    }

    /// Fetches one file.
    ///
    /// # Errors
    /// [`GetError`]; durable bytes are kept for the next try.
    pub async fn get(&self, request: Request) -> Result<Summary, GetError> {
        self.get_observed(request, &mut |_: &Event| {}, &Stop::default()).await
    }

    /// Fetches one file and reports events to `observer`, until `stop` is set.
    ///
    /// # Errors
    /// As [`Engine::get`].
    pub fn get_observed<'a>(
        &'a self,
        request: Request,
        observer: &'a mut dyn Observer,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Summary, GetError>> {
        Box::pin(executor::run(self, request, observer, stop))
    }

    /// Fetches a whole tree and reports events to `observer`, until `stop` is set.
    ///
    /// # Errors
    /// [`GetError`]; durable bytes are kept for the next try.
    pub fn copy<'a>(
        &'a self,
        request: TreeRequest,
        observer: &'a mut dyn Observer,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<TreeSummary, GetError>> {
        Box::pin(tree::copy(self, request, observer, stop))
    }

    /// Sends a single file to a server by `PUT`. An existing file of its name stays until all of
    /// the new one has come.
    ///
    /// # Errors
    /// [`PutError`]; then the server has none of it.
    pub fn put<'a>(
        &'a self,
        request: &'a PutRequest,
        observer: &'a mut dyn Observer,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Summary, PutError>> {
        Box::pin(put::put(self, request, observer, stop))
    }

    /// Lets a server copy a single file from or to another one, and checks the outcome.
    ///
    /// # Errors
    /// [`RemoteCopyError`].
    pub fn remote_copy<'a>(
        &'a self,
        request: &'a RemoteCopyRequest,
        observer: &'a mut dyn Observer,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Summary, RemoteCopyError>> {
        Box::pin(remote_copy::copy(self, request, observer, stop))
    }

    /// Reports how the destination of a tree differs from it now; changes nothing.
    ///
    /// # Errors
    /// [`GetError`].
    pub async fn differences(
        &self,
        request: &TreeRequest,
        take: impl FnMut(Change, &[u8]) + Send + 'static,
    ) -> Result<Planned, GetError> {
        tree::differences(self, request, take).await
    }

    /// Reports how a folder differs from its index: first what shows without reading files, in the
    /// index's order, then their content.
    ///
    /// # Errors
    /// [`GetError`].
    pub async fn verify_tree(
        &self,
        folder: &Path,
        against: &Against,
        take: impl FnMut(Wrong, &[u8]) + Send,
    ) -> Result<Counts, GetError> {
        tree::verify(self, folder, against, take).await
    }

    /// Returns the kind of answer at an address with a `/` at its end.
    pub fn folder_kind<'a>(&'a self, folder: &'a Mirror) -> BoxFuture<'a, FolderKind> {
        Box::pin(tree::kind(self, folder))
    }

    /// Returns whether a folder belongs to a swath server that offers the file of this name in it
    /// as a tree of its own. Fetches only the beginning of the answer.
    pub fn is_file<'a>(&'a self, folder: &'a Mirror, name: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(tree::is_file(self, folder, name))
    }

    /// Fetches the whole index of a tree, as a swath server walks it now.
    ///
    /// # Errors
    /// [`GetError`].
    pub fn index<'a>(
        &'a self,
        folder: &'a Mirror,
    ) -> BoxFuture<'a, Result<Arc<RwLock<Index>>, GetError>> {
        Box::pin(tree::index(self, folder))
    }

    /// Returns the network, for control requests.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// Returns how the disk is written (`io_uring`, `threads`, …).
    pub fn io_name(&self) -> &'static str {
        self.disk.mode_name()
    }
}

/// Fewest buffers: with fewer, lanes, disk and hashing would wait for one another.
const BUFFERS_MIN: usize = 8;
/// Most read-backs in flight, over all transfers.
const READ_BUFFERS: usize = 4;

/// Returns the slots of one read-back with a pool of `slots`: large ones if they are a small part
/// of it.
fn read_span(slots: usize) -> usize {
    (slots / (READ_BUFFERS * 4)).clamp(1, SPAN_MAX)
}

/// Ends transfers from outside (Ctrl-C); cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<StopState>,
}

#[derive(Debug, Default)]
struct StopState {
    set: AtomicBool,
    notify: Notify,
}

impl Stop {
    /// Ends every transfer that has this `Stop`.
    pub fn set(&self) {
        self.shared.set.store(true, Ordering::SeqCst);
        self.shared.notify.notify_waiters();
    }

    /// Returns whether [`Stop::set`] was called.
    pub fn is_set(&self) -> bool {
        self.shared.set.load(Ordering::SeqCst)
    }

    /// Waits until it is set.
    pub async fn wait(&self) {
        let notified = self.shared.notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }
}
