//! Sends bytes to a client: from the cache, by the kernel alone where possible, and from the server
//! where they are not cached.

use std::future::poll_fn;
use std::io;

use swath_model::Range;
use swath_store::cache::Part;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::ask;
use super::connection::ClientConnection;
use super::reader::Reader;
use swath_serve::http::send_file;

impl ClientConnection<'_> {
    /// What does not come by way of the cache, as it comes.
    pub(super) async fn put_rest(
        &mut self,
        reader: &Reader,
        range: Range,
        sent: &mut u64,
    ) -> io::Result<()> {
        let failed = |_| io::Error::from(io::ErrorKind::UnexpectedEof);
        let asked = ask::range(self.relay, &reader.version, range, &reader.via);
        let mut upstream = asked.await.map_err(failed)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut left = range.len();
        while !upstream.is_through() {
            let polled = poll_fn(|cx| upstream.poll_body(cx, &mut buffer));
            let came = self.meanwhile(timeout(self.relay.timeout, polled)).await;
            let came = came.ok_or(io::ErrorKind::ConnectionReset)??;
            let bytes = came.map_err(io::Error::other)?;
            if bytes as u64 > left {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.put(&buffer[..bytes]).await?;
            left -= bytes as u64;
            *sent += bytes as u64;
            self.relay.metrics.passed(bytes as u64);
        }
        upstream.put_aside();
        if left == 0 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    pub(super) async fn put_part(&mut self, part: &Part) -> io::Result<()> {
        let (mut position, mut left) = (part.position, part.range.len());
        let mut buffer = Vec::new();
        while left > 0 {
            if let Some(tcp) = self.stream.plain_socket() {
                let now = self.pace.allowed(left).await;
                let sending = send_file(tcp, part, Range::of_len(position, now));
                let sent = timeout(self.relay.timeout, sending).await??;
                self.pace.spend(sent);
                if sent == 0 {
                    // Somebody cut the file, and the length is promised already.
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                (position, left) = (position + sent, left - sent);
                continue;
            }
            let (file, at, bytes) = (part.clone(), position, left.min(READ_PART_BYTES));
            let read = tokio::task::spawn_blocking(move || {
                buffer.resize(bytes as usize, 0);
                file.read_at(at, &mut buffer)?;
                Ok::<_, io::Error>(buffer)
            });
            buffer = read.await.map_err(io::Error::other)??;
            self.put(&buffer).await?;
            (position, left) = (position + bytes, left - bytes);
        }
        if self.stream.plain_socket().is_none() {
            // What comes next may be long in coming.
            timeout(self.relay.timeout, self.stream.flush()).await??;
        }
        Ok(())
    }

    pub(super) async fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let now = self.pace.allowed(bytes.len() as u64).await;
            let (part, rest) = bytes.split_at(now as usize);
            timeout(self.relay.timeout, self.stream.write_all(part)).await??;
            self.pace.spend(now);
            bytes = rest;
        }
        Ok(())
    }
}

/// Read at a time from the disk, where it has to be encrypted.
const READ_PART_BYTES: u64 = 64 << 10;
/// What one connection has in memory of what does not come by way of the cache.
const BUFFER_BYTES: usize = 128 << 10;
