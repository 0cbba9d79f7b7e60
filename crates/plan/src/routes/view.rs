//! What observers may see of the router's state.

use super::name::{ReplicaId, Route, RoutedId};

/// What a route is doing.
///
/// Opening → OnTrial (it brought its first byte) → InUse (it adds enough) → Closed; from each of
/// them to Closed. Direct routes are in use from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutedState {
    /// Asked for; nothing has come yet.
    Opening,
    /// It brings something; whether that is worth it is being found out.
    OnTrial,
    /// It pays.
    InUse,
    /// Not used any more.
    Closed,
}

/// Why a route is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Direct is always there.
    Direct,
    /// The user named it.
    Named,
    /// Earlier measurements, or those of this transfer, promise much of it.
    Measured,
    /// Nobody has measured it, and it looks good by its round trips.
    Guessed,
    /// Another route was lost, and this is the next best.
    Instead,
    /// The whole became faster by it.
    AddsEnough,
    /// The whole did not become faster by it.
    AddsNothing,
    /// It came to too little to be worth its connections.
    Negligible,
    /// A wider one took its place.
    Replaced,
    /// Nothing came over it.
    Silent,
    /// It was refused, or broke.
    Failed,
    /// It brought what is not the data, or a relay of it did elsewhere.
    Corrupt,
    /// A relay of it is gone.
    RelayLost,
    /// Its replica is gone.
    ReplicaLost,
}

/// One route, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedView {
    /// Its number.
    pub routed_id: RoutedId,
    /// From which replica.
    pub replica: ReplicaId,
    /// Over which relays.
    pub route: Route,
    /// What it is doing.
    pub state: RoutedState,
    /// Why.
    pub why: Why,
    /// Since when it has been doing that, in seconds of the transfer's clock.
    pub since_s: f64,
    /// What it brings, or brought at last, in bytes per second.
    pub rate_bytes_per_s: f64,
    /// What it was thought to bring when it was opened; infinite: nothing was known.
    pub promised_bytes_per_s: f64,
    /// Bytes that came over it.
    pub delivered_bytes: u64,
}
