//! Permits that the connections of a server share, where one connection may have many answers under way: to
//! hold parts of bodies until they are sent, and to answer at all.
//!
//! Each connection has one permit of its own besides, so that clients that take nothing block nobody else.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of all connections.
#[derive(Clone)]
pub struct SharedPermits(Arc<Semaphore>);

/// The permits of one connection.
#[derive(Clone)]
pub struct Permits {
    shared: SharedPermits,
    own: Arc<Semaphore>,
}

/// A permit, which returns when it is dropped.
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

impl Default for SharedPermits {
    /// As many as parts of bodies may be held: 64 MiB where each has 256 KiB.
    fn default() -> Self {
        SharedPermits::new(256)
    }
}

impl SharedPermits {
    /// So many, besides those that connections have of their own.
    pub fn new(count: usize) -> SharedPermits {
        SharedPermits(Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))))
    }

    /// Returns those of one more connection.
    pub fn here(&self) -> Permits {
        Permits { shared: self.clone(), own: Arc::new(Semaphore::new(1)) }
    }
}

impl Permits {
    /// Waits for one.
    pub async fn permit(&self) -> Permit {
        let (own, shared) = (Arc::clone(&self.own), Arc::clone(&self.shared.0));
        tokio::select! {
            biased;
            Ok(permit) = own.acquire_owned() => Permit { _permit: permit },
            Ok(permit) = shared.acquire_owned() => Permit { _permit: permit },
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn soon(here: &Permits) -> Option<Permit> {
        tokio::time::timeout(Duration::from_millis(1), here.permit()).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_keeps_nobody_else_waiting() {
        let memory = SharedPermits::new(3);
        let greedy = memory.here();
        let mut parts = Vec::new();
        while let Some(leave) = soon(&greedy).await {
            parts.push(leave.hold(vec![0; 1]));
        }
        assert_eq!(parts.len(), 3 + 1);
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
