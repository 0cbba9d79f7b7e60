//! The lane of sources that are read at an offset, without a protocol between: a file, memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use swath_model::{LaneId, Pool, Range, Requests};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::asks::{Asks, Trimmed};
use super::delivery::Delivery;
use super::event::{LaneEvent, LaneEventKind};
use super::{Command, LaneHandle, Meter};
use crate::error::{Class, LaneError};
use crate::facts::Facts;
use crate::local_source::ReadAt;
use crate::source::{Expected, Lane};

/// Opens a lane to something that is read at an offset.
pub(crate) fn open<R: ReadAt>(
    from: Arc<R>,
    expected: Arc<SharedExpected>,
    lane: LaneId,
    pool: &Pool,
    events: UnboundedSender<LaneEvent>,
) -> Box<dyn Lane> {
    let (commands, orders) = unbounded_channel();
    let meter = Arc::new(Meter::default());
    let out = Delivery::new(lane, pool.clone(), events, Arc::clone(&meter), None);
    tokio::spawn(
        LocalLane { from, expected, orders, out, asks: Asks::default(), told: None }.run(),
    );
    Box::new(LaneHandle { id: lane, commands, meter })
}

/// Returns a small part of it, whole, with what is known of it.
pub(crate) async fn part<R: ReadAt>(from: &R, range: Range) -> Result<(Facts, Vec<u8>), LaneError> {
    from.connect().await?;
    let facts = from.facts().await?;
    if let Some(size_bytes) = facts.size_bytes.filter(|&size| range.end > size) {
        return Err(LaneError::BeyondEnd { size_bytes });
    }
    let mut bytes = vec![0; usize::try_from(range.len()).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read_at(range.start + filled as u64, &mut bytes[filled..]).await? {
            0 => {
                let (got, wanted) = (filled as u64, range.len());
                return Err(LaneError::Truncated { got, wanted });
            }
            more => filled += more,
        }
    }
    Ok((facts, bytes))
}

/// What every answer is held against, by all lanes of a source.
#[derive(Debug, Default)]
pub(crate) struct SharedExpected {
    /// The size in bytes, and one more; 0 if none is expected.
    size_and_one: AtomicU64,
}

impl SharedExpected {
    /// From now on this is expected.
    pub fn set(&self, expected: &Expected) {
        if let Some(size_bytes) = expected.size_bytes {
            self.size_and_one.store(size_bytes.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Checks what a source tells.
    ///
    /// # Errors
    /// [`LaneError::SizeMismatch`] if its file has another size.
    pub fn check(&self, facts: &Facts) -> Result<(), LaneError> {
        let expected = self.size_and_one.load(Ordering::Relaxed).checked_sub(1);
        match (expected, facts.size_bytes) {
            (Some(expected), Some(actual)) if expected != actual => {
                Err(LaneError::SizeMismatch { expected, actual })
            }
            _ => Ok(()),
        }
    }
}

/// The task behind a lane.
struct LocalLane<R> {
    from: Arc<R>,
    expected: Arc<SharedExpected>,
    orders: UnboundedReceiver<Command>,
    out: Delivery,
    asks: Asks,
    /// What was told of it.
    told: Option<Facts>,
}

/// How a swath ends.
enum End {
    /// It is all there.
    Done,
    /// It cannot be had.
    Failed(LaneError),
    /// The lane ends with it: as its owner wants, or because it broke.
    Closed(Option<LaneError>),
}

impl<R: ReadAt> LocalLane<R> {
    async fn run(mut self) {
        let error = self.live().await;
        // Whoever hears that it has ended can order nothing more.
        self.orders.close();
        let unfinished = self.asks.unfinished();
        self.out.send(LaneEventKind::Closed { error, unfinished });
    }

    /// Until it ends, with this error if it broke.
    async fn live(&mut self) -> Option<LaneError> {
        let from = Arc::clone(&self.from);
        let rtt = match self.unless_closed(from.connect()).await {
            Some(Ok(rtt)) => rtt,
            Some(Err(error)) => return Some(error),
            None => return None,
        };
        self.out.meter.note_rtt(rtt);
        self.out.send(LaneEventKind::Up {
            rtt,
            requests: Requests::Pipelined,
            protocol: "local",
            reused: false,
            peer: None,
        });
        loop {
            while self.asks.is_empty() {
                let order = self.orders.recv().await?;
                if self.obey(order) {
                    return None;
                }
            }
            let end = self.deliver().await;
            if let End::Closed(error) = end {
                return error;
            }
            let Some(ask) = self.asks.pop_front() else { continue };
            let swath = ask.swath;
            match end {
                // A trim has told it already.
                _ if ask.reported => {}
                End::Failed(error) => self.out.send(LaneEventKind::Failed { swath, error }),
                End::Done | End::Closed(_) => self.out.done(swath),
            }
        }
    }

    /// Delivers the front swath.
    async fn deliver(&mut self) -> End {
        let from = Arc::clone(&self.from);
        self.asks.begin_front();
        self.out.meter.count_request();
        let facts = match self.unless_closed(from.facts()).await {
            None => return End::Closed(None),
            Some(told) => told.and_then(|facts| self.look(facts)),
        };
        let size_bytes = match facts {
            Ok(facts) => facts.size_bytes.unwrap_or(u64::MAX),
            Err(error) => return ended_by(error),
        };
        if let Some(ask) = self.asks.front().filter(|ask| !ask.reported) {
            if ask.position >= size_bytes && !(ask.position == 0 && size_bytes == 0) {
                return End::Failed(LaneError::BeyondEnd { size_bytes });
            }
            ask.end = ask.end.min(size_bytes);
        }
        loop {
            if let Some(end) = self.hear() {
                return end;
            }
            if !self.out.has_buffer() {
                tokio::select! {
                    biased;
                    order = self.orders.recv() => {
                        if order.is_none_or(|order| self.obey(order)) {
                            return End::Closed(None);
                        }
                        continue;
                    }
                    buffer = self.out.pool.take() => self.out.supply(buffer),
                }
            }
            let Some(ask) = self.asks.front() else { return End::Done };
            if ask.is_complete() {
                self.out.flush(ask);
                return End::Done;
            }
            let position = ask.position;
            let space = self.out.room(ask, from.part_bytes());
            // Orders are heard while nothing comes; what was being read then is read again.
            let read = tokio::select! {
                biased;
                read = from.read_at(position, space) => read,
                order = self.orders.recv() => {
                    if order.is_none_or(|order| self.obey(order)) {
                        self.flush();
                        return End::Closed(None);
                    }
                    continue;
                }
            };
            let Some(ask) = self.asks.front() else { return End::Done };
            match read {
                Ok(bytes @ 1..) => self.out.wrote(ask, bytes),
                Ok(0) => {
                    let (got, wanted) = (ask.position - ask.requested.start, ask.requested.len());
                    self.flush();
                    return ended_by(LaneError::Truncated { got, wanted });
                }
                Err(error) => {
                    self.flush();
                    return ended_by(error);
                }
            }
            // Whoever reads without ever waiting leaves others their turn.
            tokio::task::yield_now().await;
        }
    }

    /// What comes of `asking`, while orders are obeyed; `None` if the lane is to end.
    async fn unless_closed<T>(&mut self, asking: impl Future<Output = T>) -> Option<T> {
        let mut asking = std::pin::pin!(asking);
        loop {
            tokio::select! {
                biased;
                told = &mut asking => return Some(told),
                order = self.orders.recv() => {
                    if order.is_none_or(|order| self.obey(order)) {
                        return None;
                    }
                }
            }
        }
    }

    /// Hands over what there is of the front swath.
    fn flush(&mut self) {
        if let Some(ask) = self.asks.front() {
            self.out.flush(ask);
        }
    }

    /// Obeys what was ordered meanwhile; what the swath at the front comes to by that, if it ends.
    fn hear(&mut self) -> Option<End> {
        while let Ok(order) = self.orders.try_recv() {
            if self.obey(order) {
                self.flush();
                return Some(End::Closed(None));
            }
        }
        if self.orders.is_closed() {
            self.flush();
            return Some(End::Closed(None));
        }
        let ask = self.asks.front()?;
        ask.is_complete().then(|| {
            self.out.flush(ask);
            End::Done
        })
    }

    /// Returns whether the order ends the lane.
    fn obey(&mut self, order: Command) -> bool {
        match order {
            Command::Fetch { swath, range: Range { start, end } } => {
                self.asks.push(swath, Range::new(start, end));
                false
            }
            Command::Trim { swath, end, then } => {
                if self.asks.trim(swath, end, then) == Trimmed::Complete {
                    if let Some(ask) = self.asks.front().filter(|ask| ask.swath == swath) {
                        self.out.flush(ask);
                    }
                    self.out.done(swath);
                }
                false
            }
            Command::Close => true,
        }
    }

    /// Holds what is there against what is expected, and tells it if it is news.
    fn look(&mut self, facts: Facts) -> Result<Facts, LaneError> {
        self.expected.check(&facts)?;
        match &self.told {
            Some(told) if version(told) != version(&facts) => {
                return Err(LaneError::Changed { was: version(told), is: version(&facts) });
            }
            Some(_) => {}
            None => {
                self.told = Some(facts.clone());
                self.out.send(LaneEventKind::Facts(Box::new(facts.clone())));
            }
        }
        Ok(facts)
    }
}

/// Returns what an error of something that is read at an offset means for the lane.
fn ended_by(error: LaneError) -> End {
    match error.class() {
        Class::Transient => End::Closed(Some(error)),
        _ => End::Failed(error),
    }
}

/// Returns what tells one state of it from another.
fn version(facts: &Facts) -> String {
    facts.etag.clone().or_else(|| facts.last_modified.clone()).unwrap_or_default()
}
