//! What waits in the kernel because something before it was lost.
//!
//! While one lost packet is on its way again nothing can be read, and the lane looks as dead as
//! one whose link is down. But what the sender goes on sending arrives, and the kernel counts it.
//! Whoever knows that does not ask others for what is here already.

use tokio::time::{Duration, Instant};

use crate::net::Conn;

/// An estimate, put right whenever something can be read.
#[derive(Debug)]
pub(super) struct Behind {
    /// The kernel's count at the last look.
    packets: u32,
    bytes: u64,
    looked_at: Instant,
}

impl Behind {
    /// Of a connection that this lane gets at `now`.
    pub fn new(conn: &Conn, now: Instant) -> Behind {
        let packets = conn.out_of_order().map_or(0, |it| it.packets);
        Behind { packets, bytes: 0, looked_at: now }
    }

    /// When the next look is due, if nothing has come since `last_progress`.
    pub fn due(&self, last_progress: Instant) -> Instant {
        // The longer the pause is, the less often.
        let pause = self.looked_at.saturating_duration_since(last_progress);
        self.looked_at.max(last_progress) + LOOK.max(pause / 4)
    }

    /// See what has come.
    pub fn look(&mut self, conn: &Conn, now: Instant) {
        self.looked_at = now;
        let Some(it) = conn.out_of_order() else { return };
        let new_packets = it.packets.wrapping_sub(self.packets);
        self.packets = it.packets;
        self.bytes += u64::from(new_packets) * u64::from(it.packet_bytes);
    }

    /// `bytes` bytes could be read.
    pub fn came(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }

    /// How much waits now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// As often as the planner looks.
const LOOK: Duration = Duration::from_millis(20);
