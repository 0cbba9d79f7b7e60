//! From payload to events: fills pool buffers so that their ends fall on multiples of the slot
//! size in the file, and hands them over.
//!
//! What is done for each buffer (a write, a hash, a few wake-ups) costs about as much for a large
//! one as for a small one, and what a lane holds nobody else can use: so a lane asks for as much as
//! it fills within [`FILL`].
//!
//! At most one buffer is held, and only while it has or is about to get data: a lane that waits
//! for the network holds none, so lanes cannot starve each other.

use std::sync::Arc;
use std::time::Duration;

use swath_model::digest::blake3_tree::GROUP_BYTES;
use swath_model::{Buffer, LaneId, Pool, SwathId};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::event::{LaneEvent, LaneEventKind};
use super::{Ask, Meter};
use crate::sealed::{GroupHash, SealedLength, SealedPosition, UNIT_BYTES};

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
    /// Offset in the file up to which it may be filled.
    cut: u64,
    /// What the next buffer should have room for, in bytes.
    want_bytes: usize,
    /// The file has group hashes, which do not go into buffers.
    sealed: Option<GroupHashes>,
}

/// What is known of the group hashes of a buffer.
struct GroupHashes {
    length: Arc<SealedLength>,
    /// Of the groups in the held buffer that are complete.
    complete: Vec<GroupHash>,
    /// The one that is arriving.
    arriving: GroupHash,
}

impl Delivery {
    pub fn new(
        lane: LaneId,
        pool: Pool,
        events: UnboundedSender<LaneEvent>,
        meter: Arc<Meter>,
        sealed: Option<Arc<SealedLength>>,
    ) -> Self {
        let group_hashes =
            |length| GroupHashes { length, complete: Vec::new(), arriving: GroupHash::default() };
        Self {
            sealed: sealed.map(group_hashes),
            lane,
            pool,
            events,
            meter,
            held: None,
            held_since: Instant::now(),
            start: 0,
            cut: 0,
            want_bytes: 1,
        }
    }

    /// Reports something; whether anybody still listens is not the lane's business.
    pub fn send(&self, kind: LaneEventKind) {
        let _ = self.events.send(LaneEvent { lane: self.lane, kind });
    }

    /// Returns whether a buffer is at hand.
    pub fn has_buffer(&self) -> bool {
        self.held.is_some()
    }

    /// Returns whether only whole groups can be handed over.
    pub fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// For how long one has been at hand.
    pub fn held_for(&self) -> Duration {
        self.held_since.elapsed()
    }

    /// Returns a buffer for `ask`, if one is free.
    pub fn try_take(&self, ask: Option<&Ask>) -> Option<Buffer> {
        let left = ask.map_or(0, |ask| ask.end.saturating_sub(ask.position));
        self.pool.try_take_for(self.want_bytes.min(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    /// Takes this empty buffer into use.
    pub fn supply(&mut self, buffer: Buffer) {
        self.held = Some(buffer);
        self.held_since = Instant::now();
    }

    /// Where the next bytes of `ask` belong, at most `limit_bytes`; empty without a buffer.
    pub fn room(&mut self, ask: &Ask, limit_bytes: u64) -> &mut [u8] {
        let slot_bytes = self.pool.slot_bytes() as u64;
        let Some(buffer) = &mut self.held else { return &mut [] };
        let limit_bytes = ask.left_bytes(limit_bytes);
        let (position, data_bytes) = match &mut self.sealed {
            None => (ask.position, u64::MAX),
            Some(group_hashes) => match group_hashes.length.place(ask.position) {
                SealedPosition::Data { left_bytes } => {
                    (group_hashes.length.to_plain(ask.position), left_bytes)
                }
                SealedPosition::GroupHash { at } => {
                    let bytes = (group_hashes.arriving.len() - at).min(limit_bytes);
                    return &mut group_hashes.arriving[at..at + bytes];
                }
            },
        };
        if buffer.filled() == 0 {
            self.start = position;
            // On a multiple of the slot size, so later buffers begin aligned.
            let slots = self.start / slot_bytes + buffer.slots() as u64;
            self.cut = slots.saturating_mul(slot_bytes);
        }
        let room = self.cut.saturating_sub(position).min(data_bytes);
        let spare = buffer.spare();
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(spare.len()).min(limit_bytes);
        &mut spare[..room]
    }

    /// `bytes` were written into [`Delivery::room`]: count them, and hand the buffer over if
    /// that was its last room.
    pub fn wrote(&mut self, ask: &mut Ask, bytes: usize) {
        self.meter.count_body(bytes as u64);
        let at = ask.position;
        ask.position = ask.position.saturating_add(bytes as u64);
        let at_cut = match &mut self.sealed {
            None => {
                self.advance(bytes);
                ask.position >= self.cut
            }
            Some(group_hashes) => match group_hashes.length.place(at) {
                SealedPosition::Data { .. } => {
                    self.advance(bytes);
                    return;
                }
                SealedPosition::GroupHash { at } if at + bytes < group_hashes.arriving.len() => {
                    return;
                }
                SealedPosition::GroupHash { .. } => {
                    group_hashes.complete.push(std::mem::take(&mut group_hashes.arriving));
                    group_hashes.length.to_plain(ask.position) >= self.cut
                }
            },
        };
        if at_cut {
            let rate = self.held.as_ref().map_or(0, Buffer::filled) as f64
                / self.held_since.elapsed().as_secs_f64().max(1e-6);
            self.want_bytes = (rate * FILL.as_secs_f64()) as usize;
        }
        // The next file of the swath goes on in the same buffer.
        if at_cut || ask.is_complete() && !ask.continues {
            self.flush(ask);
        }
    }

    /// Hands over what is there, cut to the (perhaps trimmed) end of `ask`. Of a sealed file a
    /// group whose group hash is not here yet is given up; `ask` goes back to its beginning.
    pub fn flush(&mut self, ask: &mut Ask) {
        let Some(mut buffer) = self.held.take() else { return };
        let mut group_hashes = Vec::new();
        let end = match &mut self.sealed {
            None => ask.end,
            Some(own) => {
                group_hashes = std::mem::take(&mut own.complete);
                own.arriving = GroupHash::default();
                let first = self.start / GROUP_BYTES;
                let wanted = (ask.end.div_ceil(UNIT_BYTES)).saturating_sub(first);
                group_hashes.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
                let behind = first + group_hashes.len() as u64;
                let ends_at = own.length.to_plain(behind * UNIT_BYTES);
                if !ask.is_complete() {
                    ask.position = ask.position.min(behind * UNIT_BYTES);
                }
                ends_at
            }
        };
        buffer.truncate(usize::try_from(end.saturating_sub(self.start)).unwrap_or(usize::MAX));
        buffer.shrink();
        if buffer.filled() > 0 {
            let offset = self.start;
            self.send(LaneEventKind::Chunk { swath: ask.swath, offset, buffer, group_hashes });
        }
    }

    fn advance(&mut self, bytes: usize) {
        if let Some(buffer) = &mut self.held {
            buffer.advance(bytes);
        }
    }

    /// Gives an empty or unwanted buffer back.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Reports `swath` as done.
    pub fn done(&self, swath: SwathId) {
        self.send(LaneEventKind::Done { swath });
    }
}

/// How long a lane may take to fill a buffer of more than one slot.
const FILL: Duration = Duration::from_millis(10);
