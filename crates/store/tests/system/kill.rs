//! `kill -9` at random instants: a process of its own writes a file in random pieces and commits
//! them at random; whenever it is killed, everything that the journal vouches for has to be right,
//! and the next one goes on from there until the file is finished.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use swath_model::{Range, RangeSet};
use swath_store::{HashState, IoMode, Record, Target, TargetSpec};

const SIZE_BYTES: u64 = 6_000_013;
const KILLS: u32 = 40;

fn place() -> PathBuf {
    std::env::var_os("SWATH_PLACE").expect("run by its parent test").into()
}

fn what(path: &std::path::Path) -> TargetSpec {
    TargetSpec { overwrite: true, ..spec(path, SIZE_BYTES) }
}

/// Write whatever is missing, in random pieces, several at a time, and finish.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run and killed by its parent test"]
async fn child_that_writes() {
    let seed: u64 = std::env::var("SWATH_SEED").unwrap().parse().unwrap();
    let mode: IoMode = std::env::var("SWATH_MODE").unwrap().parse().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let (disk, pool) = disk(mode);
    let (target, resumed) = Target::open(&disk, what(&place().join("file"))).await.unwrap();
    let target = Arc::new(target);
    let mut durable: RangeSet = resumed.durable.iter().map(|(range, _)| range).collect();
    let source = resumed.sources.len() as u32;
    let mut records = vec![Record::Source { id: source, name: format!("seed {seed}") }];
    while !durable.covers(Range::new(0, SIZE_BYTES)) {
        let mut tasks = tokio::task::JoinSet::new();
        for gap in durable.gaps_within(Range::new(0, SIZE_BYTES)) {
            if tasks.len() > 12 || random.u8(0..3) == 0 {
                continue;
            }
            let from = (gap.start + random.u64(0..gap.len())) / 4096 * 4096;
            let piece =
                Range::new(from.max(gap.start), gap.end.min(from + random.u64(1..40) * 4096));
            let (target, pool) = (Arc::clone(&target), pool.clone());
            tasks.spawn(async move {
                fill(&target, &pool, piece).await;
                piece
            });
        }
        while let Some(done) = tasks.join_next().await {
            let range = done.unwrap();
            durable.insert(range);
            records.push(Record::Durable { range, source });
            if random.bool() {
                records.push(Record::Verified { range });
            }
        }
        if let Some(first) = durable.first().filter(|first| first.start == 0 && random.bool()) {
            let state = first.end.to_le_bytes().repeat(1000);
            records.push(Record::HashState(HashState {
                algorithm: "sha-256".into(),
                front: first.end,
                state,
            }));
        }
        target.commit(std::mem::take(&mut records)).await.unwrap();
    }
    target.finish(None).await.unwrap();
}

#[test]
fn whatever_the_journal_vouches_for_is_there_after_every_kill() {
    let folder = folder();
    let path = folder.path().join("file");
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut finished, mut vouched_bytes) = (0, 0);
    for number in 0..KILLS {
        let mode = MODES[random.usize(..MODES.len())];
        if mode == IoMode::Uring && disks().len() < MODES.len() {
            continue;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "kill::child_that_writes", "--nocapture"])
            .env("SWATH_PLACE", folder.path())
            .env("SWATH_SEED", number.to_string())
            .env("SWATH_MODE", mode.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(random.u64(1000..60_000)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(
            status.success() || status.code().is_none(),
            "seed {seed}, number {number}: {status}"
        );
        if path.exists() {
            assert!(
                fs::read(&path).unwrap() == content(Range::new(0, SIZE_BYTES)),
                "seed {seed}, number {number}"
            );
            fs::remove_file(&path).unwrap();
            finished += 1;
        }
        vouched_bytes += runtime.block_on(async {
            let (disk, pool) = disk(IoMode::Auto);
            let (target, resumed) = Target::open(&disk, what(&path)).await.unwrap();
            for (range, _) in resumed.durable.iter() {
                check(&target, &pool, range).await;
            }
            for hash in &resumed.hash_states {
                assert_eq!(hash.state, hash.front.to_le_bytes().repeat(1000));
                assert!(
                    resumed
                        .durable
                        .within(Range::new(0, hash.front))
                        .iter()
                        .map(|(r, _)| r.len())
                        .sum::<u64>()
                        == hash.front
                );
            }
            resumed.durable.iter().map(|(range, _)| range.len()).sum::<u64>()
        });
    }
    println!("{finished} files finished, {vouched_bytes} bytes compared after {KILLS} kills");
    assert!(vouched_bytes > 0, "no kill hit a transfer under way");
}
