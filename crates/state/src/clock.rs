//! The wall clock, as far as it can be trusted: clocks are set back and forth, and machines start
//! in 1970, but ages must stay usable.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 by this machine's clock, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wall(pub(crate) i64);

impl Wall {
    /// What the clock says.
    pub(crate) fn now() -> Wall {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Wall(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// So long ago.
    pub(crate) fn back(self, age_s: f64) -> Wall {
        let age_ms = if age_s.is_finite() { (age_s.max(0.0) * 1e3) as i64 } else { 0 };
        Wall(self.0.saturating_sub(age_ms).max(0))
    }

    /// How long before `now` it was, in seconds; never negative.
    pub(crate) fn age_s(self, now: Wall) -> f64 {
        now.0.saturating_sub(self.0).max(0) as f64 / 1e3
    }

    /// The same, but `now` for what lies in the future by more than clocks are corrected by: the
    /// clock was set back since, and what carries such a time would stay young for ever. A clock
    /// that says 1970 itself corrects nothing.
    pub(crate) fn clamped(self, now: Wall) -> Wall {
        let is_future = self.0 > now.0.saturating_add(CORRECTION_MS) && now.0 >= CREDIBLE_MS;
        if is_future { now } else { self }
    }
}

/// Clocks that are kept by NTP are set back by less.
const CORRECTION_MS: i64 = 120_000;
/// The beginning of 2026: no clock that is right says less.
const CREDIBLE_MS: i64 = 1_767_225_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_from_the_future_becomes_now_and_only_by_a_clock_that_can_be_right() {
        let now = Wall(CREDIBLE_MS + 1_000_000_000);
        assert_eq!(Wall(now.0 + CORRECTION_MS).clamped(now), Wall(now.0 + CORRECTION_MS));
        assert_eq!(Wall(now.0 + CORRECTION_MS + 1).clamped(now), now);
        assert_eq!(Wall(5).clamped(now), Wall(5));
        assert_eq!(now.clamped(Wall(1000)), now);
        assert_eq!((now.age_s(Wall(1000)), Wall(0).age_s(Wall(1500))), (0.0, 1.5));
        assert_eq!(now.back(f64::INFINITY), now);
        assert_eq!((now.back(-1.0), now.back(2.0)), (now, Wall(now.0 - 2000)));
        assert_eq!(now.back(1e300), Wall(0));
    }
}
