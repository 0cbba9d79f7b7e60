//! A connection that is turned round: we have dialled, and from then on the other side asks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use url::Url;

use super::exchange::Exchange;
use super::{Method, Opened, Request, open};
use crate::error::LaneError;
use crate::http::head::shortened;
use crate::net::{Conn, Net};
use crate::source::Trust;

/// A connection on which the other side asks.
pub struct Turned {
    conn: Conn,
    /// What came with the answer that turned it.
    early: Vec<u8>,
}

impl Turned {
    /// Dial `url` and ask for the connection to be turned into one of `protocol`.
    ///
    /// # Errors
    /// Any [`LaneError`]; an answer other than 101 among them.
    pub async fn dial(
        net: &Net,
        url: &Url,
        trust: Trust,
        protocol: &str,
    ) -> Result<Turned, LaneError> {
        let extra = format!("Connection: upgrade\r\nUpgrade: {protocol}\r\n");
        let request = Request {
            method: Method::Get,
            range: None,
            accept: "*/*",
            extra: &extra,
            limit_bytes: 0,
        };
        let limit = net.timeout();
        let opened = net.awake().within(limit, open(net, url, trust, &request)).await;
        let Opened { exchange, head, target, .. } =
            opened.ok_or(LaneError::Timeout { after: limit })??;
        if head.status != 101 {
            return Err(target.explain(LaneError::status(
                head.status,
                shortened(&head.reason),
                crate::http::answer::retry_after(&head),
            )));
        }
        let (conn, early) = Exchange::into_parts(exchange);
        Ok(Turned { conn, early })
    }

    /// Who is on the other side.
    pub fn peer(&self) -> std::net::SocketAddr {
        self.conn.peer
    }
}

impl AsyncRead for Turned {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.early.is_empty() {
            let bytes = this.early.len().min(space.remaining());
            space.put_slice(&this.early[..bytes]);
            this.early.drain(..bytes);
            return Poll::Ready(Ok(()));
        }
        let read = ready!(this.conn.poll_read(cx, space.initialize_unfilled()))?;
        space.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Turned {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().conn.poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().conn.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().conn.poll_shutdown(cx)
    }
}
