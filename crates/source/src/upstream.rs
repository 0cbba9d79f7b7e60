//! A connection on which requests are passed on as they are: what a relay needs of the network
//! inbound.
//!
//! Requests are appended to what is to be sent, and answers come in their order: a head, then its
//! body, then the next head. Whoever drives it polls, so that one task can move both sides of a
//! passage. Nothing is retried and nothing is judged here.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::TcpStream;
use url::Url;

use crate::error::LaneError;
use crate::http::body::Body;
use crate::http::head::Head;
use crate::net::{Conn, Net, Tunnel};
use crate::source::Trust;
use crate::target::Origin;

/// One connection to the server that is asked.
pub struct Upstream {
    conn: Conn,
    net: Net,
    /// Came and is not used yet.
    input: Vec<u8>,
    /// Of these bytes, so many are used.
    used: usize,
    /// To be sent.
    output: Vec<u8>,
    sent: usize,
    body: Option<Body>,
    /// It may serve another request after the present answer.
    keeps_alive: bool,
    /// Requests sent whose answers are not through.
    owed: u32,
    /// Answers that came on it, those to whoever had it before included.
    answers: u64,
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
    /// The first field of this (lower-case) name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

impl Net {
    /// A connection to the server of `url`: one that served before if `reuse` and there is one.
    ///
    /// # Errors
    /// [`LaneError`], as for lanes.
    pub async fn upstream(&self, url: &Url, reuse: bool) -> Result<Upstream, LaneError> {
        let origin =
            Origin::of(url).ok_or_else(|| LaneError::Scheme { scheme: url.scheme().to_owned() })?;
        let conn = Box::pin(self.connect_to(&origin, Trust::Listed, reuse, false)).await?;
        Ok(Upstream::new(self.clone(), conn))
    }
}

impl Net {
    /// A connection to the host and port of `url` on which nothing is said yet: whatever is to be
    /// spoken on it, encryption included, is the business of whoever gets it.
    ///
    /// # Errors
    /// [`LaneError`], as for lanes.
    pub async fn dial(&self, url: &Url) -> Result<Upstream, LaneError> {
        let origin =
            Origin::of(url).ok_or_else(|| LaneError::Scheme { scheme: url.scheme().to_owned() })?;
        let origin = Origin { tls: false, ..origin };
        let conn = Box::pin(self.connect_to(&origin, Trust::Listed, false, false)).await?;
        Ok(Upstream::new(self.clone(), conn))
    }
}

impl Upstream {
    pub(crate) fn new(net: Net, conn: Conn) -> Upstream {
        Upstream {
            answers: conn.answers,
            conn,
            net,
            input: Vec::new(),
            used: 0,
            output: Vec::new(),
            sent: 0,
            body: None,
            keeps_alive: true,
            owed: 0,
            is_personal: false,
        }
    }

    /// Whether it goes to the server of `url`.
    pub fn leads_to(&self, url: &Url) -> bool {
        Origin::of(url).is_some_and(|origin| origin == self.conn.origin)
    }

    /// Whether further requests may be sent on it.
    pub fn takes_more(&self) -> bool {
        self.keeps_alive
    }

    /// The round trip to the server, as far as known without what waits in queues.
    pub fn rtt(&self) -> Duration {
        self.conn.transport().min_rtt().map_or(self.conn.rtt, |least| least.min(self.conn.rtt))
    }

    /// Whether it has answered before: its server may have closed it since, without any fault of the
    /// request that it is to answer next.
    pub fn was_used(&self) -> bool {
        self.conn.reused || self.answers > 0
    }

    /// Whether a request may be sent before the answer to the one before it has ended.
    pub fn bears_more(&self) -> bool {
        !self.conn.is_gateway()
    }

    /// Whether something that came is not used yet.
    pub fn has_some(&self) -> bool {
        self.used < self.input.len()
    }

    /// Whether bytes have come that no request asked for. Whoever sends such may send anything: they
    /// could be taken for the answer to what is asked next, by somebody else perhaps.
    pub fn has_excess(&self) -> bool {
        self.owed == 0 && self.body.is_none() && self.has_some()
    }

    /// Whether nothing has come that no request asked for, neither here nor to the socket, not even an
    /// end.
    pub fn is_quiet(&mut self) -> bool {
        let is_asked = self.owed > 0 || self.body.is_some();
        is_asked || !self.has_some() && self.conn.is_quiet()
    }

    /// Append a whole request.
    pub fn send(&mut self, request: &[u8]) {
        if self.sent > 0 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        self.output.extend_from_slice(request);
        self.owed += 1;
        self.is_personal |= request.split(|&byte| byte == b'\n').any(lets_connection_in);
    }

    /// Whether something is left to be sent.
    pub fn has_unsent(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Send what is to be sent; ready when all of it was taken.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.output.len() {
            let written = ready!(self.conn.poll_write(cx, &self.output[self.sent..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
        }
        self.output.clear();
        self.sent = 0;
        self.conn.poll_flush(cx)
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
        let protocol =
            |error: &dyn std::fmt::Display| LaneError::Protocol { reason: error.to_string() };
        loop {
            match Head::parse_strictly(&self.input[self.used..])
                .map_err(|error| protocol(&error))?
            {
                Some((head, bytes)) => {
                    self.used += bytes;
                    match head.status {
                        101 => {
                            let error = "it changes to another protocol unasked";
                            return Poll::Ready(Err(protocol(&error)));
                        }
                        100..=199 => continue,
                        // Nobody could read that if it were passed on.
                        ..100 => {
                            let error = "its status has less than three digits";
                            return Poll::Ready(Err(protocol(&error)));
                        }
                        _ => {}
                    }
                    let body = Body::after(&head).map_err(|error| protocol(&error))?;
                    let is_bodiless = is_head || matches!(head.status, 204 | 304);
                    let length = head.content_length().map_err(|error| protocol(&error))?;
                    let is_chunked = head.is_chunked().map_err(|error| protocol(&error))?;
                    let ends = !is_bodiless && body.ends_with_connection();
                    self.keeps_alive = self.keeps_alive && head.keeps_alive() && !ends;
                    self.answers += 1;
                    self.body = (!is_bodiless).then_some(body);
                    self.is_personal |= head
                        .fields("www-authenticate")
                        .chain(head.fields("proxy-authenticate"))
                        .flat_map(|value| value.split(','))
                        .any(|scheme| is_of_connection(scheme.as_bytes()));
                    let fields = head
                        .all()
                        .map(|(name, value)| (name.to_owned(), value.to_owned()))
                        .collect();
                    if self.body.is_none() {
                        self.answered();
                    }
                    return Poll::Ready(Ok(Some(AnswerHead {
                        status: head.status,
                        reason: head.reason,
                        fields,
                        length: length.filter(|_| !is_chunked),
                        is_bodiless,
                    })));
                }
                None => {
                    let is_cut = self.used < self.input.len();
                    if ready!(self.poll_fill(cx))? == 0 {
                        return Poll::Ready(match self.conn.gateway_error() {
                            Some(error) => Err(error),
                            None if is_cut => Err(protocol(&"its answer ends within the head")),
                            None => Ok(None),
                        });
                    }
                }
            }
        }
    }

    /// Read into `input`.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, LaneError>> {
        self.input.drain(..self.used);
        self.used = 0;
        let before = self.input.len();
        self.input.resize(before + READ_BYTES, 0);
        let read = self.conn.poll_read(cx, &mut self.input[before..]);
        let bytes = match &read {
            Poll::Ready(Ok(bytes)) => *bytes,
            _ => 0,
        };
        self.input.truncate(before + bytes);
        read.map_err(|error| LaneError::Reset { reason: error.to_string() })
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
        loop {
            ready!(self.poll_payload(cx))?;
            let Some(body) = &mut self.body else { return Poll::Ready(Ok(0)) };
            let most = usize::try_from(body.payload()).unwrap_or(usize::MAX).min(space.len());
            let here = self.input.len() - self.used;
            let bytes = if here > 0 {
                let bytes = most.min(here);
                space[..bytes].copy_from_slice(&self.input[self.used..self.used + bytes]);
                self.used += bytes;
                bytes
            } else {
                let read = ready!(self.conn.poll_read(cx, &mut space[..most]));
                read.map_err(|error| LaneError::Reset { reason: error.to_string() })?
            };
            self.took(bytes as u64)?;
            if bytes > 0 || self.body.is_none() {
                return Poll::Ready(Ok(bytes));
            }
        }
    }

    /// Go on to where bytes of the body come next, or to its end.
    fn poll_payload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LaneError>> {
        loop {
            let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
            let framed = body.frame(&self.input[self.used..]);
            self.used +=
                framed.map_err(|error| LaneError::Protocol { reason: error.to_string() })?;
            if body.is_done() {
                self.body = None;
                self.answered();
                return Poll::Ready(Ok(()));
            }
            if body.payload() > 0 {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(self.cut()));
            }
        }
    }

    /// The socket, and how many bytes of the body come from it next as they are. `None` where bytes
    /// have to pass through memory.
    pub fn socket(&self) -> Option<(&TcpStream, u64)> {
        let body = self.body.as_ref().filter(|body| body.payload() > 0)?;
        let is_empty = self.used == self.input.len();
        self.conn.transport().plain_socket().filter(|_| is_empty).map(|tcp| (tcp, body.payload()))
    }

    /// So many bytes of the body were taken from the [socket](Upstream::socket); 0 is its end.
    ///
    /// # Errors
    /// [`LaneError::Truncated`] if it may not end there.
    pub fn took(&mut self, bytes: u64) -> Result<(), LaneError> {
        let Some(body) = &mut self.body else { return Ok(()) };
        if bytes > 0 {
            body.take(bytes);
        } else if !body.end_of_connection() {
            return Err(self.cut());
        }
        if body.is_done() {
            self.body = None;
            self.answered();
        }
        Ok(())
    }

    /// Whether the present answer is through.
    pub fn is_through(&self) -> bool {
        self.body.is_none()
    }

    fn answered(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }

    fn cut(&self) -> LaneError {
        let (got, left) = match &self.body {
            Some(body) => (body.taken(), body.remaining()),
            None => (0, None),
        };
        LaneError::Truncated { got, wanted: got + left.unwrap_or(0) }
    }

    /// Nothing more is wanted of it: kept for the next one if it is in good order.
    pub fn put_aside(mut self) {
        let is_clean = self.body.is_none() && self.owed == 0 && self.used == self.input.len();
        if is_clean && self.keeps_alive && !self.has_unsent() && !self.is_personal {
            self.conn.answers = self.answers;
            self.net.keep_idle(self.conn);
        }
    }

    /// Both directions as they are, once the other side speaks something else than HTTP.
    pub fn into_tunnel(mut self) -> Tunnel {
        Tunnel::new(self.conn, self.input.split_off(self.used))
    }
}

/// Whether this line of a head shows what lets in not a request but its connection.
fn lets_connection_in(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else { return false };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let names: [&[u8]; 2] = [b"authorization", b"proxy-authorization"];
    names.iter().any(|own| name.eq_ignore_ascii_case(own)) && is_of_connection(value)
}

/// Whether a scheme of authentication is one of connections (RFC 4559, section 6).
fn is_of_connection(scheme: &[u8]) -> bool {
    let schemes: [&[u8]; 2] = [b"ntlm", b"negotiate"];
    let scheme = scheme.trim_ascii();
    schemes.iter().any(|own| scheme.get(..own.len()).is_some_and(|it| it.eq_ignore_ascii_case(own)))
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upstream({}, {} owed)", self.conn.origin, self.owed)
    }
}

/// Read at a time where heads are expected.
const READ_BYTES: usize = 16 << 10;

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
