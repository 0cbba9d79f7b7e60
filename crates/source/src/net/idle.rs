//! Connections that wait for their next use, so that many small files from one server do not
//! cost a handshake each.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::conn::{Conn, Via};
use crate::target::Origin;

/// Idle connections by origin, over whatever way, the newest last.
#[derive(Default)]
pub(super) struct IdleConnections {
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    by_origin: HashMap<Origin, Vec<Conn>>,
    /// When those that nobody came for were last let go.
    swept: Option<Instant>,
}

impl All {
    /// Lets those go that are too old, whoever they lead to: their servers have closed them by now,
    /// and whoever runs for long asks many that it never asks again.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= LIFE) {
            self.swept = Some(now);
            self.by_origin.retain(|_, waiting| {
                waiting.retain(|other| other.idle_since.elapsed() < LIFE);
                !waiting.is_empty()
            });
        }
    }
}

impl IdleConnections {
    /// Returns the connection used last that is still fit.
    pub fn take(&self, origin: &Origin, via: &Via) -> Option<Conn> {
        loop {
            let mut conn = {
                let mut all = self.lock();
                let all = &mut all.by_origin;
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

    /// Keeps `conn`, unless there are plenty already.
    pub fn put(&self, mut conn: Conn) {
        conn.idle_since = Instant::now();
        conn.set_low_water(1);
        let mut all = self.lock();
        all.sweep(conn.idle_since);
        let all = &mut all.by_origin;
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
        self.lock().by_origin.values().map(Vec::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Common servers close after 5 (Apache) to 75 s (nginx); a connection that turns out closed
/// costs a round trip only.
const LIFE: Duration = Duration::from_secs(15);
/// As many as one transfer could use.
const PER_ORIGIN_LIMIT: usize = 64;
const ORIGINS_LIMIT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};
    use url::Url;

    #[tokio::test(start_paused = true)]
    async fn connections_that_nobody_came_for_make_room_for_those_to_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = listener.local_addr().unwrap();
        let idle = IdleConnections::default();
        let put = async |port: usize| {
            let url = Url::parse(&format!("http://origin:{port}/")).unwrap();
            let (tcp, origin) = (TcpStream::connect(peer).await, Origin::of(&url));
            idle.put(Conn::new(Box::new(tcp.unwrap()), origin.unwrap(), peer, Duration::ZERO));
        };
        for port in 1..=ORIGINS_LIMIT + 1 {
            put(port).await;
        }
        assert_eq!(idle.len(), ORIGINS_LIMIT);
        tokio::time::advance(LIFE).await;
        // A relay that had asked so many servers once kept no connection to any other from then on,
        // and held those, which were closed at the other end, for ever.
        put(ORIGINS_LIMIT + 1).await;
        assert_eq!(idle.len(), 1);
    }
}
