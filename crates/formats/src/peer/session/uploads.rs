//! What the peer asks this side for.
//!
//! Requests wait in order; there are never more than the number that this side announced
//! (`reqq`). Refused requests are counted until one is answered, so that a flood ends the
//! connection.

use std::collections::VecDeque;

use crate::peer::layout::{Block, PieceIndex};

/// The requests of the peer.
#[derive(Clone, Debug)]
pub(super) struct Uploads {
    queue: VecDeque<Block>,
    queue_max: usize,
    /// Pieces that the peer may ask for although it is choked.
    allowed_fast: Vec<PieceIndex>,
    refused: usize,
}

impl Uploads {
    pub fn new(queue_max: usize) -> Uploads {
        Uploads { queue: VecDeque::new(), queue_max, allowed_fast: Vec::new(), refused: 0 }
    }

    /// Returns how many requests wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Adds a request; returns whether it was taken.
    pub fn push(&mut self, block: Block, is_choking: bool) -> bool {
        let is_taken = self.queue.len() < self.queue_max
            && (!is_choking || self.allowed_fast.contains(&block.piece));
        if is_taken {
            self.queue.push_back(block);
        }
        is_taken
    }

    /// Returns the request to answer next.
    pub fn pop(&mut self) -> Option<Block> {
        self.queue.pop_front()
    }

    /// Counts a refused request; returns whether there were too many since the last answer.
    pub fn is_flood(&mut self) -> bool {
        self.refused += 1;
        self.refused > self.queue_max * REFUSED_FACTOR
    }

    /// Records that a request was answered, or that the peer was unchoked.
    pub fn forgive(&mut self) {
        self.refused = 0;
    }

    /// Removes a request; returns whether it was there.
    pub fn cancel(&mut self, block: Block) -> bool {
        let at = self.queue.iter().position(|waiting| *waiting == block);
        at.is_some_and(|at| self.queue.remove(at).is_some())
    }

    /// Removes the requests that a choke ends: all, or with the fast extension all but those of
    /// allowed pieces.
    pub fn choke(&mut self, is_fast: bool) -> Vec<Block> {
        let allowed = std::mem::take(&mut self.allowed_fast);
        let ended = self.drop(|block| !is_fast || !allowed.contains(&block.piece));
        self.allowed_fast = allowed;
        ended
    }

    /// Removes the requests that `which` selects.
    pub fn drop(&mut self, which: impl Fn(Block) -> bool) -> Vec<Block> {
        let ended = self.queue.iter().copied().filter(|block| which(*block)).collect();
        self.queue.retain(|block| !which(*block));
        ended
    }

    /// Allows a piece although the peer is choked; returns whether that is new.
    pub fn allow(&mut self, piece: PieceIndex) -> bool {
        let is_new = !self.allowed_fast.contains(&piece);
        if is_new {
            self.allowed_fast.push(piece);
        }
        is_new
    }
}

/// Refused requests in a row are a flood beyond this many full queues. A peer that is choked has
/// one full queue under way, and may ask again once before it sees the rejections.
const REFUSED_FACTOR: usize = 3;
