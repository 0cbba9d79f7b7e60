//! Small TLS records on new connections.
//!
//! Encrypted bytes can be read when their whole record has arrived. A TLS library fills records of
//! 16 KiB, more than a new connection may send before the first acknowledgement, so on a long route
//! the beginning of every answer would come a round trip late.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use swath_transport::{Encryption, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// An encrypted stream that writes little at a time at first.
pub struct Records<S> {
    stream: S,
    written_bytes: u64,
}

impl<S> Records<S> {
    pub fn new(stream: S) -> Records<S> {
        Records { stream, written_bytes: 0 }
    }
}

/// Not one of [`Transport::plain_socket`]: the kernel would fill its packets by itself.
impl<S: Transport> Transport for Records<S> {
    fn socket(&self) -> Option<&TcpStream> {
        self.stream.socket()
    }

    fn encryption(&self) -> Option<Encryption> {
        self.stream.encryption()
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.stream.peer_certificate()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Records<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Records<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let is_young = self.written_bytes < YOUNG_BYTES;
        let most = if is_young { RECORD_BYTES.min(buf.len()) } else { buf.len() };
        let written = Pin::new(&mut self.stream).poll_write(cx, &buf[..most]);
        if let Poll::Ready(Ok(bytes)) = written {
            self.written_bytes += bytes as u64;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What goes into one packet of 1,500 bytes beside the headers of IPv6, TCP and TLS.
const RECORD_BYTES: usize = 1370;
/// So much is written that way: by then more than one whole record is under way at a time.
const YOUNG_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_young_connection_writes_packets_and_an_old_one_all_at_once() {
        let (ours, mut theirs) = duplex(1 << 20);
        let mut records = Records::new(ours);
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
        assert_eq!(records.write(&bytes).await.unwrap(), RECORD_BYTES);
        while records.written_bytes < YOUNG_BYTES {
            let at = records.written_bytes as usize;
            assert!(records.write(&bytes[at..]).await.unwrap() <= RECORD_BYTES);
        }
        let at = records.written_bytes as usize;
        assert_eq!(records.write(&bytes[at..]).await.unwrap(), bytes.len() - at);
        drop(records);
        let mut came = Vec::new();
        theirs.read_to_end(&mut came).await.unwrap();
        assert_eq!(came, bytes);
    }
}
