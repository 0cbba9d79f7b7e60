//! What runs beside a transfer, over the same places, and how many bytes that moves meanwhile.

use std::collections::BTreeMap;

use super::cost::SECONDS_MIN;
use super::past::Planned;

/// Bytes of others that a transfer shares something with: the places that send, or that which receives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Beside {
    pub(super) from_bytes: f64,
    pub(super) to_bytes: f64,
}

impl Beside {
    fn add(&mut self, share: Beside, bytes: f64) {
        self.from_bytes += share.from_bytes * bytes;
        self.to_bytes += share.to_bytes * bytes;
    }
}

/// The transfers that run.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    all: BTreeMap<u64, One>,
}

#[derive(Clone, Debug)]
struct One {
    planned: Planned,
    /// How long it takes, as was forecast.
    takes_s: f64,
    /// What those that ended meanwhile moved.
    beside: Beside,
}

impl One {
    fn left_bytes(&self, now_s: f64) -> f64 {
        let left = 1.0 - (now_s - self.planned.at_s) / self.takes_s.max(SECONDS_MIN);
        self.planned.bytes * left.max(LATE_PART)
    }
}

impl Running {
    /// Returns what will be moved beside a transfer that begins now, if nothing else begins and all
    /// share fairly: of each other one what it has left, but no more than the transfer itself has.
    pub(super) fn ahead(&self, planned: &Planned) -> Beside {
        let mut ahead = Beside::default();
        for one in self.all.values() {
            let left_bytes = one.left_bytes(planned.at_s).min(planned.bytes);
            ahead.add(shares(planned, &one.planned), left_bytes);
        }
        ahead
    }

    /// Returns what will be moved beside a transfer that runs and has so many bytes left, and what
    /// would be if all went on as now.
    pub(super) fn ahead_of(&self, id: u64, now_s: f64, left_bytes: f64) -> Option<[Beside; 2]> {
        let own = self.all.get(&id)?;
        let (mut ahead, mut as_now) = (Beside::default(), Beside::default());
        for one in self.all.iter().filter(|(other, _)| **other != id).map(|(_, one)| one) {
            let share = shares(&own.planned, &one.planned);
            ahead.add(share, one.left_bytes(now_s).min(left_bytes));
            as_now.add(share, left_bytes);
        }
        Some([ahead, as_now])
    }

    /// A transfer begins.
    pub(super) fn begin(&mut self, id: u64, planned: &Planned, takes_s: f64) {
        if self.all.len() == RUNNING_MAX {
            self.all.pop_first();
        }
        let one = One { planned: planned.clone(), takes_s, beside: Beside::default() };
        self.all.insert(id, one);
    }

    /// A transfer ends; returns what was moved beside it.
    pub(super) fn end(&mut self, id: u64, took_s: Option<f64>) -> Beside {
        let Some(mut own) = self.all.remove(&id) else { return Beside::default() };
        let end_s = own.planned.at_s + took_s.unwrap_or(own.takes_s);
        for other in self.all.values_mut() {
            let both_s = end_s - other.planned.at_s.max(own.planned.at_s);
            // It goes on, so it takes longer than until now.
            let takes_s = other.takes_s.max(end_s - other.planned.at_s).max(SECONDS_MIN);
            let moved = other.planned.bytes * (both_s / takes_s).clamp(0.0, 1.0);
            own.beside.add(shares(&own.planned, &other.planned), moved);
            if let Some(took_s) = took_s {
                let part = (both_s / took_s.max(SECONDS_MIN)).clamp(0.0, 1.0);
                let share = shares(&other.planned, &own.planned);
                other.beside.add(share, own.planned.bytes * part);
            }
        }
        own.beside
    }
}

/// Returns which part of another transfer's bytes takes the same ways as a transfer.
fn shares(planned: &Planned, other: &Planned) -> Beside {
    let is_shared = |place: &&u32| planned.from.contains(place);
    let shared = other.from.iter().filter(is_shared).count() as f64;
    let is_same = planned.to.is_some() && planned.to == other.to;
    Beside {
        from_bytes: shared / other.from.len().max(1) as f64,
        to_bytes: if is_same { 1.0 } else { 0.0 },
    }
}

/// The part that a transfer is thought to have left that should have ended.
const LATE_PART: f64 = 0.05;

/// Most transfers that run.
const RUNNING_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::TRAITS;

    fn planned(at_s: f64, bytes: f64, from: &[u32], to: u32) -> Planned {
        let (from, to, prior) = (from.to_vec(), Some(to), None);
        Planned {
            at_s,
            bytes,
            files: 1.0,
            pair: 0,
            kind: 0,
            from,
            to,
            prior,
            traits: [0.0; TRAITS],
        }
    }

    #[test]
    fn what_others_have_left_lies_ahead() {
        let mut running = Running::default();
        running.begin(1, &planned(0.0, 100.0, &[1, 2], 9), 10.0);
        running.begin(2, &planned(0.0, 100.0, &[3], 9), 10.0);
        let ahead = running.ahead(&planned(5.0, 1000.0, &[1], 8));
        assert_eq!(ahead, Beside { from_bytes: 25.0, to_bytes: 0.0 });
        let ahead = running.ahead(&planned(5.0, 30.0, &[3], 9));
        assert_eq!(ahead, Beside { from_bytes: 30.0, to_bytes: 60.0 });
    }

    #[test]
    fn what_was_moved_meanwhile_is_counted_at_both_ends() {
        let mut running = Running::default();
        let same = |at_s, bytes| planned(at_s, bytes, &[1], 9);
        running.begin(1, &same(0.0, 100.0), 10.0);
        running.begin(2, &same(5.0, 100.0), 10.0);
        // The first ran for 10 s, half of them beside the second, which had moved half by then.
        assert_eq!(running.end(1, Some(10.0)).from_bytes, 50.0);
        running.begin(3, &same(12.0, 10.0), 1.0);
        assert_eq!(running.end(3, None).from_bytes, 10.0);
        assert_eq!(running.end(2, Some(10.0)).from_bytes, 50.0);
        assert_eq!(running.end(2, Some(10.0)), Beside::default());
    }
}
