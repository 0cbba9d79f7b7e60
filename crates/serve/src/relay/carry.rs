//! One connection on which requests are passed on, for as long as they come.
//!
//! One task moves both sides. Requests that a client sends ahead go on at once, behind one another on
//! one connection to the next server, so that no round trip of any hop lies idle between two answers;
//! answers come back in order. Memory is bounded: a pipe of the kernel or one buffer for what is on
//! its way, nothing is read that there is no place for. When either side ends the other one is left
//! at once.
//!
//! States of an exchange: waiting -> sent -> answering -> done; waiting again if the connection that
//! it was sent on turns out to be gone before anything of the answer came; refused instead of all that.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use swath_formats::{Hop, ProxyFault, relay as address};
use swath_source::{LaneError, Upstream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use url::Url;

use super::gauge::Gauge;
use super::pace::PolledPace;
use super::pass::{self, Form, Framing, Marks};
use super::pipe::Pipe;
use super::{Relay, faults};
use crate::http::{Content, Head, Method, Next, Response, Stream};

/// What a connection keeps between requests: the connection to the server that was asked last.
#[derive(Default)]
pub(crate) struct Held {
    upstream: Option<Upstream>,
    gauge: Gauge,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            upstream.put_aside();
        }
    }
}

/// One request and what becomes of it.
struct Exchange {
    head: Head,
    url: Url,
    form: Form,
    request: Vec<u8>,
    state: State,
    tries: u32,
    began: Instant,
    status: u16,
    body_bytes: u64,
}

enum State {
    Waiting,
    Sent,
    Answering(Framing),
    /// Answered by ourselves.
    Refused(Box<Response>),
    /// All of the answer is in our hands; what is not sent lies in `out`.
    Done,
}

type Dial = Pin<Box<dyn Future<Output = Result<Upstream, LaneError>> + Send>>;

/// A connection while requests on it are passed on.
pub(super) struct Carry<'a> {
    relay: &'a Arc<Relay>,
    peer: SocketAddr,
    stream: &'a mut Stream,
    /// Came from the client and is not understood yet.
    input: &'a mut Vec<u8>,
    held: &'a mut Held,
    queue: VecDeque<Exchange>,
    dial: Option<Dial>,
    /// To be sent to the client before anything else.
    out: Vec<u8>,
    out_sent: usize,
    needs_flush: bool,
    pipe: Option<Pipe>,
    buffer: Vec<u8>,
    pace: PolledPace,
    /// Nothing more is read from the client: what comes next is not for us, or the connection ends.
    is_over: bool,
    /// The connection ends behind the last answer.
    closes: bool,
    silence: Pin<Box<Sleep>>,
    /// Something moved since the time-out was set.
    has_moved: bool,
    moved_at: Instant,
}

/// Why the connection cannot go on.
struct Broken;

/// Pass `first` on, and what comes behind it as long as it is to be passed on too.
pub(super) async fn carry(
    relay: &Arc<Relay>,
    stream: &mut Stream,
    input: &mut Vec<u8>,
    held: &mut Held,
    first: Head,
    peer: SocketAddr,
) -> Next {
    let pace = PolledPace::new(relay.send_limit.clone());
    let mut carry = Carry {
        relay,
        peer,
        stream,
        input,
        held,
        queue: VecDeque::new(),
        dial: None,
        out: Vec::new(),
        out_sent: 0,
        needs_flush: false,
        pipe: None,
        buffer: Vec::new(),
        pace,
        is_over: false,
        closes: false,
        silence: Box::pin(sleep(relay.timeout)),
        has_moved: false,
        moved_at: Instant::now(),
    };
    carry.take(first);
    let next = std::future::poll_fn(|cx| carry.poll(cx)).await;
    carry.end(next);
    next
}

impl Carry<'_> {
    fn end(&mut self, next: Next) {
        let now = Instant::now();
        self.held.gauge.rest(now);
        if let Some(pipe) = self.pipe.take() {
            self.relay.pipes.put(pipe);
        }
        if next != Next::Back {
            // What is under way is nobody's any more.
            if let Some(upstream) = self.held.upstream.take() {
                upstream.put_aside();
            }
            for exchange in self.queue.drain(..) {
                self.relay.note(
                    &exchange.head,
                    self.peer,
                    exchange.status,
                    exchange.body_bytes,
                    exchange.began.elapsed(),
                );
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            self.has_moved = false;
            if self.poll_requests(cx).is_err() {
                return Poll::Ready(Next::Cut);
            }
            self.poll_sending(cx);
            if self.poll_answer(cx).is_err() {
                return Poll::Ready(Next::Cut);
            }
            if self.queue.is_empty() && self.out.is_empty() && !self.needs_flush {
                return Poll::Ready(if self.closes { Next::Close } else { Next::Back });
            }
            if !self.has_moved {
                break;
            }
            self.moved_at = Instant::now();
        }
        self.poll_silence(cx)
    }

    /// Neither side may be silent for ever while it owes something.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            let due = self.moved_at + self.relay.timeout;
            if self.silence.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if due > now {
                self.silence.as_mut().reset((due).into());
                continue;
            }
            let has_begun =
                self.queue.front().is_none_or(|front| matches!(front.state, State::Answering(_)));
            if has_begun || !self.out.is_empty() {
                return Poll::Ready(Next::Cut);
            }
            self.moved_at = now;
            self.silence.as_mut().reset((now + self.relay.timeout).into());
            self.drop_upstream();
            let after_s = self.relay.timeout.as_secs_f64();
            self.refuse(ProxyFault::ReadTimeout, format!("it said nothing for {after_s} s"));
            return self.poll(cx);
        }
    }

    /// Understand what the client asks for, as far ahead as is sensible.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        while !self.is_over && !self.closes && self.queue.len() < AHEAD_MAX {
            match Head::parse_passing(self.input) {
                Ok(Some((head, bytes)))
                    if self.relay.is_passage(&head) && head.method.name() != "CONNECT" =>
                {
                    self.input.drain(..bytes);
                    self.take(head);
                    self.has_moved = true;
                    continue;
                }
                // For somebody else, once this is through.
                Ok(Some(_)) | Err(_) => {
                    self.is_over = true;
                    break;
                }
                Ok(None) => {}
            }
            if self.relay.is_ending() && self.input.is_empty() {
                self.is_over = true;
                break;
            }
            let mut space = [0; READ_BYTES];
            let mut space = ReadBuf::new(&mut space);
            match Pin::new(&mut *self.stream).poll_read(cx, &mut space) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !space.filled().is_empty() => {
                    self.input.extend_from_slice(space.filled());
                    self.has_moved = true;
                }
                // Gone: nobody waits for the answers.
                Poll::Ready(_) => return Err(Broken),
            }
        }
        Ok(())
    }

    /// A request has come.
    fn take(&mut self, head: Head) {
        self.closes |= !head.keeps_alive;
        let began = Instant::now();
        let judged = self.relay.judge(&head, self.peer);
        let (url, form, state) = match judged {
            Ok((url, form)) => (url, form, State::Waiting),
            Err(refusal) => {
                if head.body != crate::http::Body::None {
                    // What follows it is not for us to understand.
                    self.closes = true;
                }
                let nowhere = self.relay.nowhere.clone();
                (nowhere, Form::Path, State::Refused(Box::new(refusal)))
            }
        };
        let request = match state {
            State::Waiting => pass::request(&head, &url, form, &self.relay.pseudonym),
            _ => Vec::new(),
        };
        self.queue.push_back(Exchange {
            head,
            url,
            form,
            request,
            state,
            tries: 0,
            began,
            status: 0,
            body_bytes: 0,
        });
    }

    /// Send on what has not been sent, on a connection that may have to be opened for it.
    fn poll_sending(&mut self, cx: &mut Context<'_>) {
        if let Some(dial) = &mut self.dial
            && let Poll::Ready(dialled) = dial.as_mut().poll(cx)
        {
            self.dial = None;
            self.has_moved = true;
            match dialled {
                Ok(upstream) => self.held.upstream = Some(upstream),
                Err(error) => self.refuse_for(&error),
            }
        }
        let mut is_first = true;
        for exchange in &mut self.queue {
            match (&exchange.state, &mut self.held.upstream) {
                (State::Waiting, Some(upstream))
                    if upstream.leads_to(&exchange.url)
                        && upstream.takes_more()
                        && (is_first || upstream.bears_more()) =>
                {
                    upstream.send(&exchange.request);
                    exchange.state = State::Sent;
                    self.has_moved = true;
                }
                (State::Waiting, upstream) if is_first && self.dial.is_none() => {
                    let reuse = exchange.tries == 0;
                    if let Some(upstream) = upstream.take() {
                        upstream.put_aside();
                        self.held.gauge = Gauge::default();
                    }
                    exchange.tries += 1;
                    let (relay, url) = (Arc::clone(self.relay), exchange.url.clone());
                    self.dial =
                        Some(Box::pin(async move { relay.net.upstream(&url, reuse).await }));
                    // It must be polled once to be woken.
                    self.has_moved = true;
                    break;
                }
                (State::Waiting, _) => break,
                _ => {}
            }
            is_first = false;
        }
        if let Some(upstream) = &mut self.held.upstream
            && upstream.has_unsent()
            && let Poll::Ready(sent) = upstream.poll_send(cx)
        {
            self.has_moved = true;
            if sent.is_err() {
                // Why is seen where the answer is read.
                tracing::debug!("a request could not be sent on");
            }
        }
    }

    /// Bring answers back.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        loop {
            if !self.poll_out(cx)? {
                return Ok(());
            }
            let Some(front) = self.queue.front_mut() else { return Ok(()) };
            match &mut front.state {
                State::Waiting => return Ok(()),
                State::Refused(_) => self.put_refusal(),
                State::Done => self.finish(),
                State::Sent => {
                    let is_head = front.head.method == Method::Head;
                    let Some(upstream) = &mut self.held.upstream else {
                        self.lost(None)?;
                        continue;
                    };
                    match upstream.poll_head(cx, is_head) {
                        Poll::Pending => return Ok(()),
                        Poll::Ready(Ok(Some(head))) => self.put_head(cx, &head)?,
                        Poll::Ready(Ok(None)) => self.lost(None)?,
                        Poll::Ready(Err(error)) => self.lost(Some(error))?,
                    }
                }
                State::Answering(framing) => {
                    let framing = *framing;
                    let moved = match framing {
                        Framing::None => true,
                        Framing::Length(_) | Framing::Close => self.poll_raw(cx)?,
                        Framing::Chunks => self.poll_copied(cx, true)?,
                    };
                    if !moved {
                        return Ok(());
                    }
                }
            }
            self.has_moved = true;
        }
    }

    /// Send what is to be sent; whether all of it is.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        while self.out_sent < self.out.len() {
            let part = &self.out[self.out_sent..];
            match Pin::new(&mut *self.stream).poll_write(cx, part) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(bytes)) if bytes > 0 => {
                    self.out_sent += bytes;
                    self.has_moved = true;
                    self.needs_flush = self.stream.plain().is_none();
                }
                Poll::Ready(_) => return Err(Broken),
            }
        }
        self.out.clear();
        self.out_sent = 0;
        if self.needs_flush {
            match Pin::new(&mut *self.stream).poll_flush(cx) {
                // What could not leave yet leaves with what comes next.
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.needs_flush = false,
                Poll::Ready(Err(_)) => return Err(Broken),
            }
        }
        Ok(true)
    }

    /// The head of the foremost answer is here.
    fn put_head(
        &mut self,
        cx: &mut Context<'_>,
        head: &swath_source::AnswerHead,
    ) -> Result<(), Broken> {
        let (Some(front), Some(upstream)) = (self.queue.front_mut(), &mut self.held.upstream)
        else {
            return Err(Broken);
        };
        let framing = Framing::of(head, front.head.version);
        let keeps_alive = front.head.keeps_alive && !self.relay.is_ending();
        self.closes |= !keeps_alive || framing == Framing::Close;
        let hop = hop(&front.url, upstream, &self.held.gauge);
        let marks = Marks {
            via: &self.relay.pseudonym,
            timing: &hop.write(),
            framing,
            keeps_alive,
            url: &front.url,
            form: front.form,
        };
        self.out.extend_from_slice(&pass::answer(head, &marks));
        front.status = head.status;
        front.state = State::Answering(framing);
        if framing == Framing::None {
            front.state = State::Done;
        } else {
            self.held.gauge.run(Instant::now(), false);
            // What came with the head goes out with it.
            if self.held.upstream.as_ref().is_some_and(Upstream::has_some) {
                self.poll_copied(cx, framing == Framing::Chunks)?;
            }
        }
        Ok(())
    }

    /// The connection was gone, or what came was no answer, before anything of it was passed back.
    fn lost(&mut self, error: Option<LaneError>) -> Result<(), Broken> {
        let was_used = self.held.upstream.as_ref().is_none_or(Upstream::was_used);
        self.drop_upstream();
        let is_gone = matches!(&error, None | Some(LaneError::Reset { .. }));
        let tries = self.queue.front().map_or(0, |front| front.tries);
        if is_gone && was_used && tries < TRIES_MAX {
            // Servers close connections when they like; what was asked changes nothing there.
            return Ok(());
        }
        match error {
            Some(error) => self.refuse_for(&error),
            None => self.refuse(
                ProxyFault::Terminated,
                "it closed the connection without an answer".to_owned(),
            ),
        }
        Ok(())
    }

    /// Give the connection up; what was sent on it is to be sent again.
    fn drop_upstream(&mut self) {
        self.held.upstream = None;
        self.held.gauge = Gauge::default();
        for exchange in &mut self.queue {
            if matches!(exchange.state, State::Sent) {
                exchange.state = State::Waiting;
                exchange.tries = exchange.tries.max(1);
            }
        }
    }

    fn refuse_for(&mut self, error: &LaneError) {
        let (fault, words) = faults::of(error);
        self.refuse(fault, words);
    }

    /// Answer the foremost request ourselves: nothing comes of it.
    fn refuse(&mut self, fault: ProxyFault, words: String) {
        let Some(front) = self.queue.front_mut() else { return };
        let site = address::site(&front.url).unwrap_or_default();
        let refusal = faults::response(&self.relay.name, fault, Some(&site), &words);
        front.state = State::Refused(Box::new(refusal));
    }

    fn put_refusal(&mut self) {
        let closes = self.closes && self.queue.len() == 1;
        let Some(front) = self.queue.front_mut() else { return };
        let State::Refused(response) = std::mem::replace(&mut front.state, State::Done) else {
            return;
        };
        front.status = response.status;
        let date = swath_formats::http_date::write(crate::http::now_s());
        let response = response.with("via", format!("1.1 {}", self.relay.pseudonym));
        self.out.extend_from_slice(&response.head(&date, false, !closes));
        if let Content::Bytes(bytes) = &response.body
            && front.head.method != Method::Head
        {
            front.body_bytes = bytes.len() as u64;
            self.out.extend_from_slice(bytes);
        }
    }

    /// The foremost exchange is over.
    fn finish(&mut self) {
        let Some(done) = self.queue.pop_front() else { return };
        let took = done.began.elapsed();
        self.relay.note(&done.head, self.peer, done.status, done.body_bytes, took);
        if self.queue.is_empty() {
            self.held.gauge.rest(Instant::now());
        }
    }

    /// Move a body whose bytes go back as they come, by the kernel alone where that is possible;
    /// whether anything moved.
    fn poll_raw(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        let is_plain = self.stream.plain().is_some() && !self.pace.is_limited();
        let has_socket = self.held.upstream.as_ref().is_some_and(|it| it.socket().is_some());
        let is_in_pipe = self.pipe.as_ref().is_some_and(|pipe| pipe.held() > 0);
        if !(is_in_pipe || is_plain && has_socket) {
            return self.poll_copied(cx, false);
        }
        if self.pipe.is_none() {
            match self.relay.pipes.take() {
                Ok(pipe) => self.pipe = Some(pipe),
                // Out of descriptors, most likely: memory does it too.
                Err(_) => return self.poll_copied(cx, false),
            }
        }
        let mut has_moved = false;
        loop {
            let (Some(pipe), Some(upstream), Some(front)) =
                (&mut self.pipe, &mut self.held.upstream, self.queue.front_mut())
            else {
                return Err(Broken);
            };
            let mut moved = false;
            let mut is_dry = false;
            if let Some((tcp, left)) = upstream.socket()
                && !pipe.is_full()
            {
                match pipe.poll_fill(cx, tcp, left) {
                    Poll::Pending => is_dry = pipe.held() == 0,
                    Poll::Ready(Ok(bytes)) => {
                        upstream.took(bytes as u64).map_err(|_| Broken)?;
                        self.held.gauge.came(bytes as u64);
                        moved = true;
                    }
                    Poll::Ready(Err(_)) => return Err(Broken),
                }
            }
            let Some(tcp) = self.stream.plain() else { return Err(Broken) };
            let mut is_stuck = false;
            if pipe.held() > 0 {
                let more = !upstream.is_through();
                match pipe.poll_drain(cx, tcp, usize::MAX, more) {
                    Poll::Pending => is_stuck = true,
                    Poll::Ready(Ok(bytes)) => {
                        front.body_bytes += bytes as u64;
                        self.relay.metrics.passed(bytes as u64);
                        moved = true;
                    }
                    Poll::Ready(Err(_)) => return Err(Broken),
                }
            }
            has_moved |= moved;
            if upstream.is_through() && pipe.held() == 0 {
                front.state = State::Done;
                return Ok(true);
            }
            if !moved {
                debug_assert!(is_dry || is_stuck, "somebody wakes us");
                self.held.gauge.run(Instant::now(), is_stuck);
                return Ok(has_moved);
            }
        }
    }

    /// Move a body through memory; whether anything moved.
    fn poll_copied(&mut self, cx: &mut Context<'_>, in_chunks: bool) -> Result<bool, Broken> {
        let (Some(upstream), Some(front)) = (&mut self.held.upstream, self.queue.front_mut())
        else {
            return Err(Broken);
        };
        if self.buffer.is_empty() {
            self.buffer.resize(BUFFER_BYTES, 0);
        }
        let most = match self.pace.poll_allowed(cx, self.buffer.len()) {
            Poll::Pending => {
                self.held.gauge.run(Instant::now(), true);
                return Ok(false);
            }
            Poll::Ready(most) => most,
        };
        let bytes = match upstream.poll_body(cx, &mut self.buffer[..most]) {
            Poll::Pending => {
                self.held.gauge.run(Instant::now(), false);
                return Ok(false);
            }
            Poll::Ready(Ok(bytes)) => bytes,
            Poll::Ready(Err(_)) => return Err(Broken),
        };
        self.pace.spend(bytes);
        self.held.gauge.came(bytes as u64);
        front.body_bytes += bytes as u64;
        self.relay.metrics.passed(bytes as u64);
        if in_chunks && bytes > 0 {
            self.out.extend_from_slice(format!("{bytes:x}\r\n").as_bytes());
        }
        self.out.extend_from_slice(&self.buffer[..bytes]);
        if in_chunks && bytes > 0 {
            self.out.extend_from_slice(b"\r\n");
        }
        if upstream.is_through() {
            if in_chunks {
                self.out.extend_from_slice(b"0\r\n\r\n");
            }
            front.state = State::Done;
        }
        // Until it is sent on, we have no place for more.
        self.held.gauge.run(Instant::now(), true);
        Ok(true)
    }
}

/// What is told of the hop to the server of `url`.
fn hop(url: &Url, upstream: &Upstream, gauge: &Gauge) -> Hop {
    let reading = gauge.read();
    Hop {
        upstream: address::site(url).unwrap_or_default(),
        rtt_ms: Some(upstream.rtt().as_secs_f64() * 1e3),
        rate: reading.map(|reading| reading.rate),
        held: reading.map(|reading| reading.held),
        able: reading.and_then(|reading| reading.able),
        down: None,
    }
}

/// A client may ask for so many answers ahead.
const AHEAD_MAX: usize = 16;
/// A request is sent at most so often, if connections end before their answers begin.
const TRIES_MAX: u32 = 3;
/// Read at a time where requests are expected.
const READ_BYTES: usize = 8 << 10;
/// What one connection has in memory of a body.
const BUFFER_BYTES: usize = 256 << 10;
