//! Power loss, simulated: the steps of real runs are recorded, the power is cut after every one of
//! them, and what a disk could hold then is opened again.
//!
//! The model of a disk is a hostile one: of what was not synced, anything may be there or not.
//! Data that no sync covered is scrambled; bytes of the journal that no sync covered are missing,
//! whole, cut or scrambled; a name whose folder was not synced may be the old or the new one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use swath_model::{Pool, Range};

use crate::disk::{Disk, DiskOptions, IoMode};
use crate::steps::{Steps, SystemSteps};
use crate::{CommitError, FinishError, HashState, Identity, Record, Target, TargetSpec};

/// What was done, and what the disk certainly holds after it.
#[derive(Clone, Debug, Default)]
struct Moment {
    step: String,
    /// Content of the part file at its last sync.
    data_synced: Vec<u8>,
    /// Of each journal file (by its present name): content at its last sync, and now.
    journals: BTreeMap<PathBuf, (Vec<u8>, Vec<u8>)>,
    /// Present names at the last sync of the folder.
    names_synced: Vec<PathBuf>,
    /// The journal files as they were at that sync of the folder, to bring an old name back.
    journals_at_names: BTreeMap<PathBuf, (Vec<u8>, Vec<u8>)>,
    finished: bool,
}

/// Records every step, and lets the chosen one fail.
struct Recorder {
    system: SystemSteps,
    folder: PathBuf,
    log: Mutex<Vec<Moment>>,
    failing: Mutex<Option<(&'static str, i32)>>,
}

impl Recorder {
    fn new(folder: &Path) -> Recorder {
        Recorder {
            system: SystemSteps::new(),
            folder: folder.to_owned(),
            log: Mutex::new(vec![Moment::default()]),
            failing: Mutex::new(None),
        }
    }

    fn did(&self, step: &str, change: impl FnOnce(&mut Moment)) {
        let mut log = self.log.lock().unwrap();
        let mut moment = log.last().unwrap().clone();
        step.clone_into(&mut moment.step);
        change(&mut moment);
        log.push(moment);
    }

    fn fail(&self, step: &str) -> io::Result<()> {
        let mut failing = self.failing.lock().unwrap();
        match *failing {
            Some((name, errno)) if name == step => {
                *failing = None;
                Err(io::Error::from_raw_os_error(errno))
            }
            _ => Ok(()),
        }
    }

    fn steps(&self) -> Vec<String> {
        self.log.lock().unwrap().iter().skip(1).map(|moment| moment.step.clone()).collect()
    }

    /// The path by which a journal is known now: the recorder is told only of open files.
    fn journal_path(&self, file: &File) -> PathBuf {
        let inode = file.metadata().unwrap().ino();
        [self.folder.join("file.swath"), self.folder.join("file.swath.new")]
            .into_iter()
            .find(|path| path.metadata().is_ok_and(|found| found.ino() == inode))
            .unwrap()
    }
}

fn all_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

impl Steps for Arc<Recorder> {
    fn sync_data(&self, part: &File) -> io::Result<()> {
        self.fail("sync data")?;
        self.system.sync_data(part)?;
        let synced = all_of(part);
        self.did("sync data", |moment| moment.data_synced = synced);
        Ok(())
    }

    fn append_journal(&self, journal: &File, at_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.fail("append journal")?;
        self.system.append_journal(journal, at_bytes, bytes)?;
        let (path, now) = (self.journal_path(journal), all_of(journal));
        self.did("append journal", |moment| {
            // A new file has nothing synced, whatever its name stood for before.
            let synced =
                moment.journals.remove(&path).filter(|_| at_bytes > 0).unwrap_or_default().0;
            moment.journals.insert(path, (synced, now));
        });
        Ok(())
    }

    fn sync_journal(&self, journal: &File) -> io::Result<()> {
        self.fail("sync journal")?;
        self.system.sync_journal(journal)?;
        let (path, now) = (self.journal_path(journal), all_of(journal));
        self.did("sync journal", |moment| {
            moment.journals.insert(path, (now.clone(), now));
        });
        Ok(())
    }

    fn set_size(&self, file: &File, size_bytes: u64) -> io::Result<()> {
        self.fail("set size")?;
        self.system.set_size(file, size_bytes)
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        self.fail("rename")?;
        self.system.rename(from, to, replace)?;
        let finishing = from.to_string_lossy().ends_with(".part");
        let step = if finishing { "rename part" } else { "rename journal" };
        self.did(step, |moment| {
            moment.finished |= finishing;
            if let Some(journal) = moment.journals.remove(from) {
                moment.journals.insert(to.to_owned(), journal);
            }
        });
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.fail("sync folder")?;
        self.system.sync_folder(folder)?;
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        self.did("sync folder", |moment| {
            moment.names_synced = names;
            moment.journals_at_names.clone_from(&moment.journals);
        });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.system.remove(path)?;
        let step =
            if path.to_string_lossy().ends_with(".swath") { "remove journal" } else { "remove" };
        self.did(step, |moment| drop(moment.journals.remove(path)));
        Ok(())
    }
}

fn start(folder: &Path, mode: IoMode) -> (Disk, Pool, Arc<Recorder>) {
    let pool = Pool::new(8, 16 << 10);
    let recorder = Arc::new(Recorder::new(folder));
    let options = DiskOptions { direct_from_bytes: 4096, ..DiskOptions::default() };
    let disk =
        Disk::start_with_steps(&pool, mode, options, Arc::new(Arc::clone(&recorder))).unwrap();
    (disk, pool, recorder)
}

fn spec(folder: &Path) -> TargetSpec {
    TargetSpec {
        path: folder.join("file"),
        size_bytes: Some(SIZE_BYTES),
        resume: true,
        identity: Identity { digests: vec!["sha-256:00".to_owned()], ..Identity::default() },
        ..TargetSpec::default()
    }
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1
}

async fn fill(target: &Target, pool: &Pool, range: Range) {
    let mut buffer = pool.take().await;
    buffer.push(&(range.start..range.end).map(byte_at).collect::<Vec<_>>());
    target.write(range.start, buffer).await.unwrap();
}

/// Opens what a disk could hold and compares everything vouched for.
async fn check(disk: &Disk, data: &[u8], journal: Option<&[u8]>, told: &str) {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("file.swath.part"), data).unwrap();
    if let Some(journal) = journal {
        std::fs::write(place.path().join("file.swath"), journal).unwrap();
    }
    let (_target, resumed) = Target::open(disk, spec(place.path())).await.unwrap();
    for (range, _) in resumed.durable.iter() {
        for offset in range.start..range.end {
            assert_eq!(data[offset as usize], byte_at(offset), "{told}: byte {offset} of {range}");
        }
    }
    assert!(resumed.verified.iter().all(|range| resumed.durable.within(range).len() == 1));
    for hash in resumed.hash_states {
        assert_eq!(hash.state, hash.front.to_le_bytes());
    }
}

/// A random run: writes, commits, a finish; long hash states so that the journal is rewritten.
async fn run(folder: &Path, seed: u64) -> Vec<Moment> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (disk, pool, recorder) =
        start(folder, if random.bool() { IoMode::Auto } else { IoMode::Buffered });
    let (target, _) = Target::open(&disk, spec(folder)).await.unwrap();
    let mut pieces: Vec<Range> = Vec::new();
    let mut at = 0;
    while at < SIZE_BYTES {
        let len = if random.bool() { 4096 } else { random.u64(1..6000) };
        pieces.push(Range::new(at, (at + len).min(SIZE_BYTES)));
        at = pieces[pieces.len() - 1].end;
    }
    random.shuffle(&mut pieces);
    let mut done = swath_model::RangeSet::new();
    for piece in pieces {
        fill(&target, &pool, piece).await;
        done.insert(piece);
        let mut records = vec![Record::Durable { range: piece, source: 1 }];
        if random.bool() {
            records.push(Record::Verified { range: piece });
        }
        if let Some(first) = done.first()
            && first.start == 0
        {
            let state = first.end.to_le_bytes().to_vec();
            records.push(Record::HashState(HashState {
                algorithm: "x".into(),
                front: first.end,
                state,
            }));
        }
        if random.u8(0..2) == 0 {
            // Large enough to make the journal too long now and then.
            let name = "n".repeat(400_000);
            records.push(Record::Source { id: 9, name });
        }
        target.commit(records).await.unwrap();
    }
    target.finish(None).await.unwrap();
    recorder.log.lock().unwrap().clone()
}

#[tokio::test]
async fn power_loss_after_any_step_leaves_nothing_vouched_for_that_is_not_there() {
    let disk = Disk::start(&Pool::new(2, 16 << 10), IoMode::Buffered).unwrap();
    for seed in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let moments = run(folder.path(), seed).await;
        let mut random = fastrand::Rng::with_seed(seed);
        let journal = folder.path().join("file.swath");
        let mut rewritten = false;
        for (number, moment) in moments.iter().enumerate() {
            rewritten |= moment.step == "rename journal";
            let told = format!("seed {seed}, after step {number} ({})", moment.step);
            // What was never synced is anything but right.
            let mut data = moment.data_synced.clone();
            data.resize(SIZE_BYTES as usize, 0);
            if moment.finished {
                // The name can only be final if all data was durable before.
                let right = (0..SIZE_BYTES).all(|offset| data[offset as usize] == byte_at(offset));
                assert!(right, "{told}: a final name for data that is not durable");
                continue;
            }
            check(&disk, &data, None, &told).await;
            for held in [moment.journals.get(&journal), moment.journals_at_names.get(&journal)] {
                let Some((synced, now)) = held else { continue };
                check(&disk, &data, Some(synced), &told).await;
                check(&disk, &data, Some(now), &told).await;
                if now.len() > synced.len() {
                    let cut = random.usize(synced.len()..now.len());
                    check(&disk, &data, Some(&now[..cut]), &told).await;
                    let mut scrambled = now.clone();
                    scrambled[cut..].fill_with(|| random.u8(..));
                    check(&disk, &data, Some(&scrambled), &told).await;
                }
            }
        }
        assert!(rewritten || seed != 0, "seed 0 is meant to rewrite its journal");
    }
}

#[tokio::test]
async fn the_steps_of_a_commit_and_of_a_finish_come_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, pool, recorder) = start(folder.path(), IoMode::Auto);
    let (target, _) = Target::open(&disk, spec(folder.path())).await.unwrap();
    fill(&target, &pool, Range::new(0, 8192)).await;
    assert_eq!(recorder.steps(), [""; 0], "writing alone syncs nothing");
    let durable = |start, end| Record::Durable { range: Range::new(start, end), source: 0 };
    target.commit(vec![durable(0, 4096)]).await.unwrap();
    target.commit(vec![durable(4096, 8192)]).await.unwrap();
    target.commit(vec![Record::Verified { range: Range::new(0, 8192) }]).await.unwrap();
    for at in (8192..SIZE_BYTES).step_by(4096) {
        fill(&target, &pool, Range::new(at, SIZE_BYTES.min(at + 4096))).await;
    }
    target.finish(None).await.unwrap();
    let steps = recorder.steps();
    let creating = ["sync data", "append journal", "sync journal", "sync folder"];
    let appending = ["sync data", "append journal", "sync journal"];
    let without_data = ["append journal", "sync journal"];
    let finishing = ["sync data", "rename part", "sync folder", "remove journal"];
    assert_eq!(steps, [&creating[..], &appending, &without_data, &finishing].concat());
}

#[tokio::test]
async fn after_a_failed_sync_of_the_data_nothing_is_vouched_for() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, pool, recorder) = start(folder.path(), IoMode::Auto);
    let (target, _) = Target::open(&disk, spec(folder.path())).await.unwrap();
    fill(&target, &pool, Range::new(0, 8192)).await;
    let durable = |start, end| vec![Record::Durable { range: Range::new(start, end), source: 0 }];
    target.commit(durable(0, 4096)).await.unwrap();
    *recorder.failing.lock().unwrap() = Some(("sync data", libc::EIO));
    assert!(matches!(target.commit(durable(4096, 8192)).await, Err(CommitError::DataLost { .. })));
    // The kernel reports such a failure once; the next sync would succeed and prove nothing.
    assert!(matches!(target.commit(durable(4096, 8192)).await, Err(CommitError::DataLost { .. })));
    for at in (8192..SIZE_BYTES).step_by(4096) {
        fill(&target, &pool, Range::new(at, SIZE_BYTES.min(at + 4096))).await;
    }
    assert!(matches!(target.finish(None).await, Err(FinishError::DataLost { .. })));
    drop(target);
    let (_, resumed) = Target::open(&disk, spec(folder.path())).await.unwrap();
    assert_eq!(resumed.durable.iter().collect::<Vec<_>>(), [(Range::new(0, 4096), 0)]);
}

#[tokio::test]
async fn a_journal_that_cannot_grow_stays_whole_and_goes_on_later() {
    for (step, errno) in
        [("append journal", libc::ENOSPC), ("sync journal", libc::EIO), ("sync folder", libc::EIO)]
    {
        let folder = tempfile::tempdir().unwrap();
        let (disk, pool, recorder) = start(folder.path(), IoMode::Auto);
        let (target, _) = Target::open(&disk, spec(folder.path())).await.unwrap();
        fill(&target, &pool, Range::new(0, 12_288)).await;
        let durable =
            |start, end| vec![Record::Durable { range: Range::new(start, end), source: 0 }];
        let fail = || *recorder.failing.lock().unwrap() = Some((step, errno));
        fail();
        let failed = target.commit(durable(0, 4096)).await.unwrap_err();
        assert_eq!(matches!(failed, CommitError::NoSpace { .. }), errno == libc::ENOSPC);
        target.commit(durable(0, 4096)).await.unwrap();
        if step != "sync folder" {
            fail();
            target.commit(durable(4096, 8192)).await.unwrap_err();
        }
        target.commit(durable(8192, 12_288)).await.unwrap();
        drop(target);
        let (_, resumed) = Target::open(&disk, spec(folder.path())).await.unwrap();
        let durable: Vec<Range> = resumed.durable.iter().map(|(range, _)| range).collect();
        let expected = vec![Range::new(0, 4096), Range::new(8192, 12_288)];
        assert_eq!((durable, resumed.note), (expected, None), "{step}");
    }
}

/// Not a multiple of anything.
const SIZE_BYTES: u64 = 50_001;
