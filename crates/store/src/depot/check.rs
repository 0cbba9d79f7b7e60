//! Checks stored bytes against their group hashes.
//!
//! Each whole group is hashed when it is first read after it was stored or the depot was opened,
//! from memory that sending needs anyway; after that on demand, and at random for a few reads.
//! Pieces of incomplete groups are few and hashed each time.

use std::io;

use swath_model::Range;

use super::Shared;
use super::lease::Lease;
use crate::hashed_file::HashedFile;

/// Which bytes to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Bytes not checked before. All were held at the last look, so any that are not held by now
    /// count as bad.
    New,
    /// The same, including bytes checked before.
    All,
    /// Held bytes, whether checked before or not.
    Held,
}

/// Returns the first part of `range` that does not fit its group hash and so is not held any more,
/// or that another thread has just found damaged.
pub(crate) fn check(
    depot: &Shared,
    lease: &Lease,
    file: &HashedFile,
    range: Range,
    which: Which,
) -> io::Result<Option<Range>> {
    for group in lease.layout.groups_of(range) {
        let mut pieces = Vec::new();
        let is_whole = {
            let book = lease.book();
            let is_checked = book.checked.covers(group) && !file.is_looked_at_again(group);
            if which == Which::New && is_checked {
                continue;
            }
            let wanted = group.intersect(range).filter(|_| which != Which::Held);
            let missing = wanted.map_or_else(Vec::new, |it| book.contents.held.gaps_within(it));
            if let Some(&missing) = missing.first() {
                return Ok(Some(missing));
            }
            pieces.extend(book.contents.pieces_within(group));
            pieces.is_empty() && book.contents.held.covers(group)
        };
        if is_whole {
            let group_hash = file.read_group_hash(group.start)?;
            if !file.fits(group, &group_hash)? {
                lease.suspect(depot, file, group)?;
                return Ok(Some(group));
            }
            lease.book().found_right(group);
        }
        for (piece, group_hash) in
            pieces.into_iter().filter(|(piece, _)| piece.intersect(range).is_some())
        {
            if !file.fits(piece, &group_hash)? {
                lease.suspect(depot, file, piece)?;
                return Ok(Some(piece));
            }
        }
    }
    Ok(None)
}
