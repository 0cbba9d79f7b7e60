//! The sending direction of a connection: requests of the peer become reads, and reads become
//! blocks.
//!
//! Requests for neighbouring blocks are read in one go and leave in one write. One read is under
//! way at a time, and the next begins when little is left to be sent, so that a peer that asks and
//! does not receive costs a bounded amount of memory.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use swath_formats::peer::{Bitfield, Block, PeerFault, PieceLayout, Session};
use swath_model::{Range, Time};
use tokio::time::Instant;

use super::allowance::Allowance;
use super::stream::PeerStream;
use super::torrent::Torrent;
use crate::source::Pending;

/// Reads what peers ask for.
pub trait Uploads: Send + Sync {
    /// Appends the bytes of `range`, which lies in pieces that we have, to `into`. Offsets are
    /// those of the piece space; padding in it reads as zeros.
    ///
    /// # Errors
    /// If they cannot be read: the peer's requests are refused.
    fn read<'a>(&'a self, range: Range, into: &'a mut Vec<u8>) -> Pending<'a, io::Result<()>>;
}

/// What is sent to one peer.
pub(super) struct Upload {
    uploads: Option<Arc<dyn Uploads>>,
    layout: Option<PieceLayout>,
    allowance: Allowance,
    /// When the rate limit allows the next read.
    pub due: Option<Instant>,
    reading: Option<Reading>,
    /// A request that was taken, and does not follow the ones before it.
    next: Option<Block>,
}

/// A read under way.
struct Reading {
    blocks: Vec<Block>,
    range: Range,
    answer: Pending<'static, Answer>,
}

/// The buffer that was read into, and whether all is there.
type Answer = (Vec<u8>, io::Result<()>);

/// What is sent with.
pub(super) struct Sending<'a> {
    pub session: &'a mut Session,
    pub stream: &'a mut PeerStream,
    pub have: &'a Bitfield,
    pub time: Time,
}

impl Upload {
    pub fn new(torrent: &Torrent) -> Upload {
        Upload {
            uploads: torrent.options.uploads.clone(),
            layout: torrent.layout,
            allowance: Allowance::new(Arc::clone(&torrent.options.upload_limiter)),
            due: None,
            reading: None,
            next: None,
        }
    }

    /// Returns how many requests were taken and are not answered.
    pub fn waiting(&self) -> usize {
        let reading = self.reading.as_ref().map_or(0, |reading| reading.blocks.len());
        reading + usize::from(self.next.is_some())
    }

    /// Forgets the request that was taken first: the peer is choked from now on.
    pub fn choked(&mut self, session: &mut Session) {
        if let Some(block) = self.next.take() {
            // Nobody is blamed for a request that was sent before our choke.
            let _ = session.refuse(block);
        }
    }

    /// Reads and queues blocks as long as there is something to be done; returns how many bytes
    /// were queued.
    ///
    /// # Errors
    /// [`PeerFault`] if the peer asks in vain too often.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut sending: Sending<'_>,
    ) -> Result<u64, PeerFault> {
        self.due = None;
        let mut queued_bytes = 0;
        loop {
            if let Some(reading) = &mut self.reading {
                let Poll::Ready((data, result)) = reading.answer.as_mut().poll(cx) else { break };
                if let Some(Reading { blocks, range, .. }) = self.reading.take() {
                    let is_whole = result.is_ok() && data.len() as u64 == range.len();
                    if let Err(error) = result {
                        tracing::warn!(%range, %error, "cannot read what a peer asks for");
                    }
                    match is_whole {
                        true => queued_bytes += send(&blocks, data, &mut sending),
                        false => {
                            blocks.into_iter().try_for_each(|it| sending.session.refuse(it))?
                        }
                    }
                }
            }
            if sending.stream.unsent_bytes() >= sending.stream.most_payload_bytes()
                || !self.read_next(&mut sending)?
            {
                break;
            }
        }
        Ok(queued_bytes)
    }

    /// Begins to read for the next requests; returns false if there is nothing to be read now.
    fn read_next(&mut self, sending: &mut Sending<'_>) -> Result<bool, PeerFault> {
        let most_bytes = match self.has_request(sending.session) {
            false => return Ok(false),
            true => match self.allowance.now() {
                Ok(bytes) => bytes.min(sending.stream.most_payload_bytes() as u64),
                Err(due) => {
                    self.due = Some(due);
                    return Ok(false);
                }
            },
        };
        let mut blocks: Vec<Block> = Vec::new();
        let mut range = Range::new(0, 0);
        while let Some(block) = self.next.take().or_else(|| sending.session.poll_request()) {
            let wire = self.layout.and_then(|layout| layout.range_of_request(block));
            let Some(wire) = wire.filter(|_| sending.have.contains(block.piece)) else {
                sending.session.refuse(block)?;
                continue;
            };
            if blocks.is_empty() {
                range = wire;
            } else if wire.start != range.end || range.len() + wire.len() > most_bytes {
                self.next = Some(block);
                break;
            }
            range.end = wire.end;
            blocks.push(block);
        }
        if blocks.is_empty() {
            return Ok(false);
        }
        let Some(uploads) = self.uploads.clone() else {
            blocks.into_iter().try_for_each(|block| sending.session.refuse(block))?;
            return Ok(true);
        };
        self.allowance.spend(range.len());
        let total_bytes = self.layout.map_or(0, PieceLayout::total_bytes);
        let answer = Box::pin(async move {
            let mut data = Vec::with_capacity(range.len() as usize);
            let Some(there) = range.intersect(Range::new(0, total_bytes)) else {
                data.resize(range.len() as usize, 0);
                return (data, Ok(()));
            };
            let result = uploads.read(there, &mut data).await;
            if data.len() as u64 == there.len() {
                // Zeros behind the last byte, if that was asked for.
                data.resize(range.len() as usize, 0);
            }
            (data, result)
        });
        self.reading = Some(Reading { blocks, range, answer });
        Ok(true)
    }

    fn has_request(&mut self, session: &mut Session) -> bool {
        if self.next.is_none() {
            self.next = session.poll_request();
        }
        self.next.is_some()
    }
}

/// Queues blocks with their bytes; returns how many bytes of them.
fn send(blocks: &[Block], data: Vec<u8>, sending: &mut Sending<'_>) -> u64 {
    let bytes = data.len() as u64;
    let mut heads = Vec::with_capacity(blocks.len());
    let mut parts = Vec::with_capacity(blocks.len());
    let mut at = 0;
    for block in blocks {
        let mut head = Vec::new();
        sending.session.send_piece(sending.time, *block, &mut head);
        heads.push(head);
        parts.push(at..at + block.length as usize);
        at += block.length as usize;
    }
    sending.stream.push_parts(heads, data, &parts);
    bytes
}
