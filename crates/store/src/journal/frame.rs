//! Frames: how records are chained so that only an untouched prefix is ever believed.
//!
//! Layout of a journal: magic (16 bytes: type and version), nonce (16 bytes), then frames of tag
//! (16 bytes), payload length (`u32`), kind (`u8`) and payload. The tag is the first 16 bytes of
//! BLAKE3(tag before ‖ length ‖ kind ‖ payload); the first "tag before" is made from magic and
//! nonce. The nonce differs for every journal, so blocks of an older journal that a disk brings
//! back after power loss do not continue the chain.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::sum::{Entry, Sum};

/// The first bytes of a journal.
#[derive(Clone, Copy)]
pub(crate) struct Opening {
    bytes: [u8; OPENING_BYTES],
}

impl Opening {
    /// Returns a unique opening for a new journal of this kind.
    pub(crate) fn fresh<S: Sum>() -> Opening {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let mut hasher = blake3::Hasher::new();
        let since_epoch =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        hasher.update(&since_epoch.as_nanos().to_le_bytes());
        hasher.update(&std::process::id().to_le_bytes());
        hasher.update(&COUNTER.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        let mut bytes = [0; OPENING_BYTES];
        bytes[..16].copy_from_slice(S::MAGIC);
        bytes[16..].copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Opening { bytes }
    }

    /// Returns the first bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the chain of frames that begins here.
    pub(crate) fn chain(&self) -> Chain {
        Chain { tag: short_tag(blake3::hash(&self.bytes)) }
    }
}

/// The end of a chain of frames: the tag that the next frame builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    tag: [u8; TAG_BYTES],
}

impl Chain {
    /// Appends `record` as the next frame to `out`. Returns false and appends nothing if it is
    /// larger than [`PAYLOAD_BYTES_MAX`].
    pub(crate) fn append(&mut self, record: &impl Entry, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEAD_BYTES]);
        record.encode(out);
        let payload_bytes = out.len() - start - FRAME_HEAD_BYTES;
        if payload_bytes > PAYLOAD_BYTES_MAX {
            out.truncate(start);
            return false;
        }
        let frame = &mut out[start..];
        frame[TAG_BYTES..TAG_BYTES + 4].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
        frame[TAG_BYTES + 4] = record.kind();
        self.tag = self.next_tag(&frame[TAG_BYTES..]);
        frame[..TAG_BYTES].copy_from_slice(&self.tag);
        true
    }

    fn next_tag(&self, after_tag: &[u8]) -> [u8; TAG_BYTES] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.tag);
        hasher.update(after_tag);
        short_tag(hasher.finalize())
    }
}

fn short_tag(hash: blake3::Hash) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&hash.as_bytes()[..TAG_BYTES]);
    tag
}

/// The result of reading a journal.
#[derive(Debug)]
pub(crate) enum Recovery<S> {
    /// The file is empty or has part of a correct opening: a journal being created. Nothing was
    /// ever recorded.
    Nothing,
    /// The file does not begin like a journal of this version.
    NotAJournal,
    /// A journal; everything up to `valid_bytes` is believed.
    Journal {
        /// The effect of all believed records.
        state: Box<S>,
        /// Where the next frame belongs.
        chain: Chain,
        /// Length of the believed part of the file.
        valid_bytes: u64,
        /// How many bytes follow that are not believed.
        dropped_bytes: u64,
    },
}

/// Reads a journal. Fails only on read errors; wrong bytes end the believed prefix.
pub(crate) fn recover<S: Sum>(mut source: impl Read) -> io::Result<Recovery<S>> {
    let mut opening = [0; OPENING_BYTES];
    let got = read_full(&mut source, &mut opening)?;
    if got < OPENING_BYTES {
        let magic = &opening[..got.min(16)];
        return Ok(if magic == &S::MAGIC[..magic.len()] {
            Recovery::Nothing
        } else {
            Recovery::NotAJournal
        });
    }
    if opening[..16] != *S::MAGIC {
        return Ok(Recovery::NotAJournal);
    }
    let mut chain = Opening { bytes: opening }.chain();
    let mut state = S::default();
    let mut valid_bytes = OPENING_BYTES as u64;
    let mut unread_bytes = 0;
    let mut frame = Vec::new();
    loop {
        let mut head = [0; FRAME_HEAD_BYTES];
        let head_bytes = read_full(&mut source, &mut head)?;
        unread_bytes += head_bytes as u64;
        if head_bytes < FRAME_HEAD_BYTES {
            break;
        }
        let mut length = [0; 4];
        length.copy_from_slice(&head[TAG_BYTES..TAG_BYTES + 4]);
        let payload_bytes = u32::from_le_bytes(length) as usize;
        if payload_bytes > PAYLOAD_BYTES_MAX {
            break;
        }
        frame.clear();
        frame.extend_from_slice(&head[TAG_BYTES..]);
        // `take`, not a buffer of the stated length: a wrong length must not cost memory.
        let got = source.by_ref().take(payload_bytes as u64).read_to_end(&mut frame)?;
        unread_bytes += got as u64;
        if got < payload_bytes {
            break;
        }
        let tag = chain.next_tag(&frame);
        if tag != head[..TAG_BYTES] {
            break;
        }
        // A correct tag on an unreadable record comes from a newer version. Later records may
        // depend on it, so the believed prefix ends here too.
        let Some(record) = S::Record::decode(frame[4], &frame[5..]) else { break };
        state.apply(&record);
        chain.tag = tag;
        valid_bytes += (FRAME_HEAD_BYTES + payload_bytes) as u64;
        unread_bytes = 0;
    }
    let dropped_bytes = unread_bytes + io::copy(&mut source, &mut io::sink())?;
    Ok(Recovery::Journal { state: Box::new(state), chain, valid_bytes, dropped_bytes })
}

/// Fills `out` as far as the source allows.
fn read_full(source: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < out.len() {
        match source.read(&mut out[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

const OPENING_BYTES: usize = 32;
/// 128 bits: no accident produces a fitting tag.
const TAG_BYTES: usize = 16;
const FRAME_HEAD_BYTES: usize = TAG_BYTES + 5;
/// Far above real records (hash states have some hundred bytes), far below any memory problem.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 4 << 20;
