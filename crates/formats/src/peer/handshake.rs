//! The handshake that begins every connection between peers (BEP 3): 68 bytes each way.
//!
//! Both sides name the torrent. The side that was called may wait for the caller's handshake and
//! answer with the same info-hash.

use std::fmt;

use thiserror::Error;

use super::peer_id::PeerId;
use crate::torrent::InfoHash;

/// The 20 bytes by which peers name a torrent: its v1 info-hash (BEP 3), or the first 20 bytes of
/// its v2 info-hash (BEP 52).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireInfoHash(pub [u8; 20]);

impl From<InfoHash> for WireInfoHash {
    fn from(info_hash: InfoHash) -> WireInfoHash {
        match info_hash {
            InfoHash::V1(hash) => WireInfoHash(hash.0),
            InfoHash::V2(hash) => WireInfoHash(hash.truncated()),
        }
    }
}

impl fmt::Display for WireInfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for WireInfoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The extensions that a peer speaks, as the reserved bits of its handshake tell. Bits of other
/// extensions are neither kept nor sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Extension messages (BEP 10).
    pub extended: bool,
    /// The fast extension (BEP 6).
    pub fast: bool,
    /// The distributed hash table (BEP 5): `port` messages are welcome.
    pub dht: bool,
    /// The sender names a hybrid torrent by its v1 info-hash and accepts the v2 info-hash as the
    /// answer (BEP 52).
    pub v2: bool,
}

impl Reserved {
    /// Returns the extensions that both sides speak.
    pub fn both(self, other: Reserved) -> Reserved {
        Reserved {
            extended: self.extended && other.extended,
            fast: self.fast && other.fast,
            dht: self.dht && other.dht,
            v2: self.v2 && other.v2,
        }
    }

    fn from_wire(bits: [u8; 8]) -> Reserved {
        let [is_extended, is_fast, is_dht, is_v2] = BITS.map(|(byte, mask)| bits[byte] & mask != 0);
        Reserved { extended: is_extended, fast: is_fast, dht: is_dht, v2: is_v2 }
    }

    fn to_wire(self) -> [u8; 8] {
        let mut bits = [0; 8];
        for ((byte, mask), is_set) in
            BITS.into_iter().zip([self.extended, self.fast, self.dht, self.v2])
        {
            bits[byte] |= if is_set { mask } else { 0 };
        }
        bits
    }
}

/// One side's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The extensions that this side speaks.
    pub reserved: Reserved,
    /// The torrent.
    pub info_hash: WireInfoHash,
    /// Who this side is.
    pub peer_id: PeerId,
}

impl Handshake {
    /// Reads a handshake from the front of `input`; `None` if more bytes are needed. It has
    /// [`HANDSHAKE_BYTES`].
    ///
    /// # Errors
    /// [`HandshakeError::NotBitTorrent`] at the first byte that differs: an encrypted handshake,
    /// or another protocol.
    pub fn decode(input: &[u8]) -> Result<Option<Handshake>, HandshakeError> {
        let known = input.len().min(PROTOCOL.len());
        if input[..known] != PROTOCOL[..known] {
            return Err(HandshakeError::NotBitTorrent);
        }
        let Some(fields) = input.get(PROTOCOL.len()..HANDSHAKE_BYTES) else { return Ok(None) };
        let part = |from: usize| fields[from..].first_chunk();
        let (Some(reserved), Some(info_hash), Some(peer_id)) =
            (fields.first_chunk(), part(8), part(28))
        else {
            return Ok(None);
        };
        Ok(Some(Handshake {
            reserved: Reserved::from_wire(*reserved),
            info_hash: WireInfoHash(*info_hash),
            peer_id: PeerId(*peer_id),
        }))
    }

    /// Appends the handshake to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(PROTOCOL);
        out.extend_from_slice(&self.reserved.to_wire());
        out.extend_from_slice(&self.info_hash.0);
        out.extend_from_slice(&self.peer_id.0);
    }

    /// Checks the answer to this handshake and returns the torrent that both sides now speak of:
    /// ours, or `v2`, the truncated v2 info-hash of the same torrent, if we offered it.
    ///
    /// # Errors
    /// [`HandshakeError::OtherTorrent`], or [`HandshakeError::Ourselves`] if the peer has our id.
    pub fn check_answer(
        &self,
        answer: &Handshake,
        v2: Option<WireInfoHash>,
    ) -> Result<WireInfoHash, HandshakeError> {
        let is_upgrade = self.reserved.v2 && v2 == Some(answer.info_hash);
        if answer.info_hash != self.info_hash && !is_upgrade {
            return Err(HandshakeError::OtherTorrent(answer.info_hash));
        }
        if answer.peer_id == self.peer_id {
            return Err(HandshakeError::Ourselves);
        }
        Ok(answer.info_hash)
    }
}

/// A handshake that begins no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// Not the BitTorrent protocol, or encrypted.
    #[error("the peer does not speak the BitTorrent protocol")]
    NotBitTorrent,
    /// The answer names another torrent.
    #[error("the peer answered for another torrent ({0})")]
    OtherTorrent(WireInfoHash),
    /// The connection leads back to this program.
    #[error("this is a connection to ourselves")]
    Ourselves,
}

/// Length of a handshake.
pub const HANDSHAKE_BYTES: usize = 68;

/// The length of the protocol's name, and the name.
const PROTOCOL: &[u8; 20] = b"\x13BitTorrent protocol";
/// Byte and bit of: extension messages, the fast extension, the hash table, v2.
const BITS: [(usize, u8); 4] = [(5, 0x10), (7, 0x04), (7, 0x01), (7, 0x10)];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn handshake() -> Handshake {
        let reserved = Reserved { extended: true, fast: true, dht: false, v2: true };
        Handshake { reserved, info_hash: WireInfoHash([7; 20]), peer_id: PeerId::new([8; 12]) }
    }

    #[test]
    fn its_bytes() {
        let mut wire = Vec::new();
        handshake().encode(&mut wire);
        let expected =
            [&b"\x13BitTorrent protocol\0\0\0\0\0\x10\0\x14"[..], &[7; 20], b"-SW0100-", &[8; 12]];
        assert_eq!(wire, expected.concat());
        for length in 0..HANDSHAKE_BYTES {
            assert_eq!(Handshake::decode(&wire[..length]), Ok(None), "{length}");
        }
        wire.push(0);
        assert_eq!(Handshake::decode(&wire), Ok(Some(handshake())));
        assert_eq!(handshake().info_hash.to_string(), "07".repeat(20));
    }

    #[test]
    fn another_protocol_is_refused_at_once() {
        for input in [&b"G"[..], b"\x14", b"\x13bittorrent", b"\x13BitTorrent protocoL"] {
            assert_eq!(Handshake::decode(input), Err(HandshakeError::NotBitTorrent));
        }
    }

    #[test]
    fn an_answer_must_be_for_this_torrent() {
        let ours = handshake();
        let answer = Handshake { peer_id: PeerId([1; 20]), ..ours };
        let v2 = WireInfoHash([9; 20]);
        let upgraded = Handshake { info_hash: v2, ..answer };
        let other = Err(HandshakeError::OtherTorrent(v2));
        assert_eq!(ours.check_answer(&answer, None), Ok(ours.info_hash));
        assert_eq!(ours.check_answer(&upgraded, Some(v2)), Ok(v2));
        assert_eq!(ours.check_answer(&upgraded, None), other);
        let v1_only = Handshake { reserved: Reserved::default(), ..ours };
        assert_eq!(v1_only.check_answer(&upgraded, Some(v2)), other);
        assert_eq!(ours.check_answer(&ours, None), Err(HandshakeError::Ourselves));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bits: [bool; 4], info_hash: [u8; 20], peer_id: [u8; 20]) {
            let [extended, fast, dht, v2] = bits;
            let handshake = Handshake {
                reserved: Reserved { extended, fast, dht, v2 },
                info_hash: WireInfoHash(info_hash),
                peer_id: PeerId(peer_id),
            };
            let mut wire = Vec::new();
            handshake.encode(&mut wire);
            prop_assert_eq!(wire.len(), HANDSHAKE_BYTES);
            prop_assert_eq!(Handshake::decode(&wire), Ok(Some(handshake)));
            prop_assert!(!handshake.peer_id.to_string().chars().any(char::is_control));
        }
    }
}
