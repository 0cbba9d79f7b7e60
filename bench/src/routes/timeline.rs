//! What the links carried while somebody fetched, sampled from outside: no program that takes
//! part is asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use swath_netlab::mesh::Mesh;
use swath_netlab::wan::{LinkCounters, MTU_BYTES};

/// Counters of every link at times since the start.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    samples: Vec<(f64, Vec<LinkCounters>)>,
}

/// One direction of a link, by the positions of its sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Where data comes from.
    pub from: usize,
    /// Where it goes.
    pub to: usize,
}

impl Timeline {
    /// Watches a mesh until `over` is set.
    pub fn watch(mesh: &Mesh, over: &AtomicBool) -> Self {
        let begin = Instant::now();
        let mut samples = Vec::new();
        loop {
            // Read first, so that what is asked to end has one more look at the end.
            let last = over.load(Ordering::Acquire);
            samples.push((begin.elapsed().as_secs_f64(), mesh.counters()));
            if last {
                return Self { samples };
            }
            std::thread::sleep(EVERY);
        }
    }

    /// What had arrived over the chosen directions at each time, as cumulative payload bytes.
    pub fn carried(&self, mesh: &Mesh, is_chosen: impl Fn(Hop) -> bool) -> Carried {
        let links = &mesh.spec().links;
        let sum = |counters: &Vec<LinkCounters>| -> u64 {
            let each = links.iter().zip(counters).map(|(link, counters)| {
                let down = Hop { from: link.far, to: link.near };
                let up = Hop { from: link.near, to: link.far };
                let part = |hop, bytes| if is_chosen(hop) { bytes } else { 0 };
                part(down, counters.down.bytes) + part(up, counters.up.bytes)
            });
            each.sum()
        };
        let points = self.samples.iter().map(|(at_s, counters)| (*at_s, sum(counters) as f64));
        Carried { points: points.map(|(at_s, bytes)| (at_s, bytes * PAYLOAD_SHARE)).collect() }
    }
}

/// Payload bytes that had arrived at times, which grow.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    /// Seconds and bytes.
    pub points: Vec<(f64, f64)>,
}

impl Carried {
    /// All of it.
    pub fn total_bytes(&self) -> f64 {
        self.points.last().map_or(0.0, |(_, bytes)| *bytes)
    }

    /// When the last byte came.
    pub fn end_s(&self) -> f64 {
        let total_bytes = self.total_bytes();
        self.points.iter().find(|(_, bytes)| *bytes >= total_bytes).map_or(0.0, |(at_s, _)| *at_s)
    }

    /// What had arrived by a time; between two samples in proportion.
    pub fn bytes_at(&self, at_s: f64) -> f64 {
        let after = self.points.partition_point(|(point_s, _)| *point_s <= at_s);
        let Some(&(before_s, before)) = after.checked_sub(1).and_then(|at| self.points.get(at))
        else {
            return 0.0;
        };
        match self.points.get(after) {
            Some(&(after_s, bytes)) => {
                before + (bytes - before) * (at_s - before_s) / (after_s - before_s)
            }
            None => before,
        }
    }

    /// Bytes a second between two times.
    pub fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        (self.bytes_at(to_s) - self.bytes_at(from_s)) / (to_s - from_s).max(f64::MIN_POSITIVE)
    }

    /// The least part that this has, in any `window_s` up to its last byte, of what `other` has in
    /// the same seconds; `None` when it all took less than that.
    pub fn least_part(&self, other: &Carried, window_s: f64) -> Option<f64> {
        let last_s = self.end_s().min(other.end_s()) - window_s;
        let starts = self.points.iter().map(|(at_s, _)| *at_s).filter(|at_s| *at_s <= last_s);
        let parts = starts.filter_map(|at_s| {
            let of = other.rate(at_s, at_s + window_s);
            (of > 0.0).then(|| self.rate(at_s, at_s + window_s) / of)
        });
        parts.reduce(f64::min)
    }

    /// The mean rate from `settled_s` after an event until shortly before the end; `None` when it
    /// ended before that can be told.
    pub fn rate_after(&self, event_s: f64, settled_s: f64) -> Option<f64> {
        let (from_s, to_s) = (event_s + settled_s, self.end_s() - TAIL_S);
        (to_s >= from_s + 1.0).then(|| self.rate(from_s, to_s))
    }

    /// Throughput lost by an event, in seconds: how much longer it took, to what had arrived
    /// `settled_s` after the event, than it takes at the rate from then on. `None` when it ended
    /// before that can be told.
    pub fn lost_s(&self, event_s: f64, settled_s: f64) -> Option<f64> {
        let rate = self.rate_after(event_s, settled_s)?;
        let arrived = self.bytes_at(event_s + settled_s) - self.bytes_at(event_s);
        (rate > 0.0).then(|| (settled_s - arrived / rate).max(0.0))
    }

    /// When a rate was first held for `window_s`.
    pub fn reaches(&self, rate: f64, window_s: f64) -> Option<f64> {
        let starts = self.points.iter().map(|(at_s, _)| *at_s);
        let mut starts = starts.filter(|at_s| at_s + window_s <= self.end_s());
        starts.find(|at_s| self.rate(*at_s, at_s + window_s) >= rate)
    }
}

/// Often enough for figures of a second, seldom enough to cost nothing.
const EVERY: Duration = Duration::from_millis(50);

/// The payload of a full packet: 20 bytes of IP, 20 of TCP and 12 of time stamps are taken off.
pub const PAYLOAD_BYTES: f64 = (MTU_BYTES - 52) as f64;

/// The part of a full packet that is payload.
pub const PAYLOAD_SHARE: f64 = PAYLOAD_BYTES / MTU_BYTES as f64;

/// At the end ranges run out and rates fall, event or not.
const TAIL_S: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate for each second, sampled four times in each.
    fn carried(rates: &[f64]) -> Carried {
        let mut bytes = 0.0;
        let mut points = vec![(0.0, 0.0)];
        for quarter in 0..4 * rates.len() {
            bytes += rates[quarter / 4] / 4.0;
            points.push(((quarter + 1) as f64 / 4.0, bytes));
        }
        Carried { points }
    }

    fn near(value: Option<f64>, expected: f64) {
        assert!(value.is_some_and(|value| (value - expected).abs() < 1e-9), "{value:?}");
    }

    #[test]
    fn rates_are_those_of_the_time_between() {
        let carried = carried(&[8.0, 8.0, 2.0, 8.0, 0.0]);
        assert_eq!(carried.total_bytes(), 26.0);
        assert_eq!(carried.end_s(), 4.0);
        assert_eq!(carried.bytes_at(0.125), 1.0);
        assert_eq!(carried.bytes_at(99.0), 26.0);
        assert_eq!(carried.rate(1.0, 3.0), 5.0);
        near(carried.reaches(5.0, 1.0), 0.0);
        assert_eq!(carried.reaches(9.0, 1.0), None);
    }

    #[test]
    fn like_seconds_are_compared() {
        let other = carried(&[2.0, 4.0, 4.0, 4.0, 4.0]);
        near(carried(&[2.0, 8.0, 3.0, 8.0]).least_part(&other, 1.0), 0.75);
        near(carried(&[1.0, 8.0, 8.0]).least_part(&other, 1.0), 0.5);
        assert_eq!(carried(&[9.0]).least_part(&other, 2.0), None);
    }

    #[test]
    fn what_an_event_costs_is_counted_at_the_rate_after_it() {
        // Nothing for one second, then half of what there was.
        let stopped = carried(&[8.0, 8.0, 0.0, 4.0, 4.0, 4.0, 4.0, 4.0]);
        near(stopped.lost_s(2.0, 3.0), 1.0);
        near(stopped.rate_after(2.0, 3.0), 4.0);
        // A queue that still empties is not counted against the loss.
        let smooth = carried(&[8.0, 8.0, 6.0, 4.0, 4.0, 4.0, 4.0, 4.0]);
        near(smooth.lost_s(2.0, 3.0), 0.0);
        assert_eq!(smooth.lost_s(2.0, 5.0), None);
    }
}
