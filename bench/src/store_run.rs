//! Writes one large file through the store, the way the lanes of a transfer would.
//!
//! A [`Way`] is a mode with its sizes; it has a short text form (`uring-512k-d16`), so that a
//! study can start itself again once for every run and have the kernel account for each alone.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use swath_model::{Pool, Range};
use swath_store::{Disk, DiskOptions, IoMode, Record, Target, TargetSpec};
use tokio::task::JoinSet;

/// One way to write a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Which engine.
    pub mode: IoMode,
    /// Size of the pool's buffers.
    pub buffer_kib: usize,
    /// Buffers under way at a time (io_uring), or threads.
    pub depth: Option<usize>,
    /// Reserve the file's space in advance.
    pub reserve: bool,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}k", self.mode, self.buffer_kib)?;
        if let Some(depth) = self.depth {
            write!(f, "-d{depth}")?;
        }
        if !self.reserve {
            f.write_str("-sparse")?;
        }
        Ok(())
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no way to write: it is like uring-512k-d16-sparse");
        let mut parts = text.split('-');
        let mode = parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?;
        let size = parts.next().and_then(|part| part.strip_suffix('k')).ok_or_else(wrong)?;
        let buffer_kib = size.parse().map_err(|_| wrong())?;
        let mut way = Way { mode, buffer_kib, depth: None, reserve: true };
        for part in parts {
            match part.strip_prefix('d').and_then(|depth| depth.parse().ok()) {
                Some(depth) => way.depth = Some(depth),
                None if part == "sparse" => way.reserve = false,
                None => return Err(wrong()),
            }
        }
        Ok(way)
    }
}

/// Write `size_bytes` to `path`: six lanes in their own parts of the file, a commit every 512 MiB,
/// everything durable at the end.
pub fn write_file(way: Way, path: &Path, size_bytes: u64) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    runtime.block_on(write(way, path, size_bytes))
}

async fn write(way: Way, path: &Path, size_bytes: u64) -> Result<(), String> {
    let pool = Pool::new(POOL_BYTES / (way.buffer_kib << 10), way.buffer_kib << 10);
    let mut options = DiskOptions { reserve: way.reserve, ..DiskOptions::default() };
    if let Some(depth) = way.depth {
        options.ring_depth = depth;
        options.write_threads = depth;
    }
    let disk = Disk::start_with(&pool, way.mode, options).map_err(|e| e.to_string())?;
    let spec =
        TargetSpec { path: path.to_owned(), size_bytes: Some(size_bytes), ..TargetSpec::default() };
    let (target, _) = Target::open(&disk, spec).await.map_err(|e| e.to_string())?;
    let target = Arc::new(target);
    let buffer_bytes = pool.slot_bytes() as u64;
    let share_bytes = size_bytes.div_ceil(LANES).next_multiple_of(buffer_bytes);
    let mut next: Vec<Range> = (0..LANES)
        .map(|lane| Range::of_len(lane * share_bytes, share_bytes))
        .map(|part| Range::new(part.start.min(size_bytes), part.end.min(size_bytes)))
        .collect();
    let mut under_way: JoinSet<Result<Range, String>> = JoinSet::new();
    let (mut records, mut uncommitted_bytes) = (Vec::new(), 0);
    while next.iter().any(|left| !left.is_empty()) {
        for left in &mut next {
            let (piece, rest) = left.split_at(left.start + buffer_bytes);
            *left = rest;
            if piece.is_empty() {
                continue;
            }
            let mut buffer = pool.take().await;
            // As much work as touching every page: what a socket does is measured elsewhere.
            for page in buffer.whole().chunks_mut(4096) {
                page[..8].copy_from_slice(&piece.start.to_le_bytes());
            }
            buffer.advance(piece.len() as usize);
            let target = Arc::clone(&target);
            under_way.spawn(async move {
                let written = target.write(piece.start, buffer).await;
                written.map(|_| piece).map_err(|e| e.to_string())
            });
        }
        while let Some(done) = under_way.try_join_next() {
            let range = done.map_err(|e| e.to_string())??;
            records.push(Record::Durable { range, source: 0 });
            uncommitted_bytes += range.len();
        }
        if uncommitted_bytes >= COMMIT_BYTES {
            uncommitted_bytes = 0;
            let commit = (Arc::clone(&target), std::mem::take(&mut records));
            // Beside the writing, as in a transfer.
            under_way.spawn(async move {
                let committed = commit.0.commit(commit.1).await;
                committed.map(|()| Range::new(0, 0)).map_err(|e| e.to_string())
            });
        }
    }
    while let Some(done) = under_way.join_next().await {
        done.map_err(|e| e.to_string())??;
    }
    target.finish(None).await.map(drop).map_err(|e| e.to_string())
}

const LANES: u64 = 6;
/// What a transfer gives its pool.
const POOL_BYTES: usize = 64 << 20;
const COMMIT_BYTES: u64 = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_one_text_each() {
        for text in ["uring-512k", "threads-256k-d4", "buffered-1024k-sparse", "auto-64k-d2-sparse"]
        {
            assert_eq!(text.parse::<Way>().unwrap().to_string(), text);
        }
        for wrong in ["", "uring", "uring-5", "disk-5k", "uring-5k-x", "uring-5k-d"] {
            assert!(wrong.parse::<Way>().is_err(), "{wrong}");
        }
    }
}
