//! What `--delete` removes: what was not in the tree when the copy began. A source whose disk is gone
//! for a moment, or whose server came back without it, is no reason to remove anything.

use std::sync::{Arc, RwLock};

use serde::{Deserialize, Serialize};
use swath_model::index::{Counts, Index};
use swath_store::tree::{Change, Listing, Lookup, Removed, Stays, Surplus, Unchanged, turned};

use super::index::{self, Wanted};
use super::{TreeRequest, read};
use crate::engine::{Engine, Stop};
use crate::error::GetError;

/// What was not removed although it is not in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spared {
    /// How many entries.
    pub entries: u64,
    /// Why they stay.
    pub why: Spare,
}

/// Why something is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spare {
    /// There is no file in the tree, which nobody has called right.
    Empty,
    /// It was in the tree when the copy began.
    Dropped,
}

/// What could not be removed although it is not in the tree, and nobody wants to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unremoved {
    /// How many entries.
    pub count: u64,
    /// The first of them, and what the system says; folders are not among them for what stays in them.
    pub first: Vec<(String, String)>,
}

impl Unremoved {
    pub(super) fn of(stays: Stays) -> Unremoved {
        let text =
            |(path, error): (Vec<u8>, String)| (String::from_utf8_lossy(&path).into_owned(), error);
        Unremoved { count: stays.count, first: stays.first.into_iter().map(text).collect() }
    }
}

/// An index that several hold.
pub(super) type Shared = Arc<RwLock<Index>>;

/// Whether so little is in a tree that all may have gone by mistake: a disk that is not there leaves
/// a folder, at times with folders in it.
fn is_bare(counts: &Counts) -> bool {
    counts.files + counts.links + counts.hard_links == 0
}

/// Whether nothing may be removed for a tree that holds this.
pub(super) fn refuses(request: &TreeRequest, counts: &Counts) -> bool {
    request.delete && !request.allow_empty && is_bare(counts)
}

/// The index that the copy began with, where others have begun it.
pub(super) async fn first(
    engine: &Engine,
    request: &TreeRequest,
) -> Result<Option<Shared>, GetError> {
    let Some(walk) = request.first_walk.clone().filter(|_| request.delete) else {
        return Ok(None);
    };
    let wanted = Wanted { walk: Some(walk), ..Wanted::default() };
    let mut taking = index::take_first(engine, &request.replicas, &wanted).await?;
    taking.wait().await?;
    Ok(Some(Arc::clone(&taking.index)))
}

/// Look whether anything would have to go, because it is of another kind in the tree now, that was in
/// the tree when the copy began.
pub(super) async fn check(
    engine: &Engine,
    request: &TreeRequest,
    first: Option<&Shared>,
    now: &Shared,
) -> Result<(), GetError> {
    let Some(first) = first.filter(|_| request.delete).cloned() else { return Ok(()) };
    let (now, folder) = (Arc::clone(now), request.destination.clone());
    let look = move || turned(&read(&first), &read(&now), &folder);
    match engine.disk.work(look).await.map_err(GetError::Thread)?? {
        None => Ok(()),
        Some(path) => Err(GetError::Turned { path: String::from_utf8_lossy(&path).into_owned() }),
    }
}

/// Remove what neither the tree has nor had when the copy began; answers what went and what would not,
/// and what is to stay.
pub(super) async fn remove(
    engine: &Engine,
    request: &TreeRequest,
    first: Option<&Shared>,
    now: &Shared,
    stop: &Stop,
) -> Result<(Removed, Option<Spared>), GetError> {
    let first = first.filter(|first| !Arc::ptr_eq(first, now)).cloned();
    let (now, request, halt) = (Arc::clone(now), request.clone(), stop.clone());
    let remove = move || {
        let (now, first) = (read(&now), first.as_deref().map(read));
        let mut listed = first.as_deref().map(Lookup::new);
        let mut surplus = Surplus::default();
        let (mut planned, mut dropped) = (0, 0);
        let take = |change, path: &[u8]| {
            if change != Change::Surplus {
                return;
            }
            match listed.as_mut().map_or(Listing::No, |listed| listed.find(path)) {
                Listing::No => {
                    surplus.push(path);
                    planned += 1;
                }
                _ => dropped += 1,
            }
        };
        let (folder, filter) = (&request.destination, &request.filter);
        // What of the rest is the same is of no interest.
        swath_store::tree::differences(&now, folder, filter, &Unchanged::default(), false, take)?;
        let spared = |entries, why| (entries > 0).then_some(Spared { entries, why });
        let dropped = spared(dropped, Spare::Dropped);
        if refuses(&request, &now.counts()) {
            return Ok((Removed::default(), dropped.or(spared(planned, Spare::Empty))));
        }
        let removed = swath_store::tree::remove(folder, surplus, &|| halt.is_set())?;
        Ok((removed, dropped))
    };
    let removed = engine.disk.work(remove).await.map_err(GetError::Thread)?;
    removed.map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::Interrupted if stop.is_set() => GetError::Stopped,
        _ => GetError::Remove(error),
    })
}
