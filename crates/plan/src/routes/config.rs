//! What a user may set about routes, and the defaults.

use super::graph::Aging;
use super::name::Route;

/// Which routes may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Direct, and any relay routes that pay, if there is time to find out.
    Auto,
    /// No relays.
    Direct,
    /// These routes to each replica, and no others.
    Fixed(Vec<Route>),
    /// The widest route, one at a time, with direct as fallback.
    Widest,
    /// As many routes as pay; tried even if little time is left.
    Multi,
}

/// Settings of a router.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Which routes may be used.
    pub mode: Mode,
    /// Most edges of a route; relays refuse longer ones.
    pub hops_max: usize,
    /// Most edges of a route that the router chooses itself. Further relays gain ever less, and
    /// each is one more that may be slow, lie or fail.
    pub hops_tried_max: usize,
    /// Most relay routes in use at once. Each costs every relay on it buffers and connections. More
    /// than eight parallel routes have not paid on any map that was tried.
    pub ways_max: usize,
    /// Most routes on trial at once. More trials find out sooner but disturb more.
    pub trials_max: usize,
    /// Most relays considered at once: those nearest to us and the replicas. The cost of a decision
    /// grows with the square of it.
    pub relays_max: usize,
    /// Most relay routes tried in one transfer; each remains a source of the transfer.
    pub routes_max: usize,
    /// Gain that `Widest` requires before it changes routes, as a part of the current rate. It
    /// stops routes with swinging rates from taking turns.
    pub switch_gain: f64,
    /// How readings age.
    pub aging: Aging,
    /// Seed of all jitter, so that transfers that start together do not act at the same moments.
    pub seed: u64,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            hops_max: 8,
            hops_tried_max: 5,
            ways_max: 8,
            trials_max: 3,
            relays_max: 32,
            routes_max: 500,
            switch_gain: 0.15,
            aging: Aging { after_s: 60.0, factor: 1.1, per_turn: 2 },
            seed: 0,
        }
    }
}
