//! Sends answers back: heads with what the relay adds to them, bodies (by the kernel alone where
//! possible), and errors of the relay itself.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use swath_formats::{Hop, ProxyFault, relay as address};
use swath_source::{AnswerHead, LaneError, Upstream};
use tokio::io::AsyncWrite;
use url::Url;

use super::faults;
use super::forward::{Broken, Forwarder, State};
use super::gauge::Gauge;
use super::headers::{self, Framing, HopInfo};
use swath_serve::http::{Content, Method};

impl Forwarder<'_> {
    /// Brings answers back.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
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
                    let is_head = front.head.method == Method::HEAD;
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

    /// Sends what is to be sent; whether all of it is.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        while self.out_sent < self.out.len() {
            let part = &self.out[self.out_sent..];
            match Pin::new(&mut *self.stream).poll_write(cx, part) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(bytes)) if bytes > 0 => {
                    self.out_sent += bytes;
                    self.has_moved = true;
                    self.needs_flush = self.stream.plain_socket().is_none();
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
    fn put_head(&mut self, cx: &mut Context<'_>, head: &AnswerHead) -> Result<(), Broken> {
        let (Some(front), Some(upstream)) = (self.queue.front_mut(), &mut self.held.upstream)
        else {
            return Err(Broken);
        };
        let framing = Framing::of(head, front.head.version);
        let keeps_alive = front.head.keeps_alive && !self.relay.is_ending();
        let is_last = !keeps_alive || framing == Framing::Close;
        self.closes |= is_last;
        let hop = hop(&front.url, upstream, &self.held.gauge);
        let marks = HopInfo {
            via: &self.relay.pseudonym,
            timing: &hop.write(),
            framing,
            keeps_alive,
            url: &front.url,
            form: front.form,
        };
        self.out.extend_from_slice(&headers::answer(head, &marks));
        front.status = head.status;
        front.state = State::Answering(framing);
        if framing == Framing::None {
            front.state = State::Done;
        }
        if is_last {
            // Whatever came behind it would be taken for more of this one's body.
            self.queue.truncate(1);
        }
        if framing != Framing::None {
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
        // What is no answer may be what came too much of the one before.
        let is_gone =
            matches!(&error, None | Some(LaneError::Reset { .. } | LaneError::Protocol { .. }));
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

    /// Gives the connection up; what was sent on it is to be sent again.
    pub(super) fn drop_upstream(&mut self) {
        self.held.upstream = None;
        self.held.gauge = Gauge::default();
        for exchange in &mut self.queue {
            if matches!(exchange.state, State::Sent) {
                exchange.state = State::Waiting;
                exchange.tries = exchange.tries.max(1);
            }
        }
    }

    pub(super) fn refuse_for(&mut self, error: &LaneError) {
        let (fault, words) = faults::of(error);
        self.refuse(fault, words);
    }

    /// Answers the foremost request ourselves: nothing comes of it.
    pub(super) fn refuse(&mut self, fault: ProxyFault, words: String) {
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
        let date = swath_formats::http_date::write(swath_serve::http::now_s());
        let response = response.with("via", format!("1.1 {}", self.relay.pseudonym));
        self.out.extend_from_slice(&response.head(&date, false, !closes));
        if let Content::Bytes(bytes) = &response.body
            && front.head.method != Method::HEAD
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

    /// Moves a body whose bytes go back as they come, by the kernel alone where that is possible;
    /// whether anything moved.
    fn poll_raw(&mut self, cx: &mut Context<'_>) -> Result<bool, Broken> {
        let is_plain = self.stream.plain_socket().is_some() && !self.pace.is_limited();
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
            let Some(tcp) = self.stream.plain_socket() else { return Err(Broken) };
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
                // Behind a chunk its end has to pass through memory, for which we are called again.
                debug_assert!(is_dry || is_stuck || has_moved, "somebody wakes us");
                self.held.gauge.run(Instant::now(), is_stuck);
                return Ok(has_moved);
            }
        }
    }

    /// Moves a body through memory; whether anything moved.
    fn poll_copied(&mut self, cx: &mut Context<'_>, in_chunks: bool) -> Result<bool, Broken> {
        let (Some(upstream), Some(front)) = (&mut self.held.upstream, self.queue.front_mut())
        else {
            return Err(Broken);
        };
        if self.buffer.is_empty() {
            self.buffer.resize(BUFFER_BYTES, 0);
        }
        let most = match self.pace.poll_allowed(cx, self.buffer.len() as u64) {
            Poll::Pending => {
                self.held.gauge.run(Instant::now(), true);
                return Ok(false);
            }
            Poll::Ready(most) => most as usize,
        };
        let bytes = match upstream.poll_body(cx, &mut self.buffer[..most]) {
            Poll::Pending => {
                self.held.gauge.run(Instant::now(), false);
                return Ok(false);
            }
            Poll::Ready(Ok(bytes)) => bytes,
            Poll::Ready(Err(_)) => return Err(Broken),
        };
        self.pace.spend(bytes as u64);
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
pub(super) fn hop(url: &Url, upstream: &Upstream, gauge: &Gauge) -> Hop {
    let reading = gauge.read();
    Hop {
        upstream: address::site(url).unwrap_or_default(),
        rtt_ms: Some(upstream.rtt().as_secs_f64() * 1e3),
        rate: reading.map(|reading| reading.rate),
        held: reading.map(|reading| reading.held),
        able: reading.and_then(|reading| reading.able),
    }
}

/// A request is sent at most so often, if connections end before their answers begin.
const TRIES_MAX: u32 = 3;
/// What one connection has in memory of a body.
const BUFFER_BYTES: usize = 256 << 10;
