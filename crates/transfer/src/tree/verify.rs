//! Compares a copied tree with an index: the one kept when it was copied, or the server's present
//! one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use swath_model::index::{Counts, Index};
use swath_model::{Range, RangeSet};
use swath_store::tree::{Content, Filter, KeptIndex, KeptIndexWriter, Wrong, check_entries};

use super::content::{GroupHashes, each};
use super::index;
use crate::engine::Engine;
use crate::error::GetError;
use crate::request::Mirror;

/// The reference for a tree.
#[derive(Clone, Debug)]
pub enum Against {
    /// The index file kept when it was copied.
    Kept(PathBuf),
    /// The present content of a server's folder, with a filter.
    Now(Mirror, Box<Filter>),
}

/// Reports how `folder` differs from its index: first what shows without reading files, then their
/// content.
pub(crate) async fn verify(
    engine: &Engine,
    folder: &Path,
    against: &Against,
    mut take: impl FnMut(Wrong, &[u8]) + Send,
) -> Result<Counts, GetError> {
    let (index, group_hashes) = match against {
        Against::Kept(path) => {
            let file = path.clone();
            let read = engine.disk.work(move || KeptIndex::open(&file)).await;
            let name = path.display().to_string();
            let (file, index) = read.map_err(GetError::Thread)?.map_err(|error| {
                GetError::Index { whose: name.clone(), reason: error.to_string() }
            })?;
            (Arc::new(RwLock::new(index)), GroupHashes::Kept { file: Arc::new(file), name })
        }
        Against::Now(mirror, filter) => {
            let replicas = std::slice::from_ref(mirror);
            let wanted =
                index::Wanted { filter: Filter::clone(filter), ..index::Wanted::default() };
            let mut taking = index::take_first(engine, replicas, &wanted).await?;
            taking.wait().await?;
            (Arc::clone(&taking.index), GroupHashes::of(&taking))
        }
    };
    let looked = {
        let (index, folder) = (Arc::clone(&index), folder.to_owned());
        let look = move || {
            let mut wrong = Vec::new();
            let tell = |what, path: &[u8]| wrong.push((what, path.to_vec()));
            check_entries(&index::read(&index), &folder, tell)?;
            let content = Content::open(&folder, Arc::clone(&index))?;
            let candidates = content.candidates();
            Ok::<_, std::io::Error>((wrong, content, candidates))
        };
        engine.disk.work(look).await.map_err(GetError::Thread)?
    };
    let (wrong, content, candidates) = looked.map_err(GetError::Thread)?;
    for (what, path) in &wrong {
        take(*what, path);
    }
    // Reported files are not reported again; files that share a block with one are doubtful.
    let lacks = |what: Wrong| matches!(what, Wrong::Missing | Wrong::Kind | Wrong::Size);
    let is_of = |wanted: Wrong| move |(what, _): &&(Wrong, Vec<u8>)| *what == wanted;
    let changed: HashSet<Vec<u8>> =
        wrong.iter().filter(is_of(Wrong::Mtime)).map(|(_, path)| path.clone()).collect();
    let lacking: HashSet<Vec<u8>> =
        wrong.into_iter().filter(|(what, _)| lacks(*what)).map(|(_, path)| path).collect();
    let mut bad = RangeSet::full(content.groups());
    bad.subtract(&candidates);
    each(engine, &group_hashes, &content, candidates, |group, theirs, ours| {
        if ours != Some(theirs) {
            bad.insert(Range::new(group, group + 1));
        }
        Ok(())
    })
    .await?;
    let mut told: Vec<Vec<u8>> = Vec::new();
    // Files with no other evidence than the block come last.
    let mut doubtful: Vec<Vec<u8>> = Vec::new();
    for group in bad.iter().flat_map(|range| range.start..range.end) {
        let files = content.files_of(group);
        for path in files.iter().filter(|path| !told.contains(path) && !lacking.contains(*path)) {
            match files.len() {
                1 => take(Wrong::Content, path),
                _ if changed.contains(path) => take(Wrong::Likely, path),
                _ => doubtful.push(path.clone()),
            }
        }
        // The groups of a file are adjacent.
        told = files;
    }
    for path in &doubtful {
        take(Wrong::Doubtful, path);
    }
    let counts = index::read(&index).counts();
    Ok(counts)
}

/// Writes the index of a copied tree with the hashes of all its groups. The source sends the hashes
/// that did not come with this copy.
pub(super) async fn keep(
    engine: &Engine,
    keeper: Arc<KeptIndexWriter>,
    group_hashes: &GroupHashes,
    index: &Arc<RwLock<Index>>,
    folder: &Path,
) -> Result<(), GetError> {
    let (there, of) = (folder.to_owned(), Arc::clone(index));
    let content = engine.disk.work(move || Content::open(&there, of)).await;
    let content = content.map_err(GetError::Thread)?.map_err(GetError::Keep)?;
    let missing = keeper.missing(content.groups());
    each(engine, group_hashes, &content, missing, |group, theirs, ours| {
        // If a group changed at the source since, the hash of the copy counts.
        let ours = ours.filter(|ours| ours.iter().zip(&theirs).all(|(own, their)| *their == !*own));
        keeper.keep(group, &ours.unwrap_or(theirs))
    })
    .await?;
    let index = Arc::clone(index);
    let kept = engine.disk.work(move || keeper.finish(&index::read(&index))).await;
    kept.map_err(GetError::Thread)?.map_err(GetError::Keep)
}
