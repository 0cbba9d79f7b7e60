//! Which version of a feed is the newest.
//!
//! Times count where all versions have one that can be true. People publish a version with a wrong year, and
//! programs write dates that nobody can read: then the order of the feed decides. Feeds begin with the newest,
//! unless their times say that they end with it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the position of the newest of versions that a feed says to be published at these times, in
/// seconds since 1970; `None` if there are none.
pub fn newest(times: &[Option<u64>], now_s: u64) -> Option<usize> {
    let told: Vec<u64> = times.iter().filter_map(|time| plausible(*time, now_s)).collect();
    if told.len() == times.len() {
        let told = told.iter().enumerate();
        return told.max_by_key(|(at, time)| (**time, std::cmp::Reverse(*at))).map(|(at, _)| at);
    }
    let ends_with_newest = told.first() < told.last();
    if ends_with_newest { times.len().checked_sub(1) } else { Some(0) }
}

/// Returns a time that can be that of a version: not one in the future, as clocks go.
pub fn plausible(time_s: Option<u64>, now_s: u64) -> Option<u64> {
    time_s.filter(|time_s| *time_s <= now_s.saturating_add(CLOCKS_DIFFER_S))
}

/// Returns the time in seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Some take their zone for UTC.
const CLOCKS_DIFFER_S: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_where_all_can_be_true_and_else_the_order() {
        let (now, future) = (1_000_000, 9_000_000);
        for (times, expected) in [
            (&[][..], None),
            (&[Some(5), Some(7), Some(7)], Some(1)),
            (&[None, None], Some(0)),
            // A date that nobody can read: a dated version is not newer for that.
            (&[None, Some(5)], Some(0)),
            (&[None, Some(9), Some(5)], Some(0)),
            (&[Some(5), None], Some(0)),
            (&[Some(5), Some(9), None], Some(2)),
            // A wrong year, in feeds that begin and that end with the newest.
            (&[Some(9), Some(future), Some(5)], Some(0)),
            (&[Some(5), Some(future), Some(9)], Some(2)),
            (&[Some(future), Some(5)], Some(0)),
            (&[Some(5), Some(future)], Some(0)),
        ] {
            assert_eq!(newest(times, now), expected, "{times:?}");
        }
        assert_eq!(plausible(Some(now + 3600), now), Some(now + 3600));
    }
}
