//! A stream: blocks go to a writer in order.
//!
//! Blocks wait in pool buffers until their turn. The planner's window limits their bytes, so that
//! they fit into the pool. Parts of a block (of connections that broke) are put together for the
//! same reason. If the pool is full all the same, the farthest blocks are dropped. Every byte is
//! hashed once, when its turn has come. If piece digests are known and a piece fits into half of
//! the window, it is written only after it proved good. Larger pieces are written as they come.
//! Written bytes cannot be taken back, so a wrong piece ends the transfer, as does a wrong digest
//! of the whole.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use swath_model::digest::{Digest, Hasher};
use swath_model::pieces::{PieceHasher, Pieces};
use swath_model::{Buffer, Range};
use swath_source::Pending;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::{Block, Sink, Written};
use crate::error::GetError;
use crate::verify::Proof;

/// A report of the writing task.
#[derive(Debug)]
pub(crate) enum StreamReport {
    /// Everything before this offset is written.
    Written(u64),
    /// This piece is bad, with this digest; it must be fetched again.
    Bad(Range, Digest),
    /// This piece is bad, with this digest, and its beginning is written already.
    TooLate(Range, Digest),
    /// This piece proved good.
    Good(Range),
    /// The digest of the whole.
    Whole {
        /// The expected digest.
        wanted: Digest,
        /// The digest of the written bytes.
        actual: Digest,
    },
    /// These bytes were dropped to free buffers; they must be fetched again.
    Shed(Range),
    /// The writer failed (a closed pipe, a full disk).
    Failed(io::Error),
}

enum Order {
    Accept(u64, Buffer),
    Finish,
    EndAt(u64),
    Shed(usize),
}

pub(crate) struct Stream {
    orders: UnboundedSender<Order>,
    task: Mutex<Option<JoinHandle<io::Result<()>>>>,
    holds_pieces: bool,
    writing_nanos: Arc<AtomicU64>,
}

impl Stream {
    /// Starts writing; at most `window_bytes` are handed over before they are written.
    pub fn start(
        writer: Box<dyn AsyncWrite + Send + Unpin>,
        proof: &Proof,
        size_bytes: Option<u64>,
        window_bytes: u64,
        reports: UnboundedSender<StreamReport>,
    ) -> Self {
        let (orders, receiver) = unbounded_channel();
        let holds_pieces = proof.pieces.as_ref().is_some_and(|pieces| {
            pieces.length_bytes().min(size_bytes.unwrap_or(u64::MAX)) <= window_bytes / 2
        });
        let hashers = proof.wholes.iter().map(|&wanted| (wanted, Hasher::new(wanted.algorithm())));
        let state = State {
            writer,
            waiting: BTreeMap::new(),
            front: 0,
            size_bytes,
            hashers: hashers.collect(),
            pieces: proof.pieces.clone(),
            piece: None,
            proved_to: 0,
            holds_pieces,
            writing_nanos: Arc::default(),
        };
        let writing_nanos = Arc::clone(&state.writing_nanos);
        let task = tokio::spawn(async move {
            let result = state.run(receiver, &reports).await;
            if let Err(error) = &result {
                let _ = reports
                    .send(StreamReport::Failed(io::Error::new(error.kind(), error.to_string())));
            }
            result
        });
        Self { orders, task: Mutex::new(Some(task)), holds_pieces, writing_nanos }
    }

    /// Returns the counter of the time spent in the writer; it goes on counting after the end.
    pub fn writing_nanos(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.writing_nanos)
    }

    /// Returns whether a piece is written only when all of it has come and proved good.
    pub fn holds_pieces(&self) -> bool {
        self.holds_pieces
    }

    /// Drops about `slots` slots of the last blocks, for the next bytes in order.
    pub fn shed(&self, slots: usize) {
        let _ = self.orders.send(Order::Shed(slots));
    }
}

impl Sink for Stream {
    fn write(self: Arc<Self>, block: Block) -> Pending<'static, Result<Written, GetError>> {
        let _ = self.orders.send(Order::Accept(block.offset, block.buffer));
        Box::pin(async { Ok(Written::HandedOver) })
    }

    fn end_at(&self, size_bytes: u64) -> Result<(), GetError> {
        let _ = self.orders.send(Order::EndAt(size_bytes));
        Ok(())
    }

    /// Waits until all is written and flushed.
    fn finish(&self, _: Option<SystemTime>) -> Pending<'_, Result<(), GetError>> {
        let _ = self.orders.send(Order::Finish);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async {
            match task {
                Some(task) => task
                    .await
                    .unwrap_or_else(|gone| Err(io::Error::other(gone)))
                    .map_err(GetError::Output),
                None => Ok(()),
            }
        })
    }
}

struct State {
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    waiting: BTreeMap<u64, Buffer>,
    /// Everything before is written.
    front: u64,
    size_bytes: Option<u64>,
    /// Hashes of everything before `front`, with the expected digests.
    hashers: Vec<(Digest, Hasher)>,
    pieces: Option<Pieces>,
    /// The first unproved piece, hashed as far as its bytes are here.
    piece: Option<Piece>,
    /// Everything before lies in pieces that proved good.
    proved_to: u64,
    holds_pieces: bool,
    writing_nanos: Arc<AtomicU64>,
}

struct Piece {
    range: Range,
    wanted: Option<Digest>,
    hasher: PieceHasher,
    hashed_to: u64,
}

impl State {
    async fn run(
        mut self,
        mut orders: UnboundedReceiver<Order>,
        reports: &UnboundedSender<StreamReport>,
    ) -> io::Result<()> {
        let mut judged = false;
        loop {
            if self.size_bytes == Some(self.front) && !judged {
                judged = true;
                self.writer.flush().await?;
                for (wanted, hasher) in &self.hashers {
                    let _ = reports
                        .send(StreamReport::Whole { wanted: *wanted, actual: hasher.finish() });
                }
                let _ = reports.send(StreamReport::Written(self.front));
            }
            let Some(order) = orders.recv().await else { break };
            match order {
                Order::Accept(offset, buffer) => self.keep(offset, buffer),
                Order::EndAt(size_bytes) => self.size_bytes = Some(size_bytes),
                Order::Shed(slots) => self.shed(slots, reports),
                Order::Finish => break,
            }
            self.advance(reports).await?;
        }
        self.writer.flush().await
    }

    /// Keeps a block until its turn. If it fits into the buffer before it, it moves there.
    fn keep(&mut self, offset: u64, buffer: Buffer) {
        let mut start = offset;
        match self.waiting.range_mut(..offset).next_back() {
            Some((&at, before)) if fits(at, before, offset, &buffer) => {
                before.push(&buffer);
                start = at;
            }
            _ => drop(self.waiting.insert(offset, buffer)),
        }
        let Some(end) = self.waiting.get(&start).map(|it| start + it.len() as u64) else { return };
        if let Some(after) = self.waiting.remove(&end) {
            match self.waiting.get_mut(&start) {
                Some(before) if fits(start, before, end, &after) => drop(before.push(&after)),
                _ => drop(self.waiting.insert(end, after)),
            }
        }
    }

    /// Drops the last blocks, except bytes that the hash of a piece already includes.
    fn shed(&mut self, slots: usize, reports: &UnboundedSender<StreamReport>) {
        let hashed_to = self.piece.as_ref().map_or(self.proved_to, |piece| piece.hashed_to);
        let from = self.front.max(hashed_to);
        let mut freed = 0;
        while freed < slots
            && let Some(last) = self.waiting.last_entry().filter(|it| *it.key() > from)
        {
            let (at, buffer) = last.remove_entry();
            freed += buffer.slots();
            let _ = reports.send(StreamReport::Shed(Range::of_len(at, buffer.len() as u64)));
        }
    }

    /// Verifies and writes the blocks whose turn it is.
    async fn advance(&mut self, reports: &UnboundedSender<StreamReport>) -> io::Result<()> {
        loop {
            let verdict = self.hash_piece();
            match verdict {
                Some(Ok(range)) => {
                    self.proved_to = range.end;
                    let _ = reports.send(StreamReport::Good(range));
                }
                Some(Err((range, actual))) if self.front > range.start => {
                    self.waiting.clear();
                    let _ = reports.send(StreamReport::TooLate(range, actual));
                    return Ok(());
                }
                Some(Err((range, actual))) => {
                    self.drop_piece(range);
                    let _ = reports.send(StreamReport::Bad(range, actual));
                    return Ok(());
                }
                None => {}
            }
            let limit = match &self.piece {
                _ if self.pieces.is_none() => u64::MAX,
                Some(piece) if !self.holds_pieces => piece.hashed_to,
                _ => self.proved_to,
            };
            self.write_to(limit, reports).await?;
            if verdict.is_none() {
                return Ok(());
            }
        }
    }

    /// Hashes the first unproved piece as far as its bytes have come. Returns its verdict if it is
    /// complete, with the actual digest if it is bad.
    fn hash_piece(&mut self) -> Option<Result<Range, (Range, Digest)>> {
        let pieces = self.pieces.as_ref()?;
        if self.piece.is_none() {
            let number = pieces.piece_at(self.proved_to);
            let range = pieces.range_of(number, self.size_bytes.unwrap_or(u64::MAX))?;
            let hasher = pieces.hasher(number);
            let wanted = pieces.digest(number);
            self.piece = Some(Piece { range, wanted, hasher, hashed_to: range.start });
        }
        let piece = self.piece.as_mut()?;
        // The last piece of a stream of unknown size ends where the stream does.
        piece.range.end = piece.range.end.min(self.size_bytes.unwrap_or(u64::MAX));
        while piece.hashed_to < piece.range.end {
            let at = piece.hashed_to;
            let (&start, buffer) = self.waiting.range(..=at).next_back()?;
            let end = (start + buffer.len() as u64).min(piece.range.end);
            if end <= at {
                return None;
            }
            piece.hasher.update(&buffer[(at - start) as usize..(end - start) as usize]);
            piece.hashed_to = end;
        }
        let piece = self.piece.take()?;
        let actual = piece.hasher.finish();
        Some(if piece.wanted == Some(actual) {
            Ok(piece.range)
        } else {
            Err((piece.range, actual))
        })
    }

    /// Writes the bytes that have come, up to `limit` at most.
    async fn write_to(
        &mut self,
        limit: u64,
        reports: &UnboundedSender<StreamReport>,
    ) -> io::Result<()> {
        while self.front < limit {
            let Some((&at, _)) = self.waiting.range(..=self.front).next_back() else { break };
            let Some(buffer) = self.waiting.remove(&at) else { break };
            let end = at + buffer.len() as u64;
            if end <= self.front {
                continue;
            }
            let from = (self.front - at) as usize;
            let to = (end.min(limit) - at) as usize;
            for (_, hasher) in &mut self.hashers {
                hasher.update(&buffer[from..to]);
            }
            let began = Instant::now();
            self.writer.write_all(&buffer[from..to]).await?;
            let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.writing_nanos.fetch_add(nanos, Ordering::Relaxed);
            self.front = at + to as u64;
            if end > limit {
                self.waiting.insert(at, buffer);
            }
            let _ = reports.send(StreamReport::Written(self.front));
        }
        Ok(())
    }

    /// Drops a bad piece, but keeps the bytes of its neighbours.
    fn drop_piece(&mut self, piece: Range) {
        let around: Vec<u64> = self
            .waiting
            .range(..piece.end)
            .filter(|(at, buffer)| **at + buffer.len() as u64 > piece.start)
            .map(|(&at, _)| at)
            .collect();
        for at in around {
            let Some(mut buffer) = self.waiting.remove(&at) else { continue };
            let end = at + buffer.len() as u64;
            if end > piece.end {
                // The bytes after the piece move to the start of the buffer.
                let from = (piece.end - at) as usize;
                let rest = buffer.len() - from;
                buffer.copy_within(from.., 0);
                buffer.truncate(rest);
                self.waiting.insert(piece.end, buffer);
            }
        }
    }
}

/// Returns whether the block at `offset` follows the one at `at` and fits behind it in its buffer.
fn fits(at: u64, before: &Buffer, offset: u64, block: &Buffer) -> bool {
    at + before.len() as u64 == offset && before.capacity() - before.filled() >= block.len()
}
