//! Fetches a whole tree: receives its index while the source walks, fetches its virtual file like
//! any other file, and writes the bytes as files.
//!
//! One *pass* fetches the files of one walk of the source. Files that changed meanwhile are fetched
//! once more in a second pass, with a new index; correct data is kept. If the source has forgotten
//! the walk (its server was restarted), that leads to another pass, too.

mod content;
mod index;
mod passes;
mod planned;
mod removal;
mod replicas;
mod verify;

use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use swath_model::index::{Absence, Counts, Index, Kind, Lack};
use swath_plan::Config;
use swath_source::{Download, SealedLength, UNIT_BYTES};
use swath_store::tree::{
    Filter, Halt, KeptIndexWriter, PartialError, PartialTree, Preserve, Same, TreePlace, XattrLoss,
};
use tokio::time::Instant;

use crate::discovery::{Discovery, IndexedTree, TreeDiscovery};
use crate::engine::{Engine, Stop};
use crate::error::GetError;
use crate::executor::{self, Pass, PassEnd, TreeSink};
use crate::observe::{Event, Observer, SourceState, Summary, Verified};
use crate::request::{Destination, Mirror, Request};
use content::GroupHashes;
pub(crate) use content::ask as group_hashes_of;
use index::Wanted;
pub(crate) use index::{Growth, Taking, read};
use passes::{Passes, no_more, once_more};
pub use planned::Planned;
pub(crate) use planned::differences;
pub use removal::{Spare, Spared, Unremoved};
pub(crate) use replicas::{Joined, units_around};
use swath_model::units;
pub use verify::Against;
pub(crate) use verify::verify;

/// A tree to fetch.
#[derive(Clone, Debug)]
pub struct TreeRequest {
    /// Its replicas: addresses of folders, with a `/` at their ends.
    pub replicas: Vec<Mirror>,
    /// The folder for the contents of those folders. It may exist already.
    pub destination: PathBuf,
    /// The folder at or above the destination that the user named, if the rest of its path came from
    /// elsewhere: no link below it is followed.
    pub beneath: Option<PathBuf>,
    /// The name of the file if the tree is a single file. Then its partial data is separate from
    /// that of other copies into the folder.
    pub single: Option<String>,
    /// The name of that file at the source, if the source offers a whole folder.
    pub single_there: Option<String>,
    /// Selects the entries: the others are neither fetched nor removed.
    pub filter: Filter,
    /// Metadata that is copied besides bytes.
    pub preserve: Preserve,
    /// Resume from the data of an earlier run.
    pub resume: bool,
    /// How unchanged files are recognized.
    pub compare: Compare,
    /// Remove entries that are not in the tree from the destination, once the tree is complete.
    pub delete: bool,
    /// Do so even if there is no file in the tree.
    pub allow_empty: bool,
    /// The walk with which the copy began, if another receiver began it: entries of that walk are
    /// not removed.
    pub first_walk: Option<String>,
    /// Keep the index with the hashes of all groups in this file.
    pub keep_index: Option<PathBuf>,
    /// The configuration of the planner.
    pub plan: Config,
    /// As [`Request::stall_s`].
    pub stall_s: f64,
    /// How many seconds to wait for another writer of the destination.
    pub locked_s: f64,
    /// Who finds further sources of the tree. Fetching then begins when the index is complete.
    pub discovery: Option<Arc<dyn TreeDiscovery>>,
}

impl TreeRequest {
    fn wanted(&self) -> Wanted {
        let file = self.single_there.clone().zip(self.single.clone());
        let (filter, xattrs) = (self.filter.clone(), self.preserve.xattrs);
        Wanted { filter, xattrs, file, walk: None }
    }

    /// Returns where it goes, with what this engine may do there.
    fn place(&self, engine: &Engine) -> TreePlace {
        TreePlace {
            destination: self.destination.clone(),
            single: self.single.clone(),
            beneath: self.beneath.clone(),
            grant: engine.grant.of(&self.destination),
        }
    }
}

/// How a file of the destination is recognized as unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Not at all: every file is copied.
    Nothing,
    /// By the same size and modification time.
    SizeAndTime,
    /// By the same size and content, whatever its time: both sides read it.
    Content,
}

/// The result of copying a tree.
#[derive(Clone, Debug)]
pub struct TreeSummary {
    /// The figures of the last pass, in bytes of the sealed file.
    pub transfer: Summary,
    /// Counts of the tree.
    pub counts: Counts,
    /// Files that have their final names.
    pub files: u64,
    /// Those of them that existed already and are unchanged.
    pub kept_files: u64,
    /// Entries removed from the destination.
    pub removed: u64,
    /// Entries that stay, although they are not in the tree.
    pub spared: Option<Spared>,
    /// Entries that could not be removed.
    pub unremoved: Unremoved,
    /// Files that changed twice during the copy: they are missing, and so are their hard links.
    /// Paths below the folder, not always text.
    pub changed: Vec<Vec<u8>>,
    /// Entries that the source could not offer, in its walk or when it read them, and why.
    pub absent: Vec<(Vec<u8>, Absence)>,
    /// Number of entries without the extended attributes of the tree, if these were wanted.
    pub xattr_losses: u64,
    /// The first of them, and why.
    pub without_xattrs: Vec<(Vec<u8>, XattrLoss)>,
}

impl TreeSummary {
    /// Returns whether all of the tree was copied.
    pub fn is_whole(&self) -> bool {
        self.changed.is_empty() && is_whole(&self.absent)
    }

    /// Enters the unchanged files, which no group hash proved, and how they were recognized.
    fn tell_kept(&mut self, compare: Compare, kept_entries: u64) {
        let (kept, transfer) = (self.kept_files, &mut self.transfer);
        transfer.kept_files = kept;
        // The index came from there.
        if let Some(first) = transfer.sources.first_mut()
            && first.state == SourceState::Probing
            && first.reason.is_none()
        {
            first.state = SourceState::Idle;
        }
        if self.files == 0 {
            transfer.verified_by.clear();
        }
        if kept == 0 {
            return;
        }
        let is_by_content = compare == Compare::Content;
        let by = if is_by_content { "content" } else { "size and time" };
        transfer.proved &= is_by_content;
        if !is_by_content {
            let is_some = transfer.fetched_bytes + transfer.resumed_bytes > 0;
            transfer.verified = if is_some { Verified::Partly } else { Verified::None };
        }
        let count = units::count(kept);
        if transfer.fetched_bytes + transfer.resumed_bytes > 0 {
            let files = if kept == 1 { "file was" } else { "files were" };
            let text = format!("; {count} {files} the same by {by}");
            transfer.verified_by.push_str(&text);
            return;
        }
        let files = if kept == 1 { "file is" } else { "files are" };
        let all = self.files + self.counts.links + self.counts.hard_links;
        let made = match all.saturating_sub(kept_entries) {
            0 => String::new(),
            1 => ", and 1 entry without data was created".to_owned(),
            more => {
                format!(", and {} entries without data were created", units::count(more))
            }
        };
        transfer.verified_by = format!("{count} {files} the same by {by}{made}");
    }

    /// Enters the missing files and their hard links, each by what its file lacks.
    fn name_lacking(&mut self, index: &Index, why: &[(u64, Lack)], lacking: &[u64]) {
        for &number in lacking {
            let mut cursor = index.cursor_from(number);
            let Some(item) = cursor.next() else { continue };
            let file = match item.entry.kind {
                Kind::HardLink(of) => of,
                _ => number,
            };
            let lack = why.binary_search_by_key(&file, |&(number, _)| number).map(|at| why[at].1);
            let path = item.path.to_vec();
            match lack.ok().and_then(Lack::absence) {
                None => self.changed.push(path),
                Some(absence) => self.absent.push((path, absence)),
            }
        }
    }
}

/// Fetches a tree.
pub(crate) async fn copy(
    engine: &Engine,
    request: TreeRequest,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<TreeSummary, GetError> {
    if request.replicas.is_empty() {
        return Err(GetError::NoSources);
    }
    let mut resume = request.resume;
    let mut is_second_look = false;
    let mut forgotten = 0;
    let mut kept_before = 0;
    let mut passes = Passes::default();
    let mut is_first = true;
    // The first complete index.
    let mut planned = None;
    loop {
        let begun = tokio::select! {
            biased;
            () = stop.wait() => Err(GetError::Stopped),
            begun = begin(engine, &request, resume, &mut planned, observer, stop) => begun,
        };
        if let (Err(error), Some(summary)) = (&begun, passes.summary().cloned()) {
            observer.observe(&error.event(kept_before, summary));
        }
        let begun = begun?;
        let (mut pass, request_of_pass) = begun;
        pass.fetched_before_bytes = passes.fetched_bytes();
        let (index, stage) = (Arc::clone(&pass.index), Arc::clone(&pass.sink.stage));
        let (keeper, group_hashes) = (pass.sink.keeper.clone(), GroupHashes::of(&pass.taking));
        // Its state is large and would be moved on the stack.
        let ended = executor::run_pass(engine, request_of_pass, pass, observer, stop, is_first);
        let end = Box::pin(ended).await;
        is_first = false;
        if planned.is_none() && read(&index).digests().is_some() {
            planned = Some(Arc::clone(&index));
        }
        // The partial folder is from this run now, so it is resumed even with `--no-resume`.
        resume = true;
        match end {
            PassEnd::Failed(error) => {
                // An error here does not matter: the pass has failed already.
                let _ = engine.disk.work(move || stage.give_up()).await;
                return Err(error);
            }
            PassEnd::Forgotten { kept_bytes, summary } => {
                passes.add(summary, 0);
                forgotten = if kept_bytes > kept_before { 0 } else { forgotten + 1 };
                kept_before = kept_bytes;
                if forgotten >= FORGOTTEN_MAX {
                    return Err(GetError::Forgotten);
                }
            }
            PassEnd::Whole { changed, summary }
                if !is_second_look && changed.iter().any(|(_, lack)| lack.may_pass()) =>
            {
                is_second_look = true;
                let index = index::read(&index);
                passes.add(summary, bytes_of(&index, &changed));
                kept_before = stage.durable_bytes();
                observer.observe(&once_more(&index, &changed, passes.elapsed_s()));
                drop(index);
                drop(stage);
            }
            PassEnd::Whole { changed, summary } => {
                let finishing = Arc::clone(&stage);
                let without: Vec<u64> = changed.iter().map(|&(number, _)| number).collect();
                let finished = engine.disk.work(move || finishing.finish(&without)).await;
                let finished = finished.map_err(GetError::Thread)??;
                let mut outcome = {
                    let index = index::read(&index);
                    TreeSummary {
                        removed: finished.replaced,
                        spared: None,
                        unremoved: Unremoved::default(),
                        counts: index.counts(),
                        files: finished.files,
                        kept_files: stage.unchanged_files(),
                        changed: Vec::new(),
                        absent: absent(&index),
                        xattr_losses: finished.xattr_losses.len() as u64,
                        without_xattrs: first_losses(&index, &finished.xattr_losses),
                        transfer: passes.with(summary),
                    }
                };
                outcome.tell_kept(request.compare, stage.unchanged_entries());
                outcome.name_lacking(&index::read(&index), &changed, &finished.lacking);
                if request.delete && outcome.is_whole() {
                    let removed = removal::remove(engine, &request, planned.as_ref(), &index, stop);
                    let (removed, spared) = removed.await?;
                    outcome.removed += removed.gone;
                    outcome.unremoved = Unremoved::of(removed.stays);
                    outcome.spared = spared;
                }
                if let Some(keeper) = keeper {
                    verify::keep(engine, keeper, &group_hashes, &index, &request.destination)
                        .await?;
                }
                // Missing files are not proved either.
                if !outcome.is_whole() && std::mem::take(&mut outcome.transfer.proved) {
                    outcome.transfer.verified = Verified::Partly;
                }
                observer.observe(&Event::Finished(outcome.transfer.clone()));
                return Ok(outcome);
            }
        }
    }
}

/// Returns whether nothing is missing. Special files are no part of a tree.
fn is_whole(absent: &[(Vec<u8>, Absence)]) -> bool {
    absent.iter().all(|&(_, absence)| absence == Absence::Special)
}

/// Returns the bytes of these files.
fn bytes_of(index: &Index, files: &[(u64, Lack)]) -> u64 {
    let bytes = |&(number, _): &(u64, Lack)| index.cursor_from(number).next().map(|it| it.range());
    files.iter().filter_map(bytes).map(|range| range.len()).sum()
}

/// The kind of answer at the address of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderKind {
    /// A folder of a swath server.
    Tree,
    /// A web page, perhaps a listing, or an answer without `Content-Type` (XRootD).
    Page,
    /// The server refuses to show one, but does not say that there is none.
    Refused,
    /// No folder.
    Nothing,
}

/// Returns the kind of answer at the address of a folder.
pub(crate) async fn kind(engine: &Engine, folder: &Mirror) -> FolderKind {
    let is_page = |download: &Download| {
        download.field("content-type").is_none_or(|kind| {
            kind.starts_with("text/html") || kind.starts_with("application/xhtml+xml")
        })
    };
    match index::ask(&engine.net, folder, &Wanted::default()).await {
        Ok(download) if index::is_index(&download) => FolderKind::Tree,
        Ok(download) if is_page(&download) => FolderKind::Page,
        Err(error) if error.code().is_some_and(|code| !matches!(code, 404 | 410)) => {
            FolderKind::Refused
        }
        _ => FolderKind::Nothing,
    }
}

/// Returns whether the server of this folder offers the file of this name in it as a tree.
pub(crate) async fn is_file(engine: &Engine, folder: &Mirror, name: &str) -> bool {
    let file = Some((name.to_owned(), name.to_owned()));
    let wanted = Wanted { file, ..Wanted::default() };
    let asked = index::ask(&engine.net, folder, &wanted).await;
    asked.is_ok_and(|download| {
        index::is_index(&download) && download.field("swath-filtered").is_some()
    })
}

/// Returns whether an index has only the file `name`: nothing else may be written for it.
fn is_single(index: &Index, name: &str) -> bool {
    let mut cursor = index.cursor_from(0);
    let first = cursor.next().is_some_and(|item| {
        let is_file = matches!(item.entry.kind, Kind::File { .. } | Kind::Absent(_));
        is_file && item.path == name.as_bytes()
    });
    first && cursor.next().is_none()
}

/// Fetches the whole index of a folder.
pub(crate) async fn index(
    engine: &Engine,
    folder: &Mirror,
) -> Result<Arc<RwLock<Index>>, GetError> {
    let mut taking =
        index::take_first(engine, std::slice::from_ref(folder), &Wanted::default()).await?;
    taking.wait().await?;
    Ok(Arc::clone(&taking.index))
}

/// Asks for the index and opens the partial folder.
async fn begin(
    engine: &Engine,
    request: &TreeRequest,
    resume: bool,
    planned: &mut Option<removal::Shared>,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> Result<(Pass, Request), GetError> {
    let length = Arc::new(SealedLength::unknown());
    // The lanes connect while one connection fetches the index.
    for replica in &request.replicas {
        let (plan, replicas) = (plan_of(request), request.replicas.len() as u32);
        // On a short route that gains nothing, and a server that serves one connection at a time
        // would wait on the wrong one.
        let wanted = move |rtt| match plan.lanes_at_first(rtt, replicas) {
            lanes if rtt >= WORTH_CONNECTING_AHEAD => 1 + lanes,
            _ => 1,
        };
        engine.net.prepare(&replica.url, replica.trust, wanted);
    }
    if planned.is_none() {
        *planned = removal::first(engine, request).await?;
    }
    let mut taking = index::take_first(engine, &request.replicas, &request.wanted()).await?;
    let first = taking.replica;
    // An existing destination is compared and checked for conflicts.
    let waits = {
        let (destination, single) = (request.destination.clone(), request.single.clone());
        let look = move || {
            let single = single.as_deref();
            (resume && PartialTree::is_left(&destination, single))
                || PartialTree::is_there(&destination)
        };
        engine.disk.work(look).await.map_err(GetError::Thread)?
    };
    if waits || request.single.is_some() || request.discovery.is_some() {
        taking.wait().await?;
    }
    if let Some(name) = &request.single
        && !is_single(&read(&taking.index), name)
    {
        let reason = format!("it does not describe the single file {name}");
        return Err(GetError::Index { whose: taking.name.clone(), reason });
    }
    if waits {
        removal::check(engine, request, planned.as_ref(), &taking.index).await?;
    }
    let same = match waits {
        true => same(engine, request, &taking, observer).await?,
        // There is nothing to compare.
        false => Same::Nothing,
    };
    let stage = {
        let (same, stop) = (Arc::new(same), stop.clone());
        let halt: Halt = Arc::new(move || stop.is_set());
        let until = Instant::now() + Duration::from_secs_f64(request.locked_s);
        let mut stage = loop {
            let (place, index) = (request.place(engine), Arc::clone(&taking.index));
            let (preserve, same, halt) = (request.preserve, Arc::clone(&same), Arc::clone(&halt));
            let open =
                move || PartialTree::open_until(&place, index, preserve, resume, &same, halt);
            match engine.disk.work(open).await.map_err(GetError::Thread)? {
                Err(PartialError::Locked(_)) if Instant::now() < until => {
                    tokio::time::sleep(LOCKED_LOOK).await;
                }
                opened => break opened?,
            }
        };
        if engine.disk.mode_name() == "buffered" {
            stage.write_buffered();
        }
        if request.delete {
            stage.replace(request.filter.clone());
        }
        if let Some(top) = taking.top {
            stage.tell_top(top);
        }
        let stage = Arc::new(stage);
        // Only within a run: between runs the filter may change.
        if let (true, (1.., _)) = (planned.is_some(), stage.gone()) {
            observer.observe(&no_more(stage.gone()));
        }
        if let Some(closed) = stage.completed_earlier() {
            let but_for = match closed {
                0 => String::new(),
                some => format!(", but for {} where you may not write", units::count(some)),
            };
            let text = format!(
                "an earlier copy into this folder was interrupted while it renamed its files: all its complete files have their final names now{but_for}"
            );
            observer.observe(&Event::note(0.0, text, false));
        }
        if waits {
            let checked = Arc::clone(&stage);
            let check = move || {
                checked.check_conflicts().inspect_err(|_| {
                    // The new partial data is useless; that of an earlier run stays.
                    let _ = checked.give_up();
                })
            };
            engine.disk.work(check).await.map_err(GetError::Thread)??;
        }
        stage
    };
    let others = request.replicas.iter().enumerate().filter(|&(at, _)| at != first);
    let others = others.map(|(_, mirror)| mirror.clone()).collect();
    let joins = replicas::join(engine, &taking, others, &request.wanted());
    let shown = match &request.single {
        Some(name) => request.destination.join(name),
        None => request.destination.clone(),
    };
    let mut of_pass = Request::to(Destination::Tree(shown));
    of_pass.mirrors =
        vec![Mirror { url: taking.sealed.clone(), ..request.replicas[first].clone() }];
    of_pass.plan = plan_of(request);
    of_pass.stall_s = request.stall_s;
    of_pass.discover = false;
    of_pass.discovery = discovery_of(request, &read(&taking.index));
    let keeper = match request.keep_index.clone() {
        None => None,
        Some(path) => {
            let create = move || KeptIndexWriter::create(&path).map(Arc::new);
            let created = engine.disk.work(create).await.map_err(GetError::Thread)?;
            Some(created.map_err(GetError::Keep)?)
        }
    };
    let index = Arc::clone(&taking.index);
    let sink = Arc::new(TreeSink { stage, keeper, disk: engine.disk.clone() });
    let pass = Pass { index, sink, length, taking, joins, fetched_before_bytes: 0 };
    Ok((pass, of_pass))
}

/// Returns the planner configuration of a pass.
fn plan_of(request: &TreeRequest) -> Config {
    Config {
        // Groups and their hashes come together or not at all.
        grid_bytes: UNIT_BYTES,
        unit_bytes: UNIT_BYTES,
        ..request.plan.clone()
    }
}

/// Returns who finds further sources of a tree with this index.
fn discovery_of(request: &TreeRequest, index: &Index) -> Option<Arc<dyn Discovery>> {
    let (index_digest, plain_bytes) = (index.digests()?.dataset, index.size_bytes());
    let length = Arc::new(SealedLength::unknown());
    length.settle(plain_bytes);
    request.discovery.as_ref()?.of(IndexedTree { index_digest, plain_bytes, length })
}

/// Returns which parts of the destination equal a complete index.
async fn same(
    engine: &Engine,
    request: &TreeRequest,
    taking: &Taking,
    observer: &mut dyn Observer,
) -> Result<Same, GetError> {
    match request.compare {
        Compare::Nothing => Ok(Same::Nothing),
        Compare::SizeAndTime => Ok(Same::SizeAndTime),
        Compare::Content => {
            content::same(engine, taking, &request.destination, observer).await.map(Same::Bytes)
        }
    }
}

/// Returns the entries that the source could not offer.
fn absent(index: &Index) -> Vec<(Vec<u8>, Absence)> {
    let mut all = Vec::new();
    if index.counts().absent == 0 {
        return all;
    }
    let mut cursor = index.cursor();
    while let Some(item) = cursor.next() {
        if let Kind::Absent(absence) = item.entry.kind {
            all.push((item.path.to_vec(), absence));
        }
    }
    all
}

/// Returns the paths of the first entries whose extended attributes could not be copied.
fn first_losses(index: &Index, losses: &[(u64, XattrLoss)]) -> Vec<(Vec<u8>, XattrLoss)> {
    let first = losses.iter().take(LOSSES_NAMED_MAX);
    let named = first.filter_map(|&(number, loss)| {
        index.cursor_from(number).next().map(|item| (item.path.to_vec(), loss))
    });
    named.collect()
}

/// Most times in a row that a source may forget its walk before new bytes have come.
const FORGOTTEN_MAX: u32 = 3;
/// Shortest round trip at which lanes connect before the index has come.
const WORTH_CONNECTING_AHEAD: Duration = Duration::from_millis(10);
/// Most such entries reported: without support in the file system, a million files would lose them.
const LOSSES_NAMED_MAX: usize = 50;
/// Interval of checks whether another writer has ended.
const LOCKED_LOOK: Duration = Duration::from_millis(100);
