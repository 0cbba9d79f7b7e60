//! Turns written pieces into facts for the journal: pieces become whole groups, or fewer pieces.
//!
//! Bytes that get a new hash are first read back and checked against their old hashes, so that a
//! new hash never hides damage.

use std::collections::BTreeMap;
use std::io;
use std::ops::DerefMut;
use std::sync::Arc;

use swath_model::{Range, RangeSet};

use super::contents::Fact;
use super::lease::{Book, Fault};
use crate::hashed_file::{GroupHash, HashedFile, PieceHasher};

/// The bytes written by one writer.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Whole groups, with their group hashes written.
    pub(crate) whole: RangeSet,
    /// Pieces of groups that were not written as a whole.
    pub(crate) pieces: Vec<(Range, GroupHash)>,
}

impl Parts {
    pub(crate) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.pieces.is_empty()
    }
}

/// Returns the facts from `parts`, and writes the group hashes of groups that become whole.
pub(crate) fn settle<B: DerefMut<Target = Book>>(
    file: &HashedFile,
    book: impl Fn() -> B,
    parts: &[&Parts],
) -> Result<Vec<Fact>, Fault> {
    let mut whole = RangeSet::new();
    let mut groups: BTreeMap<u64, Vec<Piece>> = BTreeMap::new();
    for part in parts {
        whole.union_with(&part.whole);
        for &(range, group_hash) in &part.pieces {
            let group = file.layout().group_at(range.start);
            groups.entry(group.start).or_default().push(Piece { range, group_hash, is_new: true });
        }
    }
    let mut facts = Vec::new();
    for (start, mut pieces) in groups {
        let group = file.layout().group_at(start);
        for (range, group_hash) in book().contents.pieces_within(group) {
            pieces.push(Piece { range, group_hash, is_new: false });
        }
        pieces.sort_unstable_by_key(|piece| piece.range.start);
        let runs = runs_of(&pieces);
        let is_whole =
            runs.len() == 1 && pieces.iter().map(|one| one.range.len()).sum::<u64>() == group.len();
        if !is_whole && pieces.len() - runs.len() < MERGE_FROM {
            let new = pieces.iter().filter(|piece| piece.is_new);
            facts.extend(
                new.map(|piece| Fact::Piece { range: piece.range, group_hash: piece.group_hash }),
            );
            continue;
        }
        for run in runs {
            match merge(file, run).map_err(|error| Fault::Io(Arc::new(error)))? {
                Merged::Hashed(range, group_hash) if range == group => {
                    file.write_group_hash(start, &group_hash)
                        .map_err(|error| Fault::Io(Arc::new(error)))?;
                    whole.insert(range);
                }
                Merged::Hashed(range, group_hash) => facts.push(Fact::Piece { range, group_hash }),
                Merged::Damaged(piece) if piece.is_new => {
                    let error = io::Error::other("the written bytes read back differently");
                    return Err(Fault::Lost(Arc::new(error)));
                }
                Merged::Damaged(damaged) => {
                    tracing::warn!(range = %damaged.range, "stored bytes are damaged");
                    facts.push(Fact::Bad { range: damaged.range });
                    let new = run.iter().filter(|piece| piece.is_new);
                    facts.extend(
                        new.map(|new| Fact::Piece { range: new.range, group_hash: new.group_hash }),
                    );
                }
            }
        }
    }
    facts.extend(whole.iter().map(|range| Fact::Whole { range }));
    Ok(facts)
}

struct Piece {
    range: Range,
    group_hash: GroupHash,
    is_new: bool,
}

/// Returns runs of adjacent pieces, in order.
fn runs_of(pieces: &[Piece]) -> Vec<&[Piece]> {
    pieces.chunk_by(|one, next| one.range.end == next.range.start).collect()
}

enum Merged<'a> {
    Hashed(Range, GroupHash),
    Damaged(&'a Piece),
}

/// Returns one group hash for adjacent pieces, if all of them are right.
fn merge<'a>(file: &HashedFile, run: &'a [Piece]) -> io::Result<Merged<'a>> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let range = Range::new(first.range.start, last.range.end);
    if run.len() == 1 {
        return Ok(Merged::Hashed(range, first.group_hash));
    }
    let mut bytes = vec![0; range.len() as usize];
    file.read(range.start, &mut bytes)?;
    let mut all = PieceHasher::new(range.start);
    for piece in run {
        let from = (piece.range.start - range.start) as usize;
        let bytes = &bytes[from..from + piece.range.len() as usize];
        if crate::hashed_file::group_hash_of(piece.range.start, bytes) != piece.group_hash {
            return Ok(Merged::Damaged(piece));
        }
        all.update(bytes);
    }
    Ok(Merged::Hashed(range, all.finish()))
}

/// A group is read again if it has this many more pieces than gaps between them.
const MERGE_FROM: usize = 64;
