//! The depot against models, damage, power loss and time.

/// Steps as the system has them.
macro_rules! through {
    ($($name:ident($($arg:ident: $kind:ty),*)),* $(,)?) => {
        $(fn $name(&self, $($arg: $kind),*) -> io::Result<()> { self.system.$name($($arg),*) })*
    };
}

mod damage;
mod model;
mod power;
mod sharing;
mod time;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use swath_model::{Range, RangeSet, Time};

use super::*;

const KIB: u64 = 1 << 10;
const GROUP: u64 = 256 * KIB;
const HOUR: Duration = Duration::from_secs(3600);

/// A clock that stands still until somebody moves it.
struct Hands(Mutex<Moment>);

impl Hands {
    fn new() -> Arc<Hands> {
        let since_boot = Time::from_nanos(5_000_000_000);
        Arc::new(Hands(Mutex::new(Moment { boot: [1; 16], since_boot, wall_ms: 1 << 40 })))
    }

    fn pass(&self, time: Duration) {
        let mut now = self.0.lock().unwrap();
        now.since_boot = now.since_boot + time;
        now.wall_ms += time.as_millis() as u64;
    }

    /// The machine was off for so long.
    fn reboot(&self, off: Duration) {
        self.pass(off);
        let mut now = self.0.lock().unwrap();
        now.boot[0] += 1;
        now.since_boot = Time::from_nanos(1_000_000_000);
    }
}

impl Clock for Hands {
    fn now(&self) -> Moment {
        *self.0.lock().unwrap()
    }
}

fn options(folder: &Path) -> DepotOptions {
    DepotOptions {
        size_bytes: 8 * GROUP,
        memory_bytes: 4 * GROUP,
        length_max: 10 * HOUR,
        ..DepotOptions::in_folder(folder)
    }
}

fn open(folder: &Path, clock: &Arc<Hands>) -> Depot {
    let (depot, found) = Depot::open_at(options(folder), clock.clone()).unwrap();
    assert_eq!(found.notes, []);
    depot
}

/// The byte that belongs at `offset` of an allocation; never zero.
fn byte_at(offset: u64) -> u8 {
    let mixed = (offset ^ (offset >> 13)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8 | 1
}

fn content(range: Range) -> Vec<u8> {
    (range.start..range.end).map(byte_at).collect()
}

fn set(ranges: &[(u64, u64)]) -> RangeSet {
    ranges.iter().map(|&(start, end)| Range::new(start, end)).collect()
}

/// Reads all of `range`, part by part.
fn read_all(reader: &Reader, range: Range) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; range.len() as usize];
    let mut at = 0;
    while at < bytes.len() {
        at += reader.read(range.start + at as u64, &mut bytes[at..])?;
    }
    Ok(bytes)
}

#[test]
fn what_is_stored_is_read_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    for medium in [Medium::Disk, Medium::Memory] {
        let depot = open(folder.path(), &clock);
        let lease = depot.allocate(2 * GROUP + 100, HOUR, medium).unwrap();
        let reader = depot.reader(&lease.read).unwrap();
        assert!(
            matches!(reader.part(Range::new(5, 9)), Err(ReadError::NotHeld { range }) if range == Range::new(5, 2 * GROUP + 100))
        );
        // In any order, across groups, the last byte.
        for range in [
            Range::new(GROUP - 10, GROUP + 10),
            Range::new(0, 1),
            Range::new(2 * GROUP + 99, 2 * GROUP + 100),
        ] {
            depot.store(&lease.write, range.start, &content(range)).unwrap();
            assert!(read_all(&reader, range).unwrap() == content(range));
        }
        let held = set(&[(0, 1), (GROUP - 10, GROUP + 10), (2 * GROUP + 99, 2 * GROUP + 100)]);
        assert_eq!(reader.held(), held);
        // As far as it is stored.
        let part = reader.part(Range::new(GROUP - 5, 2 * GROUP)).unwrap();
        assert_eq!(part.range, Range::new(GROUP - 5, GROUP + 10));
        let until = Range::new(1, GROUP - 10);
        assert!(
            matches!(reader.part(Range::new(1, 2)), Err(ReadError::NotHeld { range }) if range == until)
        );
        // The rest, over what is there already.
        let all = Range::new(0, 2 * GROUP + 100);
        depot.store(&lease.write, 0, &content(all)).unwrap();
        assert!(read_all(&reader, all).unwrap() == content(all));
        assert_eq!(depot.status(&lease.manage).unwrap().held, RangeSet::from(all));
        assert_eq!(depot.shared.pieces.load(std::sync::atomic::Ordering::Relaxed), 0);
        let past = depot.store(&lease.write, 2 * GROUP + 99, b"ab").unwrap_err();
        assert!(matches!(past, StoreError::PastEnd { .. }));
        depot.release(&lease.manage).unwrap();
        assert!(matches!(reader.read(0, &mut [0]), Err(ReadError::Ended)));
    }
}

#[test]
fn a_byte_that_is_held_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
    depot.store(&lease.write, 10, b"0123456789").unwrap();
    depot.store(&lease.write, 12, b"23").unwrap();
    depot.store(&lease.write, 8, b"ab0123").unwrap();
    for (offset, bytes) in [(10, &b"1"[..]), (5, b"xxxabz"), (19, b"8"), (15, b"56780")] {
        let refused = depot.store(&lease.write, offset, bytes).unwrap_err();
        assert!(matches!(refused, StoreError::Differs { .. }), "{offset}: {refused}");
    }
    let reader = depot.reader(&lease.read).unwrap();
    // What came before the byte that differs is there.
    assert_eq!(read_all(&reader, Range::new(5, 20)).unwrap(), b"xxxab0123456789");
}

#[test]
fn a_capability_is_good_for_one_thing() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
    for other in [&lease.read, &lease.manage] {
        assert!(matches!(depot.store(other, 0, b"a"), Err(StoreError::NoLease)));
    }
    for other in [&lease.write, &lease.manage] {
        assert!(matches!(depot.reader(other), Err(ReadError::NoLease)));
    }
    for other in [&lease.write, &lease.read] {
        assert!(matches!(depot.release(other), Err(ManageError::NoLease)));
        assert!(matches!(depot.extend(other, HOUR), Err(ManageError::NoLease)));
    }
    for (capability, right) in
        [(&lease.read, Right::Read), (&lease.write, Right::Write), (&lease.manage, Right::Manage)]
    {
        assert_eq!(depot.status(capability).unwrap().right, right);
    }
    assert!(depot.status(&Capability::random().unwrap()).is_none());
    // None of them lies in the folder.
    for entry in std::fs::read_dir(folder.path().join("leases")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for capability in [&lease.read, &lease.write, &lease.manage] {
            let text = capability.to_string();
            let secret: Vec<u8> = (0..32)
                .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            assert!(!bytes.windows(32).any(|window| window == secret));
        }
    }
}

#[test]
fn no_more_is_promised_than_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    for (medium, size_bytes) in [(Medium::Disk, 8 * GROUP), (Medium::Memory, 4 * GROUP)] {
        assert!(matches!(depot.allocate(0, HOUR, medium), Err(AllocateError::Empty)));
        let refused = depot.allocate(size_bytes + 1, HOUR, medium).unwrap_err();
        assert!(
            matches!(refused, AllocateError::NoRoom { free_bytes } if free_bytes == size_bytes)
        );
        let refused = depot.allocate(u64::MAX, HOUR, medium).unwrap_err();
        assert!(matches!(refused, AllocateError::NoRoom { .. }));
        let long = depot.allocate(1, 10 * HOUR + Duration::from_nanos(1), medium).unwrap_err();
        assert!(matches!(long, AllocateError::TooLong { .. }));
        let half = depot.allocate(size_bytes / 2, HOUR, medium).unwrap();
        // Counted in blocks.
        let byte = depot.allocate(1, HOUR, medium).unwrap();
        let refused = depot.allocate(size_bytes / 2 - 4095, HOUR, medium).unwrap_err();
        let free = size_bytes / 2 - 4096;
        assert!(matches!(refused, AllocateError::NoRoom { free_bytes } if free_bytes == free));
        depot.allocate(free, HOUR, medium).unwrap();
        depot.release(&byte.manage).unwrap();
        depot.release(&half.manage).unwrap();
        assert!(matches!(depot.release(&half.manage), Err(ManageError::NoLease)));
        depot.allocate(size_bytes / 2, HOUR, medium).unwrap();
    }
    let room = depot.usage();
    drop(depot);
    // The same after a restart, but for what was in memory.
    let depot = open(folder.path(), &clock);
    let again = DepotUsage { memory_taken_bytes: 0, memory_free_bytes: 4 * GROUP, ..room };
    assert_eq!(depot.usage(), DepotUsage { allocations: 2, ..again });
    drop(depot);
    // And with less than before.
    let less = DepotOptions { size_bytes: GROUP, ..options(folder.path()) };
    let (depot, found) = Depot::open_at(less, clock).unwrap();
    assert_eq!((found.allocations, depot.usage().disk_free_bytes), (2, 0));
    assert!(depot.allocate(1, HOUR, Medium::Disk).is_err());
}

#[test]
fn there_are_only_so_many_allocations() {
    let folder = tempfile::tempdir().unwrap();
    let options = DepotOptions { leases_max: 2, ..options(folder.path()) };
    let (depot, _) = Depot::open(options).unwrap();
    let first = depot.allocate(1, HOUR, Medium::Disk).unwrap();
    depot.allocate(1, HOUR, Medium::Memory).unwrap();
    let refused = depot.allocate(1, HOUR, Medium::Disk).unwrap_err();
    assert!(matches!(refused, AllocateError::TooMany { leases_max: 2 }));
    depot.release(&first.manage).unwrap();
    depot.allocate(1, HOUR, Medium::Disk).unwrap();
}

#[test]
fn a_disk_that_is_fuller_than_expected_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let options = DepotOptions { size_bytes: u64::MAX, ..options(folder.path()) };
    let (depot, _) = Depot::open(options).unwrap();
    let refused = depot.allocate(1 << 58, HOUR, Medium::Disk).unwrap_err();
    let AllocateError::DiskFull { free_bytes } = refused else { panic!("{refused}") };
    // Others write there meanwhile.
    assert!(0 < free_bytes && free_bytes < 1 << 58, "{free_bytes}");
    assert!(depot.usage().disk_free_bytes < 1 << 58, "what the disk has, not what was told");
    assert_eq!(std::fs::read_dir(folder.path().join("leases")).unwrap().count(), 0);
    assert_eq!(depot.usage().disk_taken_bytes, 0);
    // What is given is there.
    let lease = depot.allocate(4 * GROUP, HOUR, Medium::Disk).unwrap();
    let data = folder.path().join(format!("leases/{}.data", lease.id));
    let blocks = std::os::unix::fs::MetadataExt::blocks(&data.metadata().unwrap());
    assert!(blocks * 512 >= 4 * GROUP, "{blocks} blocks");
}

#[test]
fn without_a_folder_there_is_only_memory() {
    let options =
        DepotOptions { size_bytes: 1 << 30, memory_bytes: GROUP, ..DepotOptions::default() };
    let (depot, _) = Depot::open(options).unwrap();
    let refused = depot.allocate(1, HOUR, Medium::Disk).unwrap_err();
    assert!(matches!(refused, AllocateError::NoRoom { free_bytes: 0 }));
    let lease = depot.allocate(GROUP, HOUR, Medium::Memory).unwrap();
    depot.store(&lease.write, 0, &content(Range::new(0, GROUP))).unwrap();
}

#[test]
fn a_folder_is_open_once() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let again = Depot::open(options(folder.path())).unwrap_err();
    assert!(matches!(again, OpenError::Locked(_)));
    drop(depot);
    Depot::open(options(folder.path())).unwrap();
}

#[test]
fn space_that_is_taken_as_bytes_come_is_promised_once() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    for medium in [Medium::Disk, Medium::Memory] {
        let depot = open(folder.path(), &clock);
        let all = if medium == Medium::Disk { 8 * GROUP } else { 4 * GROUP };
        let free = |depot: &Depot| match medium {
            Medium::Disk => depot.usage().disk_free_bytes,
            Medium::Memory => depot.usage().memory_free_bytes,
        };
        // Far more than there is, and nothing is taken yet.
        let size_bytes = 1 << 40;
        let make = || depot.allocate_with(size_bytes, HOUR, medium, Space::AsStored).unwrap();
        let (one, two) = (make(), make());
        assert_eq!(free(&depot), all);
        let far = Range::of_len(size_bytes / 2, GROUP);
        depot.store(&one.write, far.start, &content(far)).unwrap();
        depot.store(&two.write, 5000, b"a").unwrap();
        assert_eq!(free(&depot), all - GROUP - 4 * KIB);
        assert_eq!(depot.status(&two.read).unwrap().taken_bytes, 4 * KIB);
        // The same block again costs nothing.
        depot.store(&two.write, 6000, b"a").unwrap();
        let rest = depot.allocate(free(&depot), HOUR, medium).unwrap();
        let full = depot.store(&two.write, 9000, b"a").unwrap_err();
        assert!(matches!(full, StoreError::NoRoom { free_bytes: 0 }), "{full}");
        let reader = depot.reader(&one.read).unwrap();
        assert!(read_all(&reader, far).unwrap() == content(far));
        drop(reader);
        depot.release(&rest.manage).unwrap();
        // What was written and not acknowledged is taken until somebody opens the depot again.
        let mut writer = depot.writer(&two.write, 0).unwrap();
        writer.write(&content(Range::new(0, GROUP))).unwrap_err();
        drop(writer);
        let before = free(&depot);
        if medium == Medium::Disk {
            drop(depot);
            let depot = open(folder.path(), &clock);
            assert_eq!(free(&depot), before + 4 * KIB);
            assert_eq!(depot.status(&one.read).unwrap().held, RangeSet::from(far));
            depot.release(&one.manage).unwrap();
            depot.release(&two.manage).unwrap();
            assert_eq!(free(&depot), all);
            continue;
        }
        depot.release(&one.manage).unwrap();
        depot.release(&two.manage).unwrap();
        assert_eq!(free(&depot), all);
    }
}

#[test]
fn a_lease_that_has_ended_makes_room_for_what_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    let kept = depot.allocate_with(1 << 30, 2 * HOUR, Medium::Disk, Space::AsStored).unwrap();
    depot.allocate(8 * GROUP, HOUR, Medium::Disk).unwrap();
    let full = depot.store(&kept.write, 0, b"a").unwrap_err();
    assert!(matches!(full, StoreError::NoRoom { .. }));
    clock.pass(HOUR);
    depot.store(&kept.write, 0, b"a").unwrap();
}

#[test]
fn an_allocation_much_larger_than_what_is_stored_of_it_costs_no_memory_for_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let size_bytes = 1 << 60;
    let made = depot.allocate_with(size_bytes, HOUR, Medium::Memory, Space::AsStored);
    let lease = made.unwrap();
    let last = Range::new(size_bytes - GROUP, size_bytes);
    depot.store(&lease.write, last.start, &content(last)).unwrap();
    // To remember that its last group was checked once took a bit for each group before it: half a
    // terabyte, which was the end of the relay.
    let reader = depot.reader(&lease.read).unwrap();
    assert!(read_all(&reader, last).unwrap() == content(last));
    assert_eq!(depot.usage().memory_taken_bytes, GROUP);
}
