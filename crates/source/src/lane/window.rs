//! How much a sender may have under way on a lane, where that is to be less than the kernel allows.
//!
//! Receivers alone can say that to any server, by the window that they announce. The kernel widens it
//! while it tunes its buffers, once a round trip at most, so it has to be told again and again.

use std::time::Duration;

use tokio::time::Instant;

use crate::net::Conn;

/// What the kernel was told.
#[derive(Debug, Default)]
pub(super) struct Window {
    told: Option<(u64, Instant)>,
}

impl Window {
    /// Sees to it that the window of `conn` is as wanted; called whenever something may have come.
    pub fn keep(&mut self, conn: &Conn, wanted_bytes: Option<u64>) {
        let Some(transport) = conn.transport() else { return };
        match (wanted_bytes, self.told) {
            (None, None) => {}
            (None, Some(_)) => {
                transport.limit_window(u64::MAX);
                self.told = None;
            }
            (Some(wanted), told) => {
                let now = Instant::now();
                let is_kept =
                    told.is_some_and(|(bytes, at)| bytes == wanted && now < at + TELL_AGAIN);
                if !is_kept {
                    transport.limit_window(wanted);
                    self.told = Some((wanted, now));
                }
            }
        }
    }
}

/// Routes on which a window is narrowed have longer round trips.
const TELL_AGAIN: Duration = Duration::from_millis(10);
