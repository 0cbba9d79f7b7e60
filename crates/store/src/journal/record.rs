//! The records of a journal and their bytes.
//!
//! Integers are little-endian; a text or byte string is a `u32` length and its bytes. Reading
//! checks every bound and refuses bytes that are left over, so a payload has one meaning or none.

use swath_model::{Range, Validators};

use super::bytes::{
    Bytes, put_bytes, put_option_text, put_option_u64, put_range, put_texts, put_u32, put_u64,
};
use super::sum::Entry;
use crate::Identity;

/// A fact about the file, as written to the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// What is known about the content; merged with earlier facts.
    Identity {
        /// Size of the file in bytes, if known.
        size_bytes: Option<u64>,
        /// Digests, validators and pieces.
        identity: Identity,
    },
    /// A source's address and the number that `Durable` uses for it from here on.
    Source {
        /// Number within this journal.
        id: u32,
        /// Address without credentials.
        name: String,
    },
    /// These bytes were delivered by `source` and lie synced in the part file. They count as
    /// unverified until a later `Verified`.
    Durable {
        /// The bytes of the file.
        range: Range,
        /// The source's number.
        source: u32,
    },
    /// These durable bytes were compared with a digest.
    Verified {
        /// The bytes of the file.
        range: Range,
    },
    /// These bytes were found wrong: neither durable nor verified any more.
    Bad {
        /// The bytes of the file.
        range: Range,
    },
    /// State of a digest over the first bytes of the file.
    HashState(HashState),
    /// All bytes are there but do not match the expected digest of the whole: from here on no
    /// digest counts as known. The bytes stay, because another digest may be the right one.
    Mismatch,
    /// Chaining value of one group of a hash tree.
    Group {
        /// Number of the group.
        index: u64,
        /// The bytes that it was made from.
        range: Range,
        /// The chaining value.
        cv: [u8; 32],
    },
}

/// A digest over `[0, front)` that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashState {
    /// Which digest, for example `sha-256`.
    pub algorithm: String,
    /// Bytes from the start of the file that went into it.
    pub front: u64,
    /// The serialised state, opaque to the store.
    pub state: Vec<u8>,
}

impl Entry for Record {
    fn kind(&self) -> u8 {
        match self {
            Record::Identity { .. } => KIND_IDENTITY,
            Record::Source { .. } => KIND_SOURCE,
            Record::Durable { .. } => KIND_DURABLE,
            Record::Verified { .. } => KIND_VERIFIED,
            Record::Bad { .. } => KIND_BAD,
            Record::HashState(_) => KIND_HASH_STATE,
            Record::Group { .. } => KIND_GROUP,
            Record::Mismatch => KIND_MISMATCH,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Identity { size_bytes, identity } => {
                put_option_u64(out, *size_bytes);
                put_texts(out, &identity.digests);
                put_u32(out, identity.versions.len() as u32);
                for (source, version) in &identity.versions {
                    put_bytes(out, source.as_bytes());
                    put_option_text(out, version.etag.as_deref());
                    put_option_text(out, version.last_modified.as_deref());
                }
                put_option_text(out, identity.pieces.as_deref());
            }
            Record::Source { id, name } => {
                put_u32(out, *id);
                put_bytes(out, name.as_bytes());
            }
            Record::Durable { range, source } => {
                put_range(out, *range);
                put_u32(out, *source);
            }
            Record::Verified { range } | Record::Bad { range } => put_range(out, *range),
            Record::Mismatch => {}
            Record::HashState(hash) => {
                put_bytes(out, hash.algorithm.as_bytes());
                put_u64(out, hash.front);
                put_bytes(out, &hash.state);
            }
            Record::Group { index, range, cv } => {
                put_u64(out, *index);
                put_range(out, *range);
                out.extend_from_slice(cv);
            }
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Record> {
        let mut bytes = Bytes(payload);
        let record = match kind {
            KIND_IDENTITY => {
                let size_bytes = bytes.option_u64()?;
                let digests =
                    (0..bytes.u32()?).map(|_| bytes.text()).collect::<Option<Vec<_>>>()?;
                let versions = (0..bytes.u32()?)
                    .map(|_| {
                        let source = bytes.text()?;
                        let (etag, last_modified) = (bytes.option_text()?, bytes.option_text()?);
                        Some((source, Validators { etag, last_modified }))
                    })
                    .collect::<Option<Vec<_>>>()?;
                let pieces = bytes.option_text()?;
                Record::Identity { size_bytes, identity: Identity { digests, versions, pieces } }
            }
            KIND_SOURCE => Record::Source { id: bytes.u32()?, name: bytes.text()? },
            KIND_DURABLE => Record::Durable { range: bytes.range()?, source: bytes.u32()? },
            KIND_VERIFIED => Record::Verified { range: bytes.range()? },
            KIND_BAD => Record::Bad { range: bytes.range()? },
            KIND_MISMATCH => Record::Mismatch,
            KIND_HASH_STATE => Record::HashState(HashState {
                algorithm: bytes.text()?,
                front: bytes.u64()?,
                state: bytes.counted()?.to_vec(),
            }),
            KIND_GROUP => {
                Record::Group { index: bytes.u64()?, range: bytes.range()?, cv: bytes.array()? }
            }
            _ => return None,
        };
        bytes.is_empty().then_some(record)
    }
}

const KIND_IDENTITY: u8 = 1;
const KIND_SOURCE: u8 = 2;
const KIND_DURABLE: u8 = 3;
const KIND_VERIFIED: u8 = 4;
const KIND_BAD: u8 = 5;
const KIND_HASH_STATE: u8 = 6;
const KIND_GROUP: u8 = 7;
const KIND_MISMATCH: u8 = 8;
