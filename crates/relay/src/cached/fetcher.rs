//! Fetches what the cache lacks. Each client's connection has a few tasks, one for each file that
//! it waits for; each task uses one connection to the server, with pipelined requests. A task
//! outlives its client while others wait for its bytes, and stops when nobody does.
//!
//! Always holds: all requests under way at once are for one address. Otherwise a server that sends
//! more than it was asked for one file could answer for the next file too, for all clients.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use swath_model::Range;
use swath_source::{AnswerHead, Upstream};
use swath_store::cache::Fetch;
use tokio::sync::mpsc;
use tokio::time::timeout;
use url::Url;

use super::addresses::Address;
use super::ask::{self, Trouble};
use super::version::{Need, Version};
use crate::gauge::Gauge;
use crate::{Relay, answers};

/// Something to be fetched for all.
pub(super) struct Job {
    pub address: Arc<Address>,
    pub version: Arc<Version>,
    pub fetch: Fetch,
    /// Whom the request came by.
    pub via: Arc<str>,
}

/// Takes what is to be fetched for a client's connection. Dropped, nothing more comes.
#[derive(Clone)]
pub(crate) struct Jobs {
    relay: Arc<Relay>,
    fetchers: Arc<Mutex<Vec<Given>>>,
}

/// A fetcher, as those see it who give it something to do.
struct Given {
    jobs: mpsc::Sender<(Job, Load)>,
    /// What it was given last.
    url: Url,
    load: Load,
}

/// There is one more of it for each job that is not done.
type Load = Arc<()>;

impl Jobs {
    pub(super) fn new(relay: &Arc<Relay>) -> Jobs {
        Jobs { relay: Arc::clone(relay), fetchers: Arc::default() }
    }

    /// Has it fetched. If nobody is there to do so, it is given back.
    pub(super) async fn put(&self, job: Job) {
        if let Some((jobs, load)) = self.choose(&job.version.url) {
            let _ = jobs.send((job, load)).await;
        }
    }

    /// Who is to fetch something of this file.
    fn choose(&self, url: &Url) -> Option<(mpsc::Sender<(Job, Load)>, Load)> {
        let mut all = self.fetchers.lock().unwrap_or_else(PoisonError::into_inner);
        let left = |one: &Given| Arc::strong_count(&one.load) - 1;
        // Whoever is at this file asks ahead for more of it; behind another one it would wait.
        let is_at_it = all.iter().position(|one| one.url == *url && left(one) > 0);
        let is_free = || all.iter().position(|one| left(one) == 0);
        let at = is_at_it.or_else(is_free).unwrap_or_else(|| {
            if all.len() < FETCHERS_MAX {
                let (jobs, load) = (start(&self.relay), Arc::default());
                all.push(Given { jobs, url: url.clone(), load });
                return all.len() - 1;
            }
            (0..all.len()).min_by_key(|&at| left(&all[at])).unwrap_or(0)
        });
        let one = all.get_mut(at)?;
        one.url.clone_from(url);
        Some((one.jobs.clone(), Arc::clone(&one.load)))
    }
}

/// Begins one.
fn start(relay: &Arc<Relay>) -> mpsc::Sender<(Job, Load)> {
    // A fetcher waits for its server and the disk, never for a reader: whoever waits for room here
    // gets it.
    let (jobs, incoming) = mpsc::channel(JOBS_WAITING_MAX);
    let fetcher = Fetcher {
        relay: Arc::clone(relay),
        incoming,
        queue: VecDeque::new(),
        sent: 0,
        upstream: None,
        gauge: Gauge::default(),
        buffer: Vec::new(),
        filled: 0,
    };
    tokio::spawn(fetcher.run());
    jobs
}

struct Fetcher {
    relay: Arc<Relay>,
    incoming: mpsc::Receiver<(Job, Load)>,
    queue: VecDeque<Waiting>,
    /// The requests of so many of them have been sent on `upstream`.
    sent: usize,
    upstream: Option<Upstream>,
    gauge: Gauge,
    buffer: Vec<u8>,
    filled: usize,
}

struct Waiting {
    job: Job,
    _load: Load,
    /// As it was asked for.
    range: Range,
    asked: Instant,
    tries: u32,
}

impl Fetcher {
    async fn run(mut self) {
        loop {
            if self.queue.is_empty() {
                self.rest();
                match self.incoming.recv().await {
                    Some(job) => self.take(job),
                    None => return,
                }
            }
            while let Ok(job) = self.incoming.try_recv() {
                self.take(job);
            }
            let came = self.front().await;
            let Some(front) = self.queue.pop_front() else { continue };
            match came {
                Ok(()) => self.sent = self.sent.saturating_sub(1),
                Err(trouble) => self.give_up(front, trouble),
            }
        }
    }

    fn take(&mut self, (job, load): (Job, Load)) {
        let range = job.fetch.range();
        self.queue.push_back(Waiting { job, _load: load, range, asked: Instant::now(), tries: 0 });
    }

    /// Nothing is to be done: others may have the connection.
    fn rest(&mut self) {
        self.gauge.rest(Instant::now());
        self.buffer = Vec::new();
        if let Some(upstream) = self.upstream.take() {
            upstream.put_aside();
        }
        self.sent = 0;
    }

    /// The foremost does not come.
    fn give_up(&mut self, front: Waiting, trouble: Trouble) {
        let url = &front.job.version.url;
        let path = swath_formats::depot::redacted(url.path());
        tracing::debug!(site = url.host_str(), path, range = %front.range, ?trouble, "not fetched");
        if self.sent > 0 {
            self.upstream = None;
            self.sent = 0;
        }
        let version = Arc::clone(&front.job.version);
        match trouble {
            Trouble::Changed => {
                front.job.address.changed(&version);
                if let Some(cached) = &self.relay.cached {
                    cached.forget(&version);
                }
            }
            Trouble::Apart => front.job.address.set_apart(&version),
            Trouble::Failed | Trouble::Unwanted => {}
        }
        let goes_on =
            |one: &Waiting| !one.job.version.is_over() && one.job.version.is_wanted(one.range);
        let (queue, mut going): (Vec<_>, Vec<_>) = self.queue.drain(..).partition(goes_on);
        self.queue = queue.into();
        going.push(front);
        // Space is given back to the disk.
        tokio::task::spawn_blocking(move || drop(going));
    }

    /// Fetches the foremost.
    async fn front(&mut self) -> Result<(), Trouble> {
        let Some(front) = self.queue.front() else { return Ok(()) };
        let version = Arc::clone(&front.job.version);
        let (address, range) = (Arc::clone(&front.job.address), front.range);
        let mut wanted = Need::new(&version, range);
        let answer = loop {
            if wanted.is_not() {
                return Err(Trouble::Unwanted);
            }
            self.connect(&mut wanted).await?;
            let within = self.relay.timeout;
            let polled = poll_fn(|cx| self.poll_head(cx));
            let answered = tokio::select! {
                answered = timeout(within, polled) => answered.map_err(|_| Trouble::Failed)?,
                () = wanted.ends() => return Err(Trouble::Unwanted),
            };
            if let Some(answer) = answered {
                break answer;
            }
            // Servers close connections when they like.
            let was_used = self.upstream.take().is_some_and(|upstream| upstream.was_used());
            self.sent = 0;
            let Some(front) = self.queue.front_mut() else { return Ok(()) };
            front.tries += 1;
            if !was_used || front.tries >= TRIES_MAX {
                return Err(Trouble::Failed);
            }
        };
        ask::judge(&answer, &version, range)?;
        let Some(upstream) = &self.upstream else { return Err(Trouble::Failed) };
        version.comes(&answer, &answers::hop(&version.url, upstream, &self.gauge).write());
        if answer.field("age").is_none()
            && let Some(front) = self.queue.front()
        {
            address.confirm(&version, front.asked);
        }
        self.bring(&mut wanted).await
    }

    /// Has a connection to the server of the foremost.
    async fn connect(&mut self, wanted: &mut Need) -> Result<(), Trouble> {
        let Some(front) = self.queue.front() else { return Ok(()) };
        let url = front.job.version.url.clone();
        // Bytes behind the answer before would be taken for this one.
        let serves = |it: &mut Upstream| it.leads_to(&url) && it.takes_more() && it.is_quiet();
        if self.upstream.as_mut().is_some_and(serves) {
            return Ok(());
        }
        if let Some(upstream) = self.upstream.take() {
            upstream.put_aside();
        }
        (self.sent, self.gauge) = (0, Gauge::default());
        let reuse = front.tries == 0;
        let dialled = tokio::select! {
            dialled = self.relay.net.upstream(&url, reuse) => dialled,
            () = wanted.ends() => return Err(Trouble::Unwanted),
        };
        self.upstream = Some(dialled.map_err(|_| Trouble::Failed)?);
        Ok(())
    }

    /// Takes what is asked for meanwhile, and sends its requests ahead.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(job)) = self.incoming.poll_recv(cx) {
            self.take(job);
        }
        let Some(upstream) = &mut self.upstream else { return };
        let Some(front) = self.queue.front() else { return };
        let version = Arc::clone(&front.job.version);
        while let Some(next) = self.queue.get_mut(self.sent)
            && next.job.version.url == version.url
            && upstream.leads_to(&version.url)
            && upstream.takes_more()
            && (self.sent == 0 || upstream.bears_more() && self.sent < AHEAD_MAX)
        {
            upstream.send(&ask::range_request(&next.job.version, next.range, &next.job.via));
            next.asked = Instant::now();
            self.sent += 1;
        }
        if upstream.has_unsent() {
            // Why it cannot be sent is seen where the answer is read.
            let _ = upstream.poll_send(cx);
        }
    }

    /// The head of the foremost's answer; `None` if the connection is gone instead.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Option<AnswerHead>> {
        self.poll_ahead(cx);
        let Some(upstream) = &mut self.upstream else { return Poll::Ready(None) };
        Poll::Ready(ready!(upstream.poll_head(cx, false)).unwrap_or(None))
    }

    /// Writes the body down as it comes.
    async fn bring(&mut self, wanted: &mut Need) -> Result<(), Trouble> {
        self.gauge.run(Instant::now(), false);
        loop {
            let within = self.relay.timeout;
            let polled = poll_fn(|cx| self.poll_body(cx));
            let is_through = tokio::select! {
                some = timeout(within, polled) => some.map_err(|_| Trouble::Failed)??,
                () = wanted.ends() => return Err(Trouble::Unwanted),
            };
            // On slow ways it comes by packets, and each write wakes all who wait for it.
            let is_through = if is_through || self.filled >= GATHERED_BYTES {
                is_through
            } else {
                tokio::time::sleep(GATHER_FOR).await;
                poll_fn(|cx| self.poll_body(cx)).await?
            };
            let Some(front) = self.queue.pop_front() else { return Ok(()) };
            let mut job = front.job;
            let (bytes, filled) = (std::mem::take(&mut self.buffer), self.filled);
            let written = tokio::task::spawn_blocking(move || {
                let written = job.fetch.write(&bytes[..filled]);
                (job, bytes, written)
            });
            // If that panics, the claim was given back, and there is nothing more to be brought.
            let Ok((job, bytes, written)) = written.await else { return Err(Trouble::Failed) };
            (self.buffer, self.filled) = (bytes, 0);
            self.gauge.run(Instant::now(), false);
            let left = job.fetch.range();
            self.queue.push_front(Waiting { job, ..front });
            if let Err(error) = written {
                tracing::warn!(%error, "what came for the cache could not be kept");
                return Err(Trouble::Failed);
            }
            if let Some(cached) = &self.relay.cached {
                cached.figures.fetched.fetch_add(filled as u64, Ordering::Relaxed);
            }
            wanted.range = left;
            match (is_through, left.is_empty()) {
                (true, true) => return Ok(()),
                (true, false) => return Err(Trouble::Failed),
                (false, _) => {}
            }
        }
    }

    /// Some of the body, as much as is there already; whether that is the end of it.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Trouble>> {
        self.poll_ahead(cx);
        let Some(upstream) = &mut self.upstream else { return Poll::Ready(Err(Trouble::Failed)) };
        let left = self.queue.front().map_or(0, |front| front.job.fetch.range().len());
        let most = usize::try_from(left).unwrap_or(usize::MAX).clamp(1, BUFFER_BYTES);
        self.buffer.resize(most.max(self.filled), 0);
        while self.filled < self.buffer.len() && !upstream.is_through() {
            match upstream.poll_body(cx, &mut self.buffer[self.filled..]) {
                Poll::Pending if self.filled == 0 => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Ok(bytes)) => {
                    self.filled += bytes;
                    self.gauge.came(bytes as u64);
                }
                Poll::Ready(Err(_)) if self.filled == 0 => {
                    return Poll::Ready(Err(Trouble::Failed));
                }
                // What came is right; the error comes again.
                Poll::Ready(Err(_)) => break,
            }
        }
        Poll::Ready(Ok(upstream.is_through()))
    }
}

/// So many files are fetched at once for one client's connection: as many small ones come in one
/// round trip.
const FETCHERS_MAX: usize = 8;
/// Jobs that wait for one fetcher: several windows of what a reader claims ahead.
const JOBS_WAITING_MAX: usize = 32;
/// A request is sent at most so often, if connections end before their answers begin.
const TRIES_MAX: u32 = 3;
/// So many requests are sent ahead.
const AHEAD_MAX: usize = 16;
/// What comes within this time is written together, so long as it is little.
const GATHER_FOR: Duration = Duration::from_millis(5);
const GATHERED_BYTES: usize = 64 << 10;
/// Read and written at a time, at most; a thousand fetchers have so much each.
const BUFFER_BYTES: usize = 128 << 10;
