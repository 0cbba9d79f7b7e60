//! Transfers that have ended, and those that run: what forecasts are made from.
//!
//! Their own SQLite file, of which nobody else may know: it tells whom one talks to. A transfer is
//! noted when it begins, so others know that it runs, and once more when it ends. The last
//! [`TRANSFERS_MAX`] are kept.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, Params, Row, TransactionBehavior, params};

use crate::clock::Wall;
use crate::edge::is_site;
use crate::location::Journal;
use crate::own_file::{KeepError, Schema};

/// The history of a user's transfers.
#[derive(Debug)]
pub struct History {
    connection: Mutex<Connection>,
}

/// What is known of a transfer before it begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// When it began, in seconds since 1970.
    pub begun_s: f64,
    /// Which kind: `get`, `cp`, `tune`, or a word of whoever kept an imported log.
    pub kind: String,
    /// The sites that send, `host:port`, in order, with blanks between them.
    pub from: String,
    /// The site that receives.
    pub to: String,
    /// Bytes to transfer.
    pub bytes: u64,
    /// Files to transfer.
    pub files: u64,
    /// The rate that the user allowed.
    pub limit_bytes_per_s: Option<u64>,
    /// What was forecast.
    pub forecast: Option<Range>,
}

/// A forecast, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// It takes less in one of ten cases.
    pub low_s: f64,
    /// As often more as less.
    pub likely_s: f64,
    /// It takes more in one of ten cases.
    pub high_s: f64,
}

/// What became of a transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Whether all was transferred.
    pub is_complete: bool,
    /// Bytes that were transferred.
    pub bytes: u64,
    /// What was measured.
    pub figures: Figures,
}

/// What was measured of a transfer, as far as it could be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Seconds until the first byte came.
    pub start_up_s: Option<f64>,
    /// Seconds after the last byte.
    pub tail_s: Option<f64>,
    /// The round trip to the source that delivered most, in seconds.
    pub rtt_s: Option<f64>,
    /// Lanes, of all sources together.
    pub lanes: Option<u32>,
    /// Sources that delivered.
    pub sources: Option<u32>,
    /// Sources among them that were reached by relays.
    pub routed: Option<u32>,
    /// What limited it, as JSON.
    pub limited_by: Option<String>,
}

/// A transfer of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct PastTransfer {
    /// Its number.
    pub id: i64,
    /// What was known before.
    pub transfer: Transfer,
    /// What became of it; `None` if it runs.
    pub ended: Option<Ended>,
    /// Transfers that ran when it began …
    pub beside: u32,
    /// … and their bytes.
    pub beside_bytes: u64,
    /// Whether it was imported.
    pub is_imported: bool,
}

/// What became of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Transfers that are new.
    pub added: u64,
    /// Those that were known already.
    pub known: u64,
    /// Those that are older than all that are kept.
    pub older: u64,
}

impl History {
    /// Opens the file, or makes it and its folder.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn open(path: &Path) -> Result<History, KeepError> {
        Schema::make(path)?;
        let journal = match Journal::suits(path) {
            Journal::Ahead => "wal",
            Journal::Rollback => "delete",
        };
        let schema = Schema { journal, ..SCHEMA };
        Ok(History { connection: Mutex::new(schema.open(path)?) })
    }

    /// Notes that a transfer begins; returns its number.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn begin(&self, transfer: &Transfer) -> Result<i64, KeepError> {
        let mut connection = self.connection();
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        give_up_lost(&change)?;
        let (beside, beside_bytes): (i64, i64) = change.query_row(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM transfers WHERE took_s IS NULL",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        insert(&change, transfer, (beside, beside_bytes), Some(&own_process()))?;
        let id = change.last_insert_rowid();
        prune(&change)?;
        change.commit()?;
        Ok(id)
    }

    /// Notes that a transfer has ended.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn end(&self, id: i64, ended: &Ended) -> Result<(), KeepError> {
        end(&self.connection(), id, ended)?;
        Ok(())
    }

    /// Returns all transfers, in the order of their starts.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn all(&self) -> Result<Vec<PastTransfer>, KeepError> {
        self.select("true ORDER BY begun_s, id", [])
    }

    /// Returns the transfers that run, in the order of their starts.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn running(&self) -> Result<Vec<PastTransfer>, KeepError> {
        self.select("took_s IS NULL ORDER BY begun_s, id", [])
    }

    /// Returns the newest transfers between two places, at most `most` of them, the newest first.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn last_between(
        &self,
        from: &str,
        to: &str,
        most: usize,
    ) -> Result<Vec<PastTransfer>, KeepError> {
        self.select(
            "source = ?1 AND destination = ?2 ORDER BY begun_s DESC, id DESC LIMIT ?3",
            params![from, to, most as i64],
        )
    }

    /// Returns the transfers of a condition, without those that were killed.
    fn select(&self, which: &str, params: impl Params) -> Result<Vec<PastTransfer>, KeepError> {
        let connection = self.connection();
        let query = format!("SELECT {TRANSFER} FROM transfers WHERE {which}");
        let mut query = connection.prepare(&query)?;
        let mut found = Vec::new();
        for row in query.query_map(params, |row| Ok((transfer_of(row)?, row.get(21)?)))? {
            let (past, process): (PastTransfer, Option<String>) = row?;
            if past.ended.is_some() || may_run(process.as_deref(), past.transfer.begun_s) {
                found.push(past);
            }
        }
        Ok(found)
    }

    /// Adds transfers of a log; those that are known already are left as they are. Of all, the newest
    /// [`TRANSFERS_MAX`] are kept.
    ///
    /// # Errors
    /// [`KeepError::Database`]; nothing is added then.
    pub fn import(&self, log: &[(Transfer, Ended)]) -> Result<Imported, KeepError> {
        let mut connection = self.connection();
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let last: i64 =
            change.query_row("SELECT coalesce(max(id), 0) FROM transfers", [], |row| row.get(0))?;
        let mut imported = Imported::default();
        for (transfer, ended) in log {
            match add(&change, transfer, ended)? {
                true => imported.older += 1,
                false => imported.known += 1,
            }
        }
        prune(&change)?;
        let kept = "SELECT count(*) FROM transfers WHERE id > ?1";
        let added: i64 = change.query_row(kept, [last], |row| row.get(0))?;
        imported.added = added.unsigned_abs();
        imported.older -= imported.added;
        change.commit()?;
        Ok(imported)
    }

    /// Forgets the transfers from and to these sites, named with their port or without, or all; returns
    /// how many that were.
    ///
    /// # Errors
    /// [`KeepError::Database`].
    pub fn forget(&self, sites: Option<&[String]>) -> Result<u64, KeepError> {
        let mut connection = self.connection();
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut gone = 0;
        match sites {
            None => gone = change.execute("DELETE FROM transfers", [])?,
            Some(sites) => {
                for (from, to) in places(&change)? {
                    let is_meant = |place: &str| {
                        place.split(' ').any(|name| sites.iter().any(|site| is_site(name, site)))
                    };
                    if is_meant(&from) || is_meant(&to) {
                        gone += change.execute(
                            "DELETE FROM transfers WHERE source = ?1 AND destination = ?2",
                            params![from, to],
                        )?;
                    }
                }
            }
        }
        change.commit()?;
        Ok(gone as u64)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a transfer that has ended; whether it was not known.
fn add(change: &Connection, transfer: &Transfer, ended: &Ended) -> rusqlite::Result<bool> {
    let Transfer { begun_s, from, to, .. } = transfer;
    let is_known: bool = change.query_row(
        "SELECT EXISTS (SELECT 1 FROM transfers WHERE begun_s = ?1 AND bytes = ?2
           AND took_s = ?3 AND source = ?4 AND destination = ?5)",
        params![begun_s, signed(transfer.bytes), ended.took_s, from, to],
        |row| row.get(0),
    )?;
    if !is_known {
        insert(change, transfer, (0, 0), None)?;
        end(change, change.last_insert_rowid(), ended)?;
    }
    Ok(!is_known)
}

fn insert(
    change: &Connection,
    transfer: &Transfer,
    (beside, beside_bytes): (i64, i64),
    process: Option<&str>,
) -> rusqlite::Result<()> {
    let forecast = transfer.forecast;
    change.execute(
        "INSERT INTO transfers (begun_s, kind, source, destination, bytes, files, low_s, likely_s,
           high_s, beside, beside_bytes, process, limit_bytes_per_s)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        params![
            transfer.begun_s,
            transfer.kind,
            transfer.from,
            transfer.to,
            signed(transfer.bytes),
            signed(transfer.files),
            forecast.map(|range| range.low_s),
            forecast.map(|range| range.likely_s),
            forecast.map(|range| range.high_s),
            beside,
            beside_bytes,
            process,
            transfer.limit_bytes_per_s.map(signed),
        ],
    )?;
    Ok(())
}

fn end(change: &Connection, id: i64, ended: &Ended) -> rusqlite::Result<()> {
    let figures = &ended.figures;
    change.execute(
        "UPDATE transfers SET took_s = ?2, is_complete = ?3, moved_bytes = ?4, start_up_s = ?5,
           tail_s = ?6, rtt_s = ?7, lanes = ?8, sources = ?9, routed = ?10, limited_by = ?11
         WHERE id = ?1",
        params![
            id,
            ended.took_s,
            ended.is_complete,
            signed(ended.bytes),
            figures.start_up_s,
            figures.tail_s,
            figures.rtt_s,
            figures.lanes,
            figures.sources,
            figures.routed,
            figures.limited_by,
        ],
    )?;
    Ok(())
}

/// Ends those whose process has ended without saying so: it was killed.
fn give_up_lost(change: &Connection) -> rusqlite::Result<()> {
    let mut open =
        change.prepare("SELECT id, process, begun_s FROM transfers WHERE took_s IS NULL")?;
    let open = open.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let open: Vec<(i64, Option<String>, f64)> = open.collect::<Result<_, _>>()?;
    for (id, process, begun_s) in open {
        if !may_run(process.as_deref(), begun_s) {
            change.execute("DELETE FROM transfers WHERE id = ?1", [id])?;
        }
    }
    Ok(())
}

/// Whether a transfer without end may still run.
fn may_run(process: Option<&str>, begun_s: f64) -> bool {
    let now_s = Wall::now().0 as f64 / 1e3;
    process.is_some_and(may_live) && now_s - begun_s <= RUNNING_S_MAX
}

/// The number of this process, when it started, and the machine that it runs on: numbers are used again,
/// and machines may share a home.
fn own_process() -> String {
    let (name, id) = (rustix::system::uname(), std::process::id().to_string());
    let start = start_of(&id).map_or(String::new(), |start| format!(".{start}"));
    format!("{id}{start}@{}", name.nodename().to_string_lossy())
}

/// Whether this process may still run: only this machine's are known.
fn may_live(process: &str) -> bool {
    let own = own_process();
    let [(process, on), (_, here)] =
        [process, &own].map(|it| it.split_once('@').unwrap_or((it, "")));
    let (id, start) = process.split_once('.').unwrap_or((process, ""));
    on != here || start_of(id).is_some_and(|now| start.is_empty() || now == start)
}

/// When the process of this number started, in ticks of the kernel; `None` if it has ended, even if its
/// parent has not noticed that.
fn start_of(id: &str) -> Option<String> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(id).join("stat")).ok()?;
    // Behind the name of the program, which may have blanks and brackets: the state first.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X");
    fields.nth(18).filter(|_| !is_over).map(str::to_owned)
}

fn prune(change: &Connection) -> rusqlite::Result<()> {
    change.execute(
        "DELETE FROM transfers WHERE id IN (
           SELECT id FROM transfers ORDER BY begun_s DESC, id DESC LIMIT -1 OFFSET ?1)",
        [TRANSFERS_MAX as i64],
    )?;
    Ok(())
}

fn places(change: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut all = change.prepare("SELECT DISTINCT source, destination FROM transfers")?;
    all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn transfer_of(row: &Row<'_>) -> rusqlite::Result<PastTransfer> {
    let count = |at: usize| row.get(at).map(|count: i64| u64::try_from(count).unwrap_or(0));
    let range: [Option<f64>; 3] = [row.get(6)?, row.get(7)?, row.get(8)?];
    let forecast = match range {
        [Some(low_s), Some(likely_s), Some(high_s)] => Some(Range { low_s, likely_s, high_s }),
        _ => None,
    };
    let ended = match row.get::<_, Option<f64>>(9)? {
        Some(took_s) => Some(Ended {
            took_s,
            is_complete: row.get::<_, Option<bool>>(10)?.unwrap_or(false),
            bytes: row.get::<_, Option<i64>>(11)?.and_then(|it| it.try_into().ok()).unwrap_or(0),
            figures: Figures {
                start_up_s: row.get(12)?,
                tail_s: row.get(13)?,
                rtt_s: row.get(14)?,
                lanes: row.get(15)?,
                sources: row.get(16)?,
                routed: row.get(17)?,
                limited_by: row.get(18)?,
            },
        }),
        None => None,
    };
    Ok(PastTransfer {
        id: row.get(23)?,
        transfer: Transfer {
            begun_s: row.get(0)?,
            kind: row.get(1)?,
            from: row.get(2)?,
            to: row.get(3)?,
            bytes: count(4)?,
            files: count(5)?,
            limit_bytes_per_s: row.get::<_, Option<i64>>(22)?.and_then(|it| it.try_into().ok()),
            forecast,
        },
        ended,
        beside: u32::try_from(count(19)?).unwrap_or(u32::MAX),
        beside_bytes: count(20)?,
        is_imported: row.get::<_, Option<String>>(21)?.is_none(),
    })
}

/// SQLite has no larger numbers.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Most transfers that are kept: about 10 MB.
pub const TRANSFERS_MAX: usize = 50_000;

/// A transfer that has run for a week is not looked upon as running.
const RUNNING_S_MAX: f64 = 7.0 * 86_400.0;

/// Seconds are real numbers; `process` is that which transfers, and none for imported ones.
const SCHEMA: Schema = Schema {
    // "swhi"
    application: 0x7377_6869,
    versions: &[
        "
CREATE TABLE transfers (
  id INTEGER PRIMARY KEY,
  begun_s REAL NOT NULL,
  kind TEXT NOT NULL,
  source TEXT NOT NULL,
  destination TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  files INTEGER NOT NULL,
  low_s REAL,
  likely_s REAL,
  high_s REAL,
  took_s REAL,
  is_complete INTEGER,
  moved_bytes INTEGER,
  start_up_s REAL,
  tail_s REAL,
  rtt_s REAL,
  lanes INTEGER,
  sources INTEGER,
  routed INTEGER,
  limited_by TEXT,
  beside INTEGER NOT NULL,
  beside_bytes INTEGER NOT NULL,
  process TEXT
) STRICT;
CREATE INDEX transfers_by_begin ON transfers (begun_s);",
        "ALTER TABLE transfers ADD COLUMN limit_bytes_per_s INTEGER;",
    ],
    // The end of a machine may cost the last transfer.
    sync: "normal",
    journal: "wal",
};
const TRANSFER: &str = "begun_s, kind, source, destination, bytes, files, low_s, likely_s, high_s, \
                        took_s, is_complete, moved_bytes, start_up_s, tail_s, rtt_s, lanes, sources, \
                        routed, limited_by, beside, beside_bytes, process, limit_bytes_per_s, id";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn transfer(begun_s: f64, from: &str) -> Transfer {
        Transfer {
            begun_s,
            kind: "get".to_owned(),
            from: from.to_owned(),
            to: "here".to_owned(),
            bytes: 1000,
            files: 1,
            limit_bytes_per_s: Some(5),
            forecast: Some(Range { low_s: 1.0, likely_s: 2.0, high_s: 3.0 }),
        }
    }

    fn ended(took_s: f64) -> Ended {
        let figures = Figures { rtt_s: Some(0.1), lanes: Some(4), ..Figures::default() };
        Ended { took_s, is_complete: true, bytes: 1000, figures }
    }

    fn told(begun_s: f64, from: &str) -> (Transfer, Ended) {
        (transfer(begun_s, from), ended(1.0))
    }

    #[test]
    fn a_transfer_is_kept_with_what_was_thought_and_what_came() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/history.db");
        let history = History::open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let now_s = Wall::now().0 as f64 / 1e3;
        let first = history.begin(&transfer(now_s, "a:80")).unwrap();
        let second = History::open(&path).unwrap();
        second.begin(&transfer(now_s + 1.0, "b:80")).unwrap();
        history.end(first, &ended(2.5)).unwrap();
        let all = second.all().unwrap();
        assert_eq!(all[0].transfer, transfer(now_s, "a:80"));
        assert_eq!(all[0].ended, Some(ended(2.5)));
        assert_eq!((all[0].beside, all[1].beside, all[1].beside_bytes), (0, 1, 1000));
        assert_eq!((all[1].ended.as_ref(), all[1].is_imported), (None, false));
    }

    #[test]
    fn a_file_of_the_first_version_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.db");
        Schema::make(&path).unwrap();
        let first = Schema { versions: &SCHEMA.versions[..1], ..SCHEMA };
        drop(first.open(&path).unwrap());
        let history = History::open(&path).unwrap();
        let begun = transfer(Wall::now().0 as f64 / 1e3, "a");
        history.begin(&begun).unwrap();
        drop(history);
        assert_eq!(History::open(&path).unwrap().all().unwrap()[0].transfer, begun);
        assert!(matches!(first.open(&path), Err(KeepError::Foreign(_))), "a newer swath's");
    }

    #[test]
    fn what_was_killed_does_not_run_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(&folder.path().join("history.db")).unwrap();
        let now_s = Wall::now().0 as f64 / 1e3;
        history.begin(&transfer(now_s, "a")).unwrap();
        // No process has this number: Linux has at most 2²² of them.
        history.connection().execute(
            "UPDATE transfers SET process = '1073741824' || substr(process, instr(process, '@'))",
            [],
        ).unwrap();
        assert_eq!(history.all().unwrap(), []);
        history.begin(&transfer(now_s + 1.0, "b")).unwrap();
        let all = history.all().unwrap();
        assert_eq!((all.len(), all[0].beside), (1, 0));
        assert_eq!(history.running().unwrap(), all);
    }

    #[test]
    fn a_process_is_known_by_its_start_and_one_that_has_ended_by_its_state() {
        let own = own_process();
        assert!(may_live(&own));
        let (number, on) = own.split_once('@').unwrap();
        let id = number.split('.').next().unwrap();
        assert!(may_live(&format!("{id}@{on}")), "as earlier versions noted it");
        assert!(!may_live(&format!("{id}.1@{on}")), "another one of this number");
        assert!(may_live("1073741824.1@elsewhere") || on == "elsewhere");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let is_over = |id: u32| {
            let ends = std::time::Instant::now() + std::time::Duration::from_secs(90);
            while may_live(&format!("{id}@{on}")) && std::time::Instant::now() < ends {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            !may_live(&format!("{id}@{on}"))
        };
        assert!(is_over(child.id()), "nobody has waited for it");
        child.wait().unwrap();
    }

    #[test]
    fn a_log_is_imported_once() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(&folder.path().join("history.db")).unwrap();
        let mut log: Vec<_> = (0..10).map(|i| told(1e9 + f64::from(i), "a")).collect();
        assert_eq!(history.import(&log).unwrap(), Imported { added: 10, known: 0, older: 0 });
        log.push(told(2e9, "a"));
        assert_eq!(history.import(&log).unwrap(), Imported { added: 1, known: 10, older: 0 });
        let all = history.all().unwrap();
        assert!(all.len() == 11 && all.iter().all(|transfer| transfer.is_imported));
    }

    #[test]
    fn the_newest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(&folder.path().join("history.db")).unwrap();
        let count = TRANSFERS_MAX + 10;
        let log: Vec<_> = (0..count).map(|i| told(1e9 + i as f64, "a")).collect();
        let kept = Imported { added: TRANSFERS_MAX as u64, known: 0, older: 10 };
        assert_eq!(history.import(&log).unwrap(), kept);
        let all = history.all().unwrap();
        assert_eq!((all.len(), all[0].transfer.begun_s), (TRANSFERS_MAX, 1e9 + 10.0));
    }

    #[test]
    fn sites_are_forgotten_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(&folder.path().join("history.db")).unwrap();
        let froms = ["a:80", "a:80 b:443", "c:80"];
        history.import(&froms.map(|from| told(1e9, from))).unwrap();
        let from_c = history.last_between("c:80", "here", 5).unwrap();
        assert_eq!((from_c.len(), from_c[0].transfer.from.as_str()), (1, "c:80"));
        assert_eq!(history.forget(Some(&["b".to_owned()])).unwrap(), 1);
        assert_eq!(history.forget(Some(&["a:81".to_owned()])).unwrap(), 0);
        assert_eq!(history.forget(Some(&["here".to_owned()])).unwrap(), 2);
        assert_eq!(history.forget(None).unwrap(), 0);
    }
}
