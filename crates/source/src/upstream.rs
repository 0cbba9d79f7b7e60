//! A connection on which requests are passed on as they are: what a relay needs of the network
//! inbound.
//!
//! Requests are appended to what is to be sent, and answers come in their order: a head, then its
//! body, then the next head. Whoever drives it polls, so that one task can move both sides of a
//! passage. Nothing is retried and nothing is judged here.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_transport::Transport;

use tokio::net::TcpStream;
use url::Url;

use crate::error::LaneError;
use crate::http::head::{Head, HeadError, SWITCHING_PROTOCOLS};
use crate::net::{Conn, Http1Conn, Net, Tunnel};
use crate::source::Trust;
use crate::target::Origin;

/// One connection to the server that is asked.
pub struct Upstream {
    http: Http1Conn,
    net: Net,
    /// Requests sent whose answers have not begun.
    owed: u32,
    /// Its server may take whoever asks on it for whom it has let in on it.
    is_personal: bool,
}

/// The head of an answer, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerHead {
    /// The status code.
    pub status: u16,
    /// What the status line says of it.
    pub reason: String,
    /// Fields in the order in which they came, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The length of the body that follows, where told; chunks have none.
    pub length: Option<u64>,
    /// No body follows, whatever its length would be.
    pub is_bodiless: bool,
}

impl AnswerHead {
    /// Returns the first field of this (lower-case) name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

impl Net {
    /// A connection to the server of `url`: one that served before if `reuse` and there is one.
    ///
    /// # Errors
    /// [`LaneError`], as for lanes.
    pub fn upstream<'a>(
        &'a self,
        url: &'a Url,
        reuse: bool,
    ) -> BoxFuture<'a, Result<Upstream, LaneError>> {
        Box::pin(async move {
            let origin = Origin::of(url)
                .ok_or_else(|| LaneError::Scheme { scheme: url.scheme().to_owned() })?;
            let conn = Box::pin(self.connect_to(&origin, Trust::Listed, reuse, false)).await?;
            Ok(Upstream::new(self.clone(), conn))
        })
    }
}

impl Net {
    /// A connection to the host and port of `url` on which nothing is said yet: whatever is to be
    /// spoken on it, encryption included, is the business of whoever gets it.
    ///
    /// # Errors
    /// [`LaneError`], as for lanes.
    pub fn dial<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Upstream, LaneError>> {
        Box::pin(async move {
            let origin = Origin::of(url)
                .ok_or_else(|| LaneError::Scheme { scheme: url.scheme().to_owned() })?;
            let origin = Origin { tls: false, ..origin };
            let conn = Box::pin(self.connect_to(&origin, Trust::Listed, false, false)).await?;
            Ok(Upstream::new(self.clone(), conn))
        })
    }
}

impl Upstream {
    pub(crate) fn new(net: Net, conn: Conn) -> Upstream {
        Upstream { http: Http1Conn::new(conn).strictly(), net, owed: 0, is_personal: false }
    }

    /// Returns whether it goes to the server of `url`.
    pub fn leads_to(&self, url: &Url) -> bool {
        Origin::of(url).is_some_and(|origin| origin == self.http.conn().origin)
    }

    /// Returns whether further requests may be sent on it.
    pub fn takes_more(&self) -> bool {
        self.http.reusable
    }

    /// Returns the round trip to the server, as far as known without what waits in queues.
    pub fn rtt(&self) -> Duration {
        let conn = self.http.conn();
        conn.transport().and_then(Transport::min_rtt).map_or(conn.rtt, |least| least.min(conn.rtt))
    }

    /// Whether it has answered before: its server may have closed it since, without any fault of the
    /// request that it is to answer next.
    pub fn was_used(&self) -> bool {
        self.http.conn().reused || self.http.conn().answers > 0
    }

    /// Whether a request may be sent before the answer to the one before it has ended.
    pub fn bears_more(&self) -> bool {
        !self.http.conn().is_by_library()
    }

    /// Returns whether something that came is not used yet.
    pub fn has_some(&self) -> bool {
        self.http.has_input()
    }

    fn is_asked(&self) -> bool {
        self.owed > 0 || !self.is_through()
    }

    /// Returns whether bytes have come that no request asked for. Whoever sends such may send anything: they
    /// could be taken for the answer to what is asked next, by somebody else perhaps.
    pub fn has_excess(&self) -> bool {
        !self.is_asked() && self.has_some()
    }

    /// Returns whether nothing has come that no request asked for, neither here nor to the socket, not even an
    /// end.
    pub fn is_quiet(&mut self) -> bool {
        self.is_asked() || !self.has_some() && self.http.conn_mut().is_quiet()
    }

    /// Appends a whole request.
    pub fn send(&mut self, request: &[u8]) {
        self.http.output().extend_from_slice(request);
        self.owed += 1;
        self.is_personal |= request.split(|&byte| byte == b'\n').any(lets_connection_in);
    }

    /// Returns whether something is left to be sent.
    pub fn has_unsent(&self) -> bool {
        self.http.unsent_bytes() > 0
    }

    /// Sends what is to be sent; ready when all of it was taken.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.http.poll_send(cx)
    }

    /// The head of the next answer; `None` if the connection ended in front of it. `is_head` where
    /// the request was one for the head alone.
    ///
    /// # Errors
    /// [`LaneError`] if what comes is no HTTP, or the connection breaks.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        is_head: bool,
    ) -> Poll<Result<Option<AnswerHead>, LaneError>> {
        let Some(head) = ready!(self.http.poll_head(cx, is_head))? else {
            return Poll::Ready(match self.http.has_input() {
                true => Err(LaneError::protocol("its answer ends within the head")),
                false => Ok(None),
            });
        };
        Poll::Ready(self.took_head(&head, is_head).map(Some))
    }

    fn took_head(&mut self, head: &Head, is_head: bool) -> Result<AnswerHead, LaneError> {
        let wrong = match head.status {
            SWITCHING_PROTOCOLS => Some("it changes to another protocol unasked"),
            // Nobody could read that if it were passed on.
            0..=99 => Some("its status has less than three digits"),
            _ => None,
        };
        if let Some(reason) = wrong {
            return Err(LaneError::protocol(reason));
        }
        self.owed = self.owed.saturating_sub(1);
        self.is_personal |= head
            .fields("www-authenticate")
            .chain(head.fields("proxy-authenticate"))
            .flat_map(|value| value.split(','))
            .any(|scheme| is_of_connection(scheme.as_bytes()));
        let protocol = |error: HeadError| LaneError::protocol(error.to_string());
        let is_chunked = head.is_chunked().map_err(protocol)?;
        let length = head.content_length().map_err(protocol)?.filter(|_| !is_chunked);
        let fields = head.all().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (status, reason) = (head.status, head.reason.clone());
        let is_bodiless = is_head || matches!(status, 204 | 304);
        Ok(AnswerHead { status, reason, fields, length, is_bodiless })
    }

    /// Some of the body, into `space`; 0 at its end.
    ///
    /// # Errors
    /// [`LaneError`] if it ends early or its framing is wrong.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<Result<usize, LaneError>> {
        self.http.poll_body(cx, space)
    }

    /// Returns the socket, and how many bytes of the body come from it next as they are. `None` where bytes
    /// have to pass through memory.
    pub fn socket(&self) -> Option<(&TcpStream, u64)> {
        Some((self.http.payload_socket()?, self.http.body().payload()))
    }

    /// So many bytes of the body were taken from the [socket](Upstream::socket); 0 is its end.
    ///
    /// # Errors
    /// [`LaneError::Truncated`] if it may not end there.
    pub fn took(&mut self, bytes: u64) -> Result<(), LaneError> {
        self.http.took(bytes)
    }

    /// Whether the present answer is through.
    pub fn is_through(&self) -> bool {
        self.http.body().is_done()
    }

    /// Nothing more is wanted of it: kept for the next one if it is in good order.
    pub fn put_aside(self) {
        if self.owed == 0
            && !self.is_personal
            && let Some(conn) = self.http.into_reusable()
        {
            self.net.keep_idle(conn);
        }
    }

    /// Both directions as they are, once the other side speaks something else than HTTP.
    pub fn into_tunnel(self) -> Tunnel {
        let (conn, early) = self.http.into_parts();
        Tunnel::new(conn, early)
    }
}

/// Returns whether this line of a head shows what lets in not a request but its connection.
fn lets_connection_in(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else { return false };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let names: [&[u8]; 2] = [b"authorization", b"proxy-authorization"];
    names.iter().any(|own| name.eq_ignore_ascii_case(own)) && is_of_connection(value)
}

/// Returns whether a scheme of authentication is one of connections (RFC 4559, section 6).
fn is_of_connection(scheme: &[u8]) -> bool {
    let schemes: [&[u8]; 2] = [b"ntlm", b"negotiate"];
    let scheme = scheme.trim_ascii();
    schemes.iter().any(|own| scheme.get(..own.len()).is_some_and(|it| it.eq_ignore_ascii_case(own)))
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upstream({}, {} owed)", self.http.conn().origin, self.owed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections are shared between clients. A server that lets in connections (NTLM) took whoever
    /// asked next on one for whom it had let in on it.
    #[test]
    fn what_lets_connections_in_is_known() {
        let head = b"GET /f HTTP/1.1\r\nHost: h\r\nAUTHORIZATION:  ntlm TlRM\r\n\r\n";
        let is_personal = |head: &[u8]| head.split(|&byte| byte == b'\n').any(lets_connection_in);
        assert!(is_personal(head));
        assert!(is_personal(b"GET / HTTP/1.1\r\nProxy-Authorization: Negotiate YII\r\n\r\n"));
        for other in ["Authorization: Bearer ntlm", "X-Authorization: NTLM x", "Authorization:", ""]
        {
            assert!(!is_personal(other.as_bytes()), "{other}");
        }
    }
}
