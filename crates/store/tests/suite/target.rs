//! Targets on a real file system, in every mode: whole files, odd sizes, odd offsets, resuming.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::*;
use swath_model::{Pool, Range};
use swath_store::{
    CommitError, Disk, FinishError, HashState, Identity, IoMode, Record, Target, TargetSpec,
    WriteError,
};

#[tokio::test]
async fn files_of_every_odd_size_come_out_right() {
    let folder = folder();
    let sizes =
        [0, 1, 511, 4095, 4096, 4097, 65_536, 524_287, 524_288, 524_289, 700_001, 1_048_576];
    for (disk, pool) in disks() {
        for size_bytes in sizes {
            let path = folder.path().join(format!("{}-{size_bytes}", disk.mode_name()));
            let (target, resumed) = open(&disk, &path, size_bytes).await;
            assert!(resumed.durable.count() == 0 && resumed.note.is_none());
            fill(&target, &pool, Range::new(0, size_bytes)).await;
            check(&target, &pool, Range::new(0, size_bytes)).await;
            assert_eq!(target.finish(None).await.unwrap(), path);
            assert!(std::fs::read(&path).unwrap() == content(Range::new(0, size_bytes)));
            assert_eq!(names(folder.path()), [path.file_name().unwrap().to_str().unwrap()]);
            std::fs::remove_file(path).unwrap();
        }
        assert_eq!(pool.free_slots(), pool.slots(), "every buffer came back");
    }
}

#[tokio::test]
async fn the_size_may_be_unknown_until_the_end() {
    let folder = folder();
    for (disk, pool) in disks() {
        let path = folder.path().join(disk.mode_name());
        let spec = TargetSpec { path: path.clone(), ..TargetSpec::default() };
        let (target, _) = Target::open(&disk, spec).await.unwrap();
        fill(&target, &pool, Range::new(0, 300_001)).await;
        if disk.mode_name() == "uring" {
            assert!(matches!(target.set_size(300_000), Err(WriteError::PastEnd { .. })));
            target.set_size(300_001).unwrap();
        }
        target.finish(None).await.unwrap();
        assert!(std::fs::read(&path).unwrap() == content(Range::new(0, 300_001)));
        let _ = std::fs::remove_file(path);
    }
}

/// Pieces of any length at any offset, in any order and at the same time, next to each other
/// within blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unaligned_pieces_at_the_same_time_do_not_disturb_each_other() {
    let folder = folder();
    let size_bytes = 3_000_003;
    for seed in 0..3 {
        for (disk, pool) in disks() {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut pieces = Vec::new();
            let mut at = 0;
            while at < size_bytes {
                let aligned = random.bool();
                let len = if aligned { 4096 * random.u64(1..16) } else { random.u64(1..20_000) };
                let end =
                    if random.u8(0..4) == 0 { (at + len).next_multiple_of(4096) } else { at + len };
                let end = end.min(size_bytes).min(at + BUFFER_BYTES as u64);
                pieces.push(Range::new(at, end));
                at = end;
            }
            random.shuffle(&mut pieces);
            let path = folder.path().join("file");
            let (target, _) = open(&disk, &path, size_bytes).await;
            let target = Arc::new(target);
            let mut tasks = tokio::task::JoinSet::new();
            for piece in pieces {
                let (target, pool) = (Arc::clone(&target), pool.clone());
                tasks.spawn(async move { fill(&target, &pool, piece).await });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
            check(&target, &pool, Range::new(0, size_bytes)).await;
            target.finish(None).await.unwrap();
            let found = std::fs::read(&path).unwrap();
            assert!(found == content(Range::new(0, size_bytes)), "{disk:?}, seed {seed}");
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_committed_is_there_again_and_nothing_else() {
    let folder = folder();
    for (disk, pool) in disks() {
        let path = folder.path().join(disk.mode_name());
        let size_bytes = 1_000_001;
        let (target, _) = open(&disk, &path, size_bytes).await;
        fill(&target, &pool, Range::new(0, 131_072)).await;
        fill(&target, &pool, Range::new(200_001, 300_000)).await;
        fill(&target, &pool, Range::new(983_040, size_bytes)).await;
        let hash = HashState { algorithm: "sha-256".into(), front: 100_000, state: vec![5; 100] };
        target
            .commit(vec![
                Record::Source { id: 0, name: "http://a/".into() },
                durable(Range::new(0, 131_072)),
                Record::Verified { range: Range::new(0, 65_536) },
                Record::HashState(hash.clone()),
            ])
            .await
            .unwrap();
        let group = Record::Group { index: 1, range: Range::new(65_536, 131_072), cv: [3; 32] };
        target.commit(vec![durable(Range::new(983_040, size_bytes)), group]).await.unwrap();
        drop(target);
        assert_eq!(names(folder.path()).len(), 2, "part file and journal stay");

        let (target, resumed) = open(&disk, &path, size_bytes).await;
        let durable_now: Vec<_> = resumed.durable.iter().collect();
        assert_eq!(
            durable_now,
            [(Range::new(0, 131_072), 0), (Range::new(983_040, size_bytes), 0)]
        );
        assert_eq!(resumed.verified.iter().collect::<Vec<_>>(), [Range::new(0, 65_536)]);
        assert_eq!(resumed.hash_states, [hash]);
        assert_eq!(resumed.groups, [(1, [3; 32])]);
        assert_eq!(resumed.sources, [(0, "http://a/".to_owned())]);
        assert_eq!(resumed.note, None);
        check(&target, &pool, Range::new(0, 131_072)).await;
        check(&target, &pool, Range::new(983_040, size_bytes)).await;
        match target.finish(None).await {
            Err(FinishError::Incomplete { missing_bytes, first, .. }) => {
                assert_eq!(
                    (missing_bytes, first),
                    (983_040 - 131_072, Range::new(131_072, 983_040))
                );
            }
            other => panic!("{other:?}"),
        }
        fill(&target, &pool, Range::new(131_072, 983_040)).await;
        let mtime = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        target.finish(Some(mtime)).await.unwrap();
        assert!(std::fs::read(&path).unwrap() == content(Range::new(0, size_bytes)));
        assert_eq!(path.metadata().unwrap().modified().unwrap(), mtime);
        assert_eq!(names(folder.path()).len(), 1);
        std::fs::remove_file(path).unwrap();
    }
}

#[tokio::test]
async fn nothing_is_vouched_for_that_was_not_written() {
    let folder = folder();
    let (disk, pool) = disk(IoMode::Auto);
    let path = folder.path().join("file");
    let (target, _) = open(&disk, &path, 1 << 20).await;
    fill(&target, &pool, Range::new(0, 65_536)).await;
    let early = target.commit(vec![durable(Range::new(0, 65_537))]).await;
    assert!(matches!(early, Err(CommitError::NotWritten { range, .. }) if range.end == 65_537));
    target.commit(vec![durable(Range::new(0, 65_536))]).await.unwrap();
    target.distrust(Range::new(0, 10));
    // What was distrusted and not written again is left out, and the rest is not held up by it.
    target
        .commit(vec![Record::Bad { range: Range::new(0, 10) }, durable(Range::new(0, 20))])
        .await
        .unwrap();
    drop(target);
    let (_, resumed) = open(&disk, &path, 1 << 20).await;
    assert_eq!(resumed.durable.iter().collect::<Vec<_>>(), [(Range::new(10, 65_536), 0)]);
}

#[tokio::test]
async fn a_target_without_commit_leaves_nothing_behind() {
    let folder = folder();
    let (disk, pool) = disk(IoMode::Auto);
    let (target, _) = open(&disk, &folder.path().join("deep/er/file"), 1 << 20).await;
    fill(&target, &pool, Range::new(0, 65_536)).await;
    drop(target);
    assert_eq!(names(&folder.path().join("deep/er")), [""; 0]);
}

#[tokio::test]
async fn discarding_removes_part_file_and_journal() {
    let folder = folder();
    let (disk, pool) = disk(IoMode::Auto);
    let (target, _) = open(&disk, &folder.path().join("file"), 1 << 20).await;
    fill(&target, &pool, Range::new(0, 65_536)).await;
    target.commit(vec![durable(Range::new(0, 65_536))]).await.unwrap();
    target.discard().await.unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
    let closed = target.write(0, pool.take().await).await;
    assert!(matches!(closed, Err(WriteError::Closed(_))));
}

#[tokio::test]
async fn a_long_journal_is_rewritten_and_says_the_same() {
    let folder = folder();
    let (disk, pool) = disk(IoMode::Auto);
    let path = folder.path().join("file");
    let size_bytes = 1 << 20;
    let (target, _) = open(&disk, &path, size_bytes).await;
    fill(&target, &pool, Range::new(0, size_bytes)).await;
    target.commit(vec![durable(Range::new(0, size_bytes))]).await.unwrap();
    let journal = folder.path().join("file.swath");
    let mut longest_bytes = 0;
    for front in 1..60u8 {
        let state = vec![front; 50_000];
        let hash = HashState { algorithm: "md5".into(), front: front.into(), state };
        target.commit(vec![Record::HashState(hash)]).await.unwrap();
        longest_bytes = longest_bytes.max(journal.metadata().unwrap().len());
    }
    assert!((1_000_000..1_200_000).contains(&longest_bytes), "{longest_bytes}");
    drop(target);
    let (_, resumed) = open(&disk, &path, size_bytes).await;
    assert_eq!(resumed.hash_states[0].front, 59);
    assert_eq!(resumed.durable.iter().collect::<Vec<_>>(), [(Range::new(0, size_bytes), 0)]);
    assert_eq!(names(folder.path()), ["file.swath", "file.swath.part"]);
}

#[tokio::test]
async fn another_content_starts_again_and_says_so() {
    let folder = folder();
    let (disk, pool) = disk(IoMode::Auto);
    let path = folder.path().join("file");
    let digest =
        |hex: &str| Identity { digests: vec![format!("sha-256:{hex}")], ..Identity::default() };
    let with = |size_bytes, identity| TargetSpec { identity, ..spec(&path, size_bytes) };
    let begin = async |identity| {
        let (target, resumed) = Target::open(&disk, with(1 << 20, identity)).await.unwrap();
        fill(&target, &pool, Range::new(0, 65_536)).await;
        target.commit(vec![durable(Range::new(0, 65_536))]).await.unwrap();
        resumed
    };
    begin(digest("aa")).await;
    let (_, same) = Target::open(&disk, with(1 << 20, digest("aa"))).await.unwrap();
    assert_eq!((same.durable.count(), same.note), (1, None));
    let other = begin(digest("bb")).await;
    assert_eq!(other.durable.count(), 0);
    assert_eq!(
        other.note.as_deref(),
        Some(
            "starting again: the journal is for another content (the digest was sha-256:aa and is sha-256:bb)"
        )
    );
    let (_, other) = Target::open(&disk, with(2 << 20, digest("bb"))).await.unwrap();
    assert!(other.note.unwrap().contains("the size was 1048576 bytes and is 2097152 bytes"));
    begin(digest("bb")).await;
    let fresh = TargetSpec { resume: false, ..with(1 << 20, digest("bb")) };
    let (_, fresh) = Target::open(&disk, fresh).await.unwrap();
    assert_eq!((fresh.durable.count(), fresh.note), (0, None));
}

/// Larger than any disk here, in the memory of two buffers.
#[tokio::test]
async fn a_sparse_file_takes_only_the_space_of_what_is_not_zero() {
    let folder = folder();
    let size_bytes = (8 << 40) + 5;
    let pool = Pool::new(2, BUFFER_BYTES);
    let disk = Disk::start(&pool, IoMode::Auto).unwrap();
    let path = folder.path().join("file");
    let sparse = TargetSpec { sparse: true, ..spec(&path, size_bytes) };
    let (target, _) = Target::open(&disk, sparse.clone()).await.unwrap();
    let zeros = async |target: &Target, offset, bytes: usize| {
        let mut buffer = pool.take().await;
        buffer.whole().fill(0);
        buffer.advance(bytes);
        target.write(offset, buffer).await.unwrap();
    };
    zeros(&target, 0, 65_536).await;
    fill(&target, &pool, Range::new(65_536, 131_072)).await;
    zeros(&target, size_bytes - 5, 5).await;
    let written = [Range::new(0, 131_072), Range::new(size_bytes - 5, size_bytes)];
    target.commit(written.map(durable).to_vec()).await.unwrap();
    drop(target);

    let (target, resumed) = Target::open(&disk, sparse).await.unwrap();
    assert_eq!(resumed.durable.iter().map(|(range, _)| range).collect::<Vec<_>>(), written);
    // Zeros that replace something are written.
    zeros(&target, 65_536, 4096).await;
    let found = target.read(65_536, 8192, pool.take().await).await.unwrap();
    assert!(found[..4096] == [0; 4096] && found[4096..] == content(Range::new(69_632, 73_728)));
    drop(found);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&target.part_path().metadata().unwrap());
    assert!(blocks * 512 <= 131_072, "{blocks} blocks");
    target.discard().await.unwrap();
}
