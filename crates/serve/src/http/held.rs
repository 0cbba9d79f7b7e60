//! Memory for what clients have not taken yet, where one connection may have many answers under way.
//!
//! A part of a body is made when there is leave to hold it, and the leave comes back when its last byte
//! has been written to the connection. All connections of a server share so many leaves; each has one
//! of its own besides, so that those who take nothing keep nobody else waiting.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The leaves of all connections.
#[derive(Clone)]
pub struct Held(Arc<Semaphore>);

/// Those of one connection.
#[derive(Clone)]
pub struct HeldHere {
    all: Held,
    own: Arc<Semaphore>,
}

/// Leave to hold one part.
pub struct Leave {
    _permit: OwnedSemaphorePermit,
}

/// A part, with leave to be held.
struct Part {
    bytes: Vec<u8>,
    _leave: Leave,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Held {
    fn default() -> Self {
        Held(Arc::new(Semaphore::new(PARTS_HELD)))
    }
}

impl Held {
    /// For one more connection.
    pub fn here(&self) -> HeldHere {
        HeldHere { all: self.clone(), own: Arc::new(Semaphore::new(1)) }
    }
}

impl HeldHere {
    /// Leave for one part, as soon as there is.
    pub async fn leave(&self) -> Leave {
        let (own, all) = (Arc::clone(&self.own), Arc::clone(&self.all.0));
        tokio::select! {
            biased;
            Ok(permit) = own.acquire_owned() => Leave { _permit: permit },
            Ok(permit) = all.acquire_owned() => Leave { _permit: permit },
            // Neither is ever closed.
            else => std::future::pending().await,
        }
    }
}

impl Leave {
    /// These bytes, which give it back when nobody has any of them any more.
    pub fn hold(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Part { bytes, _leave: self })
    }
}

/// Parts that all connections together may hold besides their own: 64 MiB where each has 256 KiB.
const PARTS_HELD: usize = 256;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn soon(here: &HeldHere) -> Option<Leave> {
        tokio::time::timeout(Duration::from_millis(1), here.leave()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_keeps_nobody_else_waiting() {
        let held = Held::default();
        let greedy = held.here();
        let mut parts = Vec::new();
        while let Some(leave) = soon(&greedy).await {
            parts.push(leave.hold(vec![0; 1]));
        }
        assert_eq!(parts.len(), PARTS_HELD + 1);
        let honest = held.here();
        for _ in 0..3 {
            let part = soon(&honest).await.unwrap().hold(vec![1, 2]);
            let mut rest = part;
            drop(rest.split_to(1));
            assert!(soon(&honest).await.is_none(), "a byte of it is still held");
            drop(rest);
        }
        parts.pop();
        assert!(soon(&greedy).await.is_some());
    }
}
