//! One connection, plain or TLS, read by polling so that a lane can wait for orders, data and
//! time at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use url::Url;

use super::gateway::Gateway;
use super::kernel::{self, Came};
use crate::error::LaneError;
use crate::target::Origin;
use crate::upstream::Tunnel;

/// An open connection to an origin.
pub(crate) struct Conn {
    stream: Stream,
    pub origin: Origin,
    pub peer: SocketAddr,
    /// Round-trip time seen while connecting.
    pub rtt: Duration,
    /// It served an earlier lane.
    pub reused: bool,
    /// Answers received on it, over all lanes.
    pub answers: u64,
    /// When it was put aside.
    pub idle_since: Instant,
    /// The relays that carry it, the nearest first.
    pub via: Via,
    low_water: usize,
    /// It ended without the farewell that TLS asks for.
    cut: bool,
}

/// Relays that carry a connection.
pub(crate) type Via = Arc<[Url]>;

/// A connection of TLS whose server we are.
pub type AcceptedTls = tokio_rustls::server::TlsStream<TcpStream>;

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<ReadAhead>>),
    /// The other side has dialled; we are the server of its TLS.
    Accepted(Box<AcceptedTls>),
    /// The library, behind a pipe.
    Gateway(Gateway),
    /// What relays carry.
    Tunnel(Box<Tunnel>),
    /// What relays carry and cannot read.
    TlsTunnel(Box<TlsStream<ReadAhead<Tunnel>>>),
}

impl Conn {
    pub fn plain(stream: TcpStream, origin: Origin, peer: SocketAddr, rtt: Duration) -> Conn {
        Conn::new(Stream::Plain(stream), origin, peer, rtt)
    }

    pub fn tls(
        stream: TlsStream<ReadAhead>,
        origin: Origin,
        peer: SocketAddr,
        rtt: Duration,
    ) -> Conn {
        Conn::new(Stream::Tls(Box::new(stream)), origin, peer, rtt)
    }

    pub fn accepted(
        stream: Box<AcceptedTls>,
        origin: Origin,
        peer: SocketAddr,
        rtt: Duration,
    ) -> Conn {
        Conn::new(Stream::Accepted(stream), origin, peer, rtt)
    }

    /// By way of relays, to `origin`; `rtt` is the round trip to there.
    pub fn tunnel(tunnel: Tunnel, origin: Origin, via: Via, rtt: Duration) -> Conn {
        let peer = tunnel.peer();
        Conn { via, ..Conn::new(Stream::Tunnel(Box::new(tunnel)), origin, peer, rtt) }
    }

    /// The same, encrypted from end to end.
    pub fn tls_tunnel(
        tls: TlsStream<ReadAhead<Tunnel>>,
        origin: Origin,
        via: Via,
        rtt: Duration,
    ) -> Conn {
        let peer = tls.get_ref().0.stream.peer();
        Conn { via, ..Conn::new(Stream::TlsTunnel(Box::new(tls)), origin, peer, rtt) }
    }

    pub fn gateway(gateway: Gateway, origin: Origin, peer: SocketAddr, rtt: Duration) -> Conn {
        Conn::new(Stream::Gateway(gateway), origin, peer, rtt)
    }

    fn new(stream: Stream, origin: Origin, peer: SocketAddr, rtt: Duration) -> Conn {
        let idle_since = Instant::now();
        let (reused, cut) = (false, false);
        let via = Via::from([]);
        Conn { stream, origin, peer, rtt, reused, answers: 0, idle_since, via, low_water: 1, cut }
    }

    /// Whether [`Conn::poll_readable`] means anything; with TLS only reading shows what is there.
    pub fn is_plain(&self) -> bool {
        matches!(self.stream, Stream::Plain(_))
    }

    /// Whether the gateway is behind it.
    pub fn is_gateway(&self) -> bool {
        matches!(self.stream, Stream::Gateway(_))
    }

    /// Whether it ended in a way that anybody between us and the server can bring about.
    pub fn was_cut(&self) -> bool {
        self.cut
    }

    /// Why the gateway could not go on, if it is to blame for the end of this connection.
    pub fn gateway_error(&self) -> Option<LaneError> {
        match &self.stream {
            Stream::Gateway(gateway) => gateway.failure(),
            _ => None,
        }
    }

    /// Protocol version and cipher, with TLS of our own.
    pub fn tls_words(&self) -> Option<String> {
        let Stream::Tls(tls) = &self.stream else { return None };
        let session = tls.get_ref().1;
        let version =
            session.protocol_version().and_then(|version| version.as_str().map(str::to_owned))?;
        let suite = session
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str().map(str::to_owned));
        Some(match suite {
            Some(suite) => format!("{} {suite}", version.replace("TLSv1_", "TLS 1.")),
            None => version,
        })
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match &self.stream {
            Stream::Plain(tcp) => Some(tcp),
            Stream::Tls(tls) => Some(&tls.get_ref().0.stream),
            Stream::Accepted(tls) => Some(tls.get_ref().0),
            Stream::Gateway(_) => None,
            Stream::Tunnel(tunnel) => tunnel.conn().tcp(),
            Stream::TlsTunnel(tls) => tls.get_ref().0.stream.conn().tcp(),
        }
    }

    /// Wait for bytes without reading them; always ready where only reading can tell.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.stream {
            Stream::Plain(tcp) => tcp.poll_read_ready(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Read what is there into `space`; 0 is the end of the connection.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut space = ReadBuf::new(space);
        match &mut self.stream {
            Stream::Plain(tcp) => ready!(Pin::new(tcp).poll_read(cx, &mut space))?,
            Stream::Tls(tls) => match ready!(Pin::new(tls).poll_read(cx, &mut space)) {
                // Many servers close without the farewell that TLS asks for; most bodies have
                // lengths.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.cut = true,
                other => other?,
            },
            Stream::Accepted(tls) => match ready!(Pin::new(tls).poll_read(cx, &mut space)) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.cut = true,
                other => other?,
            },
            Stream::Gateway(gateway) => {
                ready!(Pin::new(&mut gateway.pipe).poll_read(cx, &mut space))?
            }
            Stream::Tunnel(tunnel) => ready!(Pin::new(tunnel).poll_read(cx, &mut space))?,
            Stream::TlsTunnel(tls) => match ready!(Pin::new(tls).poll_read(cx, &mut space)) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.cut = true,
                other => other?,
            },
        }
        Poll::Ready(Ok(space.filled().len()))
    }

    /// Throw away up to `limit_bytes`; plain TCP does that without copying.
    pub fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        limit_bytes: u64,
    ) -> Poll<io::Result<usize>> {
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX).min(DISCARD_AT_ONCE_BYTES);
        let Stream::Plain(tcp) = &self.stream else {
            let limit = limit.min(scratch.len());
            return self.poll_read(cx, &mut scratch[..limit]);
        };
        loop {
            ready!(tcp.poll_read_ready(cx))?;
            let discarded = tcp.try_io(Interest::READABLE, || {
                // SAFETY: with MSG_TRUNC the kernel drops the bytes of a TCP socket and never
                // writes to the address, which may be null (tcp(7)).
                let bytes = unsafe {
                    libc::recv(tcp.as_raw_fd(), std::ptr::null_mut(), limit, libc::MSG_TRUNC)
                };
                usize::try_from(bytes).map_err(|_| io::Error::last_os_error())
            });
            match discarded {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// Write from `data`; returns how much was taken.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, data),
            Stream::Tls(tls) => {
                let written = ready!(Pin::new(&mut *tls).poll_write(cx, data))?;
                // What does not leave at once leaves with the next read or write.
                let _ = Pin::new(tls).poll_flush(cx)?;
                Poll::Ready(Ok(written))
            }
            Stream::Accepted(tls) => {
                let written = ready!(Pin::new(&mut *tls).poll_write(cx, data))?;
                let _ = Pin::new(tls).poll_flush(cx)?;
                Poll::Ready(Ok(written))
            }
            Stream::Gateway(gateway) => Pin::new(&mut gateway.pipe).poll_write(cx, data),
            Stream::Tunnel(tunnel) => {
                let written = ready!(Pin::new(&mut *tunnel).poll_write(cx, data))?;
                let _ = Pin::new(tunnel).poll_flush(cx)?;
                Poll::Ready(Ok(written))
            }
            Stream::TlsTunnel(tls) => {
                let written = ready!(Pin::new(&mut *tls).poll_write(cx, data))?;
                let _ = Pin::new(tls).poll_flush(cx)?;
                Poll::Ready(Ok(written))
            }
        }
    }

    /// Send what was written and has not left.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Stream::Accepted(tls) => Pin::new(tls).poll_flush(cx),
            Stream::Gateway(gateway) => Pin::new(&mut gateway.pipe).poll_flush(cx),
            Stream::Tunnel(tunnel) => Pin::new(tunnel).poll_flush(cx),
            Stream::TlsTunnel(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    /// Nothing more is sent.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Stream::Accepted(tls) => Pin::new(tls).poll_shutdown(cx),
            Stream::Gateway(gateway) => Pin::new(&mut gateway.pipe).poll_shutdown(cx),
            Stream::Tunnel(tunnel) => Pin::new(tunnel).poll_shutdown(cx),
            Stream::TlsTunnel(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    /// Wake up only when that many bytes are there (or the connection ends). Fewer wake-ups at
    /// high rates; 1 is the normal state. With TLS it counts what is on the wire.
    pub fn set_low_water(&mut self, bytes: usize) {
        let bytes = bytes.max(1);
        if self.low_water == bytes {
            return;
        }
        let Some(tcp) = self.tcp() else { return };
        if kernel::set_low_water(tcp, bytes) {
            self.low_water = bytes;
        }
    }

    /// Announce a window of no more than `bytes` bytes, until the kernel widens it again; `u64::MAX`
    /// leaves it to the kernel.
    pub fn narrow(&self, bytes: u64) {
        if let Some(tcp) = self.tcp() {
            kernel::narrow(tcp, bytes);
        }
    }

    /// The kernel's present estimate of the round-trip time.
    pub fn kernel_rtt(&self) -> Option<Duration> {
        self.tcp().and_then(kernel::rtt)
    }

    /// The smallest round trip that the kernel has seen lately.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.tcp().and_then(kernel::min_rtt)
    }

    /// The socket, if bytes come from it as they are.
    pub fn plain_tcp(&self) -> Option<&TcpStream> {
        match &self.stream {
            Stream::Plain(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// What has come before its turn; `None` where nobody can tell.
    pub fn came(&self) -> Option<Came> {
        self.tcp().and_then(kernel::came)
    }

    /// Whether nothing has come and the other end has not closed: fit for another use.
    pub fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut byte = [0];
        self.poll_read(&mut cx, &mut byte).is_pending()
    }
}

/// Discarding more than this at once would keep other tasks waiting.
const DISCARD_AT_ONCE_BYTES: usize = 8 * 1024 * 1024;

/// TCP with a large buffer in front of TLS: rustls reads 4 KiB at a time, the kernel is asked
/// for much more at once.
pub(crate) struct ReadAhead<S = TcpStream> {
    stream: S,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Holds sixteen full TLS records.
const READ_AHEAD_BYTES: usize = 256 * 1024;

impl<S> ReadAhead<S> {
    pub fn new(stream: S) -> ReadAhead<S> {
        ReadAhead { stream, buffer: vec![0; READ_AHEAD_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.start == this.end {
            let mut whole = ReadBuf::new(&mut this.buffer);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut whole))?;
            this.start = 0;
            this.end = whole.filled().len();
        }
        let bytes = (this.end - this.start).min(space.remaining());
        space.put_slice(&this.buffer[this.start..this.start + bytes]);
        this.start += bytes;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
