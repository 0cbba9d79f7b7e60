//! One request after the other on one connection, answers into memory.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::LaneError;
use crate::http::answer::{INTERIM_LIMIT, SWITCHING_PROTOCOLS};
use crate::http::body::Body;
use crate::http::head::Head;
use crate::net::{Conn, Net, broke};

/// A connection used for control requests.
pub(super) struct Exchange {
    conn: Conn,
    input: Vec<u8>,
    /// Where the connection is read into.
    space: Vec<u8>,
    net: Net,
    limit: Duration,
    sent_at: Instant,
    reusable: bool,
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
        let (input, space) = (Vec::new(), Vec::new());
        let net = net.clone();
        Exchange { conn, input, space, net, limit, sent_at: Instant::now(), reusable: true }
    }

    /// The connection, if another request could follow on it.
    pub fn into_conn(self) -> Option<Conn> {
        (self.reusable && self.input.is_empty()).then_some(self.conn)
    }

    /// The connection, and what has come on it and was not read.
    pub fn into_parts(self) -> (Conn, Vec<u8>) {
        (self.conn, self.input)
    }

    /// Send a request, or several at once.
    pub async fn send(&mut self, mut request: &[u8]) -> Result<(), LaneError> {
        self.sent_at = Instant::now();
        while !request.is_empty() {
            let writing = poll_fn(|cx| self.conn.poll_write(cx, request));
            match self.net.awake().within(self.limit, writing).await {
                Some(Ok(bytes)) if bytes > 0 => request = &request[bytes..],
                Some(Ok(_)) => {
                    return Err(LaneError::Reset { reason: "nothing can be sent".to_owned() });
                }
                Some(Err(error)) => return Err(LaneError::reset(&error)),
                None => return Err(LaneError::Timeout { after: self.limit }),
            }
        }
        Ok(())
    }

    /// Send a part of a body; `false` once an answer begins to come: nobody waits for the rest.
    pub async fn send_or_hear(&mut self, mut part: &[u8]) -> Result<bool, LaneError> {
        let mut interim = 0;
        while !part.is_empty() {
            if self.has_answer(&mut interim)? {
                return Ok(false);
            }
            let Exchange { conn, space, .. } = self;
            space.resize(READ_BYTES, 0);
            let moving = poll_fn(|cx| match conn.poll_read(cx, space) {
                Poll::Ready(read) => Poll::Ready(Moved::Heard(read)),
                Poll::Pending => conn.poll_write(cx, part).map(Moved::Sent),
            });
            match self.net.awake().within(self.limit, moving).await {
                Some(Moved::Heard(Ok(bytes @ 1..))) => {
                    self.input.extend_from_slice(&self.space[..bytes]);
                }
                Some(Moved::Sent(Ok(bytes @ 1..))) => part = &part[bytes..],
                // It wants no more; what it has to say, if anything, is heard next.
                Some(Moved::Heard(_) | Moved::Sent(_)) => return Ok(false),
                None => return Err(LaneError::Timeout { after: self.limit }),
            }
        }
        Ok(true)
    }

    /// Whether the head of a final answer is here. Interim ones are taken away.
    fn has_answer(&mut self, interim: &mut u32) -> Result<bool, LaneError> {
        while let Some((head, bytes)) = self.head()? {
            if !is_interim(&head) {
                return Ok(true);
            }
            self.input.drain(..bytes);
            *interim += 1;
            if *interim > INTERIM_LIMIT {
                return Err(LaneError::protocol(ENDLESS));
            }
        }
        Ok(false)
    }

    fn head(&self) -> Result<Option<(Head, usize)>, LaneError> {
        Head::parse(&self.input).map_err(|error| LaneError::protocol(error.to_string()))
    }

    /// Wait for leave to send a body: `None` if it is given, or if nothing is said within this
    /// time, else the head of the final answer.
    pub async fn leave(&mut self, within: Duration) -> Result<Option<Opening>, LaneError> {
        let due = Instant::now() + within;
        loop {
            match self.head()? {
                Some((head, bytes)) if head.status == CONTINUE => {
                    self.input.drain(..bytes);
                    return Ok(None);
                }
                Some((head, _)) if !is_interim(&head) => return self.opening().await.map(Some),
                Some((_, bytes)) => drop(self.input.drain(..bytes)),
                None => match self.read(due).await {
                    Ok(true) => {}
                    Ok(false) => return self.opening().await.map(Some),
                    Err(LaneError::Timeout { .. }) => return Ok(None),
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// Read the head of the next final answer.
    pub async fn opening(&mut self) -> Result<Opening, LaneError> {
        self.opening_after(Duration::ZERO).await
    }

    /// The same, where the server has work to do first that takes this long.
    pub async fn opening_after(&mut self, work: Duration) -> Result<Opening, LaneError> {
        // A byte now and then must not keep us for ever.
        let due = Instant::now() + self.limit + work;
        let mut first_byte = None;
        let mut interim = 0;
        loop {
            match self.head()? {
                Some((head, bytes)) => {
                    self.input.drain(..bytes);
                    if !is_interim(&head) {
                        self.conn.answers += 1;
                        self.reusable &= head.keeps_alive();
                        return Ok(Opening { head, first_byte: first_byte.unwrap_or_default() });
                    }
                    interim += 1;
                    if interim > INTERIM_LIMIT {
                        return Err(LaneError::protocol(ENDLESS));
                    }
                }
                None => {
                    if !self.read(due).await? {
                        return Err(LaneError::Reset {
                            reason: "the server closed it without an answer".to_owned(),
                        });
                    }
                    first_byte.get_or_insert_with(|| self.sent_at.elapsed());
                }
            }
        }
    }

    /// Read at most `limit_bytes` of the body behind `head`; whether that is all of it.
    pub async fn body(
        &mut self,
        head: &Head,
        limit_bytes: usize,
    ) -> Result<(Vec<u8>, bool), LaneError> {
        let mut body = Body::after(head).map_err(|error| LaneError::protocol(error.to_string()))?;
        let began = Instant::now();
        let mut data = Vec::new();
        self.reusable &= !body.ends_with_connection();
        while !body.is_done() {
            let payload =
                usize::try_from(body.payload()).unwrap_or(usize::MAX).min(self.input.len());
            if payload > 0 {
                let kept = payload.min(limit_bytes - data.len());
                data.extend_from_slice(&self.input[..kept]);
                self.input.drain(..payload);
                body.take(payload as u64);
                if kept < payload {
                    self.reusable = false;
                    return Ok((data, false));
                }
            } else if !self.input.is_empty() && body.payload() == 0 {
                let used = body
                    .frame(&self.input)
                    .map_err(|error| LaneError::protocol(error.to_string()))?;
                self.input.drain(..used);
            } else if !self.read(self.due(began, body.taken())).await? && !body.end_of_connection()
            {
                let got = body.taken();
                return Err(LaneError::Truncated {
                    got,
                    wanted: got + body.remaining().unwrap_or(0),
                });
            }
        }
        Ok((data, true))
    }

    /// The next bytes of a body, however long it is; none at its end. Each wait is bounded.
    pub async fn next_part(&mut self, body: &mut Body) -> Result<Vec<u8>, LaneError> {
        while !body.is_done() {
            let payload = usize::try_from(body.payload()).unwrap_or(usize::MAX);
            let here = payload.min(self.input.len());
            if here > 0 {
                body.take(here as u64);
                return Ok(self.input.drain(..here).collect());
            }
            if !self.input.is_empty() {
                let used = body
                    .frame(&self.input)
                    .map_err(|error| LaneError::protocol(error.to_string()))?;
                self.input.drain(..used);
            } else if !self.read(Instant::now() + self.limit).await? && !body.end_of_connection() {
                let got = body.taken();
                return Err(LaneError::Truncated {
                    got,
                    wanted: got + body.remaining().unwrap_or(0),
                });
            }
        }
        Ok(Vec::new())
    }

    /// When the next bytes of a body that began at `began` must be here at the latest.
    fn due(&self, began: Instant, taken_bytes: u64) -> Instant {
        let earned = Duration::from_secs(taken_bytes / PACE_BYTES_PER_S);
        (began + self.limit + earned).min(Instant::now() + self.limit)
    }

    /// Read something until `due`; `false` at the end of the connection. Nothing is lost if this is
    /// given up while it waits.
    async fn read(&mut self, due: Instant) -> Result<bool, LaneError> {
        let Exchange { conn, space, net, limit, .. } = self;
        space.resize(READ_BYTES, 0);
        let reading = poll_fn(|cx| conn.poll_read(cx, space));
        let bytes = match net.awake().until(due, *limit, reading).await {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => {
                let error = broke(&self.conn.origin, &error);
                return Err(self.conn.gateway_error().unwrap_or(error));
            }
            None => return Err(LaneError::Timeout { after: self.limit }),
        };
        self.input.extend_from_slice(&self.space[..bytes]);
        if bytes == 0 {
            self.reusable = false;
            if let Some(error) = self.conn.gateway_error() {
                return Err(error);
            }
        }
        Ok(bytes > 0)
    }
}

/// What happened first.
enum Moved {
    Heard(io::Result<usize>),
    Sent(io::Result<usize>),
}

fn is_interim(head: &Head) -> bool {
    head.status < 200 && head.status != SWITCHING_PROTOCOLS
}

const ENDLESS: &str = "interim answers without end";
/// "Go on": the body may come (RFC 9110, section 15.2.1).
const CONTINUE: u16 = 100;
const READ_BYTES: usize = 16 * 1024;
/// A small document that comes more slowly than this is not waited for.
const PACE_BYTES_PER_S: u64 = 1024;
