//! The lane of a wrapped source: it asks the lane inside for what its wrapper admits.
//!
//! A swath is asked for in parts, of which some are under way at a time, in order. It is done when all
//! of it was asked for and no part is under way, or when a part ends early: the file ends there.

use std::collections::VecDeque;
use std::sync::Arc;

use swath_model::{LaneId, Pool, Range, SwathId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Wrapper;
use crate::error::{Class, LaneError};
use crate::lane::{Command, LaneEvent, LaneEventKind, LaneHandle, Meter};
use crate::sealed::GroupHash;
use crate::source::{Lane, Pending, Source};

/// Opens a lane to the source inside, and one around it.
pub(super) fn open<W: Wrapper>(
    source: &Arc<dyn Source>,
    wrapper: &Arc<W>,
    id: LaneId,
    pool: &Pool,
    out: UnboundedSender<LaneEvent>,
) -> Box<dyn Lane> {
    let (sender, events) = unbounded_channel();
    let inner = Arc::clone(source).open_lane(id, pool, sender);
    let meter = Arc::clone(inner.meter());
    let (commands, orders) = unbounded_channel();
    let (swaths, parts) = (VecDeque::new(), VecDeque::new());
    let wrapper = Arc::clone(wrapper);
    tokio::spawn(async move {
        let mut lane = WrappedLane { inner, out, swaths, parts, next_part: 0 };
        let error = lane.live(&*wrapper, orders, events).await;
        let unfinished = lane.swaths.iter().map(|ask| ask.swath).collect();
        lane.send(LaneEventKind::Closed { error, unfinished });
    });
    Box::new(LaneHandle { id, commands, meter })
}

struct WrappedLane {
    inner: Box<dyn Lane>,
    out: UnboundedSender<LaneEvent>,
    swaths: VecDeque<Ask>,
    parts: VecDeque<Part>,
    next_part: u64,
}

/// A swath that was asked for and is not over.
struct Ask {
    swath: SwathId,
    start: u64,
    /// Where its next part begins.
    next: u64,
    end: u64,
}

/// A part of a swath that the lane inside was asked for.
struct Part {
    id: SwathId,
    of: SwathId,
    range: Range,
    came_bytes: u64,
}

impl WrappedLane {
    /// Lives until it ends, with this error if it broke.
    async fn live<W: Wrapper>(
        &mut self,
        wrapper: &W,
        mut orders: UnboundedReceiver<Command>,
        mut events: UnboundedReceiver<LaneEvent>,
    ) -> Option<LaneError> {
        let (mut is_reached, mut closing) = (false, false);
        let mut admission: Option<Pending<'_, _>> =
            Some(Box::pin(async { wrapper.reach().await.map(|()| 0) }));
        loop {
            if admission.is_none() && !closing && self.parts.len() < PARTS_MAX {
                admission = self.wanted_bytes().map(|bytes| self.admission(wrapper, bytes));
            }
            let admitted = async {
                match &mut admission {
                    Some(admission) => admission.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                order = orders.recv(), if !closing => {
                    if self.obey(order) {
                        self.inner.close();
                        (closing, is_reached, admission) = (true, true, None);
                    }
                }
                Some(event) = events.recv(), if is_reached => match event.kind {
                    LaneEventKind::Closed { error, .. } => return error,
                    kind => self.pass(wrapper, kind),
                },
                admitted = admitted => {
                    admission = None;
                    let next = self.next_ask().map(|ask| ask.swath).filter(|_| is_reached);
                    match (admitted, next) {
                        (Ok(bytes), _) => self.ask(bytes),
                        (Err(error), Some(swath)) if error.class() != Class::Transient => {
                            self.fail(swath, error);
                        }
                        (Err(error), _) => return Some(error),
                    }
                    is_reached = true;
                }
            }
        }
    }

    /// Waits until some of `bytes` bytes may be asked for.
    fn admission<'a, W: Wrapper>(
        &self,
        wrapper: &'a W,
        bytes: u64,
    ) -> Pending<'a, Result<u64, LaneError>> {
        let is_idle = self.parts.is_empty();
        let meter = Arc::clone(self.inner.meter());
        Box::pin(async move {
            if is_idle {
                wrapper.reach().await?;
            }
            let _held = W::IS_OURS.then(|| Held::begin(meter));
            wrapper.admit(bytes).await
        })
    }

    fn send(&self, kind: LaneEventKind) {
        let _ = self.out.send(LaneEvent { lane: self.inner.id(), kind });
    }

    /// Obeys an order; answers whether it ends the lane.
    fn obey(&mut self, order: Option<Command>) -> bool {
        match order {
            None | Some(Command::Close) => return true,
            Some(Command::Fetch { swath, range: Range { start, end } }) => {
                self.swaths.push_back(Ask { swath, start, next: start, end });
                self.settle(swath);
            }
            Some(Command::Trim { swath, end, then }) => {
                for part in self.parts.iter().filter(|part| part.of == swath) {
                    self.inner.trim(part.id, end.max(part.range.start), then);
                }
                if let Some(ask) = self.swaths.iter_mut().find(|ask| ask.swath == swath) {
                    ask.end = ask.end.min(end);
                    self.settle(swath);
                }
            }
        }
        false
    }

    /// Returns the first swath that was not asked for to its end.
    fn next_ask(&mut self) -> Option<&mut Ask> {
        self.swaths.iter_mut().find(|ask| ask.next < ask.end)
    }

    fn wanted_bytes(&mut self) -> Option<u64> {
        self.next_ask().map(|ask| ask.end - ask.next)
    }

    /// Asks for so much of the next swath.
    fn ask(&mut self, bytes: u64) {
        self.next_part += 1;
        let id = SwathId(self.next_part);
        let Some(ask) = self.next_ask().filter(|_| bytes > 0) else { return };
        let range = Range::new(ask.next, ask.end.min(ask.next.saturating_add(bytes)));
        ask.next = range.end;
        let of = ask.swath;
        self.parts.push_back(Part { id, of, range, came_bytes: 0 });
        self.inner.fetch(id, range);
    }

    fn fail(&mut self, swath: SwathId, error: LaneError) {
        self.swaths.retain(|ask| ask.swath != swath);
        self.send(LaneEventKind::Failed { swath, error });
    }

    /// Tells if all of a swath has come.
    fn settle(&mut self, swath: SwathId) {
        let is_over = |ask: &Ask| ask.swath == swath && ask.next >= ask.end;
        if self.parts.iter().all(|part| part.of != swath) && self.swaths.iter().any(is_over) {
            self.swaths.retain(|ask| ask.swath != swath);
            self.send(LaneEventKind::Done { swath });
        }
    }

    /// Hands on what the lane inside reports, as of the swath that it is a part of.
    fn pass<W: Wrapper>(&mut self, wrapper: &W, mut kind: LaneEventKind) {
        match &mut kind {
            LaneEventKind::Up { rtt, .. } => *rtt += wrapper.delay(),
            LaneEventKind::Facts(facts) => wrapper.change_facts(facts),
            LaneEventKind::Chunk { swath, offset, buffer, group_hashes } => {
                let Some(part) = self.parts.iter_mut().find(|part| part.id == *swath) else {
                    return;
                };
                let hashes_bytes = group_hashes.len() * size_of::<GroupHash>();
                part.came_bytes += (buffer.len() + hashes_bytes) as u64;
                wrapper.change_bytes(*offset, buffer);
                *swath = part.of;
                if !self.swaths.iter().any(|ask| ask.swath == *swath) {
                    return;
                }
            }
            LaneEventKind::Done { swath } => return self.part_ended(*swath, None),
            LaneEventKind::Failed { swath, error } => {
                return self.part_ended(*swath, Some(error.clone()));
            }
            LaneEventKind::Hops(_) | LaneEventKind::Closed { .. } => {}
        }
        self.send(kind);
    }

    fn part_ended(&mut self, id: SwathId, error: Option<LaneError>) {
        let Some(at) = self.parts.iter().position(|part| part.id == id) else { return };
        let Some(part) = self.parts.remove(at) else { return };
        let Some(ask) = self.swaths.iter_mut().find(|ask| ask.swath == part.of) else { return };
        let wanted = Range::new(part.range.start, part.range.end.min(ask.end));
        match error {
            // The file ends before it; what lies there may still be coming.
            Some(LaneError::BeyondEnd { .. }) if wanted.start > ask.start => {
                ask.end = ask.end.min(wanted.start);
            }
            Some(error) => return self.fail(part.of, error),
            None if part.came_bytes < wanted.len() => ask.end = wanted.start + part.came_bytes,
            None => {}
        }
        self.settle(part.of);
    }
}

/// We hold the lane up ourselves.
struct Held(Arc<Meter>);

impl Held {
    fn begin(meter: Arc<Meter>) -> Held {
        meter.count_hold();
        Held(meter)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.count_hold();
    }
}

/// Enough for a round trip of many parts, and few enough to be counted by looking through them.
const PARTS_MAX: usize = 8;
