//! One HTTP/1 connection: reads requests and answers them in order.
//!
//! Every wait has a limit: for a request to begin, for its head to be complete, for the client to
//! take an answer. A client that is waited for counts as silent, and loses its slot when another
//! needs it. Pipelined requests are answered in order. States: idle -> head -> answering ->
//! draining -> idle …, or the end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use swath_model::digest::{Algorithm, Hasher};
use swath_model::{Limiter, Range};
use swath_transport::PeerState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::body::FileBytes;
use super::head::{Body, HEAD_LIMIT_BYTES, Head};
use super::pace::Pace;
use super::received::Received;
use super::response::{Content, Find, Made, Make, Piece, Response};
use super::slots::Slot;
use super::stream::{Stream, send_file};
use super::{Method, Version};

/// Answers requests.
pub trait Answer: Send + Sync + 'static {
    /// What is kept of a connection from one request to the next.
    type PerConnection: Default + Send;

    /// What a target means is judged by the answer, not by whether it could be a path here.
    const TAKES_ANY_TARGET: bool = false;

    /// Answers one. Of its body as much comes as is asked for.
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

    /// The limit of all answers together; none by default.
    fn send_limit(&self) -> Option<&Arc<Limiter>> {
        None
    }

    /// The limit of all bodies of requests together; none by default.
    fn receive_limit(&self) -> Option<&Arc<Limiter>> {
        None
    }

    /// The connection that this came on may be needed until what is under way has ended.
    fn may_go_on(&self, _head: &Head) -> bool {
        false
    }

    /// The server is about to end: nothing new is begun. Connections that may go on do so for a
    /// while.
    fn is_ending(&self, may_go_on: bool) -> bool;

    /// Resolves when it is.
    fn ending(&self, may_go_on: bool) -> impl Future<Output = ()> + Send;

    /// Whether it asks whether the server is well: that is answered where all seats are taken too.
    fn is_about_health(&self, _head: &Head) -> bool {
        false
    }

    /// Whether this request is for [`Answer::forward`].
    fn forwards(&self, _head: &Head) -> bool {
        false
    }

    /// Answers a request, and those behind it that are of its kind, on the connection itself.
    fn forward(
        self: &Arc<Self>,
        _stream: &mut Stream,
        _input: &mut Vec<u8>,
        _held: &mut Self::PerConnection,
        _head: Head,
        _peer: SocketAddr,
    ) -> impl Future<Output = Next> + Send {
        std::future::ready(Next::Close)
    }
}

/// How it goes on with a connection that was carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
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

/// Serves one connection to its end.
pub async fn serve<A: Answer>(mut stream: Stream, peer: SocketAddr, answers: Arc<A>, slot: &Slot) {
    let mut input = Vec::new();
    let mut held = A::PerConnection::default();
    let mut pace = Pace::new(answers.send_limit().cloned());
    let mut pace_in = Pace::new(answers.receive_limit().cloned());
    // What comes first is not known: it may be for something that is under way.
    let mut may_go_on = true;
    let client_key =
        stream.peer_certificate().map(|shown| Hasher::digest(Algorithm::Sha256, shown));
    let mut begins_within = if slot.is_waiting() { WAITS_WITHIN } else { HEAD_WITHIN };
    loop {
        let next = next_head(&mut stream, &mut input, &*answers, may_go_on, begins_within, slot);
        let head = match next.await {
            Ok(Some(mut head)) => {
                head.client_key = client_key;
                head
            }
            // Whoever comes next has waited long enough.
            Ok(None) if slot.is_wanted() => return,
            Ok(None) => break,
            Err(refusal) => {
                let refusal = answers.marked(refusal);
                let mut out = Out { stream: &mut stream, pace: &mut pace, slot };
                let _ = write(&mut out, refusal, false, Version::HTTP_11, After::Close).await;
                break;
            }
        };
        (may_go_on, begins_within) = (answers.may_go_on(&head), IDLE);
        let is_last = slot.is_waiting() && answers.is_about_health(&head);
        if !is_last {
            let settled = tokio::select! {
                settled = slot.settle() => settled,
                () = left(&stream) => return,
            };
            if !settled {
                let refusal =
                    Response::text(503, "all connections are in use, and many clients wait")
                        .with("retry-after", "2");
                let mut out = Out { stream: &mut stream, pace: &mut pace, slot };
                let refusal = answers.marked(refusal);
                let _ = write(&mut out, refusal, false, head.version, After::Close).await;
                break;
            }
        }
        if answers.forwards(&head) {
            match answers.forward(&mut stream, &mut input, &mut held, head, peer).await {
                Next::Back => continue,
                Next::Close => break,
                Next::Cut => {
                    stream.abort();
                    return;
                }
            }
        }
        let began = Instant::now();
        let (mut response, is_touched, is_whole) = if head.body == Body::None {
            // What only reads can be given up.
            let is_read = matches!(head.method, Method::GET | Method::HEAD);
            let mut body = NoBody;
            let answered = tokio::select! {
                response = answers.answer(&head, peer, &mut body) => Some(response),
                () = left(&stream), if is_read => None,
            };
            let Some(response) = answered else {
                answers.note(&head, peer, CLIENT_LEFT, 0, began.elapsed());
                return;
            };
            (response, false, true)
        } else {
            let mut body = Received::new(&mut stream, &mut input, &mut pace_in, slot, &head);
            let response = answers.answer(&head, peer, &mut body).await;
            (response, body.is_touched(), body.is_whole())
        };
        if let Some(takes_over) = response.takes_over.take() {
            // Who sends ahead would have its bytes read by nobody.
            if head.version != Version::HTTP_11 || !input.is_empty() || head.body != Body::None {
                let text =
                    "a connection can be upgraded only by HTTP/1.1, and with nothing sent ahead";
                let refusal = Response::text(400, text);
                let mut out = Out { stream: &mut stream, pace: &mut pace, slot };
                let _ = write(&mut out, refusal, false, head.version, After::Close).await;
                break;
            }
            response.takes_over = Some(Box::new(|_, _| {}));
            let mut out = Out { stream: &mut stream, pace: &mut pace, slot };
            let turned = write(&mut out, response, false, head.version, After::Keep).await.is_ok();
            answers.note(&head, peer, 101, 0, began.elapsed());
            if turned {
                takes_over(stream, peer);
            }
            return;
        }
        let (status, is_head) = (response.status, head.method == Method::HEAD);
        let mut keeps = head.keeps_alive && !is_last && !answers.is_ending(may_go_on);
        let mut rest = Body::None;
        if is_touched {
            keeps &= is_whole;
        } else {
            // Who waits for leave to send its body does not get it, and sends nothing. Who may not
            // ask for anything gets no time to send what nobody wants.
            let is_here = matches!(head.body, Body::Bytes(bytes) if bytes <= input.len() as u64);
            let is_short = matches!(head.body, Body::Bytes(bytes) if bytes <= DRAIN_BYTES_MAX);
            keeps = keeps
                && (head.body == Body::None
                    || head.field("expect").is_none()
                        && is_short
                        && (is_here || status != UNAUTHORIZED));
            rest = head.body;
        }
        let after = if keeps { After::Keep } else { After::Close };
        let mut out = Out { stream: &mut stream, pace: &mut pace, slot };
        let written = write(&mut out, response, is_head, head.version, after).await;
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
        // Behind the answer, so that nobody waits for it.
        if !drained(&mut stream, &mut input, rest, slot).await {
            break;
        }
    }
    // A close with bytes unread would take the answer away from the client.
    let farewell = timeout(FAREWELL, async {
        let _ = stream.shutdown().await;
        let mut rest = [0; 4096];
        while matches!(stream.read(&mut rest).await, Ok(1..)) {}
    });
    let _silence = slot.silence();
    tokio::select! {
        _ = farewell => {}
        () = slot.wanted() => {}
    }
}

/// The body of a request that has none.
struct NoBody;

impl Make for NoBody {
    fn length(&self) -> Option<u64> {
        Some(0)
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// Resolves when nobody waits for an answer any more: the connection is broken, or the client has
/// ended its side and nothing came of it for a while. (Some that wait end it early.)
async fn left(stream: &Stream) {
    let mut ended: Option<Instant> = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match stream.peer_state() {
            PeerState::Open => ended = None,
            PeerState::Ended => {
                if ended.get_or_insert_with(Instant::now).elapsed() >= ENDED_WAITS {
                    return;
                }
            }
            PeerState::Gone => return,
        }
    }
}

/// The next request; `None` where the connection ends in good order.
async fn next_head<A: Answer>(
    stream: &mut Stream,
    input: &mut Vec<u8>,
    answers: &A,
    may_go_on: bool,
    begins_within: Duration,
    slot: &Slot,
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
        silence.get_or_insert_with(|| slot.silence());
        let read = tokio::select! {
            read = timeout_at(deadline, stream.read_buf(input)) => read,
            () = answers.ending(may_go_on), if was_empty => return Ok(None),
            () = slot.wanted() => return Ok(None),
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

/// Reads a body that nobody wanted, so that the next request can be understood; `false` if the
/// connection cannot go on.
async fn drained(stream: &mut Stream, input: &mut Vec<u8>, body: Body, slot: &Slot) -> bool {
    let Body::Bytes(bytes) = body else { return body == Body::None };
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
    let _silence = slot.silence();
    tokio::select! {
        all = timeout(HEAD_WITHIN, all) => all.unwrap_or(false),
        () = slot.wanted() => false,
    }
}

/// Where answers go.
struct Out<'a> {
    stream: &'a mut Stream,
    pace: &'a mut Pace,
    slot: &'a Slot,
}

/// Writes an answer; answers how many bytes of body were sent.
async fn write(
    out: &mut Out<'_>,
    response: Response,
    is_head: bool,
    version: Version,
    after: After,
) -> io::Result<u64> {
    let length = response.body.length();
    let is_chunked = length.is_none() && version > Version::HTTP_10;
    // Without a length and without chunks only the end of the connection ends the body.
    let keeps_alive = after == After::Keep && (length.is_some() || is_chunked);
    let date = swath_formats::http_date::write(now_s());
    let mut head = response.head(&date, is_chunked, keeps_alive);
    let bodiless = is_head || response.is_bodiless();
    let sent = match response.body {
        Content::Empty => put(out, &head).await.map(|()| 0),
        _ if bodiless => put(out, &head).await.map(|()| 0),
        Content::Bytes(bytes) => {
            head.extend_from_slice(&bytes);
            put(out, &head).await.map(|()| bytes.len() as u64)
        }
        Content::Pieces(pieces) => {
            put(out, &head).await?;
            write_pieces(out, pieces).await
        }
        Content::Made(made) => write_made(out, head, made, is_chunked).await,
        Content::Found(found) if out.stream.plain_socket().is_none() => {
            write_made(out, head, found, false).await
        }
        Content::Found(found) => {
            put(out, &head).await?;
            write_found(out, found).await
        }
    }?;
    within(out.slot, out.stream.flush()).await?;
    if keeps_alive || after == After::Close {
        Ok(sent)
    } else {
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

async fn write_pieces(out: &mut Out<'_>, pieces: Vec<Piece>) -> io::Result<u64> {
    let mut sent = 0;
    for piece in pieces {
        sent += match piece {
            Piece::Text(text) => {
                put(out, &text).await?;
                text.len() as u64
            }
            Piece::Part { file, range } if out.stream.plain_socket().is_some() => {
                send_range(out, file.as_fd(), range).await?;
                range.len()
            }
            Piece::Part { file, range } => {
                let file = Box::new(FileBytes::new(file, range));
                write_made(out, Vec::new(), file, false).await?
            }
        };
    }
    Ok(sent)
}

async fn write_found(out: &mut Out<'_>, mut found: Box<dyn Find>) -> io::Result<u64> {
    let mut sent = 0;
    while let Some(part) = found.part().await? {
        send_range(out, part.file.as_fd(), part.range).await?;
        sent += part.range.len();
    }
    Ok(sent)
}

async fn send_range(out: &mut Out<'_>, file: BorrowedFd<'_>, mut rest: Range) -> io::Result<()> {
    let tcp = out.stream.plain_socket().ok_or(io::ErrorKind::Unsupported)?;
    while !rest.is_empty() {
        let now = out.pace.allowed(rest.len()).await;
        let part = Range::new(rest.start, rest.start + now);
        let sent = within(out.slot, send_file(tcp, &file, part)).await?;
        out.pace.spend(sent);
        if sent == 0 {
            // It became shorter, and the length is promised already.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rest.start += sent;
    }
    Ok(())
}

/// Writes `head`, together with what follows it if that is there soon: a new connection may have so
/// many packets under way, however little is in them.
async fn write_made(
    out: &mut Out<'_>,
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
                    put(out, &std::mem::take(&mut head)).await?;
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
            put(out, &std::mem::take(&mut head)).await?;
        } else if head.is_empty() {
            put(out, &bytes).await?;
        } else {
            let (some, rest) = bytes.split_at(bytes.len().min(READ_BYTES));
            head.extend_from_slice(some);
            put(out, &std::mem::take(&mut head)).await?;
            put(out, rest).await?;
        }
        sent += bytes.len() as u64;
        made.take_back(bytes);
    }
    if is_chunked {
        head.extend_from_slice(b"0\r\n\r\n");
    }
    put(out, &head).await?;
    Ok(sent)
}

async fn put(out: &mut Out<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let now = out.pace.allowed(bytes.len() as u64).await;
        let part = &bytes[..now as usize];
        // Whoever takes a little of it is slow, and not silent.
        let written = within(out.slot, out.stream.write(part)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        out.pace.spend(written as u64);
        bytes = &bytes[written..];
    }
    Ok(())
}

/// A client that takes nothing, or sends nothing, for a long time is left: sooner where somebody
/// else needs its seat.
pub(super) async fn within<T>(
    slot: &Slot,
    part: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let mut part = pin!(part);
    if let Ok(done) = timeout(STALLED, &mut part).await {
        return done;
    }
    let _silence = slot.silence();
    let done = tokio::select! {
        done = timeout(TAKE_WITHIN - STALLED, part) => done.ok(),
        () = slot.wanted() => None,
    };
    done.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// A kept connection may be idle for so long.
pub(super) const IDLE: Duration = Duration::from_secs(75);
/// From its first byte on, a request's head has so long to arrive; and so long a new connection may
/// be silent.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// While all seats are taken a new connection has so long to begin.
const WAITS_WITHIN: Duration = Duration::from_secs(2);
/// The other side takes something of an answer, or sends something of a body, within this time.
pub(super) const TAKE_WITHIN: Duration = Duration::from_secs(120);
/// Nothing moved for so long: that counts as silence. Slow disks and lost packets take less.
pub(super) const STALLED: Duration = Duration::from_secs(5);
/// While an answer is made, whether the client is still there is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A client that has ended its side may wait so long for an answer to begin.
const ENDED_WAITS: Duration = Duration::from_secs(5);
/// What is noted where a client left before its answer (as nginx does).
const CLIENT_LEFT: u16 = 499;
/// The status of those who have not shown that they may ask.
const UNAUTHORIZED: u16 = 401;
/// What comes this soon after the head goes out with it.
const TOGETHER: Duration = Duration::from_millis(5);
/// At the end we wait so long for the other side to close.
const FAREWELL: Duration = Duration::from_secs(2);
/// A longer body that nobody wants ends the connection.
const DRAIN_BYTES_MAX: u64 = 256 << 10;
/// Read at a time where heads are expected.
const READ_BYTES: usize = 8 << 10;
