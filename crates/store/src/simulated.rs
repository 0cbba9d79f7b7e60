//! A disk without threads, for simulations: everything is done where it is requested, so that a run
//! depends on its seed alone, and fails as told.
//!
//! Files are real ones (best on a file system in memory); what a power cut leaves of them follows
//! from what [`Faults::synced`] was told.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::steps::{Steps, SystemSteps};

/// What goes wrong with a simulated disk.
pub trait Faults: Send + Sync {
    /// Bytes are about to be written to a part file at `offset`.
    ///
    /// # Errors
    /// What the write is to come to in their place; `ErrorKind::StorageFull`, say.
    fn before_write(&self, offset: u64, bytes: usize) -> io::Result<()>;

    /// Something is about to be done to a journal, a name or a folder.
    ///
    /// # Errors
    /// What it is to come to instead.
    fn before_step(&self) -> io::Result<()>;

    /// All that was written to this file by now outlives a power cut.
    fn synced(&self, file: &File);
}

/// The steps on which durability hangs, with faults.
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
        // What a real sync would wait for is in memory here.
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
