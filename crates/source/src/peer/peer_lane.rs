//! A lane on a connection to a peer: what it was asked for, and what has come out of turn.
//!
//! Blocks may come in any order, as peers read them side by side. What comes in turn goes straight
//! into a pool buffer; what comes early waits in memory of its own, which the pipeline bounds, so
//! that no lane holds buffers while it waits for the network.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use swath_model::{Range, SwathId};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::flights::AskId;
use crate::error::LaneError;
use crate::facts::Facts;
use crate::lane::local::SharedExpected;
use crate::lane::{Ask, Command, Delivery, LaneEventKind};

/// A lane that is to be attached to a connection.
pub(crate) struct NewLane {
    pub orders: UnboundedReceiver<Command>,
    /// Orders that were received already.
    pub received: Vec<Command>,
    pub out: Delivery,
    pub expected: Arc<SharedExpected>,
    /// The connection was there before.
    pub is_reused: bool,
    /// By these the lanes of a connection are counted.
    pub token: Option<Arc<()>>,
}

impl NewLane {
    /// Ends the lane: there is no connection.
    pub fn fail(self, error: LaneError) {
        self.end(Some(error));
    }

    /// Ends the lane as its owner wants.
    pub fn close(self) {
        self.end(None);
    }

    fn end(mut self, error: Option<LaneError>) {
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            self.received.push(order);
        }
        let unfinished = self.received.iter().filter_map(fetched).collect();
        self.out.send(LaneEventKind::Closed { error, unfinished });
    }
}

fn fetched(order: &Command) -> Option<SwathId> {
    match order {
        Command::Fetch { swath, .. } => Some(*swath),
        _ => None,
    }
}

/// A lane.
pub(super) struct PeerLane {
    /// Its number on this connection; never reused.
    pub serial: u64,
    pub orders: UnboundedReceiver<Command>,
    pub out: Delivery,
    pub expected: Arc<SharedExpected>,
    pub asks: VecDeque<PeerAsk>,
    /// Blocks under way, and those that came early.
    pub under_way: usize,
    /// Facts were reported.
    is_told: bool,
    /// We hold it up ourselves.
    is_held: bool,
    _token: Option<Arc<()>>,
}

/// A swath asked for. Its next byte to deliver is `ask.position`.
pub(super) struct PeerAsk {
    pub id: AskId,
    pub ask: Ask,
    pub since: Instant,
    /// The peer has all of it, as far as it has told.
    pub is_held: bool,
    /// Everything from here on was not asked for yet …
    pub next: u64,
    /// … nor are these parts of what lies before, any more.
    pub again: VecDeque<Range>,
    /// Blocks that came out of turn, by their begin in the content.
    early: BTreeMap<u64, Early>,
}

/// What is left of a block that came out of turn.
struct Early {
    bytes: Vec<u8>,
    used: usize,
}

/// What there is to do for the front swath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// Nothing: it waits for blocks, or there is none.
    Waits,
    /// A buffer is needed for what came early.
    NeedsBuffer,
}

impl PeerLane {
    pub fn new(new: NewLane, serial: u64) -> (PeerLane, Vec<Command>) {
        let NewLane { orders, received, out, expected, token, .. } = new;
        let lane = PeerLane {
            serial,
            orders,
            out,
            expected,
            asks: VecDeque::new(),
            under_way: 0,
            is_told: false,
            is_held: false,
            _token: token,
        };
        (lane, received)
    }

    /// Takes a swath; returns whether it waits for bytes now.
    pub fn ask(&mut self, swath: SwathId, range: Range, size_bytes: u64, id: AskId) {
        let facts = Facts { size_bytes: Some(size_bytes), ranges: true, ..Facts::default() };
        let checked = self.expected.check(&facts);
        if !std::mem::replace(&mut self.is_told, true) {
            self.out.send(LaneEventKind::Facts(Box::new(facts)));
        }
        let is_behind = range.start >= size_bytes && !(range.start == 0 && size_bytes == 0);
        let error = match checked {
            Err(error) => Some(error),
            Ok(()) if is_behind && !range.is_empty() => Some(LaneError::BeyondEnd { size_bytes }),
            Ok(()) => None,
        };
        if let Some(error) = error {
            self.out.send(LaneEventKind::Failed { swath, error });
            return;
        }
        let range = Range::new(range.start, range.end.min(size_bytes));
        if range.is_empty() {
            self.out.done(swath);
            return;
        }
        self.asks.push_back(PeerAsk {
            id,
            ask: Ask::new(swath, range),
            since: Instant::now(),
            is_held: false,
            next: range.start,
            again: VecDeque::new(),
            early: BTreeMap::new(),
        });
    }

    /// Delivers what came early and is due now, and reports swaths that are complete.
    pub fn settle(&mut self) -> Front {
        loop {
            let Some(front) = self.asks.front_mut() else { return Front::Waits };
            if front.ask.is_complete() {
                self.out.flush(&mut front.ask);
                self.out.done(front.ask.swath);
                self.drop_ask(0);
                continue;
            }
            let Some(mut early) = front.early.remove(&front.ask.position) else {
                return Front::Waits;
            };
            if !self.out.has_buffer() {
                match self.out.try_take(Some(&front.ask)) {
                    Some(buffer) => self.out.supply(buffer),
                    None => {
                        front.early.insert(front.ask.position, early);
                        return Front::NeedsBuffer;
                    }
                }
            }
            let rest = &early.bytes[early.used..];
            let room = self.out.room(&front.ask, rest.len() as u64);
            let bytes = room.len().min(rest.len());
            room[..bytes].copy_from_slice(&rest[..bytes]);
            early.used += bytes;
            self.out.wrote(&mut front.ask, bytes);
            if early.used < early.bytes.len() && !front.ask.is_complete() {
                front.early.insert(front.ask.position, early);
            } else {
                self.under_way -= 1;
            }
        }
    }

    /// Returns how many blocks came early and wait for their turn.
    pub fn early_blocks(&self) -> usize {
        self.asks.iter().map(|ask| ask.early.len()).sum()
    }

    /// Forgets a swath, and what came early of it. Its blocks under way are the caller's.
    pub fn drop_ask(&mut self, at: usize) -> Option<PeerAsk> {
        let ask = self.asks.remove(at)?;
        self.under_way -= ask.early.len();
        Some(ask)
    }

    /// Hands over what there is of the front swath.
    pub fn flush(&mut self) {
        match self.asks.front_mut() {
            Some(front) => self.out.flush(&mut front.ask),
            None => self.out.release(),
        }
    }

    /// Notes whether we hold the lane up ourselves.
    pub fn hold(&mut self, is_held: bool) {
        if std::mem::replace(&mut self.is_held, is_held) != is_held {
            self.out.meter.count_hold();
        }
    }
}

impl PeerAsk {
    /// Keeps a block that came out of turn.
    pub fn keep_early(&mut self, content: u64, bytes: Vec<u8>) {
        self.early.insert(content, Early { bytes, used: 0 });
    }

    /// Ends it at `end`, which lies before its end; returns how many early blocks that made
    /// useless.
    pub fn shorten(&mut self, end: u64) -> usize {
        self.ask.end = end;
        self.next = self.next.min(end);
        let clipped = self.again.iter().map(|range| Range::new(range.start, range.end.min(end)));
        self.again = clipped.filter(|range| !range.is_empty()).collect();
        self.early.split_off(&end).len()
    }

    /// Returns the next part that is to be asked for, in content.
    pub fn wanted(&self) -> Option<Range> {
        let new = Range::new(self.next, self.ask.end);
        self.again.front().copied().or_else(|| (!new.is_empty()).then_some(new))
    }

    /// Records that the first bytes of [`PeerAsk::wanted`], up to `end`, were asked for.
    pub fn asked(&mut self, end: u64) {
        match self.again.front_mut() {
            None => self.next = end,
            Some(first) => {
                first.start = end;
                if first.is_empty() {
                    self.again.pop_front();
                }
            }
        }
    }
}
