//! Slots for connections. When all are taken, the connection that was silent longest is closed for
//! the next one: silent connections cost their clients nothing and would keep all others out.
//!
//! A few more connections are accepted when all slots are taken, so that their requests can be
//! read: health checks are answered at once, the others wait for a slot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::permits::{Permits, SharedPermits};

/// All places of a server.
pub struct Slots {
    free: Arc<Semaphore>,
    /// For connections that wait.
    line: Arc<Semaphore>,
    silent: Arc<Silent>,
    memory: SharedPermits,
    answers: SharedPermits,
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

/// One place, taken by a connection, or waited for.
#[derive(Default)]
pub struct Slot {
    silent: Arc<Silent>,
    memory: SharedPermits,
    answers: SharedPermits,
    call: Arc<Call>,
    permit: OnceLock<OwnedSemaphorePermit>,
    waits: Mutex<Option<Waits>>,
}

/// A connection that has no place yet.
struct Waits {
    free: Arc<Semaphore>,
    line: OwnedSemaphorePermit,
}

/// How somebody is told to make room.
#[derive(Default)]
struct Call {
    is_wanted: AtomicBool,
    told: Notify,
}

/// Somebody is silent while this is there.
pub struct Silence<'a> {
    silent: &'a Silent,
    number: u64,
}

impl Slots {
    /// So many, and so many that wait for one.
    pub fn new(count: usize, waiting: usize) -> Slots {
        let semaphore =
            |count: usize| Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Slots {
            free: semaphore(count),
            line: semaphore(waiting),
            silent: Arc::default(),
            memory: SharedPermits::default(),
            answers: SharedPermits::new(count),
        }
    }

    /// Takes one, or waits with a request that can be read. `waits` is called if there is none yet.
    pub async fn take(&self, waits: impl FnOnce()) -> Slot {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return self.slot(Some(permit), None);
        }
        waits();
        loop {
            self.silent.call_first();
            let (free, line) = (Arc::clone(&self.free), Arc::clone(&self.line));
            tokio::select! {
                biased;
                Ok(permit) = free.acquire_owned() => return self.slot(Some(permit), None),
                Ok(line) = line.acquire_owned() => {
                    let free = Arc::clone(&self.free);
                    return self.slot(None, Some(Waits { free, line }));
                }
                () = sleep(CALL_EVERY) => {}
            }
        }
    }

    fn slot(&self, permit: Option<OwnedSemaphorePermit>, waits: Option<Waits>) -> Slot {
        Slot {
            silent: Arc::clone(&self.silent),
            memory: self.memory.clone(),
            answers: self.answers.clone(),
            call: Arc::default(),
            permit: permit.map(OnceLock::from).unwrap_or_default(),
            waits: Mutex::new(waits),
        }
    }
}

impl Slot {
    /// Whether it has no place yet.
    pub fn is_waiting(&self) -> bool {
        self.waits().is_some()
    }

    /// Waits for a place, if it has none yet; `false` where too many do.
    pub async fn settle(&self) -> bool {
        let Some(free) = self.waits().as_ref().map(|waits| Arc::clone(&waits.free)) else {
            return true;
        };
        let is_crowded = |waits: &Waits| {
            let left = waits.line.semaphore().available_permits();
            left < LEFT_FOR_QUESTIONS
        };
        if self.waits().as_ref().is_some_and(is_crowded) && free.available_permits() == 0 {
            return false;
        }
        loop {
            self.silent.call_first();
            if let Ok(Ok(permit)) = timeout(CALL_EVERY, Arc::clone(&free).acquire_owned()).await {
                let _ = self.permit.set(permit);
                *self.waits() = None;
                return true;
            }
        }
    }

    fn waits(&self) -> MutexGuard<'_, Option<Waits>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for what the client has not taken yet.
    pub fn memory(&self) -> Permits {
        self.memory.here()
    }

    /// Answers at a time; together all connections may have as many as there are connections, besides one
    /// each: an answer that nobody takes holds a descriptor.
    pub fn answers(&self) -> Permits {
        self.answers.here()
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

    /// Has the one who has been silent longest make room, if that is long enough.
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

/// So many connections more may come and ask whether the server is well while others wait.
const LEFT_FOR_QUESTIONS: usize = 8;
/// Whoever means to ask for something does so before this, on long routes too.
const SILENT_LONG: Duration = Duration::from_secs(1);
/// While all are taken somebody is called so often.
const CALL_EVERY: Duration = Duration::from_millis(20);
