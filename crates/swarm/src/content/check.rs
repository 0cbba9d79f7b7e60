//! Verifies content against the hashes of its pieces, on all processors.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use swath_formats::peer::{Bitfield, PieceIndex};
use swath_formats::torrent::Metainfo;
use swath_model::digest::Hasher;

use super::{ContentError, TorrentFiles};

/// What a check has found.
#[derive(Debug)]
pub struct Checked {
    /// The pieces that are right.
    pub have: Bitfield,
    /// What is wrong, by the path of the file.
    pub faults: BTreeMap<String, Fault>,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum Fault {
    /// It cannot be read, or does not have its length.
    File(ContentError),
    /// So many pieces that have bytes of it are wrong.
    Pieces(u64),
}

/// Checks all pieces. `progress` counts the bytes; once `stop` is set, the remaining pieces count as
/// wrong and are not named.
pub fn check(
    metainfo: &Metainfo,
    files: &TorrentFiles,
    progress: &AtomicU64,
    stop: &AtomicBool,
) -> Checked {
    let info = &metainfo.info;
    // `Info` has at most 2^24 pieces.
    let pieces = info.piece_count() as u32;
    let faults = files.faults().into_iter();
    let faults = faults.flat_map(|(range, error)| {
        let path = files.paths(range).next().unwrap_or_default().to_owned();
        Some((path, Fault::File(error)))
    });
    let checked = Mutex::new(Checked { have: Bitfield::none(pieces), faults: faults.collect() });
    let next = AtomicU64::new(0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let workers = (BUFFERS_BYTES / info.piece_bytes().max(1)).clamp(1, processors);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut buffer = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let piece = next.fetch_add(1, Ordering::Relaxed);
                    let Some(range) = info.piece_range(piece) else { break };
                    buffer.clear();
                    let is_right = files.read(range, &mut buffer).is_ok()
                        && is_right(metainfo, piece, &buffer);
                    progress.fetch_add(range.len(), Ordering::Relaxed);
                    let mut checked = checked.lock().unwrap_or_else(PoisonError::into_inner);
                    if is_right {
                        checked.have.insert(PieceIndex(piece as u32));
                        continue;
                    }
                    for path in files.paths(range) {
                        let fault = checked.faults.entry(path.to_owned());
                        if let Fault::Pieces(count) = fault.or_insert(Fault::Pieces(0)) {
                            *count += 1;
                        }
                    }
                }
            });
        }
    });
    checked.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether these are the bytes of a piece, with the padding behind them: by SHA-256 where
/// there is one, otherwise by SHA-1.
fn is_right(metainfo: &Metainfo, piece: u64, bytes: &[u8]) -> bool {
    if let Some(of) = metainfo.piece_v2(piece) {
        let content = bytes.get(..of.range.len() as usize);
        return content.is_some_and(|content| of.is_verified_by(content));
    }
    let pieces = metainfo.info.pieces_v1();
    let digest = pieces.and_then(|pieces| pieces.digest(piece));
    digest.is_some_and(|digest| Hasher::digest(digest.algorithm(), bytes) == digest)
}

/// Each worker holds a piece.
const BUFFERS_BYTES: u64 = 256 << 20;
