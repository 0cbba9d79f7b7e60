//! A connection's bytes, plain or through TLS, and the fast way of sending files.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use swath_model::Range;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::records::Records;

/// An accepted connection.
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Encrypted; we are its server.
    Tls(Box<Records<TlsStream<TcpStream>>>),
    /// One that was opened in another way.
    Other(Box<dyn Duplex>),
}

/// What is known of the other side's way to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherSide {
    /// It may send more.
    Open,
    /// It has ended its side, and may wait for answers all the same.
    Ended,
    /// The connection is broken.
    Gone,
}

/// Both directions of something.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}

impl Stream {
    /// The socket, if bytes may be put into it as they are.
    pub fn plain(&self) -> Option<&TcpStream> {
        match self {
            Stream::Plain(tcp) => Some(tcp),
            Stream::Tls(_) | Stream::Other(_) => None,
        }
    }

    /// Looks whether the other side is still there, without reading.
    pub fn other_side(&self) -> OtherSide {
        let Some(tcp) = self.tcp() else { return OtherSide::Open };
        let mut asked = libc::pollfd { fd: tcp.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one structure of our own, for a descriptor that is open; it does not wait.
        let found = unsafe { libc::poll(&raw mut asked, 1, 0) };
        if found <= 0 {
            OtherSide::Open
        } else if asked.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 {
            OtherSide::Gone
        } else {
            OtherSide::Ended
        }
    }

    /// The socket below it all.
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Stream::Plain(tcp) => Some(tcp),
            Stream::Tls(tls) => Some(tls.get_ref().get_ref().0),
            Stream::Other(_) => None,
        }
    }

    /// End it so that the other side notices that it is no proper end.
    pub fn cut(&self) {
        let Some(tcp) = self.tcp() else { return };
        // Closed with a reset; what has been sent and not yet arrived is lost with it.
        let _ = tcp.set_zero_linger();
    }

    /// Read what has come of requests behind `input`; whether there may be more of them. Whoever has
    /// ended its own side may wait for answers all the same.
    ///
    /// # Errors
    /// Of reading: nobody is there.
    pub fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut Vec<u8>,
    ) -> Poll<io::Result<bool>> {
        let mut space = [0; INPUT_BYTES];
        let mut space = ReadBuf::new(&mut space);
        ready!(Pin::new(self).poll_read(cx, &mut space))?;
        input.extend_from_slice(space.filled());
        Poll::Ready(Ok(!space.filled().is_empty()))
    }

    /// Whether both sides have agreed on HTTP/2.
    pub fn speaks_two(&self) -> bool {
        match self {
            Stream::Plain(_) | Stream::Other(_) => false,
            Stream::Tls(tls) => tls.get_ref().get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

/// Send some of a part of a file without copying it, as soon as the socket takes any; answers how
/// many bytes that were. None only where the file ends.
pub async fn send_file(tcp: &TcpStream, file: &impl AsFd, range: Range) -> io::Result<u64> {
    let start = i64::try_from(range.start).map_err(|_| io::ErrorKind::InvalidInput)?;
    let most = range.len().min(SENDFILE_BYTES_MAX) as usize;
    tcp.async_io(Interest::WRITABLE, || {
        let mut offset = start;
        // SAFETY: a plain system call on two descriptors that are open, with an offset of our own.
        let sent = unsafe {
            libc::sendfile(tcp.as_raw_fd(), file.as_fd().as_raw_fd(), &raw mut offset, most)
        };
        u64::try_from(sent).map_err(|_| io::Error::last_os_error())
    })
    .await
}

/// One call sends no more than this. Over loopback 1 MiB costs a quarter more processor time than
/// this, and 64 KiB half more: the receiver is woken too late or too often.
const SENDFILE_BYTES_MAX: u64 = 192 << 10;
/// Read at a time where requests are expected.
const INPUT_BYTES: usize = 8 << 10;

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Stream::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
            Stream::Other(other) => Pin::new(other).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
            Stream::Other(other) => Pin::new(other).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Stream::Other(other) => Pin::new(other).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Stream::Other(other) => Pin::new(other).poll_shutdown(cx),
        }
    }
}
