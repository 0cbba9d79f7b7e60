//! The line of each lane in the row of its source.
//!
//! Lanes are numbered over the whole transfer. A lane that begins after another one has ended reuses its
//! line.

use std::collections::BTreeMap;

use crate::swaths::Bar;

/// Returns the bars with their line instead of the number of their lane.
pub(crate) fn numbered(bars: &[Bar]) -> Vec<Bar> {
    let mut spans: BTreeMap<(u32, u32), (f64, f64)> = BTreeMap::new();
    for bar in bars {
        let span = spans.entry((bar.source, bar.lane)).or_insert((bar.asked_at_s, bar.ended_at_s));
        *span = (span.0.min(bar.asked_at_s), span.1.max(bar.ended_at_s));
    }
    let mut lanes: Vec<_> = spans.into_iter().collect();
    lanes.sort_by(|a, b| a.1.0.total_cmp(&b.1.0));
    // The end of the last lane on each line of a source.
    let mut ends: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let mut line_of = BTreeMap::new();
    for (key, (begins_s, ends_s)) in lanes {
        let lines = ends.entry(key.0).or_default();
        let line =
            lines.iter().position(|&busy_until_s| busy_until_s <= begins_s).unwrap_or(lines.len());
        match lines.get_mut(line) {
            Some(busy_until_s) => *busy_until_s = ends_s,
            None => lines.push(ends_s),
        }
        line_of.insert(key, line as u32);
    }
    let line = |bar: &Bar| line_of.get(&(bar.source, bar.lane)).copied().unwrap_or(bar.lane);
    bars.iter().map(|bar| Bar { lane: line(bar), ..bar.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use swath_model::Range;

    use super::*;
    use swath_model::observe::Outcome;

    #[test]
    fn lanes_of_a_source_stand_below_each_other_and_lines_are_used_again() {
        let bar = |source, lane, asked_at_s, ended_at_s| Bar {
            source,
            lane,
            range: Range::new(0, 1),
            asked_bytes: 1,
            asked_at_s,
            first_byte_at_s: None,
            ended_at_s,
            outcome: Outcome::Done,
            swaths: 1,
        };
        let bars = [
            bar(0, 0, 0.0, 1.0),
            bar(1, 1, 0.0, 1.0),
            bar(1, 5, 0.5, 3.0),
            bar(1, 7, 1.0, 2.0),
            bar(0, 0, 0.9, 2.0),
        ];
        let lines: Vec<u32> = numbered(&bars).iter().map(|bar| bar.lane).collect();
        assert_eq!(lines, [0, 0, 1, 0, 0]);
    }
}
