//! The piece size of a new torrent.
//!
//! A piece is what a peer verifies and may pass on. Small pieces reach further peers sooner: a peer
//! can upload what it has verified, and a chain of peers is as late as the pieces of its members.
//! Studies of BitTorrent find that pieces above 4 MB slow distribution down. Large pieces keep the
//! metafile small: each piece costs 52 bytes in a hybrid torrent (20 of SHA-1, 32 of SHA-256), which
//! every peer needs before its first piece. So:
//!
//! - one to two thousand pieces: every peer has something that the others lack, and a new version moves
//!   little more than what has changed (of 2 GiB with 1 % changed in 20 places 2 %, not 3 %). This is
//!   512 KiB for 1 GiB; the Radioastron network had 1 MiB in its segments of that size;
//! - not below 256 KiB, 16 blocks, except for tiny torrents: requests, announcements of pieces and
//!   hashing have a cost for each piece;
//! - not above 4 MiB, unless the hashes would exceed 4 MB (and never above 512 MiB, which 41 TB need);
//! - not above the mean size of a file. A hybrid torrent begins every file at a new piece, and v1
//!   peers fetch and hash the padding in between; this keeps it below the size of the files.

/// Returns a piece size in bytes for `files` files (those that are not empty) with `total_bytes`
/// altogether: a power of two from 16 KiB to 512 MiB.
pub fn automatic(total_bytes: u64, files: u64) -> u64 {
    let tiny = power_above(total_bytes / PIECES_OF_TINY).min(USUAL_MIN_BYTES);
    let usual = power_above(total_bytes / PIECES_USUAL).clamp(tiny, USUAL_MAX_BYTES);
    let large = power_above(total_bytes.div_ceil(HASHES_BYTES_MAX / BYTES_OF_PIECE));
    let mean = total_bytes / files.max(1);
    let mean_power = 1 << mean.max(1).ilog2();
    usual.max(large).min(mean_power).clamp(MIN_BYTES, MAX_BYTES)
}

/// Returns the least power of two that is not below `bytes`, up to [`MAX_BYTES`].
fn power_above(bytes: u64) -> u64 {
    bytes.clamp(MIN_BYTES, MAX_BYTES).next_power_of_two()
}

/// The least that BEP 52 allows.
const MIN_BYTES: u64 = 16 * 1024;
/// The largest power of two that libtorrent accepts.
const MAX_BYTES: u64 = 512 * 1024 * 1024;
const USUAL_MIN_BYTES: u64 = 256 * 1024;
const USUAL_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// 1 MiB for 2 GiB.
const PIECES_USUAL: u64 = 2048;
/// Up to 64 MiB of data, pieces may be smaller than usual, so that there are as many as this.
const PIECES_OF_TINY: u64 = 256;
/// A SHA-1 and a SHA-256.
const BYTES_OF_PIECE: u64 = 52;
const HASHES_BYTES_MAX: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn the_sizes_of_the_documentation_hold() {
        for (total, files, expected) in [
            (0, 0, 16 * KIB),
            (1, 1, 16 * KIB),
            (5 * MIB, 1, 32 * KIB),
            (64 * MIB, 1, 256 * KIB),
            (128 * MIB, 1, 256 * KIB),
            (512 * MIB, 1, 256 * KIB),
            (GIB, 1, 512 * KIB),
            (2 * GIB, 1, MIB),
            (4 * GIB, 1, 2 * MIB),
            (8 * GIB, 1, 4 * MIB),
            (100 * GIB, 1, 4 * MIB),
            (280 * GIB, 1, 4 * MIB),
            (320 * GIB, 1, 8 * MIB),
            (10_000 * GIB, 1, 256 * MIB),
            (u64::MAX, 1, 512 * MIB),
            // Small files.
            (GIB, 10_000, 64 * KIB),
            (GIB, u64::MAX, 16 * KIB),
        ] {
            assert_eq!(automatic(total, files), expected, "{total} bytes, {files} files");
        }
    }

    proptest! {
        #[test]
        fn the_limits_hold(bits: u64, shift in 0..64u32, files in 1..1u64 << 40) {
            // As many totals of each order of magnitude.
            let total = bits >> shift;
            let piece = automatic(total, files);
            prop_assert!(piece.is_power_of_two() && (MIN_BYTES..=MAX_BYTES).contains(&piece));
            prop_assert!(automatic(total / 2, 1) <= automatic(total, 1));
            prop_assert!(piece == MIN_BYTES || piece <= total / files);
            // Of more, even the largest pieces have more hashes (from 41 TB on).
            if total <= HASHES_BYTES_MAX / BYTES_OF_PIECE * MAX_BYTES {
                prop_assert!(total / automatic(total, 1) * BYTES_OF_PIECE <= HASHES_BYTES_MAX);
            }
        }
    }
}
