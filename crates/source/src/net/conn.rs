//! One open connection to an origin, read by polling so that a lane can wait for orders, data and time
//! at once.

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
use url::Url;

use super::library::Library;
use crate::target::Origin;
use swath_transport::Transport;

/// An open connection to an origin.
pub(crate) struct Conn {
    carrier: Carrier,
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
    /// It ended without the close that TLS asks for.
    cut: bool,
    /// Something was written that has not left: TLS takes more than the socket.
    holds_back: bool,
}

/// What carries requests and answers.
enum Carrier {
    /// A stream of bytes, on which we speak HTTP/1.1.
    Transport(Box<dyn Transport>),
    Library(Box<Library>),
}

/// Relays that carry a connection.
pub(crate) type Via = Arc<[Url]>;

impl Conn {
    /// A new connection; `rtt` is the round trip to `origin`.
    pub fn new(
        transport: Box<dyn Transport>,
        origin: Origin,
        peer: SocketAddr,
        rtt: Duration,
    ) -> Conn {
        Conn::over(Carrier::Transport(transport), origin, peer, rtt)
    }

    /// The library; `rtt` is the round trip that another connection showed.
    pub fn by_library(library: Library, origin: Origin, peer: SocketAddr, rtt: Duration) -> Conn {
        Conn::over(Carrier::Library(Box::new(library)), origin, peer, rtt)
    }

    fn over(carrier: Carrier, origin: Origin, peer: SocketAddr, rtt: Duration) -> Conn {
        Conn {
            carrier,
            origin,
            peer,
            rtt,
            reused: false,
            answers: 0,
            idle_since: Instant::now(),
            via: Via::from([]),
            low_water: 1,
            cut: false,
            holds_back: false,
        }
    }

    /// The same, carried by relays.
    pub fn carried_by(self, via: &Via) -> Conn {
        Conn { via: Via::clone(via), ..self }
    }

    /// Returns the stream of bytes; `None` where the library has it.
    pub fn transport(&self) -> Option<&dyn Transport> {
        match &self.carrier {
            Carrier::Transport(transport) => Some(&**transport),
            Carrier::Library(_) => None,
        }
    }

    /// Returns the library, where it speaks for us.
    pub fn library(&mut self) -> Option<&mut Library> {
        match &mut self.carrier {
            Carrier::Transport(_) => None,
            Carrier::Library(library) => Some(library),
        }
    }

    /// Returns whether the library speaks for us.
    pub fn is_by_library(&self) -> bool {
        matches!(self.carrier, Carrier::Library(_))
    }

    /// Returns the stream of bytes, to read and write.
    fn stream(&mut self) -> io::Result<Pin<&mut Box<dyn Transport>>> {
        match &mut self.carrier {
            Carrier::Transport(transport) => Ok(Pin::new(transport)),
            Carrier::Library(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn plain_socket(&self) -> Option<&TcpStream> {
        self.transport().and_then(Transport::plain_socket)
    }

    /// Whether [`Conn::poll_readable`] means anything; with TLS only reading shows what is there.
    pub fn is_plain(&self) -> bool {
        self.plain_socket().is_some()
    }

    /// Returns whether it ended in a way that anybody between us and the server can bring about.
    pub fn was_cut(&self) -> bool {
        self.cut
    }

    /// Waits for bytes without reading them; always ready where only reading can tell.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.plain_socket() {
            Some(tcp) => tcp.poll_read_ready(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Reads what is there into `space`; 0 is the end of the connection. What was written leaves before:
    /// an answer may wait for it.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.holds_back {
            // After an error there may still be something to read.
            self.holds_back = self.poll_flush(cx).is_pending();
        }
        let mut space = ReadBuf::new(space);
        match ready!(self.stream()?.poll_read(cx, &mut space)) {
            // Many servers close without the farewell that TLS asks for; most bodies have lengths.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.cut = true,
            other => other?,
        }
        Poll::Ready(Ok(space.filled().len()))
    }

    /// Throws away up to `limit_bytes`; plain TCP does that without copying.
    pub fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        limit_bytes: u64,
    ) -> Poll<io::Result<usize>> {
        let limit = usize::try_from(limit_bytes).unwrap_or(usize::MAX).min(DISCARD_AT_ONCE_BYTES);
        match self.plain_socket() {
            Some(tcp) => poll_discard(tcp, cx, limit),
            None => {
                let limit = limit.min(scratch.len());
                self.poll_read(cx, &mut scratch[..limit])
            }
        }
    }

    /// Writes from `data`; returns how much was taken.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(self.stream()?.poll_write(cx, data))?;
        // What does not leave at once leaves with the next read or write.
        self.holds_back = self.poll_flush(cx)?.is_pending();
        Poll::Ready(Ok(written))
    }

    /// Sends what was written and has not left.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    /// Ends our direction.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }

    /// Wakes up only when that many bytes are there (or the connection ends). Fewer wake-ups at
    /// high rates; 1 is the normal state. With TLS it counts what is on the wire.
    pub fn set_low_water(&mut self, bytes: usize) {
        let bytes = bytes.max(1);
        let is_set = || self.transport().is_some_and(|it| it.set_low_water(bytes));
        if self.low_water != bytes && is_set() {
            self.low_water = bytes;
        }
    }

    /// Whether nothing has come and the other end has not closed: fit for another use.
    pub fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        if let Some(library) = self.library() {
            return library.is_quiet(&mut cx);
        }
        let mut byte = [0];
        self.poll_read(&mut cx, &mut byte).is_pending()
    }
}

/// A connection that does not carry HTTP any more: both directions as they are.
pub struct Tunnel {
    conn: Conn,
    /// What arrived with the answer that made it one.
    early: Vec<u8>,
}

impl Tunnel {
    pub(crate) fn new(conn: Conn, early: Vec<u8>) -> Tunnel {
        Tunnel { conn, early }
    }

    /// Returns the other end of the connection that carries it.
    pub fn peer(&self) -> SocketAddr {
        self.conn.peer
    }
}

impl Transport for Tunnel {
    fn socket(&self) -> Option<&TcpStream> {
        self.conn.transport().and_then(Transport::socket)
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let bytes = space.remaining().min(self.early.len());
            space.put_slice(&self.early[..bytes]);
            self.early.drain(..bytes);
            return Poll::Ready(Ok(()));
        }
        let bytes = ready!(self.conn.poll_read(cx, space.initialize_unfilled()))?;
        space.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.conn.poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.conn.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.conn.poll_shutdown(cx)
    }
}

fn poll_discard(tcp: &TcpStream, cx: &mut Context<'_>, limit: usize) -> Poll<io::Result<usize>> {
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

/// Discarding more than this at once would keep other tasks waiting.
const DISCARD_AT_ONCE_BYTES: usize = 8 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use url::Host;

    use super::*;

    /// Takes all that is written, as TLS does, and sends it when it is flushed and allowed to.
    #[derive(Default)]
    struct Held {
        taken: Vec<u8>,
        wire: Arc<Mutex<Wire>>,
    }

    #[derive(Default)]
    struct Wire {
        is_open: bool,
        sent: Vec<u8>,
    }

    impl Transport for Held {
        fn socket(&self) -> Option<&TcpStream> {
            None
        }
    }

    impl AsyncRead for Held {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Held {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.taken.extend_from_slice(data);
            Poll::Ready(Ok(data.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            let taken = std::mem::take(&mut self.taken);
            let mut wire = self.wire.lock().unwrap();
            if wire.is_open {
                wire.sent.extend_from_slice(&taken);
                return Poll::Ready(Ok(()));
            }
            drop(wire);
            self.taken = taken;
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The end of an upload stayed in the buffer of TLS, and both sides waited.
    #[test]
    fn what_was_written_leaves_while_an_answer_is_waited_for() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let held = Held::default();
        let wire = Arc::clone(&held.wire);
        let origin = Origin { tls: true, host: Host::parse("a.example").unwrap(), port: 443 };
        let peer = "192.0.2.1:443".parse().unwrap();
        let mut conn = Conn::new(Box::new(held), origin, peer, Duration::ZERO);
        assert!(matches!(conn.poll_write(&mut cx, b"the end"), Poll::Ready(Ok(7))));
        assert!(conn.poll_read(&mut cx, &mut [0]).is_pending());
        wire.lock().unwrap().is_open = true;
        assert!(conn.poll_read(&mut cx, &mut [0]).is_pending());
        assert_eq!(wire.lock().unwrap().sent, b"the end");
    }
}
