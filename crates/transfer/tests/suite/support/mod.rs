//! What servers of ranges in these tests have in common.

// Every test file uses a part of it.
#![allow(dead_code)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request for a range.
pub struct Asked {
    /// As in the request line.
    pub path: String,
    pub start: u64,
    pub end: u64,
}

impl Asked {
    /// The next request on `stream` for a range of a file of `size` bytes; `input` keeps what has
    /// been read beyond it. `None` at the end, and where no range is asked for.
    pub async fn next(stream: &mut TcpStream, input: &mut Vec<u8>, size: u64) -> Option<Asked> {
        loop {
            if let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8(input.drain(..end + 4).collect()).ok()?;
                let path = head.split_whitespace().nth(1)?.to_owned();
                let (_, range) = head.split_once("Range: bytes=")?;
                let (start, last) = range.lines().next()?.split_once('-')?;
                let start: u64 = start.parse().ok()?;
                let end = last.parse().map_or(size, |last: u64| (last + 1).min(size));
                return Some(Asked { path, start, end });
            }
            if stream.read_buf(input).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// Sends the head of its answer.
    pub async fn begin(&self, stream: &mut TcpStream, size: u64) -> Option<()> {
        let Asked { start, end, .. } = self;
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{size}\r\n\r\n",
            end - start,
            end - 1
        );
        stream.write_all(head.as_bytes()).await.ok()
    }

    pub fn len(&self) -> u64 {
        self.end - self.start
    }
}
