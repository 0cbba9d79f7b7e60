//! One connection: requests in, answers out, one behind the other.
//!
//! Every wait has a limit: for a request to begin, for its head to be complete, for the other side
//! to take an answer. A client that sends ahead is answered in order. States: idle -> head ->
//! answering -> idle …, or the end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use swath_model::{Limiter, Range};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::body::FileBytes;
use super::head::{Body, HEAD_LIMIT_BYTES, Head, Method, Version};
use super::pace::Pace;
use super::received::Received;
use super::response::{Content, Find, Make, Piece, Response};
use super::seats::Seat;
use super::stream::{Stream, send_file};

/// Answers requests.
pub(crate) trait Answer: Send + Sync + 'static {
    /// What is kept of a connection from one request to the next.
    type Held: Default + Send;

    /// What a target means is judged by the answer, not by whether it could be a path here.
    const TAKES_ANY_TARGET: bool = false;

    /// Answer one. Of its body as much comes as is asked for.
    fn answer(
        &self,
        head: &Head,
        peer: SocketAddr,
        body: &mut dyn Make,
    ) -> impl Future<Output = Response> + Send;

    /// An answer that was made without asking anybody, as the one who answers marks it.
    fn marked(&self, response: Response) -> Response {
        response
    }

    /// It was answered with `status`, `bytes` of body among it, after `took`.
    fn note(&self, head: &Head, peer: SocketAddr, status: u16, bytes: u64, took: Duration);

    /// The limit of all answers together.
    fn send_limit(&self) -> Option<&Arc<Limiter>>;

    /// The limit of all bodies of requests together.
    fn receive_limit(&self) -> Option<&Arc<Limiter>>;

    /// The connection that this came on may be needed until what is under way has ended.
    fn may_go_on(&self, head: &Head) -> bool;

    /// The server is about to end: nothing new is begun. Connections that may go on do so for a
    /// while.
    fn is_ending(&self, may_go_on: bool) -> bool;

    /// Resolves when it is.
    fn ending(&self, may_go_on: bool) -> impl Future<Output = ()> + Send;

    /// Whether this request is for [`Answer::carry`].
    fn carries(&self, _head: &Head) -> bool {
        false
    }

    /// Answer a request, and those behind it that are of its kind, on the connection itself.
    fn carry(
        self: &Arc<Self>,
        _stream: &mut Stream,
        _input: &mut Vec<u8>,
        _held: &mut Self::Held,
        _head: Head,
        _peer: SocketAddr,
    ) -> impl Future<Output = Next> + Send {
        std::future::ready(Next::Close)
    }
}

/// How it goes on with a connection that was carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// What comes next is to be understood as if nothing had been.
    Back,
    /// It ends in good order.
    Close,
    /// It is cut off, so that nobody takes what came for the whole.
    Cut,
}

/// How a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Keep,
    Close,
}

/// Serve one connection to its end.
pub(crate) async fn serve<A: Answer>(
    mut stream: Stream,
    peer: SocketAddr,
    answers: Arc<A>,
    seat: &Seat,
) {
    let mut input = Vec::new();
    let mut held = A::Held::default();
    let mut pace = Pace::new(answers.send_limit().cloned());
    let mut pace_in = Pace::new(answers.receive_limit().cloned());
    // What comes first is not known: it may be for something that is under way.
    let mut may_go_on = true;
    let mut begins_within = HEAD_WITHIN;
    loop {
        let next = next_head(&mut stream, &mut input, &*answers, may_go_on, begins_within, seat);
        let head = match next.await {
            Ok(Some(head)) => head,
            // Whoever comes next has waited long enough.
            Ok(None) if seat.is_wanted() => return,
            Ok(None) => break,
            Err(refusal) => {
                let refusal = answers.marked(refusal);
                let _ =
                    write(&mut stream, &mut pace, refusal, false, Version::OneOne, After::Close)
                        .await;
                break;
            }
        };
        (may_go_on, begins_within) = (answers.may_go_on(&head), IDLE);
        if answers.carries(&head) {
            match answers.carry(&mut stream, &mut input, &mut held, head, peer).await {
                Next::Back => continue,
                Next::Close => break,
                Next::Cut => {
                    stream.cut();
                    return;
                }
            }
        }
        let began = Instant::now();
        let mut body = Received::new(&mut stream, &mut input, &mut pace_in, &head);
        let mut response = answers.answer(&head, peer, &mut body).await;
        let (is_touched, is_whole) = (body.is_touched(), body.is_whole());
        if let Some(takes_over) = response.takes_over.take() {
            // Who sends ahead would have its bytes read by nobody.
            if head.version != Version::OneOne || !input.is_empty() || head.body != Body::None {
                let text =
                    "a connection can be turned by HTTP/1.1 alone, and with nothing behind it";
                let _ = write(
                    &mut stream,
                    &mut pace,
                    Response::text(400, text),
                    false,
                    head.version,
                    After::Close,
                )
                .await;
                break;
            }
            response.takes_over = Some(Box::new(|_, _| {}));
            let turned = write(&mut stream, &mut pace, response, false, head.version, After::Keep)
                .await
                .is_ok();
            answers.note(&head, peer, 101, 0, began.elapsed());
            if turned {
                takes_over(stream, peer);
            }
            return;
        }
        let (status, is_head) = (response.status, head.method == Method::Head);
        let mut keeps = head.keeps_alive && !answers.is_ending(may_go_on);
        if is_touched {
            keeps &= is_whole;
        } else {
            // Who waits for leave to send its body does not get it, and sends nothing.
            keeps = keeps
                && (head.body == Body::None || head.field("expect").is_none())
                && drained(&mut stream, &mut input, head.body).await;
        }
        let after = if keeps { After::Keep } else { After::Close };
        let written = write(&mut stream, &mut pace, response, is_head, head.version, after).await;
        answers.note(
            &head,
            peer,
            status,
            written.as_ref().map_or(0, |&bytes| bytes),
            began.elapsed(),
        );
        if written.is_err() || after == After::Close {
            break;
        }
    }
    // A close with bytes unread would take the answer away from the client.
    let _ = timeout(FAREWELL, async {
        let _ = stream.shutdown().await;
        let mut rest = [0; 4096];
        while matches!(stream.read(&mut rest).await, Ok(1..)) {}
    })
    .await;
}

/// The next request; `None` where the connection ends in good order.
async fn next_head<A: Answer>(
    stream: &mut Stream,
    input: &mut Vec<u8>,
    answers: &A,
    may_go_on: bool,
    begins_within: Duration,
    seat: &Seat,
) -> Result<Option<Head>, Response> {
    let mut deadline = Instant::now() + begins_within;
    let mut silence = None;
    loop {
        let parsed =
            if A::TAKES_ANY_TARGET { Head::parse_passing(input) } else { Head::parse(input) };
        match parsed {
            Ok(Some((head, bytes))) => {
                input.drain(..bytes);
                return Ok(Some(head));
            }
            Ok(None) => {}
            Err(error) => return Err(Response::text(error.status(), error.to_string())),
        }
        let was_empty = input.is_empty();
        input.reserve(READ_BYTES.min(HEAD_LIMIT_BYTES));
        silence.get_or_insert_with(|| seat.silence());
        let read = tokio::select! {
            read = timeout_at(deadline, stream.read_buf(input)) => read,
            () = answers.ending(may_go_on), if was_empty => return Ok(None),
            () = seat.wanted() => return Ok(None),
        };
        match read {
            Err(_) if was_empty => return Ok(None),
            Err(_) => return Err(Response::text(408, "the request took too long to arrive")),
            Ok(Ok(0) | Err(_)) => return Ok(None),
            Ok(Ok(_)) if was_empty => deadline = Instant::now() + HEAD_WITHIN,
            Ok(Ok(_)) => {}
        }
    }
}

/// Get rid of a body that nobody wanted, if it is short; `false` if the connection cannot go on.
async fn drained(stream: &mut Stream, input: &mut Vec<u8>, body: Body) -> bool {
    let Body::Bytes(bytes) = body else { return body == Body::None };
    if bytes > DRAIN_BYTES_MAX {
        return false;
    }
    let mut left = bytes as usize;
    let all = async {
        loop {
            let here = left.min(input.len());
            input.drain(..here);
            left -= here;
            if left == 0 {
                return true;
            }
            if !matches!(stream.read_buf(input).await, Ok(1..)) {
                return false;
            }
        }
    };
    timeout(HEAD_WITHIN, all).await.unwrap_or(false)
}

/// Write an answer; answers how many bytes of body were sent.
async fn write(
    stream: &mut Stream,
    pace: &mut Pace,
    response: Response,
    is_head: bool,
    version: Version,
    after: After,
) -> io::Result<u64> {
    let length = response.body.length();
    let is_chunked = length.is_none() && version > Version::OneZero;
    // Without a length and without chunks only the end of the connection ends the body.
    let keeps_alive = after == After::Keep && (length.is_some() || is_chunked);
    let date = swath_formats::http_date::write(now_s());
    let mut head = response.head(&date, is_chunked, keeps_alive);
    let bodiless = is_head || response.is_bodiless();
    let sent = match response.body {
        Content::Empty => put(stream, pace, &head).await.map(|()| 0),
        _ if bodiless => put(stream, pace, &head).await.map(|()| 0),
        Content::Bytes(bytes) => {
            head.extend_from_slice(&bytes);
            put(stream, pace, &head).await.map(|()| bytes.len() as u64)
        }
        Content::Pieces(pieces) => {
            put(stream, pace, &head).await?;
            write_pieces(stream, pace, pieces).await
        }
        Content::Made(made) => write_made(stream, pace, head, made, is_chunked).await,
        Content::Found(found) if stream.plain().is_none() => {
            write_made(stream, pace, head, found, false).await
        }
        Content::Found(found) => {
            put(stream, pace, &head).await?;
            write_found(stream, pace, found).await
        }
    }?;
    within(stream.flush()).await?;
    if keeps_alive || after == After::Close {
        Ok(sent)
    } else {
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

async fn write_pieces(stream: &mut Stream, pace: &mut Pace, pieces: Vec<Piece>) -> io::Result<u64> {
    let mut sent = 0;
    for piece in pieces {
        sent += match piece {
            Piece::Text(text) => {
                put(stream, pace, &text).await?;
                text.len() as u64
            }
            Piece::Part { file, range } => match stream.plain() {
                Some(tcp) => {
                    send_range(tcp, pace, file.as_fd(), range).await?;
                    range.len()
                }
                None => {
                    let file = Box::new(FileBytes::new(file, range));
                    write_made(stream, pace, Vec::new(), file, false).await?
                }
            },
        };
    }
    Ok(sent)
}

async fn write_found(
    stream: &mut Stream,
    pace: &mut Pace,
    mut found: Box<dyn Find>,
) -> io::Result<u64> {
    let tcp = stream.plain().ok_or(io::ErrorKind::Unsupported)?;
    let mut sent = 0;
    while let Some(part) = found.part().await? {
        send_range(tcp, pace, part.file.as_fd(), part.place).await?;
        sent += part.place.len();
    }
    Ok(sent)
}

async fn send_range(
    tcp: &TcpStream,
    pace: &mut Pace,
    file: BorrowedFd<'_>,
    mut rest: Range,
) -> io::Result<()> {
    while !rest.is_empty() {
        let now = pace.allowed(rest.len()).await;
        let part = Range::new(rest.start, rest.start + now);
        let sent = within(send_file(tcp, &file, part)).await?;
        pace.spend(sent);
        if sent == 0 {
            // It became shorter, and the length is promised already.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rest.start += sent;
    }
    Ok(())
}

/// Write `head`, together with what follows it if that is there soon: a new connection may have so
/// many packets under way, however little is in them.
async fn write_made(
    stream: &mut Stream,
    pace: &mut Pace,
    mut head: Vec<u8>,
    mut made: Box<dyn Make>,
    is_chunked: bool,
) -> io::Result<u64> {
    let mut sent = 0;
    loop {
        let bytes = if head.is_empty() {
            made.next().await?
        } else {
            let mut next = made.next();
            match timeout(TOGETHER, &mut next).await {
                Ok(bytes) => bytes?,
                Err(_) => {
                    put(stream, pace, &std::mem::take(&mut head)).await?;
                    next.await?
                }
            }
        };
        if bytes.is_empty() {
            break;
        }
        if is_chunked {
            head.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
            head.extend_from_slice(&bytes);
            head.extend_from_slice(b"\r\n");
            put(stream, pace, &std::mem::take(&mut head)).await?;
        } else if head.is_empty() {
            put(stream, pace, &bytes).await?;
        } else {
            let (some, rest) = bytes.split_at(bytes.len().min(READ_BYTES));
            head.extend_from_slice(some);
            put(stream, pace, &std::mem::take(&mut head)).await?;
            put(stream, pace, rest).await?;
        }
        sent += bytes.len() as u64;
        made.take_back(bytes);
    }
    if is_chunked {
        head.extend_from_slice(b"0\r\n\r\n");
    }
    put(stream, pace, &head).await?;
    Ok(sent)
}

async fn put(stream: &mut Stream, pace: &mut Pace, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let now = pace.allowed(bytes.len() as u64).await;
        let (part, rest) = bytes.split_at(now as usize);
        within(stream.write_all(part)).await?;
        pace.spend(now);
        bytes = rest;
    }
    Ok(())
}

/// A client that takes nothing for a long time is left.
async fn within<T>(sending: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(TAKE_WITHIN, sending).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// A kept connection may be idle for so long.
pub(super) const IDLE: Duration = Duration::from_secs(75);
/// From its first byte on, a request's head has so long to arrive; and so long a new connection may
/// be silent.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// The other side takes something of an answer within this time.
pub(super) const TAKE_WITHIN: Duration = Duration::from_secs(120);
/// What comes this soon after the head goes out with it.
const TOGETHER: Duration = Duration::from_millis(5);
/// At the end we wait so long for the other side to close.
const FAREWELL: Duration = Duration::from_secs(2);
/// A longer body that nobody wants ends the connection.
const DRAIN_BYTES_MAX: u64 = 256 << 10;
/// Read at a time where heads are expected.
const READ_BYTES: usize = 8 << 10;
