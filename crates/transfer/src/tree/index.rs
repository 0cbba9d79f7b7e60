//! Receives an index while its source still walks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use crate::reason::Reason;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use swath_model::index::{Index, Reader, Top};
use swath_source::{Download, LaneError, Net, Trust, display_name};
use swath_store::tree::Filter;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::engine::Engine;
use crate::error::GetError;
use crate::request::Mirror;

/// The wanted content of an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Selects the entries.
    pub filter: Filter,
    /// Whether it has extended attributes.
    pub xattrs: bool,
    /// Only the file of this name at the source, and its name in the index.
    pub file: Option<(String, String)>,
    /// The index of this earlier walk, in place of a new one.
    pub walk: Option<String>,
}

/// The received part of an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growth {
    /// Bytes of the virtual file that it describes so far.
    pub size_bytes: u64,
    /// `Ok` if that is all, or why no more comes.
    pub ended: Option<Result<(), String>>,
}

/// An index that is being received.
pub(crate) struct Taking {
    pub index: Arc<RwLock<Index>>,
    pub growth: watch::Receiver<Growth>,
    /// Metadata of the folder itself, if the server sends it.
    pub top: Option<Top>,
    /// Address of the sealed file of this walk.
    pub sealed: Url,
    /// Address of the group hashes alone.
    pub group_hashes: Url,
    /// Address of the list of files that changed since.
    pub changed: Url,
    /// Number of its replica.
    pub replica: usize,
    /// Trust in the replica.
    pub trust: Trust,
    /// Name of the replica, as shown.
    pub name: String,
    _task: AbortOnDropHandle<()>,
}

impl Taking {
    /// Waits until all of it has come.
    ///
    /// # Errors
    /// The reason, if it does not all come.
    pub async fn wait(&mut self) -> Result<(), GetError> {
        let ended = self.growth.wait_for(|growth| growth.ended.is_some()).await;
        let ended = ended.map_or_else(
            |_| Err("it broke off".to_owned()),
            |growth| growth.ended.clone().unwrap_or(Ok(())),
        );
        ended.map_err(|reason| GetError::Index { whose: self.name.clone(), reason })
    }
}

/// Asks all replicas, and takes the index of the first in the user's order that answers in time.
/// The others are compared with it.
///
/// # Errors
/// [`GetError::NoTree`] or [`GetError::Exhausted`], with the reason of each.
pub(crate) async fn take_first(
    engine: &Engine,
    replicas: &[Mirror],
    wanted: &Wanted,
) -> Result<Taking, GetError> {
    let mut asked: FuturesUnordered<_> = replicas
        .iter()
        .enumerate()
        .map(async |(at, mirror)| (at, ask(&engine.net, mirror, wanted).await))
        .collect();
    let mut reasons = Vec::new();
    let mut answered: BTreeMap<usize, Download> = BTreeMap::new();
    let mut failed = BTreeSet::new();
    // A server answered that it has no such folder.
    let mut is_other = false;
    let mut waits_until = None;
    loop {
        // Replicas before the first that has answered may still answer.
        let first = answered.first_key_value().map(|(&at, _)| at);
        let waits = first.is_none_or(|first| (0..first).any(|at| !failed.contains(&at)));
        let answer = match waits_until {
            _ if !waits => None,
            Some(until) => timeout_at(until, asked.next()).await.unwrap_or(None),
            None => asked.next().await,
        };
        match answer {
            Some((at, Ok(download))) => {
                answered.insert(at, download);
                waits_until.get_or_insert_with(|| Instant::now() + OTHERS_WITHIN);
            }
            Some((at, Err(error))) => {
                failed.insert(at);
                is_other |= error.is_no_such_thing();
                reasons.push(Reason::of_source(replicas[at].name(), error));
            }
            None => match answered.pop_first() {
                Some((at, download)) => {
                    is_other |= !is_index(&download);
                    match begin(download, &replicas[at], at, wanted, &engine.net) {
                        Ok(taking) => return Ok(taking),
                        Err(reason) => {
                            failed.insert(at);
                            reasons.push(Reason::of_source(replicas[at].name(), reason));
                        }
                    }
                }
                None if asked.is_empty() => {
                    return Err(match is_other {
                        true => GetError::NoTree { reasons },
                        false => GetError::Exhausted { reasons, has_some: false },
                    });
                }
                None => waits_until = None,
            },
        }
    }
}

/// Asks one replica for its index.
pub(crate) async fn ask(
    net: &Net,
    mirror: &Mirror,
    wanted: &Wanted,
) -> Result<Download, LaneError> {
    let mut url = with_query(&mirror.url, "swath=index");
    let named = |name: &'static str| move |value: &String| (name, value.clone());
    let include = wanted.filter.include().iter().map(named("include"));
    let all = include.chain(wanted.filter.exclude().iter().map(named("exclude")));
    let xattrs = wanted.xattrs.then(|| ("xattr", "yes".to_owned()));
    let file = wanted.file.iter().flat_map(|(there, here)| [("file", there), ("as", here)]);
    let file = file.map(|(name, value)| (name, value.clone()));
    let walk = wanted.walk.iter().map(named("walk"));
    url.query_pairs_mut().extend_pairs(all.chain(xattrs).chain(file).chain(walk));
    Download::begin(net, &url, mirror.trust, MEDIA_TYPE).await
}

/// Returns whether the answer is an index.
pub(crate) fn is_index(download: &Download) -> bool {
    download.field("content-type").is_some_and(|it| it.trim() == MEDIA_TYPE)
}

/// Starts a task that receives an index. The error is a reason.
pub(crate) fn begin(
    download: Download,
    mirror: &Mirror,
    at: usize,
    wanted: &Wanted,
    net: &Net,
) -> Result<Taking, String> {
    let is_index = is_index(&download);
    let walk = download.field("swath-walk").filter(|walk| {
        !walk.is_empty() && walk.len() <= 64 && walk.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    let Some(walk) = walk.filter(|_| is_index) else {
        return Err("it is no folder of a swath server".to_owned());
    };
    let is_part = wanted.file.is_some() || !wanted.filter.is_all();
    if is_part && download.field("swath-filtered").is_none() {
        return Err("this server does not support filters".to_owned());
    }
    if wanted.xattrs && download.field("swath-xattr").is_none() {
        return Err("this server does not support extended attributes".to_owned());
    }
    // A value that cannot be parsed is ignored.
    let top = download.field("swath-top").and_then(|top| top.parse().ok());
    let sealed = with_query(&mirror.url, &format!("swath=sealed&walk={walk}"));
    let group_hashes = with_query(&mirror.url, &format!("swath=seals&walk={walk}"));
    let changed = with_query(&mirror.url, &format!("swath=changed&walk={walk}"));
    let index = Arc::new(RwLock::new(Index::new()));
    let (sender, growth) = watch::channel(Growth::default());
    let task = tokio::spawn(take(download, Arc::clone(&index), sender, net.clone()));
    let name = display_name(&mirror.url);
    Ok(Taking {
        index,
        growth,
        top,
        sealed,
        group_hashes,
        changed,
        replica: at,
        trust: mirror.trust,
        name,
        _task: AbortOnDropHandle::new(task),
    })
}

async fn take(
    mut download: Download,
    index: Arc<RwLock<Index>>,
    growth: watch::Sender<Growth>,
    net: Net,
) {
    let mut reader = Some(Reader::new(INDEX_BYTES_MAX));
    let mut pace = Pace::new(Instant::now(), net.timeout());
    let ended = loop {
        let part = match download.next().await {
            Ok(part) => part,
            Err(error) => break Err(error.to_string()),
        };
        pace.begin_at(net.awake_since());
        if !pace.is_kept(part.len() as u64, Instant::now()) {
            break Err("it comes too slowly to ever end".to_owned());
        }
        let mut index = index.write().unwrap_or_else(PoisonError::into_inner);
        let fed = match &mut reader {
            Some(reader) if !part.is_empty() => reader.feed(&mut index, &part).map(|()| false),
            _ => reader.take().map_or(Ok(true), |reader| reader.finish(&mut index).map(|_| true)),
        };
        let size_bytes = index.size_bytes();
        drop(index);
        match fed {
            Ok(false) => growth.send_modify(|growth| growth.size_bytes = size_bytes),
            Ok(true) => break Ok(()),
            Err(error) => break Err(format!("its index is invalid: {error}")),
        }
    };
    let size_bytes = read(&index).size_bytes();
    growth.send_replace(Growth { size_bytes, ended: Some(ended) });
}

/// Enforces a least rate of an index. A walk of a cold disk brings hundreds of entries a second and
/// may pause for long; a byte now and then, for ever, is no walk.
struct Pace {
    began: Instant,
    bytes: u64,
    span: Duration,
}

impl Pace {
    fn new(now: Instant, limit: Duration) -> Pace {
        Pace { began: now, bytes: 0, span: limit * SPAN_LIMITS }
    }

    /// Ignores the time before the machine woke up.
    fn begin_at(&mut self, awake_since: Instant) {
        if awake_since > self.began {
            (self.began, self.bytes) = (awake_since, 0);
        }
    }

    /// Takes in received bytes. Returns whether the index is fast enough.
    fn is_kept(&mut self, bytes: u64, now: Instant) -> bool {
        self.bytes += bytes;
        if now.duration_since(self.began) < self.span {
            return true;
        }
        let enough = self.bytes as f64 >= self.span.as_secs_f64() * PACE_BYTES_PER_S;
        (self.began, self.bytes) = (now, 0);
        enough
    }
}

/// Locks the index for reading.
pub(crate) fn read(index: &RwLock<Index>) -> RwLockReadGuard<'_, Index> {
    index.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the address with this query in place of its own.
fn with_query(url: &Url, query: &str) -> Url {
    let mut url = url.clone();
    url.set_query(Some(query));
    url.set_fragment(None);
    url
}

/// Time for replicas earlier in the order to answer, once another has answered.
const OTHERS_WITHIN: Duration = Duration::from_secs(1);
/// The rate is measured over this many times the longest allowed silence: ten minutes.
const SPAN_LIMITS: u32 = 10;
/// Least rate: two entries a second, which take at least a dozen bytes each.
const PACE_BYTES_PER_S: f64 = 24.0;
/// Media type of an index.
const MEDIA_TYPE: &str = "application/vnd.swath.index";
/// Longest index: some fifty million entries.
const INDEX_BYTES_MAX: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn survives(every_s: u64, bytes: u64) -> u64 {
        let start = Instant::now();
        let mut pace = Pace::new(start, Duration::from_secs(60));
        let mut s = 0;
        while s < 24 * 3600 {
            s += every_s;
            if !pace.is_kept(bytes, start + Duration::from_secs(s)) {
                return s;
            }
        }
        s
    }

    #[test]
    fn a_byte_now_and_then_ends_and_a_slow_walk_does_not() {
        assert_eq!(survives(30, 1), 600);
        assert_eq!(survives(59, 100), 649);
        assert_eq!(survives(1, 20), 600);
        // A folder of a thousand entries each minute, or three entries a second.
        assert_eq!(survives(60, 16_000), 24 * 3600);
        assert_eq!(survives(1, 36), 24 * 3600);
    }
}
