//! The SQLite file: its tables, reading and writing.
//!
//! The file is ours if it carries our application id, and readable if its version is at most
//! [`VERSION`]; both are checked before anything is changed. Every change is one transaction, so a
//! kill at any instant leaves the file as before or after it.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params,
};

use crate::aside::{Guard, Identity};
use crate::clock::Wall;
use crate::edge::{By, Grade, HERE, Key, Rate, Row, USE_COUNTS_MS};
use crate::location::Journal;
use crate::memory::{EDGES_MAX, RELAYS_MAX, Rows};
use crate::relay::{self, RelayRow};
use crate::state::{Forget, Forgotten};
use crate::warning::Fault;

/// The version of the tables that this code makes and understands.
pub(crate) const VERSION: i64 = 1;

/// What every file of SQLite begins with, and no page of it is smaller
/// (<https://sqlite.org/fileformat2.html>, 1.3).
const HEADER_BYTES: u64 = 100;

/// An open file.
pub(crate) struct Database {
    connection: Connection,
    path: PathBuf,
    /// The file that was opened.
    identity: Option<Identity>,
    /// What SQLite counts up when somebody else writes; `None` before it was read.
    seen: Option<i64>,
    /// How we are called in the file.
    here: String,
    /// Why nothing can be written, if nothing can.
    pub(crate) unwritable: Option<String>,
}

impl Database {
    /// Opens the file, or makes it with its folder; only to be read where it cannot be written.
    pub(crate) fn open(path: &Path, journal: fn(&Path) -> Journal) -> Result<Database, Fault> {
        let folder = make_folder(path);
        let _guard = Guard::shared(path);
        let identity = Identity::of(path);
        look(path)?;
        let made =
            folder.and_then(|()| make(path)).map_err(|error| Fault::Unwritable(error.to_string()));
        let opened = made.and_then(|()| {
            let how = OpenFlags::SQLITE_OPEN_READ_WRITE;
            let connection = Connection::open_with_flags(path, flags(how))?;
            set_up(&connection, journal(path))?;
            Ok(connection)
        });
        let (connection, unwritable) = match opened {
            Ok(connection) => (connection, None),
            Err(Fault::Unwritable(reason)) => match read_only(path) {
                Some(connection) => (connection, Some(reason)),
                None => return Err(Fault::Unwritable(reason)),
            },
            Err(fault) => return Err(fault),
        };
        let identity = identity.or_else(|| Identity::of(path));
        let path = path.to_owned();
        Ok(Database { connection, path, identity, seen: None, here: our_name(), unwritable })
    }

    /// Whether the file that was opened has its name no more.
    pub(crate) fn is_moved(&self) -> bool {
        Identity::of(&self.path) != self.identity
    }

    /// Whether there is something to read that was not read yet.
    pub(crate) fn has_changed(&mut self) -> Result<bool, Fault> {
        let version = self.connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        Ok(self.seen.replace(version) != Some(version))
    }

    /// All that the file says of this machine's network. What cannot be is left out.
    pub(crate) fn read(&self) -> Result<Rows, Fault> {
        let read = || -> rusqlite::Result<Rows> {
            let mut rows = Rows::default();
            let mut all = self.connection.prepare(&format!("SELECT {EDGE} FROM edges"))?;
            let mut found = all.query([])?;
            while let Some(row) = found.next()? {
                let (from, to): (String, String) = (row.get(0)?, row.get(1)?);
                let edge = edge_of(row)?.plausible();
                if let (Some(from), Some(to)) = (self.told(from), self.told(to)) {
                    let key = Key { from, to };
                    if key.is_plausible() && edge != Row::default() {
                        rows.edges.push((key, edge));
                    }
                }
            }
            let mut all = self.connection.prepare(&format!("SELECT {RELAY} FROM relays"))?;
            let mut found = all.query([])?;
            while let Some(row) = found.next()? {
                let url: String = row.get(0)?;
                if relay::is_plausible(&url) {
                    rows.relays.push((url, relay_of(row)?.plausible()));
                }
            }
            Ok(rows)
        };
        Ok(read()?)
    }

    /// Writes rows over what is older in the file, and drops what is too much there.
    pub(crate) fn write(&mut self, rows: &Rows, now: Wall) -> Result<(), Fault> {
        let here = self.here.clone();
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // A newer swath may have changed the tables since they were opened.
        check(&change)?;
        for (key, row) in &rows.edges {
            let (from, to) = (stored(&key.from, &here), stored(&key.to, &here));
            let old = change
                .query_row(
                    &format!("SELECT {EDGE} FROM edges WHERE from_site = ?1 AND to_site = ?2"),
                    params![from, to],
                    edge_of,
                )
                .optional()?;
            let row = old.unwrap_or_default().plausible().merged(row.clone(), now);
            let rate = row.rate.as_ref();
            let by = rate.and_then(|rate| match &rate.by {
                By::Us => None,
                By::Relay(name) => Some(name),
            });
            change.execute(
                &format!(
                    "INSERT OR REPLACE INTO edges ({EDGE}) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9)"
                ),
                params![
                    from,
                    to,
                    rate.map(|rate| rate.bytes_per_s),
                    rate.map(|rate| rate.grade == Grade::Exact),
                    rate.map(|rate| rate.at.0),
                    by,
                    row.rtt.map(|(rtt_s, _)| rtt_s),
                    row.rtt.map(|(_, at)| at.0),
                    row.used_at.map(|at| at.0),
                ],
            )?;
        }
        for (url, row) in &rows.relays {
            let old = change
                .query_row(&format!("SELECT {RELAY} FROM relays WHERE url = ?1"), [url], relay_of)
                .optional()?;
            let row = old.unwrap_or_default().merged(row.clone(), now);
            change.execute(
                &format!("INSERT OR REPLACE INTO relays ({RELAY}) VALUES (?1,?2,?3,?4,?5)"),
                params![
                    url,
                    row.public_key,
                    row.seen_at.map(|at| at.0),
                    row.error.as_ref().map(|(error, _)| error),
                    row.error.as_ref().map(|(_, at)| at.0),
                ],
            )?;
        }
        let pruned = prune(&change)?;
        change.commit()?;
        if pruned {
            // Our own changes are not counted as news.
            self.seen = None;
        }
        Ok(())
    }

    /// Takes rows out of the file.
    pub(crate) fn forget(&mut self, which: &Forget) -> Result<Forgotten, Fault> {
        let here = self.here.clone();
        let told = |name: String| told(name, &here).unwrap_or_else(|| HERE.to_owned());
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        check(&change)?;
        let mut gone = Forgotten::default();
        for (from, to) in pairs(&change)? {
            let key = Key { from: told(from.clone()), to: told(to.clone()) };
            if which.means_edge(&key) {
                change.execute(
                    "DELETE FROM edges WHERE from_site = ?1 AND to_site = ?2",
                    params![from, to],
                )?;
                gone.edges.push((key.from, key.to));
            }
        }
        for url in urls(&change)? {
            if which.means_relay(&url) {
                change.execute("DELETE FROM relays WHERE url = ?1", [&url])?;
                gone.relays.push(url);
            }
        }
        change.commit()?;
        Ok(gone)
    }

    /// How long a lock is waited for.
    pub(crate) fn wait_at_most(&self, wait: Duration) {
        // It fails for no duration that there is.
        let _ = self.connection.busy_timeout(wait);
    }

    fn told(&self, name: String) -> Option<String> {
        told(name, &self.here)
    }
}

/// Whether the file says of itself that it is not for us, without changing anything, not even what
/// lies beside it. It is looked at as it lies, while others may be writing it: only what cannot be
/// half written counts, and the rest is seen when it has been opened.
fn look(path: &Path) -> Result<(), Fault> {
    // What is shorter than SQLite's header lacks the place where our mark was.
    // (A folder has some length, too; it is opened in vain, and stays.)
    if path.metadata().is_ok_and(|it| it.is_file() && (1..HEADER_BYTES).contains(&it.len())) {
        return Err(Fault::Damaged);
    }
    let marks = || -> Result<(i64, i64), Fault> {
        let how = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(immutable(path)?, flags(how))?;
        marks(&connection)
    };
    match marks() {
        Ok((application, _)) if application != APPLICATION && application != 0 => {
            Err(Fault::Foreign)
        }
        Ok((APPLICATION, version)) if version > VERSION => Err(Fault::Newer(version)),
        _ => Ok(()),
    }
}

/// Whose the file says that it is, and its version.
fn marks(connection: &Connection) -> Result<(i64, i64), Fault> {
    let ask = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    Ok((ask("application_id")?, ask("user_version")?))
}

/// Whether it is ours and readable, within a transaction; whether it is still empty.
fn check(connection: &Connection) -> Result<bool, Fault> {
    let (application, version) = marks(connection)?;
    if application == 0 && version == 0 {
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        return if tables == 0 { Ok(true) } else { Err(Fault::Foreign) };
    }
    if application != APPLICATION {
        return Err(Fault::Foreign);
    }
    if version > VERSION { Err(Fault::Newer(version)) } else { Ok(false) }
}

/// The folder, for nobody else to look into: the file tells whom one talks to.
fn make_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => DirBuilder::new().recursive(true).mode(0o700).create(folder),
        None => Ok(()),
    }
}

/// An empty file, unless there is one.
fn make(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ if path.metadata()?.is_file() => Ok(()),
        _ => Err(io::Error::other("it is no file")),
    }
}

/// Makes the connection one to work with, and the tables if there are none.
fn set_up(connection: &Connection, journal: Journal) -> Result<(), Fault> {
    connection.busy_timeout(BUSY_WAIT)?;
    // The last one to leave tidies up, but not in what turns out to be another's file.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // What a damaged or a planted file holds is data and nothing that is carried out.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    let reading = connection.unchecked_transaction()?;
    check(&reading)?;
    reading.commit()?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    let (mode, sync) = match journal {
        // The end of a machine may cost the last seconds of what was learnt, but not the file.
        Journal::Ahead => ("wal", "normal"),
        Journal::Rollback => ("delete", "full"),
    };
    connection.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", sync)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    // Two may begin at the same time.
    let change = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if check(&change)? {
        change.execute_batch(TABLES)?;
        change.pragma_update(None, "application_id", APPLICATION)?;
        change.pragma_update(None, "user_version", VERSION)?;
    }
    change.commit()?;
    is_whole(connection)
}

/// A few hundred pages are looked through in a millisecond or two.
fn is_whole(connection: &Connection) -> Result<(), Fault> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(Fault::Damaged) }
}

/// What can be read of a file that cannot be written.
fn read_only(path: &Path) -> Option<Connection> {
    let open = |name: &Path| -> Result<Connection, Fault> {
        let only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(name, flags(only))?;
        connection.busy_timeout(BUSY_WAIT)?;
        if check(&connection)? {
            return Err(Fault::Damaged);
        }
        is_whole(&connection)?;
        connection.prepare(&format!("SELECT {EDGE} FROM edges"))?;
        Ok(connection)
    };
    // In a folder that cannot be written SQLite can take no part in a write-ahead log: there the
    // file is read as it lies, as long as nobody writes it either.
    open(path).or_else(|_| open(Path::new(&immutable(path)?))).ok()
}

/// The name of a file as SQLite's URIs have it, for one that does not change.
fn immutable(path: &Path) -> Result<String, Fault> {
    let absolute =
        std::path::absolute(path).map_err(|error| Fault::Unwritable(error.to_string()))?;
    let bytes = absolute.as_os_str().as_encoded_bytes();
    let encode = |byte: &u8| match byte {
        b'/' | b'.' | b'-' | b'_' => char::from(*byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    Ok(format!("file:{}?immutable=1", bytes.iter().map(encode).collect::<String>()))
}

fn flags(how: OpenFlags) -> OpenFlags {
    // One thread uses the connection. Links are followed: a home may be laid out with them.
    how | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// This machine's name in the file.
fn our_name() -> String {
    let name = rustix::system::uname();
    format!("{HERE}@{}", name.nodename().to_string_lossy())
}

/// A site's name as the file has it.
fn stored(name: &str, here: &str) -> String {
    if name == HERE { here.to_owned() } else { name.to_owned() }
}

/// A site's name as callers have it; `None` for other machines that share the file.
fn told(name: String, here: &str) -> Option<String> {
    if name == here {
        return Some(HERE.to_owned());
    }
    let is_another = name.strip_prefix(HERE).is_some_and(|rest| rest.starts_with('@'));
    (!is_another && name != HERE).then_some(name)
}

fn edge_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let rate: Option<f64> = row.get(2)?;
    let (is_exact, at, by): (Option<bool>, Option<i64>, Option<String>) =
        (row.get(3)?, row.get(4)?, row.get(5)?);
    let rate = rate.zip(at).map(|(bytes_per_s, at)| Rate {
        bytes_per_s,
        grade: if is_exact == Some(true) { Grade::Exact } else { Grade::AtLeast },
        by: by.map_or(By::Us, By::Relay),
        at: Wall(at),
    });
    let (rtt_s, rtt_at): (Option<f64>, Option<i64>) = (row.get(6)?, row.get(7)?);
    let used_at: Option<i64> = row.get(8)?;
    Ok(Row { rate, rtt: rtt_s.zip(rtt_at.map(Wall)), used_at: used_at.map(Wall) })
}

fn relay_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<RelayRow> {
    let (error, error_at): (Option<String>, Option<i64>) = (row.get(3)?, row.get(4)?);
    Ok(RelayRow {
        public_key: row.get(1)?,
        seen_at: row.get::<_, Option<i64>>(2)?.map(Wall),
        error: error.zip(error_at.map(Wall)),
    })
}

fn pairs(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut all = connection.prepare("SELECT from_site, to_site FROM edges")?;
    let found = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    found.collect()
}

fn urls(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut all = connection.prepare("SELECT url FROM relays")?;
    all.query_map([], |row| row.get(0))?.collect()
}

/// Drops what is least worth keeping, as `Row::worth` has it; whether there was such.
fn prune(connection: &Connection) -> rusqlite::Result<bool> {
    let edges = connection.execute(
        "DELETE FROM edges WHERE (from_site, to_site) IN (
           SELECT from_site, to_site FROM edges
           ORDER BY max(coalesce(used_at_ms + ?1, 0), coalesce(measured_at_ms, 0),
                        coalesce(rtt_at_ms, 0))
           LIMIT max(0, (SELECT count(*) FROM edges) - ?2))",
        params![USE_COUNTS_MS, EDGES_MAX as i64],
    )?;
    let relays = connection.execute(
        "DELETE FROM relays WHERE url IN (
           SELECT url FROM relays ORDER BY max(coalesce(seen_at_ms, 0), coalesce(error_at_ms, 0))
           LIMIT max(0, (SELECT count(*) FROM relays) - ?1))",
        params![RELAYS_MAX as i64],
    )?;
    Ok(edges + relays > 0)
}

/// Times are milliseconds since 1970 in UTC. Without a teller we measured it.
const TABLES: &str = "
CREATE TABLE edges (
  from_site TEXT NOT NULL,
  to_site TEXT NOT NULL,
  rate_bytes_per_s REAL,
  is_exact INTEGER,
  measured_at_ms INTEGER,
  told_by TEXT,
  rtt_s REAL,
  rtt_at_ms INTEGER,
  used_at_ms INTEGER,
  PRIMARY KEY (from_site, to_site)
) STRICT, WITHOUT ROWID;
CREATE TABLE relays (
  url TEXT NOT NULL PRIMARY KEY,
  public_key TEXT,
  seen_at_ms INTEGER,
  error TEXT,
  error_at_ms INTEGER
) STRICT, WITHOUT ROWID;";
const EDGE: &str = "from_site, to_site, rate_bytes_per_s, is_exact, measured_at_ms, told_by, \
                    rtt_s, rtt_at_ms, used_at_ms";
const RELAY: &str = "url, public_key, seen_at_ms, error, error_at_ms";
/// "swth", so that nobody's database is taken for ours; `file` shows it.
const APPLICATION: i64 = 0x7377_7468;
/// Others hold the file for a moment to write; who holds it longer is waited for in turns.
const BUSY_WAIT: Duration = Duration::from_millis(300);
/// The log is merged into the file after so many pages of 4 KiB, and cut to so many bytes.
const LOG_PAGES: i64 = 100;
const LOG_BYTES: i64 = 1 << 20;
