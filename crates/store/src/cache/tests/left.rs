//! What a restart finds, and what the disk may have made of it.

use std::fs;

use super::*;

const SIZE: u64 = 3 * GROUP + 999;
const ALL: Range = Range::new(0, SIZE);

fn filled(folder: &Path, key: &Key) {
    let cache = open(folder, 100 * ONE);
    read_all(&cache.lookup(key, SIZE).unwrap(), key, ALL);
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("files")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn whole_groups_are_there_after_a_restart_and_pieces_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let key = key("file", "1");
    let cache = open(folder.path(), 100 * ONE);
    let entry = cache.lookup(&key, SIZE).unwrap();
    // The second group in two pieces, a piece of the third, the last as a whole.
    for range in [
        Range::new(GROUP + 5, 2 * GROUP + 10),
        Range::new(GROUP, GROUP + 5),
        Range::new(3 * GROUP, SIZE),
    ] {
        read_all(&entry, &key, range);
    }
    assert!(matches!(Cache::open(folder.path(), ONE), Err(CacheOpenError::Locked(_))));
    drop((entry, cache));
    let (cache, kept) = Cache::open(folder.path(), 100 * ONE).unwrap();
    assert_eq!(kept, Recovered { files: 1, bytes: GROUP + 999, removed: 0 });
    let room = taken_bytes(&cache);
    assert_eq!(room, 4096 + GROUP + 4096 + 4096);
    let blocks =
        std::os::unix::fs::MetadataExt::blocks(&files(folder.path())[0].metadata().unwrap());
    assert!(blocks * 512 <= room, "the piece takes no space any more");
    let entry = cache.lookup(&key, SIZE).unwrap();
    assert_eq!(read_all(&entry, &key, ALL), (2 * GROUP, 0));
}

#[test]
fn whatever_the_disk_makes_of_the_files_what_is_read_is_right() {
    let first = fastrand::u64(..1 << 32);
    for seed in first..first + 40 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (key("one", "1"), key("second", "2"));
        filled(folder.path(), &one);
        filled(folder.path(), &two);
        let paths = files(folder.path());
        let mut bytes = paths.iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
        for _ in 0..random.usize(1..6) {
            let (file, other) = (random.usize(..2), random.usize(..2));
            let block = random.usize(..bytes[file].len() / 4096) * 4096;
            match random.u8(0..5) {
                0 => bytes[file][block..block + 4096].fill(0),
                1 => bytes[file][block..block + 4096].fill_with(|| random.u8(..)),
                2 => {
                    let at = random.usize(..bytes[file].len());
                    bytes[file][at] ^= 1 << random.u8(..8);
                }
                // What lay in the other file before.
                3 => {
                    let old = bytes[other][block..block + 4096].to_vec();
                    bytes[file][block..block + 4096].copy_from_slice(&old);
                }
                _ => {
                    // The data and the group hashes of the other, and not its head.
                    let old = bytes[other][4096..].to_vec();
                    bytes[file][4096..].copy_from_slice(&old);
                }
            }
        }
        if random.u8(0..10) == 0 {
            let cut = random.usize(..bytes[0].len());
            bytes[0].truncate(cut);
        }
        for (path, bytes) in paths.iter().zip(&bytes) {
            fs::write(path, bytes).unwrap();
        }
        let (cache, kept) = Cache::open(folder.path(), 100 * ONE).unwrap();
        assert_eq!(kept.files + kept.removed, 2);
        for key in [&one, &two] {
            let entry = cache.lookup(key, SIZE).unwrap();
            read_all(&entry, key, ALL);
            assert_eq!(read_all(&entry, key, ALL), (0, 0));
        }
        drop(cache);
        // What was damaged has been fetched again, and is kept.
        let cache = open(folder.path(), 100 * ONE);
        for key in [&one, &two] {
            assert_eq!(read_all(&cache.lookup(key, SIZE).unwrap(), key, ALL), (0, 0));
        }
    }
}

#[test]
fn what_somebody_has_cut_off_is_fetched_again() {
    // Every client was cut off in the middle, until the relay was started again.
    let folder = tempfile::tempdir().unwrap();
    let key = key("file", "1");
    filled(folder.path(), &key);
    let cache = open(folder.path(), 100 * ONE);
    let entry = cache.lookup(&key, SIZE).unwrap();
    assert_eq!(read_all(&entry, &key, ALL), (0, 0));
    let path = files(folder.path()).remove(0);
    fs::File::options().write(true).open(path).unwrap().set_len(4096).unwrap();
    assert!(entry.next(ALL).is_err(), "it is to be fetched without the cache");
    drop(entry);
    for fetched in [SIZE, 0] {
        assert_eq!(read_all(&cache.lookup(&key, SIZE).unwrap(), &key, ALL).0, fetched);
    }
}

/// What rots while the relay runs was sent to everybody until it was started again.
#[test]
fn what_rots_while_it_is_read_is_found_in_the_end_and_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let key = key("file", "1");
    let cache = open(folder.path(), 100 * ONE);
    let entry = cache.lookup(&key, SIZE).unwrap();
    assert_eq!(read_all(&entry, &key, ALL).0, SIZE);
    let path = files(folder.path()).remove(0);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"damage", 4096 + GROUP + 77).unwrap();
    let wanted = Range::new(GROUP, 2 * GROUP);
    let found = (0..20_000).find(|_| match entry.next(wanted).unwrap() {
        Step::Held(_) => false,
        // Dropped, it leaves the group to the next one who asks.
        Step::Fetch(fetch) => fetch.range() == wanted,
        _ => panic!("nobody else is there"),
    });
    assert!(found.is_some_and(|reads| reads > 0), "{found:?}");
    assert_eq!(read_all(&entry, &key, ALL).0, GROUP, "that group alone");
    assert_eq!(read_all(&entry, &key, ALL).0, 0);
}

#[test]
fn several_readers_find_the_same_damage_and_one_fetches_it() {
    let folder = tempfile::tempdir().unwrap();
    let key = key("file", "1");
    filled(folder.path(), &key);
    let path = files(folder.path()).remove(0);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"damage", 4096 + GROUP + 77).unwrap();
    let cache = open(folder.path(), 100 * ONE);
    let fetched = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let entry = cache.lookup(&key, SIZE).unwrap();
                let mut at = 0;
                while at < SIZE {
                    match entry.next(Range::new(at, SIZE)).unwrap() {
                        Step::Held(part) => {
                            assert!(bytes_of(&part) == content(&key, part.range));
                            at = part.range.end;
                        }
                        Step::Fetch(mut fetch) => {
                            let range = fetch.range();
                            fetched.fetch_add(range.len(), std::sync::atomic::Ordering::Relaxed);
                            fetch.write(&content(&key, range)).unwrap();
                        }
                        Step::Wait(_) => std::thread::yield_now(),
                        Step::Pass(gap) => panic!("there is room for {gap}"),
                    }
                }
            });
        }
    });
    assert_eq!(fetched.into_inner(), GROUP);
}

#[test]
fn the_oldest_go_if_the_cache_is_smaller_now_and_what_is_not_ours_stays() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ["a", "b", "c"].map(|name| key(name, "1"));
    for (age, key) in keys.iter().enumerate() {
        filled(folder.path(), key);
        for path in files(folder.path()) {
            if fs::read(&path)
                .unwrap()
                .windows(key.url.len())
                .any(|text| text == key.url.as_bytes())
            {
                let used = std::time::SystemTime::UNIX_EPOCH
                    + std::time::Duration::from_secs([300, 100, 200][age]);
                fs::File::options().write(true).open(path).unwrap().set_modified(used).unwrap();
            }
        }
    }
    let files = folder.path().join("files");
    fs::write(files.join("notes.txt"), "mine").unwrap();
    fs::write(files.join("0123456789abcdef0123456789abcdef"), "torn").unwrap();
    let size = 3 * GROUP + 3 * 4096;
    let room = 2 * size + own_bytes(folder.path());
    let (cache, kept) = Cache::open(folder.path(), room).unwrap();
    assert_eq!(kept, Recovered { files: 2, bytes: 2 * SIZE, removed: 2 });
    let here = keys.each_ref().map(|key| cache.known(&key.url).is_some());
    assert_eq!(here, [true, false, true]);
    assert!(files.join("notes.txt").exists());
}

#[test]
fn of_two_versions_that_a_crash_has_left_the_younger_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), &key("file", "1"));
    let old = files(folder.path()).remove(0);
    let aside = folder.path().join("aside");
    fs::rename(&old, &aside).unwrap();
    filled(folder.path(), &key("file", "2"));
    let past = std::time::SystemTime::UNIX_EPOCH;
    fs::File::options().write(true).open(&aside).unwrap().set_modified(past).unwrap();
    fs::rename(&aside, &old).unwrap();
    let (cache, kept) = Cache::open(folder.path(), 100 * ONE).unwrap();
    assert_eq!((kept.files, kept.removed), (1, 1));
    let new = key("file", "2");
    assert_eq!(cache.known(&new.url).unwrap().0, new.validator);
    assert!(taken_bytes(&cache) < 5 * ONE);
}

#[test]
fn a_file_that_somebody_took_away_is_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 100 * ONE);
    let key = key("file", "1");
    read_all(&cache.lookup(&key, SIZE).unwrap(), &key, ALL);
    fs::remove_file(files(folder.path()).remove(0)).unwrap();
    assert_eq!(read_all(&cache.lookup(&key, SIZE).unwrap(), &key, ALL), (SIZE, 0));
    assert!(taken_bytes(&cache) < 5 * ONE);
}

#[test]
fn whatever_a_fuzzer_finds_is_tried_here_too() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..random.usize(..400)).map(|_| random.u8(..4)).collect();
        fuzz_head(&bytes);
        crate::depot::fuzz_lease(&bytes);
    }
    // A right sum over what is not all zeros behind the texts: the same head, told in another way.
    let mut told = vec![0; 4096 - 48];
    told[32] = 9;
    told[40..45].copy_from_slice(&[1, 0, 0, 0, b'u']);
    told[45..50].copy_from_slice(&[1, 0, 0, 0, b'v']);
    fuzz_head(&told);
    told[99] = 1;
    fuzz_head(&told);
}
