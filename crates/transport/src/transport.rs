//! One byte stream to a peer, whatever carries it: TCP, TLS, a tunnel through relays. Clients and
//! servers know their connections by this trait alone, so a further transport is one file.
//!
//! Reading and writing are tokio's traits, so layers stack: TLS over TCP, TLS over a tunnel. Bytes go
//! from the transport straight into the reader's buffer.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::kernel::{self, Arrivals};

/// An open connection's bytes, and what is known of the path below them.
///
/// A transport over TCP implements [`Transport::socket`] and gets the rest from the kernel; one without
/// a TCP socket implements the figures that it has itself.
pub trait Transport: AsyncRead + AsyncWrite + Send + Sync + Unpin {
    /// Returns the TCP socket at the bottom.
    fn socket(&self) -> Option<&TcpStream> {
        None
    }

    /// Returns the socket if bytes pass through it unchanged: then the kernel may move them by itself
    /// (`sendfile`, `splice`), and its readiness shows whether something can be read.
    fn plain_socket(&self) -> Option<&TcpStream> {
        None
    }

    /// Reads into the first of `parts` that has room, and what follows into the others where one call
    /// can. Returns how much was read; 0 is the end of the stream.
    fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        parts: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some(part) = parts.iter_mut().find(|part| !part.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        let mut room = ReadBuf::new(part);
        ready!(Pin::new(self).poll_read(cx, &mut room))?;
        Poll::Ready(Ok(room.filled().len()))
    }

    /// Returns the encryption that both sides agreed on.
    fn encryption(&self) -> Option<Encryption> {
        None
    }

    /// Returns the certificate (DER) by which the peer has proved that it has a key.
    fn peer_certificate(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the present estimate of the round-trip time.
    fn rtt(&self) -> Option<Duration> {
        self.socket().and_then(kernel::rtt)
    }

    /// Returns the smallest round-trip time of late: without what waits in queues.
    fn min_rtt(&self) -> Option<Duration> {
        self.socket().and_then(kernel::min_rtt)
    }

    /// Returns what arrived so far, packets that overtook a lost one included.
    fn arrivals(&self) -> Option<Arrivals> {
        self.socket().and_then(kernel::arrivals)
    }

    /// Wakes the reader only when `bytes` bytes arrived or the connection ends; `false` if it cannot.
    fn set_low_water(&self, bytes: usize) -> bool {
        self.socket().is_some_and(|tcp| kernel::set_low_water(tcp, bytes))
    }

    /// Looks without reading whether the peer is still there.
    fn peer_state(&self) -> PeerState {
        let Some(tcp) = self.socket() else { return PeerState::Open };
        let mut asked = libc::pollfd { fd: tcp.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one structure of our own, for a descriptor that is open; it does not wait.
        let found = unsafe { libc::poll(&raw mut asked, 1, 0) };
        if found <= 0 {
            PeerState::Open
        } else if asked.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 {
            PeerState::Gone
        } else {
            PeerState::Ended
        }
    }

    /// Makes closing it a reset, so that the peer does not take the end for a proper one. What was sent
    /// and has not arrived is lost.
    fn abort(&self) {
        if let Some(tcp) = self.socket() {
            let _ = tcp.set_zero_linger();
        }
    }
}

/// A connection that a peer has opened, and the peer's address.
pub type Incoming = (Box<dyn Transport>, SocketAddr);

/// What is known of the peer's direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// It may send more.
    Open,
    /// It has ended its direction, and may wait for answers all the same.
    Ended,
    /// The connection is broken.
    Gone,
}

/// The application protocol (RFC 7301) by which a client says that it has a certificate of its own to
/// show. Servers of swath ask nobody else for one: browsers would ask their users.
pub const CLIENT_CERTIFICATE: &[u8] = b"swath-client-certificate";

/// The name (DER) of the only authority whose certificates a server of swath asks for: `CN=swath`. There
/// is no such authority; clients show their certificates to nobody else, because other servers refuse
/// whatever no authority of theirs has signed.
pub const CERTIFICATES_FOR: &[u8] = b"\x30\x10\x31\x0e\x30\x0c\x06\x03\x55\x04\x03\x0c\x05swath";

/// What both sides of an encrypted connection agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encryption {
    /// Version and cipher suite, as `TLS 1.3 TLS13_AES_256_GCM_SHA384`.
    pub name: String,
    /// The application protocol (RFC 7301).
    pub alpn: Option<Vec<u8>>,
}

impl Transport for TcpStream {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }

    fn plain_socket(&self) -> Option<&TcpStream> {
        Some(self)
    }

    fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        parts: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            match self.try_read_vectored(parts) {
                Err(error) if is_retry(&error) => {}
                read => return Poll::Ready(read),
            }
        }
    }
}

fn is_retry(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Either side of TLS, over anything.
impl<S: Transport> Transport for TlsStream<S> {
    fn socket(&self) -> Option<&TcpStream> {
        self.get_ref().0.socket()
    }

    fn encryption(&self) -> Option<Encryption> {
        let session = self.get_ref().1;
        let version = session.protocol_version().and_then(|version| version.as_str());
        let suite = session.negotiated_cipher_suite();
        let suite = suite.as_ref().and_then(|suite| suite.suite().as_str());
        let name = match (version, suite) {
            (Some(version), Some(suite)) => {
                format!("{} {suite}", version.replace("TLSv1_", "TLS 1."))
            }
            (version, _) => version.unwrap_or_default().to_owned(),
        };
        Some(Encryption { name, alpn: session.alpn_protocol().map(<[u8]>::to_vec) })
    }

    fn peer_certificate(&self) -> Option<&[u8]> {
        self.get_ref().1.peer_certificates()?.first().map(AsRef::as_ref)
    }
}

/// A transport with a large buffer in front of TLS: rustls reads 4 KiB at a time, the kernel is asked
/// for much more at once.
struct ReadAhead<S> {
    stream: S,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Agrees on TLS with the server at the other end of `stream`.
pub async fn encrypted(
    stream: impl Transport + 'static,
    connector: &TlsConnector,
    name: ServerName<'static>,
) -> io::Result<Box<dyn Transport>> {
    let tls = connector.connect(name, ReadAhead::new(stream)).await?;
    Ok(Box::new(TlsStream::from(tls)))
}

/// Holds sixteen full TLS records.
const READ_AHEAD_BYTES: usize = 256 * 1024;

impl<S> ReadAhead<S> {
    fn new(stream: S) -> ReadAhead<S> {
        ReadAhead { stream, buffer: vec![0; READ_AHEAD_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }
}

impl<S: Transport> Transport for ReadAhead<S> {
    fn socket(&self) -> Option<&TcpStream> {
        self.stream.socket()
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
