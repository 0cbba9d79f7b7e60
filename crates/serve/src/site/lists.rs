//! Memory for the lists of folders that are being sent.
//!
//! A list lies in memory until it has been sent, and a client may take it slowly, or not at all. So all
//! lists together have a limit, and so have those of one client; few folders are read at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client::Client;
use crate::http::Response;

/// The memory of all lists.
#[derive(Clone)]
pub(super) struct Lists {
    reading: Arc<Semaphore>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    bytes: u64,
    by_client: HashMap<Client, u64>,
}

/// Leave to read a folder.
pub(super) struct Turn {
    lists: Lists,
    client: Client,
    _permit: OwnedSemaphorePermit,
}

/// The memory of one list, which others may have when this is dropped.
pub(super) struct Taking {
    taken: Arc<Mutex<Taken>>,
    client: Client,
    bytes: u64,
}

/// There is no memory for a list just now.
pub(super) struct Crowded;

impl Crowded {
    pub fn response(&self) -> Response {
        let text = "too many lists of folders are being sent just now, and not taken";
        Response::text(503, text).with("retry-after", "5")
    }
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { reading: Arc::new(Semaphore::new(READ_AT_ONCE)), taken: Arc::default() }
    }
}

impl Lists {
    /// Waits for leave to read a folder.
    pub async fn turn(&self, client: Client) -> Result<Turn, Crowded> {
        if !lock(&self.taken).has_room(client, 1) {
            return Err(Crowded);
        }
        let permit = Arc::clone(&self.reading).acquire_owned().await.map_err(|_| Crowded)?;
        Ok(Turn { lists: self.clone(), client, _permit: permit })
    }
}

impl Turn {
    /// Takes memory for the list that was read.
    pub fn take(&self, bytes: usize) -> Result<Taking, Crowded> {
        let bytes = bytes as u64;
        let taken = Arc::clone(&self.lists.taken);
        {
            let mut taken = lock(&taken);
            if !taken.has_room(self.client, bytes) {
                return Err(Crowded);
            }
            taken.bytes += bytes;
            *taken.by_client.entry(self.client).or_default() += bytes;
        }
        Ok(Taking { taken, client: self.client, bytes })
    }
}

impl Taken {
    /// A list that alone is longer than the limit has room where there is no other.
    fn has_room(&self, client: Client, bytes: u64) -> bool {
        let of_client = self.by_client.get(&client).copied().unwrap_or(0);
        (self.bytes == 0 || self.bytes + bytes <= ALL_BYTES)
            && (of_client == 0 || of_client + bytes <= CLIENT_BYTES)
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.bytes -= self.bytes;
        if let Some(bytes) = taken.by_client.get_mut(&self.client) {
            *bytes -= self.bytes;
            if *bytes == 0 {
                taken.by_client.remove(&self.client);
            }
        }
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Folders read at a time.
const READ_AT_ONCE: usize = 8;
/// What all lists together may take: those of some million files.
const ALL_BYTES: u64 = 256 << 20;
/// What those of one client may take.
const CLIENT_BYTES: u64 = ALL_BYTES / 4;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[tokio::test]
    async fn who_takes_no_list_keeps_nobody_else_from_one() {
        let lists = Lists::default();
        let client = |last: u8| Client::from(IpAddr::from([192, 0, 2, last]));
        let mib = 1 << 20;
        // One client has a quarter, as small ones.
        let turn = lists.turn(client(1)).await.ok().unwrap();
        let mut all: Vec<Taking> = std::iter::from_fn(|| turn.take(mib).ok()).collect();
        assert_eq!(all.len(), 64);
        assert!(lists.turn(client(1)).await.is_err());
        // Everybody may have one, as long as there is room for it.
        for last in 2..5 {
            let turn = lists.turn(client(last)).await.ok().unwrap();
            all.push(turn.take(63 * mib).ok().unwrap());
            assert!(turn.take(2 * mib).is_err());
        }
        let turn = lists.turn(client(5)).await.ok().unwrap();
        assert!(turn.take(4 * mib).is_err());
        let small = turn.take(mib).ok().unwrap();
        // What has been sent makes room again, and one that is longer than all is sent alone.
        drop((all, small));
        let huge = turn.take(1000 * mib).ok().unwrap();
        assert!(lists.turn(client(6)).await.is_err());
        drop(huge);
        assert!(lists.turn(client(6)).await.is_ok());
        assert!(lock(&lists.taken).by_client.is_empty());
    }
}
