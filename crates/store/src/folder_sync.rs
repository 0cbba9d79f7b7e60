//! Makes names durable: one system call for all callers that arrive while another one runs.
//!
//! A sync that begins after a rename covers it. Callers that arrive while one runs wait for the
//! next one and share it, so thousands of small files that finish together cost a few calls.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::io::{Errno, retry_on_intr};

/// Syncs folders for many callers at once.
#[derive(Default)]
pub(crate) struct FolderSync {
    folders: Mutex<HashMap<PathBuf, Arc<FolderTurns>>>,
}

#[derive(Default)]
struct FolderTurns {
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Default)]
struct Turns {
    running: bool,
    begun: u64,
    done: u64,
    /// Errors of finished turns by number, and how many callers have yet to read each.
    outcomes: HashMap<u64, (Option<i32>, u64)>,
    waiting: u64,
}

impl FolderSync {
    /// Makes all present names in `folder` durable.
    pub(crate) fn sync(&self, folder: &Path) -> io::Result<()> {
        let turns = {
            let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            if folders.len() > FOLDERS_KEPT_MAX {
                folders.retain(|_, turns| Arc::strong_count(turns) > 1);
            }
            Arc::clone(folders.entry(folder.to_owned()).or_default())
        };
        let mut state = turns.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // The first turn that begins from now on.
        let mine = state.begun + 1;
        state.waiting += 1;
        loop {
            if state.done >= mine {
                break;
            }
            if !state.running {
                state.running = true;
                state.begun += 1;
                let turn = state.begun;
                let covered = std::mem::take(&mut state.waiting);
                drop(state);
                let outcome = sync_folder_now(folder);
                state = turns.turns.lock().unwrap_or_else(PoisonError::into_inner);
                state.running = false;
                state.done = turn;
                let errno = outcome.err().map(|error| error.raw_os_error().unwrap_or(libc::EIO));
                state.outcomes.insert(turn, (errno, covered));
                turns.changed.notify_all();
                continue;
            }
            state = turns.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let Some((errno, left)) = state.outcomes.get_mut(&mine) else { return Ok(()) };
        let errno = *errno;
        *left = left.saturating_sub(1);
        if *left == 0 {
            state.outcomes.remove(&mine);
        }
        errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }
}

fn sync_folder_now(folder: &Path) -> io::Result<()> {
    let opened = File::open(folder)?;
    match retry_on_intr(|| rustix::fs::fsync(&opened)) {
        // Some file systems cannot sync a folder; their names are as durable as they get.
        Err(Errno::INVAL | Errno::ROFS) => Ok(()),
        synced => Ok(synced?),
    }
}

/// Most folders whose turns are remembered; idle ones are forgotten beyond that.
const FOLDERS_KEPT_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_an_answer() {
        let folder = tempfile::tempdir().unwrap();
        let sync = FolderSync::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20).for_each(|_| sync.sync(folder.path()).unwrap()));
            }
        });
        let gone = folder.path().join("not there");
        assert_eq!(sync.sync(&gone).unwrap_err().kind(), io::ErrorKind::NotFound);
        let folders = sync.folders.lock().unwrap();
        assert!(folders.values().all(|turns| turns.turns.lock().unwrap().outcomes.is_empty()));
    }
}
