//! What this side asks the peer for.
//!
//! A byte is in at most one place: waiting in `queue`, or asked for in `sent`. A block leaves
//! `sent` when the peer delivers or refuses it. `late` remembers blocks that are not expected any
//! more but may still arrive, because the peer sent them before it saw our `cancel` or after a
//! `choke` that dropped them; only without the fast extension, which answers every request.

use std::collections::VecDeque;

use swath_model::{Range, RangeSet};

use crate::peer::layout::{Block, PieceIndex, PieceLayout};

/// The ranges and blocks of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    queue: VecDeque<Range>,
    sent: VecDeque<Sent>,
    late: VecDeque<Block>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    block: Block,
    is_cancelled: bool,
}

impl Requests {
    /// Returns how many requests are outstanding.
    pub fn outstanding(&self) -> usize {
        self.sent.len()
    }

    /// Returns whether nothing waits and nothing is outstanding.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.sent.is_empty()
    }

    /// Adds a range behind those that wait.
    pub fn want(&mut self, range: Range) {
        if !range.is_empty() {
            self.queue.push_back(range);
        }
    }

    /// Moves the next block from `queue` to `sent`. While the peer chokes, `only` are the pieces
    /// that it allows all the same.
    pub fn next(&mut self, layout: PieceLayout, only: Option<&[PieceIndex]>) -> Option<Block> {
        let (at, part) = match only {
            None => (0, *self.queue.front()?),
            Some(pieces) => self.queue.iter().enumerate().find_map(|(at, range)| {
                let part = |piece: &PieceIndex| layout.range_of(*piece)?.intersect(*range);
                Some((at, pieces.iter().filter_map(part).next()?))
            })?,
        };
        let Some((block, asked)) =
            layout.first_block(part).and_then(|block| Some((block, layout.range_of_block(block)?)))
        else {
            // No byte of it is in the torrent.
            self.queue.remove(at);
            return None;
        };
        let whole = self.queue[at];
        self.queue[at].start = asked.end;
        if self.queue[at].is_empty() {
            self.queue.remove(at);
        }
        if whole.start < asked.start {
            self.queue.insert(at, Range::new(whole.start, asked.start));
        }
        self.sent.push_back(Sent { block, is_cancelled: false });
        Some(block)
    }

    /// Records that `block` arrives. Returns whether it is wanted; `None` if it was never
    /// requested.
    pub fn deliver(&mut self, block: Block) -> Option<bool> {
        if let Some(sent) = self.take(block) {
            return Some(!sent.is_cancelled);
        }
        let at = self.late.iter().position(|late| *late == block)?;
        self.late.remove(at);
        Some(false)
    }

    /// Records that the peer refuses `block`. Returns whether it was wanted; `None` if it was not
    /// requested.
    pub fn reject(&mut self, block: Block) -> Option<bool> {
        Some(!self.take(block)?.is_cancelled)
    }

    fn take(&mut self, block: Block) -> Option<Sent> {
        // Peers answer in order, nearly always.
        let at = self.sent.iter().position(|sent| sent.block == block)?;
        self.sent.remove(at)
    }

    /// Forgets every byte of `range`; returns the blocks for which `cancel` must be sent. With the
    /// fast extension they stay outstanding until the peer answers.
    pub fn cancel(&mut self, range: Range, layout: PieceLayout, is_fast: bool) -> Vec<Block> {
        self.queue = self
            .queue
            .iter()
            .flat_map(|wait| {
                [
                    Range::new(wait.start, wait.end.min(range.start)),
                    Range::new(wait.start.max(range.end), wait.end),
                ]
            })
            .filter(|wait| !wait.is_empty())
            .collect();
        let within = |block| layout.range_of_block(block).is_some_and(|it| range.covers(it));
        let mut cancelled = Vec::new();
        for sent in self.sent.iter_mut().filter(|sent| !sent.is_cancelled && within(sent.block)) {
            sent.is_cancelled = true;
            cancelled.push(sent.block);
        }
        if !is_fast {
            self.sent.retain(|sent| !sent.is_cancelled);
            self.expect_late(&cancelled);
        }
        cancelled
    }

    /// Drops the outstanding requests that `which` selects; returns their bytes.
    pub fn drop_sent(&mut self, layout: PieceLayout, which: impl Fn(Block) -> bool) -> RangeSet {
        let dropped: Vec<Block> =
            self.sent.iter().map(|sent| sent.block).filter(|block| which(*block)).collect();
        self.sent.retain(|sent| !which(sent.block));
        self.expect_late(&dropped);
        dropped.iter().filter_map(|block| layout.range_of_block(*block)).collect()
    }

    /// Drops what waits and lies in `range`; returns its bytes.
    pub fn drop_waiting(&mut self, range: Range, layout: PieceLayout) -> RangeSet {
        let dropped = self.queue.iter().filter_map(|wait| wait.intersect(range)).collect();
        let sent = std::mem::take(&mut self.sent);
        self.cancel(range, layout, true);
        self.sent = sent;
        dropped
    }

    fn expect_late(&mut self, blocks: &[Block]) {
        self.late.extend(blocks);
        let excess = self.late.len().saturating_sub(LATE_MAX);
        self.late.drain(..excess);
    }
}

/// Blocks that may still arrive: as many as a connection of 1 Gbit/s has in flight in a second.
const LATE_MAX: usize = 8192;
