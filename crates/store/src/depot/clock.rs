//! The clock of leases, and how long a lease still runs.
//!
//! While the machine runs, leases use the time since it started, asleep or awake: nobody can set
//! that clock, and restarting the program changes nothing. After a restart of the machine only the
//! wall clock is left. Then a lease never runs longer than it was granted for, counted from now: if
//! the clock was set back meanwhile, leases live longer, by that much at most; if it was set
//! forward, they end early. Some machines start with a time that is years off. So a lease that has
//! ended only by the wall clock cannot be read, but is kept until that clock has run for a while
//! ([`GRACE`]), and is restored if the clock was wrong.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use swath_model::Time;

/// A moment on the machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Identifies this start of the machine; all zero if unknown.
    pub boot: [u8; 16],
    /// Time passed since then, sleep included. Never goes back.
    pub since_boot: Time,
    /// Milliseconds since 1970 by the wall clock, which may be set at any time.
    pub wall_ms: u64,
}

/// Source of the time: a parameter, so that tests need not wait.
pub trait Clock: Send + Sync {
    /// Returns the present moment.
    fn now(&self) -> Moment;
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        static BOOT: OnceLock<[u8; 16]> = OnceLock::new();
        let boot = *BOOT.get_or_init(|| {
            let Ok(text) = std::fs::read("/proc/sys/kernel/random/boot_id") else {
                return [0; 16];
            };
            let mut boot = [0; 16];
            boot.copy_from_slice(&blake3::hash(&text).as_bytes()[..16]);
            boot
        });
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let nanos = (time.tv_sec as u64).saturating_mul(1_000_000_000);
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Moment {
            boot,
            since_boot: Time::from_nanos(nanos.saturating_add(time.tv_nsec as u64)),
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// When a lease began and for how long it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) from: Moment,
    pub(crate) length: Duration,
}

impl Term {
    /// Returns how long it still runs; zero once it has ended.
    pub(crate) fn left(&self, now: &Moment) -> Duration {
        let passed = if self.is_counted(now) {
            now.since_boot.since(self.from.since_boot)
        } else {
            Duration::from_millis(now.wall_ms.saturating_sub(self.from.wall_ms))
        };
        self.length.saturating_sub(passed)
    }

    /// Returns whether the elapsed time was counted by the clock that nobody can set.
    pub(crate) fn is_counted(&self, now: &Moment) -> bool {
        let knows = now.boot != [0; 16] && now.boot == self.from.boot;
        knows && now.since_boot >= self.from.since_boot
    }
}

/// Time in which a clock that is wrong after a machine's start should be corrected.
pub(crate) const GRACE: Duration = Duration::from_secs(600);
/// Interval at which the clock is checked meanwhile.
pub(crate) const LOOK: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn moment(boot: u8, hours: u64, wall_hours: u64) -> Moment {
        Moment {
            boot: [boot; 16],
            since_boot: Time::ZERO + HOUR * hours as u32,
            wall_ms: wall_hours * 3_600_000,
        }
    }

    #[test]
    fn what_is_left_is_right_or_never_more_than_was_granted() {
        let term = Term { from: moment(1, 10, 1000), length: 5 * HOUR };
        for (now, left, story) in [
            (moment(1, 10, 1000), 5, "at once"),
            (moment(1, 12, 1002), 3, "while all is well"),
            (moment(1, 12, 1), 3, "the wall clock was set back and does not count"),
            (moment(1, 12, 9999), 3, "the wall clock was set forward and does not count"),
            (moment(1, 15, 1005), 0, "at its end"),
            (moment(1, 99, 1000), 0, "after it"),
            (moment(2, 0, 1002), 3, "after a restart of the machine"),
            (moment(2, 50, 1002), 3, "another start's time since then means nothing"),
            (moment(2, 0, 1006), 0, "ended while the machine was off"),
            (moment(2, 0, 999), 5, "set back: no longer than granted"),
            (moment(2, 0, 0), 5, "set back by years: no longer than granted"),
            (moment(1, 9, 1002), 3, "a start that is not the same after all"),
            (moment(0, 12, 1001), 4, "nobody knows which start it is"),
        ] {
            assert_eq!(term.left(&now), left * HOUR, "{story}");
        }
        let unknown = Term { from: moment(0, 10, 1000), length: 5 * HOUR };
        assert_eq!(unknown.left(&moment(0, 12, 1001)), 4 * HOUR, "two unknown starts");
    }

    #[test]
    fn the_system_has_clocks() {
        let (one, two) = (SystemClock.now(), SystemClock.now());
        assert!(two.since_boot >= one.since_boot && one.since_boot > Time::ZERO);
        assert_eq!(one.boot, two.boot);
        assert!(one.wall_ms > 1_700_000_000_000);
    }
}
