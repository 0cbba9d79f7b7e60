//! What can be wrong with the file. Nothing of it stops a transfer.

use std::path::{Path, PathBuf};

/// Something is wrong with what is remembered; the transfer goes on all the same. Each is told once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// It was damaged and has another name now; a new one was begun.
    #[error("{path} was damaged, so a new one was begun; the damaged one is {aside}", path = .path.display(), aside = .aside.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damaged file's new name.
        aside: PathBuf,
    },
    /// It is damaged and cannot be given another name. Nothing is remembered in this run.
    #[error("{path} is damaged and cannot be set aside ({reason}), so nothing is remembered in this run", path = .path.display())]
    Stuck {
        /// The file.
        path: PathBuf,
        /// Why not, in the system's words.
        reason: String,
    },
    /// A newer swath wrote it. It is left as it is, and nothing is remembered in this run.
    #[error("{path} is of a newer swath (version {version} of its tables, this one knows {known}), so it is left as it is and nothing is remembered in this run", path = .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its tables.
        version: i64,
        /// The newest version that this swath knows.
        known: i64,
    },
    /// It is some other program's database. Nothing is remembered in this run.
    #[error("{path} is a database of another program, so it is left as it is and nothing is remembered in this run", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds it for long. What is learnt waits for it.
    #[error("{path} is locked by another process; what is learnt waits until it is free", path = .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Nothing can be written there. What it says is used, and nothing new is remembered.
    #[error("{path} cannot be written ({reason}), so nothing new is remembered", path = .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why not, in SQLite's or the system's words.
        reason: String,
    },
    /// The disk is full. What is learnt waits for room.
    #[error("the disk is full: {path} cannot be written, and what is learnt waits for room", path = .path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Its file system does not answer in time. What it says comes when it comes.
    #[error("{path} does not open in time; what it says will be used as soon as it does", path = .path.display())]
    Slow {
        /// The file.
        path: PathBuf,
    },
}

/// What SQLite said, by what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Locked,
    Damaged,
    Newer(i64),
    Foreign,
    Full,
    /// Read-only, a folder in its place, no right, an error of the device.
    Unwritable(String),
}

impl Fault {
    /// What a user is told of it, but for [`Fault::Damaged`], where it depends on what comes of it.
    pub(crate) fn warning(self, path: &Path, known: i64) -> Warning {
        let path = path.to_owned();
        match self {
            Fault::Locked => Warning::Locked { path },
            Fault::Damaged => Warning::Stuck { path, reason: "damaged again".to_owned() },
            Fault::Newer(version) => Warning::Newer { path, version, known },
            Fault::Foreign => Warning::Foreign { path },
            Fault::Full => Warning::Full { path },
            Fault::Unwritable(reason) => Warning::Unwritable { path, reason },
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        use rusqlite::ErrorCode::{
            DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, FileLockingProtocolFailed,
            NotADatabase, Unknown,
        };
        let rusqlite::Error::SqliteFailure(failure, _) = &error else {
            // Rows of another shape than the tables that swath makes.
            return Fault::Damaged;
        };
        match failure.code {
            DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed => Fault::Locked,
            DatabaseCorrupt | NotADatabase => Fault::Damaged,
            // SQLITE_ERROR: a table or a column that is not there.
            Unknown => Fault::Damaged,
            DiskFull => Fault::Full,
            _ => Fault::Unwritable(words(&error)),
        }
    }
}

/// An error without SQLite's number for it.
fn words(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}
