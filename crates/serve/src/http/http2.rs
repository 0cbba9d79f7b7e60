//! HTTP/2, for browsers and control requests: many small answers on one connection. Bulk data is
//! faster on several HTTP/1.1 connections, where the kernel sends files as they are.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::Method;
use super::activity::Activity;
use super::connection::{Answer, HEAD_WITHIN, IDLE, TAKE_WITHIN, now_s};
use super::head::Head;
use super::pace::Pace;
use super::permits::{Permit, Permits};
use super::received::PART_WITHIN;
use super::response::{Content, Made, Make, Response};
use super::slots::Slot;
use super::stream::Stream;

/// Serves one connection to its end.
pub(crate) async fn serve_http2<A: Answer>(
    stream: Stream,
    peer: SocketAddr,
    answers: Arc<A>,
    slot: &Slot,
) {
    let of_request = Arc::clone(&answers);
    // All answers of a connection share its part.
    let limit = answers.send_limit().cloned();
    let pace = limit.map(|limit| Arc::new(Mutex::new(Pace::new(Some(limit)))));
    let (memory, places) = (slot.memory(), slot.answers());
    let activity = Arc::new(Activity::new());
    let of_answers = Arc::clone(&activity);
    let (under_way, mut changes) = watch::channel(0);
    let under_way = Arc::new(under_way);
    let of_service = Arc::clone(&under_way);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let under_way = UnderWay::new(&of_service);
        let (answers, places) = (Arc::clone(&of_request), places.clone());
        let on =
            On { pace: pace.clone(), memory: memory.clone(), activity: Arc::clone(&of_answers) };
        // In a task of its own, which ends with the stream: what an answer takes keeps no other one.
        AbortOnDropHandle::new(tokio::spawn(async move {
            let place = places.permit().await;
            answer(request, peer, answers, on, (under_way, place)).await
        }))
    });
    let (executor, mut streams) = Streams::new();
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .adaptive_window(true)
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut begins_within = HEAD_WITHIN;
    loop {
        let is_silent = *changes.borrow_and_update() == 0;
        // A client that takes nothing of what it asked for, or sends nothing of what it announced.
        let is_stalled = !is_silent && activity.is_idle();
        let _silence = (is_silent || is_stalled).then(|| slot.silence());
        tokio::select! {
            () = streams.drive(connection.as_mut()) => return,
            () = answers.ending(true) => break,
            () = slot.wanted(), if is_silent => break,
            () = slot.wanted(), if is_stalled => return,
            () = activity.change(is_stalled), if !is_silent => {}
            () = sleep(begins_within), if is_silent => break,
            _ = changes.changed() => begins_within = IDLE,
        }
    }
    connection.as_mut().graceful_shutdown();
    let is_silent = *under_way.borrow() == 0;
    if is_silent {
        // Who has not said a word yet would be waited for without end.
        let _ = timeout(FAREWELL, streams.drive(connection)).await;
    } else {
        streams.drive(connection).await;
    }
}

/// The streams of a connection, run by whoever runs the connection itself. In tasks of their own, an
/// answer's head could be on its way before its body was handed over, and what a client does that
/// reads only so much of a refusal (curl ends what it sends before its length is reached, which is an
/// error of the stream) takes the body away.
struct Streams {
    begun: mpsc::UnboundedReceiver<Begun>,
    running: FuturesUnordered<Begun>,
}

type Begun = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Hands over the streams that begin; there are as many as a connection may have at once.
#[derive(Clone)]
struct Hands(mpsc::UnboundedSender<Begun>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Hands {
    fn execute(&self, stream: F) {
        let _ = self.0.send(Box::pin(stream));
    }
}

impl Streams {
    fn new() -> (Hands, Streams) {
        let (hands, begun) = mpsc::unbounded_channel();
        (Hands(hands), Streams { begun, running: FuturesUnordered::new() })
    }

    /// Runs the connection with its streams until it has ended.
    async fn drive<C: Future>(&mut self, mut connection: Pin<&mut C>) {
        poll_fn(|cx| {
            let ended = connection.as_mut().poll(cx).map(|_| ());
            if ended.is_pending() {
                self.poll(cx);
            }
            ended
        })
        .await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        loop {
            while let Poll::Ready(Some(stream)) = self.begun.poll_recv(cx) {
                self.running.push(stream);
            }
            if !matches!(self.running.poll_next_unpin(cx), Poll::Ready(Some(()))) {
                return;
            }
        }
    }
}

/// A request, until its answer has been sent.
struct UnderWay(Arc<watch::Sender<usize>>);

impl UnderWay {
    fn new(count: &Arc<watch::Sender<usize>>) -> UnderWay {
        count.send_modify(|count| *count += 1);
        UnderWay(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

async fn answer<A: Answer>(
    request: http::Request<Incoming>,
    peer: SocketAddr,
    answers: Arc<A>,
    on: On,
    while_sent: (UnderWay, Permit),
) -> http::Response<Outgoing> {
    let began = Instant::now();
    let working = on.activity.working();
    let (parts, incoming) = request.into_parts();
    let pace_in = Pace::new(answers.receive_limit().cloned());
    let length = http_body::Body::size_hint(&incoming).exact();
    let activity = Some(Arc::clone(&on.activity));
    let mut body = Arriving { incoming, length, pace: pace_in, activity };
    let head = match Head::of_two(&parts) {
        Ok(head) => head,
        Err(error) => {
            body.leave();
            return empty(&Response::text(error.status(), error.to_string()));
        }
    };
    let mut response = answers.answer(&head, peer, &mut body).await;
    drop(working);
    body.leave();
    if response.takes_over.is_some() {
        response = Response::text(400, "a connection can be upgraded only by HTTP/1.1");
    }
    let (status, length) = (response.status, response.body.length());
    let bodiless = head.method == Method::HEAD || response.is_bodiless();
    let mut answer = empty(&response);
    if let Some(length) = length.filter(|_| !response.is_bodiless()) {
        answer.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
    }
    if bodiless {
        answers.note(&head, peer, status, 0, began.elapsed());
        return answer;
    }
    let body = match response.body {
        // It goes out with its head: a client that reads of a refusal while it still sends stops at
        // once, which some (curl) do in a way that is an error, and what it has by then is what it
        // takes the answer for.
        Content::Bytes(bytes) if bytes.len() <= WITH_HEAD_BYTES_MAX => {
            let bytes = Bytes::from(bytes);
            if let Some(pace) = &on.pace {
                pace.lock().await.spend_all(bytes.len() as u64).await;
            }
            answers.note(&head, peer, status, bytes.len() as u64, began.elapsed());
            return answer.map(|_| Outgoing { now: Some(bytes), parts: None, length });
        }
        body => body,
    };
    let mut made = body.into_made();
    let (maker, parts) = made_body();
    tokio::spawn(async move {
        let bytes = send(&mut *made, maker, &on).await;
        answers.note(&head, peer, status, bytes, began.elapsed());
        drop(while_sent);
    });
    answer.map(|_| Outgoing { now: None, parts: Some(parts), length })
}

/// The end at which a body is made, and the one at which it is taken.
fn made_body() -> (Maker, Parts) {
    let (out, parts) = mpsc::channel(1);
    let (wanted, is_whole) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let maker = Maker { out, wanted: Arc::clone(&wanted), is_whole: Arc::clone(&is_whole) };
    (maker, Parts { parts, wanted, is_whole })
}

/// Makes all parts, each when it is `wanted`: one connection may have many answers under way of which
/// the other side takes nothing. Answers how many bytes were taken.
async fn send(made: &mut dyn Make, maker: Maker, on: &On) -> u64 {
    let Maker { out, wanted, is_whole } = maker;
    // A client that takes nothing for a long time is left.
    let give = async |part| {
        let is_taken = matches!(timeout(TAKE_WITHIN, out.send(part)).await, Ok(Ok(())));
        on.activity.note();
        is_taken
    };
    let mut sent = 0;
    loop {
        let is_wanted = tokio::select! {
            wanted = timeout(TAKE_WITHIN, wanted.notified()) => wanted.is_ok(),
            () = out.closed() => false,
        };
        if !is_wanted {
            return sent;
        }
        let working = on.activity.working();
        let leave = tokio::select! {
            leave = timeout(TAKE_WITHIN, on.memory.permit()) => leave.ok(),
            () = out.closed() => None,
        };
        let Some(leave) = leave else { return sent };
        let mut part = match made.next().await {
            Ok(part) if part.is_empty() => {
                is_whole.store(true, Ordering::Release);
                return sent;
            }
            Ok(part) => leave.hold(part),
            Err(error) => {
                give(Err(error)).await;
                return sent;
            }
        };
        drop(working);
        while !part.is_empty() {
            let mut now = part.len();
            if let Some(pace) = on.pace.as_deref() {
                let _working = on.activity.working();
                let mut pace = pace.lock().await;
                now = pace.allowed(part.len() as u64).await as usize;
                pace.spend(now as u64);
            }
            if !give(Ok(part.split_to(now))).await {
                return sent;
            }
            sent += now as u64;
        }
    }
}

/// Status and fields, without a body.
fn empty(response: &Response) -> http::Response<Outgoing> {
    let mut answer = http::Response::new(Outgoing { now: None, parts: None, length: Some(0) });
    *answer.status_mut() = http::StatusCode::from_u16(response.status)
        .unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let date = ("date", swath_formats::http_date::write(now_s()));
    let fields = response.fields.iter().map(|(name, value)| (*name, value.clone()));
    for (name, value) in fields.chain([date]) {
        let value = value.replace(['\r', '\n', '\0'], " ");
        if let Ok(value) = http::HeaderValue::from_bytes(value.as_bytes()) {
            answer.headers_mut().append(name, value);
        }
    }
    answer
}

/// The body of a request.
struct Arriving {
    incoming: Incoming,
    length: Option<u64>,
    pace: Pace,
    /// Its client is waited for, and not we.
    activity: Option<Arc<Activity>>,
}

impl Arriving {
    async fn part(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let frame = std::future::poll_fn(|cx| {
                http_body::Body::poll_frame(Pin::new(&mut self.incoming), cx)
            });
            let waiting = self.activity.as_ref().map(|activity| activity.waiting());
            let frame = timeout(PART_WITHIN, frame).await;
            drop(waiting);
            let Some(frame) = frame.map_err(|_| io::ErrorKind::TimedOut)? else {
                return Ok(Vec::new());
            };
            let Ok(data) = frame.map_err(io::Error::other)?.into_data() else { continue };
            if data.is_empty() {
                continue;
            }
            // What has come is inside already; what comes next waits.
            self.pace.spend_all(data.len() as u64).await;
            return Ok(data.to_vec());
        }
    }

    /// Nobody wants the rest. To let go of it at once would reset the stream, and to many clients a
    /// reset that comes with an answer takes the answer away. So what is under way is thrown away
    /// while the answer goes out, and who sends without end has time to read it.
    fn leave(mut self) {
        self.activity = None;
        if http_body::Body::is_end_stream(&self.incoming) {
            return;
        }
        tokio::spawn(async move {
            let ends_early = timeout(LEAVE_WITHIN, async {
                let mut left = LEAVE_BYTES_MAX;
                while left > 0 {
                    match self.part().await {
                        Ok(part) if !part.is_empty() => left = left.saturating_sub(part.len()),
                        _ => return true,
                    }
                }
                false
            });
            if matches!(ends_early.await, Ok(false)) {
                // The window is used up now, and the client is stopped by that.
                sleep(FAREWELL).await;
            }
        });
    }
}

impl Make for Arriving {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(self.part())
    }
}

/// What the answers of one connection share.
#[derive(Clone)]
struct On {
    pace: Option<Arc<Mutex<Pace>>>,
    memory: Permits,
    activity: Arc<Activity>,
}

/// A body that is there already, or that is made by a task of its own.
struct Outgoing {
    now: Option<Bytes>,
    parts: Option<Parts>,
    length: Option<u64>,
}

/// The parts of a body that is made.
struct Parts {
    parts: mpsc::Receiver<io::Result<Bytes>>,
    /// How the next one is asked for.
    wanted: Arc<Notify>,
    /// No more would have come.
    is_whole: Arc<AtomicBool>,
}

/// Who makes them.
struct Maker {
    out: mpsc::Sender<io::Result<Bytes>>,
    wanted: Arc<Notify>,
    is_whole: Arc<AtomicBool>,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(bytes) = self.now.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match &mut self.parts {
            None => Poll::Ready(None),
            Some(Parts { parts, wanted, is_whole }) => {
                let part = parts.poll_recv(cx);
                match part {
                    Poll::Pending => wanted.notify_one(),
                    // An end in good order would tell a client that took nothing for long that it has
                    // all of it.
                    Poll::Ready(None) if !is_whole.load(Ordering::Acquire) => {
                        return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
                    }
                    Poll::Ready(_) => {}
                }
                part.map(|part| part.map(|part| part.map(Frame::data)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    fn is_end_stream(&self) -> bool {
        self.now.is_none() && self.parts.is_none()
    }
}

/// Requests under way on one connection.
const STREAMS_MAX: u32 = 32;
/// As for HTTP/1.1.
const HEADERS_BYTES_MAX: u32 = super::head::HEAD_LIMIT_BYTES as u32;
/// A client that asks and takes back faster than it is answered is sent away.
const RESETS_MAX: usize = 32;
/// Of a body that nobody wants so much is thrown away …
const LEAVE_BYTES_MAX: usize = 1 << 20;
/// … within this time …
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// … and who sends more than that has so long to read why it was refused, as whoever is silent to
/// read that this is the end.
const FAREWELL: Duration = Duration::from_secs(1);
/// Waiting to be taken, for each request.
const SEND_BYTES_MAX: usize = 256 << 10;
/// An answer of so many bytes is not worth a task.
const WITH_HEAD_BYTES_MAX: usize = 4 << 10;
/// Whether the other side is still there is asked so often …
const PING_EVERY: Duration = Duration::from_secs(30);
/// … and answered within this time.
const PONG_WITHIN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::future::ready;

    use http_body::Body as _;

    use super::super::permits::SharedPermits;
    use super::super::response::Made;
    use super::*;

    /// So many parts of a kibibyte.
    struct Few(u32);

    impl Make for Few {
        fn length(&self) -> Option<u64> {
            None
        }

        fn next(&mut self) -> Made<'_> {
            let part = if self.0 == 0 { Vec::new() } else { vec![7; 1024] };
            self.0 = self.0.saturating_sub(1);
            Box::pin(ready(Ok(part)))
        }
    }

    /// What a client takes of four parts that is silent for so long behind the first one.
    async fn takes(silent: Duration) -> (usize, Option<io::ErrorKind>) {
        let (maker, parts) = made_body();
        let (memory, activity) = (SharedPermits::new(3).here(), Arc::new(Activity::new()));
        let on = On { pace: None, memory, activity };
        let making = tokio::spawn(async move { send(&mut Few(4), maker, &on).await });
        let mut body = Outgoing { now: None, parts: Some(parts), length: None };
        let mut taken = 0;
        let mut error = None;
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            match frame {
                Ok(frame) => taken += frame.into_data().map_or(0, |data| data.len()),
                Err(why) => {
                    error = Some(why.kind());
                    break;
                }
            }
            if taken == 1024 {
                tokio::time::sleep(silent).await;
            }
        }
        making.await.unwrap();
        (taken, error)
    }

    #[tokio::test(start_paused = true)]
    async fn who_took_nothing_for_long_is_not_told_that_this_was_all() {
        // The stream ended in good order, and a listing of no told length looked whole.
        assert_eq!(takes(Duration::from_secs(1)).await, (4096, None));
        let (taken, error) = takes(TAKE_WITHIN * 2).await;
        assert!(taken < 4096 && error == Some(io::ErrorKind::TimedOut), "{taken} {error:?}");
    }
}
