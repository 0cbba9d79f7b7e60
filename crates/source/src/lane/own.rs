//! The HTTP/1.1 lane of our own: its life from connecting to its last event.
//!
//! States: connecting -> driving (see `drive`) -> connecting again (a redirect to another
//! server, a stale idle connection) or ended. Orders are obeyed in every state.

use std::sync::Arc;

use crate::source::Source;
use swath_model::{Requests, Share};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::asks::{Asks, Trimmed};
use super::content::{Content, Part};
use super::delivery::Delivery;
use super::event::LaneEventKind;
use super::lane_conn::LaneConn;
use super::{AfterTrim, Command};
use crate::error::LaneError;
use crate::host_table::Presence;
use crate::http_source::HttpSource;
use crate::net::Conn;
use crate::target::Target;

/// The task behind a lane.
pub(super) struct OwnLane {
    pub content: Content,
    /// The file whose answer comes next or is passing, or for which the lane connects.
    pub source: Arc<HttpSource>,
    /// Where that file begins in the content; see [`Part::base`].
    pub base: i64,
    pub orders: UnboundedReceiver<Command>,
    pub out: Delivery,
    pub asks: Asks,
    pub target: Arc<Target>,
    /// The owner wants no more.
    pub closing: bool,
    /// The owner gives the connection up behind a trimmed swath: the lane ends there, or as soon
    /// as it owes nothing if that place has passed or was never asked for.
    dropping: bool,
    /// What the rate limit lets us read.
    share: Option<Share>,
    /// An idle connection may be used; not after one turned out stale.
    pub may_reuse: bool,
    /// The address of a redirect did not answer, and the original one is tried again.
    went_back: bool,
    /// A file was elsewhere: of others, too, it is not known where they are before they are asked for.
    pub redirects: bool,
}

/// How a conversation ended.
pub(super) enum Next {
    /// Go on over another connection to [`OwnLane::target`].
    Reconnect,
    /// The same, once what this target showed relays is encrypted anew; if it cannot be, the lane ends with
    /// this error.
    EncryptAnew(Arc<Target>, LaneError),
    /// The lane is over.
    End(Option<LaneError>),
}

impl OwnLane {
    pub fn new(content: Content, orders: UnboundedReceiver<Command>, out: Delivery) -> Self {
        let source = Arc::clone(content.home());
        let target = source.target();
        Self {
            content,
            source,
            base: 0,
            orders,
            out,
            asks: Asks::default(),
            target,
            closing: false,
            dropping: false,
            share: None,
            may_reuse: true,
            went_back: false,
            redirects: false,
        }
    }

    /// Lives until closed, by whomever.
    pub async fn run(mut self) {
        let error = loop {
            let (conn, presence) = match self.connect().await {
                Ok(Some(connected)) => connected,
                Ok(None) => break None,
                Err(error) => {
                    if !self.went_back && self.source.back_to_original(&self.target) {
                        self.went_back = true;
                        self.target = self.source.target();
                        continue;
                    }
                    break Some(error);
                }
            };
            self.out.meter.note_out_of_order(0);
            let mut lane_conn = LaneConn::new(conn);
            lane_conn.presence = presence;
            match self.drive(&mut lane_conn).await {
                Next::Reconnect => {
                    self.put_aside(lane_conn);
                    self.hand_over();
                    self.asks.unsend();
                }
                Next::EncryptAnew(refused, error) => {
                    self.hand_over();
                    self.asks.unsend();
                    if !self.encrypt_anew(&refused).await {
                        break Some(error).filter(|_| !self.is_over());
                    }
                    self.target = self.source.target();
                }
                Next::End(error) => {
                    self.put_aside(lane_conn);
                    break error;
                }
            }
        };
        self.finish(error);
    }

    /// A connection to the target, while orders are obeyed; `None` if the lane is to close.
    async fn connect(&mut self) -> Result<Option<(Conn, Option<Presence>)>, LaneError> {
        let net = self.source.net().clone();
        let target = Arc::clone(&self.target);
        let most = self.source.connections_max();
        let fallback = self.source.quirks().fallback;
        let may_reuse = self.may_reuse;
        let mut connecting = std::pin::pin!(async {
            // Relays that carry the connection are dialled instead.
            let mut presence = match &target.origin {
                Some(origin) if target.via.is_empty() => {
                    Some(net.hosts().admit(origin, most).await?)
                }
                _ => None,
            };
            let result = net.connect(&target, may_reuse, fallback).await;
            match (&result, &mut presence) {
                (Ok(_), Some(presence)) => presence.reached(),
                (Err(error @ (LaneError::Dns { .. } | LaneError::Connect { .. })), Some(it)) => {
                    it.unreached(error);
                }
                _ => {}
            }
            Ok::<_, LaneError>((result?, presence))
        });
        let (conn, presence) = loop {
            tokio::select! {
                biased;
                order = self.orders.recv() => {
                    self.obey(order);
                    if self.is_over() {
                        return Ok(None);
                    }
                }
                result = &mut connecting => break result?,
            }
        };
        // What a request and its answer take, and not only the way to the first relay.
        let rtt = conn.rtt + self.source.far();
        self.out.meter.note_rtt(rtt);
        let requests = Requests::pipelined_if(self.source.quirks().pipelines);
        if conn.is_by_library() {
            self.source.note_host_quirks(|host_quirks| host_quirks.fallback = true);
        }
        let http = if conn.is_by_library() { "HTTP by library" } else { "HTTP/1.1" };
        let (reused, peer) = (conn.reused, conn.peer);
        tracing::debug!(source = %self.source.name(), %peer, ?rtt, reused, http, "connected");
        self.out.send(LaneEventKind::Up {
            rtt,
            requests,
            protocol: http,
            reused,
            peer: Some(peer),
        });
        Ok(Some((conn, presence)))
    }

    /// Asks relays for the keys that they have now, while orders are obeyed; `false` if what `refused`
    /// shows them is for these, or if the lane is to close.
    async fn encrypt_anew(&mut self, refused: &Target) -> bool {
        let source = Arc::clone(&self.source);
        let mut encrypting = std::pin::pin!(source.encrypt_anew(refused));
        loop {
            tokio::select! {
                biased;
                order = self.orders.recv() => {
                    self.obey(order);
                    if self.is_over() {
                        return false;
                    }
                }
                is_new = &mut encrypting => return is_new,
            }
        }
    }

    /// Carries out an order; `None` is the handle's end.
    pub fn obey(&mut self, order: Option<Command>) {
        match order {
            None | Some(Command::Close) => self.closing = true,
            Some(Command::Fetch { swath, range }) if range.is_empty() => self.out.done(swath),
            Some(Command::Fetch { swath, range }) => self.asks.push(swath, range),
            Some(Command::Trim { swath, end, then }) => self.trim(swath, end, then),
        }
    }

    /// What follows where a connection takes no more requests: the lane ends, unless there are other files.
    pub fn after_connection(&self) -> Next {
        match self.content.joined() {
            Some(_) if !self.asks.is_empty() => Next::Reconnect,
            _ => Next::End(None),
        }
    }

    /// Returns whether nothing more is wanted of this lane.
    pub fn is_over(&self) -> bool {
        self.closing || (self.dropping && self.asks.is_empty())
    }

    /// Turns to the file whose answer comes next or is passing now.
    pub fn turn_to_front(&mut self) {
        if self.asks.sent() > 0
            && let Some(front) = self.asks.front()
            && let Some(Part { file, base, .. }) = &front.part
            && !Arc::ptr_eq(file, &self.source)
        {
            (self.source, self.base) = (Arc::clone(file), *base);
            let sent_to = front.sent_to.clone();
            self.target = sent_to.unwrap_or_else(|| self.source.target());
        }
    }

    fn trim(&mut self, swath: swath_model::SwathId, end: u64, then: AfterTrim) {
        self.dropping |= then == AfterTrim::Drop;
        if self.content.joined().is_some() {
            // What is held may be of the file before the front one.
            self.hand_over();
        }
        if self.asks.trim(swath, end, then) != Trimmed::Complete {
            return;
        }
        // A buffer is only ever held for the front ask.
        if let Some(front) = self.asks.front()
            && front.swath == swath
        {
            self.out.flush(front);
        }
        self.out.done(swath);
    }

    /// Delivers what is held of the front ask.
    pub fn hand_over(&mut self) {
        match self.asks.front() {
            Some(front) => self.out.flush(front),
            None => self.out.release(),
        }
    }

    /// Keeps the connection for another lane if nothing is under way on it.
    fn put_aside(&mut self, lane_conn: LaneConn) {
        let clean = !lane_conn.write_broken && self.asks.sent() == 0 && lane_conn.passing.is_none();
        if clean && let Some(conn) = lane_conn.http.into_reusable() {
            self.source.net().keep_idle(conn);
        }
    }

    fn finish(mut self, error: Option<LaneError>) {
        self.hand_over();
        // Orders that are already on their way are counted too.
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            self.obey(Some(order));
        }
        let unfinished = self.asks.unfinished();
        let reason = error.as_ref().map(ToString::to_string);
        tracing::debug!(
            source = %self.source.name(),
            unfinished = unfinished.len(),
            reason,
            "lane closed"
        );
        self.out.send(LaneEventKind::Closed { error, unfinished });
    }

    /// How many of `bytes` the rate limit lets us read now; else the moment to wait for.
    pub fn allowed(&mut self, bytes: u64) -> Result<u64, Instant> {
        let limiter = self.source.net().limiter();
        if !limiter.is_on() {
            return Ok(bytes);
        }
        let now = Instant::now().into_std();
        if self.share.as_ref().is_none_or(|share| share.left_bytes() == 0) {
            self.share = limiter.reserve(now);
        }
        match &mut self.share {
            None => Ok(bytes),
            Some(share) => match share.due(now) {
                Some(due) => Err(Instant::from_std(due)),
                None => Ok(bytes.min(share.left_bytes())),
            },
        }
    }

    /// `bytes` were read under the limit.
    pub fn spend(&mut self, bytes: usize) {
        if let Some(share) = &mut self.share {
            share.spend(bytes as u64);
        }
    }
}
