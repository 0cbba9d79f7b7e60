//! Jobs that a server keeps: what was ordered, how far it is, and how it ended.
//!
//! Their own SQLite file. An order may contain delegated tokens, so the file is its owner's alone. Every
//! change is one transaction, which is on the disk when the call returns.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::clock::Wall;
use crate::own_file::{KeepError, Schema};

/// The kept jobs of one server.
#[derive(Debug)]
pub struct KeptJobs {
    connection: Mutex<Connection>,
    /// Held as long as this value lives: jobs that two servers ran would be in each other's way.
    _lock: Option<Lock>,
}

/// A kept job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptJob {
    /// Its name: letters, digits and `-`.
    pub id: String,
    /// Who ordered it, as the server tells its users apart.
    pub owner: String,
    /// Where its data goes, as the user named it.
    pub place: String,
    /// Where its data comes from, for its owner to read; nothing secret.
    pub from: String,
    /// What was ordered; only whoever keeps the job reads it.
    pub order: String,
    /// How far it is.
    pub state: KeptState,
    /// When it was ordered, in seconds since 1970.
    pub ordered_s: u64,
    /// When it ended.
    pub ended_s: Option<u64>,
    /// What is said of its end; only whoever keeps the job reads it.
    pub result: Option<String>,
}

/// How far a kept job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptState {
    /// It waits or runs; after a restart it is begun again.
    Open,
    /// It has ended well.
    Done,
    /// It has failed.
    Failed,
    /// Its owner has cancelled it.
    Cancelled,
}

impl KeptState {
    /// Returns the word for it in the file and in lists.
    pub fn word(self) -> &'static str {
        match self {
            KeptState::Open => "open",
            KeptState::Done => "done",
            KeptState::Failed => "failed",
            KeptState::Cancelled => "cancelled",
        }
    }

    fn of_word(word: &str) -> Option<KeptState> {
        let all = [KeptState::Open, KeptState::Done, KeptState::Failed, KeptState::Cancelled];
        all.into_iter().find(|state| state.word() == word)
    }
}

/// The lock of a file, for as long as this is there. A program that another thread is starting has the
/// descriptor too for a moment, so that closing it would not be enough.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl KeptJobs {
    /// Opens the file, or makes it and its folder.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn open(path: &Path) -> Result<KeptJobs, KeepError> {
        let failed = |error| KeepError::Open { path: path.to_owned(), error };
        Schema::make(path)?;
        // Not the database itself: closing it would end the locks of SQLite.
        let lock = path.with_extension("lock");
        let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(lock);
        let lock = lock.map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(KeepError::InUse(path.to_owned())),
            Err(error) => return Err(failed(error.into())),
        }
        Ok(KeptJobs { connection: Mutex::new(SCHEMA.open(path)?), _lock: Some(Lock(lock)) })
    }

    /// Returns a database that is forgotten when it is dropped.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn in_memory() -> Result<KeptJobs, KeepError> {
        let connection = SCHEMA.open(Path::new(":memory:"))?;
        Ok(KeptJobs { connection: Mutex::new(connection), _lock: None })
    }

    /// Adds a job. Jobs that ended long ago, and the oldest of too many that have ended, are forgotten.
    ///
    /// # Errors
    /// [`KeepError::Taken`] or [`KeepError::Database`].
    pub fn add(
        &self,
        id: &str,
        owner: &str,
        [place, from]: [&str; 2],
        order: &str,
    ) -> Result<(), KeepError> {
        let now_s = now_s();
        let mut connection = self.connection();
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let added = change.execute(
            "INSERT OR IGNORE INTO jobs (id, owner, place, source, what, state, ordered_s)
             VALUES (?1, ?2, ?3, ?4, ?5, 'open', ?6)",
            params![id, owner, place, from, order, now_s],
        )?;
        if added == 0 {
            return Err(KeepError::Taken);
        }
        change.execute(
            "DELETE FROM jobs WHERE state <> 'open' AND (ended_s < ?1 OR id IN (
               SELECT id FROM jobs WHERE state <> 'open' ORDER BY ended_s DESC LIMIT -1 OFFSET ?2))",
            params![now_s - KEPT_S, ENDED_MAX],
        )?;
        change.commit()?;
        Ok(())
    }

    /// Changes what is ordered of an open job, and forgets what was.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn change(&self, id: &str, order: &str) -> Result<(), KeepError> {
        let connection = self.connection();
        let change = "UPDATE jobs SET what = ?2 WHERE id = ?1 AND state = 'open'";
        connection.execute(change, params![id, order])?;
        forget_log(&connection);
        Ok(())
    }

    /// Forgets a job.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn forget(&self, id: &str) -> Result<(), KeepError> {
        let connection = self.connection();
        connection.execute("DELETE FROM jobs WHERE id = ?1", [id])?;
        forget_log(&connection);
        Ok(())
    }

    /// Notes that a job has ended, and forgets what was ordered: it may contain tokens.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn end(&self, id: &str, state: KeptState, result: &str) -> Result<(), KeepError> {
        let connection = self.connection();
        connection.execute(
            "UPDATE jobs SET state = ?2, ended_s = ?3, result = ?4, what = '' WHERE id = ?1",
            params![id, state.word(), now_s(), result],
        )?;
        forget_log(&connection);
        Ok(())
    }

    /// Returns a job.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn job(&self, id: &str) -> Result<Option<KeptJob>, KeepError> {
        let connection = self.connection();
        let query = format!("SELECT {JOB} FROM jobs WHERE id = ?1");
        Ok(connection.query_row(&query, [id], job_of).optional()?.flatten())
    }

    /// Returns all jobs, in the order in which they were ordered.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn all(&self) -> Result<Vec<KeptJob>, KeepError> {
        let connection = self.connection();
        let mut query =
            connection.prepare(&format!("SELECT {JOB} FROM jobs ORDER BY ordered_s, id"))?;
        let found = query.query_map([], job_of)?;
        let all: Vec<Option<KeptJob>> = found.collect::<Result<_, _>>()?;
        Ok(all.into_iter().flatten().collect())
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log beside the file would still hold what was overwritten. It is merged later if this fails.
fn forget_log(connection: &Connection) {
    let _ = connection.pragma_query(None, "wal_checkpoint(TRUNCATE)", |_| Ok(()));
}

/// Reads a job; `None` if its state is one of a newer swath.
fn job_of(row: &Row<'_>) -> rusqlite::Result<Option<KeptJob>> {
    let seconds = |at: Option<i64>| at.and_then(|at| u64::try_from(at).ok());
    let word: String = row.get(4)?;
    let Some(state) = KeptState::of_word(&word) else { return Ok(None) };
    Ok(Some(KeptJob {
        id: row.get(0)?,
        owner: row.get(1)?,
        place: row.get(2)?,
        order: row.get(3)?,
        state,
        ordered_s: seconds(row.get(5)?).unwrap_or(0),
        ended_s: seconds(row.get(6)?),
        result: row.get(7)?,
        from: row.get(8)?,
    }))
}

fn now_s() -> i64 {
    Wall::now().0 / 1000
}

/// Times are seconds since 1970 in UTC.
const SCHEMA: Schema = Schema {
    // "swjb"
    application: 0x7377_6a62,
    versions: &[
        "
CREATE TABLE jobs (
  id TEXT NOT NULL PRIMARY KEY,
  owner TEXT NOT NULL,
  place TEXT NOT NULL,
  what TEXT NOT NULL,
  state TEXT NOT NULL,
  ordered_s INTEGER NOT NULL,
  ended_s INTEGER,
  result TEXT
) STRICT, WITHOUT ROWID;",
        "ALTER TABLE jobs ADD COLUMN source TEXT NOT NULL DEFAULT '';",
    ],
    sync: "full",
    journal: "wal",
};
const JOB: &str = "id, owner, place, what, state, ordered_s, ended_s, result, source";
/// Ended jobs are kept for thirty days, …
const KEPT_S: i64 = 30 * 86_400;
/// … and no more than so many.
const ENDED_MAX: i64 = 10_000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn jobs_are_kept_over_restarts_and_lose_their_orders_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/jobs.db");
        let jobs = KeptJobs::open(&path).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "an order may contain tokens");
        jobs.add("a-1", "ada", ["/ds/", "https://a/"], "secret").unwrap();
        jobs.add("b-2", "bob", ["/", "https://b/"], "other").unwrap();
        assert!(matches!(jobs.add("a-1", "eve", ["/", ""], "x"), Err(KeepError::Taken)));
        jobs.end("b-2", KeptState::Failed, "why").unwrap();
        assert!(matches!(KeptJobs::open(&path), Err(KeepError::InUse(_))), "two servers");
        drop(jobs);
        let jobs = KeptJobs::open(&path).unwrap();
        let first = jobs.job("a-1").unwrap().unwrap();
        assert_eq!((first.state, first.order.as_str()), (KeptState::Open, "secret"));
        assert_eq!((first.owner.as_str(), first.ended_s), ("ada", None));
        let second = jobs.job("b-2").unwrap().unwrap();
        assert_eq!((second.state, second.order.as_str()), (KeptState::Failed, ""));
        assert_eq!(second.result.as_deref(), Some("why"));
        assert_eq!((first.from.as_str(), second.from.as_str()), ("https://a/", "https://b/"));
        assert!(second.ended_s >= Some(second.ordered_s));
        assert_eq!(jobs.all().unwrap(), [first, second]);
        assert_eq!(jobs.job("c").unwrap(), None);
    }

    #[test]
    fn what_ended_long_ago_is_forgotten_and_what_runs_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = KeptJobs::open(&folder.path().join("jobs.db")).unwrap();
        for id in ["old", "open", "new"] {
            jobs.add(id, "ada", ["/", ""], "x").unwrap();
        }
        jobs.end("old", KeptState::Done, "").unwrap();
        jobs.end("new", KeptState::Done, "").unwrap();
        let long_ago = now_s() - KEPT_S - 1;
        let age = "UPDATE jobs SET ordered_s = ?1, ended_s = iif(state = 'open', NULL, ?1)
                   WHERE id <> 'new'";
        jobs.connection().execute(age, [long_ago]).unwrap();
        jobs.add("another", "ada", ["/", ""], "x").unwrap();
        let ids: Vec<String> = jobs.all().unwrap().into_iter().map(|job| job.id).collect();
        assert_eq!(ids.len(), 3);
        assert!(!ids.contains(&"old".to_owned()), "{ids:?}");
    }

    #[test]
    fn other_files_are_left_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.db");
        let other = Connection::open(&path).unwrap();
        other.pragma_update(None, "application_id", 7).unwrap();
        drop(other);
        assert!(matches!(KeptJobs::open(&path), Err(KeepError::Foreign(_))));
        std::fs::write(
            folder.path().join("text"),
            "no database, but longer than its header; ".repeat(9),
        )
        .unwrap();
        assert!(KeptJobs::open(&folder.path().join("text")).is_err());
    }
}
