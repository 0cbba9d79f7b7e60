//! The BLAKE3 of a file whose parts arrive in any order.
//!
//! The file is cut into groups of a power of two bytes, which are subtrees of BLAKE3's own hash
//! tree. So each is hashed when it arrives, and only its chaining value is kept: 32 bytes per
//! group, 12.5 MiB for 100 GiB. When none is missing, the chaining values are merged, and the root
//! is the ordinary BLAKE3 of the whole file. A journal keeps chaining values, so that nothing is
//! hashed again after a crash. Memory is touched only for groups that have arrived.

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use super::algorithm::Algorithm;
use super::value::Digest;
use crate::range::Range;

/// The chaining value of one group. In a file of one group it is the digest itself, because
/// BLAKE3 flags the root.
pub type ChainingValue = [u8; 32];

/// The size of a group in bytes. Large enough that vector width, not bookkeeping, decides the
/// speed; small enough that a group is still in the cache when its last byte arrives.
pub const GROUP_BYTES: u64 = 256 * 1024;

/// Returns the chaining value of `bytes` as group `group` of several; never that of a root.
pub fn group_value(group: u64, bytes: &[u8]) -> ChainingValue {
    subtree_value(group.saturating_mul(GROUP_BYTES), bytes)
}

/// Returns the chaining value of `bytes` at `start` of a longer file, if they are a subtree of its tree: a
/// power of two of at least 1024 bytes that begins at a multiple of it, or less at the end of the file.
pub fn subtree_value(start: u64, bytes: &[u8]) -> ChainingValue {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(start);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// An unfinished BLAKE3: the chaining values of the groups that have arrived.
#[derive(Clone, Debug)]
pub struct Blake3Tree {
    size_bytes: u64,
    group_bytes: u64,
    values: Vec<ChainingValue>,
    /// A bit for each group: whether its value is known.
    known: Vec<u64>,
    missing: u64,
}

impl Blake3Tree {
    /// Returns an empty tree for a file of `size_bytes`, with groups of [`GROUP_BYTES`].
    ///
    /// # Errors
    /// [`TreeError::TooLarge`] beyond [`GROUPS_MAX`] groups (16 TiB); such a file is hashed front
    /// to back instead.
    pub fn new(size_bytes: u64) -> Result<Blake3Tree, TreeError> {
        Blake3Tree::with_group(size_bytes, GROUP_BYTES)
    }

    /// Returns a tree like [`Blake3Tree::new`], with groups of another size.
    ///
    /// # Errors
    /// [`TreeError::GroupSize`] unless that is a power of two of at least 1024 bytes.
    pub fn with_group(size_bytes: u64, group_bytes: u64) -> Result<Blake3Tree, TreeError> {
        if !group_bytes.is_power_of_two() || group_bytes < blake3::CHUNK_LEN as u64 {
            return Err(TreeError::GroupSize(group_bytes));
        }
        // An empty file has one empty group, which need not arrive.
        let groups = size_bytes.div_ceil(group_bytes).max(1);
        if groups > GROUPS_MAX {
            return Err(TreeError::TooLarge { size_bytes });
        }
        let mut tree = Blake3Tree {
            size_bytes,
            group_bytes,
            values: vec![[0; 32]; groups as usize],
            known: vec![0; groups.div_ceil(64) as usize],
            missing: groups,
        };
        if size_bytes == 0 {
            tree.set_cv(0, *blake3::hash(&[]).as_bytes())?;
        }
        Ok(tree)
    }

    /// Returns the number of groups; at least one.
    pub fn groups(&self) -> u64 {
        self.values.len() as u64
    }

    /// Returns the size of every group except the last.
    pub fn group_bytes(&self) -> u64 {
        self.group_bytes
    }

    /// Returns the bytes of the file in group `group`, `None` past the last.
    pub fn range_of(&self, group: u64) -> Option<Range> {
        if group >= self.groups() {
            return None;
        }
        let start = group * self.group_bytes;
        Some(Range::new(start, self.size_bytes.min(start.saturating_add(self.group_bytes))))
    }

    /// Hashes all of group `group`, keeps its chaining value, and returns it for the journal. A
    /// group may be added again; the later one counts.
    ///
    /// # Errors
    /// [`TreeError`] if there is no such group or `bytes` is not all of it.
    pub fn add(&mut self, group: u64, bytes: &[u8]) -> Result<ChainingValue, TreeError> {
        let mut hasher = self.start(group)?;
        hasher.update(bytes);
        self.add_hashed(hasher)
    }

    /// Begins to hash group `group` piece by piece, or on another thread.
    ///
    /// # Errors
    /// [`TreeError::NoSuchGroup`].
    pub fn start(&self, group: u64) -> Result<GroupHasher, TreeError> {
        let range =
            self.range_of(group).ok_or(TreeError::NoSuchGroup { group, groups: self.groups() })?;
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(range.start);
        let is_root = self.groups() == 1;
        Ok(GroupHasher {
            group,
            hasher: Box::new(hasher),
            expected_bytes: range.len(),
            bytes: 0,
            is_root,
        })
    }

    /// Keeps the chaining value of a group that was hashed piece by piece.
    ///
    /// # Errors
    /// [`TreeError::GroupLength`] if it did not get the whole group, and [`TreeError::NoSuchGroup`]
    /// if it comes from a larger tree.
    pub fn add_hashed(&mut self, hasher: GroupHasher) -> Result<ChainingValue, TreeError> {
        let group = hasher.group;
        let value = hasher.finish()?;
        self.set_cv(group, value)?;
        Ok(value)
    }

    /// Returns the chaining value of group `group`, if known.
    pub fn cv(&self, group: u64) -> Option<ChainingValue> {
        let value = *self.values.get(usize::try_from(group).ok()?)?;
        self.is_known(group).then_some(value)
    }

    /// Restores a chaining value from a journal.
    ///
    /// # Errors
    /// [`TreeError::NoSuchGroup`].
    pub fn set_cv(&mut self, group: u64, value: ChainingValue) -> Result<(), TreeError> {
        let groups = self.groups();
        let slot = usize::try_from(group).ok().and_then(|group| self.values.get_mut(group));
        *slot.ok_or(TreeError::NoSuchGroup { group, groups })? = value;
        if !self.is_known(group) {
            self.known[(group / 64) as usize] |= 1 << (group % 64);
            self.missing -= 1;
        }
        Ok(())
    }

    /// Forgets group `group`, whose bytes proved bad.
    pub fn forget(&mut self, group: u64) {
        if group < self.groups() && self.is_known(group) {
            self.known[(group / 64) as usize] &= !(1 << (group % 64));
            self.missing += 1;
        }
    }

    /// Returns the number of missing groups.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns the BLAKE3 of the whole file once no group is missing.
    pub fn root(&self) -> Option<Digest> {
        if self.missing > 0 {
            return None;
        }
        let root = match &self.values[..] {
            [only] => *only,
            many => {
                let (left, right) = many.split_at(left_groups(many.len()));
                *merge_subtrees_root(&merged(left), &merged(right), Mode::Hash).as_bytes()
            }
        };
        Digest::new(Algorithm::Blake3, &root).ok()
    }

    fn is_known(&self, group: u64) -> bool {
        self.known[(group / 64) as usize] >> (group % 64) & 1 == 1
    }
}

/// The hasher of one group of a [`Blake3Tree`]. Not bound to a thread.
#[derive(Clone, Debug)]
pub struct GroupHasher {
    group: u64,
    // Boxed: it holds 1.9 KiB of state.
    hasher: Box<blake3::Hasher>,
    expected_bytes: u64,
    bytes: u64,
    is_root: bool,
}

impl GroupHasher {
    /// Hashes the next bytes of the group; slices of 32 KiB and more are fastest.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        // Past its end the library would panic; `finish` reports the length.
        if self.bytes <= self.expected_bytes {
            self.hasher.update(bytes);
        }
    }

    /// Returns the number of the group.
    pub fn group(&self) -> u64 {
        self.group
    }

    /// Returns how many bytes of the group were hashed so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn finish(&self) -> Result<ChainingValue, TreeError> {
        let GroupHasher { group, expected_bytes, bytes: actual_bytes, .. } = *self;
        if actual_bytes != expected_bytes {
            return Err(TreeError::GroupLength { group, expected_bytes, actual_bytes });
        }
        if self.is_root {
            return Ok(*self.hasher.finalize().as_bytes());
        }
        Ok(self.hasher.finalize_non_root())
    }
}

/// Why a tree refuses an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// BLAKE3's tree cannot be cut into groups of this size.
    #[error("a BLAKE3 group of {0} bytes is not a power of two of at least 1024")]
    GroupSize(u64),
    /// The file is too large to keep a value per group.
    #[error("{size_bytes} bytes are too many to hash out of order")]
    TooLarge {
        /// Its size.
        size_bytes: u64,
    },
    /// The group number is past the last.
    #[error("there is no BLAKE3 group {group} of {groups}")]
    NoSuchGroup {
        /// The number.
        group: u64,
        /// Number of groups.
        groups: u64,
    },
    /// The bytes were not the whole group.
    #[error("BLAKE3 group {group} has {expected_bytes} bytes, {actual_bytes} were given")]
    GroupLength {
        /// The number.
        group: u64,
        /// Bytes that it has.
        expected_bytes: u64,
        /// Bytes that came.
        actual_bytes: u64,
    },
}

/// Limits chaining values to 2 GiB, whatever size a server claims.
pub const GROUPS_MAX: u64 = 1 << 26;

/// Returns how many of `groups` (two or more) are in the left subtree: the largest power of two
/// that leaves at least one for the right.
fn left_groups(groups: usize) -> usize {
    1 << (groups - 1).ilog2()
}

/// Returns the non-root chaining value of adjacent groups. At most 26 deep.
fn merged(values: &[ChainingValue]) -> ChainingValue {
    match values {
        // Never called without values; an empty answer is safer than a panic.
        [] => [0; 32],
        [only] => *only,
        many => {
            let (left, right) = many.split_at(left_groups(many.len()));
            merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i * 7 + (i >> 8) * 13 + (i >> 16)) as u8).collect()
    }

    /// Adds all groups in the order of `keys`, half of them piecemeal, and goes through save and
    /// load on the way.
    fn tree_root(input: &[u8], group_bytes: u64, key: u64) -> Digest {
        let mut tree = Blake3Tree::with_group(input.len() as u64, group_bytes).unwrap();
        let mut order: Vec<u64> = (0..tree.groups()).collect();
        order.sort_by_key(|group| (group + 1).wrapping_mul(key | 1).rotate_left(17));
        let mut other = Blake3Tree::with_group(input.len() as u64, group_bytes).unwrap();
        for group in order {
            assert!(input.is_empty() || tree.root().is_none());
            let range = tree.range_of(group).unwrap();
            let bytes = &input[range.start as usize..range.end as usize];
            let value = if group % 2 == 0 {
                tree.add(group, bytes).unwrap()
            } else {
                let mut hasher = tree.start(group).unwrap();
                bytes.chunks(1500).for_each(|piece| hasher.update(piece));
                tree.add_hashed(hasher).unwrap()
            };
            assert_eq!(tree.cv(group), Some(value));
            other.set_cv(group, value).unwrap();
        }
        assert_eq!(tree.missing(), 0);
        assert_eq!(other.root(), tree.root());
        tree.root().unwrap()
    }

    fn naive(input: &[u8]) -> Digest {
        Digest::new(Algorithm::Blake3, blake3::hash(input).as_bytes()).unwrap()
    }

    #[test]
    fn every_awkward_size_equals_the_whole() {
        for group_bytes in [1024, 4096, 65536] {
            let group = group_bytes as usize;
            let mut sizes = vec![0, 1, 2, 1023, 1024, 1025];
            for groups in [1, 2, 3, 4, 5, 7, 8, 9, 16, 17] {
                sizes.extend([groups * group - 1, groups * group, groups * group + 1]);
            }
            for size in sizes {
                let input = content(size);
                assert_eq!(tree_root(&input, group_bytes, 12345), naive(&input), "{size}");
            }
        }
    }

    #[test]
    fn the_default_group_equals_the_whole() {
        for size in [GROUP_BYTES - 1, GROUP_BYTES, GROUP_BYTES + 1, 5 * GROUP_BYTES + 77] {
            let input = content(size as usize);
            assert_eq!(tree_root(&input, GROUP_BYTES, 99), naive(&input));
        }
    }

    #[test]
    fn wrong_lengths_and_groups_are_refused() {
        let mut tree = Blake3Tree::with_group(5000, 2048).unwrap();
        assert_eq!(tree.groups(), 3);
        assert_eq!(tree.range_of(2), Some(Range::new(4096, 5000)));
        assert_eq!(tree.range_of(3), None);
        let error = tree.add(0, &[0; 2047]).unwrap_err();
        assert_eq!(error.to_string(), "BLAKE3 group 0 has 2048 bytes, 2047 were given");
        assert!(tree.add(2, &[0; 2048]).is_err());
        assert!(tree.add(2, &[0; 904]).is_ok());
        assert_eq!(tree.add(3, &[]), Err(TreeError::NoSuchGroup { group: 3, groups: 3 }));
        assert!(tree.set_cv(u64::MAX, [0; 32]).is_err());
        assert!(tree.cv(u64::MAX).is_none() && tree.cv(0).is_none());
        assert!(Blake3Tree::with_group(1, 1000).is_err());
        assert!(Blake3Tree::with_group(1, 512).is_err());
        assert!(matches!(Blake3Tree::new(u64::MAX), Err(TreeError::TooLarge { .. })));
    }

    #[test]
    fn missing_groups_are_counted() {
        let mut tree = Blake3Tree::with_group(200 * 1024, 1024).unwrap();
        for group in (0..200).filter(|group| ![3, 130, 199].contains(group)) {
            tree.set_cv(group, [1; 32]).unwrap();
        }
        assert_eq!(tree.missing(), 3);
        tree.set_cv(199, [1; 32]).unwrap();
        assert_eq!(tree.missing(), 2);
        // A group that is forgotten twice is missing once.
        tree.forget(64);
        tree.forget(64);
        assert_eq!(tree.missing(), 3);
    }

    /// 16 TiB claimed, nothing fetched: the table must not be paid for yet.
    #[test]
    fn a_huge_file_costs_nothing_at_first() {
        let tree = Blake3Tree::new(100 << 30).unwrap();
        assert_eq!((tree.groups(), tree.missing()), (409_600, 409_600));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_order_equals_the_whole(size in 0..300_000usize, log in 10..17u32, key: u64) {
            let input = content(size);
            prop_assert_eq!(tree_root(&input, 1 << log, key), naive(&input));
        }
    }
}
