//! What waits in the kernel because something before it was lost.
//!
//! While one lost packet is on its way again nothing can be read, and the lane looks as dead as
//! one whose link is down. But what the sender goes on sending arrives, and the kernel counts it.
//! Whoever knows that does not ask others for what is here already.

use swath_transport::{Arrivals, Transport};

use tokio::time::{Duration, Instant};

use crate::net::Conn;

/// An estimate: what came before its turn, less what has had its turn since. Bytes that came in
/// order between two looks make it too small, never too large; so it is renewed while bytes come.
#[derive(Debug)]
pub(super) struct OutOfOrder {
    /// The kernel's counts at the last look, where it has any.
    last: Option<Arrivals>,
    bytes: u64,
    looked_at: Instant,
}

impl OutOfOrder {
    /// Of a connection that this lane gets at `now`.
    pub fn new(conn: &Conn, now: Instant) -> OutOfOrder {
        OutOfOrder {
            last: conn.transport().and_then(Transport::arrivals),
            bytes: 0,
            looked_at: now,
        }
    }

    /// Returns whether anything can be known.
    pub fn knows(&self) -> bool {
        self.last.is_some()
    }

    /// Returns when the next look is due, if nothing has come since `last_progress`.
    pub fn due(&self, last_progress: Instant) -> Instant {
        // The longer the pause is, the less often.
        let pause = self.looked_at.saturating_duration_since(last_progress);
        self.looked_at.max(last_progress) + LOOK.max(pause / 4)
    }

    /// Sees what has come.
    pub fn look(&mut self, conn: &Conn, now: Instant) {
        self.looked_at = now;
        if let (Some(last), Some(came)) =
            (self.last, conn.transport().and_then(Transport::arrivals))
        {
            self.bytes = still_waiting(self.bytes, last, came);
            self.last = Some(came);
        }
    }

    /// Something could be read at `now`: see what that leaves.
    pub fn read(&mut self, conn: &Conn, now: Instant) {
        if self.knows() && (self.bytes > 0 || now >= self.looked_at + RENEW) {
            self.look(conn, now);
        }
    }

    /// Returns how much waits now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns what waits when `came` has come, if `bytes` bytes did at `last`.
fn still_waiting(bytes: u64, last: Arrivals, came: Arrivals) -> u64 {
    let early_packets = came.early_packets.wrapping_sub(last.early_packets);
    let early_bytes = u64::from(early_packets) * u64::from(came.packet_bytes);
    (bytes + early_bytes).saturating_sub(came.in_order_bytes.saturating_sub(last.in_order_bytes))
}

/// As often as the planner looks.
const LOOK: Duration = Duration::from_millis(20);
/// While bytes come: what has come in order since then is taken for what waited.
const RENEW: Duration = Duration::from_millis(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_were_read_long_ago_do_not_wait() {
        // A minute of reordering and one pause: seven megabytes seemed to wait.
        let at = |early_packets, in_order_bytes| Arrivals {
            early_packets,
            packet_bytes: 1448,
            in_order_bytes,
        };
        assert_eq!(still_waiting(0, at(0, 0), at(5000, 750_000_000)), 0);
        // A hole: nothing has its turn, packets come.
        assert_eq!(still_waiting(0, at(5000, 1000), at(5010, 1000)), 14_480);
        assert_eq!(still_waiting(14_480, at(5010, 1000), at(5020, 1000)), 28_960);
        // It is filled up to the next one, half-way.
        assert_eq!(still_waiting(28_960, at(5020, 1000), at(5020, 15_480)), 14_480);
        // The count wraps.
        assert_eq!(still_waiting(0, at(u32::MAX, 0), at(1, 0)), 2896);
    }
}
