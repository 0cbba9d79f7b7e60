//! One client's connection while the cache answers on it. Pipelined requests are prepared at once,
//! so that their bytes are fetched while earlier answers are sent; answers are sent in order, by
//! the kernel alone where possible.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use swath_formats::relay::RELAYS_MAX;
use swath_source::AnswerHead;
use swath_store::cache::Part;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::fetcher::Jobs;
use super::prepare::{Asked, Prepared, prepare};
use super::reader::{CacheStatus, Read, Reader};
use crate::PSEUDONYM;
use crate::forward::ClientState;
use crate::headers::{self, Framing, HopInfo};
use crate::{Relay, form};
use swath_serve::http::{Head, Method, Next, Pace, Stream, poll_input};

/// A connection while it is answered.
pub(super) struct ClientConnection<'a> {
    pub(super) relay: &'a Arc<Relay>,
    peer: SocketAddr,
    pub(super) stream: &'a mut Stream,
    input: &'a mut Vec<u8>,
    held: &'a mut ClientState,
    queue: VecDeque<Request>,
    pub(super) pace: Pace,
    /// Nothing more is read: what comes next is not for the cache.
    is_over: bool,
}

/// One request that is being prepared.
struct Request {
    head: Arc<Head>,
    url: Url,
    /// As it came; the first one was taken from us.
    raw: Vec<u8>,
    /// Whoever does not wait for it any more has it stopped.
    preparing: AbortOnDropHandle<Prepared>,
    began: Instant,
}

/// Answers `first`, and what comes behind it as long as it is for the cache; answers with a request
/// that is not, as it turned out.
pub(crate) async fn forward(
    relay: &Arc<Relay>,
    stream: &mut Stream,
    input: &mut Vec<u8>,
    held: &mut ClientState,
    first: (Head, Url),
    peer: SocketAddr,
) -> Result<Next, Head> {
    let pace = Pace::new(relay.send_limit.clone());
    let queue = VecDeque::new();
    let is_over = !first.0.keeps_alive;
    let mut connection =
        ClientConnection { relay, peer, stream, input, held, queue, pace, is_over };
    connection.take(first.0, first.1, Vec::new());
    while let Some(mut request) = connection.queue.pop_front() {
        let Some(prepared) = connection.meanwhile(&mut request.preparing).await else {
            return Ok(Next::Cut);
        };
        let keeps_alive = request.head.keeps_alive && !relay.is_ending();
        let (answer, body) = match prepared.unwrap_or(Prepared::Apart) {
            Prepared::Apart => {
                connection.give_back();
                return Err((*request.head).clone());
            }
            Prepared::Told(answer, how) => (answer, Err(how)),
            Prepared::Bytes(answer, part, reader) => (answer, Ok((part, reader))),
        };
        let mut sent = 0;
        let written = connection.answer(&request, &answer, body, keeps_alive, &mut sent).await;
        let took = request.began.elapsed();
        relay.note(&request.head, peer, answer.status, sent, took);
        match written {
            Err(_) => return Ok(Next::Cut),
            Ok(()) if !keeps_alive => return Ok(Next::Close),
            Ok(()) => {}
        }
        if connection.glance().await.is_none() {
            return Ok(Next::Cut);
        }
    }
    Ok(Next::Back)
}

impl ClientConnection<'_> {
    /// A request has come: prepare what is answered to it.
    fn take(&mut self, head: Head, url: Url, raw: Vec<u8>) {
        // Of those whom the request came by only relays of this kind count, by which circles are seen:
        // what is kept is asked for on behalf of all.
        let passed = head.fields("via").flat_map(|value| value.split(',')).map(str::trim);
        let relays = passed.filter(|one| one.contains(PSEUDONYM) && one.len() <= VIA_BYTES_MAX);
        let via: String = relays.take(RELAYS_MAX).map(|one| format!("{one}, ")).collect();
        let via = format!("{via}1.1 {}", self.relay.pseudonym).into();
        let head = Arc::new(head);
        let asked = Asked { head: Arc::clone(&head), url: url.clone(), via };
        let jobs = self.held.jobs.get_or_insert_with(|| Jobs::new(self.relay)).clone();
        let preparing = tokio::spawn(prepare(Arc::clone(self.relay), asked, jobs));
        self.queue.push_back(Request {
            head,
            url,
            raw,
            preparing: AbortOnDropHandle::new(preparing),
            began: Instant::now(),
        });
    }

    /// What was taken ahead is for somebody else to understand.
    fn give_back(&mut self) {
        let mut all: Vec<u8> = self.queue.drain(..).flat_map(|one| one.raw.clone()).collect();
        all.append(self.input);
        *self.input = all;
    }

    /// Waits for something while requests are taken ahead; `None` if the client is gone.
    pub(super) async fn meanwhile<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        let mut what = pin!(what);
        poll_fn(|cx| {
            if let Poll::Ready(done) = what.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            if self.poll_requests(cx).is_err() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    /// Takes what has come ahead; `None` if the client is gone.
    async fn glance(&mut self) -> Option<()> {
        poll_fn(|cx| Poll::Ready(self.poll_requests(cx).ok())).await
    }

    fn poll_requests(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.is_over && self.queue.len() < AHEAD_MAX {
            match Head::parse_passing(self.input) {
                Ok(Some((head, bytes))) => {
                    let Some(url) = self.relay.kept(&head, self.peer) else {
                        self.is_over = true;
                        break;
                    };
                    let raw = self.input.drain(..bytes).collect();
                    self.is_over = !head.keeps_alive;
                    self.take(head, url, raw);
                    continue;
                }
                Err(_) => {
                    self.is_over = true;
                    break;
                }
                Ok(None) => {}
            }
            // Of one who is gone nobody waits for the answers; one who has ended its own side may.
            match poll_input(self.stream, cx, self.input) {
                Poll::Pending => break,
                Poll::Ready(read) => self.is_over = !read?,
            }
        }
        Ok(())
    }

    async fn answer(
        &mut self,
        request: &Request,
        answer: &AnswerHead,
        body: Result<(Part, Box<Reader>), CacheStatus>,
        keeps_alive: bool,
        sent: &mut u64,
    ) -> io::Result<()> {
        let how = match &body {
            Ok((_, reader)) => reader.how(),
            Err(how) => *how,
        };
        let Some(cached) = &self.relay.cached else { return Err(io::ErrorKind::Other.into()) };
        cached.figures.count(how);
        let mut timing = match &body {
            // Of hops that nothing was asked by there is nothing to tell.
            Ok((_, reader)) if how != CacheStatus::Hit => reader.version.timing(),
            _ => String::new(),
        };
        if !timing.is_empty() {
            timing.push_str(", ");
        }
        timing.push_str(&format!("cache;desc={}", how.name()));
        let framing = match (&body, answer.status) {
            (Ok(_), _) => Framing::Length(answer.length.unwrap_or(0)),
            (Err(_), 412 | 416) if request.head.method == Method::GET => Framing::Length(0),
            (Err(_), _) => Framing::None,
        };
        let marks = HopInfo {
            via: &self.relay.pseudonym,
            timing: &timing,
            framing,
            keeps_alive,
            url: &request.url,
            form: form(&request.head).unwrap_or(headers::Form::Path),
        };
        self.put(&headers::answer(answer, &marks)).await?;
        if let Ok((mut part, mut reader)) = body {
            loop {
                let bytes = part.range.len();
                self.put_part(&part).await?;
                drop(part);
                *sent += bytes;
                cached.figures.sent.fetch_add(bytes, Ordering::Relaxed);
                self.relay.metrics.passed(bytes);
                let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
                self.glance().await.ok_or_else(gone)?;
                part = match self.meanwhile(reader.next()).await.ok_or_else(gone)?? {
                    Read::Part(part) => part,
                    Read::End => break,
                    Read::Rest(range) => {
                        self.put_rest(&reader, range, sent).await?;
                        break;
                    }
                    Read::Cut => return Err(io::ErrorKind::InvalidData.into()),
                };
            }
        }
        timeout(self.relay.timeout, self.stream.flush()).await?
    }
}

/// A client may ask for so many answers ahead.
const AHEAD_MAX: usize = 16;
/// A relay's entry in `Via` is no longer.
const VIA_BYTES_MAX: usize = 80;
