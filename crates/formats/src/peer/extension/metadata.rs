//! The info dictionary from peers (BEP 9, `ut_metadata`): with it, a magnet link suffices.
//!
//! It comes in pieces of 16 KiB, and only the info-hash of the whole proves it. Until then every byte
//! may be wrong, so its length is checked against a limit before anything is stored.

use thiserror::Error;

use super::ExtensionError;
use crate::torrent::bencode::{self, Writer};
use crate::torrent::{InfoHash, InfoHashV1, InfoHashV2};

/// A message of `ut_metadata`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataMessage {
    /// Asks for a piece.
    Request {
        /// The piece's number, from 0.
        piece: u32,
    },
    /// A piece.
    Data {
        /// The piece's number.
        piece: u32,
        /// Length of all metadata in bytes.
        total_bytes: u32,
        /// The bytes of the piece.
        data: Vec<u8>,
    },
    /// The sender does not have the piece, or will not send it.
    Reject {
        /// The piece's number.
        piece: u32,
    },
}

impl MetadataMessage {
    /// Reads the payload of a `ut_metadata` message; `None` for a type of message that is not known,
    /// which must be ignored.
    ///
    /// # Errors
    /// [`ExtensionError`] if it is no such message.
    pub fn decode(payload: &[u8]) -> Result<Option<MetadataMessage>, ExtensionError> {
        let parsed = bencode::read(payload)?;
        let dict = parsed.value;
        if dict.dict().is_none() {
            return Err(ExtensionError::NoDictionary);
        }
        let int = |key: &'static str| {
            dict.get(key.as_bytes()).and_then(|it| it.int()).ok_or(ExtensionError::Value(key))
        };
        let small = |key| u32::try_from(int(key)?).map_err(|_| ExtensionError::Value(key));
        Ok(Some(match int("msg_type")? {
            0 => MetadataMessage::Request { piece: small("piece")? },
            1 => MetadataMessage::Data {
                piece: small("piece")?,
                total_bytes: small("total_size")?,
                data: parsed.rest.to_vec(),
            },
            2 => MetadataMessage::Reject { piece: small("piece")? },
            _ => return Ok(None),
        }))
    }

    /// Returns the payload of a `ut_metadata` message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        let head = |out: &mut Writer, kind, piece| {
            out.dict().text("msg_type").int(kind).text("piece").int(u64::from(piece));
        };
        match self {
            MetadataMessage::Request { piece } => head(&mut out, 0, *piece),
            MetadataMessage::Data { piece, total_bytes, .. } => {
                head(&mut out, 1, *piece);
                out.text("total_size").int(u64::from(*total_bytes));
            }
            MetadataMessage::Reject { piece } => head(&mut out, 2, *piece),
        }
        out.end();
        if let MetadataMessage::Data { data, .. } = self {
            out.raw(data);
        }
        out.finish()
    }

    /// Returns the answer of a peer that has `metadata` to a request for `piece`.
    pub fn answer(piece: u32, metadata: &[u8]) -> MetadataMessage {
        let start = piece as usize * METADATA_PIECE_BYTES as usize;
        let Some(rest) = metadata.get(start..).filter(|rest| !rest.is_empty()) else {
            return MetadataMessage::Reject { piece };
        };
        let data = rest[..rest.len().min(METADATA_PIECE_BYTES as usize)].to_vec();
        MetadataMessage::Data { piece, total_bytes: metadata.len() as u32, data }
    }
}

/// Collects the pieces of metadata, in any order and from all peers that report the same length.
#[derive(Clone, Debug)]
pub struct MetadataAssembly {
    info_hash: InfoHash,
    bytes: Vec<u8>,
    has: Vec<bool>,
}

impl MetadataAssembly {
    /// Returns an assembly of metadata of `total_bytes`, as a peer told it, whose info-hash
    /// is `info_hash`.
    ///
    /// # Errors
    /// [`MetadataError::Length`] if it is empty or longer than [`METADATA_BYTES_MAX`].
    pub fn new(info_hash: InfoHash, total_bytes: u32) -> Result<MetadataAssembly, MetadataError> {
        if !(1..=METADATA_BYTES_MAX).contains(&total_bytes) {
            return Err(MetadataError::Length { total_bytes });
        }
        let pieces = total_bytes.div_ceil(METADATA_PIECE_BYTES) as usize;
        let bytes = vec![0; total_bytes as usize];
        Ok(MetadataAssembly { info_hash, bytes, has: vec![false; pieces] })
    }

    /// Returns the pieces that are missing, in order.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.has).filter(|it| !*it.1).map(|it| it.0)
    }

    /// Adds a piece. Returns the metadata when it is complete. Ignores a piece that was there.
    ///
    /// # Errors
    /// [`MetadataError::Piece`] if the piece does not fit. [`MetadataError::WrongHash`] if the
    /// complete metadata is not what the info-hash demands: all pieces are missing again.
    pub fn insert(
        &mut self,
        piece: u32,
        total_bytes: u32,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>, MetadataError> {
        let misfit = MetadataError::Piece { piece };
        let start = piece as usize * METADATA_PIECE_BYTES as usize;
        let rest = self.bytes.get_mut(start..).unwrap_or_default();
        let length = rest.len().min(METADATA_PIECE_BYTES as usize);
        let Some(has) = self.has.get_mut(piece as usize) else { return Err(misfit) };
        if *has {
            return Ok(None);
        }
        if rest.len() + start != total_bytes as usize || data.len() != length {
            return Err(misfit);
        }
        rest[..length].copy_from_slice(data);
        *has = true;
        if self.missing().next().is_some() {
            return Ok(None);
        }
        let is_right = match self.info_hash {
            InfoHash::V1(expected) => InfoHashV1::of(&self.bytes) == expected,
            InfoHash::V2(expected) => InfoHashV2::of(&self.bytes) == expected,
        };
        if !is_right {
            self.has.fill(false);
            return Err(MetadataError::WrongHash);
        }
        Ok(Some(std::mem::take(&mut self.bytes)))
    }
}

/// Metadata that cannot be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// Empty or too long.
    #[error("{total_bytes} bytes of metadata, of at most {METADATA_BYTES_MAX}")]
    Length {
        /// What the peer told.
        total_bytes: u32,
    },
    /// A piece past the last, of the wrong length, or of metadata of another length.
    #[error("piece {piece} of the metadata does not fit")]
    Piece {
        /// Its number.
        piece: u32,
    },
    /// The info-hash is another.
    #[error("the metadata does not match the info-hash")]
    WrongHash,
}

/// Length of every piece of metadata except the last (BEP 9).
pub const METADATA_PIECE_BYTES: u32 = 16 << 10;
/// Longest metadata accepted from peers; 64 MiB describe 3 million pieces.
pub const METADATA_BYTES_MAX: u32 = 64 << 20;
