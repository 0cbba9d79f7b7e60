//! The SHA-256 Merkle tree of a file in BitTorrent v2 (BEP 52).
//!
//! The leaves are the SHA-256 of blocks of 16 KiB; the last block may be shorter. A parent is the
//! SHA-256 of its two children. The leaves are filled up with zero hashes to a power of two. A
//! layer has a height: 0 for the leaves, one more for each layer above. In the piece layer a hash
//! stands for one piece; hashes that stand for nothing of the file are left out of it.
//!
//! [`Sha256Tree`] computes the root and the piece layer of a file front to back, from bytes or from
//! leaves that other threads hashed. Blocks and pieces that arrive in any order are checked with
//! [`piece_root`] and with [`climb`], which verifies hashes that a peer sent.

use sha2::Digest as _;

use super::sha_pair::sha256_pair;

/// A leaf, an inner hash or a root.
pub type MerkleHash = [u8; 32];

/// The bytes of a file under one leaf.
pub const LEAF_BYTES: u64 = 16 * 1024;

/// Returns the leaf of one block, which has 1 to [`LEAF_BYTES`] bytes.
pub fn leaf(block: &[u8]) -> MerkleHash {
    sha2::Sha256::digest(block).into()
}

/// Appends the leaves of the next bytes of a file to `leaves`. All blocks are whole, but perhaps the
/// last one.
pub fn push_leaves(leaves: &mut Vec<MerkleHash>, bytes: &[u8]) {
    let (pairs, rest) = bytes.as_chunks::<{ 2 * LEAF_BYTES as usize }>();
    for pair in pairs {
        let (one, other) = pair.split_at(LEAF_BYTES as usize);
        let hashes = sha256_pair([one, other]).unwrap_or_else(|| [leaf(one), leaf(other)]);
        leaves.extend(hashes);
    }
    leaves.extend(rest.chunks(LEAF_BYTES as usize).map(leaf));
}

/// Returns the hash above two others.
pub fn parent(left: &MerkleHash, right: &MerkleHash) -> MerkleHash {
    let mut pair = [0; 64];
    pair[..32].copy_from_slice(left);
    pair[32..].copy_from_slice(right);
    sha2::Sha256::digest(pair).into()
}

/// Returns the hash at `height` of which all leaves are filled up.
pub fn zero_hash(height: u32) -> MerkleHash {
    (0..height).fold([0; 32], |below, _| parent(&below, &below))
}

/// Returns the height of the piece layer, and of the root of a whole piece.
///
/// # Panics
/// Unless `piece_bytes` is a power of two of at least [`LEAF_BYTES`].
pub fn piece_height(piece_bytes: u64) -> u32 {
    assert!(piece_bytes.is_power_of_two() && piece_bytes >= LEAF_BYTES, "{piece_bytes}");
    (piece_bytes / LEAF_BYTES).ilog2()
}

/// Returns the height of the root of a file that is not empty.
pub fn root_height(file_bytes: u64) -> u32 {
    height_of(file_bytes.div_ceil(LEAF_BYTES))
}

/// Returns the hash in the piece layer of a piece with these bytes; only the last piece of a file
/// may be shorter than `piece_bytes`. Not for files of one piece: [`file_root`] is right there.
///
/// # Panics
/// As [`piece_height`], and if there are more bytes than a piece has, or none.
pub fn piece_root(bytes: &[u8], piece_bytes: u64) -> MerkleHash {
    let height = piece_height(piece_bytes);
    assert!(!bytes.is_empty() && bytes.len() as u64 <= piece_bytes, "{} bytes", bytes.len());
    root_of_leaves(bytes, height)
}

/// Returns the root of a file, `None` if it is empty.
pub fn file_root(bytes: &[u8]) -> Option<MerkleHash> {
    (!bytes.is_empty()).then(|| root_of_leaves(bytes, root_height(bytes.len() as u64)))
}

fn root_of_leaves(bytes: &[u8], height: u32) -> MerkleHash {
    let mut tree = Spine::new(0);
    bytes.chunks(LEAF_BYTES as usize).for_each(|block| tree.push(leaf(block), |_, _| ()));
    tree.finish(height, |_, _| ())
}

/// Returns the root of a file from its piece layer (two hashes or more, as such files have).
///
/// # Panics
/// As [`piece_height`].
pub fn root_of_layer(layer: &[MerkleHash], piece_bytes: u64) -> MerkleHash {
    let base = piece_height(piece_bytes);
    let mut tree = Spine::new(base);
    layer.iter().for_each(|hash| tree.push(*hash, |_, _| ()));
    tree.finish(base + height_of(layer.len() as u64), |_, _| ())
}

/// Fills up a layer to the next power of two, as its place in the tree needs.
pub fn fill_layer(layer: &mut Vec<MerkleHash>, height: u32) {
    layer.resize(layer.len().next_power_of_two(), zero_hash(height));
}

/// The tree of one file, computed front to back.
///
/// Beside the piece layer it keeps one hash for each height.
#[derive(Clone, Debug)]
pub struct Sha256Tree {
    tree: Spine,
    piece_height: u32,
    layer: Vec<MerkleHash>,
    /// An unfinished block, and its bytes.
    block: sha2::Sha256,
    block_bytes: u64,
}

/// What [`Sha256Tree::finish`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHashes {
    /// The root of the file's tree.
    pub root: MerkleHash,
    /// The piece layer; empty for a file of a single piece, whose only piece has the root.
    pub piece_layer: Vec<MerkleHash>,
}

impl Sha256Tree {
    /// Returns the tree of an empty file, whose pieces will have `piece_bytes`.
    ///
    /// # Panics
    /// As [`piece_height`].
    pub fn new(piece_bytes: u64) -> Sha256Tree {
        Sha256Tree {
            tree: Spine::new(0),
            piece_height: piece_height(piece_bytes),
            layer: Vec::new(),
            block: sha2::Sha256::new(),
            block_bytes: 0,
        }
    }

    /// Hashes the next bytes of the file, in slices of any length.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let missing = (LEAF_BYTES - self.block_bytes) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(missing));
            self.block.update(now);
            self.block_bytes += now.len() as u64;
            bytes = later;
            if self.block_bytes == LEAF_BYTES {
                self.end_block();
            }
        }
    }

    /// Adds the next [`leaf`], hashed elsewhere.
    ///
    /// # Panics
    /// After [`Sha256Tree::update`] with a part of a block: its place would be unclear.
    pub fn push_leaf(&mut self, leaf: MerkleHash) {
        assert_eq!(self.block_bytes, 0, "a leaf follows a part of a block");
        let Sha256Tree { tree, piece_height, layer, .. } = self;
        tree.push(leaf, |height, hash| {
            if height == *piece_height {
                layer.push(*hash);
            }
        });
    }

    /// Returns the root and the piece layer, `None` for an empty file, which has no tree.
    pub fn finish(mut self) -> Option<FileHashes> {
        if self.block_bytes > 0 {
            self.end_block();
        }
        let leaves = self.tree.count;
        if leaves == 0 {
            return None;
        }
        let Sha256Tree { tree, piece_height, mut layer, .. } = self;
        let root = tree.finish(height_of(leaves), |height, hash| {
            if height == piece_height {
                layer.push(*hash);
            }
        });
        if leaves <= 1 << piece_height {
            layer.clear();
        }
        Some(FileHashes { root, piece_layer: layer })
    }

    /// Returns the hash at `height` of the bytes so far, filled up; at least one block is below it.
    pub fn root_at(mut self, height: u32) -> MerkleHash {
        if self.block_bytes > 0 {
            self.end_block();
        }
        self.tree.finish(height, |_, _| ())
    }

    fn end_block(&mut self) {
        let leaf = self.block.finalize_reset().into();
        self.block_bytes = 0;
        self.push_leaf(leaf);
    }
}

/// The roots of the complete subtrees to the left of the next hash, the largest first. As in a
/// binary counter, there is one for each bit of `count` that is set.
#[derive(Clone, Debug)]
struct Spine {
    base: u32,
    count: u64,
    roots: Vec<MerkleHash>,
}

impl Spine {
    /// Returns a tree whose lowest layer is at height `base`.
    fn new(base: u32) -> Spine {
        Spine { base, count: 0, roots: Vec::new() }
    }

    /// Adds a hash of the lowest layer; `completed` receives each hash that this completes.
    fn push(&mut self, hash: MerkleHash, mut completed: impl FnMut(u32, &MerkleHash)) {
        let mut hash = hash;
        completed(self.base, &hash);
        for level in 0..self.count.trailing_ones() {
            // A bit that is set has its root.
            let Some(left) = self.roots.pop() else { break };
            hash = parent(&left, &hash);
            completed(self.base + level + 1, &hash);
        }
        self.roots.push(hash);
        self.count += 1;
    }

    /// Fills up with zero hashes to one subtree of `height`, and returns its root; `completed` as
    /// in [`Spine::push`].
    fn finish(mut self, height: u32, mut completed: impl FnMut(u32, &MerkleHash)) -> MerkleHash {
        let mut zero = zero_hash(self.base);
        let mut last: Option<MerkleHash> = None;
        for level in 0..height.saturating_sub(self.base) {
            let left = if self.count >> level & 1 == 1 { self.roots.pop() } else { None };
            last = match (left, last) {
                (Some(left), Some(last)) => Some(parent(&left, &last)),
                (Some(left), None) => Some(parent(&left, &zero)),
                (None, Some(last)) => Some(parent(&last, &zero)),
                (None, None) => None,
            };
            zero = parent(&zero, &zero);
            if let Some(last) = &last {
                completed(self.base + level + 1, last);
            }
        }
        last.or_else(|| self.roots.pop()).unwrap_or(zero)
    }
}

/// Hashes of one layer that a peer sent, and the uncles that prove them (`hashes` message of
/// BEP 52).
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    /// The height of the layer of `hashes`.
    pub height: u32,
    /// The place of the first hash in its layer; a multiple of `span`.
    pub index: u64,
    /// The number of hashes requested; a power of two.
    pub span: u64,
    /// The hashes; fewer than `span` where the layer ends.
    pub hashes: &'a [MerkleHash],
    /// The sibling of the subtree over the hashes, then those of its ancestors.
    pub uncles: &'a [MerkleHash],
}

/// A hash and its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The height of its layer.
    pub height: u32,
    /// Its place in that layer.
    pub index: u64,
    /// The hash.
    pub hash: MerkleHash,
}

/// Computes the hash that a proof leads to. The hashes are right if the tree has just this hash at
/// just this place; whoever knows only the root compares the height with [`root_height`] as well.
///
/// # Errors
/// [`ProofError`] if the proof cannot be part of a tree.
pub fn climb(proof: Proof<'_>) -> Result<Place, ProofError> {
    let Proof { height, index, span, hashes, uncles } = proof;
    if !span.is_power_of_two() || !index.is_multiple_of(span) {
        return Err(ProofError::Position { index, span });
    }
    if hashes.is_empty() || hashes.len() as u64 > span {
        return Err(ProofError::Count { hashes: hashes.len(), span });
    }
    let top = height.saturating_add(span.ilog2());
    if u64::from(top) + uncles.len() as u64 > u64::from(HEIGHT_MAX) {
        return Err(ProofError::Height);
    }
    let mut tree = Spine::new(height);
    hashes.iter().for_each(|hash| tree.push(*hash, |_, _| ()));
    let mut place = Place { height: top, index: index / span, hash: tree.finish(top, |_, _| ()) };
    for uncle in uncles {
        let is_left = place.index.is_multiple_of(2);
        let hash = if is_left { parent(&place.hash, uncle) } else { parent(uncle, &place.hash) };
        place = Place { height: place.height + 1, index: place.index / 2, hash };
    }
    Ok(place)
}

/// Verifies a proof against the root of a file.
///
/// # Errors
/// [`ProofError`] if it does not lead there.
pub fn verify(proof: Proof<'_>, root: &MerkleHash, file_bytes: u64) -> Result<(), ProofError> {
    let place = climb(proof)?;
    let expected = Place { height: root_height(file_bytes), index: 0, hash: *root };
    if place.height != expected.height || place.index != 0 {
        return Err(ProofError::Height);
    }
    if place == expected { Ok(()) } else { Err(ProofError::Mismatch) }
}

/// Returns the uncles that prove `span` hashes from `index` on of a layer, up to `count` of them,
/// as a seeder sends them; `layer` are all its hashes, at `height`. `None` if there are no such
/// hashes.
pub fn uncles(
    layer: &[MerkleHash],
    height: u32,
    index: u64,
    span: u64,
    count: usize,
) -> Option<Vec<MerkleHash>> {
    let width = (layer.len() as u64).next_power_of_two();
    let is_inside = index < layer.len() as u64 && span <= width;
    if !span.is_power_of_two() || !index.is_multiple_of(span) || !is_inside {
        return None;
    }
    let mut found = Vec::new();
    let mut subtree = index / span;
    let mut subtree_span = span;
    while subtree_span < width && found.len() < count {
        let sibling = (subtree ^ 1) * subtree_span;
        let begin = layer.len().min(sibling as usize);
        let end = layer.len().min((sibling + subtree_span) as usize);
        let mut tree = Spine::new(height);
        layer[begin..end].iter().for_each(|hash| tree.push(*hash, |_, _| ()));
        let top = height + subtree_span.ilog2();
        found.push(if begin == end { zero_hash(top) } else { tree.finish(top, |_, _| ()) });
        subtree /= 2;
        subtree_span *= 2;
    }
    Some(found)
}

/// Why hashes of a peer are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The place cannot be requested.
    #[error("{span} hashes from number {index} on are not a subtree")]
    Position {
        /// The number of the first hash.
        index: u64,
        /// Hashes requested.
        span: u64,
    },
    /// No hashes, or more than requested.
    #[error("{hashes} hashes came where {span} were requested")]
    Count {
        /// Hashes that came.
        hashes: usize,
        /// Hashes requested.
        span: u64,
    },
    /// The number of uncles does not fit.
    #[error("the proof does not end at the height of the root")]
    Height,
    /// They are not those of the file.
    #[error("the hashes do not match the root")]
    Mismatch,
}

/// The height of a tree with so many hashes in its lowest layer, from that layer on.
fn height_of(hashes: u64) -> u32 {
    // Rounded up by hand, since the next power of two of a hostile number may not fit.
    hashes.max(1).ilog2() + u32::from(!hashes.max(1).is_power_of_two())
}

/// Above the root of the largest file that 64 bits can describe.
const HEIGHT_MAX: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i * 7 + (i >> 8) * 13 + (i >> 16)) as u8).collect()
    }

    /// The definition, word for word: all leaves, filled up, halved until one is left.
    fn naive_layers(leaves: &[MerkleHash]) -> Vec<Vec<MerkleHash>> {
        let mut layer = leaves.to_vec();
        layer.resize(layer.len().next_power_of_two(), [0; 32]);
        let mut layers = vec![layer.clone()];
        while layer.len() > 1 {
            layer = layer.chunks(2).map(|pair| leaf(&pair.concat())).collect();
            layers.push(layer.clone());
        }
        layers
    }

    fn naive(leaves: &[MerkleHash], height: u32) -> FileHashes {
        let layers = naive_layers(leaves);
        let root = layers[layers.len() - 1][0];
        let pieces = leaves.len().div_ceil(1 << height);
        let piece_layer =
            if pieces > 1 { layers[height as usize][..pieces].to_vec() } else { vec![] };
        FileHashes { root, piece_layer }
    }

    #[test]
    fn the_known_values_of_others_are_met() {
        // As libtorrent 2.1.1 computes them, for a file of zeros of this many bytes.
        let hex = |hash: MerkleHash| hash.map(|byte| format!("{byte:02x}")).concat();
        let roots = ROOTS_OF_ZEROS.map(|(bytes, _)| hex(file_root(&vec![0; bytes]).unwrap()));
        assert_eq!(roots, ROOTS_OF_ZEROS.map(|(_, root)| root));
        assert_eq!(file_root(&[]), None);
    }

    const ROOTS_OF_ZEROS: [(usize, &str); 4] = [
        (1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
        (16_384, "4fe7b59af6de3b665b67788cc2f99892ab827efae3a467342b3bb4e3bc8e5bfe"),
        (16_385, "477e14ff3453ec4ec3855f8753cb07288aade5618a473ccc2ab1208886e460ec"),
        (100_000, "e92dc22e05df5bb6a89aecc0c58f10d0d270d676a648b1ea47258121fd79a9d3"),
    ];

    #[test]
    fn every_awkward_size_equals_the_definition() {
        for piece_bytes in [LEAF_BYTES, 2 * LEAF_BYTES, 8 * LEAF_BYTES] {
            for leaves in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24] {
                for more in [-1, 0, 1] {
                    let input = content((leaves * LEAF_BYTES as i64 + more) as usize);
                    let hashes: Vec<_> = input.chunks(LEAF_BYTES as usize).map(leaf).collect();
                    let expected = naive(&hashes, piece_height(piece_bytes));
                    let mut tree = Sha256Tree::new(piece_bytes);
                    input.chunks(10_007).for_each(|part| tree.update(part));
                    assert_eq!(tree.finish(), Some(expected.clone()), "{leaves} {more}");
                    assert_eq!(file_root(&input), Some(expected.root));
                    let pieces: Vec<_> = input
                        .chunks(piece_bytes as usize)
                        .map(|piece| piece_root(piece, piece_bytes))
                        .collect();
                    if pieces.len() > 1 {
                        assert_eq!(pieces, expected.piece_layer);
                        assert_eq!(root_of_layer(&pieces, piece_bytes), expected.root);
                    }
                }
            }
        }
        assert_eq!(Sha256Tree::new(LEAF_BYTES).finish(), None);
    }

    #[test]
    #[should_panic(expected = "a leaf follows a part of a block")]
    fn leaves_do_not_mix_with_parts_of_blocks() {
        let mut tree = Sha256Tree::new(LEAF_BYTES);
        tree.update(b"part");
        tree.push_leaf([1; 32]);
    }

    #[test]
    fn impossible_proofs_are_refused() {
        let good = Proof { height: 0, index: 2, span: 2, hashes: &[[1; 32]; 2], uncles: &[] };
        assert!(climb(good).is_ok());
        for (bad, error) in [
            (Proof { index: 3, ..good }, ProofError::Position { index: 3, span: 2 }),
            (Proof { span: 3, ..good }, ProofError::Position { index: 2, span: 3 }),
            (Proof { span: 0, ..good }, ProofError::Position { index: 2, span: 0 }),
            (Proof { span: 1, ..good }, ProofError::Count { hashes: 2, span: 1 }),
            (Proof { hashes: &[], ..good }, ProofError::Count { hashes: 0, span: 2 }),
            (Proof { height: u32::MAX, ..good }, ProofError::Height),
            (Proof { uncles: &[[0; 32]; 64], ..good }, ProofError::Height),
            (Proof { index: 0, span: 1 << 63, ..good }, ProofError::Height),
        ] {
            assert_eq!(climb(bad).unwrap_err(), error);
        }
        assert_eq!(root_height(u64::MAX), 50);
    }

    proptest! {
        #[test]
        fn leaves_from_elsewhere_give_the_same(count in 1..70usize, height in 0..5u32) {
            let leaves: Vec<MerkleHash> = (0..count).map(|i| [i as u8; 32]).collect();
            let mut tree = Sha256Tree::new(LEAF_BYTES << height);
            leaves.iter().for_each(|leaf| tree.push_leaf(*leaf));
            let found = tree.finish().unwrap();
            prop_assert_eq!(&found, &naive(&leaves, height));
            let mut filled = found.piece_layer;
            if !filled.is_empty() {
                fill_layer(&mut filled, height);
                prop_assert_eq!(&filled, &naive_layers(&leaves)[height as usize]);
            }
        }

        #[test]
        fn proofs_hold_and_changed_ones_do_not(
            count in 2..70usize, height in 0..3u32, span_log in 0..4u32, at: prop::sample::Index, flip: prop::sample::Index,
        ) {
            let leaves: Vec<MerkleHash> = (0..count).map(|i| [i as u8 + 1; 32]).collect();
            let bytes = count as u64 * LEAF_BYTES;
            let layers = naive_layers(&leaves);
            let root = layers[layers.len() - 1][0];
            let real = count.div_ceil(1 << height);
            let layer = &layers[(height as usize).min(layers.len() - 1)];
            let height = height.min(layers.len() as u32 - 1);
            let span = (1u64 << span_log).min(layer.len() as u64);
            let index = at.index(real) as u64 / span * span;
            let end = real.min((index + span) as usize);
            let hashes = layer[index as usize..end].to_vec();
            let uncles = uncles(&layer[..real], height, index, span, usize::MAX).unwrap();
            let proof = Proof { height, index, span, hashes: &hashes, uncles: &uncles };
            prop_assert_eq!(verify(proof, &root, bytes), Ok(()));
            // Each uncle is the one of the whole tree.
            for (step, uncle) in uncles.iter().enumerate() {
                let up = height as usize + span.ilog2() as usize + step;
                prop_assert_eq!(uncle, &layers[up][((index / span) >> step) as usize ^ 1]);
            }
            // With the filling sent along it holds as well.
            let full = layer[index as usize..(index + span) as usize].to_vec();
            prop_assert_eq!(verify(Proof { hashes: &full, ..proof }, &root, bytes), Ok(()));
            let mut changed = [&hashes[..], &uncles[..]].concat();
            let byte = flip.index(changed.len() * 32);
            changed[byte / 32][byte % 32] ^= 1;
            let (hashes, uncles) = changed.split_at(hashes.len());
            prop_assert_eq!(verify(Proof { hashes, uncles, ..proof }, &root, bytes), Err(ProofError::Mismatch));
            // An inner hash is not taken for a leaf.
            let low = Proof { height: height + 1, ..proof };
            prop_assert_eq!(verify(low, &root, bytes), Err(ProofError::Height));
        }
    }
}
