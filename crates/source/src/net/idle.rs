//! Connections that wait for their next use, so that many small files from one server do not
//! cost a handshake each.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::stream::{Conn, Via};
use crate::target::Origin;

/// Idle connections by origin, over whatever way, the newest last.
#[derive(Default)]
pub(super) struct IdleConnections {
    by_origin: Mutex<HashMap<Origin, Vec<Conn>>>,
}

impl IdleConnections {
    /// The connection used last that is still fit.
    pub fn take(&self, origin: &Origin, via: &Via) -> Option<Conn> {
        loop {
            let mut conn = {
                let mut all = self.by_origin.lock().unwrap_or_else(PoisonError::into_inner);
                let waiting = all.get_mut(origin)?;
                let at = waiting.iter().rposition(|conn| conn.via == *via);
                let conn = at.map(|at| waiting.remove(at));
                if waiting.is_empty() {
                    all.remove(origin);
                }
                conn?
            };
            if conn.idle_since.elapsed() < LIFE && conn.is_quiet() {
                conn.reused = true;
                return Some(conn);
            }
        }
    }

    /// Keep `conn`, unless there are plenty already.
    pub fn put(&self, mut conn: Conn) {
        conn.idle_since = Instant::now();
        conn.set_low_water(1);
        let mut all = self.by_origin.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ORIGINS_LIMIT && !all.contains_key(&conn.origin) {
            return;
        }
        let waiting = all.entry(conn.origin.clone()).or_default();
        waiting.retain(|other| other.idle_since.elapsed() < LIFE);
        if waiting.len() < PER_ORIGIN_LIMIT {
            waiting.push(conn);
        }
    }

    pub fn len(&self) -> usize {
        self.by_origin.lock().unwrap_or_else(PoisonError::into_inner).values().map(Vec::len).sum()
    }
}

/// Common servers close after 5 (Apache) to 75 s (nginx); a connection that turns out closed
/// costs a round trip only.
const LIFE: Duration = Duration::from_secs(15);
/// As many as one transfer could use.
const PER_ORIGIN_LIMIT: usize = 64;
const ORIGINS_LIMIT: usize = 64;
