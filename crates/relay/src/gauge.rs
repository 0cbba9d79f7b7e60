//! Measures the hop of one connection to the next server; every answer carries the result.
//!
//! Time counts only while bytes are expected. At each moment the hop is free (we would take more)
//! or held (we have no room, because the client takes nothing). Bytes that came while free show
//! what the hop can do; bytes that came while held show what the rest of the route can do.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The meter of one connection's hop.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Newest last.
    slots: VecDeque<Slot>,
    since: Option<Instant>,
    is_held: bool,
    able: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    bytes: u64,
    busy: Duration,
    held: Duration,
}

/// What a gauge shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    /// Bytes per second.
    pub rate: f64,
    /// Part of the time in which we were held up, 0 to 1.
    pub held: f64,
    /// Bytes per second, at best, while we were not.
    pub able: Option<f64>,
}

impl Gauge {
    /// From now on something is to come, or still is; `is_held` if we have no place for it.
    pub fn run(&mut self, now: Instant, is_held: bool) {
        self.pass(now);
        self.since = Some(now);
        self.is_held = is_held;
    }

    /// Nothing is to come any more.
    pub fn rest(&mut self, now: Instant) {
        self.pass(now);
        self.since = None;
    }

    /// So many bytes came.
    pub fn came(&mut self, bytes: u64) {
        match self.slots.back_mut() {
            Some(slot) => slot.bytes += bytes,
            None => self.slots.push_back(Slot { bytes, ..Slot::default() }),
        }
    }

    /// The time since the last word belongs to the state that was.
    fn pass(&mut self, now: Instant) {
        let Some(since) = self.since else { return };
        let passed = now.saturating_duration_since(since);
        if self.slots.back().is_none_or(|slot| slot.busy >= SLOT) {
            self.judge();
            self.slots.push_back(Slot::default());
            if self.slots.len() > SLOTS {
                self.slots.pop_front();
            }
        }
        if let Some(slot) = self.slots.back_mut() {
            slot.busy += passed;
            if self.is_held {
                slot.held += passed;
            }
        }
    }

    /// A slot is full: if nothing held us up in it and the one before, their mean is what the hop can do.
    /// (In the first of them what had waited in the kernel may have come.)
    fn judge(&mut self) {
        let last = self.slots.iter().rev().take(2).copied().collect::<Vec<_>>();
        let [newer, older] = last.as_slice() else { return };
        let was_free = |slot: &Slot| slot.held < slot.busy.mul_f64(FREE);
        if was_free(newer) && was_free(older) {
            let rate = newer.bytes as f64 / newer.busy.as_secs_f64().max(1e-6);
            // What was seen long ago counts ever less.
            self.able = (self.able * ABLE_FADES).max(rate);
        }
    }

    /// What it shows; `None` before there is enough to tell.
    pub fn read(&self) -> Option<Reading> {
        let mut sum = Slot::default();
        for slot in &self.slots {
            sum.bytes += slot.bytes;
            sum.busy += slot.busy;
            sum.held += slot.held;
        }
        if sum.busy < SLOT {
            return None;
        }
        let busy_s = sum.busy.as_secs_f64();
        let able = (self.able > 0.0).then_some(self.able);
        let held = sum.held.as_secs_f64() / busy_s;
        Some(Reading { rate: sum.bytes as f64 / busy_s, held, able })
    }
}

/// Slots are so long …
const SLOT: Duration = Duration::from_millis(100);
/// … and what is told covers so many.
const SLOTS: usize = 10;
/// In a free slot we were held up for less than this part.
const FREE: f64 = 0.1;
/// A slot later, an older best counts so much: it halves in seven seconds.
const ABLE_FADES: f64 = 0.99;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `ms` milliseconds pass in which `rate` bytes come each of them.
    fn pass(gauge: &mut Gauge, at: &mut Instant, ms: u64, rate: u64, is_held: bool) {
        for _ in 0..ms {
            gauge.run(*at, is_held);
            *at += Duration::from_millis(1);
            gauge.came(rate);
        }
        gauge.run(*at, is_held);
    }

    #[test]
    fn it_tells_what_comes_and_what_holds_it_up() {
        let mut gauge = Gauge::default();
        let mut at = Instant::now();
        assert_eq!(gauge.read(), None);
        pass(&mut gauge, &mut at, 500, 1_000, false);
        let reading = gauge.read().unwrap();
        assert!((reading.rate - 1e6).abs() < 2e4, "{reading:?}");
        assert!(reading.held < 0.01 && (reading.able.unwrap() - 1e6).abs() < 5e4, "{reading:?}");
        // The other side takes a fifth of that; the hop could bring more, and that is remembered.
        pass(&mut gauge, &mut at, 2_000, 200, true);
        let reading = gauge.read().unwrap();
        assert!((reading.rate - 2e5).abs() < 2e4 && reading.held > 0.95, "{reading:?}");
        assert!(reading.able.unwrap() > 8e5, "{reading:?}");
        // Then the hop itself becomes slow.
        pass(&mut gauge, &mut at, 2_000, 100, false);
        let reading = gauge.read().unwrap();
        assert!((reading.rate - 1e5).abs() < 1e4 && reading.held < 0.05, "{reading:?}");
    }

    #[test]
    fn time_in_which_nothing_is_to_come_does_not_count() {
        let mut gauge = Gauge::default();
        let mut at = Instant::now();
        for _ in 0..5 {
            pass(&mut gauge, &mut at, 100, 1_000, false);
            gauge.rest(at);
            at += Duration::from_secs(10);
        }
        let reading = gauge.read().unwrap();
        assert!((reading.rate - 1e6).abs() < 5e4, "{reading:?}");
    }
}
