//! What the user chose about routes, and what all transfers of an engine share of them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use swath_formats::relay;
use swath_plan::routes::{Grade, Mode, Reading, Route, RouterConfig, SiteId};
use swath_source::{RelayAccess, RelayMode};
use swath_state::{By, EdgeReading, HERE, Measured, NewsCursor, RelayNote, State};
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
    /// Whether relays see what they pass on.
    pub relay_mode: RelayMode,
    /// What earlier transfers have learnt, and what this one learns; nothing if `None`.
    pub state: Option<State>,
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
    /// Sources that did not answer without relays, and when.
    mute: Mutex<HashMap<String, Instant>>,
}

/// What is remembered of a hop.
pub(crate) struct Known {
    pub from: String,
    pub to: String,
    pub reading: Option<Reading>,
    pub rtt_s: Option<f64>,
}

/// What one transfer has measured on a hop.
#[derive(Clone)]
pub(crate) struct Learnt {
    pub from: String,
    pub to: String,
    /// `None` where only the round trip is known.
    pub reading: Option<Reading>,
    pub rtt_s: Option<f64>,
    pub is_used: bool,
}

/// What one transfer hears and tells of the memory that all share.
#[derive(Default)]
pub(crate) struct Memory {
    state: Option<State>,
    mark: NewsCursor,
}

impl Memory {
    /// What earlier transfers have measured, and others of this machine measure now, since the last
    /// time.
    pub fn news(&mut self) -> Vec<Known> {
        let Some(state) = &self.state else { return Vec::new() };
        let known = state.changed_since(&mut self.mark).into_iter().map(|edge| Known {
            from: edge.from,
            to: edge.to,
            reading: edge.measured.map(|it| Reading {
                rate_bytes_per_s: it.rate_bytes_per_s,
                grade: match it.grade {
                    swath_state::Grade::AtLeast => Grade::AtLeast,
                    swath_state::Grade::Exact => Grade::Exact,
                },
                age_s: it.age_s,
            }),
            rtt_s: edge.rtt_s,
        });
        known.collect()
    }

    /// What has gone wrong with the file since the last time: each of it is told to one transfer, once.
    pub fn warnings(&self) -> Vec<String> {
        let warnings = self.state.iter().flat_map(|state| state.warnings());
        warnings.map(|warning| warning.to_string()).collect()
    }

    /// For those to come, and others of this machine.
    pub fn learn(&self, learnt: Vec<Learnt>) {
        let Some(state) = &self.state else { return };
        let readings = learnt.into_iter().map(|it| {
            let by = if it.to == HERE { By::Us } else { By::Relay(it.to.clone()) };
            let measured = it.reading.map(|reading| Measured {
                rate_bytes_per_s: reading.rate_bytes_per_s,
                grade: match reading.grade {
                    Grade::AtLeast => swath_state::Grade::AtLeast,
                    Grade::Exact => swath_state::Grade::Exact,
                },
                age_s: reading.age_s,
                by,
            });
            let (from, to, rtt_s, is_used) = (it.from, it.to, it.rtt_s, it.is_used);
            EdgeReading { from, to, measured, rtt_s, is_used }
        });
        state.note(readings.collect());
    }

    /// A relay has answered, or why it has not.
    pub fn met(&self, relay: &Url, error: Option<String>) {
        if let Some(state) = &self.state {
            let url = relay.origin().ascii_serialization();
            state.note_relay(RelayNote { url, public_key: None, error });
        }
    }
}

impl Routes {
    /// What we are called where sites are named.
    pub const HERE: &str = HERE;

    /// `None` where there are no relays to be used.
    pub fn of(options: &RouteOptions) -> Option<Routes> {
        let has_some = !options.relays.is_empty() && options.choice != RouteChoice::Direct;
        let shared =
            || Shared { options: options.clone(), told: Mutex::default(), mute: Mutex::default() };
        has_some.then(|| Routes { shared: Arc::new(shared()) })
    }

    /// The same relays and the same memory, for other routes.
    pub fn by(&self, choice: RouteChoice) -> Routes {
        let options = RouteOptions { choice, ..self.shared.options.clone() };
        Routes {
            shared: Arc::new(Shared { options, told: Mutex::default(), mute: Mutex::default() }),
        }
    }

    /// The choice.
    pub fn choice(&self) -> &RouteChoice {
        &self.shared.options.choice
    }

    /// Whether relays see what they pass on.
    pub fn relay_mode(&self) -> RelayMode {
        self.shared.options.relay_mode
    }

    /// Whether a relay may hear of another site. Where relays are only to carry, and the route is named,
    /// each hears where it is to lead to, and of nobody behind that.
    pub fn may_tell(&self, relay: SiteId, of: SiteId) -> bool {
        let RouteChoice::Fixed(named) = self.choice() else { return true };
        if self.relay_mode() != RelayMode::Tunnel {
            return true;
        }
        let place = |site: SiteId| named.iter().position(|&at| at as u32 + 1 == site.0);
        let is_relay = of.0 as usize <= self.shared.options.relays.len();
        match (place(relay), place(of)) {
            (Some(own), Some(other)) => other == own + 1,
            (Some(own), None) => own + 1 == named.len() && !is_relay,
            (None, _) => false,
        }
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
    pub fn note_lost(&self, name: &str) -> bool {
        let mut told = self.shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(name.to_owned())
    }

    /// The source at `url` does not answer without relays.
    pub fn note_mute(&self, url: &Url) {
        let mut mute = self.shared.mute.lock().unwrap_or_else(PoisonError::into_inner);
        mute.retain(|_, since| since.elapsed() < MUTE_FOR);
        mute.insert(relay::site(url).unwrap_or_default(), Instant::now());
    }

    /// Whether that was so a moment ago.
    pub fn is_mute(&self, url: &Url) -> bool {
        let mute = self.shared.mute.lock().unwrap_or_else(PoisonError::into_inner);
        let since = relay::site(url).and_then(|site| mute.get(&site).copied());
        since.is_some_and(|since| since.elapsed() < MUTE_FOR)
    }

    /// The memory, for one transfer.
    pub fn memory(&self) -> Memory {
        Memory { state: self.shared.options.state.clone(), mark: NewsCursor::default() }
    }
}

/// A list of files by a route that was named does not wait for each of them for a source that only
/// relays reach.
const MUTE_FOR: Duration = Duration::from_secs(60);

/// Transfers that begin together are not to do the same at the same moments.
fn seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos() as u64);
    nanos ^ u64::from(std::process::id()).rotate_left(40)
}
