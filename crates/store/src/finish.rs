//! The end of a target: its final name, or its removal.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use crate::file_kind::FileKind;
use swath_model::{Range, counted};

use crate::commit::sync_data;
use crate::sys;
use crate::target::{Inner, Journal, Target};
use crate::tree::Deed;

/// Why a target did not get its final name. Part file and journal stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// Not every byte was written.
    #[error("{}: {} missing, the first at {}", path.display(), missing(*missing_bytes), first.start)]
    Incomplete {
        /// The final name.
        path: PathBuf,
        /// How many bytes.
        missing_bytes: u64,
        /// The first of the missing ranges.
        first: Range,
    },
    /// The final name was taken meanwhile.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The data could not be synced.
    #[error("the data of {} could not be made durable", path.display())]
    DataLost {
        /// The final name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The target was finished or discarded before.
    #[error("{} is finished", .0.display())]
    Closed(PathBuf),
    /// Anything else.
    #[error("cannot finish {}", path.display())]
    Io {
        /// The final name.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Target {
    /// Gives the file its exact size, its time and its final name, all durable when this returns,
    /// and removes the journal. The caller has verified the bytes.
    ///
    /// # Errors
    /// See [`FinishError`]; the target can still be written to and finished again.
    pub async fn finish(&self, mtime: Option<SystemTime>) -> Result<PathBuf, FinishError> {
        let inner = Arc::clone(&self.inner);
        let path = inner.names.shown.clone();
        let size_bytes = {
            let mut progress = inner.progress();
            if progress.closed {
                return Err(FinishError::Closed(path));
            }
            let size_bytes =
                progress.size_bytes.unwrap_or(progress.written.last().map_or(0, |last| last.end));
            let whole = Range::new(0, size_bytes);
            if let Some(&first) = progress.written.gaps_within(whole).first() {
                let missing_bytes = size_bytes - progress.written.bytes_within(whole);
                return Err(FinishError::Incomplete { path, missing_bytes, first });
            }
            progress.closed = true;
            size_bytes
        };
        // Writes whose future was dropped may still be in flight.
        let alone = Arc::clone(&inner.file.gate).write_owned().await;
        let mut journal = Arc::clone(&inner.journal).lock_owned().await;
        let for_worker = Arc::clone(&inner);
        let done = inner
            .disk
            .workers()
            .run(move || {
                let _alone = alone;
                let finished = finish_now(&for_worker, &mut journal, size_bytes, mtime);
                let mut progress = for_worker.progress();
                progress.closed = finished.is_ok() || progress.gone;
                finished
            })
            .await;
        done.map_err(|gone| FinishError::Io {
            path: path.clone(),
            source: io::Error::other(gone),
        })??;
        Ok(path)
    }

    /// Gives up for good: removes the part file and the journal.
    ///
    /// # Errors
    /// The system's error if one of them could not be removed.
    pub async fn discard(&self) -> io::Result<()> {
        let inner = Arc::clone(&self.inner);
        {
            let mut progress = inner.progress();
            if progress.closed {
                return Ok(());
            }
            progress.closed = true;
        }
        let alone = Arc::clone(&inner.file.gate).write_owned().await;
        let mut journal = Arc::clone(&inner.journal).lock_owned().await;
        let for_worker = Arc::clone(&inner);
        let done = inner.disk.workers().run(move || {
            let _alone = alone;
            let steps = for_worker.disk.steps();
            // The journal first: alone it would vouch for a missing part file.
            if journal.file.take().is_some() {
                steps.remove(&for_worker.names.journal)?;
            }
            let mut progress = for_worker.progress();
            progress.journaled = false;
            progress.gone = true;
            drop(progress);
            steps.remove(&for_worker.names.part)
        });
        done.await.map_err(io::Error::other)?
    }
}

fn finish_now(
    inner: &Inner,
    journal: &mut Journal,
    size_bytes: u64,
    mtime: Option<SystemTime>,
) -> Result<(), FinishError> {
    let path = || inner.names.shown.clone();
    let failed = |source| FinishError::Io { path: path(), source };
    let (steps, names, part) = (inner.disk.steps().as_ref(), &inner.names, inner.file.plain());
    inner.grant.check(Deed::Create, b"").map_err(failed)?;
    // That of whoever asked for it may have ended meanwhile.
    let may_replace = inner.overwrite && inner.grant.permits(Deed::Modify, b"");
    if part.metadata().map_err(failed)?.len() != size_bytes {
        steps.set_size(part, size_bytes).map_err(failed)?;
    }
    if may_replace && let Ok(old) = names.target.symlink_metadata() {
        if FileKind::from(&old) != FileKind::File {
            // The name got another kind of entry since this began.
            return Err(FinishError::Exists(path()));
        }
        keep_mode(part, &old, 0);
    }
    if let Some(mtime) = mtime {
        // A time that the file system cannot store is no reason to lose the file.
        if let Err(error) = sys::set_mtime(part, mtime) {
            tracing::warn!(%error, path = %names.shown.display(), "time not set");
        }
    }
    sync_data(inner, journal).map_err(|source| FinishError::DataLost { path: path(), source })?;
    steps.rename(&names.part, &names.target, may_replace).map_err(|source| {
        match source.raw_os_error() {
            Some(libc::EEXIST) => FinishError::Exists(path()),
            _ => failed(source),
        }
    })?;
    inner.progress().gone = true;
    steps.sync_folder(&names.folder).map_err(failed)?;
    // Only now: until the new name is durable, power loss restores the part file.
    if journal.file.take().is_some() {
        match steps.remove(&names.journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, journal = %names.journal.display(), "journal not removed");
            }
            _ => {}
        }
        inner.progress().journaled = false;
    }
    Ok(())
}

/// Gives the file the mode of the replaced one, so that no one gains access to it.
pub(crate) fn keep_mode(part: &File, old: &Metadata, more: u32) {
    let mode = Permissions::from_mode(old.permissions().mode() & 0o777 | more);
    // Some file systems have no modes; losing the file would be worse.
    if let Err(error) = part.set_permissions(mode) {
        tracing::warn!(%error, "mode not kept");
    }
}
fn missing(bytes: u64) -> String {
    counted(bytes, "byte") + if bytes == 1 { " is" } else { " are" }
}
