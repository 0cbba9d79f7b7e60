//! What the user chose about routes, and what all transfers of an engine share of them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use swath_plan::routes::{Mode, Reading, Route, RouterConfig, SiteId};
use swath_source::RelayAccess;
use url::Url;

/// Which routes a transfer takes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum RouteChoice {
    /// Direct, and by relays where that pays.
    #[default]
    Auto,
    /// Without relays.
    Direct,
    /// By these relays and no others, the nearest first; each a place in the list of relays.
    Fixed(Vec<usize>),
    /// By the widest route, one at a time.
    Widest,
    /// By as many routes as pay.
    Multi,
}

/// Relays, and how they are used.
#[derive(Clone, Debug, Default)]
pub struct RouteOptions {
    /// The relays that the user named.
    pub relays: Vec<RelayAccess>,
    /// Which routes are taken.
    pub choice: RouteChoice,
}

/// An engine's routes; clones are the same.
#[derive(Clone)]
pub(crate) struct Routes {
    shared: Arc<Shared>,
}

struct Shared {
    options: RouteOptions,
    /// Relays of which it was told that they are not used.
    told: Mutex<HashSet<String>>,
}

/// What is remembered of a hop.
pub(crate) struct Known {
    pub from: String,
    pub to: String,
    pub reading: Option<Reading>,
    pub rtt_s: Option<f64>,
}

impl Routes {
    /// What we are called where sites are named.
    pub const HERE: &str = "here";

    /// `None` where there are no relays to be used.
    pub fn of(options: &RouteOptions) -> Option<Routes> {
        let has_some = !options.relays.is_empty() && options.choice != RouteChoice::Direct;
        let shared = || Shared { options: options.clone(), told: Mutex::default() };
        has_some.then(|| Routes { shared: Arc::new(shared()) })
    }

    /// The choice.
    pub fn choice(&self) -> &RouteChoice {
        &self.shared.options.choice
    }

    /// The relays' addresses.
    pub fn relays(&self) -> Vec<Url> {
        self.shared.options.relays.iter().map(|relay| relay.url.clone()).collect()
    }

    /// For the router of one transfer. Relays must have been told to it in their order, before any
    /// replica, if a route is fixed.
    pub fn config(&self) -> RouterConfig {
        let mode = match self.choice() {
            RouteChoice::Auto => Mode::Auto,
            RouteChoice::Direct => Mode::Direct,
            RouteChoice::Widest => Mode::Widest,
            RouteChoice::Multi => Mode::Multi,
            RouteChoice::Fixed(relays) => {
                let relays = relays.iter().map(|&at| SiteId(at as u32 + 1)).collect();
                Mode::Fixed(vec![Route::through(relays)])
            }
        };
        RouterConfig { mode, seed: seed(), ..RouterConfig::default() }
    }

    /// Whether it is news that a relay is not used.
    pub fn note_lost(&self, name: &str, _why: &str) -> bool {
        let mut told = self.shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(name.to_owned())
    }

    /// What earlier transfers and others of this machine have measured.
    pub fn remembered(&self) -> Vec<Known> {
        Vec::new()
    }

    /// For those to come, and others of this machine: from, to, what was measured, and the round trip.
    pub fn learn(&self, _learnt: Vec<(String, String, Reading, Option<f64>)>) {}
}

/// Transfers that begin together are not to do the same at the same moments.
fn seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos() as u64);
    nanos ^ u64::from(std::process::id()).rotate_left(40)
}
