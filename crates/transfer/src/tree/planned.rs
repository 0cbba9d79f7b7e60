//! Plans a copy: what it would change, and whether it would be refused.

use std::sync::Arc;

use swath_model::index::{Absence, Counts};
use swath_source::sealed_bytes;
use swath_store::tree::{
    Change, Stays, Surplus, Unchanged, check_destination, check_rights, check_space,
};

use super::removal::{self, Spare, Spared, Unremoved};
use super::{TreeRequest, absent, index, is_whole, same};
use crate::engine::Engine;
use crate::error::GetError;
use crate::observe::Event;

/// The result that a copy would have, as far as a walk can tell.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The counts of the tree.
    pub counts: Counts,
    /// Entries that would stay although they are not in the tree.
    pub spared: Option<Spared>,
    /// Entries that could not be removed, as far as permissions show.
    pub unremoved: Unremoved,
    /// Entries that the source cannot offer, and why.
    pub absent: Vec<(Vec<u8>, Absence)>,
}

impl Planned {
    /// Returns whether all of the tree would be copied.
    pub fn is_whole(&self) -> bool {
        is_whole(&self.absent)
    }
}

/// Reports how a destination differs from the tree that it should hold.
pub(crate) async fn differences(
    engine: &Engine,
    request: &TreeRequest,
    mut take: impl FnMut(Change, &[u8]) + Send + 'static,
) -> Result<Planned, GetError> {
    let mut taking = index::take_first(engine, &request.replicas, &request.wanted()).await?;
    taking.wait().await?;
    let (index, folder) = (Arc::clone(&taking.index), request.destination.clone());
    let same = same(engine, request, &taking, &mut |_: &Event| {}).await?;
    let (filter, links) = (request.filter.clone(), request.preserve.links);
    let replaces = request.delete.then(|| request.filter.clone());
    let request = request.clone();
    let compared = move || {
        let index = index::read(&index);
        check_destination(&index, &folder, replaces.as_ref())?;
        let kept = Unchanged::at(&index, &folder, &same, links);
        check_rights(&index, &folder, &kept)?;
        let single = request.single.as_deref();
        check_space(&index, &folder, single, &kept, links, sealed_bytes)?;
        let (refuses, mut entries) = (removal::refuses(&request, &index.counts()), 0);
        let absent = absent(&index);
        let is_whole = is_whole(&absent);
        let mut surplus = Surplus::default();
        let tell = |change, path: &[u8]| match change {
            // Nothing is removed before the tree is complete.
            Change::Surplus if !is_whole || request.single.is_some() => {}
            Change::Surplus if refuses => entries += 1,
            Change::Surplus => {
                surplus.push(path);
                take(change, path);
            }
            change => take(change, path),
        };
        swath_store::tree::differences(&index, &folder, &filter, &kept, links, tell)
            .map_err(GetError::Thread)?;
        let spared = (entries > 0).then_some(Spared { entries, why: Spare::Empty });
        let stays = match request.delete {
            true => swath_store::tree::removable(&folder, surplus).unwrap_or_default(),
            false => Stays::default(),
        };
        let unremoved = Unremoved::of(stays);
        Ok(Planned { counts: index.counts(), spared, unremoved, absent })
    };
    engine.disk.work(compared).await.map_err(GetError::Thread)?
}
