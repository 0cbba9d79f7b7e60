//! Bodies read into memory part by part, for connections on which the kernel cannot send files.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::{ReadWriteFlags, preadv2};
use swath_model::Range;

use super::response::{Content, Made, Make, Piece};

impl Content {
    /// The same, made part by part.
    pub fn into_made(self) -> Box<dyn Make> {
        match self {
            Content::Empty => Box::new(Once(Vec::new())),
            Content::Bytes(bytes) => Box::new(Once(bytes)),
            Content::Pieces(pieces) => {
                let length = pieces.iter().map(Piece::bytes).sum();
                Box::new(Row { pieces: pieces.into_iter(), now: None, length })
            }
            Content::Made(made) => made,
            Content::Found(found) => found,
        }
    }
}

/// What is in memory.
struct Once(Vec<u8>);

impl Make for Once {
    fn length(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(std::future::ready(Ok(std::mem::take(&mut self.0))))
    }
}

/// A part of a file.
pub(super) struct FileBytes {
    file: Arc<File>,
    range: Range,
    /// Read at a time.
    part_bytes: u64,
    /// Memory for the next bytes.
    spare: Vec<u8>,
}

impl FileBytes {
    pub fn new(file: Arc<File>, range: Range) -> FileBytes {
        FileBytes { file, range, part_bytes: FILE_PART_BYTES, spare: Vec::new() }
    }
}

impl Make for FileBytes {
    fn length(&self) -> Option<u64> {
        Some(self.range.len())
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            let bytes = self.range.len().min(self.part_bytes);
            if bytes == 0 {
                return Ok(Vec::new());
            }
            let mut part = std::mem::take(&mut self.spare);
            part.resize(bytes as usize, 0);
            let start = self.range.start;
            let at_hand = read_at_hand(&self.file, &mut part, start);
            if at_hand > 0 {
                part.truncate(at_hand);
            } else {
                let file = Arc::clone(&self.file);
                let read = tokio::task::spawn_blocking(move || {
                    file.read_exact_at(&mut part, start)?;
                    io::Result::Ok(part)
                });
                part = read.await.map_err(io::Error::other)??;
            }
            self.range.start += part.len() as u64;
            Ok(part)
        })
    }

    fn take_back(&mut self, sent: Vec<u8>) {
        self.spare = sent;
    }
}

/// Reads what is in the page cache already, without waiting: waking a thread for each part costs a
/// server three times as much as the part. Answers how many bytes that were; none where that is not
/// known, or the file ends.
fn read_at_hand(file: &File, part: &mut [u8], start: u64) -> usize {
    let mut part = [IoSliceMut::new(part)];
    preadv2(file, &mut part, start, ReadWriteFlags::NOWAIT).unwrap_or(0)
}

/// Several pieces, one behind the other.
struct Row {
    pieces: std::vec::IntoIter<Piece>,
    now: Option<FileBytes>,
    length: u64,
}

impl Make for Row {
    fn length(&self) -> Option<u64> {
        Some(self.length)
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            loop {
                if let Some(now) = &mut self.now {
                    let bytes = now.next().await?;
                    if !bytes.is_empty() {
                        return Ok(bytes);
                    }
                    self.now = None;
                }
                match self.pieces.next() {
                    None => return Ok(Vec::new()),
                    Some(Piece::Text(text)) if text.is_empty() => {}
                    Some(Piece::Text(text)) => return Ok(text),
                    Some(Piece::Part { file, range }) => {
                        let bytes = FileBytes::new(file, range);
                        self.now = Some(FileBytes { part_bytes: ROW_PART_BYTES, ..bytes });
                    }
                }
            }
        })
    }

    fn take_back(&mut self, sent: Vec<u8>) {
        if let Some(now) = &mut self.now {
            now.take_back(sent);
        }
    }
}

/// Read from a file at a time; less where one connection may have many answers under way.
const FILE_PART_BYTES: u64 = 256 << 10;
const ROW_PART_BYTES: u64 = 64 << 10;
