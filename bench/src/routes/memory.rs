//! The state database that a client finds: none, one that an earlier transfer has filled, or one
//! in which every rate is wrong.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::client::Memory;

/// Where the database of a client lies, in a folder of its own.
pub fn database(folder: &Path) -> PathBuf {
    folder.join("state.db")
}

/// Prepares the folder of the next client: empty, or with what `filled` has.
pub fn prepare(folder: &Path, memory: Memory, filled: &Path) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    if memory == Memory::None {
        return Ok(());
    }
    // Beside the database lie its log and its index, as long as nobody has merged them.
    for entry in fs::read_dir(filled)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
    }
    if memory == Memory::Wrong {
        spoil(&database(folder)).map_err(io::Error::other)?;
    }
    Ok(())
}

/// How many edges have a rate; zero where there is no database.
pub fn known_rates(folder: &Path) -> u32 {
    let path = database(folder);
    if !path.is_file() {
        return 0;
    }
    let count = Connection::open(path).and_then(|database| {
        database.query_row("SELECT count(rate_bytes_per_s) FROM edges", [], |row| row.get(0))
    });
    count.unwrap_or(0)
}

/// Gives the widest edge the least rate that is known, the second widest the second least, and
/// so on: what is remembered is plausible, and says the contrary of the truth.
fn spoil(path: &Path) -> rusqlite::Result<()> {
    let mut database = Connection::open(path)?;
    let changes = database.transaction()?;
    let mut edges: Vec<(String, String, f64)> = {
        let mut read = changes.prepare(
            "SELECT from_site, to_site, rate_bytes_per_s FROM edges
             WHERE rate_bytes_per_s IS NOT NULL",
        )?;
        let rows = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    edges.sort_by(|one, other| one.2.total_cmp(&other.2));
    let rates: Vec<f64> = edges.iter().rev().map(|edge| edge.2).collect();
    for ((from, to, _), rate) in edges.iter().zip(rates) {
        changes.execute(
            "UPDATE edges SET rate_bytes_per_s = ?3 WHERE from_site = ?1 AND to_site = ?2",
            (from, to, rate),
        )?;
    }
    changes.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(folder: &Path) -> Vec<f64> {
        let database = Connection::open(database(folder)).unwrap();
        let mut read =
            database.prepare("SELECT rate_bytes_per_s FROM edges ORDER BY from_site").unwrap();
        let rows = read.query_map([], |row| row.get::<_, Option<f64>>(0)).unwrap();
        rows.map(|rate| rate.unwrap().unwrap_or(-1.0)).collect()
    }

    #[test]
    fn a_client_finds_what_it_is_to_find() {
        let folder = tempfile::tempdir().unwrap();
        let (filled, own) = (folder.path().join("filled"), folder.path().join("own"));
        fs::create_dir(&filled).unwrap();
        let state = Connection::open(database(&filled)).unwrap();
        state
            .execute_batch(
                "CREATE TABLE edges (from_site TEXT, to_site TEXT, rate_bytes_per_s REAL);
                 INSERT INTO edges VALUES ('a', 'x', 30), ('b', 'x', 10), ('c', 'x', NULL),
                     ('d', 'x', 20), ('e', 'x', 40);",
            )
            .unwrap();
        drop(state);
        assert_eq!(known_rates(&filled), 4);
        prepare(&own, Memory::Right, &filled).unwrap();
        assert_eq!(rates(&own), [30.0, 10.0, -1.0, 20.0, 40.0]);
        prepare(&own, Memory::Wrong, &filled).unwrap();
        assert_eq!(rates(&own), [20.0, 40.0, -1.0, 30.0, 10.0]);
        prepare(&own, Memory::None, &filled).unwrap();
        assert!(!database(&own).exists());
        assert_eq!(known_rates(&own), 0);
    }
}
