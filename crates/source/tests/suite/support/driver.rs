//! The least that an executor does: one lane at a time, a few swaths ahead, again after errors.

use std::sync::Arc;
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, RangeSet, SwathId};
use swath_source::{Class, Expected, Facts, LaneError, LaneEventKind, Source};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    pub data: Vec<u8>,
    pub covered: RangeSet,
    pub facts: Vec<Facts>,
    pub errors: Vec<LaneError>,
    pub lanes: u32,
    pub ups: u32,
    pub done: bool,
}

impl Outcome {
    pub fn is(&self, content: &[u8]) -> bool {
        self.done && self.data == content
    }
}

const SWATH_BYTES: u64 = 50_000;
const AHEAD: usize = 3;
const TRIES: usize = 12;
/// A lane that says nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(90);

/// Fetch the whole file; stops at the first error that is not worth a second try.
pub async fn download<S: Source + ?Sized>(source: &Arc<S>) -> Outcome {
    download_with(source, SILENCE).await
}

/// The same, by who closes a lane that says nothing for this long and opens another one, as the planner
/// does.
pub async fn download_with<S: Source + ?Sized>(source: &Arc<S>, silence: Duration) -> Outcome {
    let mut outcome = Outcome::default();
    let pool = Pool::new(4, 16 * 1024);
    let mut size: Option<u64> = None;
    let mut swath = 0;
    loop {
        let (sender, mut events) = unbounded_channel();
        let lane = Arc::clone(source).open_lane(LaneId(outcome.lanes), &pool, sender);
        outcome.lanes += 1;
        let mut out: Vec<(SwathId, Range)> = Vec::new();
        loop {
            // Ask for the first bytes that neither came nor are asked for.
            loop {
                let ahead = if outcome.facts.is_empty() { 1 } else { AHEAD };
                let next = next_missing(&outcome.covered, &out, size);
                let Some(start) = next.filter(|_| out.len() < ahead) else { break };
                let known = size.is_some() || outcome.facts.is_empty();
                let end = if known {
                    (start + SWATH_BYTES).min(size.unwrap_or(u64::MAX))
                } else {
                    u64::MAX
                };
                let range = Range::new(start, end);
                out.push((SwathId(swath), range));
                lane.fetch(SwathId(swath), range);
                swath += 1;
            }
            if out.is_empty() {
                outcome.done = true;
                return outcome;
            }
            let Ok(event) = timeout(silence, events.recv()).await else {
                lane.close();
                continue;
            };
            match event.expect("a lane says that it closed").kind {
                LaneEventKind::Up { .. } => outcome.ups += 1,
                LaneEventKind::Hops(_) => {}
                LaneEventKind::Facts(facts) => {
                    size = facts.size_bytes.or(size);
                    source.expect(Expected { size_bytes: size, proved: false });
                    outcome.facts.push(*facts);
                }
                LaneEventKind::Chunk { swath, offset, buffer, .. } => {
                    let (_, range) =
                        out.iter().find(|(id, _)| *id == swath).expect("a swath asked for");
                    let end = offset + buffer.len() as u64;
                    assert!(
                        range.covers(Range::new(offset, end)),
                        "{range} asked, {offset}..{end} delivered"
                    );
                    if outcome.data.len() < end as usize {
                        outcome.data.resize(end as usize, 0);
                    }
                    outcome.data[offset as usize..end as usize].copy_from_slice(&buffer);
                    outcome.covered.insert(Range::new(offset, end));
                }
                LaneEventKind::Done { swath } => {
                    let (_, range) =
                        *out.iter().find(|(id, _)| *id == swath).expect("a swath asked for");
                    out.retain(|(id, _)| *id != swath);
                    let end = range.end.min(size.unwrap_or(range.end));
                    assert!(
                        outcome.covered.covers(Range::new(range.start, end)),
                        "{swath} {range} said to be done"
                    );
                }
                LaneEventKind::Failed { swath, error } => {
                    out.retain(|(id, _)| *id != swath);
                    let class = error.class();
                    outcome.errors.push(error);
                    match class {
                        Class::Transient => {}
                        Class::Busy(wait) => tokio::time::sleep(wait).await,
                        _ => return outcome,
                    }
                }
                LaneEventKind::Closed { error, unfinished } => {
                    for id in unfinished {
                        assert!(
                            out.iter().any(|(other, _)| *other == id),
                            "{id} was not asked for"
                        );
                    }
                    let class = error.as_ref().map(LaneError::class);
                    outcome.errors.extend(error);
                    if class.is_some_and(|class| class != Class::Transient) {
                        return outcome;
                    }
                    break;
                }
            }
            if outcome.errors.len() >= TRIES {
                return outcome;
            }
        }
        if outcome.errors.len() >= TRIES || outcome.lanes > 200 {
            return outcome;
        }
    }
}

fn next_missing(covered: &RangeSet, out: &[(SwathId, Range)], size: Option<u64>) -> Option<u64> {
    let mut taken = covered.clone();
    for (_, range) in out {
        taken.insert(*range);
    }
    let whole = Range::new(0, size.unwrap_or(u64::MAX));
    taken.gaps_within(whole).first().map(|range| range.start)
}
