//! The ordered end of a transfer: blocks go to a writer one behind the other.
//!
//! Blocks wait in pool buffers until their turn; the planner's window keeps them from filling the
//! pool. Where piece digests are known a piece is written only after it proved good; where only a
//! digest of the whole is known, what is written cannot be taken back, and a mismatch is an error
//! at the end.

use std::collections::BTreeMap;
use std::io;

use swath_model::digest::{Digest, Hasher};
use swath_model::pieces::Pieces;
use swath_model::{Buffer, Range};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::verify::Proof;

/// What the writing task tells.
#[derive(Debug)]
pub(super) enum Word {
    /// Everything before this offset is written.
    Written(u64),
    /// This piece is bad; it is wanted again.
    Bad(Range),
    /// This piece proved good.
    Good(Range),
    /// The digest of the whole.
    Whole {
        /// Whether it is the one wanted.
        good: bool,
        /// What it came to.
        actual: Digest,
    },
    /// The writer failed (a closed pipe, a full disk).
    Failed(io::Error),
}

enum Order {
    Accept(u64, Buffer),
    EndAt(u64),
}

pub(super) struct Ordered {
    orders: UnboundedSender<Order>,
    task: JoinHandle<io::Result<()>>,
}

impl Ordered {
    pub fn start(
        writer: Box<dyn AsyncWrite + Send + Unpin>,
        proof: &Proof,
        size_bytes: Option<u64>,
        words: UnboundedSender<Word>,
    ) -> Self {
        let (orders, receiver) = unbounded_channel();
        let whole = proof.whole;
        let hasher = whole.as_ref().map(|digest| Hasher::new(digest.algorithm()));
        let state = State {
            writer,
            waiting: BTreeMap::new(),
            front: 0,
            size_bytes,
            pieces: proof.pieces.clone(),
            whole,
            hasher,
        };
        let task = tokio::spawn(async move {
            let result = state.run(receiver, &words).await;
            if let Err(error) = &result {
                let _ = words.send(Word::Failed(io::Error::new(error.kind(), error.to_string())));
            }
            result
        });
        Self { orders, task }
    }

    /// A block that arrived.
    pub fn accept(&self, offset: u64, buffer: Buffer) {
        let _ = self.orders.send(Order::Accept(offset, buffer));
    }

    /// The end became known.
    pub fn end_at(&self, size_bytes: u64) {
        let _ = self.orders.send(Order::EndAt(size_bytes));
    }

    /// Wait until all is written and flushed.
    pub async fn finish(self) -> io::Result<()> {
        drop(self.orders);
        self.task.await.map_err(io::Error::other)?
    }
}

struct State {
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    waiting: BTreeMap<u64, Buffer>,
    front: u64,
    size_bytes: Option<u64>,
    pieces: Option<Pieces>,
    whole: Option<Digest>,
    hasher: Option<Hasher>,
}

impl State {
    async fn run(
        mut self,
        mut orders: UnboundedReceiver<Order>,
        words: &UnboundedSender<Word>,
    ) -> io::Result<()> {
        let mut judged = false;
        loop {
            if self.size_bytes == Some(self.front) && !judged {
                judged = true;
                self.writer.flush().await?;
                if let (Some(wanted), Some(hasher)) = (&self.whole, &self.hasher) {
                    let actual = hasher.finish();
                    let _ = words.send(Word::Whole { good: actual == *wanted, actual });
                }
                let _ = words.send(Word::Written(self.front));
            }
            let Some(order) = orders.recv().await else { break };
            match order {
                Order::Accept(offset, buffer) => {
                    self.waiting.insert(offset, buffer);
                    self.write_ready(words).await?;
                }
                Order::EndAt(size_bytes) => self.size_bytes = Some(size_bytes),
            }
        }
        self.writer.flush().await
    }

    /// Write whatever has its turn.
    async fn write_ready(&mut self, words: &UnboundedSender<Word>) -> io::Result<()> {
        loop {
            let limit = match &self.pieces {
                None => u64::MAX,
                Some(pieces) => {
                    let Some(piece) = pieces
                        .range_of(pieces.piece_at(self.front), self.size_bytes.unwrap_or(u64::MAX))
                    else {
                        return Ok(());
                    };
                    match self.judge(piece, pieces) {
                        None => return Ok(()),
                        Some(true) => {
                            let _ = words.send(Word::Good(piece));
                            piece.end
                        }
                        Some(false) => {
                            self.waiting.retain(|&at, buffer| {
                                at + buffer.len() as u64 <= piece.start || at >= piece.end
                            });
                            let _ = words.send(Word::Bad(piece));
                            return Ok(());
                        }
                    }
                }
            };
            let mut wrote = false;
            while self.front < limit {
                let Some((&at, _)) = self.waiting.range(..=self.front).next_back() else { break };
                let Some(buffer) = self.waiting.remove(&at) else { break };
                let end = at + buffer.len() as u64;
                if end <= self.front {
                    continue;
                }
                let from = (self.front - at) as usize;
                let to = (end.min(limit) - at) as usize;
                if let Some(hasher) = &mut self.hasher {
                    hasher.update(&buffer[from..to]);
                }
                self.writer.write_all(&buffer[from..to]).await?;
                self.front = at + to as u64;
                wrote = true;
                if end > limit {
                    self.waiting.insert(at, buffer);
                }
                let _ = words.send(Word::Written(self.front));
            }
            if !wrote || self.pieces.is_none() {
                return Ok(());
            }
        }
    }

    /// Whether a piece that lies in memory is good; `None` while some of it is missing.
    fn judge(&self, piece: Range, pieces: &Pieces) -> Option<bool> {
        let mut hasher = Hasher::new(pieces.algorithm());
        let mut at = piece.start;
        while at < piece.end {
            let (&start, buffer) = self.waiting.range(..=at).next_back()?;
            let end = (start + buffer.len() as u64).min(piece.end);
            if end <= at {
                return None;
            }
            hasher.update(&buffer[(at - start) as usize..(end - start) as usize]);
            at = end;
        }
        Some(pieces.digest(pieces.piece_at(piece.start)) == Some(hasher.finish()))
    }
}
