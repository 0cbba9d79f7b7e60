//! A replica on a web server: its address, what is known about the file there, and how its server
//! behaves.
//!
//! All lanes of a source share this. What a lane learns (a redirect, no ranges, a server that
//! closes or confuses pipelined requests) is remembered here, so that later requests and lanes
//! start with it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swath_formats::relay::through;
use swath_model::{LaneId, Pool, Range, SourceName};
use tokio::sync::mpsc::UnboundedSender;
use url::Url;

use crate::control::{fetch_part, head, head_with_digest};
use crate::cookies::Cookies;
use crate::error::LaneError;
use crate::facts::Facts;
use crate::http::request::Lines;
use crate::lane::{Content, LaneEvent};
use crate::net::{Net, Via};
use crate::quirks::{End, FileQuirks};
use crate::sealed::SealedLength;
use crate::shown::{display_name, name};
use crate::source::{Expected, Lane, Limits, Pending, RelayMode, Relaying, Source, Trust};
use crate::target::Target;
use crate::versions::{Sameness, Versions, difference};

/// By which relays a source is reached.
#[derive(Debug)]
struct RelayPath {
    relay_mode: RelayMode,
    /// The relays, where they carry connections.
    via: Via,
    /// What the first relay is asked for; the origin's own address where they carry connections.
    address: Url,
    /// The round trip from the first relay to the origin, in microseconds.
    far_us: AtomicU64,
}

/// One replica of a file.
pub struct HttpSource {
    url: Url,
    name: SourceName,
    trust: Trust,
    net: Net,
    sealed: Option<Arc<SealedLength>>,
    relays: Vec<Url>,
    path: Option<RelayPath>,
    cookies: Mutex<Cookies>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    target: Arc<Target>,
    facts: Option<Facts>,
    expected: Expected,
    file_quirks: FileQuirks,
    versions: Versions,
    cut: Cut,
    /// The size that an answer told which was refused for another reason.
    told_bytes: Option<u64>,
    /// A Metalink came where the file was asked for; it is not asked for again.
    metalink_seen: bool,
}

/// What a connection that is cut where an answer of unknown length may end is taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cut {
    /// For the end, if a digest will prove it.
    #[default]
    MayBeEnd,
    /// One was taken for the end.
    WasEnd,
    /// For a break: the digest has refuted the other.
    IsBreak,
}

/// What an answer taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    /// Something worth an event.
    News,
    /// Nothing new.
    Known,
    /// It may be of another version: ask again.
    Doubtful,
}

impl HttpSource {
    /// Returns the replica at `url`.
    pub fn new(net: &Net, url: Url, trust: Trust) -> Arc<HttpSource> {
        HttpSource::make(net, url, trust, None, &[], RelayMode::Forward)
    }

    /// Returns the sealed replica of a dataset at `url`. Its ranges are those of the sealed file; what its
    /// lanes deliver are whole groups of the plain one.
    pub fn of_sealed(
        net: &Net,
        url: Url,
        trust: Trust,
        length: Arc<SealedLength>,
    ) -> Arc<HttpSource> {
        HttpSource::make(net, url, trust, Some(length), &[], RelayMode::Forward)
    }

    /// The same replica by way of `relays`, the nearest first: their schemes, hosts and ports count.
    /// `far` is the round trip from the first of them to the origin, as far as known.
    pub fn by_way_of(
        &self,
        relays: &[Url],
        relay_mode: RelayMode,
        far: Duration,
    ) -> Arc<HttpSource> {
        let (url, sealed) = (self.url.clone(), self.sealed.clone());
        let source = HttpSource::make(&self.net, url, self.trust, sealed, relays, relay_mode);
        if relay_mode == RelayMode::Forward {
            source.set_far(far);
        }
        source
    }

    fn make(
        net: &Net,
        url: Url,
        trust: Trust,
        sealed: Option<Arc<SealedLength>>,
        relays: &[Url],
        relay_mode: RelayMode,
    ) -> Arc<HttpSource> {
        if trust == Trust::Named {
            net.note_named(&url);
        }
        let path = (!relays.is_empty()).then(|| {
            let (address, via) = match relay_mode {
                RelayMode::Forward => {
                    let nested = relays.iter().rev().fold(url.clone(), |to, it| through(it, &to));
                    (nested, Via::from([]))
                }
                RelayMode::Tunnel => (url.clone(), Via::from(relays)),
            };
            RelayPath { relay_mode, via, address, far_us: AtomicU64::new(0) }
        });
        relays.iter().for_each(|relay| net.note_relay(relay));
        let target = Arc::new(match &path {
            Some(path) if path.relay_mode == RelayMode::Forward => {
                Target::through(net, &url, &path.address, &path.address, trust)
            }
            Some(path) => Target::new(net, &url, &url, trust).carried_by(&path.via),
            None => Target::new(net, &url, &url, trust),
        });
        let state = State {
            target,
            facts: None,
            expected: Expected::default(),
            file_quirks: FileQuirks::default(),
            versions: Versions::default(),
            cut: Cut::default(),
            told_bytes: None,
            metalink_seen: false,
        };
        Arc::new(HttpSource {
            name: name(&url, relays),
            url,
            trust,
            net: net.clone(),
            sealed,
            relays: relays.to_vec(),
            path,
            cookies: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    /// Returns the same source as if nothing were known of it yet.
    pub fn anew(&self) -> Arc<HttpSource> {
        let (url, sealed) = (self.url.clone(), self.sealed.clone());
        let far = self.far();
        let relay_mode = self.path.as_ref().map_or(RelayMode::Forward, |path| path.relay_mode);
        let relays = &self.relays;
        let source = HttpSource::make(&self.net, url, self.trust, sealed, relays, relay_mode);
        source.set_far(far);
        {
            let (own, mut new) = (self.lock(), source.lock());
            new.file_quirks.whole = own.file_quirks.whole;
            new.file_quirks.one_answer = own.file_quirks.one_answer;
            if own.cut != Cut::MayBeEnd {
                new.cut = Cut::IsBreak;
            }
        }
        source
    }

    /// A connection is cut where the file may end: whether that is taken for its end.
    pub(crate) fn takes_cut_for_end(&self) -> bool {
        let mut state = self.lock();
        let knows_size = state.facts.as_ref().is_some_and(|facts| facts.size_bytes.is_some());
        let takes = state.expected.proved
            && state.expected.size_bytes.is_none()
            && !knows_size
            && state.cut != Cut::IsBreak;
        if takes {
            state.cut = Cut::WasEnd;
        }
        takes
    }

    /// Whether requests are to be for the whole file: this server, or this host, refuses ranges.
    pub(crate) fn asks_whole(&self) -> bool {
        let state = self.lock();
        let is_first = state.file_quirks.ranges.is_none() && self.sealed.is_none();
        let origin = state.target.origin.as_ref().filter(|_| is_first);
        state.file_quirks.whole
            || origin.is_some_and(|origin| self.net.hosts().refuses_ranges(origin))
    }

    /// A request for a range came to nothing with `error`: whether the whole file is asked for instead.
    pub(crate) fn gives_up_ranges(&self, error: &LaneError) -> bool {
        let mut state = self.lock();
        // The ranges of a sealed file are all that there is of it.
        if self.sealed.is_some() || state.file_quirks.whole {
            return false;
        }
        let honours = state.file_quirks.ranges == Some(true)
            || state.target.origin.as_ref().is_some_and(|it| self.net.hosts().honours_ranges(it));
        state.file_quirks.whole = match error {
            LaneError::WrongRange { .. } => true,
            // A relay that says so means us.
            LaneError::Reset { .. } => !honours && state.file_quirks.failed_again(),
            error => match error.code() {
                Some(403) if self.is_passed() => false,
                Some(500) => !honours && state.file_quirks.failed_again(),
                Some(code) => !honours && MAY_MEAN_RANGES.contains(&code),
                None => false,
            },
        };
        state.file_quirks.whole
    }

    /// A part came whose end is that of the file, by its own word, and that of what was asked for too: a
    /// server that takes the end of each part for the end of the file says the same. Only the first
    /// answer of a file whose size nobody has told can be one of these.
    pub(crate) fn doubts_end(&self, ends_at: Option<u64>, size: Option<u64>, asked: Range) -> bool {
        let mut state = self.lock();
        let ends_as_asked = asked.start == 0 && size == Some(asked.end) && ends_at == size;
        let is_first = state.facts.is_none() && state.expected.size_bytes.is_none();
        if !ends_as_asked
            || !is_first
            || self.sealed.is_some()
            || state.file_quirks.end != End::Told
        {
            return false;
        }
        state.file_quirks.end = End::Doubted;
        true
    }

    /// It refused to send the whole file, for which it was asked because of such a doubt: its word has
    /// to do, and it is asked for ranges again.
    pub(crate) fn believes_end(&self) -> bool {
        let mut state = self.lock();
        let doubted = state.file_quirks.end == End::Doubted;
        if doubted {
            state.file_quirks.end = End::Believed;
            state.file_quirks.whole = false;
        }
        doubted
    }

    /// An answer that is of no other use has told the size of the file.
    pub(crate) fn note_told(&self, size_bytes: u64) {
        self.lock().told_bytes.get_or_insert(size_bytes);
    }

    /// An answer is of no use that cannot be the file, though others were: whether that is borne.
    pub(crate) fn bears_stray(&self) -> bool {
        let mut state = self.lock();
        let had_good = state.facts.is_some() && self.sealed.is_none();
        had_good && state.file_quirks.strays()
    }

    /// Returns whether its last answer could not be the file, though others were. Then only one request at
    /// a time is sent: each connection ends with such an answer, and a server that counts requests would
    /// meet the first one of the next connection with the same.
    pub(crate) fn strayed(&self) -> bool {
        self.lock().file_quirks.strays > 0
    }

    /// Returns whether nothing of use has ever come from it.
    pub(crate) fn is_unheard(&self) -> bool {
        self.lock().facts.is_none()
    }

    /// Returns whether relays are between it and us.
    pub fn is_relayed(&self) -> bool {
        self.path.is_some()
    }

    /// Whether relays answer its requests, and see what they pass on.
    pub fn is_passed(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.relay_mode == RelayMode::Forward)
    }

    /// Returns the round trip from the first relay to the origin.
    pub(crate) fn far(&self) -> Duration {
        let far_us = self.path.as_ref().map_or(0, |path| path.far_us.load(Ordering::Relaxed));
        Duration::from_micros(far_us)
    }

    /// That round trip is `far`, as the relays measure it.
    pub(crate) fn set_far(&self, far: Duration) {
        if let Some(path) = &self.path {
            let far_us = u64::try_from(far.as_micros()).unwrap_or(u64::MAX);
            path.far_us.store(far_us.min(FAR_MAX_US), Ordering::Relaxed);
        }
    }

    /// Returns where the first request goes.
    fn first_url(&self) -> &Url {
        self.path.as_ref().map_or(&self.url, |path| &path.address)
    }

    fn target_at(&self, url: &Url) -> Arc<Target> {
        Arc::new(match &self.path {
            Some(path) if path.relay_mode == RelayMode::Forward => {
                Target::through(&self.net, &self.url, &path.address, url, self.trust)
            }
            Some(path) => Target::new(&self.net, &self.url, url, self.trust).carried_by(&path.via),
            None => Target::new(&self.net, &self.url, url, self.trust).showing(&self.cookies()),
        })
    }

    /// Returns what servers have set on the way, by redirects.
    pub(crate) fn cookies(&self) -> MutexGuard<'_, Cookies> {
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sealed(&self) -> Option<Arc<SealedLength>> {
        self.sealed.clone()
    }

    /// From now on every answer must fit this; a size that is `None` stays as it was.
    pub fn expect(&self, expected: Expected) {
        let mut state = self.lock();
        let size_bytes = expected.size_bytes.or(state.expected.size_bytes);
        state.expected = Expected { size_bytes, ..expected };
    }

    /// Returns what is known about the file there.
    pub fn facts(&self) -> Option<Facts> {
        self.lock().facts.clone()
    }

    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    pub(crate) fn target(&self) -> Arc<Target> {
        Arc::clone(&self.lock().target)
    }

    /// What answers must fit.
    pub(crate) fn expected(&self) -> Expected {
        self.lock().expected.clone()
    }

    /// Returns the size as far as anybody told.
    pub(crate) fn known_size(&self) -> Option<u64> {
        if self.sealed.is_some() {
            // Of that only the index can be believed.
            return self.settled_size();
        }
        let state = self.lock();
        state.facts.as_ref().and_then(|facts| facts.size_bytes).or(state.expected.size_bytes)
    }

    /// Media types and header lines of the first request.
    pub(crate) fn first_wishes(&self) -> (&'static str, &Lines) {
        let metalink_too = self.net.asks_for_metalinks() && !self.lock().metalink_seen;
        // Content negotiation (RFC 6249, section 2).
        let accept = if metalink_too { "application/metalink4+xml, */*;q=0.9" } else { "*/*" };
        let wishes = match self.lock().file_quirks.no_digests {
            true => Lines::NONE,
            false => self.net.digest_wishes(),
        };
        (accept, wishes)
    }

    /// The first request came to nothing with `error`: whether it is sent again without the wish for a
    /// digest, which XRootD refuses if it has no checksums.
    pub(crate) fn gives_up_digests(&self, error: &LaneError) -> bool {
        let mut state = self.lock();
        let is_first = state.facts.is_none() && !state.file_quirks.no_digests;
        let gives_up = is_first && matches!(error.code(), Some(405 | 500));
        state.file_quirks.no_digests |= gives_up;
        gives_up
    }

    /// A Metalink came in place of the file. `true` the first time, if it may have come because
    /// we asked for one.
    pub(crate) fn metalink_came(&self) -> bool {
        let mut state = self.lock();
        let asked = self.net.asks_for_metalinks() && !state.metalink_seen && state.facts.is_none();
        state.metalink_seen = true;
        asked
    }

    /// Replaces what is known by its complete form.
    pub(crate) fn remember(&self, facts: Facts) {
        self.lock().facts = Some(facts);
    }

    /// Holds `facts` of a new answer against what is expected and known.
    pub(crate) fn learn(&self, facts: &Facts) -> Result<Learnt, LaneError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let (Some(expected), Some(actual)) = (state.told_bytes, facts.size_bytes)
            && expected != actual
        {
            return Err(LaneError::SizeMismatch { expected, actual });
        }
        if let (Some(expected), Some(actual)) = (self.settled_size(), facts.size_bytes)
            && expected != actual
        {
            // What the index says of a sealed file is what there is.
            return Err(LaneError::SizeMismatch { expected, actual });
        }
        if let (Some(expected), Some(actual)) = (state.expected.size_bytes, facts.size_bytes)
            && expected != actual
        {
            return Err(LaneError::SizeMismatch { expected, actual });
        }
        let news = match &state.facts {
            None => true,
            Some(known) => {
                let doubts = self.sealed.is_none() && !state.file_quirks.one_answer;
                match state.versions.judge(known, facts, state.expected.proved) {
                    Sameness::Same => {}
                    Sameness::Doubtful if doubts => return Ok(Learnt::Doubtful),
                    Sameness::Differs(error @ LaneError::SizeMismatch { .. }) => return Err(error),
                    Sameness::Differs(error) if doubts => return Err(error),
                    Sameness::Doubtful | Sameness::Differs(_) => {
                        let (was, is) = difference(known, facts).unwrap_or_default();
                        return Err(match state.file_quirks.one_answer {
                            true => LaneError::Unsteady { was, is },
                            false => LaneError::Changed { was, is },
                        });
                    }
                }
                known.size_bytes.is_none() && facts.size_bytes.is_some()
                    || known.ranges != facts.ranges
                    || known.final_url != facts.final_url
            }
        };
        state.file_quirks.ranges = Some(facts.ranges);
        state.file_quirks.strays = 0;
        if !news {
            return Ok(Learnt::Known);
        }
        if let Some(origin) = &state.target.origin {
            self.net.hosts().note(origin, facts.ranges, state.file_quirks.whole);
        }
        state.facts = Some(facts.clone());
        Ok(Learnt::News)
    }

    /// Returns the size of a sealed file whose index is complete.
    fn settled_size(&self) -> Option<u64> {
        self.sealed.as_ref().and_then(|length| length.settled_bytes())
    }

    /// Requests go to `url` from now on.
    pub(crate) fn redirect_to(&self, url: &Url) -> Arc<Target> {
        tracing::debug!(source = %self.name, to = display_name(url), "redirected");
        let target = self.target_at(url);
        self.lock().target = Arc::clone(&target);
        target
    }

    /// A relay cannot open what the requests to `refused` show it: whether another one of these relays'
    /// keys is known now, and requests go to a target for which it is encrypted anew.
    pub(crate) async fn encrypt_anew(&self, refused: &Target) -> bool {
        if !self.net.have_changed(&refused.keys).await {
            return false;
        }
        let mut state = self.lock();
        if self.net.know_others(&state.target.keys) {
            state.target = self.target_at(&state.target.url);
        }
        true
    }

    /// What a redirect once led to fails now: ask at the original address again. `false` if
    /// `failed` was that address.
    pub(crate) fn back_to_original(&self, failed: &Target) -> bool {
        let mut state = self.lock();
        if failed.url == *self.first_url() {
            return false;
        }
        if state.target.url == failed.url {
            state.target = self.target_at(self.first_url());
        }
        true
    }

    /// Notes what an answer, or its absence, shows of the server's habits.
    pub(crate) fn note<T>(&self, what: impl FnOnce(&mut FileQuirks) -> T) -> T {
        what(&mut self.lock().file_quirks)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for HttpSource {
    fn name(&self) -> &SourceName {
        &self.name
    }

    fn url(&self) -> &Url {
        &self.url
    }

    fn trust(&self) -> Trust {
        self.trust
    }

    fn expect(&self, expected: Expected) {
        HttpSource::expect(self, expected);
    }

    fn describe(&self) -> Pending<'_, Result<Facts, LaneError>> {
        Box::pin(head(&self.net, &self.url, self.trust))
    }

    fn ask_for_digest(&self, work: Duration) -> Pending<'_, Result<Facts, LaneError>> {
        Box::pin(head_with_digest(&self.net, &self.url, self.trust, work))
    }

    fn fetch_part(&self, range: Range) -> Pending<'_, Result<(Facts, Vec<u8>), LaneError>> {
        Box::pin(fetch_part(&self.net, &self.url, self.trust, range))
    }

    fn open_lane(
        self: Arc<Self>,
        lane: LaneId,
        pool: &Pool,
        events: UnboundedSender<LaneEvent>,
    ) -> Box<dyn Lane> {
        Box::new(crate::lane::open(Content::File(self), lane, pool, events))
    }

    fn renewed(&self) -> Arc<dyn Source> {
        self.anew()
    }

    fn limits(&self) -> Limits {
        Limits {
            connections: self.connections_allowed(),
            requests_per_connection: self.quirks().requests_per_connection,
        }
    }

    fn relaying(&self) -> Option<Relaying> {
        let relay_mode = self.path.as_ref()?.relay_mode;
        let is_exposed = relay_mode == RelayMode::Forward || self.url.scheme() == "http";
        Some(Relaying { relay_mode, is_exposed })
    }

    fn by_way_of(
        &self,
        relays: &[Url],
        relay_mode: RelayMode,
        far: Duration,
    ) -> Option<Arc<dyn Source>> {
        Some(HttpSource::by_way_of(self, relays, relay_mode, far))
    }

    fn has_secrets(&self) -> bool {
        self.net.has_secrets_for(&self.url, self.trust)
    }

    fn take_one_answer(&self) {
        let mut state = self.lock();
        state.file_quirks.whole = true;
        state.file_quirks.one_answer = true;
    }

    fn end_was_cut(&self) -> bool {
        self.lock().cut == Cut::WasEnd
    }
}

impl std::fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the address as given, which may hold credentials.
        write!(f, "HttpSource({}, {:?})", self.name, self.trust)
    }
}

/// No round trip is longer than this.
const FAR_MAX_US: u64 = 10_000_000;

/// Statuses by which servers, and what protects them, refuse a request because it asks for a range.
const MAY_MEAN_RANGES: [u16; 10] = [400, 403, 405, 406, 411, 412, 413, 416, 417, 501];
