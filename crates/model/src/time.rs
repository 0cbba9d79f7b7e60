//! Points in time that are passed in, never read.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on a monotonic clock, in nanoseconds since that clock's own zero (usually the start of a
/// transfer). The real executor and the simulator each have their own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The clock's zero.
    pub const ZERO: Time = Time(0);
    /// Later than every other point.
    pub const MAX: Time = Time(u64::MAX);

    /// Returns `nanos` nanoseconds after zero.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns `millis` milliseconds after zero.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Returns `seconds` after zero; negative values and NaN count as zero.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds.max(0.0) * 1e9) as u64)
    }

    /// Returns the nanoseconds since zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the seconds since zero.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the time passed since `earlier`, zero if that lies in the future.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the seconds passed since `earlier`, zero if that lies in the future.
    pub fn secs_since(self, earlier: Time) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e9
    }

    /// Returns this point moved later by `seconds` (negative values do not move it).
    pub fn plus_secs(self, seconds: f64) -> Time {
        if !seconds.is_finite() {
            return Time::MAX;
        }
        Time(self.0.saturating_add((seconds.max(0.0) * 1e9) as u64))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, by: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.as_secs_f64())
    }
}
