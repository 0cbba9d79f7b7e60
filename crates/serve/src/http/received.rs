//! The body of an HTTP/1.1 request, read from its connection on demand.

use std::io;
use std::time::Duration;

use swath_formats::chunks::Chunks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::Version;
use super::connection::within;
use super::head::{Body, Head};
use super::pace::Pace;
use super::response::{Made, Make};
use super::slots::Slot;
use super::stream::Stream;

/// What comes behind the head of a request.
pub(super) struct Received<'a> {
    stream: &'a mut Stream,
    /// What was read from the stream already.
    input: &'a mut Vec<u8>,
    pace: &'a mut Pace,
    slot: &'a Slot,
    length: Option<u64>,
    rest: Rest,
    /// The other side waits for leave to send (RFC 9110, section 10.1.1).
    waits: bool,
    is_touched: bool,
}

enum Rest {
    Bytes(u64),
    Chunks(Chunks),
}

impl<'a> Received<'a> {
    pub fn new(
        stream: &'a mut Stream,
        input: &'a mut Vec<u8>,
        pace: &'a mut Pace,
        slot: &'a Slot,
        head: &Head,
    ) -> Received<'a> {
        let (length, rest) = match head.body {
            Body::None => (Some(0), Rest::Bytes(0)),
            Body::Bytes(bytes) => (Some(bytes), Rest::Bytes(bytes)),
            Body::Chunked => (None, Rest::Chunks(Chunks::strict())),
        };
        let waits = head.version == Version::HTTP_11
            && head.field("expect").is_some_and(|it| it.eq_ignore_ascii_case("100-continue"));
        Received { stream, input, pace, slot, length, rest, waits, is_touched: false }
    }

    /// Whether somebody has wanted any of it.
    pub fn is_touched(&self) -> bool {
        self.is_touched
    }

    /// Whether all of it was taken.
    pub fn is_whole(&self) -> bool {
        match &self.rest {
            Rest::Bytes(left) => *left == 0,
            Rest::Chunks(chunks) => chunks.is_done(),
        }
    }

    /// The next bytes that are here already, or that come now.
    async fn part(&mut self) -> io::Result<Vec<u8>> {
        self.is_touched = true;
        loop {
            let mut part = Vec::new();
            match &mut self.rest {
                Rest::Bytes(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(self.input.len());
                    let here = here.min(PART_BYTES);
                    part.extend(self.input.drain(..here));
                    *left -= here as u64;
                }
                Rest::Chunks(chunks) => chunks
                    .read(self.input, &mut part, PART_BYTES)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
            }
            if !part.is_empty() || self.is_whole() {
                return Ok(part);
            }
            if std::mem::take(&mut self.waits) && self.input.is_empty() {
                let leave = async {
                    self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                    self.stream.flush().await
                };
                within(self.slot, leave).await?;
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        // Of lines between chunks there is never much; what belongs to the next request may come
        // with them and stays in `input`.
        let ahead = match &self.rest {
            Rest::Bytes(left) => *left,
            Rest::Chunks(chunks) => chunks.payload().max(LINE_BYTES),
        };
        self.input.reserve(READ_BYTES);
        let most = self.pace.allowed(ahead.min(PART_BYTES as u64)).await;
        let mut limited = (&mut *self.stream).take(most);
        let read = timeout(PART_WITHIN, within(self.slot, limited.read_buf(self.input))).await;
        match read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => {
                self.pace.spend(bytes as u64);
                Ok(())
            }
        }
    }
}

impl Make for Received<'_> {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(self.part())
    }
}

/// Handed on at a time.
const PART_BYTES: usize = 256 << 10;
/// Read at a time.
const READ_BYTES: usize = 64 << 10;
/// The same between chunks.
const LINE_BYTES: u64 = 4 << 10;
/// Somebody who sends a body has so long for each part of it.
pub(super) const PART_WITHIN: Duration = Duration::from_secs(60);
