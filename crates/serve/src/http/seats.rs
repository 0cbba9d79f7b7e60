//! Places for connections. Where all are taken, whoever has been silent longest makes room for the
//! next one: silent connections cost those who open them nothing, and would keep all others out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::held::{Held, HeldHere};

/// All places of a server.
pub(crate) struct Seats {
    free: Arc<Semaphore>,
    silent: Arc<Silent>,
    held: Held,
}

/// Who is silent.
#[derive(Default)]
struct Silent(Mutex<Listed>);

#[derive(Default)]
struct Listed {
    /// In the order in which they fell silent, and since when they are.
    all: BTreeMap<u64, (Instant, Arc<Call>)>,
    next: u64,
}

/// One place, taken by a connection.
#[derive(Default)]
pub(crate) struct Seat {
    silent: Arc<Silent>,
    held: Held,
    call: Arc<Call>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// How somebody is told to make room.
#[derive(Default)]
struct Call {
    is_wanted: AtomicBool,
    told: Notify,
}

/// Somebody is silent while this is there.
pub(crate) struct Silence<'a> {
    silent: &'a Silent,
    number: u64,
}

impl Seats {
    /// So many.
    pub fn new(count: usize) -> Seats {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        Seats {
            free: Arc::new(Semaphore::new(count)),
            silent: Arc::default(),
            held: Held::default(),
        }
    }

    /// Take one, as soon as there is one. `waits` is called once if there is none yet.
    pub async fn take(&self, waits: impl FnOnce()) -> Seat {
        let mut waits = Some(waits);
        loop {
            let permit = Arc::clone(&self.free).acquire_owned();
            let permit = match Arc::clone(&self.free).try_acquire_owned() {
                Ok(permit) => Ok(Ok(permit)),
                Err(_) => {
                    if let Some(waits) = waits.take() {
                        waits();
                    }
                    self.silent.call_first();
                    timeout(CALL_EVERY, permit).await
                }
            };
            if let Ok(Ok(permit)) = permit {
                let silent = Arc::clone(&self.silent);
                let held = self.held.clone();
                return Seat { silent, held, call: Arc::default(), _permit: Some(permit) };
            }
        }
    }
}

impl Seat {
    /// Memory for what the client has not taken yet.
    pub fn held(&self) -> HeldHere {
        self.held.here()
    }

    /// From now on nothing is asked for on this connection.
    pub fn silence(&self) -> Silence<'_> {
        let mut listed = self.silent.lock();
        let number = listed.next;
        listed.next += 1;
        listed.all.insert(number, (Instant::now(), Arc::clone(&self.call)));
        drop(listed);
        Silence { silent: &self.silent, number }
    }

    /// Resolves when somebody else needs it.
    pub async fn wanted(&self) {
        self.call.told.notified().await;
    }

    /// Whether somebody else needs it.
    pub fn is_wanted(&self) -> bool {
        self.call.is_wanted.load(Ordering::Relaxed)
    }
}

impl Silent {
    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Have the one who has been silent longest make room, if that is long enough.
    fn call_first(&self) {
        let mut listed = self.lock();
        let Some(first) = listed.all.first_entry() else { return };
        if first.get().0.elapsed() >= SILENT_LONG {
            let (_, call) = first.remove();
            call.is_wanted.store(true, Ordering::Relaxed);
            call.told.notify_one();
        }
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        self.silent.lock().all.remove(&self.number);
    }
}

/// Whoever means to ask for something does so before this, on long routes too.
const SILENT_LONG: Duration = Duration::from_secs(1);
/// While all are taken somebody is called so often.
const CALL_EVERY: Duration = Duration::from_millis(20);
