//! The thread that owns the file, and the table in memory that it shares with callers.
//!
//! Once a second, and soon after a change, it checks whether another process has written (a look at
//! shared memory), takes that over, and writes what is new here. Nobody but this thread waits for
//! the file.
//!
//! States of the file: not open (opened again after a pause) → open → not open after any fault;
//! open read-only (where nothing can be written); given up for this run (a newer version, another
//! program's file, damaged and stuck).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::aside::{self, Identity};
use crate::clock::Wall;
use crate::database::{Database, VERSION};
use crate::location::Journal;
use crate::memory::{Memory, THE_FILE};
use crate::state::{Forget, ForgetError, Forgotten};
use crate::warning::{Fault, Warning};

/// What the thread shares with those who ask.
#[derive(Debug)]
pub(crate) struct Shared {
    memory: Mutex<Memory>,
    mailbox: Mutex<Mailbox>,
    /// The mailbox changed.
    bell: Condvar,
    members: AtomicU64,
    has_file: bool,
    patience: Patience,
}

/// How long the file is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until it is read for the first time.
    pub(crate) open: Duration,
    /// While others hold it, before that is told.
    pub(crate) lock: Duration,
    /// At the end.
    pub(crate) close: Duration,
}

impl Patience {
    /// Waits so long for each.
    pub(crate) fn of(wait: Duration) -> Patience {
        Patience { open: wait, lock: wait, close: wait }
    }
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { open: OPEN_WAIT, lock: LOCK_PATIENCE, close: CLOSE_WAIT }
    }
}

/// What is asked of the thread, and what it says.
#[derive(Debug, Default)]
struct Mailbox {
    is_woken: bool,
    is_opened: bool,
    /// Nobody can ask any more.
    is_closing: bool,
    /// The thread has ended.
    is_over: bool,
    orders: Vec<Order>,
    warnings: Vec<Warning>,
}

#[derive(Debug)]
enum Order {
    Flush(SyncSender<bool>),
    Forget(Forget, SyncSender<Result<Forgotten, ForgetError>>),
}

impl Shared {
    pub(crate) fn new(has_file: bool, patience: Patience) -> Shared {
        let (memory, mailbox) = (Mutex::default(), Mutex::default());
        let members = AtomicU64::new(THE_FILE + 1);
        Shared { memory, mailbox, bell: Condvar::new(), members, has_file, patience }
    }

    pub(crate) fn another_member(&self) -> u64 {
        self.members.fetch_add(1, Ordering::Relaxed)
    }

    /// Held for moments only, never while the file is waited for.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is something to write.
    pub(crate) fn wake(&self) {
        self.mailbox().is_woken = true;
        self.bell.notify_all();
    }

    pub(crate) fn take_warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.mailbox().warnings)
    }

    /// Waits until the file was read for the first time; what was wrong with it.
    pub(crate) fn wait_for_opening(&self, path: &Path) -> Option<Warning> {
        let wait = self.patience.open;
        let waiting = |mailbox: &mut Mailbox| !mailbox.is_opened && !mailbox.is_over;
        let found = self.bell.wait_timeout_while(self.mailbox(), wait, waiting);
        let (mut mailbox, _) = found.unwrap_or_else(PoisonError::into_inner);
        match mailbox.warnings.is_empty() {
            false => Some(mailbox.warnings.remove(0)),
            true if waiting(&mut mailbox) => Some(Warning::Slow { path: path.to_owned() }),
            true => None,
        }
    }

    pub(crate) fn flush(&self, wait: Duration) -> bool {
        let (answer, answered) = sync_channel(1);
        self.order(Order::Flush(answer));
        self.has_file && answered.recv_timeout(wait).unwrap_or(false)
    }

    pub(crate) fn forget(&self, which: Forget, wait: Duration) -> Result<Forgotten, ForgetError> {
        if !self.has_file {
            return Err(ForgetError::NoFile);
        }
        let (answer, answered) = sync_channel(1);
        self.order(Order::Forget(which, answer));
        answered.recv_timeout(wait).unwrap_or(Err(ForgetError::Silent))
    }

    fn order(&self, order: Order) {
        let mut mailbox = self.mailbox();
        if self.has_file && !mailbox.is_over {
            mailbox.orders.push(order);
            self.bell.notify_all();
        }
    }
}

/// Those who ask; when the last of them is gone, the thread writes what it has and ends.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.0.has_file {
            return;
        }
        let mut mailbox = self.0.mailbox();
        mailbox.is_closing = true;
        self.0.bell.notify_all();
        // Who does not come to an end in time is left alone: the program ends all the same.
        let waiting = |mailbox: &mut Mailbox| !mailbox.is_over;
        drop(self.0.bell.wait_timeout_while(mailbox, self.0.patience.close, waiting));
    }
}

/// See the module.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    path: PathBuf,
    journal: fn(&Path) -> Journal,
    /// Nothing is written, not even what is corrected in memory.
    only_reads: bool,
    database: Option<Database>,
    /// The file that was opened last.
    opened: Option<Identity>,
    /// Not to be opened again in this run.
    is_given_up: bool,
    /// Not to be tried before, after a fault.
    not_before: Option<Instant>,
    told: Vec<Warning>,
    set_aside: u32,
}

/// What a turn begins with.
struct Turn {
    orders: Vec<Order>,
    is_last: bool,
}

impl Keeper {
    /// Starts the thread for this file.
    pub(crate) fn start(
        path: &Path,
        journal: fn(&Path) -> Journal,
        only_reads: bool,
        patience: Patience,
    ) -> Arc<Shared> {
        let shared = Arc::new(Shared::new(true, patience));
        let keeper = Keeper {
            shared: Arc::clone(&shared),
            path: path.to_owned(),
            journal,
            only_reads,
            database: None,
            opened: None,
            is_given_up: false,
            not_before: None,
            told: Vec::new(),
            set_aside: 0,
        };
        let started = std::thread::Builder::new().name("swath-state".into()).spawn(|| keeper.run());
        if let Err(error) = started {
            let mut mailbox = shared.mailbox();
            mailbox.is_over = true;
            let (path, reason) = (path.to_owned(), error.to_string());
            mailbox.warnings.push(Warning::Unwritable { path, reason });
        }
        shared
    }

    fn run(mut self) {
        // However it ends, nobody waits for it any more.
        let over = Over(Arc::clone(&self.shared));
        self.keep();
        self.shared.mailbox().is_opened = true;
        self.shared.bell.notify_all();
        loop {
            let turn = self.next_turn();
            if turn.is_last {
                self.hurry();
            }
            if turn.is_last || !turn.orders.is_empty() {
                // Whatever was wrong, for those who wait it is tried at once.
                self.not_before = None;
            }
            self.keep();
            turn.orders.into_iter().for_each(|order| self.obey(order));
            if turn.is_last {
                break;
            }
        }
        // The last one to leave tidies up in the folder, which belongs to the end too.
        self.database = None;
        drop(over);
    }

    /// Waits until there is something to do, which is at least once a second.
    fn next_turn(&self) -> Turn {
        let began = Instant::now();
        let mut mailbox = self.shared.mailbox();
        loop {
            let waited = began.elapsed();
            let is_due = waited >= TURN_WAIT || (mailbox.is_woken && waited >= GATHER_WAIT);
            if is_due || mailbox.is_closing || !mailbox.orders.is_empty() {
                mailbox.is_woken = false;
                let orders = std::mem::take(&mut mailbox.orders);
                return Turn { orders, is_last: mailbox.is_closing };
            }
            let next = if mailbox.is_woken { GATHER_WAIT } else { TURN_WAIT };
            let left = next.saturating_sub(waited);
            let woken = self.shared.bell.wait_timeout(mailbox, left);
            mailbox = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reads what others have written, and writes what is new here.
    fn keep(&mut self) {
        if self.is_given_up || self.not_before.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.not_before = None;
        let began = Instant::now();
        let lock = self.shared.patience.lock;
        let patience = |most: Duration| began.elapsed() < most.max(lock);
        while !self.is_given_up {
            match self.exchange() {
                Ok(()) => return,
                // What was set aside is replaced in the same turn.
                Err(Fault::Damaged) if patience(ASIDE_PATIENCE) => self.set_aside(),
                // SQLite does not always wait where many begin at the same time.
                Err(Fault::Locked) if patience(lock) => std::thread::sleep(MOMENT),
                Err(fault) => return self.rest(fault),
            }
        }
    }

    fn exchange(&mut self) -> Result<(), Fault> {
        if self.database.as_ref().is_some_and(Database::is_moved) {
            self.database = None;
        }
        let database = match &mut self.database {
            Some(database) => database,
            None => {
                self.opened = Identity::of(&self.path);
                let database = self.database.insert(Database::open(&self.path, self.journal)?);
                if let Some(reason) = &database.unwritable {
                    let (path, reason) = (self.path.clone(), reason.clone());
                    tell(&mut self.told, &self.shared, Warning::Unwritable { path, reason });
                }
                database
            }
        };
        if database.has_changed()? {
            let rows = database.read()?;
            self.shared.memory().read(rows, Wall::now());
        }
        if database.unwritable.is_some() || self.only_reads {
            return Ok(());
        }
        let rows = self.shared.memory().take_unwritten();
        if rows.is_empty() {
            return Ok(());
        }
        let written = database.write(&rows, Wall::now());
        if written.is_err() {
            self.shared.memory().put_back(rows);
        }
        written
    }

    fn set_aside(&mut self) {
        self.database = None;
        let path = self.path.clone();
        // Where there was nothing to open, somebody made it just now.
        let found = match self.opened {
            _ if self.set_aside == SET_ASIDE_MAX => Err("it is damaged again and again".to_owned()),
            Some(opened) => aside::set_aside(&path, opened),
            None => Ok(None),
        };
        match found {
            Ok(Some(aside)) => {
                self.set_aside += 1;
                self.shared.memory().is_to_be_written();
                self.tell(Warning::Damaged { path, aside });
            }
            // Another process does it.
            Ok(None) => std::thread::sleep(MOMENT),
            Err(reason) => {
                self.is_given_up = true;
                self.tell(Warning::Stuck { path, reason });
            }
        }
    }

    /// After a fault it is tried again later, or never in this run.
    fn rest(&mut self, fault: Fault) {
        self.is_given_up = matches!(fault, Fault::Newer(_) | Fault::Foreign);
        // A connection that only found the file locked is kept.
        if fault != Fault::Locked {
            self.database = None;
        }
        let wait = if fault == Fault::Locked { LOCKED_WAIT } else { FAULT_WAIT };
        self.not_before = Some(Instant::now() + wait);
        self.tell(fault.warning(&self.path, VERSION));
    }

    fn tell(&mut self, warning: Warning) {
        tell(&mut self.told, &self.shared, warning);
    }

    fn obey(&mut self, order: Order) {
        // Whoever ordered may have given up waiting.
        match order {
            Order::Flush(answer) => {
                let is_open = self.database.as_ref().is_some_and(|it| it.unwritable.is_none());
                let is_written = is_open && !self.shared.memory().has_unwritten();
                let _ = answer.send(is_written);
            }
            Order::Forget(which, answer) => {
                let _ = answer.send(self.forget(&which));
            }
        }
    }

    fn forget(&mut self, which: &Forget) -> Result<Forgotten, ForgetError> {
        let Some(database) = &mut self.database else {
            let warning = self.told.last().cloned();
            return Err(warning.map_or(ForgetError::Silent, ForgetError::File));
        };
        if let Some(reason) = database.unwritable.clone() {
            let path = self.path.clone();
            return Err(ForgetError::File(Warning::Unwritable { path, reason }));
        }
        match database.forget(which) {
            Ok(mut gone) => {
                let unwritten = self.shared.memory().forget(which);
                gone.edges.extend(unwritten.edges);
                gone.edges.sort();
                gone.edges.dedup();
                gone.relays.extend(unwritten.relays);
                gone.relays.sort();
                gone.relays.dedup();
                Ok(gone)
            }
            Err(fault) => Err(ForgetError::File(fault.warning(&self.path, VERSION))),
        }
    }

    /// Nobody waits for long at the end.
    fn hurry(&self) {
        if let Some(database) = &self.database {
            database.wait_at_most(self.shared.patience.close / 2);
        }
    }
}

/// Says it, but once.
fn tell(told: &mut Vec<Warning>, shared: &Shared, warning: Warning) {
    if !told.contains(&warning) {
        tracing::debug!("{warning}");
        told.push(warning.clone());
        shared.mailbox().warnings.push(warning);
    }
}

/// Says that the thread has ended, also where it panicked.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        let mut mailbox = self.0.mailbox();
        mailbox.is_over = true;
        // Nobody is there to obey.
        mailbox.orders.clear();
        self.0.bell.notify_all();
    }
}

/// A file in memory opens in a millisecond, one on a disk that has to wake up in a few seconds:
/// the transfer begins without it then.
const OPEN_WAIT: Duration = Duration::from_secs(1);
/// How often it is looked whether others have written.
const TURN_WAIT: Duration = Duration::from_secs(1);
/// What is noted is written together with what is noted within this time: a transaction costs a
/// write to the disk however little is in it.
const GATHER_WAIT: Duration = Duration::from_millis(900);
/// The program's end waits no longer for the file.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// A lock that is held for long is looked after as often as anything else.
const LOCKED_WAIT: Duration = Duration::from_secs(1);
/// A full or broken disk is left in peace for a while.
const FAULT_WAIT: Duration = Duration::from_secs(5);
/// A disk that damages one file after the other is no place to remember anything.
const SET_ASIDE_MAX: u32 = 2;
/// Renaming takes a moment, and so long it is looked whether another process has done with it.
const ASIDE_PATIENCE: Duration = Duration::from_secs(2);
/// Others hold the file for moments; longer than this is worth telling, and still within the time
/// that the beginning waits.
const LOCK_PATIENCE: Duration = Duration::from_millis(400);
const MOMENT: Duration = Duration::from_millis(10);
