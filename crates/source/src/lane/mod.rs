//! Lanes: one connection to a source each, carrying swaths one behind the other.
//!
//! A task owns the connection; the [`LaneHandle`] sends it orders and it answers with [`LaneEvent`]s.
//! `own` is the life of a lane over HTTP/1.1 of our own (`asks` holds what was asked for, `content` leads
//! to its files, `drive` and `answers` talk, `delivery` fills pool buffers). What our own does not speak
//! goes through a library behind the same driver (`net::library`). `local` is that of one without a
//! protocol between.

mod answers;
mod asks;
mod content;
mod delivery;
mod drive;
mod event;
mod lane_conn;
pub(crate) mod local;
mod out_of_order;
mod own;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, SwathId};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub(crate) use content::{At, Content, Part};
pub use event::{LaneEvent, LaneEventKind};

use crate::source::Lane;
pub(crate) use asks::Ask;
pub(crate) use delivery::Delivery;

/// What happens to the rest of a body behind a trimmed swath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterTrim {
    /// Read it and throw it away; the connection stays.
    Drain,
    /// Close the connection; the lane ends.
    Drop,
}

/// The handle of a lane whose task it sends orders to.
#[derive(Debug)]
pub(crate) struct LaneHandle {
    pub id: LaneId,
    pub commands: UnboundedSender<Command>,
    pub meter: Arc<Meter>,
}

/// An order to a lane's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Fetch { swath: SwathId, range: Range },
    Trim { swath: SwathId, end: u64, then: AfterTrim },
    Close,
}

/// What a lane has done so far; read at any time, written by the lane alone.
#[derive(Debug, Default)]
pub struct Meter {
    body_bytes: AtomicU64,
    wasted_bytes: AtomicU64,
    requests: AtomicU64,
    rtt_us: AtomicU64,
    pauses_us: AtomicU64,
    out_of_order_bytes: AtomicU64,
    /// Grows when a hold begins and when it ends.
    holds: AtomicU64,
}

/// Opens a lane to `content`: it connects at once and reports to `events` under the number `lane`.
pub(crate) fn open(
    content: Content,
    lane: LaneId,
    pool: &Pool,
    events: UnboundedSender<LaneEvent>,
) -> LaneHandle {
    let (commands, orders) = unbounded_channel();
    let meter = Arc::new(Meter::default());
    let sealed = content.home().sealed();
    let delivery = Delivery::new(lane, pool.clone(), events, Arc::clone(&meter), sealed);
    tokio::spawn(own::OwnLane::new(content, orders, delivery).run());
    LaneHandle { id: lane, commands, meter }
}

impl Lane for LaneHandle {
    fn id(&self) -> LaneId {
        self.id
    }

    // The request leaves at once, also while earlier bodies still arrive, unless the source is known
    // not to bear that.
    fn fetch(&self, swath: SwathId, range: Range) -> bool {
        self.commands.send(Command::Fetch { swath, range }).is_ok()
    }

    fn trim(&self, swath: SwathId, end: u64, then: AfterTrim) {
        let _ = self.commands.send(Command::Trim { swath, end, then });
    }

    // A connection without outstanding answers is kept for the next lane to the same server.
    fn close(&self) {
        let _ = self.commands.send(Command::Close);
    }

    fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

impl Meter {
    /// Body bytes received, those thrown away included.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// Body bytes received and thrown away (skipped, or behind a trimmed end).
    pub fn wasted_bytes(&self) -> u64 {
        self.wasted_bytes.load(Ordering::Relaxed)
    }

    /// Requests sent.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The kernel's newest estimate of the round-trip time; `None` before the connection is up.
    pub fn rtt(&self) -> Option<Duration> {
        match self.rtt_us.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    /// How long nothing came in all, in gaps of more than some milliseconds: a sender that is
    /// held up by its window or by loss sends in bursts with pauses between them.
    pub fn pauses(&self) -> Duration {
        Duration::from_micros(self.pauses_us.load(Ordering::Relaxed))
    }

    /// Returns how much of what was sent is here and cannot be read yet, because something before it was
    /// lost and is on its way again. An estimate.
    pub fn out_of_order_bytes(&self) -> u64 {
        self.out_of_order_bytes.load(Ordering::Relaxed)
    }

    /// How often we began, and ceased, to hold the lane up ourselves although data of it may be
    /// there: for the rate limit, or for a buffer that hashing or the disk has not given back. An
    /// odd count means that it is held up now. Such a wait says nothing of the source.
    pub fn holds(&self) -> u64 {
        self.holds.load(Ordering::Relaxed)
    }

    pub(crate) fn note_out_of_order(&self, bytes: u64) {
        self.out_of_order_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_hold(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_pause(&self, pause: Duration) {
        self.pauses_us.fetch_add(u64::try_from(pause.as_micros()).unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn count_body(&self, bytes: u64) {
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_wasted(&self, bytes: u64) {
        self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.wasted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_rtt(&self, rtt: Duration) {
        self.rtt_us
            .store(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }
}
