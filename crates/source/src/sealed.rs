//! Files in which each group of bytes is followed by its group hash (`docs/protocol.md`).
//!
//! All that is asked for, of such a source, is counted in bytes of the sealed file. What is handed
//! over is counted in bytes of the plain one, in whole groups, with their group hashes beside them.

use std::sync::atomic::{AtomicU64, Ordering};

use swath_model::digest::blake3_tree::GROUP_BYTES;

/// Bytes of a group hash.
pub const SEAL_BYTES: u64 = 32;
/// A group and its group hash.
pub const UNIT_BYTES: u64 = GROUP_BYTES + SEAL_BYTES;

/// A group hash: the chaining value of its group, every bit of it inverted where the server could not read
/// all of the group.
pub type GroupHash = [u8; SEAL_BYTES as usize];

/// How long a sealed file is, as far as is known; grows while its server still finds out.
#[derive(Debug)]
pub struct SealedLength {
    /// Bytes of the plain file; `u64::MAX` while more may come.
    plain_bytes: AtomicU64,
}

/// Returns the length of the sealed file for a plain one of `plain_bytes`.
pub fn sealed_bytes(plain_bytes: u64) -> u64 {
    plain_bytes.saturating_add(plain_bytes.div_ceil(GROUP_BYTES).saturating_mul(SEAL_BYTES))
}

/// Returns the length of the plain file for a sealed one of `sealed_bytes`.
pub fn plain_bytes(sealed_bytes: u64) -> u64 {
    sealed_bytes.saturating_sub(sealed_bytes.div_ceil(UNIT_BYTES) * SEAL_BYTES)
}

/// Returns where byte `plain` of the plain file lies in the sealed one.
pub fn to_sealed(plain: u64) -> u64 {
    plain + plain / GROUP_BYTES * SEAL_BYTES
}

impl SealedLength {
    /// Of a file whose length is not known yet.
    pub fn unknown() -> SealedLength {
        SealedLength { plain_bytes: AtomicU64::new(u64::MAX) }
    }

    /// The plain file has so many bytes.
    pub fn settle(&self, plain_bytes: u64) {
        self.plain_bytes.store(plain_bytes, Ordering::Release);
    }

    /// Returns how long the sealed file is, if that is known.
    pub(crate) fn settled_bytes(&self) -> Option<u64> {
        let plain_bytes = self.plain_bytes.load(Ordering::Acquire);
        (plain_bytes != u64::MAX).then(|| sealed_bytes(plain_bytes))
    }

    /// Returns bytes of data in this group. Of a file whose length is not known only whole groups may be
    /// asked for.
    pub(crate) fn data_bytes(&self, group: u64) -> u64 {
        let start = group.saturating_mul(GROUP_BYTES);
        self.plain_bytes.load(Ordering::Acquire).saturating_sub(start).min(GROUP_BYTES)
    }

    /// Returns which byte of the plain file is the first at or behind `sealed`, a place in the sealed one.
    pub(crate) fn to_plain(&self, sealed: u64) -> u64 {
        let (group, within) = (sealed / UNIT_BYTES, sealed % UNIT_BYTES);
        group * GROUP_BYTES + within.min(self.data_bytes(group))
    }

    /// What is at `sealed`: data up to the second number (both in bytes from the group's start),
    /// or the group hash.
    pub(crate) fn place(&self, sealed: u64) -> SealedPosition {
        let (group, within) = (sealed / UNIT_BYTES, sealed % UNIT_BYTES);
        let data_bytes = self.data_bytes(group);
        if within < data_bytes {
            SealedPosition::Data { left_bytes: data_bytes - within }
        } else {
            SealedPosition::GroupHash { at: (within - data_bytes).min(SEAL_BYTES) as usize }
        }
    }
}

/// What lies at a place of a sealed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealedPosition {
    /// Data, so many bytes up to the group hash.
    Data { left_bytes: u64 },
    /// The group hash's byte of this number.
    GroupHash { at: usize },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_either_file() {
        let length = SealedLength::unknown();
        assert_eq!(length.place(0), SealedPosition::Data { left_bytes: GROUP_BYTES });
        assert_eq!(length.place(GROUP_BYTES), SealedPosition::GroupHash { at: 0 });
        assert_eq!(length.place(UNIT_BYTES - 1), SealedPosition::GroupHash { at: 31 });
        assert_eq!(length.place(UNIT_BYTES), SealedPosition::Data { left_bytes: GROUP_BYTES });
        assert_eq!(length.to_plain(UNIT_BYTES), GROUP_BYTES);
        assert_eq!(length.to_plain(GROUP_BYTES + 7), GROUP_BYTES);
        length.settle(GROUP_BYTES + 5);
        assert_eq!(length.place(UNIT_BYTES), SealedPosition::Data { left_bytes: 5 });
        assert_eq!(length.place(UNIT_BYTES + 5), SealedPosition::GroupHash { at: 0 });
        assert_eq!(length.to_plain(UNIT_BYTES + 5 + 32), GROUP_BYTES + 5);
        for (plain, sealed) in [
            (0, 0),
            (1, 33),
            (GROUP_BYTES, UNIT_BYTES),
            (GROUP_BYTES + 1, UNIT_BYTES + 33),
            (2 * GROUP_BYTES, 2 * UNIT_BYTES),
        ] {
            assert_eq!((sealed_bytes(plain), plain_bytes(sealed)), (sealed, plain));
        }
        assert_eq!(to_sealed(GROUP_BYTES), UNIT_BYTES);
        assert_eq!(to_sealed(GROUP_BYTES - 1), GROUP_BYTES - 1);
    }
}
