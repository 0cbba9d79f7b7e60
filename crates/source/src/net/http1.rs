//! HTTP/1.1 on one connection: requests out, answers in their order, bodies into the caller's memory.
//!
//! Lanes, control requests and a relay's upstream all speak by this one driver. It knows where heads,
//! framing and payload lie in the stream of bytes, and whether the connection can serve another request;
//! what a request says and what an answer means it leaves to its callers. They poll, so that one task can
//! wait for several things at once.
//!
//! For each answer: [`Http1Conn::poll_head`], then [`Http1Conn::poll_body`] until [`Http1Conn::body`] is
//! done. A caller that waits for more than the connection takes the single steps instead:
//! [`Http1Conn::head`], [`Http1Conn::frame`], [`Http1Conn::poll_fill`], [`Http1Conn::poll_payload`].
//!
//! Where the library speaks for us its heads and parts of bodies take the place of bytes that are
//! understood here; all else is the same.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use swath_formats::chunks::ChunkError;
use tokio::net::TcpStream;

use super::conn::Conn;
use super::connect::broke;
use super::library::Came;
use crate::error::LaneError;
use crate::http::body::Body;
use crate::http::head::{HEAD_LIMIT_BYTES, Head, HeadError, INTERIM_LIMIT};
use swath_transport::Transport;

/// A connection on which HTTP/1.1 is spoken.
pub(crate) struct Http1Conn {
    conn: Conn,
    input: Input,
    /// The head that the library has read.
    made_head: Option<Result<Head, HeadError>>,
    output: Output,
    /// The body of the last answer.
    body: Body,
    /// The connection may serve another request.
    pub reusable: bool,
    /// Heads are read as a relay must read them.
    is_strict: bool,
    /// Interim answers since the last final one.
    interim: u32,
    /// The server has asked for the body of the request.
    is_continued: bool,
}

impl Http1Conn {
    pub fn new(conn: Conn) -> Http1Conn {
        Http1Conn {
            conn,
            input: Input::default(),
            made_head: None,
            output: Output::default(),
            body: Body::none(),
            reusable: true,
            is_strict: false,
            interim: 0,
            is_continued: false,
        }
    }

    /// The same for a relay, which hands on what it reads ([`Head::parse_strictly`]).
    pub fn strictly(self) -> Http1Conn {
        Http1Conn { is_strict: true, ..self }
    }

    pub fn conn(&self) -> &Conn {
        &self.conn
    }

    pub fn conn_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }

    /// Returns the queue of bytes to send, to append to.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.output.queue()
    }

    /// Returns how many bytes are queued and not sent.
    pub fn unsent_bytes(&self) -> usize {
        self.output.left().len()
    }

    /// Sends what is queued; ready when all of it was taken.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(library) = self.conn.library() {
            library.send(self.output.queue());
            return Poll::Ready(Ok(()));
        }
        while self.unsent_bytes() > 0 {
            match ready!(self.conn.poll_write(cx, self.output.left()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => self.output.sent_bytes += bytes,
            }
        }
        self.conn.poll_flush(cx)
    }

    /// Returns whether bytes are here that are not understood yet.
    pub fn has_input(&self) -> bool {
        !self.input.data().is_empty() || self.made_head.is_some()
    }

    /// Returns what is here and not understood yet.
    pub fn input(&self) -> &[u8] {
        self.input.data()
    }

    /// Takes the head of the next final answer, if it is here; interim ones are passed over. Its body
    /// comes next; none does behind the answer to a request for the head alone (`is_head`).
    pub fn head(&mut self, is_head: bool) -> Result<Option<Head>, HeadError> {
        loop {
            let Some(head) = self.any_head()? else { return Ok(None) };
            if head.is_interim() {
                self.is_continued |= head.status == CONTINUE;
                self.interim += 1;
                if self.interim > INTERIM_LIMIT {
                    return Err(HeadError::EndlessInterim);
                }
                continue;
            }
            self.interim = 0;
            let body = if is_head { Body::none() } else { Body::after(&head)? };
            self.body = if self.conn.is_by_library() { body.told() } else { body };
            self.conn.answers += 1;
            self.reusable &= head.keeps_alive() && !self.body.ends_with_connection();
            return Ok(Some(head));
        }
    }

    fn any_head(&mut self) -> Result<Option<Head>, HeadError> {
        if self.conn.is_by_library() {
            return self.made_head.take().transpose();
        }
        let input = self.input.data();
        let parsed = if self.is_strict { Head::parse_strictly(input) } else { Head::parse(input) };
        let Some((head, bytes)) = parsed? else { return Ok(None) };
        self.input.consume(bytes);
        Ok(Some(head))
    }

    /// Returns whether the server has asked for the body of the request (`100 Continue`).
    pub fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Reads until the head of the next final answer is here; `None` if the connection ends in front of
    /// it.
    ///
    /// # Errors
    /// [`LaneError`] if what comes is no HTTP, or the connection breaks.
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        is_head: bool,
    ) -> Poll<Result<Option<Head>, LaneError>> {
        loop {
            let head = self.head(is_head);
            if let Some(head) = head.map_err(|error| LaneError::protocol(error.to_string()))? {
                return Poll::Ready(Ok(Some(head)));
            }
            match ready!(self.poll_fill(cx)) {
                Ok(0) => return Poll::Ready(self.take_failure().map_or(Ok(None), Err)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(self.failed(&error))),
            }
        }
    }

    /// Reads something to be understood; 0 is the end of the connection, or of a body that is done then.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.conn.is_by_library() {
            return self.poll_library(cx).map(Ok);
        }
        let bytes = ready!(self.conn.poll_read(cx, self.input.spare()))?;
        self.input.end += bytes;
        self.reusable &= bytes > 0;
        Poll::Ready(Ok(bytes))
    }

    /// Takes what the library has next, as [`Http1Conn::poll_fill`] does.
    fn poll_library(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        loop {
            let Some(library) = self.conn.library() else { return Poll::Ready(0) };
            match ready!(library.poll(cx)) {
                Came::Head(head) => {
                    self.made_head = Some(head);
                    return Poll::Ready(1);
                }
                Came::Part(part) => {
                    self.body.tell(part.len() as u64);
                    self.input.part = part;
                    return Poll::Ready(self.input.part.len());
                }
                // Its length has told that already.
                Came::End if self.body.is_done() => {}
                Came::End => {
                    self.reusable &= self.body.tell_end();
                    return Poll::Ready(0);
                }
                Came::Closed => {
                    self.reusable = false;
                    return Poll::Ready(0);
                }
            }
        }
    }

    /// The body of the last answer, as far as it has come.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Takes framing within the body from what is here.
    pub fn frame(&mut self) -> Result<(), ChunkError> {
        let used = self.body.frame(self.input.data())?;
        self.input.consume(used);
        Ok(())
    }

    /// Moves payload that is here already into `space`; returns how much.
    pub fn take_buffered(&mut self, space: &mut [u8]) -> usize {
        let data = self.input.data();
        let most = usize::try_from(self.body.payload()).unwrap_or(usize::MAX);
        let bytes = data.len().min(space.len()).min(most);
        space[..bytes].copy_from_slice(&data[..bytes]);
        self.consume_payload(bytes);
        bytes
    }

    /// Throws away at most `limit_bytes` of payload that is here already; returns how much.
    pub fn skip_buffered(&mut self, limit_bytes: u64) -> usize {
        let most = self.body.payload().min(limit_bytes);
        let bytes = usize::try_from(most).unwrap_or(usize::MAX).min(self.input.data().len());
        self.consume_payload(bytes);
        bytes
    }

    fn consume_payload(&mut self, bytes: usize) {
        self.input.consume(bytes);
        self.body.take(bytes as u64);
    }

    /// Reads payload from the connection straight into `space`, which has room for no more than
    /// [`Body::payload`]. Nothing is here already; 0 is the end of the connection.
    pub fn poll_payload(
        &mut self,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.conn.is_by_library() {
            return self.poll_library(cx).map(|_| Ok(self.take_buffered(space)));
        }
        let bytes = ready!(self.conn.poll_read(cx, space))?;
        self.body.take(bytes as u64);
        Poll::Ready(Ok(bytes))
    }

    /// Throws payload away, at most `limit_bytes`, as [`Http1Conn::poll_payload`] reads it.
    pub fn poll_skip(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        limit_bytes: u64,
    ) -> Poll<io::Result<usize>> {
        if self.conn.is_by_library() {
            return self.poll_library(cx).map(|_| Ok(self.skip_buffered(limit_bytes)));
        }
        let bytes = ready!(self.conn.poll_discard(cx, scratch, limit_bytes))?;
        self.body.take(bytes as u64);
        Poll::Ready(Ok(bytes))
    }

    /// Reads some of the body into `space`, which is not empty; 0 at its end.
    ///
    /// # Errors
    /// [`LaneError`] if it ends early or its framing is wrong.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<Result<usize, LaneError>> {
        loop {
            self.frame().map_err(|error| LaneError::protocol(error.to_string()))?;
            if self.body.is_done() {
                return Poll::Ready(Ok(0));
            }
            let payload = usize::try_from(self.body.payload()).unwrap_or(usize::MAX);
            let most = payload.min(space.len());
            let read = match (most, self.has_input()) {
                (0, _) => ready!(self.poll_fill(cx)),
                (_, true) => return Poll::Ready(Ok(self.take_buffered(space))),
                (_, false) => ready!(self.poll_payload(cx, &mut space[..most])),
            };
            match read.map_err(|error| self.failed(&error))? {
                0 => self.end_body()?,
                _ if most == 0 => {}
                bytes => return Poll::Ready(Ok(bytes)),
            }
        }
    }

    /// The connection ended within the body.
    ///
    /// # Errors
    /// [`LaneError::Truncated`] if that is not how the body ends, and what the library says.
    pub fn end_body(&mut self) -> Result<(), LaneError> {
        if self.body.is_done() {
            return Ok(());
        }
        self.reusable = false;
        if self.body.end_of_connection() {
            return Ok(());
        }
        let got = self.body.taken();
        let wanted = got + self.body.remaining().unwrap_or(0);
        Err(self.take_failure().unwrap_or(LaneError::Truncated { got, wanted }))
    }

    /// Takes the end of the connection for the end of the body, although nothing says so.
    pub fn cut_body(&mut self) {
        self.body.end();
    }

    /// Whether the end of the connection is how the body ends; then it is done.
    pub fn ends_properly(&mut self) -> bool {
        self.body.end_of_connection()
    }

    /// The socket, if payload comes from it next and unchanged: whoever moves bytes from there tells
    /// [`Http1Conn::took`].
    pub fn payload_socket(&self) -> Option<&TcpStream> {
        let is_next = self.body.payload() > 0 && !self.has_input();
        self.conn.transport().and_then(Transport::plain_socket).filter(|_| is_next)
    }

    /// So many bytes of payload were taken from the socket; 0 is its end.
    ///
    /// # Errors
    /// As [`Http1Conn::end_body`].
    pub fn took(&mut self, bytes: u64) -> Result<(), LaneError> {
        self.body.take(bytes);
        if bytes == 0 { self.end_body() } else { Ok(()) }
    }

    /// Returns why the connection broke.
    fn failed(&self, error: &io::Error) -> LaneError {
        broke(&self.conn.origin, error)
    }

    /// Takes the reason why the connection has ended, if the library is to blame.
    pub fn take_failure(&mut self) -> Option<LaneError> {
        self.conn.library()?.take_failure()
    }

    /// The connection, if another request can follow on it: nothing is under way or left over.
    pub fn into_reusable(self) -> Option<Conn> {
        let is_clean = self.body.is_done() && !self.has_input() && self.unsent_bytes() == 0;
        (is_clean && self.reusable).then_some(self.conn)
    }

    /// Returns the connection, and what has come on it and was not understood.
    pub fn into_parts(self) -> (Conn, Vec<u8>) {
        let rest = self.input.data().to_vec();
        (self.conn, rest)
    }
}

/// "Go on": the body may come (RFC 9110, section 15.2.1).
const CONTINUE: u16 = 100;

/// Bytes to be sent.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    sent_bytes: usize,
}

impl Output {
    fn queue(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.sent_bytes);
        self.sent_bytes = 0;
        &mut self.bytes
    }

    fn left(&self) -> &[u8] {
        &self.bytes[self.sent_bytes..]
    }
}

/// Bytes that came and are not understood yet: heads, framing, and what came along with them.
#[derive(Default)]
struct Input {
    /// What the library has brought of a body; then there is nothing else.
    part: Bytes,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// Enough for nearly every head; what comes along of the body is copied, so it is not large.
const INPUT_BYTES: usize = 16 * 1024;

impl Input {
    fn data(&self) -> &[u8] {
        if self.part.is_empty() { &self.bytes[self.start..self.end] } else { &self.part }
    }

    fn consume(&mut self, bytes: usize) {
        if !self.part.is_empty() {
            return self.part.advance(bytes);
        }
        self.start = (self.start + bytes).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    fn spare(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            let grown = (2 * self.bytes.len()).clamp(INPUT_BYTES, HEAD_LIMIT_BYTES);
            self.bytes.resize(grown.max(self.bytes.len()), 0);
        }
        &mut self.bytes[self.end..]
    }
}
