//! What a user may set about routes, and the defaults.

use super::graph::Aging;
use super::name::Route;

/// Which routes may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Direct, and whatever pays beside it, if there is time to find out.
    Auto,
    /// No relays.
    Direct,
    /// These routes to each replica, and no others.
    Fixed(Vec<Route>),
    /// The widest route, one at a time, with direct beside it to fall back to.
    Widest,
    /// As many routes as pay, tried also where there is little time left.
    Multi,
}

/// How a router behaves.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Which routes may be used.
    pub mode: Mode,
    /// Most edges of a route: relays refuse more than this.
    pub hops_max: usize,
    /// Most edges of a route that is chosen here, not by the user. More relays bring ever less, and
    /// each is one more that may be slow, or lie, or fail.
    pub hops_tried_max: usize,
    /// Most routes through relays in use at once. Each costs every relay on it buffers and
    /// connections; more than eight parallel routes have not paid on any map that was tried.
    pub ways_max: usize,
    /// Most routes on trial at once. More find out sooner and disturb more.
    pub trials_max: usize,
    /// Most relays that are thought about at once: those nearest to us and the replicas. A decision
    /// costs the square of it.
    pub relays_max: usize,
    /// Most routes through relays that are tried in one transfer: each stays a source of it.
    pub routes_max: usize,
    /// A change of the widest route needs this part more than what is in use, so that routes whose
    /// rates swing do not take turns.
    pub switch_gain: f64,
    /// How readings age.
    pub aging: Aging,
    /// Seed of all jitter: transfers that begin together are not to move at the same moments.
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
