//! An input that counts lines and limits its size.
//!
//! The XML parser collects one tag or text at a time in memory. The guard limits the bytes between
//! two events, and the bytes of the whole document.

use std::io::{self, BufRead, Read};

use super::encoding::Decoded;

/// A limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// The whole document.
    #[error("the document has more than {0} bytes")]
    DocumentBytes(u64),
    /// One tag, text or comment.
    #[error("one tag, text or comment has more than {0} bytes")]
    EventBytes(u64),
    /// Nested elements.
    #[error("more than {0} elements lie inside each other")]
    Depth(usize),
    /// Attributes of one element.
    #[error("an element has more than {0} attributes")]
    Attributes(usize),
    /// Files.
    #[error("there are more than {0} files")]
    Files(u64),
    /// Addresses of one file.
    #[error("a file has more than {0} addresses and skipped parts")]
    Addresses(usize),
    /// Digests of one file.
    #[error("a file has more than {0} digests")]
    Digests(usize),
    /// Bytes of piece digests of one file.
    #[error("a file has more than {0} bytes of piece digests")]
    PieceBytes(usize),
}

/// Limits an input, as the module header says.
pub(super) struct Guard<R> {
    input: R,
    /// Line ends seen so far, plus one.
    pub(super) line: u64,
    bytes_left: u64,
    document_bytes_max: u64,
    event_bytes_left: u64,
    /// The exceeded limit, because the XML parser passes only its text.
    pub(super) hit: Option<Limit>,
}

impl<R: BufRead> Guard<R> {
    pub(super) fn new(input: R, document_bytes_max: u64) -> Guard<R> {
        Guard {
            input,
            line: 1,
            bytes_left: document_bytes_max,
            document_bytes_max,
            event_bytes_left: EVENT_BYTES_MAX,
            hit: None,
        }
    }

    /// Prepares for the next event; call it before each.
    pub(super) fn next_event(&mut self) {
        self.event_bytes_left = EVENT_BYTES_MAX;
    }
}

impl<R> Guard<Decoded<R>> {
    /// Returns the encoding of the document if it is unknown.
    pub(super) fn unknown_encoding(&self) -> Option<&str> {
        self.input.unknown.as_deref()
    }
}

impl<R: BufRead> BufRead for Guard<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let available = self.input.fill_buf()?;
        if available.is_empty() {
            return Ok(available);
        }
        let left = self.bytes_left.min(self.event_bytes_left);
        if left == 0 {
            let hit = if self.bytes_left == 0 {
                Limit::DocumentBytes(self.document_bytes_max)
            } else {
                Limit::EventBytes(EVENT_BYTES_MAX)
            };
            self.hit = Some(hit);
            return Err(io::Error::other(hit));
        }
        let shown = usize::try_from(left).map_or(available.len(), |left| left.min(available.len()));
        Ok(&available[..shown])
    }

    fn consume(&mut self, bytes: usize) {
        // Count lines in the bytes that the inner buffer still holds; asking for it again is free
        // as long as it is not empty.
        if bytes > 0
            && let Ok(available) = self.input.fill_buf()
        {
            let taken = &available[..bytes.min(available.len())];
            self.line += taken.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes as u64);
        self.event_bytes_left = self.event_bytes_left.saturating_sub(bytes as u64);
        self.input.consume(bytes);
    }
}

impl<R: BufRead> Read for Guard<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let taken = available.len().min(out.len());
        out[..taken].copy_from_slice(&available[..taken]);
        self.consume(taken);
        Ok(taken)
    }
}

/// Far more than any address, digest or signature.
const EVENT_BYTES_MAX: u64 = 1 << 20;
