//! Digests of files, computed on request and remembered while the file stays the same.
//!
//! The digest of a long file waits for its turn: turns are few, because they share disk and
//! processor with sending. Waiting takes no thread, each client has a few turns at most, and the
//! work stops when its client leaves.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swath_model::digest::{Algorithm, Digest, Hasher};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client::Client;
use crate::file_version::FileVersion;

/// Digests that are known.
#[derive(Debug)]
pub(super) struct Digests {
    known: Mutex<HashMap<(u64, u64), Known>>,
    turns: Arc<Semaphore>,
    /// How many turns each client has, or waits for.
    clients: Mutex<HashMap<Client, usize>>,
}

impl Default for Digests {
    fn default() -> Self {
        let turns = Arc::new(Semaphore::new(TURNS));
        Self { known: Mutex::default(), turns, clients: Mutex::default() }
    }
}

#[derive(Debug)]
struct Known {
    version: FileVersion,
    digests: Vec<Digest>,
}

/// How much work a digest may be.
#[derive(Debug)]
pub(super) enum Effort {
    /// The file is read if need be, for as long as somebody waits.
    Any(Turn),
    /// Only a short file is read.
    Little,
    /// None is read.
    None,
}

/// What came of looking for a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Digest(Digest),
    /// None is wanted, or the file changes, or nobody waits any more.
    Nothing,
    /// It takes more effort than was allowed.
    TakesMore,
}

impl Digests {
    /// Finds the first of `wanted` that is known, else computes the first of them, if that is
    /// allowed. Blocks on the disk.
    pub fn find(
        &self,
        file: &File,
        meta: &Metadata,
        wanted: &[Algorithm],
        effort: &Effort,
    ) -> io::Result<Found> {
        let Some(&first) = wanted.first() else { return Ok(Found::Nothing) };
        if let Some(known) = self.known(meta, wanted) {
            return Ok(Found::Digest(known));
        }
        let is_waited_for = || match effort {
            Effort::Any(turn) => !turn.is_left.load(Ordering::Relaxed),
            Effort::Little | Effort::None => true,
        };
        match effort {
            Effort::Little if meta.len() > LITTLE_BYTES => return Ok(Found::TakesMore),
            Effort::None => return Ok(Found::Nothing),
            Effort::Any(_) | Effort::Little => {}
        }
        let mut hasher = Hasher::new(first);
        let mut buffer = vec![0; READ_BYTES.min(meta.len().max(1) as usize)];
        let mut at = 0;
        while at < meta.len() {
            if !is_waited_for() {
                return Ok(Found::Nothing);
            }
            let most = buffer.len().min(usize::try_from(meta.len() - at).unwrap_or(usize::MAX));
            match file.read_at(&mut buffer[..most], at)? {
                0 => return Ok(Found::Nothing),
                bytes => {
                    hasher.update(&buffer[..bytes]);
                    at += bytes as u64;
                }
            }
        }
        if FileVersion::from(&file.metadata()?) != FileVersion::from(meta) {
            return Ok(Found::Nothing);
        }
        let digest = hasher.finish();
        self.remember(meta, digest);
        Ok(Found::Digest(digest))
    }

    /// Whether [`Digests::find`] tells any at little effort.
    pub fn tells(&self, meta: &Metadata) -> bool {
        meta.len() <= LITTLE_BYTES || self.known(meta, &Algorithm::ALL).is_some()
    }

    fn known(&self, meta: &Metadata, wanted: &[Algorithm]) -> Option<Digest> {
        let known = lock(&self.known);
        let version = FileVersion::from(meta);
        let of_file = known.get(&version.id).filter(|known| known.version == version)?;
        let mut found = wanted.iter().filter_map(|&algorithm| {
            of_file.digests.iter().find(|digest| digest.algorithm() == algorithm)
        });
        found.next().copied()
    }

    fn remember(&self, meta: &Metadata, digest: Digest) {
        let mut known = lock(&self.known);
        let version = FileVersion::from(meta);
        if known.len() >= KNOWN_MAX
            && !known.contains_key(&version.id)
            && let Some(&other) = known.keys().next()
        {
            // Any will do: whoever needs it again has it computed again.
            known.remove(&other);
        }
        let of_file =
            known.entry(version.id).or_insert_with(|| Known { version, digests: Vec::new() });
        if of_file.version != version {
            *of_file = Known { version, digests: Vec::new() };
        }
        of_file.digests.push(digest);
    }

    /// Waits until few others compute; `None` where this client, or all of them, wait for many
    /// already. What is computed is given up when the [`Waits`] is dropped.
    pub async fn turn(self: &Arc<Self>, client: Client) -> Option<(Turn, Waits)> {
        let counted = {
            let mut clients = lock(&self.clients);
            let all: usize = clients.values().sum();
            let own = clients.entry(client).or_default();
            if *own >= OF_CLIENT_MAX || all >= WAITING_MAX {
                return None;
            }
            *own += 1;
            Counted { digests: Arc::clone(self), client }
        };
        let permit = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        let is_left = Arc::new(AtomicBool::new(false));
        let waits = Waits { is_left: Arc::clone(&is_left) };
        Some((Turn { is_left, _counted: counted, _permit: permit }, waits))
    }
}

/// One of the few that may compute.
#[derive(Debug)]
pub(super) struct Turn {
    is_left: Arc<AtomicBool>,
    _counted: Counted,
    _permit: OwnedSemaphorePermit,
}

/// Somebody waits for what is computed.
#[derive(Debug)]
pub(super) struct Waits {
    is_left: Arc<AtomicBool>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

/// A client is counted as long as this is there.
#[derive(Debug)]
struct Counted {
    digests: Arc<Digests>,
    client: Client,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut clients = lock(&self.digests.clients);
        if let Some(own) = clients.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many files are remembered, about 100 bytes each.
const KNOWN_MAX: usize = 100_000;
/// So many are computed at once; they share the disk and the processor with the sending.
const TURNS: usize = 2;
/// A client computes or waits for so many: enough for a site that fetches several files at once.
const OF_CLIENT_MAX: usize = 16;
/// All clients together; whoever comes then gets an answer without a digest.
const WAITING_MAX: usize = 256;
/// Read at a time.
const READ_BYTES: usize = 1 << 20;
/// Hashed within some hundredths of a second.
const LITTLE_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CLIENT: Client = Client::HERE;

    #[tokio::test]
    async fn what_is_known_is_known_until_the_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"hello").unwrap();
        let digests = Arc::new(Digests::default());
        let ask = |wanted: &[Algorithm], effort| {
            let file = File::open(&path).unwrap();
            digests.find(&file, &file.metadata().unwrap(), wanted, &effort).unwrap()
        };
        let of = |algorithm, bytes: &[u8]| Found::Digest(Hasher::digest(algorithm, bytes));
        assert_eq!(ask(&[], Effort::Little), Found::Nothing);
        assert_eq!(ask(&[Algorithm::Md5], Effort::Little), of(Algorithm::Md5, b"hello"));
        // What is there already is better than what is wanted more and costs something.
        let wanted = [Algorithm::Sha256, Algorithm::Md5];
        assert_eq!(ask(&wanted, Effort::Little), of(Algorithm::Md5, b"hello"));
        std::fs::write(&path, b"other").unwrap();
        assert_eq!(ask(&wanted, Effort::Little), of(Algorithm::Sha256, b"other"));
        // A long file is only read for those who wait for it.
        let long = vec![7; LITTLE_BYTES as usize + 1];
        std::fs::write(&path, &long).unwrap();
        assert_eq!(ask(&wanted, Effort::Little), Found::TakesMore);
        let (turn, _waits) = digests.turn(CLIENT).await.unwrap();
        assert_eq!(ask(&wanted, Effort::Any(turn)), of(Algorithm::Sha256, &long));
        assert_eq!(ask(&wanted, Effort::Little), of(Algorithm::Sha256, &long));
    }

    /// Each of two clients that left had a long file read to its end, and all others wait for it,
    /// each on a thread of its own.
    #[tokio::test]
    async fn nothing_is_read_for_a_client_that_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; LITTLE_BYTES as usize + 1]).unwrap();
        let file = File::open(&path).unwrap();
        let digests = Arc::new(Digests::default());
        let (turn, waits) = digests.turn(CLIENT).await.unwrap();
        drop(waits);
        let found = digests.find(
            &file,
            &file.metadata().unwrap(),
            &[Algorithm::Sha256],
            &Effort::Any(turn),
        );
        assert_eq!(found.unwrap(), Found::Nothing);
    }

    #[tokio::test]
    async fn a_client_has_few_turns_and_gives_up_those_it_does_not_wait_for() {
        let digests = Arc::new(Digests::default());
        let held = [digests.turn(CLIENT).await.unwrap(), digests.turn(CLIENT).await.unwrap()];
        let wait = || {
            let digests = Arc::clone(&digests);
            tokio::spawn(async move { digests.turn(CLIENT).await.is_some() })
        };
        let waiting: Vec<_> = (2..OF_CLIENT_MAX).map(|_| wait()).collect();
        while lock(&digests.clients).get(&CLIENT) != Some(&OF_CLIENT_MAX) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(digests.turn(CLIENT).await.is_none(), "one more than it may have");
        for task in &waiting {
            task.abort();
        }
        for task in waiting {
            assert!(task.await.is_err());
        }
        drop(held);
        assert!(digests.turn(CLIENT).await.is_some());
        assert!(lock(&digests.clients).is_empty());
    }
}
