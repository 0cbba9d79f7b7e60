//! A disk without threads, for simulations: all work is done where it is requested, so that a run
//! depends on its seed alone, with injected faults.
//!
//! Files are real (best on a file system in memory); [`Faults::synced`] decides what a power cut
//! leaves of them.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::steps::{Steps, SystemSteps};

/// Faults of a simulated disk.
pub trait Faults: Send + Sync {
    /// Called before bytes are written to a part file at `offset`.
    ///
    /// # Errors
    /// The error that replaces the write, such as `ErrorKind::StorageFull`.
    fn before_write(&self, offset: u64, bytes: usize) -> io::Result<()>;

    /// Called before a journal, a name or a folder is changed.
    ///
    /// # Errors
    /// The error that replaces the step.
    fn before_step(&self) -> io::Result<()>;

    /// Called when everything written to this file survives a power cut.
    fn synced(&self, file: &File);
}

/// The steps on which durability depends, with faults.
pub(crate) struct SimulatedSteps {
    pub(crate) faults: Arc<dyn Faults>,
    pub(crate) system: SystemSteps,
}

impl SimulatedSteps {
    fn then<T>(&self, step: impl FnOnce(&SystemSteps) -> io::Result<T>) -> io::Result<T> {
        self.faults.before_step()?;
        step(&self.system)
    }
}

impl Steps for SimulatedSteps {
    fn sync_data(&self, part: &File) -> io::Result<()> {
        // A real sync would wait for a device; here the data is in memory.
        self.faults.before_step()?;
        self.faults.synced(part);
        Ok(())
    }

    fn append_journal(&self, journal: &File, at_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.then(|system| system.append_journal(journal, at_bytes, bytes))
    }

    fn sync_journal(&self, journal: &File) -> io::Result<()> {
        self.sync_data(journal)
    }

    fn set_size(&self, file: &File, size_bytes: u64) -> io::Result<()> {
        self.then(|system| system.set_size(file, size_bytes))
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        self.then(|system| system.rename(from, to, replace))
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        self.faults.before_step()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.then(|system| system.remove(path))
    }
}
