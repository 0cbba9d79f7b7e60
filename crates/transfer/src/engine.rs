//! What all transfers of a process share: the network, the disk, the buffers, the hashing threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use swath_model::Pool;
use swath_source::{Net, NetError, NetOptions};
use swath_store::{Disk, DiskError, IoMode};
use tokio::sync::Notify;

use crate::error::GetError;
use crate::executor;
use crate::observe::{Event, Observer, Summary};
use crate::request::Request;
use crate::verify::HashThreads;

/// How an [`Engine`] is set up.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The network: credentials, certificates, limits.
    pub net: NetOptions,
    /// The way to the disk.
    pub io: IoMode,
    /// Memory for buffers, in bytes.
    pub memory_bytes: usize,
    /// Size of one buffer, in bytes.
    pub buffer_bytes: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            net: NetOptions::default(),
            io: IoMode::Auto,
            memory_bytes: 128 << 20,
            buffer_bytes: 512 << 10,
        }
    }
}

/// Runs transfers; cheap to clone, all clones share connections, buffers and threads.
#[derive(Clone)]
pub struct Engine {
    pub(crate) net: Net,
    pub(crate) disk: Disk,
    pub(crate) pool: Pool,
    /// Buffers for reading back, which lanes cannot take away.
    pub(crate) read_pool: Pool,
    pub(crate) hash: HashThreads,
    pub(crate) limit_bytes_per_s: Option<u64>,
    /// Processors that this process may use; asking costs a walk through the control groups.
    pub(crate) cores: usize,
}

/// Why an engine cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The network options are no good.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The disk cannot be used in the way asked for.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl Engine {
    /// Set everything up; must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`EngineError`], before anything is contacted or written.
    pub fn start(options: EngineOptions) -> Result<Engine, EngineError> {
        let buffer_bytes = options.buffer_bytes.max(64 << 10);
        let pool = Pool::new((options.memory_bytes / buffer_bytes).max(8), buffer_bytes);
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Engine {
            disk: Disk::start(&pool, options.io)?,
            hash: HashThreads::start(cores.min(4))?,
            cores,
            limit_bytes_per_s: options.net.limit_bytes_per_s,
            net: Net::new(options.net)?,
            read_pool: Pool::new(READ_BUFFERS, buffer_bytes),
            pool,
        })
    }

    /// Fetch one file.
    ///
    /// # Errors
    /// [`GetError`]; what was fetched and is durable is kept for the next try.
    pub async fn get(&self, request: Request) -> Result<Summary, GetError> {
        self.get_observed(request, &mut |_: &Event| {}, &Stop::default()).await
    }

    /// Fetch one file, telling `observer` what happens, until `stop` is set.
    ///
    /// # Errors
    /// As [`Engine::get`].
    pub async fn get_observed(
        &self,
        request: Request,
        observer: &mut dyn Observer,
        stop: &Stop,
    ) -> Result<Summary, GetError> {
        executor::run(self, request, observer, stop).await
    }

    /// The network, for control requests.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// How the disk is written (`io_uring`, `threads`, …).
    pub fn io_name(&self) -> &'static str {
        self.disk.mode_name()
    }
}

/// Read-backs that can be under way at once, over all transfers.
const READ_BUFFERS: usize = 4;

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
    /// End every transfer that was given this.
    pub fn set(&self) {
        self.shared.set.store(true, Ordering::SeqCst);
        self.shared.notify.notify_waiters();
    }

    /// Whether [`Stop::set`] was called.
    pub fn is_set(&self) -> bool {
        self.shared.set.load(Ordering::SeqCst)
    }

    /// Waits until it is.
    pub async fn wait(&self) {
        let notified = self.shared.notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if !self.is_set() {
            notified.await;
        }
    }
}
