//! How much a depot has to give.

use futures_util::future::BoxFuture;
use serde_json::Value;
use url::Url;

use super::depot::{DepotError, no_depot};
use crate::net::Net;

impl Net {
    /// Returns how many bytes the depot of `relay` says it can lease still, where it leases to those who do not
    /// ask for memory. That may be another figure the next moment.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub fn depot_room<'a>(&'a self, relay: &'a Url) -> BoxFuture<'a, Result<u64, DepotError>> {
        Box::pin(async move {
            self.note_relay(relay);
            let bare = crate::shown::without_credentials(relay);
            let target = bare.join("/depot").map_err(|_| no_depot())?;
            let told = self.depot_told("GET", &target).await?;
            free_bytes(&told).ok_or_else(no_depot)
        })
    }
}

/// Returns what is free on the disk, or in memory where there is nothing else.
fn free_bytes(told: &Value) -> Option<u64> {
    let of = |medium: &str, figure: &str| told.get(medium)?.get(figure)?.as_u64();
    let free = of("disk", "free_bytes")?;
    let has_disk = free > 0 || of("disk", "taken_bytes") != Some(0);
    if has_disk { Some(free) } else { of("memory", "free_bytes").or(Some(free)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_free_is_that_of_the_medium_which_it_leases() {
        let of = |free: u64, taken: u64| json!({"free_bytes": free, "taken_bytes": taken});
        let told = |disk, memory| free_bytes(&json!({"disk": disk, "memory": memory}));
        assert_eq!(told(of(10, 0), of(99, 0)), Some(10));
        assert_eq!(told(of(0, 10), of(99, 0)), Some(0));
        assert_eq!(told(of(0, 0), of(99, 1)), Some(99));
        assert_eq!(free_bytes(&json!({"disk": {"free_bytes": 0, "taken_bytes": 0}})), Some(0));
        for other in [json!({}), json!({"disk": 9}), json!({"disk": {"free_bytes": "9"}})] {
            assert_eq!(free_bytes(&other), None);
        }
    }
}
