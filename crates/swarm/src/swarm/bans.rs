//! Addresses that are not let in any more, for a while, and why.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use swath_model::Time;

/// The bans of a process, for all its torrents.
#[derive(Debug, Default)]
pub(super) struct Bans(Mutex<HashMap<IpAddr, Record>>);

/// What is held against an address.
#[derive(Debug)]
struct Record {
    /// Handshakes that led nowhere.
    strikes: u32,
    last: Time,
    is_banned: bool,
}

impl Bans {
    /// Returns whether the address is banned now.
    pub fn has(&self, ip: IpAddr, now: Time) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&ip).is_some_and(|record| record.is_banned && now.since(record.last) < LASTS)
    }

    /// Something went wrong with the address; `strikes` says how bad that is. After
    /// [`STRIKES_MAX`] of them it is banned; returns whether that has happened now.
    pub fn strike(&self, ip: IpAddr, strikes: u32, now: Time) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= RECORDS_MAX && !all.contains_key(&ip) {
            all.retain(|_, record| now.since(record.last) < LASTS);
            if all.len() >= RECORDS_MAX {
                // Whoever has so many addresses is not stopped by this anyway.
                all.clear();
            }
        }
        let fresh = Record { strikes: 0, last: now, is_banned: false };
        let record = all.entry(ip).or_insert(fresh);
        if now.since(record.last) >= LASTS {
            *record = Record { strikes: 0, last: now, is_banned: false };
        }
        let was_banned = record.is_banned;
        record.strikes = record.strikes.saturating_add(strikes);
        record.last = now;
        record.is_banned = record.strikes >= STRIKES_MAX;
        record.is_banned && !was_banned
    }
}

/// Addresses are given to other people after a while.
const LASTS: Duration = Duration::from_secs(3600);
/// Several peers may share an address, and one of them may ask for another torrent.
pub(super) const STRIKES_MAX: u32 = 20;
/// More are not remembered.
const RECORDS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    #[test]
    fn bans_are_told_once_and_end() {
        let bans = Bans::default();
        assert!(bans.strike(ip(1), STRIKES_MAX, Time::ZERO));
        assert!(!bans.strike(ip(1), STRIKES_MAX, Time::ZERO));
        assert!(bans.has(ip(1), Time::ZERO) && !bans.has(ip(2), Time::ZERO));
        assert!(!bans.has(ip(1), Time::ZERO + LASTS));
        assert!(bans.strike(ip(1), STRIKES_MAX, Time::ZERO + LASTS));
    }

    #[test]
    fn many_strikes_are_a_ban() {
        let bans = Bans::default();
        let struck = (0..30).filter(|_| bans.strike(ip(1), 1, Time::ZERO)).count();
        assert!(struck == 1 && bans.has(ip(1), Time::ZERO));
        // A thousand times the memory needs a thousand times the addresses.
        for last in 0..2 * RECORDS_MAX as u32 {
            bans.strike(ip(last), 1, Time::ZERO);
        }
        assert!(bans.0.lock().unwrap().len() <= RECORDS_MAX);
    }
}
