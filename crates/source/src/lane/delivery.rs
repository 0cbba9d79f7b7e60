//! From payload to events: fills pool buffers so that their ends fall on multiples of the buffer
//! size in the file, and hands them over.
//!
//! At most one buffer is held, and only while it has or is about to get data: a lane that waits
//! for the network holds none, so lanes cannot starve each other.

use std::sync::Arc;
use std::time::Duration;

use swath_model::{Buffer, LaneId, Pool, SwathId};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::event::{LaneEvent, LaneEventKind};
use super::{Ask, Meter};

/// The outgoing side of a lane.
pub(crate) struct Delivery {
    lane: LaneId,
    pub pool: Pool,
    events: UnboundedSender<LaneEvent>,
    pub meter: Arc<Meter>,
    held: Option<Buffer>,
    /// Since when a buffer is held.
    held_since: Instant,
    /// Offset in the file of the held buffer's first byte.
    start: u64,
}

impl Delivery {
    pub fn new(
        lane: LaneId,
        pool: Pool,
        events: UnboundedSender<LaneEvent>,
        meter: Arc<Meter>,
    ) -> Self {
        Self { lane, pool, events, meter, held: None, held_since: Instant::now(), start: 0 }
    }

    /// Report something; whether anybody still listens is not the lane's business.
    pub fn send(&self, kind: LaneEventKind) {
        let _ = self.events.send(LaneEvent { lane: self.lane, kind });
    }

    /// Whether a buffer is at hand.
    pub fn has_buffer(&self) -> bool {
        self.held.is_some()
    }

    /// For how long one has been at hand.
    pub fn held_for(&self) -> Duration {
        self.held_since.elapsed()
    }

    /// Take this empty buffer into use.
    pub fn supply(&mut self, buffer: Buffer) {
        self.held = Some(buffer);
        self.held_since = Instant::now();
    }

    /// Where the next bytes of `ask` belong, at most `limit_bytes`; empty without a buffer.
    pub fn room(&mut self, ask: &Ask, limit_bytes: u64) -> &mut [u8] {
        let size = self.pool.buffer_bytes() as u64;
        let Some(buffer) = &mut self.held else { return &mut [] };
        if buffer.filled() == 0 {
            self.start = ask.position;
        }
        // The cut is the next multiple of the buffer size, so later buffers begin aligned.
        let cut = (self.start / size + 1).saturating_mul(size).min(ask.end);
        let room = cut.saturating_sub(ask.position).min(limit_bytes);
        let spare = buffer.spare();
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(spare.len());
        &mut spare[..room]
    }

    /// `bytes` were written into [`Delivery::room`]: count them, and hand the buffer over if
    /// that was its last room.
    pub fn wrote(&mut self, ask: &mut Ask, bytes: usize) {
        self.meter.count_body(bytes as u64);
        ask.position = ask.position.saturating_add(bytes as u64);
        if let Some(buffer) = &mut self.held {
            buffer.advance(bytes);
        }
        let at_cut = ask.position.is_multiple_of(self.pool.buffer_bytes() as u64);
        if at_cut || ask.is_complete() {
            self.flush(ask);
        }
    }

    /// Hand over what is there, cut to the (perhaps trimmed) end of `ask`.
    pub fn flush(&mut self, ask: &Ask) {
        let Some(mut buffer) = self.held.take() else { return };
        buffer.truncate(usize::try_from(ask.end.saturating_sub(self.start)).unwrap_or(usize::MAX));
        if buffer.filled() > 0 {
            self.send(LaneEventKind::Chunk { swath: ask.swath, offset: self.start, buffer });
        }
    }

    /// Give an empty or unwanted buffer back.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Report `swath` as done.
    pub fn done(&self, swath: SwathId) {
        self.send(LaneEventKind::Done { swath });
    }
}
