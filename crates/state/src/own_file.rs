//! Files of SQLite that are their owner's alone, beside the one with what is remembered of the network:
//! that one may be thrown away when it is damaged, and nothing waits for it.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

/// Why something cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The file cannot be made or opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The file is another program's, or a newer swath's.
    #[error("{} is not a file that this swath can read", .0.display())]
    Foreign(PathBuf),
    /// Another server has it open.
    #[error("another server keeps its jobs in {}", .0.display())]
    InUse(PathBuf),
    /// Another process writes to it for long.
    #[error("another swath is writing to {}; try again later", .0.display())]
    Busy(PathBuf),
    /// The file is damaged, or cannot be used.
    #[error("cannot use {}; to go on without what is in it, move it away", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The database's error.
        #[source]
        error: rusqlite::Error,
    },
    /// The database refuses.
    #[error("the state folder cannot keep it")]
    Database(#[from] rusqlite::Error),
    /// Another job has this name.
    #[error("there is another job of this name")]
    Taken,
}

/// What a file holds, and how.
pub(crate) struct Schema {
    /// What `file` shows; no other program's files have it.
    pub(crate) application: i64,
    /// What makes the tables of the first version, and then those of each later one from the one before.
    pub(crate) versions: &'static [&'static str],
    /// `synchronous`, in SQLite's words.
    pub(crate) sync: &'static str,
    /// `journal_mode`, in SQLite's words.
    pub(crate) journal: &'static str,
}

impl Schema {
    /// Makes the file and its folder if there is none, for nobody else to read.
    pub(crate) fn make(path: &Path) -> Result<(), KeepError> {
        let failed = |error| KeepError::Open { path: path.to_owned(), error };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Opens the file, and makes its tables if it is empty.
    pub(crate) fn open(&self, path: &Path) -> Result<Connection, KeepError> {
        match self.connect(path) {
            Ok(Some(connection)) => Ok(connection),
            Ok(None) => Err(KeepError::Foreign(path.to_owned())),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                Err(KeepError::Busy(path.to_owned()))
            }
            Err(error) => Err(KeepError::Unusable { path: path.to_owned(), error }),
        }
    }

    /// As [`open`](Self::open); `None` if it is another program's, or a newer swath's.
    fn connect(&self, path: &Path) -> rusqlite::Result<Option<Connection>> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_WAIT)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update_and_check(None, "journal_mode", self.journal, |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", self.sync)?;
        connection.pragma_update(None, "secure_delete", true)?;
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mark = |name| change.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let (application, version) = (mark("application_id")?, mark("user_version")?);
        let is_ours = (application, version) == (0, 0) || application == self.application;
        let known = usize::try_from(version).ok().filter(|_| is_ours);
        let Some(newer) = known.and_then(|known| self.versions.get(known..)) else {
            return Ok(None);
        };
        for tables in newer {
            change.execute_batch(tables)?;
        }
        if !newer.is_empty() {
            change.pragma_update(None, "application_id", self.application)?;
            change.pragma_update(None, "user_version", self.versions.len() as i64)?;
        }
        change.commit()?;
        Ok(Some(connection))
    }
}

/// Another process that is about to end, or writes something.
const BUSY_WAIT: Duration = Duration::from_secs(5);
