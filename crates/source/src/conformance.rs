//! What every kind of source must do, and every wrapper of one: run it for each.
//!
//! ```
//! # use std::sync::Arc;
//! # use swath_source::{MemorySource, Source, conformance};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! conformance::run(async |content| {
//!     let source: Arc<dyn Source> = MemorySource::of("data.bin", content);
//!     source
//! })
//! .await;
//! # });
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, RangeSet, SwathId};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::{Class, LaneError};
use crate::facts::Facts;
use crate::lane::{AfterTrim, LaneEvent, LaneEventKind};
use crate::source::{Expected, Lane, Source};

/// Runs all of it with sources that `make` makes of a content; panics where one does not hold.
///
/// # Panics
/// Where a source does not do what it must.
pub async fn run(make: impl AsyncFn(Vec<u8>) -> Arc<dyn Source>) {
    for bytes in [0, 1, 16_383, 16_384, 16_385, 300_007] {
        let content = content(bytes);
        the_whole_comes(make(content.clone()).await, &content).await;
    }
    let content = content(300_007);
    it_tells_of_the_file(&*make(content.clone()).await, &content).await;
    parts_come_beside_lanes(&*make(content.clone()).await, &content).await;
    swaths_come_in_their_order(make(content.clone()).await, &content).await;
    nothing_comes_behind_a_trimmed_end(make(content.clone()).await, &content).await;
    what_is_closed_tells_what_is_unfinished(make(content.clone()).await).await;
    nothing_lies_behind_the_end(make(content.clone()).await).await;
    another_size_than_expected_is_refused(make(content.clone()).await).await;
    lanes_do_not_disturb_each_other(make(content.clone()).await, &content).await;
    a_renewed_one_is_as_good(make(content.clone()).await, &content).await;
    assert!(!make(content).await.name().address.is_empty(), "it has a name");
}

/// Runs what a source must do whose holdings change, as the sender that comes with it says.
///
/// # Panics
/// Where a source does not do what it must.
pub async fn run_growing(
    make: impl AsyncFn(Vec<u8>) -> (Arc<dyn Source>, watch::Sender<RangeSet>),
) {
    let content = content(300_007);
    let (source, sender) = make(content.clone()).await;
    let mut holdings = source.holdings().expect("holdings that change");
    assert!(holdings.borrow_and_update().is_empty(), "nothing at first");
    let (half, rest) = (Range::new(0, 150_000), Range::new(150_000, 300_007));
    sender.send_modify(|held| _ = held.insert(half));
    until_holds(&mut holdings, half).await;
    let mut bench = Bench::new(source);
    bench.lane.fetch(SwathId(1), half);
    bench.lane.fetch(SwathId(2), rest);
    bench.until_ended(&[1, 2]).await;
    bench.holds(1, half, &content);
    let error = bench.failed.get(&2).expect("an error");
    assert!(matches!(error, LaneError::NotHeld { .. }), "{error:?}");
    sender.send_modify(|held| _ = held.insert(rest));
    until_holds(&mut holdings, rest).await;
    bench.lane.fetch(SwathId(3), rest);
    bench.until_ended(&[3]).await;
    bench.holds(3, rest, &content);
    drop(sender);
    let left = async { while holdings.changed().await.is_ok() {} };
    timeout(PATIENCE, left).await.expect("it has left");
}

/// Until a source tells that it holds this. It may get there in steps.
async fn until_holds(holdings: &mut watch::Receiver<RangeSet>, range: Range) {
    let told = timeout(PATIENCE, holdings.wait_for(|held| held.covers(range))).await;
    assert!(told.is_ok_and(|told| told.is_ok()), "it never tells that it holds {range}");
}

/// Returns bytes that tell where they belong.
fn content(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

async fn the_whole_comes(source: Arc<dyn Source>, content: &[u8]) {
    let mut bench = Bench::new(source);
    let size = content.len() as u64;
    // The end of the file need not be known.
    bench.lane.fetch(SwathId(1), Range::new(0, u64::MAX));
    bench.until_ended(&[1]).await;
    bench.holds(1, Range::new(0, size), content);
    let told = bench.facts.first().expect("facts come before bytes").size_bytes;
    assert_eq!(told, Some(size), "the size that it tells");
}

async fn it_tells_of_the_file(source: &dyn Source, content: &[u8]) {
    let facts = source.describe().await.expect("a description");
    assert_eq!(facts.size_bytes, Some(content.len() as u64), "the size that it tells");
}

async fn parts_come_beside_lanes(source: &dyn Source, content: &[u8]) {
    for range in [Range::new(0, 1), Range::new(70_000, 90_000), Range::new(300_006, 300_007)] {
        let (_, bytes) = source.fetch_part(range).await.expect("a part");
        assert_eq!(bytes, &content[range.start as usize..range.end as usize], "{range}");
    }
    let behind = source.fetch_part(Range::new(300_000, 400_000)).await;
    assert!(behind.is_err(), "a part that the file does not have: {behind:?}");
}

async fn swaths_come_in_their_order(source: Arc<dyn Source>, content: &[u8]) {
    let mut bench = Bench::new(source);
    let ranges = [(1, 200_000, 250_000), (2, 0, 1), (3, 250_000, 300_007), (4, 1, 100_001)];
    for (swath, start, end) in ranges {
        assert!(
            bench.lane.fetch(SwathId(swath), Range::new(start, end)),
            "an open lane takes orders"
        );
    }
    bench.until_ended(&[1, 2, 3, 4]).await;
    for (swath, start, end) in ranges {
        bench.holds(swath, Range::new(start, end), content);
    }
    assert!(bench.lane.meter().body_bytes() >= 200_008, "what came is counted");
    bench.lane.close();
    assert_eq!(bench.until_closed().await, (None, Vec::new()));
}

async fn nothing_comes_behind_a_trimmed_end(source: Arc<dyn Source>, content: &[u8]) {
    let mut bench = Bench::new(source);
    bench.lane.fetch(SwathId(1), Range::new(0, 300_007));
    bench.lane.fetch(SwathId(2), Range::new(100, 200));
    bench.lane.trim(SwathId(1), 20_000, AfterTrim::Drain);
    // Nothing of this one is left.
    bench.lane.fetch(SwathId(3), Range::new(5_000, 6_000));
    bench.lane.trim(SwathId(3), 5_000, AfterTrim::Drain);
    bench.until_ended(&[1, 2, 3]).await;
    let came = bench.came.get(&1).cloned().unwrap_or_default();
    assert!(came.covers(Range::new(0, 20_000)), "all before the end comes: {came:?}");
    bench.holds(2, Range::new(100, 200), content);
    assert!(!bench.came.contains_key(&3), "nothing of a swath that was given back whole");
    // Of one that is under way, an end that has passed ends it at once, and spoils nothing behind it.
    bench.lane.fetch(SwathId(4), Range::new(0, 300_007));
    bench.lane.fetch(SwathId(5), Range::new(7, 90_000));
    bench.until_some_came(4).await;
    bench.lane.trim(SwathId(4), 10, AfterTrim::Drain);
    bench.until_ended(&[4, 5]).await;
    bench.holds(5, Range::new(7, 90_000), content);
}

async fn what_is_closed_tells_what_is_unfinished(source: Arc<dyn Source>) {
    let mut bench = Bench::new(source);
    // No buffer is free, so nothing can be finished.
    let mut taken = Vec::new();
    while let Some(buffer) = bench.pool.try_take() {
        taken.push(buffer);
    }
    bench.lane.fetch(SwathId(1), Range::new(0, 100_000));
    bench.lane.fetch(SwathId(2), Range::new(100_000, 200_000));
    bench.lane.close();
    let (error, mut unfinished) = bench.until_closed().await;
    unfinished.sort_unstable();
    assert_eq!((error, unfinished), (None, vec![SwathId(1), SwathId(2)]));
    assert!(!bench.lane.fetch(SwathId(3), Range::new(0, 1)), "a closed lane takes no orders");
}

async fn nothing_lies_behind_the_end(source: Arc<dyn Source>) {
    let mut bench = Bench::new(source);
    bench.lane.fetch(SwathId(1), Range::new(300_007, 300_107));
    bench.until_ended(&[1]).await;
    // Whether it is complete with nothing, or fails, a source may choose.
    if let Some(error) = bench.failed.get(&1) {
        assert!(matches!(error, LaneError::BeyondEnd { size_bytes: 300_007 }), "{error:?}");
    }
    assert!(bench.came.is_empty(), "bytes from behind the end");
}

async fn another_size_than_expected_is_refused(source: Arc<dyn Source>) {
    source.expect(Expected { size_bytes: Some(7), proved: false });
    let mut bench = Bench::new(source);
    bench.lane.fetch(SwathId(1), Range::new(0, 7));
    bench.until_ended(&[1]).await;
    let error = bench.failed.get(&1).expect("an error");
    assert_eq!(error.class(), Class::Lying, "{error:?}");
    assert!(bench.came.is_empty(), "no byte of another file");
}

async fn lanes_do_not_disturb_each_other(source: Arc<dyn Source>, content: &[u8]) {
    let mut first = Bench::beside(Arc::clone(&source));
    let mut second = Bench::beside(source);
    first.lane.fetch(SwathId(1), Range::new(0, 150_000));
    second.lane.fetch(SwathId(1), Range::new(150_000, 300_007));
    first.lane.trim(SwathId(1), 100_000, AfterTrim::Drop);
    second.until_ended(&[1]).await;
    first.until_ended(&[1]).await;
    second.holds(1, Range::new(150_000, 300_007), content);
}

async fn a_renewed_one_is_as_good(source: Arc<dyn Source>, content: &[u8]) {
    source.expect(Expected { size_bytes: Some(7), proved: false });
    // What was expected is forgotten with all the rest.
    the_whole_comes(source.renewed(), content).await;
}

/// A lane, and what it has reported.
struct Bench {
    lane: Box<dyn Lane>,
    events: UnboundedReceiver<LaneEvent>,
    pool: Pool,
    facts: Vec<Facts>,
    content: BTreeMap<(u64, u64), Vec<u8>>,
    came: BTreeMap<u64, RangeSet>,
    failed: BTreeMap<u64, LaneError>,
    /// There is another lane.
    is_beside: bool,
}

impl Bench {
    fn new(source: Arc<dyn Source>) -> Bench {
        let (sender, events) = unbounded_channel();
        let pool = Pool::new(4, 16 << 10);
        let lane = source.open_lane(LaneId(7), &pool, sender);
        assert_eq!(lane.id(), LaneId(7));
        Bench {
            lane,
            events,
            pool,
            facts: Vec::new(),
            content: BTreeMap::new(),
            came: BTreeMap::new(),
            failed: BTreeMap::new(),
            is_beside: false,
        }
    }

    /// Returns a lane beside others of the same source.
    fn beside(source: Arc<dyn Source>) -> Bench {
        Bench { is_beside: true, ..Bench::new(source) }
    }

    async fn next(&mut self) -> LaneEventKind {
        let event = timeout(PATIENCE, self.events.recv()).await.expect("a lane reports in time");
        let event = event.expect("a lane says that it closed");
        assert_eq!(event.lane, LaneId(7));
        event.kind
    }

    /// Until these swaths are done or have failed, each once.
    async fn until_ended(&mut self, swaths: &[u64]) {
        let mut open = swaths.to_vec();
        while !open.is_empty() {
            let ended = match self.next().await {
                LaneEventKind::Facts(facts) => {
                    self.facts.push(*facts);
                    continue;
                }
                LaneEventKind::Chunk { swath, offset, buffer, .. } => {
                    // A source tells each of them once, on whichever lane.
                    assert!(self.is_beside || !self.facts.is_empty(), "facts come before bytes");
                    assert!(open.contains(&swath.0), "bytes of {swath}, which is not open");
                    let range = Range::of_len(offset, buffer.len() as u64);
                    self.came.entry(swath.0).or_default().insert(range);
                    self.content.insert((swath.0, offset), buffer.to_vec());
                    continue;
                }
                LaneEventKind::Up { .. } | LaneEventKind::Hops(_) => continue,
                LaneEventKind::Done { swath } => swath.0,
                LaneEventKind::Failed { swath, error } => {
                    self.failed.insert(swath.0, error);
                    swath.0
                }
                LaneEventKind::Closed { error, unfinished } => {
                    panic!("it closed: {error:?}, {unfinished:?} unfinished")
                }
            };
            assert!(open.contains(&ended), "{ended} ended twice, or was never asked for");
            open.retain(|swath| *swath != ended);
        }
    }

    /// Until some of a swath is here.
    async fn until_some_came(&mut self, swath: u64) {
        while !self.came.contains_key(&swath) {
            if let LaneEventKind::Chunk { swath, offset, buffer, .. } = self.next().await {
                let range = Range::of_len(offset, buffer.len() as u64);
                self.came.entry(swath.0).or_default().insert(range);
            }
        }
    }

    async fn until_closed(&mut self) -> (Option<LaneError>, Vec<SwathId>) {
        loop {
            if let LaneEventKind::Closed { error, unfinished } = self.next().await {
                return (error, unfinished);
            }
        }
    }

    /// All of a swath has come, and nothing else.
    fn holds(&self, swath: u64, range: Range, content: &[u8]) {
        assert!(!self.failed.contains_key(&swath), "{swath}: {:?}", self.failed);
        let came = self.came.get(&swath).cloned().unwrap_or_default();
        assert_eq!(came.total_bytes(), range.len(), "{swath}, {range}: {came:?}");
        assert!(came.covers(range), "{swath}, {range}: {came:?}");
        for ((_, offset), bytes) in self.content.range((swath, 0)..(swath + 1, 0)) {
            let at = *offset as usize;
            assert!(bytes == &content[at..at + bytes.len()], "{swath}: other bytes at {offset}");
        }
    }
}

/// Nothing here takes long.
const PATIENCE: Duration = Duration::from_secs(30);
