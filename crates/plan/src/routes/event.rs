//! What goes into the router and what comes out of it.

use super::graph::Reading;
use super::name::{ReplicaId, Route, RoutedId, SiteId};

/// Something that happened, told to [`super::Router::handle`].
#[derive(Clone, Debug, PartialEq)]
pub enum RouteEvent {
    /// A replica is known, and where it is. Several replicas may be at one site.
    ReplicaAdded {
        /// Which.
        replica: ReplicaId,
        /// Its origin.
        site: SiteId,
    },
    /// A replica is no use any more, over whatever route: it disagrees with the others, or it lied.
    ReplicaLost {
        /// Which.
        replica: ReplicaId,
    },
    /// A relay answers.
    RelayUp {
        /// Which.
        site: SiteId,
    },
    /// A relay does not answer (any more).
    RelayLost {
        /// Which.
        site: SiteId,
    },
    /// A relay that was to be asked ([`RouteAction::Ask`]) answers.
    RelayAnswered {
        /// Which.
        site: SiteId,
        /// It did not at first: whatever was the matter with it is over.
        was_silent: bool,
    },
    /// How long it takes from `to` to `from` and back, told by `to` (a relay, or us).
    RoundTrip {
        /// Where data would come from.
        from: SiteId,
        /// Where it would go.
        to: SiteId,
        /// In seconds; `None`: `to` cannot reach `from`, or may not.
        rtt_s: Option<f64>,
    },
    /// What an earlier transfer, or another one on this machine, measured.
    Remembered {
        /// Where data came from.
        from: SiteId,
        /// Where it went.
        to: SiteId,
        /// What was measured, and how long ago.
        reading: Reading,
    },
    /// What a relay says of itself that it measured lately on its hop from `from`, not on behalf of
    /// this transfer.
    Claimed {
        /// The relay, to which the data came.
        by: SiteId,
        /// Where it came from.
        from: SiteId,
        /// What it says.
        reading: Reading,
    },
    /// What the relays of a route said of their hops in the head of an answer.
    Reported {
        /// The route that the answer came over.
        routed_id: RoutedId,
        /// In any order; of relays that said nothing there is no entry.
        hops: Vec<HopReport>,
    },
    /// A route is gone and need not be closed.
    RoutedFailed {
        /// Which.
        routed_id: RoutedId,
        /// How.
        fault: Fault,
        /// At which site, if that is known.
        at: Option<SiteId>,
    },
    /// How the routes are doing; to be told every 0.1 s or so.
    Progress {
        /// Each route that is open.
        routed_sources: Vec<(RoutedId, RoutedNow)>,
        /// What is still to be fetched; `None` while that is not known.
        left_bytes: Option<u64>,
    },
}

/// What a relay reports of its upstream hop (one entry of `Server-Timing`). Missing: unknown.
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
    /// The part of that time in which the relay could take no more, because its own downstream was
    /// full; 0 to 1.
    pub held: Option<f64>,
    /// Bytes per second while it was not held up: what the hop seems able to bring.
    pub able_bytes_per_s: Option<f64>,
}

/// How a route is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoutedNow {
    /// What has come over it since it was opened; what an earlier route over the same relays brought is
    /// not its own. Never decreases.
    pub delivered_bytes: u64,
    /// Nothing arrives although something was asked for.
    pub silent: bool,
    /// Something is asked for: if not, it is not to blame for its rate.
    pub busy: bool,
    /// A limit that is our own holds it up: what comes over it is less than it could bring.
    pub held: bool,
    /// It waits for us: for that limit, for our disk, or for whoever takes what came.
    pub awaits_us: bool,
}

/// Why a route is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A relay, or the origin, does not want to: not allowed, full, too many hops, a loop.
    Refused,
    /// Cannot be reached, reset, timed out, cut short, time and again.
    Broken,
    /// What came over it was not what the origin has.
    Corrupt,
    /// It was out for good already, for what was told then: nothing new is held against anybody.
    Final,
}

/// Something to do, answered by [`super::Router::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteAction {
    /// Fetch over one more route, as from one more source.
    Open {
        /// Its number.
        routed_id: RoutedId,
        /// From which replica.
        replica: ReplicaId,
        /// Over which relays.
        route: Route,
        /// Whether one lane is enough for now: it has yet to show that it is worth more.
        on_trial: bool,
    },
    /// A route has passed its trial: it may have as many lanes as pay.
    Use {
        /// Which.
        routed_id: RoutedId,
    },
    /// What came by this relay fell silent: ask it whether it is well, again and again until it is, and
    /// tell that ([`RouteEvent::RelayAnswered`]).
    Ask {
        /// Which.
        site: SiteId,
    },
    /// Fetch over this route no longer. It is not spoken of again.
    Close {
        /// Which.
        routed_id: RoutedId,
    },
}
