//! Limits the memory for bytes that clients have not taken yet, where one connection may have many
//! answers under way.
//!
//! A part of a body is made when there is a permit for it; the permit returns when the part's last
//! byte was written to the connection. All connections of a server share a number of permits, and
//! each has one of its own, so that clients that take nothing block nobody else.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of all connections.
#[derive(Clone)]
pub struct SendMemory(Arc<Semaphore>);

/// The permits of one connection.
#[derive(Clone)]
pub struct ConnectionMemory {
    all: SendMemory,
    own: Arc<Semaphore>,
}

/// A permit to hold one part.
pub struct Permit {
    _permit: OwnedSemaphorePermit,
}

/// A part with its permit.
struct Part {
    bytes: Vec<u8>,
    _permit: Permit,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for SendMemory {
    fn default() -> Self {
        SendMemory(Arc::new(Semaphore::new(PARTS_HELD)))
    }
}

impl SendMemory {
    /// Returns those of one more connection.
    pub fn here(&self) -> ConnectionMemory {
        ConnectionMemory { all: self.clone(), own: Arc::new(Semaphore::new(1)) }
    }
}

impl ConnectionMemory {
    /// Waits for a permit for one part.
    pub async fn permit(&self) -> Permit {
        let (own, all) = (Arc::clone(&self.own), Arc::clone(&self.all.0));
        tokio::select! {
            biased;
            Ok(permit) = own.acquire_owned() => Permit { _permit: permit },
            Ok(permit) = all.acquire_owned() => Permit { _permit: permit },
            // Neither is ever closed.
            else => std::future::pending().await,
        }
    }
}

impl Permit {
    /// Holds these bytes; the permit returns when nobody has any of them any more.
    pub fn hold(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Part { bytes, _permit: self })
    }
}

/// Parts that all connections together may hold besides their own: 64 MiB where each has 256 KiB.
const PARTS_HELD: usize = 256;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn soon(here: &ConnectionMemory) -> Option<Permit> {
        tokio::time::timeout(Duration::from_millis(1), here.permit()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_keeps_nobody_else_waiting() {
        let memory = SendMemory::default();
        let greedy = memory.here();
        let mut parts = Vec::new();
        while let Some(leave) = soon(&greedy).await {
            parts.push(leave.hold(vec![0; 1]));
        }
        assert_eq!(parts.len(), PARTS_HELD + 1);
        let honest = memory.here();
        for _ in 0..3 {
            let part = soon(&honest).await.unwrap().hold(vec![1, 2]);
            let mut rest = part;
            drop(rest.split_to(1));
            assert!(soon(&honest).await.is_none(), "a byte of it is still memory");
            drop(rest);
        }
        parts.pop();
        assert!(soon(&greedy).await.is_some());
    }
}
