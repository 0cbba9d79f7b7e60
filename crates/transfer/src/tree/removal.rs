//! What `--delete` removes: entries that were not in the tree when the copy began. A source disk
//! that is briefly gone, or missing after a restart of the server, is no reason to remove anything.

use std::sync::{Arc, RwLock};

use serde::{Deserialize, Serialize};
use swath_model::index::{Counts, Index};
use swath_store::tree::{Change, Listing, Lookup, Removed, Stays, Surplus, Unchanged, turned};

use super::index::{self, Wanted};
use super::{TreeRequest, read};
use crate::engine::{Engine, Stop};
use crate::error::GetError;

/// Entries that stay although they are not in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spared {
    /// Number of entries.
    pub entries: u64,
    /// Why they stay.
    pub why: Spare,
}

/// Why entries are not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spare {
    /// There is no file in the tree, and the user did not allow that.
    Empty,
    /// They were in the tree when the copy began.
    Dropped,
}

/// Entries that could not be removed although they should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unremoved {
    /// Number of entries.
    pub count: u64,
    /// The first of them, with the error; without folders that stay only for their contents.
    pub first: Vec<(String, String)>,
}

impl Unremoved {
    pub(super) fn of(stays: Stays) -> Unremoved {
        let text =
            |(path, error): (Vec<u8>, String)| (String::from_utf8_lossy(&path).into_owned(), error);
        Unremoved { count: stays.count, first: stays.first.into_iter().map(text).collect() }
    }
}

/// A shared index.
pub(super) type Shared = Arc<RwLock<Index>>;

/// Returns whether a tree has no entries but folders: all may be gone by mistake, since a missing
/// disk leaves a folder, at times with folders in it.
fn is_bare(counts: &Counts) -> bool {
    counts.files + counts.links + counts.hard_links == 0
}

/// Returns whether a tree with these counts forbids all removal.
pub(super) fn refuses(request: &TreeRequest, counts: &Counts) -> bool {
    request.delete && !request.allow_empty && is_bare(counts)
}

/// Returns the index with which the copy began, if another receiver began it.
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

/// Fails if an entry that was in the tree when the copy began would be removed, because its kind
/// has changed since.
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

/// Removes entries that the tree has neither now nor had when the copy began. Returns removed
/// entries with those that could not be removed, and those that must stay.
pub(super) async fn remove(
    engine: &Engine,
    request: &TreeRequest,
    first: Option<&Shared>,
    now: &Shared,
    stop: &Stop,
) -> Result<(Removed, Option<Spared>), GetError> {
    let first = first.filter(|first| !Arc::ptr_eq(first, now)).cloned();
    let (now, request, halt) = (Arc::clone(now), request.clone(), stop.clone());
    let place = request.place(engine);
    let remove = move || {
        if place.single.is_some() {
            // All else there is no part of this copy.
            return Ok((Removed::default(), None));
        }
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
        // Only surplus entries count here, so nothing is compared.
        swath_store::tree::differences(&now, folder, filter, &Unchanged::default(), false, take)?;
        let spared = |entries, why| (entries > 0).then_some(Spared { entries, why });
        let dropped = spared(dropped, Spare::Dropped);
        if refuses(&request, &now.counts()) {
            return Ok((Removed::default(), dropped.or(spared(planned, Spare::Empty))));
        }
        let removed = swath_store::tree::remove(&place, surplus, &|| halt.is_set())?;
        Ok((removed, dropped))
    };
    let removed = engine.disk.work(remove).await.map_err(GetError::Thread)?;
    removed.map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::Interrupted if stop.is_set() => GetError::Stopped,
        _ => GetError::Remove(error),
    })
}
