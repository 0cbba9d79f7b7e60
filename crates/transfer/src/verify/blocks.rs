//! Proofs of the blocks of a file: a digest of the whole, digests of pieces, groups of a BLAKE3
//! tree.
//!
//! A block is hashed from its start to its end; different blocks in any order. The caller
//! ([`super::track`]) keeps that order. This file knows digests, not where bytes are.

use std::collections::BTreeMap;

use swath_model::Range;
use swath_model::digest::blake3_tree::GroupHasher;
use swath_model::digest::{Algorithm, Blake3Tree, Digest, Hasher};
use swath_model::pieces::{PieceHasher, Pieces};

use super::verifier::{Proof, Saved, Verdict};

/// A kind of proof. To add one: implement this, and name it in [`verifiers`].
pub(super) trait BlockVerifier: Send {
    /// Returns whether the file is one block.
    fn is_whole(&self) -> bool {
        false
    }

    /// Returns the block with the byte at `offset`.
    fn block_at(&self, offset: u64) -> u64;

    /// Returns the bytes of a block in a file of `size_bytes`; empty if it has none.
    fn range_of(&self, block: u64, size_bytes: u64) -> Range;

    /// Takes in the next bytes of a block.
    fn update(&mut self, block: u64, bytes: &[u8]);

    /// Judges a block, which has this range, after its last byte.
    fn complete(&mut self, block: u64, range: Range) -> Option<Verdict>;

    /// Judges the file after its last byte.
    fn finish(&self) -> Option<Verdict>;

    /// Forgets the bytes of a block.
    fn forget(&mut self, block: u64);

    /// Resumes from an earlier run, as far as `has` finds the bytes on the disk. Returns the ranges
    /// that need not be hashed again.
    fn resume(&mut self, left: &Hashed, has: &dyn Fn(Range) -> bool) -> Vec<Range>;

    /// Returns the state of a hash that goes from the first byte to the last.
    fn save(&self) -> Option<Saved> {
        None
    }
}

/// Bytes that an earlier run has hashed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hashed {
    /// Bytes proved by piece digests.
    pub proved: Vec<Range>,
    /// Hashes that go from the first byte to the last.
    pub saved: Vec<Saved>,
    /// Chaining values of groups of the BLAKE3 tree, by their numbers.
    pub groups: Vec<(u64, [u8; 32])>,
}

/// Returns the verifiers for a file of `size_bytes` (`u64::MAX` while that is unknown). Pieces
/// come first: the whole may take in what they prove.
pub(super) fn verifiers(proof: &Proof, size_bytes: u64) -> Vec<Box<dyn BlockVerifier>> {
    let mut all: Vec<Box<dyn BlockVerifier>> = Vec::new();
    // What also proves the whole.
    let mut included = None;
    if let Some(pieces) = &proof.pieces {
        all.push(Box::new(PieceDigests { pieces: pieces.clone(), open: BTreeMap::new() }));
    } else if let Some(voucher) = &proof.voucher {
        let block_bytes = voucher.block_bytes().max(1);
        match Blake3Tree::with_group(size_bytes, block_bytes) {
            Ok(tree) => {
                let mut wholes = proof.wholes.iter();
                let wanted = wholes.find(|it| it.algorithm() == Algorithm::Blake3).copied();
                included = wanted;
                all.push(Box::new(Blake3Groups {
                    tree,
                    wanted,
                    is_vouched: true,
                    open: BTreeMap::new(),
                }));
            }
            Err(_) => all.push(Box::new(VouchedBlocks { block_bytes, open: BTreeMap::new() })),
        }
    }
    for &wanted in proof.wholes.iter().filter(|&&whole| included != Some(whole)) {
        let tree = (wanted.algorithm() == Algorithm::Blake3 && size_bytes != u64::MAX)
            .then(|| Blake3Tree::new(size_bytes).ok())
            .flatten();
        all.push(match tree {
            Some(tree) => {
                let (wanted, open) = (Some(wanted), BTreeMap::new());
                Box::new(Blake3Groups { tree, wanted, is_vouched: false, open })
            }
            None => Box::new(WholeDigest { wanted, hasher: Hasher::new(wanted.algorithm()) }),
        });
    }
    all
}

/// A digest of the whole, front to back.
struct WholeDigest {
    wanted: Digest,
    hasher: Hasher,
}

impl BlockVerifier for WholeDigest {
    fn is_whole(&self) -> bool {
        true
    }

    fn block_at(&self, _: u64) -> u64 {
        0
    }

    fn range_of(&self, _: u64, size_bytes: u64) -> Range {
        Range::new(0, size_bytes)
    }

    fn update(&mut self, _: u64, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    fn complete(&mut self, _: u64, _: Range) -> Option<Verdict> {
        None
    }

    fn finish(&self) -> Option<Verdict> {
        Some(Verdict::Whole { wanted: self.wanted, actual: self.hasher.finish() })
    }

    fn forget(&mut self, _: u64) {
        self.hasher = Hasher::new(self.wanted.algorithm());
    }

    fn resume(&mut self, left: &Hashed, has: &dyn Fn(Range) -> bool) -> Vec<Range> {
        let front = |saved: &&Saved| Range::new(0, saved.front);
        let own = left.saved.iter().filter(|saved| saved.algorithm == self.wanted.algorithm());
        let best = own.filter(|saved| has(front(saved))).max_by_key(|saved| saved.front);
        let Some(saved) = best else { return Vec::new() };
        match Hasher::load(saved.algorithm, &saved.state) {
            Ok(hasher) if hasher.bytes() == saved.front => {
                self.hasher = hasher;
                vec![front(&saved)]
            }
            _ => Vec::new(),
        }
    }

    fn save(&self) -> Option<Saved> {
        let (algorithm, front) = (self.hasher.algorithm(), self.hasher.bytes());
        (front > 0).then(|| Saved { algorithm, front, state: self.hasher.save() })
    }
}

/// A digest of each piece.
struct PieceDigests {
    pieces: Pieces,
    open: BTreeMap<u64, PieceHasher>,
}

impl BlockVerifier for PieceDigests {
    fn block_at(&self, offset: u64) -> u64 {
        self.pieces.piece_at(offset)
    }

    fn range_of(&self, block: u64, size_bytes: u64) -> Range {
        self.pieces
            .range_of(block, size_bytes)
            .unwrap_or_else(|| Range::new(size_bytes, size_bytes))
    }

    fn update(&mut self, block: u64, bytes: &[u8]) {
        let new = || self.pieces.hasher(block);
        self.open.entry(block).or_insert_with(new).update(bytes);
    }

    fn complete(&mut self, block: u64, range: Range) -> Option<Verdict> {
        let actual = self.open.remove(&block)?.finish();
        Some(match self.pieces.digest(block) == Some(actual) {
            true => Verdict::Good(range),
            false => Verdict::Bad { piece: range, actual },
        })
    }

    fn finish(&self) -> Option<Verdict> {
        None
    }

    fn forget(&mut self, block: u64) {
        self.open.remove(&block);
    }

    fn resume(&mut self, left: &Hashed, _: &dyn Fn(Range) -> bool) -> Vec<Range> {
        left.proved.clone()
    }
}

/// Takes in the next bytes of a group of a tree.
fn update_group(
    tree: &Blake3Tree,
    open: &mut BTreeMap<u64, GroupHasher>,
    group: u64,
    bytes: &[u8],
) {
    if !open.contains_key(&group)
        && let Ok(hasher) = tree.start(group)
    {
        open.insert(group, hasher);
    }
    if let Some(hasher) = open.get_mut(&group) {
        hasher.update(bytes);
    }
}

/// Blocks that somebody vouches for, if they are no subtrees.
struct VouchedBlocks {
    block_bytes: u64,
    open: BTreeMap<u64, Hasher>,
}

impl BlockVerifier for VouchedBlocks {
    fn block_at(&self, offset: u64) -> u64 {
        offset / self.block_bytes
    }

    fn range_of(&self, block: u64, size_bytes: u64) -> Range {
        let start = block.saturating_mul(self.block_bytes).min(size_bytes);
        Range::new(start, start.saturating_add(self.block_bytes).min(size_bytes))
    }

    fn update(&mut self, block: u64, bytes: &[u8]) {
        self.open.entry(block).or_insert_with(|| Hasher::new(Algorithm::Blake3)).update(bytes);
    }

    fn complete(&mut self, block: u64, range: Range) -> Option<Verdict> {
        let actual = self.open.remove(&block)?.finish();
        Some(Verdict::Block { index: block, range, actual })
    }

    fn finish(&self) -> Option<Verdict> {
        None
    }

    fn forget(&mut self, block: u64) {
        self.open.remove(&block);
    }

    fn resume(&mut self, _: &Hashed, _: &dyn Fn(Range) -> bool) -> Vec<Range> {
        // Nobody knows who vouched for what an earlier run left.
        Vec::new()
    }
}

/// The tree of BLAKE3 over the whole, in any order of its groups. Somebody may vouch for each group by the
/// value of its subtree: no byte is hashed twice for that and for the whole.
struct Blake3Groups {
    tree: Blake3Tree,
    wanted: Option<Digest>,
    is_vouched: bool,
    open: BTreeMap<u64, GroupHasher>,
}

impl BlockVerifier for Blake3Groups {
    fn block_at(&self, offset: u64) -> u64 {
        offset / self.tree.group_bytes()
    }

    fn range_of(&self, block: u64, size_bytes: u64) -> Range {
        self.tree.range_of(block).unwrap_or_else(|| Range::new(size_bytes, size_bytes))
    }

    fn update(&mut self, block: u64, bytes: &[u8]) {
        update_group(&self.tree, &mut self.open, block, bytes);
    }

    fn complete(&mut self, block: u64, range: Range) -> Option<Verdict> {
        let value = self.tree.add_hashed(self.open.remove(&block)?).ok()?;
        if !self.is_vouched {
            return Some(Verdict::Group { index: block, value });
        }
        let actual = Digest::new(Algorithm::Blake3, &value).ok()?;
        Some(Verdict::Block { index: block, range, actual })
    }

    fn finish(&self) -> Option<Verdict> {
        Some(Verdict::Whole { wanted: self.wanted?, actual: self.tree.root()? })
    }

    fn forget(&mut self, block: u64) {
        self.open.remove(&block);
        self.tree.forget(block);
    }

    fn resume(&mut self, left: &Hashed, has: &dyn Fn(Range) -> bool) -> Vec<Range> {
        let mut hashed = Vec::new();
        // Nobody knows who vouched for what an earlier run left.
        let groups = left.groups.iter().filter(|_| !self.is_vouched);
        for &(index, value) in groups {
            if let Some(range) = self.tree.range_of(index).filter(|&range| has(range))
                && self.tree.set_cv(index, value).is_ok()
            {
                hashed.push(range);
            }
        }
        hashed
    }
}
