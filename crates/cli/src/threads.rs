//! Threads where the system lets a user have few of them (`ulimit -u`, the processes of a job).
//!
//! The asynchronous runtime panics when it cannot start one of its threads, and may then wait for
//! ever. So as many as a command needs are started once before it, and end again: if that fails,
//! one sentence says so.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::exit::Exit;

use crate::failure::Failure;

/// Returns an error if the system does not let this process have the threads that a command needs.
pub fn check() -> io::Result<()> {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = cores + cores.min(HASHING_MAX) + OTHERS;
    let over = Arc::new(AtomicBool::new(false));
    let mut started = Vec::with_capacity(wanted);
    let mut outcome = Ok(());
    for _ in 0..wanted {
        let over = Arc::clone(&over);
        let waits = move || {
            while !over.load(Ordering::Acquire) {
                thread::park();
            }
        };
        match thread::Builder::new().stack_size(STACK_BYTES).spawn(waits) {
            Ok(handle) => started.push(handle),
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    over.store(true, Ordering::Release);
    for handle in started {
        handle.thread().unpark();
        // None of them can panic.
        let _ = handle.join();
    }
    outcome
}

/// A thread cannot be started.
pub fn failure(error: &io::Error) -> Failure {
    Failure::new(Exit::Internal, format!("cannot start a thread: {error}")).hint(
        "the system limits how many processes and threads you may have (see 'ulimit -u'); end some \
         of them, or ask for more",
    )
}

/// Threads that hash, at most.
const HASHING_MAX: usize = 4;
/// Those of the disk, and some for lookups of names and small files.
const OTHERS: usize = 8;
/// They only wait.
const STACK_BYTES: usize = 64 << 10;
