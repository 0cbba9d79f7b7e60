//! Limits how often one address may announce.
//!
//! Each client has a token bucket, kept as the time at which it will be full again (GCRA). The table
//! has a fixed size. When it has no free place, a new client takes the place of one whose bucket is
//! full, or fullest: forgetting a full bucket changes nothing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use swath_model::Time;
use swath_serve::Client;

/// Announces of all clients.
#[derive(Debug)]
pub struct FloodGuard {
    /// Between two announces, on average.
    spacing: Duration,
    /// Makes it impossible to choose addresses that share places.
    seed: u64,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// A hash of the client; 0 is nobody.
    client: u64,
    /// When its bucket is full again.
    full_at: Time,
}

impl FloodGuard {
    /// Allows each client `per_s` announces per second on average, and as many as in [`BURST_S`]
    /// seconds at once.
    pub fn new(per_s: u32, seed: u64) -> FloodGuard {
        let spacing = Duration::from_secs(1) / per_s.max(1);
        FloodGuard { spacing, seed, places: vec![Place::default(); PLACES] }
    }

    /// Takes a token of the client. Without one, returns how long it will take until there is one.
    ///
    /// # Errors
    /// The time to wait.
    pub fn admit(&mut self, client: Client, now: Time) -> Result<(), Duration> {
        let mut hasher = DefaultHasher::new();
        (self.seed, client).hash(&mut hasher);
        let hash = hasher.finish().max(1);
        let row = hash as usize % (PLACES / WAYS) * WAYS;
        let row = &mut self.places[row..row + WAYS];
        let own = row.iter().position(|place| place.client == hash);
        let fullest = || (0..WAYS).min_by_key(|at| row[*at].full_at).unwrap_or(0);
        let at = own.unwrap_or_else(fullest);
        let place = &mut row[at];
        if place.client != hash {
            *place = Place { client: hash, full_at: now };
        }
        let full_at = place.full_at.max(now) + self.spacing;
        let too_early = full_at.since(now).saturating_sub(Duration::from_secs(BURST_S));
        if !too_early.is_zero() {
            return Err(too_early);
        }
        place.full_at = full_at;
        Ok(())
    }
}

/// A bucket holds the tokens of so many seconds: a client that starts announces all its torrents.
pub const BURST_S: u64 = 60;
/// Clients in the table, in 2 MiB.
const PLACES: usize = 1 << 17;
/// Places that come into question for one client.
const WAYS: usize = 8;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn client(number: u32) -> Client {
        Client::from(IpAddr::from((10 << 24 | number).to_be_bytes()))
    }

    fn at(s: u64) -> Time {
        Time::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn a_client_gets_its_rate_after_its_burst_and_another_is_not_concerned() {
        let mut guard = FloodGuard::new(20, 1);
        let admitted = |guard: &mut FloodGuard, number, now| {
            (0..5000).filter(|_| guard.admit(client(number), now).is_ok()).count()
        };
        assert_eq!(admitted(&mut guard, 1, at(100)), 20 * 60);
        assert_eq!(guard.admit(client(1), at(100)), Err(Duration::from_millis(50)));
        assert_eq!(guard.admit(client(2), at(100)), Ok(()));
        assert_eq!(admitted(&mut guard, 1, at(103)), 3 * 20);
        assert_eq!(admitted(&mut guard, 1, at(1000)), 20 * 60);
    }

    #[test]
    fn the_table_has_a_fixed_size_and_keeps_those_who_announce_most() {
        let mut guard = FloodGuard::new(1, 1);
        while guard.admit(client(0), at(0)).is_ok() {}
        // More clients than places, each with a token or two less than a full bucket.
        for number in 1..300_000 {
            assert_eq!(guard.admit(client(number), at(0)), Ok(()));
        }
        assert!(guard.admit(client(0), at(0)).is_err());
        assert_eq!(guard.places.len(), PLACES);
    }
}
