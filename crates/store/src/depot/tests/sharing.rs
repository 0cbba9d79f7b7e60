//! Several at once: shared syncs, writers that meet, readers that follow.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::depot::clock::Term;
use crate::depot::contents::Contents;
use crate::depot::lease::Lease;
use crate::steps::{Steps, SystemSteps};

/// Counts the syncs of data; the first one waits until so many others wait for the next.
struct Slow {
    system: SystemSteps,
    syncs: AtomicUsize,
    wait_for: usize,
    lease: Mutex<Option<Arc<Lease>>>,
}

impl Steps for Slow {
    fn sync_data(&self, part: &File) -> io::Result<()> {
        let lease = self.lease.lock().unwrap().clone();
        if let Some(lease) = lease
            && self.syncs.fetch_add(1, Ordering::Relaxed) == 0
        {
            while lease.pending() < self.wait_for {
                std::thread::yield_now();
            }
        }
        self.system.sync_data(part)
    }
    through! {
        append_journal(journal: &File, at_bytes: u64, bytes: &[u8]),
        sync_journal(journal: &File),
        set_size(file: &File, size_bytes: u64),
        rename(from: &Path, to: &Path, replace: bool),
        sync_folder(folder: &Path),
        remove(path: &Path),
    }
}

#[test]
fn who_waits_for_a_sync_shares_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Arc::new(Slow {
        system: SystemSteps::new(),
        syncs: AtomicUsize::new(0),
        wait_for: 15,
        lease: Mutex::new(None),
    });
    let (depot, _) = Depot::open_with(options(folder.path()), Hands::new(), slow.clone()).unwrap();
    let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
    *slow.lease.lock().unwrap() = Some(depot.find(&lease.write, Right::Write).unwrap().0);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let (depot, lease) = (&depot, &lease);
            scope.spawn(move || {
                let range = Range::of_len(number * 1000, 1000);
                depot.store(&lease.write, range.start, &content(range)).unwrap();
                let reader = depot.reader(&lease.read).unwrap();
                assert!(read_all(&reader, range).unwrap() == content(range));
            });
        }
    });
    assert_eq!(slow.syncs.load(Ordering::Relaxed), 2);
    assert_eq!(depot.status(&lease.read).unwrap().held, set(&[(0, 16_000)]));
}

/// The first journal that is taken away is so when somebody else has done something, or cannot.
struct Halting {
    system: SystemSteps,
    halt: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Steps for Halting {
    fn remove(&self, path: &Path) -> io::Result<()> {
        let halt = self.halt.lock().unwrap().take();
        if let Some(halt) = halt {
            halt();
        }
        self.system.remove(path)
    }
    through! {
        sync_data(part: &File),
        append_journal(journal: &File, at_bytes: u64, bytes: &[u8]),
        sync_journal(journal: &File),
        set_size(file: &File, size_bytes: u64),
        rename(from: &Path, to: &Path, replace: bool),
        sync_folder(folder: &Path),
    }
}

#[test]
fn who_allocates_waits_for_what_is_being_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let halting = Arc::new(Halting { system: SystemSteps::new(), halt: Mutex::new(None) });
    let (depot, _) =
        Depot::open_with(options(folder.path()), Hands::new(), halting.clone()).unwrap();
    let lease = depot.allocate(8 * GROUP, HOUR, Medium::Disk).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let other = depot.clone();
    let halt = move || {
        let (tell_number, number) = std::sync::mpsc::channel();
        let asks = std::thread::spawn(move || {
            // SAFETY: gettid has no preconditions.
            tell_number.send(unsafe { libc::gettid() }).unwrap();
            other.allocate(8 * GROUP, HOUR, Medium::Disk)
        });
        // Whoever does not wait is refused.
        let number = number.recv().unwrap();
        while !asks.is_finished() && !is_asleep(number) {
            std::thread::yield_now();
        }
        sender.send(asks).unwrap();
    };
    *halting.halt.lock().unwrap() = Some(Box::new(halt));
    depot.release(&lease.manage).unwrap();
    let next = receiver.recv().unwrap().join().unwrap().unwrap();
    assert_eq!(depot.usage().disk_free_bytes, 0);
    depot.release(&next.manage).unwrap();
}

/// Returns whether this thread of ours waits for something; where no system tells that, it does.
fn is_asleep(thread: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    status.is_ok_and(|it| it.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
        || !Path::new("/proc/self/task").exists()
}

#[test]
fn after_a_seal_that_could_not_be_written_the_offset_is_behind_what_can_be_committed() {
    use rustix::fs::{MemfdFlags, SealFlags};
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    // A file that takes the bytes and does not grow for the group hashes behind them.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create(c"swath-test", flags).unwrap());
    file.set_len(2 * GROUP).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    let term = Term { from: clock.now(), length: HOUR };
    let contents = Contents::new(2 * GROUP, [[0; 32]; 3], term, Space::Reserved);
    let ends = clock.now().since_boot + HOUR;
    let lease = Arc::new(Lease::in_memory(LeaseId::random().unwrap(), ends, contents, file));
    let writer = |at| Writer::new(Arc::clone(&depot.shared), Arc::clone(&lease), at).unwrap();
    let mut first = writer(GROUP - 10);
    first.write(&content(Range::new(GROUP - 10, GROUP + 5))).unwrap();
    let failed = first.write(&content(Range::new(GROUP + 5, 2 * GROUP)));
    assert!(matches!(failed, Err(StoreError::Io(_))), "{failed:?}");
    assert_eq!(first.offset(), GROUP, "what came of the second group is dropped");
    writer(GROUP + 100).write(b"nobody else is busy there").unwrap();
    assert_eq!(first.commit().unwrap(), GROUP);
    assert_eq!(lease.book().contents.held, set(&[(GROUP - 10, GROUP)]));
}

#[test]
fn where_somebody_writes_others_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
    let mut first = depot.writer(&lease.write, 100).unwrap();
    first.write(b"first").unwrap();
    let busy = depot.store(&lease.write, 90, &[1; 20]).unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }));
    // Not read before it is durable.
    let reader = depot.reader(&lease.read).unwrap();
    assert!(matches!(reader.read(100, &mut [0]), Err(ReadError::NotHeld { .. })));
    // Who breaks off leaves the place to others.
    drop(first);
    depot.store(&lease.write, 90, b"0123456789others").unwrap();
    assert_eq!(read_all(&reader, Range::new(90, 106)).unwrap(), b"0123456789others");
}

#[test]
fn many_threads_store_one_allocation_in_random_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for medium in [Medium::Disk, Medium::Memory] {
        let all = Range::new(0, 2 * GROUP + 77_777);
        let lease = depot.allocate(all.end, HOUR, medium).unwrap();
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (depot, lease) = (&depot, &lease);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed + number);
                    let reader = depot.reader(&lease.read).unwrap();
                    while !reader.held().covers(all) {
                        let start = random.u64(..all.end + 60_000).saturating_sub(60_000);
                        let range = Range::new(start, all.end.min(start + random.u64(1..60_000)));
                        match depot.store(&lease.write, start, &content(range)) {
                            Ok(()) => assert!(read_all(&reader, range).unwrap() == content(range)),
                            Err(StoreError::Busy { .. }) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        let reader = depot.reader(&lease.read).unwrap();
        assert!(read_all(&reader, all).unwrap() == content(all));
        assert!(reader.check(all).unwrap().is_empty());
        assert_eq!(depot.shared.pieces.load(Ordering::Relaxed), 0, "all groups are whole");
        depot.release(&lease.manage).unwrap();
    }
}

#[test]
fn leases_come_and_go_on_many_threads_and_space_is_never_promised_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (depot, _) = Depot::open(options(folder.path())).unwrap();
    let promised = Mutex::new(0i64);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (depot, promised) = (&depot, &promised);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number);
                for _ in 0..30 {
                    let bytes = random.u64(1..5) * GROUP;
                    let Ok(lease) = depot.allocate(bytes, HOUR, Medium::Disk) else { continue };
                    let mut sum = promised.lock().unwrap();
                    *sum += bytes as i64;
                    assert!(*sum <= 8 * GROUP as i64, "{sum}");
                    drop(sum);
                    depot.store(&lease.write, 0, b"mine").unwrap();
                    // Before it is given up, for another may have it the next moment.
                    *promised.lock().unwrap() -= bytes as i64;
                    depot.release(&lease.manage).unwrap();
                }
            });
        }
    });
    assert_eq!(depot.usage().disk_free_bytes, 8 * GROUP);
}

#[test]
fn pieces_are_bounded_and_adjoining_ones_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(2 * GROUP, HOUR, Medium::Memory).unwrap();
    let mut refused = None;
    for at in (1..4000).step_by(2) {
        if let Err(error) = depot.store(&lease.write, at, &content(Range::of_len(at, 1))) {
            refused = Some((at, error));
            break;
        }
    }
    let Some((at, StoreError::TooScattered { .. })) = refused else { panic!("{refused:?}") };
    // The gaps are filled all the same, bytewise, and few group hashes are left of them.
    for gap in (0..at).step_by(2) {
        depot.store(&lease.write, gap, &content(Range::of_len(gap, 1))).unwrap();
    }
    assert!(depot.shared.pieces.load(Ordering::Relaxed) < 200);
    // Elsewhere there is no lack.
    depot.store(&lease.write, GROUP + 1, b"a").unwrap();
    depot.store(&lease.write, 0, &content(Range::new(0, GROUP))).unwrap();
    assert_eq!(depot.shared.pieces.load(Ordering::Relaxed), 1);
    let reader = depot.reader(&lease.read).unwrap();
    assert!(reader.check(Range::new(0, 2 * GROUP)).unwrap().is_empty());
}
