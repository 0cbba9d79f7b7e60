//! Checks that enough threads can be started (`ulimit -u`, process limits of batch jobs).
//!
//! The asynchronous runtime panics if it cannot start a thread, and may then hang. So the threads that
//! a command needs are started and stopped once before.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::exit::Exit;

use crate::failure::Failure;

/// Returns an error if the system does not allow the threads that a command needs.
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

/// Returns the failure to start a thread.
pub fn failure(error: &io::Error) -> Failure {
    Failure::new(Exit::Internal, format!("cannot start a thread: {error}")).hint(
        "the system limits your processes and threads (see 'ulimit -u'): end some, or raise the limit",
    )
}

/// Threads that hash, at most.
const HASHING_MAX: usize = 4;
/// For the disk, name lookups and small files.
const OTHERS: usize = 8;
/// They only wait.
const STACK_BYTES: usize = 64 << 10;
