//! The swaths of a transfer and the map of their sources, in few enough pieces for a page.
//!
//! Neighbouring short swaths of a lane, and neighbouring small pieces of the map, are merged where no
//! screen could show them separately. This is only drawn; figures (bytes, counts) are exact.

use std::collections::HashMap;

use swath_model::observe::{Outcome, SwathRecord};
use swath_model::{Range, RangeMap};

use crate::recording::drawable;

/// Most separate swaths; 20,000 are ten per pixel of a wide screen.
pub(crate) const BARS_MAX: usize = 20_000;
/// Most pieces in the map.
pub(crate) const PIECES_MAX: usize = 20_000;

/// The swaths of a transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Swaths {
    /// In the order of their ends, at most [`BARS_MAX`].
    pub bars: Vec<Bar>,
    /// The number of ended swaths, merged ones included.
    pub count: u64,
    /// The map of sources, in at most [`PIECES_MAX`] pieces.
    pub map: RangeMap<Delivery>,
}

impl Swaths {
    /// Records an ended swath; `end_s` is the latest recorded time.
    pub(crate) fn add(&mut self, swath: &SwathRecord, end_s: f64) {
        self.count += 1;
        let range = Range::new(swath.start, swath.end);
        let at_ms = (drawable(swath.ended_at_s) * 1000.0) as u32;
        // A losing copy is drawn only where nothing had arrived before.
        let before = match swath.outcome {
            Outcome::Lost => self.map.within(range),
            _ => Vec::new(),
        };
        self.map.set(range, Delivery { source: swath.source, at_ms });
        for (part, other) in before {
            self.map.set(part, other);
        }
        if self.map.count() > PIECES_MAX {
            self.map = coarser_map(&self.map, PIECES_MAX / 4);
        }
        self.bars.push(Bar {
            source: swath.source,
            lane: swath.lane,
            range,
            asked_bytes: swath.asked_end.saturating_sub(swath.start).max(range.len()),
            asked_at_s: drawable(swath.asked_at_s),
            first_byte_at_s: swath.first_byte_at_s.map(drawable),
            ended_at_s: drawable(swath.ended_at_s),
            outcome: swath.outcome,
            swaths: 1,
        });
        if self.bars.len() > BARS_MAX {
            self.bars = fewer_bars(std::mem::take(&mut self.bars), BARS_MAX / 2, end_s);
        }
    }
}

/// One swath, or several neighbours on one lane merged into one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    /// The source.
    pub source: u32,
    /// The lane.
    pub lane: u32,
    /// First byte, and just after the last byte delivered; of a merged bar, the first swath's start
    /// and the start plus `bytes`.
    pub range: Range,
    /// The time of the request, in seconds.
    pub asked_at_s: f64,
    /// The requested bytes; of a merged bar, those of all its swaths.
    pub asked_bytes: u64,
    /// The time of the first byte.
    pub first_byte_at_s: Option<f64>,
    /// The time of its end.
    pub ended_at_s: f64,
    /// Its outcome.
    pub outcome: Outcome,
    /// The number of its swaths.
    pub swaths: u32,
}

/// The source of a piece, and when it was complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The source's number.
    pub source: u32,
    /// Milliseconds since the transfer began.
    pub at_ms: u32,
}

/// Merges neighbouring short bars of a lane until there are at most `bars_max`.
///
/// "Short" starts at a part in 100,000 of the time so far and doubles until the bars are few
/// enough. Different outcomes stay apart unless nothing else helps. The order of ends is kept.
fn fewer_bars(mut bars: Vec<Bar>, bars_max: usize, end_s: f64) -> Vec<Bar> {
    let mut short_s = (end_s / 100_000.0).max(1e-6);
    let mut rounds = 0;
    while bars.len() > bars_max && rounds < 64 {
        // After 20 doublings a bar spans more than the whole transfer; then outcomes give way.
        bars = merge_round(bars, short_s, rounds >= 24);
        short_s *= 2.0;
        rounds += 1;
    }
    // With more lanes than bars the oldest are dropped.
    let surplus = bars.len().saturating_sub(bars_max);
    bars.drain(..surplus);
    bars
}

/// Merges each bar into the one before it on its lane if both together are short.
fn merge_round(bars: Vec<Bar>, short_s: f64, across_outcomes: bool) -> Vec<Bar> {
    let mut out: Vec<Bar> = Vec::with_capacity(bars.len() / 2);
    let mut last_on_lane: HashMap<(u32, u32), usize> = HashMap::new();
    for bar in bars {
        if let Some(&at) = last_on_lane.get(&(bar.source, bar.lane)) {
            let before = &mut out[at];
            let together_s = bar.ended_at_s - before.asked_at_s.min(bar.asked_at_s);
            if together_s <= short_s && (across_outcomes || bar.outcome == before.outcome) {
                let bytes = before.range.len().saturating_add(bar.range.len());
                before.range = Range::of_len(before.range.start, bytes);
                before.asked_bytes = before.asked_bytes.saturating_add(bar.asked_bytes);
                before.asked_at_s = before.asked_at_s.min(bar.asked_at_s);
                before.first_byte_at_s = before.first_byte_at_s.or(bar.first_byte_at_s);
                before.ended_at_s = before.ended_at_s.max(bar.ended_at_s);
                before.swaths = before.swaths.saturating_add(bar.swaths);
                // The worse outcome is shown.
                before.outcome = before.outcome.max(bar.outcome);
                continue;
            }
        }
        last_on_lane.insert((bar.source, bar.lane), out.len());
        out.push(bar);
    }
    out
}

/// Merges small neighbouring pieces of the map; the largest source gets the result.
///
/// "Small" is less than a `pieces`th of what the map covers, gaps of that size are closed; at most
/// about `2 * pieces` pieces remain.
fn coarser_map(map: &RangeMap<Delivery>, pieces: usize) -> RangeMap<Delivery> {
    let covered: u64 = map.iter().map(|(range, _)| range.len()).sum();
    let small = (covered / pieces.max(1) as u64).max(1);
    let mut out = RangeMap::new();
    let mut group: Vec<(Range, Delivery)> = Vec::new();
    for (range, delivery) in map.iter() {
        let start = group.first().map_or(range.start, |(first, _)| first.start);
        let end = group.last().map_or(range.start, |(last, _)| last.end);
        if range.len() >= small || range.start - end >= small || range.start - start >= small {
            set_group(&mut out, &group);
            group.clear();
        }
        group.push((range, delivery));
    }
    set_group(&mut out, &group);
    out
}

/// Gives a group to its largest source.
fn set_group(map: &mut RangeMap<Delivery>, group: &[(Range, Delivery)]) {
    let (Some((first, _)), Some((last, _))) = (group.first(), group.last()) else { return };
    let mut bytes: HashMap<u32, (u64, u32)> = HashMap::new();
    for (range, delivery) in group {
        let entry = bytes.entry(delivery.source).or_default();
        *entry = (entry.0 + range.len(), entry.1.max(delivery.at_ms));
    }
    let most =
        bytes.into_iter().max_by_key(|&(source, (bytes, _))| (bytes, std::cmp::Reverse(source)));
    if let Some((source, (_, at_ms))) = most {
        map.set(Range::new(first.start, last.end), Delivery { source, at_ms });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(lane: u32, i: u32, outcome: Outcome) -> Bar {
        let at = f64::from(i) * 0.01;
        Bar {
            source: 0,
            lane,
            range: Range::of_len(u64::from(i) * 100, 100),
            asked_bytes: 100,
            asked_at_s: at,
            first_byte_at_s: Some(at + 0.001),
            ended_at_s: at + 0.01,
            outcome,
            swaths: 1,
        }
    }

    #[test]
    fn bars_are_merged_and_no_swath_or_byte_is_lost() {
        let bars: Vec<Bar> = (0..10_000).map(|i| bar(i % 4, i, Outcome::Done)).collect();
        let few = fewer_bars(bars, 1_000, 100.0);
        assert!(few.len() <= 1_000 && few.len() > 100, "{}", few.len());
        assert_eq!(few.iter().map(|b| b.swaths).sum::<u32>(), 10_000);
        assert_eq!(few.iter().map(|b| b.range.len()).sum::<u64>(), 1_000_000);
    }

    #[test]
    fn failures_stay_visible_while_there_is_room() {
        let bars: Vec<Bar> = (0..10_000)
            .map(|i| bar(0, i, if i == 5_000 { Outcome::Failed } else { Outcome::Done }))
            .collect();
        let few = fewer_bars(bars, 1_000, 100.0);
        assert_eq!(
            few.iter()
                .filter(|b| b.outcome == Outcome::Failed)
                .map(|b| b.swaths)
                .collect::<Vec<_>>(),
            [1]
        );
    }

    #[test]
    fn more_lanes_than_bars_is_bounded_too() {
        let bars: Vec<Bar> = (0..5_000).map(|i| bar(i, i, Outcome::Done)).collect();
        assert_eq!(fewer_bars(bars, 100, 50.0).len(), 100);
    }

    #[test]
    fn the_map_gets_coarser_but_covers_the_same() {
        let mut map = RangeMap::new();
        for i in 0..9_000_u64 {
            map.set(
                Range::of_len(i * 10, 10),
                Delivery { source: (i % 3) as u32, at_ms: i as u32 },
            );
        }
        map.set(Range::new(90_000, 180_000), Delivery { source: 7, at_ms: 1 });
        let coarse = coarser_map(&map, 1_000);
        assert!((400..2_000).contains(&coarse.count()), "{}", coarse.count());
        assert_eq!(coarse.iter().map(|(range, _)| range.len()).sum::<u64>(), 180_000);
        let big: Vec<_> = coarse.iter().filter(|(_, d)| d.source == 7).collect();
        assert_eq!(big, [(Range::new(90_000, 180_000), Delivery { source: 7, at_ms: 1 })]);
    }
}
