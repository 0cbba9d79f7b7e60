//! Whether stored bytes are still those that were stored.
//!
//! Each whole group is hashed when it is read first after it was stored or after the depot was
//! opened, from memory that sending it needs anyway; from then on only on demand. Pieces of groups
//! that are not whole are few and hashed each time.

use std::io;

use swath_model::Range;

use super::Shared;
use super::lease::Lease;
use crate::sealed_file::SealedFile;

/// Check the held bytes of `range`, `again` also those that were checked before: the first part of
/// it that does not fit its seal, which is not held any more then.
pub(crate) fn check(
    depot: &Shared,
    lease: &Lease,
    file: &SealedFile,
    range: Range,
    again: bool,
) -> io::Result<Option<Range>> {
    for group in lease.layout.groups_of(range) {
        let mut pieces = Vec::new();
        let is_whole = {
            let book = lease.book();
            if !again && book.checked.covers(group) {
                continue;
            }
            pieces.extend(book.contents.pieces_within(group));
            pieces.is_empty() && book.contents.held.covers(group)
        };
        if is_whole {
            let seal = file.read_seal(group.start)?;
            if !file.fits(group, &seal)? {
                lease.suspect(depot, file, group)?;
                return Ok(Some(group));
            }
            let mut book = lease.book();
            // Unless it became another one meanwhile.
            if book.contents.held.covers(group) {
                book.checked.insert(group);
            }
        }
        for (piece, seal) in
            pieces.into_iter().filter(|(piece, _)| piece.intersect(range).is_some())
        {
            if !file.fits(piece, &seal)? {
                lease.suspect(depot, file, piece)?;
                return Ok(Some(piece));
            }
        }
    }
    Ok(None)
}
