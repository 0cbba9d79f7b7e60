//! Which leases of a depot belong to which client.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use swath_serve::Client;
use swath_store::depot::{Capability, Depot};

/// Which leases of a depot are whose.
#[derive(Debug, Default)]
pub(crate) struct Leases(Mutex<HashMap<Client, Vec<Capability>>>);

impl Leases {
    /// Whether this client may have one more: of all that the depot gives, half. Looks through its
    /// leases where it seems to have so many.
    pub fn may_grow(&self, client: Client, depot: &Depot) -> bool {
        let most = (depot.options().leases_max / 2).max(1);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = all.get_mut(&client).filter(|own| own.len() >= most) else { return true };
        own.retain(|manage| depot.status(manage).is_some());
        own.len() < most
    }

    /// This client has been given one.
    pub fn add(&self, client: Client, manage: Capability) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(client).or_default().push(manage);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use swath_store::depot::{DepotOptions, Medium, Space};

    use super::*;

    fn client(address: &str) -> Client {
        Client::from(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn nobody_has_all_leases() {
        let options = DepotOptions { memory_bytes: 1 << 20, leases_max: 4, ..Default::default() };
        let (depot, _) = Depot::open(options).unwrap();
        let lease = || {
            let hour = Duration::from_secs(3600);
            depot.allocate_with(4096, hour, Medium::Memory, Space::Reserved).unwrap().manage
        };
        let (leases, greedy, other) = (Leases::default(), client("::1"), client("192.0.2.1"));
        let first = lease();
        leases.add(greedy, first.clone());
        assert!(leases.may_grow(greedy, &depot));
        leases.add(greedy, lease());
        assert!(!leases.may_grow(greedy, &depot) && leases.may_grow(other, &depot));
        depot.release(&first).unwrap();
        assert!(leases.may_grow(greedy, &depot), "what has ended does not count");
    }
}
