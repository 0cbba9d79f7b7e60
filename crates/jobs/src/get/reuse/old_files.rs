//! The files of an old version, read at the offsets of the new one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swath_model::pieces::Pieces;
use swath_model::{PieceMap, Range, RangeSet};
use swath_source::{Facts, Holdings, LaneError, ReadAt};
use swath_swarm::{ContentError, TorrentFiles};
use tokio::sync::watch;

use super::unchanged::Unchanged;

/// The unchanged bytes of an old version.
///
/// Each piece is verified before its first byte is delivered. The verifier of the transfer would find
/// wrong bytes too, but without another source of them it would not know whom to blame.
#[derive(Debug)]
pub struct OldFiles {
    files: Arc<TorrentFiles>,
    map: Arc<PieceMap>,
    /// In the order of the new version.
    parts: Vec<Unchanged>,
    /// The pieces of the new version.
    pieces: Pieces,
    /// The size of the new version.
    size_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    held: watch::Sender<RangeSet>,
    /// All else: what the other sources are asked for.
    lacking: watch::Sender<RangeSet>,
    /// The held bytes whose pieces are right.
    checked: RangeSet,
}

impl OldFiles {
    /// Returns these parts of the old version's files, whose content lies in its pieces as `map` says.
    /// They are whole pieces of the new version, which has these `pieces`.
    pub fn new(
        files: TorrentFiles,
        map: PieceMap,
        parts: Vec<Unchanged>,
        pieces: Pieces,
        size_bytes: u64,
    ) -> OldFiles {
        let held: RangeSet = parts.iter().map(|part| part.new).collect();
        let lacking = complement(&held);
        let state = State {
            held: watch::Sender::new(held),
            lacking: watch::Sender::new(lacking),
            checked: RangeSet::new(),
        };
        let (files, map, state) = (Arc::new(files), Arc::new(map), Mutex::new(state));
        OldFiles { files, map, parts, pieces, size_bytes, state }
    }

    /// Returns what the old version lacks.
    pub fn lacking(&self) -> Holdings {
        self.state().lacking.subscribe()
    }

    /// Its bytes are wrong: nothing more is read from it.
    pub fn leave(&self) {
        self.lose(Range::new(0, u64::MAX));
    }

    /// Leaves out these bytes of the new version.
    fn lose(&self, new: Range) {
        let state = self.state();
        state.held.send_modify(|held| _ = held.remove(new));
        let lacking = complement(&state.held.borrow());
        state.lacking.send_replace(lacking);
    }

    /// Reads bytes of the new version, which lie in one part.
    async fn read(&self, part: &Unchanged, range: Range) -> Result<Vec<u8>, ContentError> {
        let old = Range::of_len(part.old_start + (range.start - part.new.start), range.len());
        let (files, map) = (Arc::clone(&self.files), Arc::clone(&self.map));
        let reading = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::with_capacity(old.len() as usize);
            // Padding is not read.
            map.to_space(old).try_for_each(|(_, space)| files.read(space, &mut bytes))?;
            Ok(bytes)
        });
        reading.await.unwrap_or_else(|error| {
            Err(ContentError::Read { path: String::new(), error: error.into() })
        })
    }

    /// Returns whether a piece of the new version, which lies in one part, is right.
    async fn is_right(
        &self,
        part: &Unchanged,
        piece: u64,
        range: Range,
    ) -> Result<bool, ContentError> {
        let mut hasher = self.pieces.hasher(piece);
        let mut at = range.start;
        while at < range.end {
            let next = Range::new(at, range.end.min(at + READ_BYTES));
            hasher.update(&self.read(part, next).await?);
            at = next.end;
        }
        Ok(Some(hasher.finish()) == self.pieces.digest(piece))
    }

    /// Leaves out the files of the old version that have bytes of this piece: one cannot be read.
    fn lose_files(&self, part: &Unchanged, piece: Range, error: &ContentError) {
        tracing::debug!(%error, "the old version cannot be read");
        let old = Range::of_len(part.old_start + (piece.start - part.new.start), piece.len());
        let file = |at| self.map.file_at(at).unwrap_or(old);
        let files = Range::new(file(old.start).start, file(old.end - 1).end);
        for part in &self.parts {
            if let Some(both) = part.old().intersect(files) {
                let start = part.new.start + (both.start - part.old_start);
                self.lose(Range::of_len(start, both.len()));
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the part with this byte of the new version.
    fn part_at(&self, offset: u64) -> Option<&Unchanged> {
        let behind = self.parts.partition_point(|part| part.new.start <= offset);
        self.parts[..behind].last().filter(|part| offset < part.new.end)
    }
}

impl ReadAt for OldFiles {
    fn holdings(&self) -> Option<Holdings> {
        Some(self.state().held.subscribe())
    }

    async fn facts(&self) -> Result<Facts, LaneError> {
        Ok(Facts { size_bytes: Some(self.size_bytes), ranges: true, ..Facts::default() })
    }

    async fn read_at(&self, offset: u64, space: &mut [u8]) -> Result<usize, LaneError> {
        let wanted = Range::of_len(offset, space.len() as u64);
        let not_held = || {
            let lacking = self.state().held.borrow().gaps_within(wanted);
            LaneError::NotHeld { range: wanted, lacking }
        };
        let part = self.part_at(offset).ok_or_else(not_held)?;
        let number = self.pieces.piece_at(offset);
        let piece = self.pieces.range_of(number, self.size_bytes).ok_or_else(not_held)?;
        let range = Range::new(offset, wanted.end.min(piece.end).min(part.new.end));
        let is_held = self.state().held.borrow().covers(range);
        let is_checked = self.state().checked.covers(range);
        if !is_held {
            return Err(not_held());
        }
        if !is_checked {
            match self.is_right(part, number, piece).await {
                Ok(true) => _ = self.state().checked.insert(piece),
                Ok(false) => {
                    self.lose(piece);
                    return Err(not_held());
                }
                Err(error) => {
                    self.lose_files(part, piece, &error);
                    return Err(not_held());
                }
            }
        }
        match self.read(part, range).await {
            Ok(bytes) => {
                space[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            }
            Err(error) => {
                self.lose_files(part, piece, &error);
                Err(not_held())
            }
        }
    }
}

fn complement(held: &RangeSet) -> RangeSet {
    held.gaps_within(Range::new(0, u64::MAX)).into_iter().collect()
}

/// Bytes that are read at once to check a piece.
const READ_BYTES: u64 = 1 << 20;
