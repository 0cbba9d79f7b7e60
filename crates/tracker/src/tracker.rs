//! The running tracker: the core behind a lock, the clock, and what HTTP and UDP share.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use swath_formats::Network;
use swath_model::Time;
use swath_serve::exposition::Answers;
use swath_serve::{Life, Log, Traffic};
use tokio::sync::watch;

use crate::connections::Connections;
use crate::core::{Core, Summary};

/// What all parts of a running tracker share.
pub(crate) struct Tracker {
    pub name: String,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub proxies: Vec<Network>,
    /// The folder of the catalogue, whose files are served.
    pub folder: Option<PathBuf>,
    pub connections: Connections,
    pub traffic: Traffic,
    pub answers: Answers,
    pub datagrams: Datagrams,
    /// The torrents as pages show them.
    pub listed: RwLock<Option<Arc<Listed>>>,
    /// Held by whoever makes the list.
    pub listing: Mutex<()>,
    pub log: Option<Box<dyn Log>>,
    pub life: watch::Receiver<Life>,
    core: Mutex<Core>,
    began: Instant,
}

/// Counts the packets of the UDP protocol.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    pub received: AtomicU64,
    /// Neither a request nor with a valid connection id: not answered.
    pub ignored: AtomicU64,
    pub answered: AtomicU64,
    /// Answers that could not be sent.
    pub unsent: AtomicU64,
}

/// All torrents, and how long it took to list them.
pub(crate) struct Listed {
    pub made: Instant,
    pub took: Duration,
    pub torrents: Vec<Summary>,
}

impl Tracker {
    pub fn new(
        core: Core,
        name: String,
        proxies: Vec<Network>,
        folder: Option<PathBuf>,
        log: Option<Box<dyn Log>>,
        life: watch::Receiver<Life>,
    ) -> Tracker {
        let mut key = [0; 32];
        swath_serve::random(&mut key);
        Tracker {
            name,
            proxies,
            folder,
            connections: Connections::new(key),
            traffic: Traffic::default(),
            answers: Answers::default(),
            datagrams: Datagrams::default(),
            listed: RwLock::default(),
            listing: Mutex::default(),
            log,
            life,
            core: Mutex::new(core),
            began: Instant::now(),
        }
    }

    pub fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time. It begins late enough that peers of an earlier run were seen after zero.
    pub fn now(&self) -> Time {
        Time::ZERO + BEGINNING + self.began.elapsed()
    }
}

/// Longer than peers are remembered.
const BEGINNING: Duration = Duration::from_secs(400 * 86_400);
