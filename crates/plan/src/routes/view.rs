//! The part of the router's state that observers may see.

use super::name::{ReplicaId, Route, RoutedId};

/// The state of a route.
///
/// Opening → OnTrial (its first byte arrived) → InUse (it adds enough) → Closed. Each state may
/// also change to Closed. Direct routes are in use from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutedState {
    /// Requested; nothing has arrived yet.
    Opening,
    /// It brings data; whether it is worth keeping is still open.
    OnTrial,
    /// It pays.
    InUse,
    /// No longer used.
    Closed,
}

/// Why a route is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Direct routes are always open.
    Direct,
    /// The user named it.
    Named,
    /// Measurements of this or earlier transfers promise much.
    Measured,
    /// Unmeasured, but its round trips look good.
    Guessed,
    /// It replaces a lost route as the next best.
    Instead,
    /// The whole transfer became faster.
    AddsEnough,
    /// The whole transfer did not become faster.
    AddsNothing,
    /// It brought too little to be worth its connections.
    Negligible,
    /// A wider route took its place.
    Replaced,
    /// No data arrived over it.
    Silent,
    /// It was refused, or broke.
    Failed,
    /// It brought wrong data, or one of its relays did elsewhere.
    Corrupt,
    /// One of its relays is gone.
    RelayLost,
    /// Its replica is gone.
    ReplicaLost,
}

/// One route, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedView {
    /// Its number.
    pub routed_id: RoutedId,
    /// The replica.
    pub replica: ReplicaId,
    /// The relays.
    pub route: Route,
    /// Its state.
    pub state: RoutedState,
    /// The reason for the state.
    pub why: Why,
    /// Since when it has been in this state, in seconds of the transfer's clock.
    pub since_s: f64,
    /// Its present or last rate, in bytes per second.
    pub rate_bytes_per_s: f64,
    /// The rate expected when it was opened; infinite: nothing was known.
    pub promised_bytes_per_s: f64,
    /// Bytes that came over it.
    pub delivered_bytes: u64,
}
