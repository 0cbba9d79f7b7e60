//! How many connections one address may have.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the connections of each address.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// The right to have a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    ip: IpAddr,
}

impl Places {
    /// Returns a place for another connection of `ip`, which may have `max`.
    pub fn take(&self, ip: IpAddr, max: usize) -> Option<Place> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(ip).or_insert(0);
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), ip })
    }

    /// Returns whether `ip` may have another connection, of `max`.
    pub fn has_room(&self, ip: IpAddr, max: usize) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&ip).is_none_or(|count| *count < max)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_free() {
        let places = Places::default();
        let ip = IpAddr::from([192, 0, 2, 1]);
        let held: Vec<_> = (0..3).filter_map(|_| places.take(ip, 2)).collect();
        assert_eq!(held.len(), 2);
        assert!(places.take(IpAddr::from([192, 0, 2, 2]), 2).is_some());
        drop(held);
        assert!(places.take(ip, 2).is_some() && places.0.lock().unwrap().is_empty());
    }
}
