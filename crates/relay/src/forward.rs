//! Forwards the requests of one connection.
//!
//! One task moves both sides. Pipelined requests are sent on at once, on one connection to the next
//! server, so that no hop idles between two answers; answers are returned in order. Memory is
//! bounded: one kernel pipe or one buffer holds what is under way, and nothing is read that has no
//! room. When one side is gone, the other one is closed at once. A client that has only shut down
//! its sending side is still answered; whether it is gone shows when it is sent something.
//!
//! States of an exchange: waiting -> sent -> answering -> done; back to waiting if its connection
//! turns out to be closed before the answer began; or refused.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use swath_formats::ProxyFault;
use swath_source::{LaneError, Upstream};
use tokio::time::{Sleep, sleep};
use url::Url;

use super::Relay;
use super::cached::Jobs;
use super::gauge::Gauge;
use super::headers::{self, Form, Framing};
use super::pipe::Pipe;
use swath_serve::http::{Head, Method, Next, Pace, Response, Stream, poll_input};

/// What a connection keeps between requests: the connection to the server that was asked last.
#[derive(Default)]
pub(crate) struct ClientState {
    pub(super) upstream: Option<Upstream>,
    pub(super) gauge: Gauge,
    /// What fetches for the cache on behalf of this connection.
    pub(super) jobs: Option<Jobs>,
}

impl Drop for ClientState {
    fn drop(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            upstream.put_aside();
        }
    }
}

/// One request and what becomes of it.
pub(super) struct Exchange {
    pub head: Head,
    pub url: Url,
    pub form: Form,
    pub request: Vec<u8>,
    pub state: State,
    pub tries: u32,
    pub began: Instant,
    pub status: u16,
    pub body_bytes: u64,
}

pub(super) enum State {
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
pub(super) struct Forwarder<'a> {
    pub relay: &'a Arc<Relay>,
    pub peer: SocketAddr,
    pub stream: &'a mut Stream,
    /// Came from the client and is not understood yet.
    pub input: &'a mut Vec<u8>,
    pub held: &'a mut ClientState,
    pub queue: VecDeque<Exchange>,
    pub dial: Option<Dial>,
    /// To be sent to the client before anything else.
    pub out: Vec<u8>,
    pub out_sent: usize,
    pub needs_flush: bool,
    pub pipe: Option<Pipe>,
    pub buffer: Vec<u8>,
    pub pace: Pace,
    /// Nothing more is read from the client: what comes next is not for us, or the connection ends.
    pub is_over: bool,
    /// The connection ends behind the last answer.
    pub closes: bool,
    pub silence: Pin<Box<Sleep>>,
    /// Something moved since the time-out was set.
    pub has_moved: bool,
    pub moved_at: Instant,
}

/// Why the connection cannot go on.
pub(super) struct Broken;

/// Passes `first` on, and what comes behind it as long as it is to be passed on too.
pub(super) async fn forward(
    relay: &Arc<Relay>,
    stream: &mut Stream,
    input: &mut Vec<u8>,
    held: &mut ClientState,
    first: Head,
    peer: SocketAddr,
) -> Next {
    let pace = Pace::new(relay.send_limit.clone());
    let mut forwarder = Forwarder {
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
    forwarder.take(first);
    let next = std::future::poll_fn(|cx| forwarder.poll(cx)).await;
    forwarder.end(next);
    next
}

impl Forwarder<'_> {
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
            if self.silence.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if self.pace.is_waiting() {
                // A limit that many share may let each wait for long.
                self.moved_at = now;
            }
            let due = self.moved_at + self.relay.timeout;
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
            // Whatever comes of it is not for the one behind this.
            self.dial = None;
            self.drop_upstream();
            let after_s = self.relay.timeout.as_secs_f64();
            self.refuse(ProxyFault::ReadTimeout, format!("it said nothing for {after_s} s"));
            return self.poll(cx);
        }
    }

    /// Understands what the client asks for, as far ahead as is sensible.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        while !self.is_over && !self.closes && self.queue.len() < AHEAD_MAX {
            match Head::parse_passing(self.input) {
                Ok(Some((head, bytes)))
                    if self.relay.is_passage(&head)
                        && head.method != Method::CONNECT
                        && self.relay.kept(&head, self.peer).is_none() =>
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
            match poll_input(self.stream, cx, self.input) {
                Poll::Pending => break,
                Poll::Ready(Ok(true)) => self.has_moved = true,
                // It asks for nothing more. Whether it is gone is told by what it is sent.
                Poll::Ready(Ok(false)) => self.is_over = true,
                // Gone: nobody waits for the answers.
                Poll::Ready(Err(_)) => return Err(Broken),
            }
        }
        Ok(())
    }

    /// A request has come.
    fn take(&mut self, head: Head) {
        self.closes |= !head.keeps_alive;
        let began = Instant::now();
        let judged = self.relay.judge(&head, self.peer);
        let (url, form, state, request) = match judged {
            Ok((url, form)) => match self.relay.unsealed(&head, &url) {
                Ok(lines) => {
                    let request =
                        headers::request(&head, &url, form, &self.relay.pseudonym, &lines);
                    (url, form, State::Waiting, request)
                }
                Err(refusal) => (url, form, State::Refused(Box::new(refusal)), Vec::new()),
            },
            Err(refusal) => {
                if head.body != swath_serve::http::Body::None {
                    // What follows it is not for us to understand.
                    self.closes = true;
                }
                let nowhere = self.relay.nowhere.clone();
                (nowhere, Form::Path, State::Refused(Box::new(refusal)), Vec::new())
            }
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

    /// Sends on what has not been sent, on a connection that may have to be opened for it.
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
        let waits =
            matches!(self.queue.front(), Some(front) if matches!(front.state, State::Waiting));
        if waits && self.held.upstream.as_mut().is_some_and(|upstream| !upstream.is_quiet()) {
            // Bytes behind the last answer would be taken for the next one.
            self.drop_upstream();
        }
        let mut is_first = true;
        for exchange in &mut self.queue {
            match (&exchange.state, &mut self.held.upstream) {
                // Bytes behind an answer: what is asked next waits to be the first, and goes elsewhere.
                (State::Waiting, Some(upstream)) if upstream.has_excess() => break,
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
}

/// A client may ask for so many answers ahead.
const AHEAD_MAX: usize = 16;
