//! One replica: its address, what is known about the file there, and how its server behaves.
//!
//! All lanes of a source share this. What a lane learns (a redirect, no ranges, a server that
//! closes or confuses pipelined requests) is remembered here, so that later requests and lanes
//! start with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swath_model::SourceId;
use url::Url;

use crate::error::LaneError;
use crate::facts::Facts;
use crate::net::Net;
use crate::target::Target;

/// Who named a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The user, by hand or in a list of theirs: gets the user's credentials.
    Named,
    /// A file that the user has, but need not have written (a Metalink): may lead anywhere, but
    /// gets no credentials unless it has the origin of a named source.
    Listed,
    /// Something from the network: gets no credentials (unless it has the origin of a named
    /// source) and may not lead into networks that the user's own sources are not in.
    Discovered,
}

/// What every later answer is held against.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Expected {
    /// Size of the file in bytes.
    pub size_bytes: Option<u64>,
    /// The strong entity tag of this source's copy.
    pub etag: Option<String>,
}

/// How a server was seen to behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Whether ranges are honoured; `None` before the first answer.
    pub ranges: Option<bool>,
    /// Whether requests may be sent ahead of answers.
    pub pipelines: bool,
    /// Requests that one connection serves before the server closes it, where that is known.
    pub requests_per_connection: Option<u64>,
    /// Our own lane cannot speak with it; the library is used.
    pub fallback: bool,
}

/// One replica of a file.
pub struct Source {
    id: SourceId,
    url: Url,
    name: String,
    trust: Trust,
    net: Net,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    target: Arc<Target>,
    facts: Option<Facts>,
    expected: Expected,
    quirks: Quirks,
    /// Connections that ended with pipelined requests unanswered, in a row.
    broken_pipelines: u32,
    /// A Metalink came where the file was asked for; it is not asked for again.
    metalink_seen: bool,
    /// Connections closed by the server after each answer, in a row.
    closes: u32,
}

impl Source {
    /// The replica at `url`.
    pub fn new(net: &Net, id: SourceId, url: Url, trust: Trust) -> Arc<Source> {
        if trust == Trust::Named {
            net.note_named(&url);
        }
        let target = Arc::new(Target::new(net, &url, &url, trust));
        let quirks = Quirks {
            ranges: None,
            pipelines: true,
            requests_per_connection: None,
            fallback: false,
        };
        let state = State {
            target,
            facts: None,
            expected: Expected::default(),
            quirks,
            broken_pipelines: 0,
            metalink_seen: false,
            closes: 0,
        };
        Arc::new(Source {
            id,
            name: display_name(&url),
            url,
            trust,
            net: net.clone(),
            state: Mutex::new(state),
        })
    }

    /// Its number.
    pub fn id(&self) -> SourceId {
        self.id
    }

    /// The address as given, credentials included: not for display.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The address as a user may see it: without credentials, query and fragment.
    pub fn display_name(&self) -> &str {
        &self.name
    }

    /// Who named it.
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// From now on every answer must fit this; what is `None` stays as it was.
    pub fn expect(&self, expected: Expected) {
        let mut state = self.lock();
        state.expected.size_bytes = expected.size_bytes.or(state.expected.size_bytes);
        state.expected.etag = expected.etag.or(state.expected.etag.take());
    }

    /// How the server was seen to behave.
    pub fn quirks(&self) -> Quirks {
        self.lock().quirks
    }

    /// What is known about the file there.
    pub fn facts(&self) -> Option<Facts> {
        self.lock().facts.clone()
    }

    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    pub(crate) fn target(&self) -> Arc<Target> {
        Arc::clone(&self.lock().target)
    }

    /// The size that answers must have.
    pub(crate) fn expected_size(&self) -> Option<u64> {
        self.lock().expected.size_bytes
    }

    /// The size as far as anybody told.
    pub(crate) fn known_size(&self) -> Option<u64> {
        let state = self.lock();
        state.facts.as_ref().and_then(|facts| facts.size_bytes).or(state.expected.size_bytes)
    }

    /// Media types and header lines of the first request.
    pub(crate) fn first_wishes(&self) -> (&'static str, &str) {
        let metalink_too = self.net.asks_for_metalinks() && !self.lock().metalink_seen;
        // Content negotiation (RFC 6249, section 2).
        let accept = if metalink_too { "application/metalink4+xml, */*;q=0.9" } else { "*/*" };
        (accept, self.net.digest_wishes())
    }

    /// A Metalink came in place of the file. `true` the first time, if it may have come because
    /// we asked for one.
    pub(crate) fn metalink_came(&self) -> bool {
        let mut state = self.lock();
        let asked = self.net.asks_for_metalinks() && !state.metalink_seen && state.facts.is_none();
        state.metalink_seen = true;
        asked
    }

    /// Replace what is known by its complete form.
    pub(crate) fn remember(&self, facts: Facts) {
        self.lock().facts = Some(facts);
    }

    /// Hold `facts` of a new answer against what is expected and known. `Ok(true)` if they are
    /// news and worth an event.
    pub(crate) fn learn(&self, facts: &Facts) -> Result<bool, LaneError> {
        let mut state = self.lock();
        if let (Some(expected), Some(actual)) = (state.expected.size_bytes, facts.size_bytes)
            && expected != actual
        {
            return Err(LaneError::SizeMismatch { expected, actual });
        }
        if let (Some(was), Some(is)) = (strong(&state.expected.etag), strong(&facts.etag))
            && was != is
        {
            return Err(LaneError::Changed { was: was.to_owned(), is: is.to_owned() });
        }
        let news = match &state.facts {
            None => true,
            Some(known) => {
                unchanged(known, facts)?;
                known.size_bytes.is_none() && facts.size_bytes.is_some()
                    || known.ranges != facts.ranges
                    || known.final_url != facts.final_url
            }
        };
        state.quirks.ranges = Some(facts.ranges);
        if news {
            state.facts = Some(facts.clone());
        }
        Ok(news)
    }

    /// Requests go to `url` from now on.
    pub(crate) fn redirect_to(&self, url: &Url) -> Arc<Target> {
        tracing::debug!(source = self.name, to = display_name(url), "redirected");
        let target = Arc::new(Target::new(&self.net, &self.url, url, self.trust));
        self.lock().target = Arc::clone(&target);
        target
    }

    /// What a redirect once led to fails now: ask at the original address again. `false` if
    /// `failed` was that address.
    pub(crate) fn back_to_original(&self, failed: &Target) -> bool {
        let mut state = self.lock();
        if failed.url == self.url {
            return false;
        }
        if state.target.url == failed.url {
            state.target = Arc::new(Target::new(&self.net, &self.url, &self.url, self.trust));
        }
        true
    }

    /// The server ended a connection with pipelined requests unanswered.
    pub(crate) fn pipeline_broken(&self) {
        let mut state = self.lock();
        state.broken_pipelines += 1;
        if state.broken_pipelines >= BREAKS_TO_BELIEVE {
            state.quirks.pipelines = false;
        }
    }

    /// The server mixed up pipelined answers: never again.
    pub(crate) fn pipeline_confused(&self) {
        self.lock().quirks.pipelines = false;
    }

    /// A pipelined request was answered as it should be.
    pub(crate) fn pipeline_works(&self) {
        self.lock().broken_pipelines = 0;
    }

    /// The server announced (or showed twice) that a connection serves `requests` only.
    pub(crate) fn closes_after(&self, requests: u64) {
        let mut state = self.lock();
        state.closes += 1;
        if state.closes >= BREAKS_TO_BELIEVE {
            let limit =
                state.quirks.requests_per_connection.unwrap_or(u64::MAX).min(requests.max(1));
            state.quirks.requests_per_connection = Some(limit);
            if limit == 1 {
                state.quirks.pipelines = false;
            }
        }
    }

    /// Our own lane cannot speak with this server.
    pub(crate) fn needs_fallback(&self) {
        self.lock().quirks.fallback = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the address as given, which may hold credentials.
        write!(f, "Source({}, {}, {:?})", self.id, self.name, self.trust)
    }
}

/// Times that something must happen in a row before it counts as the server's nature.
const BREAKS_TO_BELIEVE: u32 = 2;

/// `url` without user and password.
pub(crate) fn without_credentials(url: &Url) -> Url {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// `url` without credentials, query and fragment.
pub fn display_name(url: &Url) -> String {
    let mut shown = without_credentials(url);
    shown.set_query(None);
    shown.set_fragment(None);
    shown.into()
}

fn strong(etag: &Option<String>) -> Option<&str> {
    etag.as_deref().filter(|etag| !etag.starts_with("W/"))
}

/// Whether the file is still the one that was `known`.
fn unchanged(known: &Facts, now: &Facts) -> Result<(), LaneError> {
    if let (Some(expected), Some(actual)) = (known.size_bytes, now.size_bytes)
        && expected != actual
    {
        return Err(LaneError::SizeMismatch { expected, actual });
    }
    let changed =
        |was: &str, is: &str| Err(LaneError::Changed { was: was.to_owned(), is: is.to_owned() });
    match (strong(&known.etag), strong(&now.etag)) {
        (Some(was), Some(is)) if was != is => changed(was, is),
        (Some(_), Some(_)) => Ok(()),
        _ => match (&known.last_modified, &now.last_modified) {
            (Some(was), Some(is)) if was != is => changed(was, is),
            _ => Ok(()),
        },
    }
}
