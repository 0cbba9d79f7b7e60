//! What the disk does to files, and what becomes of leases then.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;

/// Changes one byte of a file behind everybody's back.
fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn file_of(folder: &Path, lease: &Allocation, end: &str) -> PathBuf {
    folder.join(format!("leases/{}.{end}", lease.id))
}

#[test]
fn a_flipped_byte_is_noticed_and_can_be_stored_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let all = Range::new(0, 3 * GROUP);
    let second = Range::new(GROUP, 2 * GROUP);
    for restarted in [false, true] {
        let mut depot = open(folder.path(), &clock);
        let lease = depot.allocate(all.end, HOUR, Medium::Disk).unwrap();
        depot.store(&lease.write, 0, &content(all)).unwrap();
        if restarted {
            assert!(read_all(&depot.reader(&lease.read).unwrap(), all).is_ok());
            drop(depot);
            depot = open(folder.path(), &clock);
        }
        flip(&file_of(folder.path(), &lease, "data"), GROUP + 1234);
        let reader = depot.reader(&lease.read).unwrap();
        // What lies before it is given.
        let sound = reader.part(all).unwrap().range;
        assert_eq!(sound, Range::new(0, GROUP));
        // Found by the first call already, so nothing is stored there any more.
        assert!(
            matches!(reader.part(second), Err(ReadError::NotHeld { range }) if range == second)
        );
        assert_eq!(reader.held(), set(&[(0, GROUP), (2 * GROUP, 3 * GROUP)]));
        drop((reader, depot));
        // And that survives.
        depot = open(folder.path(), &clock);
        let status = depot.status(&lease.manage).unwrap();
        assert_eq!(status.damaged, RangeSet::from(second));
        depot.store(&lease.write, 0, &content(all)).unwrap();
        assert!(read_all(&depot.reader(&lease.read).unwrap(), all).unwrap() == content(all));
        assert!(depot.status(&lease.manage).unwrap().damaged.is_empty());
        depot.release(&lease.manage).unwrap();
    }
}

#[test]
fn the_first_read_checks_and_later_ones_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(2 * GROUP, HOUR, Medium::Disk).unwrap();
    let all = Range::new(0, 2 * GROUP);
    depot.store(&lease.write, 0, &content(all)).unwrap();
    let reader = depot.reader(&lease.read).unwrap();
    read_all(&reader, all).unwrap();
    flip(&file_of(folder.path(), &lease, "data"), 5);
    flip(&file_of(folder.path(), &lease, "data"), GROUP + 5);
    assert!(reader.part(Range::new(0, 10)).is_ok(), "checked once is enough");
    assert_eq!(reader.check(all).unwrap(), RangeSet::from(all));
    assert!(matches!(reader.part(Range::new(0, 10)), Err(ReadError::NotHeld { .. })));
}

/// What rots while the depot is open was read by everybody until it was opened again.
#[test]
fn what_rots_after_it_was_checked_is_found_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(2 * GROUP, HOUR, Medium::Disk).unwrap();
    let all = Range::new(0, 2 * GROUP);
    depot.store(&lease.write, 0, &content(all)).unwrap();
    let reader = depot.reader(&lease.read).unwrap();
    read_all(&reader, all).unwrap();
    flip(&file_of(folder.path(), &lease, "data"), GROUP + 5);
    let second = Range::new(GROUP, 2 * GROUP);
    let found = (0..20_000).find(|_| reader.part(second).is_err());
    assert!(found.is_some(), "it is read again and again");
    assert_eq!(reader.held(), set(&[(0, GROUP)]));
}

#[test]
fn of_all_who_read_a_flipped_byte_at_once_nobody_gets_it() {
    // Who looked while another one struck the group out found nothing to check in it.
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let all = Range::new(0, GROUP);
    let found_out = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
    depot.store(&found_out.write, 0, &content(all)).unwrap();
    let (lease, _) = depot.find(&found_out.read, Right::Read).unwrap();
    lease.note(&depot.shared, &[contents::Fact::Bad { range: all }]);
    let file = lease.file(&depot.shared).unwrap();
    for which in [check::Which::New, check::Which::All] {
        assert_eq!(check::check(&depot.shared, &lease, &file, all, which).unwrap(), Some(all));
    }
    assert_eq!(check::check(&depot.shared, &lease, &file, all, check::Which::Held).unwrap(), None);
    for _ in 0..40 {
        let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
        depot.store(&lease.write, 0, &content(all)).unwrap();
        flip(&file_of(folder.path(), &lease, "data"), 5);
        let reader = depot.reader(&lease.read).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(reader.part(all).is_err()));
            }
        });
        depot.release(&lease.manage).unwrap();
    }
}

#[test]
fn a_flipped_seal_costs_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(2 * GROUP, HOUR, Medium::Disk).unwrap();
    depot.store(&lease.write, 0, &content(Range::new(0, 2 * GROUP))).unwrap();
    flip(&file_of(folder.path(), &lease, "data"), 2 * GROUP + 3);
    let reader = depot.reader(&lease.read).unwrap();
    let damaged = reader.read(0, &mut [0; 4]).unwrap_err();
    assert!(matches!(damaged, ReadError::Damaged { range } if range == Range::new(0, GROUP)));
    assert_eq!(reader.held(), set(&[(GROUP, 2 * GROUP)]));
}

#[test]
fn damage_in_a_group_that_is_not_whole_is_never_sealed_in() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
    depot.store(&lease.write, 100, &content(Range::new(100, 200))).unwrap();
    depot.store(&lease.write, 300, &content(Range::new(300, 400))).unwrap();
    flip(&file_of(folder.path(), &lease, "data"), 150);
    let reader = depot.reader(&lease.read).unwrap();
    assert!(matches!(reader.read(100, &mut [0]), Err(ReadError::Damaged { .. })));
    assert_eq!(reader.held(), set(&[(300, 400)]));
    flip(&file_of(folder.path(), &lease, "data"), 350);
    // The rest of the group makes it whole, but for what is found damaged by that.
    for gap in [Range::new(0, 300), Range::new(400, GROUP)] {
        depot.store(&lease.write, gap.start, &content(gap)).unwrap();
    }
    assert_eq!(depot.status(&lease.read).unwrap().damaged, set(&[(300, 400)]));
    assert_eq!(reader.held(), set(&[(0, 300), (400, GROUP)]));
    depot.store(&lease.write, 300, &content(Range::new(300, 400))).unwrap();
    let all = Range::new(0, GROUP);
    assert!(read_all(&reader, all).unwrap() == content(all));
    assert!(reader.check(all).unwrap().is_empty());
}

#[test]
fn who_stores_over_damage_heals_it() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(2 * GROUP, HOUR, Medium::Disk).unwrap();
    let all = Range::new(0, 2 * GROUP);
    depot.store(&lease.write, 0, &content(all)).unwrap();
    for at in [0, 77, GROUP, 2 * GROUP - 1] {
        flip(&file_of(folder.path(), &lease, "data"), at);
        depot.store(&lease.write, 0, &content(all)).unwrap();
        assert!(read_all(&depot.reader(&lease.read).unwrap(), all).unwrap() == content(all));
    }
}

#[test]
fn what_somebody_has_cut_off_is_lost() {
    // It was called whole, and nothing of it could be read, for as long as its lease ran.
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let all = Range::new(0, 2 * GROUP);
    let lease = depot.allocate(all.end, HOUR, Medium::Disk).unwrap();
    depot.store(&lease.write, 0, &content(all)).unwrap();
    assert!(!depot.status(&lease.read).unwrap().is_lost);
    let data =
        fs::File::options().write(true).open(file_of(folder.path(), &lease, "data")).unwrap();
    data.set_len(GROUP + 5).unwrap();
    assert!(depot.status(&lease.read).unwrap().is_lost);
    // Where it is read all the same, what is not there is damaged, and not out of order.
    let reader = depot.reader(&lease.read).unwrap();
    assert!(matches!(reader.part(Range::new(GROUP, all.end)), Err(ReadError::Damaged { .. })));
    assert_eq!(depot.lost(), 1);
}

/// Three allocations, of which the second is damaged by `damage`; what is found then.
fn with_damage(damage: impl Fn(&Path, &Allocation)) -> (Found, Option<RangeSet>, DepotUsage) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    let leases: Vec<Allocation> =
        (0..3).map(|_| depot.allocate(GROUP, HOUR, Medium::Disk).unwrap()).collect();
    for lease in &leases {
        depot.store(&lease.write, 5, &content(Range::new(5, 105))).unwrap();
        depot.store(&lease.write, 200, &content(Range::new(200, 300))).unwrap();
        depot.extend(&lease.manage, 2 * HOUR).unwrap();
    }
    drop(depot);
    damage(folder.path(), &leases[1]);
    let (depot, found) = Depot::open_at(options(folder.path()), clock.clone()).unwrap();
    for lease in [&leases[0], &leases[2]] {
        let reader = depot.reader(&lease.read).unwrap();
        assert_eq!(reader.held(), set(&[(5, 105), (200, 300)]));
        assert!(read_all(&reader, Range::new(5, 105)).unwrap() == content(Range::new(5, 105)));
        assert_eq!(reader.left(), 2 * HOUR);
    }
    let held = depot.status(&leases[1].read).map(|status| status.held);
    if let Some(held) = &held {
        let reader = depot.reader(&leases[1].read).unwrap();
        for range in held.iter() {
            assert!(read_all(&reader, range).unwrap() == content(range));
        }
        // It goes on from there.
        depot.store(&leases[1].write, 0, &content(Range::new(0, GROUP))).unwrap();
        drop((reader, depot));
        let depot = open(folder.path(), &clock);
        let held = depot.status(&leases[1].read).unwrap().held;
        assert_eq!(held, RangeSet::from(Range::new(0, GROUP)));
        return (found, Some(held), depot.usage());
    }
    (found, held, depot.usage())
}

#[test]
fn a_damaged_journal_costs_no_other_lease_and_is_named() {
    let size = {
        let bytes = Mutex::new(0);
        with_damage(|folder, lease| {
            *bytes.lock().unwrap() = file_of(folder, lease, "lease").metadata().unwrap().len();
        });
        bytes.into_inner().unwrap()
    };
    let mut random = fastrand::Rng::with_seed(7);
    let mut aside = 0;
    for at in (0..size).filter(|_| random.u8(0..6) == 0) {
        let (found, _, _) = with_damage(|folder, lease| {
            flip(&file_of(folder, lease, "lease"), at);
        });
        assert_eq!(found.notes.len(), 1, "byte {at}: {:?}", found.notes);
        aside += usize::from(matches!(found.notes[0], Note::SetAside { .. }));
    }
    assert!(aside > 3, "the grant is a part of it");
    for cut in (0..size).filter(|_| random.u8(0..6) == 0) {
        with_damage(|folder, lease| {
            let path = file_of(folder, lease, "lease");
            fs::File::options().write(true).open(path).unwrap().set_len(cut).unwrap();
        });
    }
}

#[test]
fn what_cannot_be_believed_is_set_aside_and_takes_its_space() {
    type Damage = fn(&Path, &Allocation);
    let damages: [(&str, Damage); 4] = [
        ("data gone", |folder, lease| fs::remove_file(file_of(folder, lease, "data")).unwrap()),
        ("data short", |folder, lease| {
            let data = fs::File::options().write(true).open(file_of(folder, lease, "data"));
            data.unwrap().set_len(4096).unwrap();
        }),
        ("no journal at all", |folder, lease| {
            fs::write(file_of(folder, lease, "lease"), "nothing of ours, and long enough").unwrap();
        }),
        ("a journal of nothing", |folder, lease| {
            fs::write(file_of(folder, lease, "lease"), "").unwrap();
        }),
    ];
    for (story, damage) in damages {
        let (found, held, room) = with_damage(damage);
        assert_eq!(held, None, "{story}");
        let [Note::SetAside { path, .. }] = found.notes.as_slice() else {
            panic!("{story}: {:?}", found.notes);
        };
        assert_eq!(path.parent().unwrap().file_name().unwrap(), "damaged", "{story}");
        assert_eq!(room.allocations, 2, "{story}");
        let kept = if story.starts_with("data") { 2 * GROUP } else { 3 * GROUP };
        assert!(room.disk_taken_bytes >= kept, "{story}: {room:?}");
    }
}

#[test]
fn what_was_never_promised_goes_and_what_is_not_ours_stays() {
    let (found, held, room) = with_damage(|folder, lease| {
        let leases = folder.join("leases");
        let journal = file_of(folder, lease, "lease");
        // Being made, being rewritten and being taken away when the program was killed.
        let other = "0123456789abcdef0123456789abcdef";
        fs::write(leases.join(format!("{other}.lease")), "swath le").unwrap();
        fs::write(leases.join(format!("{other}.data")), "").unwrap();
        fs::copy(&journal, journal.with_extension("new")).unwrap();
        fs::write(leases.join("f123456789abcdef0123456789abcdef.data"), vec![1; 9999]).unwrap();
        fs::write(leases.join("notes.txt"), "mine").unwrap();
        fs::create_dir(leases.join("folder")).unwrap();
    });
    assert_eq!(found.notes, []);
    assert!(held.is_some());
    assert_eq!((room.allocations, room.disk_taken_bytes), (3, 3 * GROUP));
}

#[test]
fn an_allocation_with_nothing_stored_gets_its_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    let leases = [GROUP, 77].map(|size| depot.allocate(size, HOUR, Medium::Disk).unwrap());
    drop(depot);
    fs::remove_file(file_of(folder.path(), &leases[0], "data")).unwrap();
    let data = fs::File::options().write(true).open(file_of(folder.path(), &leases[1], "data"));
    data.unwrap().set_len(3).unwrap();
    let depot = open(folder.path(), &clock);
    for lease in &leases {
        depot.store(&lease.write, 0, &content(Range::new(0, lease.size_bytes))).unwrap();
    }
}

#[test]
fn a_lease_that_was_copied_is_not_a_second_one() {
    let (found, held, room) = with_damage(|folder, lease| {
        for end in ["lease", "data"] {
            let path = file_of(folder, lease, end);
            let copy = format!("0123456789abcdef0123456789abcdef.{end}");
            fs::copy(&path, path.with_file_name(copy)).unwrap();
        }
    });
    assert!(matches!(found.notes.as_slice(), [Note::SetAside { .. }]));
    assert!(held.is_some());
    assert_eq!(room.allocations, 3);
}

#[test]
fn an_allocation_without_its_files_is_lost_and_gives_its_space_back() {
    // An open file lives on without a name: such an allocation was called whole.
    let (folder, clock) = (tempfile::tempdir().unwrap(), Hands::new());
    let depot = open(folder.path(), &clock);
    let leases = folder.path().join("leases");
    for end in ["data", "lease"] {
        let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
        let other = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
        let memory = depot.allocate(GROUP, HOUR, Medium::Memory).unwrap();
        depot.store(&lease.write, 0, &content(Range::new(0, GROUP))).unwrap();
        let is_lost = |lease: &Allocation| depot.status(&lease.read).unwrap().is_lost;
        let before = depot.lost();
        assert!(!is_lost(&lease));
        std::fs::remove_file(leases.join(format!("{}.{end}", lease.id))).unwrap();
        assert!(is_lost(&lease) && is_lost(&lease) && !is_lost(&other) && !is_lost(&memory));
        assert_eq!(depot.lost(), before + 1, "each is counted once");
        for one in [&lease, &other, &memory] {
            depot.release(&one.manage).unwrap();
        }
    }
    let lease = depot.allocate(GROUP, HOUR, Medium::Disk).unwrap();
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert!(depot.status(&lease.read).unwrap().is_lost);
    depot.release(&lease.manage).unwrap();
    assert_eq!(depot.usage().disk_taken_bytes, 0);
}

#[test]
fn what_was_found_damaged_meanwhile_does_not_pass_for_checked() {
    let folder = tempfile::tempdir().unwrap();
    let depot = open(folder.path(), &Hands::new());
    let lease = depot.allocate(2 * GROUP, HOUR, Medium::Disk).unwrap();
    let group = Range::new(0, GROUP);
    depot.store(&lease.write, 0, &content(group)).unwrap();
    let (found, _) = depot.find(&lease.write, Right::Write).unwrap();
    let data = file_of(folder.path(), &lease, "data");
    // One reader has found it right, another one found it damaged, and then the first one says so.
    flip(&data, 5);
    let reader = depot.reader(&lease.read).unwrap();
    assert_eq!(reader.check(group).unwrap(), RangeSet::from(group));
    found.book().found_right(group);
    // A piece of it that is stored again is checked like any other.
    depot.store(&lease.write, 100, &content(Range::new(100, 200))).unwrap();
    flip(&data, 150);
    let part = reader.part(Range::new(100, 200));
    assert!(matches!(part, Err(ReadError::Damaged { .. })), "{part:?}");
}

#[test]
fn what_was_written_and_never_acknowledged_takes_no_space_after_a_restart() {
    // It is counted as free then, so others are promised it.
    let folder = tempfile::tempdir().unwrap();
    let clock = Hands::new();
    let depot = open(folder.path(), &clock);
    let lease = depot.allocate_with(4 * GROUP, HOUR, Medium::Disk, Space::AsStored).unwrap();
    depot.store(&lease.write, 0, &content(Range::new(0, 10))).unwrap();
    let mut writer = depot.writer(&lease.write, GROUP).unwrap();
    writer.write(&content(Range::new(GROUP, 3 * GROUP))).unwrap();
    let path = file_of(folder.path(), &lease, "data");
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    let on_disk = || crate::sys::taken_bytes(&file.metadata().unwrap());
    let before = on_disk();
    assert!(before > 2 * GROUP);
    if crate::sys::make_hole(&file, 3 * GROUP, 4 * GROUP).is_err() {
        println!("skipped: this file system gives no space of a file back");
        return;
    }
    drop((writer, depot));
    let depot = open(folder.path(), &clock);
    assert_eq!(depot.status(&lease.read).unwrap().taken_bytes, 4096);
    assert!(on_disk() + 2 * GROUP <= before, "{} of {before} bytes are there", on_disk());
    let reader = depot.reader(&lease.read).unwrap();
    assert!(read_all(&reader, Range::new(0, 10)).unwrap() == content(Range::new(0, 10)));
}
