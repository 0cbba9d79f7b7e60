//! BLAKE3 front to back, in a form that can be saved at any byte.
//!
//! The library's own hasher does not expose its state. This one keeps the chaining values of
//! finished subtrees on a stack, one per set bit of the number of chunks so far, and at most one
//! chunk of bytes; the library hashes whole subtrees at full vector width. The stack is merged
//! lazily, because the last merge of all must be flagged as the root (BLAKE3 paper, section 5.1.2).

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

/// The state: `stack` covers the first `chunks` chunks, `tail` holds what follows them.
#[derive(Clone, Debug, Default)]
pub(super) struct Blake3Stream {
    chunks: u64,
    stack: Vec<ChainingValue>,
    tail: Vec<u8>,
}

impl Blake3Stream {
    pub(super) fn update(&mut self, mut input: &[u8]) {
        if !self.tail.is_empty() {
            let take = input.len().min(CHUNK - self.tail.len());
            self.tail.extend_from_slice(&input[..take]);
            input = &input[take..];
            // A full chunk stays while nothing follows it: it may be the whole input.
            if input.is_empty() {
                return;
            }
            let chaining_value = subtree(self.chunks, &self.tail);
            self.push(chaining_value, 1);
            self.tail.clear();
        }
        while input.len() > CHUNK {
            // The largest subtree that may begin here and is filled by the input.
            let fits = 1 << (input.len() / CHUNK).ilog2();
            let aligned = match self.chunks {
                0 => fits,
                chunks => 1 << chunks.trailing_zeros().min(62),
            };
            let chunks = fits.min(aligned);
            let (now, later) = input.split_at(chunks as usize * CHUNK);
            if chunks == 1 {
                self.push(subtree(self.chunks, now), 1);
            } else {
                // As two halves: if this were the end, their merge would be the root.
                let (left, right) = now.split_at(now.len() / 2);
                let left = subtree(self.chunks, left);
                self.push(left, chunks / 2);
                let right = subtree(self.chunks, right);
                self.push_unmerged(right, chunks / 2);
            }
            input = later;
        }
        self.tail.extend_from_slice(input);
    }

    pub(super) fn finish(&self) -> [u8; 32] {
        if self.chunks == 0 {
            return *blake3::hash(&self.tail).as_bytes();
        }
        let mut stack = self.stack.clone();
        let mut right = if self.tail.is_empty() {
            stack.pop()
        } else {
            // The same merge as in `push`, before this last subtree.
            merge_down_to(&mut stack, self.chunks.count_ones() as usize);
            Some(subtree(self.chunks, &self.tail))
        };
        while let Some(left) = stack.pop() {
            let Some(cv) = right else { break };
            if stack.is_empty() {
                return *merge_subtrees_root(&left, &cv, Mode::Hash).as_bytes();
            }
            right = Some(merge_subtrees_non_root(&left, &cv, Mode::Hash));
        }
        // Unreachable while the invariant holds that at least two subtrees exist once a chunk has
        // left the tail; `load` checks it too.
        [0; 32]
    }

    /// Pushes the chaining value of the next `chunks` chunks.
    fn push(&mut self, chaining_value: ChainingValue, chunks: u64) {
        merge_down_to(&mut self.stack, self.chunks.count_ones() as usize);
        self.push_unmerged(chaining_value, chunks);
    }

    fn push_unmerged(&mut self, chaining_value: ChainingValue, chunks: u64) {
        self.stack.push(chaining_value);
        self.chunks += chunks;
    }

    pub(super) fn save(&self, out: &mut Vec<u8>) {
        let mut stack = self.stack.clone();
        merge_down_to(&mut stack, depth(self.chunks, &self.tail));
        out.extend_from_slice(&self.chunks.to_le_bytes());
        out.extend(stack.iter().flatten());
        out.extend_from_slice(&self.tail);
    }

    /// Loads the output of `save`; `None` if it is invalid.
    pub(super) fn load(bytes: &[u8], input_bytes: u64) -> Option<Blake3Stream> {
        let (chunks, rest) = bytes.split_first_chunk::<8>()?;
        let chunks = u64::from_le_bytes(*chunks);
        let tail_bytes = input_bytes.checked_sub(chunks.checked_mul(CHUNK as u64)?)?;
        if tail_bytes > CHUNK as u64 || (tail_bytes == 0 && chunks % 2 == 1) {
            return None;
        }
        let tail = rest.get(rest.len().checked_sub(tail_bytes as usize)?..)?.to_vec();
        let (stack, odd) = rest[..rest.len() - tail.len()].as_chunks::<32>();
        if !odd.is_empty() || stack.len() != depth(chunks, &tail) {
            return None;
        }
        Some(Blake3Stream { chunks, stack: stack.to_vec(), tail })
    }
}

/// Returns the least number of subtrees for `chunks` chunks: one per set bit, plus one if nothing
/// follows them, because the two halves of the last must not be merged yet.
fn depth(chunks: u64, tail: &[u8]) -> usize {
    chunks.count_ones() as usize + usize::from(tail.is_empty() && chunks > 0)
}

/// Merges the last neighbours until at most `depth` subtrees are left.
fn merge_down_to(stack: &mut Vec<ChainingValue>, depth: usize) {
    while stack.len() > depth {
        let (Some(right), Some(left)) = (stack.pop(), stack.pop()) else { return };
        stack.push(merge_subtrees_non_root(&left, &right, Mode::Hash));
    }
}

/// Returns the chaining value of the subtree that begins at chunk `chunk`.
fn subtree(chunk: u64, bytes: &[u8]) -> ChainingValue {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(chunk * CHUNK as u64).update(bytes);
    hasher.finalize_non_root()
}

/// BLAKE3's unit, 1024 bytes.
const CHUNK: usize = blake3::CHUNK_LEN;
