//! Ordinary I/O through the page cache, one job at a time for each file.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Direction, Job, Turn};
use crate::data_file::DataFile;
use crate::stats::Meter;
use crate::sys;
use crate::workers::Workers;

/// The ordinary jobs of one file.
#[derive(Default)]
pub(crate) struct BufferedQueue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    running: bool,
    unpushed_bytes: u64,
}

impl BufferedQueue {
    /// Puts `job` at the end of its file's queue.
    pub(crate) fn submit(job: Job, workers: &Workers, meter: &Arc<Meter>) {
        let file = Arc::clone(&job.file);
        {
            let mut state = file.buffered.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.jobs.push_back(job);
            if std::mem::replace(&mut state.running, true) {
                return;
            }
        }
        let meter = Arc::clone(meter);
        workers.start(move || Self::drain(file, &meter));
    }

    fn drain(file: Arc<DataFile>, meter: &Meter) {
        loop {
            let mut job = {
                let mut state = file.buffered.state.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(job) = state.jobs.pop_front() else {
                    state.running = false;
                    return;
                };
                if job.direction == Direction::Write {
                    state.unpushed_bytes += job.bytes as u64;
                }
                job
            };
            let (start, end) = (job.offset, job.offset + job.bytes as u64);
            let mut outcome = job.run(file.plain_fd());
            let clean = matches!(job.turn, Turn::Alone { clean: true, .. });
            if clean && outcome.is_ok() {
                // Whole blocks, because the kernel drops no page that is only partly covered.
                let (first, last) =
                    (start - start % BLOCK_BYTES, end.next_multiple_of(BLOCK_BYTES));
                outcome = outcome.and_then(|count| {
                    sys::write_back_and_drop(file.plain(), first, last).map(|()| count)
                });
            }
            let pushing = job.direction == Direction::Write && !clean;
            if pushing {
                Self::push_on(&file, start, end);
            }
            let mut state = file.buffered.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.jobs.is_empty() {
                state.running = false;
                drop(state);
                // A caller that learns of the last job may reopen the file, and would find it
                // locked if it were still open here.
                drop(file);
                job.finish(outcome, meter);
                return;
            }
            drop(state);
            job.finish(outcome, meter);
        }
    }

    /// Starts write-back early, so that the sync at a commit is short.
    fn push_on(file: &DataFile, start: u64, end: u64) {
        let mut state = file.buffered.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.unpushed_bytes < PUSH_BYTES {
            return;
        }
        let unpushed = std::mem::take(&mut state.unpushed_bytes);
        drop(state);
        // Unpushed bytes mostly end where the last write ends; others are clean or pushed later.
        sys::begin_write_back(file.plain(), start.saturating_sub(unpushed), end);
    }
}

/// The largest page of common systems.
const BLOCK_BYTES: u64 = 64 << 10;
/// Large enough for efficient requests to the device, small against what a commit waits for.
const PUSH_BYTES: u64 = 8 << 20;
