//! Power loss, simulated: after every step of random runs the power is cut, and what a disk could
//! hold then is opened by another depot.
//!
//! The model of a disk is a hostile one. A file holds what it held at its last sync; of what came
//! later anything may be there: nothing, all, or garbage. A name is what it was at the last sync of
//! the folder, or what it is now, each for itself.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use super::*;
use crate::steps::SystemSteps;

/// By inode.
type Contents = BTreeMap<u64, Vec<u8>>;
type Names = BTreeMap<String, u64>;

struct Disk {
    system: SystemSteps,
    leases: PathBuf,
    synced: Mutex<Contents>,
    names: Mutex<Names>,
    /// What has no name any more, for a name can come back. Open, so that no other file gets its
    /// inode.
    unlinked: Mutex<BTreeMap<u64, File>>,
    truth: Mutex<Truth>,
    failing: Mutex<Option<(&'static str, i32)>>,
    steps: Mutex<Vec<&'static str>>,
}

/// What was acknowledged so far.
struct Truth {
    clock: Arc<Hands>,
    live: Vec<(Allocation, RangeSet)>,
    /// Not live any more, or not acknowledged yet: there or not there.
    other: Vec<Allocation>,
    random: fastrand::Rng,
    images: usize,
}

fn all_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

impl Disk {
    fn new(folder: &Path, truth: Truth) -> Arc<Disk> {
        Arc::new(Disk {
            system: SystemSteps::new(),
            leases: folder.join("leases"),
            synced: Mutex::default(),
            names: Mutex::default(),
            unlinked: Mutex::default(),
            truth: Mutex::new(truth),
            failing: Mutex::new(None),
            steps: Mutex::default(),
        })
    }

    fn fail(&self, step: &'static str) -> io::Result<()> {
        let mut failing = self.failing.lock().unwrap();
        if failing.is_some_and(|(name, _)| name == step) {
            let errno = failing.take().unwrap().1;
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(())
    }

    fn names_now(&self) -> Names {
        let entries = fs::read_dir(&self.leases).into_iter().flatten().map(Result::unwrap);
        entries
            .map(|entry| {
                let inode = entry.metadata().unwrap().ino();
                (entry.file_name().into_string().unwrap(), inode)
            })
            .collect()
    }

    /// Cuts the power a few times.
    fn did(&self, step: &'static str) {
        self.steps.lock().unwrap().push(step);
        let mut truth = self.truth.lock().unwrap();
        let (synced, names) = (self.synced.lock().unwrap(), self.names.lock().unwrap());
        let names_now = self.names_now();
        let unlinked = self.unlinked.lock().unwrap();
        let mut now: Contents = unlinked.iter().map(|(&at, file)| (at, all_of(file))).collect();
        for (name, inode) in &names_now {
            now.insert(*inode, fs::read(self.leases.join(name)).unwrap());
        }
        for mode in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("leases")).unwrap();
            let mut all: Vec<&String> = names.keys().chain(names_now.keys()).collect();
            all.sort();
            all.dedup();
            for name in all {
                let (old, new) = (names.get(name), names_now.get(name));
                let inode = match mode {
                    0 => old,
                    1 => new,
                    _ => {
                        if truth.random.bool() {
                            old
                        } else {
                            new
                        }
                    }
                };
                let Some(inode) = inode else { continue };
                let was = synced.get(inode).cloned().unwrap_or_default();
                let is = now.get(inode).cloned().unwrap_or_else(|| was.clone());
                let bytes = match truth.random.u8(0..3) {
                    _ if mode == 0 => was,
                    0 => was,
                    1 => is,
                    _ => scrambled(&was, is, &mut truth.random),
                };
                write_sparse(&folder.path().join("leases").join(name), &bytes);
            }
            truth.check(folder.path(), step);
        }
    }
}

/// What was reserved and not written is a hole.
fn write_sparse(path: &Path, bytes: &[u8]) {
    let file = File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (number, block) in bytes.chunks(4096).enumerate() {
        if block.iter().any(|&byte| byte != 0) {
            file.write_all_at(block, number as u64 * 4096).unwrap();
        }
    }
}

/// What was not synced is anything.
fn scrambled(was: &[u8], mut is: Vec<u8>, random: &mut fastrand::Rng) -> Vec<u8> {
    for (at, byte) in is.iter_mut().enumerate() {
        // Zeros beyond the end cost most of the time, and are what a reserved block holds.
        if was.get(at) != Some(byte) && *byte != 0 {
            *byte = random.u8(..);
        }
    }
    if is.len() > was.len() && random.bool() {
        is.truncate(random.usize(was.len()..is.len()));
    }
    is
}

/// Steps of which nothing is durable, for what is opened only to look at it.
struct Nothing {
    system: SystemSteps,
}

impl Steps for Nothing {
    fn sync_data(&self, _: &File) -> io::Result<()> {
        Ok(())
    }
    fn sync_journal(&self, _: &File) -> io::Result<()> {
        Ok(())
    }
    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    through! {
        append_journal(journal: &File, at_bytes: u64, bytes: &[u8]),
        set_size(file: &File, size_bytes: u64),
        rename(from: &Path, to: &Path, replace: bool),
        remove(path: &Path),
    }
}

impl Truth {
    fn check(&mut self, folder: &Path, step: &str) {
        self.images += 1;
        let steps = Arc::new(Nothing { system: SystemSteps::new() });
        let (depot, found) = Depot::open_with(options(folder), self.clock.clone(), steps).unwrap();
        for note in &found.notes {
            assert!(matches!(note, Note::Cut { .. }), "after {step}: {note:?}");
        }
        assert!(depot.usage().disk_taken_bytes <= 8 * GROUP, "after {step}: {:?}", depot.usage());
        for (allocation, acknowledged) in &self.live {
            let status = depot.status(&allocation.read);
            let status = status.unwrap_or_else(|| panic!("after {step}: a lease is gone"));
            for range in acknowledged.iter() {
                assert!(status.held.covers(range), "after {step}: {range} is not held");
            }
        }
        for allocation in self.live.iter().map(|(live, _)| live).chain(&self.other) {
            let Some(status) = depot.status(&allocation.read) else { continue };
            let reader = depot.reader(&allocation.read).unwrap();
            for range in status.held.iter() {
                let bytes = read_all(&reader, range);
                let bytes = bytes.unwrap_or_else(|error| panic!("after {step}: {range}: {error}"));
                assert!(bytes == content(range), "after {step}: wrong bytes in {range}");
            }
        }
        // It goes on.
        if let Some((allocation, _)) = self.live.first()
            && self.random.u8(0..8) == 0
        {
            let all = Range::new(0, allocation.size_bytes);
            match depot.store(&allocation.write, 0, &content(all)) {
                Err(StoreError::NoRoom { .. }) => return,
                stored => stored.unwrap(),
            }
            let reader = depot.reader(&allocation.read).unwrap();
            assert!(read_all(&reader, all).unwrap() == content(all));
        }
    }
}

impl Steps for Disk {
    fn sync_data(&self, part: &File) -> io::Result<()> {
        self.fail("sync data")?;
        self.synced.lock().unwrap().insert(part.metadata()?.ino(), all_of(part));
        self.did("sync data");
        Ok(())
    }
    fn append_journal(&self, journal: &File, at_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.fail("append journal")?;
        self.system.append_journal(journal, at_bytes, bytes)?;
        self.did("append journal");
        Ok(())
    }
    fn sync_journal(&self, journal: &File) -> io::Result<()> {
        self.fail("sync journal")?;
        self.synced.lock().unwrap().insert(journal.metadata()?.ino(), all_of(journal));
        self.did("sync journal");
        Ok(())
    }
    fn set_size(&self, file: &File, size_bytes: u64) -> io::Result<()> {
        self.system.set_size(file, size_bytes)?;
        self.did("set size");
        Ok(())
    }
    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        let old = File::open(to)?;
        self.unlinked.lock().unwrap().insert(old.metadata()?.ino(), old);
        self.system.rename(from, to, replace)?;
        self.did("rename");
        Ok(())
    }
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.fail("sync folder")?;
        if folder == self.leases {
            *self.names.lock().unwrap() = self.names_now();
            self.did("sync folder");
        }
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.fail("remove")?;
        if let Ok(old) = File::open(path) {
            self.unlinked.lock().unwrap().insert(old.metadata()?.ino(), old);
        }
        self.system.remove(path)?;
        self.did("remove");
        Ok(())
    }
}

struct Run {
    folder: tempfile::TempDir,
    clock: Arc<Hands>,
    disk: Arc<Disk>,
    depot: Depot,
    random: fastrand::Rng,
}

impl Run {
    fn new(seed: u64) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let clock = Hands::new();
        let random = fastrand::Rng::with_seed(seed);
        let (live, other) = (Vec::new(), Vec::new());
        let truth = Truth { clock: clock.clone(), live, other, random: random.clone(), images: 0 };
        let disk = Disk::new(folder.path(), truth);
        let (depot, _) =
            Depot::open_with(options(folder.path()), clock.clone(), disk.clone()).unwrap();
        Run { folder, clock, disk, depot, random }
    }

    fn truth(&self) -> std::sync::MutexGuard<'_, Truth> {
        self.disk.truth.lock().unwrap()
    }

    fn allocate(&mut self) -> Option<AllocateError> {
        let size_bytes = self.random.u64(1..2 * GROUP + 5000);
        let space = if self.random.bool() { Space::Reserved } else { Space::AsStored };
        match self.depot.allocate_with(size_bytes, HOUR * 2, Medium::Disk, space) {
            Ok(allocation) => {
                self.truth().live.push((allocation, RangeSet::new()));
                None
            }
            Err(error) => Some(error),
        }
    }

    fn pick(&mut self) -> Option<usize> {
        let count = self.truth().live.len();
        (count > 0).then(|| self.random.usize(..count))
    }

    fn store(&mut self) -> Option<StoreError> {
        let at = self.pick()?;
        let allocation = self.truth().live[at].0.clone();
        let size_bytes = allocation.size_bytes;
        let start = if self.random.bool() { 0 } else { self.random.u64(..size_bytes) };
        let len = if self.random.bool() { self.random.u64(1..5000) } else { GROUP };
        let range = Range::new(start, size_bytes.min(start + len));
        let stored = self.depot.store(&allocation.write, start, &content(range));
        if stored.is_ok() {
            self.truth().live[at].1.insert(range);
        }
        stored.err()
    }

    fn release(&mut self) {
        let Some(at) = self.pick() else { return };
        let (allocation, _) = self.truth().live.remove(at);
        self.truth().other.push(allocation.clone());
        self.depot.release(&allocation.manage).unwrap();
    }

    fn extend(&mut self) {
        let Some(at) = self.pick() else { return };
        let allocation = self.truth().live[at].0.clone();
        self.depot.extend(&allocation.manage, 3 * HOUR).unwrap();
    }

    fn pass(&mut self) {
        self.clock.pass(HOUR / 2);
        let depot = self.depot.clone();
        let mut truth = self.truth();
        let (live, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut truth.live)
            .into_iter()
            .partition(|(allocation, _)| depot.status(&allocation.read).is_some());
        truth.live = live;
        truth.other.extend(ended.into_iter().map(|(allocation, _)| allocation));
    }
}

#[test]
fn power_loss_after_any_step_loses_nothing_acknowledged_and_promises_nothing_twice() {
    let first = fastrand::u64(..1 << 32);
    let mut images = 0;
    for seed in first..first + 6 {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..40 {
            match run.random.u8(0..12) {
                0..=2 => {
                    let refused = run.allocate();
                    assert!(matches!(refused, None | Some(AllocateError::NoRoom { .. })));
                }
                3..=8 => {
                    let refused = run.store();
                    assert!(matches!(refused, None | Some(StoreError::NoRoom { .. })));
                }
                9 => run.release(),
                10 => run.extend(),
                _ => run.pass(),
            }
        }
        images += run.truth().images;
    }
    // Of one seed's history hardly anything may have come, of six there is always much.
    assert!(images > 100, "{images}");
}

#[test]
fn a_journal_that_is_rewritten_says_the_same_after_every_step() {
    let mut run = Run::new(5);
    while run.truth().live.is_empty() {
        run.allocate();
    }
    // Long terms make it too long now and then: each of these takes 61 bytes.
    let allocation = run.truth().live[0].0.clone();
    let lease = run.depot.find(&allocation.manage, Right::Manage).unwrap().0;
    run.store();
    let before = run.disk.steps.lock().unwrap().len();
    let many: Vec<_> = (0..18_000)
        .map(|_| {
            super::super::contents::Fact::Term(Term { from: run.clock.now(), length: HOUR * 2 })
        })
        .collect();
    lease.note(&run.depot.shared, &many);
    let steps = run.disk.steps.lock().unwrap()[before..].to_vec();
    let rewriting = ["append journal", "sync journal", "rename", "sync folder"];
    assert_eq!(steps, [&["append journal", "sync journal"][..], &rewriting].concat());
    for _ in 0..5 {
        assert!(run.store().is_none());
    }
    drop(lease);
    let (live, clock) = (run.truth().live.clone(), run.clock.clone());
    let folder = run.folder;
    drop((run.depot, run.disk));
    let depot = open(folder.path(), &clock);
    for (allocation, acknowledged) in live {
        assert_eq!(depot.status(&allocation.read).unwrap().held, acknowledged);
    }
    let journal = folder.path().join(format!("leases/{}.lease", allocation.id));
    assert!(journal.metadata().unwrap().len() < 10_000);
}

#[test]
fn the_steps_of_an_allocation_and_of_a_store_come_in_their_order() {
    let mut run = Run::new(9);
    run.allocate();
    let allocating = ["sync data", "append journal", "sync journal", "sync folder"];
    assert_eq!(*run.disk.steps.lock().unwrap(), allocating);
    run.disk.steps.lock().unwrap().clear();
    run.store();
    assert_eq!(*run.disk.steps.lock().unwrap(), ["sync data", "append journal", "sync journal"]);
    run.disk.steps.lock().unwrap().clear();
    run.release();
    assert_eq!(*run.disk.steps.lock().unwrap(), ["remove", "sync folder", "remove"]);
}

#[test]
fn after_a_failed_sync_nothing_written_before_it_is_vouched_for() {
    let mut run = Run::new(3);
    run.allocate();
    let allocation = run.truth().live[0].0.clone();
    let fail = |step| *run.disk.failing.lock().unwrap() = Some((step, libc::EIO));
    let mut meanwhile = run.depot.writer(&allocation.write, 50).unwrap();
    meanwhile.write(&content(Range::new(50, 60))).unwrap();
    fail("sync data");
    let lost = run.depot.store(&allocation.write, 0, &content(Range::new(0, 10))).unwrap_err();
    assert!(matches!(lost, StoreError::DataLost(_)));
    // The kernel reports such a failure once; the next sync would succeed and prove nothing.
    assert!(matches!(meanwhile.commit(), Err(StoreError::DataLost(_))));
    drop(meanwhile);
    assert!(run.depot.status(&allocation.read).unwrap().held.is_empty());
    for range in [Range::new(0, 10), Range::new(50, 60)] {
        run.depot.store(&allocation.write, range.start, &content(range)).unwrap();
    }
    let expected = set(&[(0, 10), (50, 60)]);
    for step in ["append journal", "sync journal"] {
        fail(step);
        let failed = run.depot.store(&allocation.write, 90, &content(Range::new(90, 95)));
        assert!(matches!(failed, Err(StoreError::Io(_))), "{step}");
        assert_eq!(run.depot.status(&allocation.read).unwrap().held, expected);
    }
    // An allocation that fails takes nothing.
    let taken = run.depot.usage().disk_taken_bytes;
    for step in ["sync data", "append journal", "sync journal", "sync folder"] {
        *run.disk.failing.lock().unwrap() = Some((step, libc::ENOSPC));
        assert!(matches!(run.allocate(), Some(AllocateError::DiskFull { .. })), "{step}");
    }
    assert_eq!(run.depot.usage().disk_taken_bytes, taken);
    run.depot.store(&allocation.write, 90, &content(Range::new(90, 95))).unwrap();
    let (folder, clock) = (run.folder, run.clock);
    drop((run.depot, run.disk));
    let depot = open(folder.path(), &clock);
    let expected = set(&[(0, 10), (50, 60), (90, 95)]);
    assert_eq!(depot.status(&allocation.read).unwrap().held, expected);
}

#[test]
fn what_the_disk_would_not_give_up_is_given_up_later() {
    // Its space was taken until the next start, by a lease that nobody could name any more.
    let mut run = Run::new(4);
    let fail = |run: &Run, step| *run.disk.failing.lock().unwrap() = Some((step, libc::EIO));
    run.allocate();
    let (allocation, _) = run.truth().live.remove(0);
    run.truth().other.push(allocation.clone());
    let range = Range::new(0, 10);
    run.depot.store(&allocation.write, 0, &content(range)).unwrap();
    fail(&run, "remove");
    assert!(matches!(run.depot.release(&allocation.manage), Err(ManageError::Io(_))));
    // It is what it was.
    let reader = run.depot.reader(&allocation.read).unwrap();
    assert!(read_all(&reader, range).unwrap() == content(range));
    run.depot.store(&allocation.write, 10, &content(Range::new(10, 20))).unwrap();
    assert!(run.depot.extend(&allocation.manage, HOUR * 3).unwrap() > HOUR * 2);
    // Its journal is gone, and perhaps not for good.
    fail(&run, "sync folder");
    assert!(matches!(run.depot.release(&allocation.manage), Err(ManageError::Io(_))));
    assert!(run.depot.status(&allocation.read).is_none());
    assert!(matches!(reader.read(0, &mut [0]), Err(ReadError::Ended)));
    assert_eq!(run.depot.usage().disk_taken_bytes, 0);
    // One that ends by itself.
    run.allocate();
    let (allocation, _) = run.truth().live.remove(0);
    run.truth().other.push(allocation);
    run.clock.pass(HOUR * 3);
    fail(&run, "remove");
    assert!(run.depot.sweep().is_some(), "to be called again");
    assert_eq!(run.depot.usage().disk_taken_bytes, 0);
    assert_eq!(run.depot.sweep(), None);
    let left = std::fs::read_dir(run.folder.path().join("leases")).unwrap().count();
    assert_eq!(left, 0);
}
