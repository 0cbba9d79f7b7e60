//! Compares a folder with a tree by content. The source sends its group hashes while those of the
//! same groups are computed here.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::{join, join_all};
use swath_model::digest::blake3_tree::{GROUP_BYTES, group_value};
use swath_model::{Range, RangeSet};
use swath_source::{
    Download, GroupHash, Net, SEAL_BYTES, Trust, fetch_part, sealed_bytes, to_sealed,
};
use swath_store::tree::{Content, KeptIndex, PartialTree};
use url::Url;

use super::index::Taking;
use crate::engine::Engine;
use crate::error::GetError;
use crate::observe::{Event, Observer};
use swath_model::units;

/// A provider of the group hashes of a tree.
#[derive(Clone)]
pub(super) enum GroupHashes {
    /// A server.
    Of {
        /// Address of the hashes, without the groups.
        url: Url,
        /// Trust in the server.
        trust: Trust,
        /// Name, as shown.
        name: String,
    },
    /// A kept index.
    Kept {
        /// The open file.
        file: Arc<KeptIndex>,
        /// Name, as shown.
        name: String,
    },
}

impl GroupHashes {
    /// Returns the provider of an index that is being received.
    pub fn of(taking: &Taking) -> GroupHashes {
        GroupHashes::Of {
            url: taking.group_hashes.clone(),
            trust: taking.trust,
            name: taking.name.clone(),
        }
    }

    async fn tell(&self, engine: &Engine, batch: &RangeSet) -> Result<Vec<GroupHash>, GetError> {
        let (told, name) = match self {
            GroupHashes::Of { url, trust, name } => {
                (ask(&engine.net, url, *trust, batch).await, name)
            }
            GroupHashes::Kept { file, name } => {
                let (file, batch) = (Arc::clone(file), batch.clone());
                let read = move || {
                    let groups = batch.iter().flat_map(|range| range.start..range.end);
                    groups
                        .map(|group| file.group_hash(group))
                        .collect::<std::io::Result<Vec<GroupHash>>>()
                };
                let read = engine.disk.work(read).await.map_err(GetError::Thread)?;
                (read.map_err(|error| error.to_string()), name)
            }
        };
        told.map_err(|reason| GetError::Index {
            whose: name.clone(),
            reason: format!("its group hashes cannot be fetched: {reason}"),
        })
    }
}

/// Calls `take` for each group, in order, with its number, the source's value, and the value here
/// if all its files exist.
pub(super) async fn each(
    engine: &Engine,
    group_hashes: &GroupHashes,
    content: &Content,
    mut groups: RangeSet,
    mut take: impl FnMut(u64, GroupHash, Option<GroupHash>) -> std::io::Result<()>,
) -> Result<(), GetError> {
    while let Some(batch) = next_batch(&mut groups) {
        let told = join(group_hashes.tell(engine, &batch), values(engine, content, &batch)).await;
        let (theirs, ours) = (told.0?, told.1?);
        let numbers = batch.iter().flat_map(|range| range.start..range.end);
        for (group, (theirs, ours)) in numbers.zip(theirs.into_iter().zip(ours)) {
            take(group, theirs, ours).map_err(GetError::Thread)?;
        }
    }
    Ok(())
}

/// Returns the ranges of the virtual file that the destination has. The index must be complete.
pub(super) async fn same(
    engine: &Engine,
    taking: &Taking,
    destination: &Path,
    observer: &mut dyn Observer,
) -> Result<RangeSet, GetError> {
    let mut same = RangeSet::new();
    let (folder, index) = (destination.to_owned(), Arc::clone(&taking.index));
    let look = move || {
        if !PartialTree::is_there(&folder) {
            return Ok(None);
        }
        let content = Content::open(&folder, index)?;
        let candidates = content.candidates();
        Ok::<_, std::io::Error>(Some((content, candidates)))
    };
    let looked = engine.disk.work(look).await.map_err(GetError::Thread)?;
    let Some((content, candidates)) = looked.map_err(GetError::Thread)? else {
        return Ok(same);
    };
    if candidates.is_empty() {
        return Ok(same);
    }
    let bytes = candidates.total_bytes().saturating_mul(GROUP_BYTES);
    let size_bytes = super::index::read(&taking.index).size_bytes();
    let text =
        format!("comparing the content of {} on both sides", units::bytes(bytes.min(size_bytes)));
    observer.observe(&Event::note(0.0, text, false));
    let group_hashes = GroupHashes::of(taking);
    each(engine, &group_hashes, &content, candidates, |group, theirs, ours| {
        if ours == Some(theirs) {
            let start = group * GROUP_BYTES;
            same.insert(Range::new(start, (start + GROUP_BYTES).min(size_bytes)));
        }
        Ok(())
    })
    .await?;
    ends(engine, taking, content, &mut same).await?;
    Ok(same)
}

/// Compares the first and last blocks of large files byte by byte if the rest is the same. Those
/// blocks also hold other files, which may have changed or be new and would cause a fetch.
async fn ends(
    engine: &Engine,
    taking: &Taking,
    mut content: Content,
    same: &mut RangeSet,
) -> Result<(), GetError> {
    let (known, size_bytes) = (same.clone(), super::index::read(&taking.index).size_bytes());
    let look = move || (content.doubtful_ends(&known), content);
    let (groups, back) = engine.disk.work(look).await.map_err(GetError::Thread)?;
    content = back;
    let groups: Vec<u64> = groups.into_iter().collect();
    for groups in groups.chunks(ENDS_AT_ONCE) {
        let ask = groups.iter().map(|&group| block(&engine.net, taking, group, size_bytes));
        let blocks: Vec<Option<Vec<u8>>> = join_all(ask).await;
        let groups = groups.to_vec();
        let compare = move || {
            let mut found = Vec::new();
            for (group, bytes) in groups.into_iter().zip(blocks) {
                found.extend(bytes.map(|bytes| content.same_in(group, &bytes)).unwrap_or_default());
            }
            (found, content)
        };
        let (found, back) = engine.disk.work(compare).await.map_err(GetError::Thread)?;
        content = back;
        for range in found {
            same.insert(range);
        }
    }
    Ok(())
}

/// Fetches a block of the source. Returns `None` on any error: the block is useful, but not needed.
async fn block(net: &Net, taking: &Taking, group: u64, size_bytes: u64) -> Option<Vec<u8>> {
    let start = group * GROUP_BYTES;
    let end = (start + GROUP_BYTES).min(size_bytes);
    let sealed = Range::new(to_sealed(start), sealed_bytes(end));
    let (_, mut bytes) = fetch_part(net, &taking.sealed, taking.trust, sealed).await.ok()?;
    let data_bytes = usize::try_from(end - start).ok()?;
    let group_hash = bytes.get(data_bytes..)? == group_value(group, bytes.get(..data_bytes)?);
    bytes.truncate(data_bytes);
    group_hash.then_some(bytes)
}

/// Takes groups for one request off the front.
fn next_batch(rest: &mut RangeSet) -> Option<RangeSet> {
    let mut batch = RangeSet::new();
    let mut groups = 0;
    while groups < BATCH_GROUPS && batch.count() < BATCH_RANGES {
        let Some(first) = rest.first() else { break };
        let part = Range::new(first.start, first.end.min(first.start + BATCH_GROUPS - groups));
        groups += part.len();
        batch.insert(part);
        rest.remove(part);
    }
    (!batch.is_empty()).then_some(batch)
}

/// Computes the values of groups here, in order.
async fn values(
    engine: &Engine,
    content: &Content,
    batch: &RangeSet,
) -> Result<Vec<Option<GroupHash>>, GetError> {
    let all: Vec<u64> = batch.iter().flat_map(|range| range.start..range.end).collect();
    let share = all.len().div_ceil(engine.cores.clamp(1, THREADS_MAX)).max(1);
    let parts = all.chunks(share).map(|groups| {
        let (mut content, groups) = (content.clone(), groups.to_vec());
        let compute = move || groups.iter().map(|&group| content.value(group)).collect::<Vec<_>>();
        engine.disk.work(compute)
    });
    let mut values = Vec::with_capacity(all.len());
    for part in join_all(parts).await {
        values.extend(part.map_err(GetError::Thread)?);
    }
    Ok(values)
}

/// Fetches the source's group hashes, in order. The error is a reason.
pub(crate) async fn ask(
    net: &Net,
    url: &Url,
    trust: Trust,
    batch: &RangeSet,
) -> Result<Vec<GroupHash>, String> {
    let groups: Vec<String> =
        batch.iter().map(|range| format!("{}-{}", range.start, range.end - 1)).collect();
    let mut url = url.clone();
    url.query_pairs_mut().append_pair("groups", &groups.join(","));
    let most = batch.total_bytes() as usize * SEAL_BYTES as usize;
    let begun = Download::begin(net, &url, trust, "application/octet-stream").await;
    let mut download = begun.map_err(|error| error.to_string())?;
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        let part = download.next().await.map_err(|error| error.to_string())?;
        if part.is_empty() {
            break;
        }
        bytes.extend_from_slice(&part);
        if bytes.len() > most {
            return Err("it sent too many".to_owned());
        }
    }
    let (group_hashes, rest) = bytes.as_chunks::<{ SEAL_BYTES as usize }>();
    if bytes.len() < most || !rest.is_empty() {
        return Err("it sent too few".to_owned());
    }
    Ok(group_hashes.to_vec())
}

/// Most groups of one request: 1 GiB, some seconds of work for a disk.
const BATCH_GROUPS: u64 = 4096;
/// Most ranges of one request: they must fit into an address.
const BATCH_RANGES: usize = 128;
/// Blocks requested at a time.
const ENDS_AT_ONCE: usize = 8;
/// Most reading threads: more do not read faster.
const THREADS_MAX: usize = 4;
