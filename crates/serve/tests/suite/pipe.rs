//! Connections in memory, for tests on a clock that stands still until nothing else is left to do.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use swath_serve::{Offer, SiteOptions};
use swath_transport::Transport;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::task::JoinHandle;

/// The end of a connection at which the server stands.
struct Pipe(DuplexStream);

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Transport for Pipe {}

/// A site that answers on pipes.
pub struct Piped(Offer);

impl Piped {
    pub fn of(site: SiteOptions) -> Piped {
        Piped(Offer::open(site).unwrap())
    }

    /// Connects; at most `room_bytes` are on their way in each direction.
    pub fn connect(&self, room_bytes: usize) -> (DuplexStream, JoinHandle<()>) {
        let (here, there) = duplex(room_bytes);
        let offer = self.0.clone();
        let peer = "192.0.2.1:1".parse().unwrap();
        let served = tokio::spawn(async move { offer.serve(Pipe(there), peer).await });
        (here, served)
    }
}
