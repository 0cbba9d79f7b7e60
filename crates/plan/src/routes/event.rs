//! Events and actions of the router.

use super::graph::Reading;
use super::name::{ReplicaId, Route, RoutedId, SiteId};

/// An event for [`super::Router::handle`].
#[derive(Clone, Debug, PartialEq)]
pub enum RouteEvent {
    /// A replica was found at a site. Several replicas may be at one site.
    ReplicaAdded {
        /// The replica.
        replica: ReplicaId,
        /// Its origin.
        site: SiteId,
    },
    /// A replica is of no use over any route: it disagrees with the others, or it lied.
    ReplicaLost {
        /// The replica.
        replica: ReplicaId,
    },
    /// A relay answers.
    RelayUp {
        /// The relay.
        site: SiteId,
    },
    /// A relay does not answer, or no longer.
    RelayLost {
        /// The relay.
        site: SiteId,
    },
    /// A relay that was asked ([`RouteAction::Ask`]) answers.
    RelayAnswered {
        /// The relay.
        site: SiteId,
        /// It did not answer at first; whatever was wrong is over.
        was_silent: bool,
    },
    /// Round trip between `from` and `to`, measured by `to` (a relay, or us).
    RoundTrip {
        /// Where data would come from.
        from: SiteId,
        /// Where it would go.
        to: SiteId,
        /// In seconds; `None`: `to` cannot reach `from`, or may not.
        rtt_s: Option<f64>,
    },
    /// Measurement of an earlier transfer, or of another one on this machine.
    Remembered {
        /// Where data came from.
        from: SiteId,
        /// Where it went.
        to: SiteId,
        /// The rate and its age.
        reading: Reading,
    },
    /// A relay's own recent measurement of its hop from `from`, not made for this transfer.
    Claimed {
        /// The relay, to which the data came.
        by: SiteId,
        /// Where it came from.
        from: SiteId,
        /// The reported rate and its age.
        reading: Reading,
    },
    /// Reports of a route's relays on their hops, from the head of an answer.
    Reported {
        /// The route of the answer.
        routed_id: RoutedId,
        /// In any order; relays that reported nothing are missing.
        hops: Vec<HopReport>,
    },
    /// A route is gone and need not be closed.
    RoutedFailed {
        /// The route.
        routed_id: RoutedId,
        /// The cause.
        fault: Fault,
        /// The site of the fault, if known.
        at: Option<SiteId>,
    },
    /// How the routes are doing; expected every 0.1 s or so.
    Progress {
        /// Every open route.
        routed_sources: Vec<(RoutedId, RoutedNow)>,
        /// Bytes still to fetch; `None` if unknown.
        left_bytes: Option<u64>,
    },
}

/// A relay's report on its upstream hop (one entry of `Server-Timing`). `None`: unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HopReport {
    /// The relay that reports.
    pub relay: SiteId,
    /// Where its data comes from: the next relay, or the origin.
    pub from: SiteId,
    /// Round trip in seconds.
    pub rtt_s: Option<f64>,
    /// Bytes per second that flowed lately, for us.
    pub rate_bytes_per_s: Option<f64>,
    /// Part of that time in which the relay could take no more because its downstream side was
    /// full, from 0 to 1.
    pub held: Option<f64>,
    /// Bytes per second while it was not held up: what the hop seems able to bring.
    pub able_bytes_per_s: Option<f64>,
}

/// How a route is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoutedNow {
    /// Bytes delivered since the route was opened, without those of an earlier route over the same
    /// relays. Never decreases.
    pub delivered_bytes: u64,
    /// Nothing arrives although something was requested.
    pub silent: bool,
    /// Something is requested. If not, the route is not to blame for its rate.
    pub busy: bool,
    /// A local limit holds it up: it could bring more than it does.
    pub held: bool,
    /// It waits for us: for that limit, for the disk, or for the reader of the output.
    pub awaits_us: bool,
}

/// Why a route is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A relay or the origin refuses: not allowed, full, too many hops, a loop.
    Refused,
    /// Unreachable, reset, timed out or cut short, repeatedly.
    Broken,
    /// Its bytes differed from those of the origin.
    Corrupt,
    /// It had already failed for good; this adds no new blame.
    Final,
}

/// An action from [`super::Router::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteAction {
    /// Fetch over one more route, as from one more source.
    Open {
        /// The new route's number.
        routed_id: RoutedId,
        /// The replica.
        replica: ReplicaId,
        /// The relays.
        route: Route,
        /// Whether one lane is enough for now, because the route is on trial.
        on_trial: bool,
    },
    /// A route has passed its trial: it may have as many lanes as pay.
    Use {
        /// The route.
        routed_id: RoutedId,
    },
    /// Data through this relay fell silent: ask whether it is well, repeatedly until it is, then
    /// report that ([`RouteEvent::RelayAnswered`]).
    Ask {
        /// The relay.
        site: SiteId,
    },
    /// Stop fetching over this route. No further action concerns it.
    Close {
        /// The route.
        routed_id: RoutedId,
    },
}
