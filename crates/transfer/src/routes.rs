//! The user's choice of routes, and the state of routes that all transfers of an engine share.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use swath_formats::relay;
use swath_plan::routes::{Grade, Mode, Reading, Route, RouterConfig, SiteId};
use swath_source::{RelayAccess, RelayMode};
use swath_state::{By, EdgeReading, HERE, Measured, NewsCursor, RelayNote, State};
use url::Url;

/// The routes that a transfer takes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum RouteChoice {
    /// Direct, and by relays if that is faster.
    #[default]
    Auto,
    /// Without relays.
    Direct,
    /// By exactly these relays, the nearest first; each is a place in the list of relays.
    Fixed(Vec<usize>),
    /// By the widest route, one at a time.
    Widest,
    /// By as many routes as help.
    Multi,
}

/// Relays, and how they are used.
#[derive(Clone, Debug, Default)]
pub struct RouteOptions {
    /// The user's relays.
    pub relays: Vec<RelayAccess>,
    /// The routes to take.
    pub choice: RouteChoice,
    /// Whether relays can read the data.
    pub relay_mode: RelayMode,
    /// The memory of measurements; nothing is remembered if `None`.
    pub state: Option<State>,
}

/// An engine's routes; clones share their state.
#[derive(Clone)]
pub(crate) struct Routes {
    shared: Arc<Shared>,
}

struct Shared {
    options: RouteOptions,
    /// Relays already reported as not used.
    told: Mutex<HashSet<String>>,
    /// Sources that did not answer without relays, and the time of that.
    mute: Mutex<HashMap<String, Instant>>,
}

/// Remembered measurements of a hop.
pub(crate) struct Known {
    pub from: String,
    pub to: String,
    pub reading: Option<Reading>,
    pub rtt_s: Option<f64>,
}

/// New measurements of a hop.
#[derive(Clone)]
pub(crate) struct Learnt {
    pub from: String,
    pub to: String,
    /// `None` if only the round trip is known.
    pub reading: Option<Reading>,
    pub rtt_s: Option<f64>,
    pub is_used: bool,
}

/// One transfer's access to the shared memory.
#[derive(Default)]
pub(crate) struct Memory {
    state: Option<State>,
    mark: NewsCursor,
}

impl Memory {
    /// Returns measurements new since the last call, of earlier transfers and of others on this
    /// machine.
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

    /// Returns new problems with the file of the memory: each goes to one transfer, once.
    pub fn warnings(&self) -> Vec<String> {
        let warnings = self.state.iter().flat_map(|state| state.warnings());
        warnings.map(|warning| warning.to_string()).collect()
    }

    /// Saves measurements for later transfers and for others on this machine.
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

    /// Notes that a relay has answered, or why not.
    pub fn met(&self, relay: &Url, error: Option<String>) {
        if let Some(state) = &self.state {
            let url = relay.origin().ascii_serialization();
            state.note_relay(RelayNote { url, public_key: None, error });
        }
    }
}

impl Routes {
    /// The name of this machine among sites.
    pub const HERE: &str = HERE;

    /// Returns the routes; `None` if no relays are used.
    pub fn of(options: &RouteOptions) -> Option<Routes> {
        let has_some = !options.relays.is_empty() && options.choice != RouteChoice::Direct;
        let shared =
            || Shared { options: options.clone(), told: Mutex::default(), mute: Mutex::default() };
        has_some.then(|| Routes { shared: Arc::new(shared()) })
    }

    /// Returns other routes with the same relays and memory.
    pub fn by(&self, choice: RouteChoice) -> Routes {
        let options = RouteOptions { choice, ..self.shared.options.clone() };
        Routes {
            shared: Arc::new(Shared { options, told: Mutex::default(), mute: Mutex::default() }),
        }
    }

    /// Returns the user's choice.
    pub fn choice(&self) -> &RouteChoice {
        &self.shared.options.choice
    }

    /// Returns whether relays can read the data.
    pub fn relay_mode(&self) -> RelayMode {
        self.shared.options.relay_mode
    }

    /// Returns whether a relay may be told of another site. On a route of tunnels that the user
    /// chose, each relay is told only the next site.
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

    /// Returns the relays' addresses.
    pub fn relays(&self) -> Vec<Url> {
        self.shared.options.relays.iter().map(|relay| relay.url.clone()).collect()
    }

    /// Returns the configuration of one transfer's router. If a route is fixed, the router must get
    /// the relays in their order, before any replica.
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

    /// Notes that a relay is not used. Returns whether that is news.
    pub fn note_lost(&self, name: &str) -> bool {
        let mut told = self.shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.insert(name.to_owned())
    }

    /// Notes that the source at `url` does not answer without relays.
    pub fn note_mute(&self, url: &Url) {
        let mut mute = self.shared.mute.lock().unwrap_or_else(PoisonError::into_inner);
        mute.retain(|_, since| since.elapsed() < MUTE_FOR);
        mute.insert(relay::site(url).unwrap_or_default(), Instant::now());
    }

    /// Returns whether that was noted in the last minute.
    pub fn is_mute(&self, url: &Url) -> bool {
        let mute = self.shared.mute.lock().unwrap_or_else(PoisonError::into_inner);
        let since = relay::site(url).and_then(|site| mute.get(&site).copied());
        since.is_some_and(|since| since.elapsed() < MUTE_FOR)
    }

    /// Returns the memory, for one transfer.
    pub fn memory(&self) -> Memory {
        Memory { state: self.shared.options.state.clone(), mark: NewsCursor::default() }
    }
}

/// Time to remember that only relays reach a source, so that the files of a list do not wait for it
/// one by one.
const MUTE_FOR: Duration = Duration::from_secs(60);

/// Returns a seed of time and process, so that transfers begun together do not act in step.
fn seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos() as u64);
    nanos ^ u64::from(std::process::id()).rotate_left(40)
}
