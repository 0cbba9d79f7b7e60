//! The allowed-fast set (BEP 6): pieces that a peer may ask for although it is choked.
//!
//! Every seeder computes the same set for the same peer, from the peer's network and the info-hash,
//! so that a peer gains nothing by asking many seeders.

use core::net::Ipv4Addr;

use swath_model::digest::{Algorithm, Hasher};

use super::handshake::WireInfoHash;
use super::layout::PieceIndex;

/// Returns the first `count` pieces of the allowed-fast set of the peer at `address` for a torrent
/// of `pieces` pieces; all pieces if there are no more. At most [`ALLOWED_FAST_MAX`].
pub fn allowed_fast(
    count: usize,
    pieces: u32,
    info_hash: WireInfoHash,
    address: Ipv4Addr,
) -> Vec<PieceIndex> {
    let count = count.min(ALLOWED_FAST_MAX);
    if u64::from(pieces) <= count as u64 {
        return (0..pieces).map(PieceIndex).collect();
    }
    let mut set = Vec::with_capacity(count);
    let network = u32::from(address) & 0xffff_ff00;
    let mut value = [&network.to_be_bytes()[..], &info_hash.0].concat();
    loop {
        value = Hasher::digest(Algorithm::Sha1, &value).as_bytes().to_vec();
        for word in value.as_chunks::<4>().0 {
            if set.len() == count {
                return set;
            }
            let piece = PieceIndex(u32::from_be_bytes(*word) % pieces);
            if !set.contains(&piece) {
                set.push(piece);
            }
        }
    }
}

/// Most pieces of a set; BEP 6 uses 10. Larger sets take quadratic time.
pub const ALLOWED_FAST_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_bep_6() {
        let set = |count, pieces| {
            let address = Ipv4Addr::new(80, 4, 4, 200);
            let set = allowed_fast(count, pieces, WireInfoHash([0xaa; 20]), address);
            set.into_iter().map(|piece| piece.0).collect::<Vec<_>>()
        };
        assert_eq!(set(7, 1313), [1059, 431, 808, 1217, 287, 376, 1188]);
        assert_eq!(set(9, 1313), [1059, 431, 808, 1217, 287, 376, 1188, 353, 508]);
        assert!(set(0, 1313).is_empty());
        assert_eq!(set(9, 3), [0, 1, 2]);
        assert!(set(9, 0).is_empty());
        assert_eq!(set(usize::MAX, 101).len(), ALLOWED_FAST_MAX);
    }
}
