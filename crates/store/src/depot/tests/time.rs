//! Leases that end, in virtual time.

use std::os::fd::{AsFd, AsRawFd};

use super::*;
use crate::depot::clock::{GRACE, Term};
use crate::depot::lease::{Fault, Lease};

const TICK: Duration = Duration::from_nanos(1);

#[test]
fn a_lease_ends_at_its_moment_and_its_space_is_free_then() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    for medium in [Medium::Disk, Medium::Memory] {
        let size_bytes = if medium == Medium::Disk { 8 * GROUP } else { 4 * GROUP };
        let lease = depot.allocate(size_bytes, HOUR, medium).unwrap();
        depot.store(&lease.write, 0, &content(Range::new(0, GROUP))).unwrap();
        let reader = depot.reader(&lease.read).unwrap();
        let mut writer = depot.writer(&lease.write, GROUP).unwrap();
        let part = reader.part(Range::new(0, GROUP)).unwrap();
        clock.pass(HOUR - TICK);
        assert_eq!((reader.left(), depot.sweep()), (TICK, Some(TICK)));
        assert_eq!(depot.status(&lease.read).unwrap().left, TICK);
        assert!(read_all(&reader, Range::new(0, GROUP)).unwrap() == content(Range::new(0, GROUP)));
        writer.write(b"in time").unwrap();
        assert!(matches!(depot.allocate(1, HOUR, medium), Err(AllocateError::NoRoom { .. })));

        clock.pass(TICK);
        // Without anybody sweeping.
        assert!(matches!(reader.read(0, &mut [0; 9]), Err(ReadError::Ended)));
        assert!(matches!(reader.part(Range::new(0, 1)), Err(ReadError::Ended)));
        assert!(matches!(reader.check(Range::new(0, GROUP)), Err(ReadError::Ended)));
        assert!(matches!(writer.write(b"late"), Err(StoreError::Ended)));
        assert!(matches!(writer.commit(), Err(StoreError::Ended)));
        assert!(matches!(depot.reader(&lease.read), Err(ReadError::NoLease)));
        assert!(matches!(depot.writer(&lease.write, 0), Err(StoreError::NoLease)));
        assert!(matches!(depot.extend(&lease.manage, HOUR), Err(ManageError::NoLease)));
        assert!(matches!(depot.release(&lease.manage), Err(ManageError::NoLease)));
        assert!(depot.status(&lease.manage).is_none());
        assert!([&lease.read, &lease.write, &lease.manage].iter().all(|one| depot.has_ended(one)));
        let next = depot.allocate(size_bytes, HOUR, medium).unwrap();

        // Whoever still has the descriptor keeps no space, and finds the file short.
        let mut bytes = [0u8; 10];
        let fd = part.as_fd().as_raw_fd();
        // SAFETY: ten bytes of ours.
        let got = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), 10, part.position as i64) };
        assert_eq!(got, 0);
        assert!(!folder.path().join(format!("leases/{}.data", lease.id)).exists());
        assert!(!depot.has_ended(&next.read));
        depot.release(&next.manage).unwrap();
        assert!(depot.has_ended(&next.read) && depot.has_ended(&lease.read));
        assert!(!depot.has_ended(&Capability::random().unwrap()));
        assert_eq!(depot.sweep(), None);
    }
    assert_eq!(std::fs::read_dir(folder.path().join("leases")).unwrap().count(), 0);
}

#[test]
fn a_lease_that_is_extended_runs_on() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
    depot.store(&lease.write, 0, b"kept").unwrap();
    clock.pass(HOUR / 2);
    assert!(matches!(depot.extend(&lease.manage, 11 * HOUR), Err(ManageError::TooLong { .. })));
    assert_eq!(depot.extend(&lease.manage, 2 * HOUR).unwrap(), 2 * HOUR);
    // Never shortened by it.
    assert_eq!(depot.extend(&lease.manage, HOUR).unwrap(), 2 * HOUR);
    clock.pass(HOUR);
    drop(depot);
    let depot = open(folder.path(), &clock);
    assert_eq!(depot.status(&lease.read).unwrap().left, HOUR);
    clock.reboot(HOUR / 2);
    drop(depot);
    let depot = open(folder.path(), &clock);
    assert_eq!(depot.status(&lease.read).unwrap().left, HOUR / 2);
    assert_eq!(read_all(&depot.reader(&lease.read).unwrap(), Range::new(0, 4)).unwrap(), b"kept");
    clock.pass(HOUR / 2);
    assert!(depot.status(&lease.read).is_none());
}

#[test]
fn the_wall_clock_may_jump_and_leases_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let mut depot = open(folder.path(), &clock);
    let lease = depot.allocate(GROUP, 4 * HOUR, Medium::Disk).unwrap();
    for jump_ms in [-(1i64 << 39), 1 << 41, -3_600_000, 3_600_000] {
        let mut now = clock.0.lock().unwrap();
        now.wall_ms = now.wall_ms.saturating_add_signed(jump_ms);
        drop(now);
        clock.pass(HOUR / 2);
        // While it runs, and over a restart of the program.
        let left = depot.status(&lease.read).unwrap().left;
        drop(depot);
        depot = open(folder.path(), &clock);
        assert_eq!(depot.status(&lease.read).unwrap().left, left);
    }
    assert_eq!(depot.status(&lease.read).unwrap().left, 2 * HOUR);
    // A restart of the machine with a clock set back by years: no longer than was granted.
    clock.reboot(Duration::ZERO);
    clock.0.lock().unwrap().wall_ms = 0;
    drop(depot);
    let depot = open(folder.path(), &clock);
    assert_eq!(depot.status(&lease.read).unwrap().left, 4 * HOUR);
    drop(depot);
    // Nor is it shorter where the depot gives less by now: what was promised holds.
    let short = DepotOptions { length_max: HOUR, ..options(folder.path()) };
    let (depot, _) = Depot::open_at(short, clock.clone()).unwrap();
    assert_eq!(depot.status(&lease.read).unwrap().left, 4 * HOUR);
    drop(depot);
    // Set forward: it has ended.
    clock.reboot(Duration::ZERO);
    clock.0.lock().unwrap().wall_ms = 1 << 42;
    let (depot, found) = Depot::open_at(options(folder.path()), clock.clone()).unwrap();
    assert_eq!((found.ended, found.allocations), (1, 0));
    assert!(depot.has_ended(&lease.read));
    clock.pass(GRACE);
    assert_eq!(depot.sweep(), None);
    assert_eq!(std::fs::read_dir(folder.path().join("leases")).unwrap().count(), 0);
}

#[test]
fn what_a_wrong_clock_has_ended_is_read_by_nobody_and_destroyed_only_when_it_stays() {
    // A machine that began with a time years ahead lost all that was leased, for good.
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let all = Range::new(0, GROUP);
    let leased = |depot: &Depot, length| {
        let lease = depot.allocate(GROUP, length, Medium::Disk).unwrap();
        depot.store(&lease.write, 0, &content(all)).unwrap();
        lease
    };
    let depot = open(folder.path(), &clock);
    let (long, short) = (leased(&depot, 4 * HOUR), leased(&depot, HOUR));
    drop(depot);
    let right_ms = || clock.0.lock().unwrap().wall_ms;
    let set = |ms: u64| clock.0.lock().unwrap().wall_ms = ms;
    clock.reboot(HOUR / 2);
    let (began_ms, ahead_ms) = (right_ms(), 1 << 42);
    set(ahead_ms);
    let (depot, found) = Depot::open_at(options(folder.path()), clock.clone()).unwrap();
    assert_eq!((found.ended, found.allocations), (2, 0));
    assert!(matches!(found.notes[..], [Note::Ahead { ended: 2, by }] if by > 24 * HOUR));
    let taken = depot.usage().disk_taken_bytes;
    for lease in [&long, &short] {
        assert!(matches!(depot.reader(&lease.read), Err(ReadError::NoLease)));
        assert!(matches!(depot.writer(&lease.write, 0), Err(StoreError::NoLease)));
        assert!(matches!(depot.extend(&lease.manage, HOUR), Err(ManageError::NoLease)));
        assert!(depot.has_ended(&lease.read) && depot.status(&lease.read).is_none());
    }
    assert_eq!(taken, 2 * GROUP);
    assert!(matches!(
        depot.allocate(7 * GROUP, HOUR, Medium::Disk),
        Err(AllocateError::NoRoom { .. })
    ));
    clock.pass(GRACE - TICK);
    assert_eq!(depot.sweep(), Some(crate::depot::clock::LOOK));
    // Somebody sets it right, 40 minutes after both began: they run as long as they would have.
    set(began_ms + 600_000);
    assert_eq!(depot.sweep(), Some(HOUR / 3));
    assert_eq!(depot.status(&long.read).unwrap().left, 4 * HOUR - HOUR * 2 / 3);
    for lease in [&long, &short] {
        assert!(read_all(&depot.reader(&lease.read).unwrap(), all).unwrap() == content(all));
    }
    clock.pass(HOUR / 3);
    assert!(depot.has_ended(&short.read) && !depot.has_ended(&long.read));
    assert_eq!(depot.usage().disk_taken_bytes, GROUP);
    // If it stays what it is, it is right, and the space is free.
    drop(depot);
    clock.reboot(5 * HOUR);
    let (depot, found) = Depot::open_at(options(folder.path()), clock.clone()).unwrap();
    assert_eq!((found.ended, found.notes.len()), (1, 0), "five hours are no wonder");
    clock.pass(GRACE);
    depot.allocate(8 * GROUP, HOUR, Medium::Disk).unwrap();
    assert!(depot.has_ended(&long.read));
}

#[test]
fn what_is_given_up_while_a_clock_is_wrong_stays_given_up() {
    // Whoever gave it up was told that it had ended, and threw the keys away; then it lived on.
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    let lease = depot.allocate(GROUP, 4 * HOUR, Medium::Disk).unwrap();
    let other = depot.allocate(GROUP, 4 * HOUR, Medium::Disk).unwrap();
    drop(depot);
    clock.reboot(HOUR / 2);
    let right_ms = clock.0.lock().unwrap().wall_ms;
    clock.0.lock().unwrap().wall_ms = 1 << 42;
    let (depot, _) = Depot::open_at(options(folder.path()), clock.clone()).unwrap();
    assert!(matches!(depot.release(&lease.read), Err(ManageError::NoLease)));
    depot.release(&lease.manage).unwrap();
    assert!(matches!(depot.release(&lease.manage), Err(ManageError::NoLease)));
    assert_eq!(depot.usage().disk_taken_bytes, GROUP);
    clock.0.lock().unwrap().wall_ms = right_ms;
    depot.sweep();
    assert!(depot.status(&lease.read).is_none() && depot.has_ended(&lease.read));
    assert!(depot.status(&other.read).is_some());
}

#[test]
fn what_ended_while_nobody_had_it_open_is_known_to_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let lease = open(folder.path(), &clock).allocate(GROUP, HOUR, Medium::Disk).unwrap();
    clock.pass(HOUR);
    let depot = open(folder.path(), &clock);
    assert!(depot.has_ended(&lease.read) && depot.status(&lease.read).is_none());
}

/// What it takes to extend a lease step by step.
fn extend(
    depot: &Depot,
    lease: &Lease,
    (from, length): (Moment, Duration),
    meanwhile: impl FnOnce(),
) -> Result<Time, Fault> {
    lease.extend(&depot.shared, Term { from, length }, |ends| {
        let is_there = depot.shared.leases().ledger.extend(lease.id, ends, from.since_boot);
        meanwhile();
        is_there
    })
}

#[test]
fn of_two_who_extend_at_once_the_one_who_was_promised_more_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
    let (found, _) = depot.find(&lease.manage, Right::Manage).unwrap();
    // Both have seen that it runs for an hour; the one who wants more comes first.
    extend(&depot, &found, (clock.now(), 5 * HOUR), || {}).unwrap();
    let ends = extend(&depot, &found, (clock.now(), 2 * HOUR), || {}).unwrap();
    assert_eq!(ends, clock.now().since_boot + 5 * HOUR);
    assert_eq!(depot.status(&lease.read).unwrap().left, 5 * HOUR);
    drop((depot, found));
    let depot = open(folder.path(), &clock);
    assert_eq!(depot.status(&lease.read).unwrap().left, 5 * HOUR);
}

#[test]
fn what_is_released_while_it_is_extended_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    for medium in [Medium::Disk, Medium::Memory] {
        let lease = depot.allocate(GROUP, HOUR, medium).unwrap();
        depot.store(&lease.write, 0, b"hello").unwrap();
        let reader = depot.reader(&lease.read).unwrap();
        let mut writer = depot.writer(&lease.write, 100).unwrap();
        let (found, _) = depot.find(&lease.manage, Right::Manage).unwrap();
        std::thread::scope(|scope| {
            let extended = extend(&depot, &found, (clock.now(), 5 * HOUR), || {
                scope.spawn(|| depot.release(&lease.manage).unwrap());
                while !found.is_given_up() {
                    std::thread::yield_now();
                }
            });
            assert!(matches!(extended, Err(Fault::Gone)), "{extended:?}");
        });
        // Its space is another's now.
        assert!(matches!(reader.read(0, &mut [0; 5]), Err(ReadError::Ended)));
        assert!(matches!(writer.write(b"late"), Err(StoreError::Ended)));
    }
}

/// A clock on which an hour passes before somebody looks at it for the so manieth time.
struct Jumps {
    hands: Arc<Hands>,
    looks: Mutex<Option<u32>>,
}

impl Clock for Jumps {
    fn now(&self) -> Moment {
        let mut looks = self.looks.lock().unwrap();
        *looks = looks.and_then(|left| left.checked_sub(1));
        if *looks == Some(0) {
            self.hands.pass(HOUR);
        }
        self.hands.now()
    }
}

#[test]
fn who_stores_at_the_old_end_of_a_lease_that_is_extended_just_now_destroys_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let hands = Hands::new();
    let clock = Arc::new(Jumps { hands: hands.clone(), looks: Mutex::new(None) });
    let (depot, _) = Depot::open_at(options(folder.path()), clock.clone()).unwrap();
    let lease = depot.allocate(2 * GROUP, HOUR, Medium::Disk).unwrap();
    depot.store(&lease.write, 0, &content(Range::new(0, GROUP))).unwrap();
    let mut writer = depot.writer(&lease.write, GROUP).unwrap();
    let (found, _) = depot.find(&lease.manage, Right::Manage).unwrap();
    let from = hands.now();
    extend(&depot, &found, (from, 5 * HOUR), || {
        // It begins to write in time, and has written when the hour is over.
        *clock.looks.lock().unwrap() = Some(2);
        assert!(matches!(writer.write(b"late"), Err(StoreError::Ended)));
    })
    .unwrap();
    let reader = depot.reader(&lease.read).unwrap();
    let all = Range::new(0, GROUP);
    assert!(read_all(&reader, all).unwrap() == content(all));
    assert_eq!(depot.status(&lease.read).unwrap().left, 4 * HOUR);
    // What it had claimed was its own for as long as the lease ran.
    depot.store(&lease.write, GROUP, b"again").unwrap();
}

#[test]
fn what_ends_while_it_is_checked_is_not_handed_out() {
    let folder = tempfile::tempdir().unwrap();
    let hands = Hands::new();
    let clock = Arc::new(Jumps { hands: hands.clone(), looks: Mutex::new(None) });
    let (depot, _) = Depot::open_at(options(folder.path()), clock.clone()).unwrap();
    let all = Range::new(0, GROUP);
    for medium in [Medium::Disk, Medium::Memory] {
        let lease = depot.allocate(GROUP, HOUR, medium).unwrap();
        depot.store(&lease.write, 0, &content(all)).unwrap();
        let reader = depot.reader(&lease.read).unwrap();
        // It is asked for in time, and checked when the hour is over.
        *clock.looks.lock().unwrap() = Some(2);
        let part = reader.part(all);
        assert!(matches!(part, Err(ReadError::Ended)), "{part:?}");
    }
}

/// A clock by which something is done when somebody looks at it next, before it tells.
struct Meanwhile {
    hands: Arc<Hands>,
    to_do: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clock for Meanwhile {
    fn now(&self) -> Moment {
        let to_do = self.to_do.lock().unwrap().take();
        if let Some(to_do) = to_do {
            to_do();
        }
        self.hands.now()
    }
}

#[test]
fn who_stores_in_what_is_released_just_now_leaves_nothing_on_the_disk() {
    // What it wrote took space that was another's already, for as long as it had the file open.
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Meanwhile { hands: Hands::new(), to_do: Mutex::new(None) });
    let (depot, _) = Depot::open_at(options(folder.path()), clock.clone()).unwrap();
    for medium in [Medium::Disk, Medium::Memory] {
        let lease = depot.allocate(2 * GROUP, HOUR, medium).unwrap();
        depot.store(&lease.write, 0, b"before").unwrap();
        let part = depot.reader(&lease.read).unwrap().part(Range::new(0, 6)).unwrap();
        let mut writer = depot.writer(&lease.write, GROUP).unwrap();
        let (other, manage) = (depot.clone(), lease.manage.clone());
        let release = move || other.release(&manage).unwrap();
        // It has seen that the lease runs when it looks at the clock.
        *clock.to_do.lock().unwrap() = Some(Box::new(release));
        let written = writer.write(&content(Range::new(0, 1000)));
        assert!(matches!(written, Err(StoreError::Ended)), "{written:?}");
        let file = std::fs::File::from(part.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(file.metadata().unwrap().len(), 0, "{medium:?}");
    }
}
