//! A replica of several files, or parts of files, that are read as one, end to end: a web seed of a
//! torrent with several files (BEP 19), or any list of addresses whose sizes are known.
//!
//! Offsets count in bytes of the whole. A lane asks for the files in their order, for small ones many
//! ahead on one connection; `lane::content` leads from the whole to a file and back. There may be a
//! million files: the source of one is made when it is asked for, and forgotten later. A file of another
//! size than the list says is an error that names it, and so is one that is not there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, SourceName};
use tokio::sync::mpsc::UnboundedSender;
use url::Url;

use crate::error::LaneError;
use crate::facts::Facts;
use crate::http_source::HttpSource;
use crate::lane::{At, Content, LaneEvent, Part};
use crate::net::Net;
use crate::source::{Expected, Lane, Limits, Pending, RelayMode, Relaying, Source, Trust};

/// Several files on web servers, as one replica.
#[derive(Debug)]
pub struct JoinedSource {
    /// Stands for the whole: name, address, relays, and the server that lanes connect to at first. It is
    /// asked for nothing.
    home: Arc<HttpSource>,
    net: Net,
    relays: Vec<Url>,
    relay_mode: RelayMode,
    files: Arc<Files>,
    state: Mutex<State>,
    is_told: AtomicBool,
}

/// The list of files.
struct Files {
    addresses: Vec<Box<str>>,
    /// Where each of them ends in the whole.
    ends: Vec<u64>,
    /// Those of which only a part is in the whole, by their numbers: there are few.
    cut: HashMap<usize, Cut>,
}

/// A file of which only a part is in the whole.
#[derive(Clone, Copy)]
struct Cut {
    /// The first byte of the part in the file.
    start: u64,
    file_bytes: u64,
}

/// A part of a file on a web server.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The address of the file.
    pub url: Url,
    /// The size of the file in bytes.
    pub file_bytes: u64,
    /// The bytes of the file that count.
    pub range: Range,
}

#[derive(Debug, Default)]
struct State {
    expected: Expected,
    /// Sources of files that are, or lately were, asked for.
    open: HashMap<usize, Arc<HttpSource>>,
}

impl JoinedSource {
    /// Returns the replica whose content is that of `files`, sizes in bytes and addresses, one behind the
    /// other. `url` stands for all of them, as a web seed's own address does; all are trusted alike.
    pub fn new(
        net: &Net,
        url: Url,
        trust: Trust,
        files: impl IntoIterator<Item = (u64, Url)>,
    ) -> Arc<JoinedSource> {
        let parts = files.into_iter().map(|(file_bytes, url)| FilePart {
            url,
            file_bytes,
            range: Range::new(0, file_bytes),
        });
        JoinedSource::of_parts(net, url, trust, parts)
    }

    /// Returns the same of parts of files.
    pub fn of_parts(
        net: &Net,
        url: Url,
        trust: Trust,
        parts: impl IntoIterator<Item = FilePart>,
    ) -> Arc<JoinedSource> {
        let mut files = Files { addresses: Vec::new(), ends: Vec::new(), cut: HashMap::new() };
        for part in parts {
            let FilePart { url, file_bytes, range } = part;
            if range.len() < file_bytes {
                files.cut.insert(files.ends.len(), Cut { start: range.start, file_bytes });
            }
            files.addresses.push(Box::from(url.as_str()));
            files.ends.push(files.size_bytes().saturating_add(range.len()));
        }
        let home = HttpSource::new(net, url, trust);
        JoinedSource::make(net, home, &[], RelayMode::default(), Arc::new(files))
    }

    fn make(
        net: &Net,
        home: Arc<HttpSource>,
        relays: &[Url],
        relay_mode: RelayMode,
        files: Arc<Files>,
    ) -> Arc<JoinedSource> {
        Arc::new(JoinedSource {
            home,
            net: net.clone(),
            relays: relays.to_vec(),
            relay_mode,
            files,
            state: Mutex::default(),
            is_told: AtomicBool::new(false),
        })
    }

    /// Returns the source that stands for the whole.
    pub(crate) fn home(&self) -> &Arc<HttpSource> {
        &self.home
    }

    /// Returns the size of the whole.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.files.size_bytes()
    }

    /// Returns what lies at this offset.
    ///
    /// # Errors
    /// [`LaneError::SizeMismatch`] if the whole has another size than expected.
    pub(crate) fn at(&self, offset: u64) -> Result<At, LaneError> {
        let mut state = self.lock();
        let size_bytes = self.files.size_bytes();
        if let Some(expected) = state.expected.size_bytes.filter(|&expected| expected != size_bytes)
        {
            return Err(LaneError::SizeMismatch { expected, actual: size_bytes });
        }
        if offset >= size_bytes {
            return Ok(At::End { size_bytes });
        }
        let at = self.files.ends.partition_point(|&end| end <= offset);
        let range = self.files.range(at);
        let whole = Cut { start: 0, file_bytes: range.len() };
        let Cut { start, file_bytes } = self.files.cut.get(&at).copied().unwrap_or(whole);
        let base = range.start.wrapping_sub(start).cast_signed();
        let part = |file| At::Part(Part { file, range, base, file_bytes });
        if let Some(file) = state.open.get(&at) {
            return Ok(part(Arc::clone(file)));
        }
        let file = self.file(at)?;
        let size_bytes = Some(file_bytes);
        file.expect(Expected { size_bytes, proved: state.expected.proved });
        if state.open.len() >= OPEN_MAX {
            state.open.retain(|_, file| Arc::strong_count(file) > 1);
        }
        state.open.insert(at, Arc::clone(&file));
        Ok(part(file))
    }

    fn file(&self, at: usize) -> Result<Arc<HttpSource>, LaneError> {
        let url = Url::parse(&self.files.addresses[at]);
        let url = url.map_err(|error| LaneError::protocol(error.to_string()))?;
        let file = HttpSource::new(&self.net, url, self.home.trust());
        Ok(match self.relays.is_empty() {
            true => file,
            false => file.by_way_of(&self.relays, self.relay_mode, self.home.far()),
        })
    }

    /// Returns what is told of the whole where `facts` are told of one file.
    fn facts(&self, facts: &Facts) -> Facts {
        Facts {
            size_bytes: Some(self.files.size_bytes()),
            ranges: true,
            server: facts.server.clone(),
            ..Facts::default()
        }
    }

    /// Returns what is told of the whole where `facts` are told of one file; `None` if that was told
    /// already.
    pub(crate) fn untold_facts(&self, facts: &Facts) -> Option<Facts> {
        (!self.is_told.swap(true, Ordering::Relaxed)).then(|| self.facts(facts))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn size_bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns where a file lies in the whole.
    fn range(&self, at: usize) -> Range {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        Range::new(start, self.ends[at])
    }
}

impl Source for JoinedSource {
    fn name(&self) -> &SourceName {
        self.home.name()
    }

    fn url(&self) -> &Url {
        self.home.url()
    }

    fn trust(&self) -> Trust {
        self.home.trust()
    }

    fn expect(&self, expected: Expected) {
        let mut state = self.lock();
        let Expected { size_bytes, proved } = expected;
        state.expected.size_bytes = size_bytes.or(state.expected.size_bytes);
        state.expected.proved = proved;
        state.open.values().for_each(|file| file.expect(Expected { size_bytes: None, proved }));
    }

    /// Asks for the first file alone.
    fn describe(&self) -> Pending<'_, Result<Facts, LaneError>> {
        Box::pin(async {
            let At::Part(first) = self.at(0)? else { return Ok(self.facts(&Facts::default())) };
            let facts = first.file.describe().await.map_err(|error| first.name(error))?;
            first.check(&facts)?;
            Ok(self.facts(&facts))
        })
    }

    fn fetch_part(&self, range: Range) -> Pending<'_, Result<(Facts, Vec<u8>), LaneError>> {
        Box::pin(async move {
            let size_bytes = self.files.size_bytes();
            if range.end > size_bytes {
                return Err(LaneError::BeyondEnd { size_bytes });
            }
            let mut bytes = Vec::new();
            let mut whole = self.facts(&Facts::default());
            let mut rest = range;
            while !rest.is_empty()
                && let At::Part(part) = self.at(rest.start)?
            {
                let wanted = Range::new(rest.start, rest.end.min(part.range.end));
                let fetched = part.file.fetch_part(part.in_file(wanted)).await;
                let (facts, more) = fetched.map_err(|error| part.name(without_range(error)))?;
                part.check(&facts)?;
                whole = self.facts(&facts);
                bytes.extend(more);
                rest.start = wanted.end;
            }
            Ok((whole, bytes))
        })
    }

    fn open_lane(
        self: Arc<Self>,
        lane: LaneId,
        pool: &Pool,
        events: UnboundedSender<LaneEvent>,
    ) -> Box<dyn Lane> {
        Box::new(crate::lane::open(Content::Joined(self), lane, pool, events))
    }

    fn renewed(&self) -> Arc<dyn Source> {
        let files = Arc::clone(&self.files);
        JoinedSource::make(&self.net, self.home.anew(), &self.relays, self.relay_mode, files)
    }

    fn limits(&self) -> Limits {
        self.home.limits()
    }

    fn relaying(&self) -> Option<Relaying> {
        self.home.relaying()
    }

    fn by_way_of(
        &self,
        relays: &[Url],
        relay_mode: RelayMode,
        far: Duration,
    ) -> Option<Arc<dyn Source>> {
        let home = self.home.by_way_of(relays, relay_mode, far);
        let files = Arc::clone(&self.files);
        Some(JoinedSource::make(&self.net, home, relays, relay_mode, files))
    }

    fn has_secrets(&self) -> bool {
        self.home.has_secrets()
    }
}

/// A server that refuses a range which the file must have (416) has another file.
fn without_range(error: LaneError) -> LaneError {
    match error.code() {
        Some(416) => LaneError::WrongRange { reason: error.to_string() },
        _ => error,
    }
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the addresses as given, which may hold credentials.
        write!(f, "{} files, {} bytes", self.ends.len(), self.size_bytes())
    }
}

/// Files that are remembered although nobody asks for them: more than the lanes of a transfer ask for at
/// a time, and some MiB.
const OPEN_MAX: usize = 1024;
