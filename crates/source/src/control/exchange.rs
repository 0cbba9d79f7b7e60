//! One request after the other on one connection, answers into memory, each wait bounded.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::LaneError;
use crate::http::head::Head;
use crate::net::{Conn, Http1Conn, Net};

/// A connection used for control requests.
pub(super) struct Exchange {
    http: Http1Conn,
    /// Requests are for heads alone.
    pub is_head: bool,
    /// The head of an answer that came before it was wanted.
    early: Option<Head>,
    /// Where bodies are read into.
    space: Vec<u8>,
    net: Net,
    limit: Duration,
    sent_at: Instant,
}

/// The head of an answer.
pub(super) struct Opening {
    pub head: Head,
    /// From the request to the first byte of the answer.
    pub first_byte: Duration,
}

impl Exchange {
    /// `limit` bounds each wait, and each head as a whole.
    pub fn new(conn: Conn, net: &Net, limit: Duration) -> Exchange {
        let http = Http1Conn::new(conn);
        let (net, sent_at) = (net.clone(), Instant::now());
        Exchange { http, is_head: false, early: None, space: Vec::new(), net, limit, sent_at }
    }

    /// Returns the connection, if another request could follow on it.
    pub fn into_conn(self) -> Option<Conn> {
        self.http.into_reusable()
    }

    /// Returns the connection, and what has come on it and was not read.
    pub fn into_parts(self) -> (Conn, Vec<u8>) {
        self.http.into_parts()
    }

    /// Sends a request, or several at once.
    pub async fn send(&mut self, request: &[u8]) -> Result<(), LaneError> {
        self.sent_at = Instant::now();
        self.http.output().extend_from_slice(request);
        while self.http.unsent_bytes() > 0 {
            let before = self.http.unsent_bytes();
            let sending = poll_fn(|cx| match self.http.poll_send(cx) {
                Poll::Pending if self.http.unsent_bytes() < before => Poll::Ready(Ok(())),
                sent => sent,
            });
            let sent = self.net.awake().within(self.limit, sending).await;
            sent.ok_or(LaneError::Timeout { after: self.limit })?
                .map_err(|error| LaneError::reset(&error))?;
        }
        Ok(())
    }

    /// Sends a part of a body; `false` once an answer begins to come: nobody waits for the rest.
    pub async fn send_or_hear(&mut self, part: &[u8]) -> Result<bool, LaneError> {
        let mut left = part;
        while !left.is_empty() && self.early.is_none() {
            let moving = poll_fn(|cx| match self.http.poll_head(cx, false) {
                Poll::Ready(head) => Poll::Ready(Moved::Heard(head)),
                Poll::Pending => {
                    self.http.conn_mut().poll_write(cx, left).map(|sent| Moved::Sent(sent.ok()))
                }
            });
            match self.net.awake().within(self.limit, moving).await {
                Some(Moved::Sent(Some(bytes @ 1..))) => left = &left[bytes..],
                Some(Moved::Heard(Ok(Some(head)))) => self.early = Some(head),
                Some(Moved::Heard(Err(error @ LaneError::Protocol { .. }))) => return Err(error),
                // It wants no more; what it has to say, if anything, is heard next.
                Some(Moved::Heard(_) | Moved::Sent(_)) => return Ok(false),
                None => return Err(LaneError::Timeout { after: self.limit }),
            }
        }
        Ok(self.early.is_none())
    }

    /// Waits for leave to send a body: `None` if it is given, or if nothing is said within this
    /// time, else the head of the final answer.
    pub async fn leave(&mut self, within: Duration) -> Result<Option<Opening>, LaneError> {
        let polled = poll_fn(|cx| match self.http.poll_head(cx, false) {
            Poll::Pending if self.http.is_continued() => Poll::Ready(Ok(None)),
            head => head.map_ok(Some),
        });
        match self.net.awake().until(Instant::now() + within, self.limit, polled).await {
            // No leave was asked for after all, or all of the time has passed.
            None | Some(Ok(None)) => Ok(None),
            Some(Ok(Some(Some(head)))) => {
                Ok(Some(Opening { head, first_byte: self.sent_at.elapsed() }))
            }
            Some(Ok(Some(None))) => Err(closed()),
            Some(Err(error)) => Err(error),
        }
    }

    /// Reads the head of the next final answer.
    pub async fn opening(&mut self) -> Result<Opening, LaneError> {
        self.opening_after(Duration::ZERO).await
    }

    /// The same, where the server has work to do first that takes this long.
    pub async fn opening_after(&mut self, work: Duration) -> Result<Opening, LaneError> {
        // A byte now and then must not keep us for ever.
        let due = Instant::now() + self.limit + work;
        let mut first_byte = None;
        let http = &mut self.http;
        let (is_head, early, sent_at) = (self.is_head, &mut self.early, self.sent_at);
        let polled = poll_fn(|cx| {
            let head = match early.take() {
                Some(head) => Poll::Ready(Ok(Some(head))),
                None => http.poll_head(cx, is_head),
            };
            if head.is_ready() || http.has_input() {
                first_byte.get_or_insert_with(|| sent_at.elapsed());
            }
            head
        });
        let head = self.net.awake().until(due, self.limit, polled).await;
        let head = head.ok_or(LaneError::Timeout { after: self.limit })??.ok_or_else(closed)?;
        Ok(Opening { head, first_byte: first_byte.unwrap_or_default() })
    }

    /// Reads at most `limit_bytes` of the body of the answer; whether that is all of it.
    pub async fn body(&mut self, limit_bytes: usize) -> Result<(Vec<u8>, bool), LaneError> {
        let began = Instant::now();
        let mut data = Vec::new();
        loop {
            // When the next bytes must be here at the latest.
            let earned = Duration::from_secs(self.http.body().taken() / PACE_BYTES_PER_S);
            let due = (began + self.limit + earned).min(Instant::now() + self.limit);
            let part = self.read(due).await?;
            if part.is_empty() {
                return Ok((data, true));
            }
            let kept = part.len().min(limit_bytes - data.len());
            data.extend_from_slice(&part[..kept]);
            if kept < part.len() {
                self.http.reusable = false;
                return Ok((data, false));
            }
        }
    }

    /// The next bytes of a body, however long it is; none at its end. Each wait is bounded, and nothing
    /// is lost if this is given up while it waits.
    pub async fn next_part(&mut self) -> Result<Vec<u8>, LaneError> {
        Ok(self.read(Instant::now() + self.limit).await?.to_vec())
    }

    async fn read(&mut self, due: Instant) -> Result<&[u8], LaneError> {
        let Exchange { http, space, net, limit, .. } = self;
        space.resize(READ_BYTES, 0);
        let reading = poll_fn(|cx| http.poll_body(cx, space));
        let read = net.awake().until(due, *limit, reading).await;
        let bytes = read.ok_or(LaneError::Timeout { after: *limit })??;
        Ok(&self.space[..bytes])
    }
}

/// What happened first.
enum Moved {
    Heard(Result<Option<Head>, LaneError>),
    /// So much was sent, if anything could be.
    Sent(Option<usize>),
}

fn closed() -> LaneError {
    LaneError::Reset { reason: "the server closed it without an answer".to_owned() }
}

const READ_BYTES: usize = 16 * 1024;
/// A small document that comes more slowly than this is not waited for.
const PACE_BYTES_PER_S: u64 = 1024;
