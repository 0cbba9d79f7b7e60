//! What the store's tests share: content that can be told by its offset, and targets to fill.
#![allow(dead_code)]

pub mod trees;

use std::path::{Path, PathBuf};

use swath_model::{Pool, Range};
use swath_store::{Disk, Identity, IoMode, OpenError, Record, Resumed, Target, TargetSpec};

pub const BUFFER_BYTES: usize = 64 << 10;

pub const MODES: [IoMode; 4] = [IoMode::Auto, IoMode::Uring, IoMode::Threads, IoMode::Buffered];

/// A disk of every mode that this system has.
pub fn disks() -> Vec<(Disk, Pool)> {
    MODES
        .into_iter()
        .filter_map(|mode| {
            let pool = Pool::new(16, BUFFER_BYTES);
            let disk = Disk::start(&pool, mode);
            // Containers may forbid io_uring.
            assert!(disk.is_ok() || mode == IoMode::Uring, "{mode}");
            Some((disk.ok()?, pool))
        })
        .collect()
}

pub fn disk(mode: IoMode) -> (Disk, Pool) {
    let pool = Pool::new(16, BUFFER_BYTES);
    (Disk::start(&pool, mode).unwrap(), pool)
}

/// The byte that belongs at `offset`; never zero, so that a hole is not mistaken for it.
pub fn byte_at(offset: u64) -> u8 {
    let mixed = (offset ^ (offset >> 13)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8 | 1
}

pub fn content(range: Range) -> Vec<u8> {
    (range.start..range.end).map(byte_at).collect()
}

pub fn spec(path: &Path, size_bytes: u64) -> TargetSpec {
    TargetSpec {
        path: path.to_owned(),
        size_bytes: Some(size_bytes),
        resume: true,
        identity: proving(),
        ..TargetSpec::default()
    }
}

/// Without a digest, or anything else to compare by, nothing is taken over from an earlier run.
pub fn proving() -> Identity {
    Identity { digests: vec!["sha-256:00".to_owned()], ..Identity::default() }
}

pub async fn open(disk: &Disk, path: &Path, size_bytes: u64) -> (Target, Resumed) {
    Target::open(disk, spec(path, size_bytes)).await.unwrap()
}

pub async fn open_error(path: &Path, size_bytes: u64) -> OpenError {
    let (disk, _pool) = disk(IoMode::Auto);
    Target::open(&disk, spec(path, size_bytes)).await.map(drop).unwrap_err()
}

/// Begin a file of 1 MiB, commit half of it and stop.
pub async fn begun(path: &Path) {
    let (disk, pool) = disk(IoMode::Auto);
    let (target, _) = open(&disk, path, 1 << 20).await;
    fill(&target, &pool, Range::new(0, 1 << 19)).await;
    target.commit(vec![durable(Range::new(0, 1 << 18))]).await.unwrap();
    target.commit(vec![durable(Range::new(1 << 18, 1 << 19))]).await.unwrap();
}

pub async fn resumed(path: &Path) -> (Vec<Range>, Option<String>) {
    let (disk, pool) = disk(IoMode::Auto);
    let (target, resumed) = open(&disk, path, 1 << 20).await;
    let durable: Vec<Range> = resumed.durable.iter().map(|(range, _)| range).collect();
    for &range in &durable {
        check(&target, &pool, range).await;
    }
    (durable, resumed.note)
}

/// Write the right content of `range`, cut into buffers.
pub async fn fill(target: &Target, pool: &Pool, range: Range) {
    let mut at = range.start;
    while at < range.end {
        let part = Range::new(at, range.end.min(at + pool.slot_bytes() as u64));
        let mut buffer = pool.take().await;
        buffer.push(&content(part));
        let back = target.write(at, buffer).await.unwrap();
        assert_eq!(back.filled() as u64, part.len());
        at = part.end;
    }
}

/// Read `range` back through the target and compare.
pub async fn check(target: &Target, pool: &Pool, range: Range) {
    let mut at = range.start;
    while at < range.end {
        let bytes = (range.end - at).min(pool.slot_bytes() as u64) as usize;
        let buffer = target.read(at, bytes, pool.take().await).await.unwrap();
        assert_eq!(buffer.filled(), bytes, "at {at}");
        assert!(
            buffer[..] == content(Range::of_len(at, bytes as u64)),
            "wrong bytes in {range} from {at}"
        );
        at += bytes as u64;
    }
}

pub fn durable(range: Range) -> Record {
    Record::Durable { range, source: 0 }
}

/// All names in `folder`, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A folder on an ordinary file system: the system's temporary folder may be in memory, which has
/// no direct I/O to test.
pub fn folder() -> tempfile::TempDir {
    let base = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&base).unwrap();
    tempfile::tempdir_in(base).unwrap()
}
