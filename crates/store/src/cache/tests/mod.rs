//! The cache: shared fetches, eviction, restarts, damage.

mod left;
mod shared;

use std::path::Path;

use swath_model::Range;
use swath_model::RangeSet;

use super::*;

const GROUP: u64 = 256 << 10;
/// A head, a group and a block of group hashes.
const ONE: u64 = GROUP + 8192;

fn key(name: &str, validator: &str) -> Key {
    Key { url: format!("http://origin/{name}"), validator: format!("\"{validator}\"") }
}

/// The byte that belongs at `offset` of a file of this key.
fn byte_of(key: &Key, offset: u64) -> u8 {
    let mix = key.url.len() as u64 * 7 + u64::from(key.validator.as_bytes()[1]);
    let mixed = (offset ^ (offset >> 13) ^ mix).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8 | 1
}

fn content(key: &Key, range: Range) -> Vec<u8> {
    (range.start..range.end).map(|offset| byte_of(key, offset)).collect()
}

/// A cache with room for so much beside its folders.
fn open(folder: &Path, size_bytes: u64) -> Cache {
    std::fs::create_dir_all(folder.join("files")).unwrap();
    Cache::open(folder, size_bytes + own_bytes(folder)).unwrap().0
}

/// What the folders themselves take.
fn own_bytes(folder: &Path) -> u64 {
    let taken = |path: &Path| sys::taken_bytes(&path.metadata().unwrap());
    taken(folder) + taken(&folder.join("files"))
}

/// What is taken beside them.
fn taken_bytes(cache: &Cache) -> u64 {
    cache.usage().taken_bytes - cache.shared.own_bytes()
}

/// What all that lies in the cache's folder takes, as `du` counts it.
fn on_disk_bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder.join("files")).unwrap().map(|file| file.unwrap().path());
    let taken = |path: PathBuf| sys::taken_bytes(&path.symlink_metadata().unwrap());
    own_bytes(folder) + files.chain([folder.join("lock")]).map(taken).sum::<u64>()
}

fn bytes_of(part: &Part) -> Vec<u8> {
    let mut bytes = vec![0; part.range.len() as usize];
    let file = part.as_fd_for_tests();
    file.read_exact_at(&mut bytes, part.position).unwrap();
    bytes
}

impl Part {
    /// Another descriptor of the file, as a server would have it.
    fn as_fd_for_tests(&self) -> File {
        use std::os::fd::AsFd;
        self.as_fd().try_clone_to_owned().unwrap().into()
    }
}

/// Fetches what is missing of `range` and reads all of it; how many bytes were fetched, and how many
/// of these found no room.
fn read_all(entry: &Entry, key: &Key, range: Range) -> (u64, u64) {
    let (mut fetched, mut passed, mut at) = (0, 0, range.start);
    while at < range.end {
        match entry.next(Range::new(at, range.end)).unwrap() {
            Step::Held(part) => {
                assert!(bytes_of(&part) == content(key, part.range), "{:?}", part.range);
                at = part.range.end;
            }
            Step::Fetch(mut fetch) => {
                fetched += fetch.range().len();
                fetch.write(&content(key, fetch.range())).unwrap();
                assert!(fetch.range().is_empty());
            }
            Step::Pass(gap) => {
                passed += gap.len();
                at = gap.end;
            }
            Step::Wait(wait) => panic!("nobody else fetches: {wait:?}"),
        }
    }
    (fetched, passed)
}

#[test]
fn what_was_fetched_once_is_read_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 100 * ONE);
    let key = key("file", "1");
    let size_bytes = 2 * GROUP + 1000;
    let entry = cache.lookup(&key, size_bytes).unwrap();
    let (middle, all) = (Range::new(GROUP - 5, GROUP + 5), Range::new(0, size_bytes));
    assert_eq!(read_all(&entry, &key, middle), (10, 0));
    assert_eq!(entry.held(), RangeSet::from(middle));
    assert_eq!(read_all(&entry, &key, all), (size_bytes - 10, 0));
    drop(entry);
    let entry = cache.lookup(&key, size_bytes).unwrap();
    assert_eq!(read_all(&entry, &key, all), (0, 0));
    assert_eq!(cache.known(&key.url), Some((key.validator.clone(), size_bytes)));
    for bad in [Range::new(3, 3), Range::new(0, size_bytes + 1)] {
        assert_eq!(entry.next(bad).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn another_validator_makes_the_old_file_go() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 100 * ONE);
    let (old, new) = (key("file", "1"), key("file", "2"));
    let all = Range::new(0, GROUP);
    let before = cache.lookup(&old, GROUP).unwrap();
    read_all(&before, &old, all);
    let after = cache.lookup(&new, GROUP).unwrap();
    assert_eq!(read_all(&after, &new, all), (GROUP, 0));
    // Who was reading reads on.
    assert_eq!(read_all(&before, &old, all), (0, 0));
    assert_eq!((taken_bytes(&cache), cache.usage().files), (2 * ONE, 1));
    drop(before);
    assert_eq!(taken_bytes(&cache), ONE);
    // So does another size.
    let longer = cache.lookup(&new, GROUP + 1).unwrap();
    assert!(longer.held().is_empty());
    drop((after, longer));
    assert_eq!(taken_bytes(&cache), 4096);
    assert_eq!(std::fs::read_dir(folder.path().join("files")).unwrap().count(), 1);
    cache.forget(&new.url);
    assert_eq!((taken_bytes(&cache), cache.usage().files), (0, 0));
    assert_eq!(std::fs::read_dir(folder.path().join("files")).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_told_apart_is_not_cached() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 100 * ONE);
    let weak = Key { validator: "W/\"1\"".into(), ..key("file", "1") };
    let none = Key { validator: String::new(), ..key("file", "1") };
    let long = Key { url: "x".repeat(20_000), ..key("file", "1") };
    for (key, size_bytes) in [(weak, 9), (none, 9), (long, 9), (key("file", "1"), 0)] {
        assert!(matches!(cache.lookup(&key, size_bytes), Err(LookupError::NotCacheable)));
    }
    assert!(cache.lookup(&key("file", "1"), u64::MAX).is_err());
    assert_eq!(cache.usage().files, 0);
}

#[test]
fn what_was_asked_for_the_longest_ago_goes_first_and_nothing_in_use_does() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 3 * ONE);
    let keys = ["a", "b", "c", "d", "e"].map(|name| key(name, "1"));
    let all = Range::new(0, GROUP);
    let fetch = |key: &Key| {
        let entry = cache.lookup(key, GROUP).unwrap();
        (read_all(&entry, key, all), entry)
    };
    for key in &keys[..3] {
        assert_eq!(fetch(key).0, (GROUP, 0));
    }
    let in_use = fetch(&keys[0]).1;
    assert_eq!(fetch(&keys[3]).0, (GROUP, 0));
    let here = |key: &Key| cache.known(&key.url).is_some();
    assert_eq!(keys.each_ref().map(here), [true, false, true, true, false]);
    let (_, also) = fetch(&keys[2]);
    let (_, third) = fetch(&keys[3]);
    // Now everything is in use.
    assert!(matches!(cache.lookup(&keys[4], GROUP), Err(LookupError::Full)));
    drop(also);
    assert_eq!(fetch(&keys[4]).0, (GROUP, 0));
    assert_eq!(keys.each_ref().map(here), [true, false, false, true, true]);
    assert_eq!(read_all(&in_use, &keys[0], all), (0, 0));
    drop(third);
    assert_eq!(taken_bytes(&cache), 3 * ONE);
    assert_eq!(std::fs::read_dir(folder.path().join("files")).unwrap().count(), 3);
}

#[test]
fn a_file_that_is_larger_than_the_cache_is_cached_as_far_as_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 2 * GROUP + 8192);
    let key = key("large", "1");
    let entry = cache.lookup(&key, 5 * GROUP).unwrap();
    let all = Range::new(100, 5 * GROUP);
    let Step::Fetch(fetch) = entry.next(all).unwrap() else { panic!("nothing is here") };
    assert_eq!(fetch.range(), Range::new(100, 2 * GROUP));
    drop(fetch);
    assert_eq!(taken_bytes(&cache), 4096);
    assert_eq!(read_all(&entry, &key, all), (2 * GROUP - 100, 3 * GROUP));
    assert_eq!(read_all(&entry, &key, all), (0, 3 * GROUP));
}

#[test]
fn a_file_that_is_said_to_be_larger_than_all_disks_costs_no_more_than_what_is_kept_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 2 * ONE);
    let (Key { url, validator }, size_bytes) = (key("huge", "v1"), 1 << 60);
    let head = Head { nonce: [0; 32], size_bytes, url, validator };
    // Not by `lookup`, for few file systems have such files: those that do are no worse off.
    let path = folder.path().join("files/none");
    let inner = Arc::new(Inner::new(head, path, State::default(), &cache.shared));
    let file = tempfile::tempfile().unwrap();
    let file = Arc::new(crate::hashed_file::HashedFile::new(file, inner.layout));
    let entry = Entry { inner, file, shared: Arc::clone(&cache.shared) };
    let last = Range::new(size_bytes - 1, size_bytes);
    let Ok(Step::Fetch(fetch)) = entry.next(last) else { panic!("it is to be fetched") };
    assert_eq!(fetch.range(), last);
    assert_eq!(taken_bytes(&cache), GROUP + 4096);
    drop(fetch);
    assert_eq!(taken_bytes(&cache), 0);
}

#[test]
fn some_of_the_disk_is_left_to_others() {
    // It took the last byte of its disk, whatever else lay there.
    const GIB: u64 = 1 << 30;
    assert_eq!(spare(GIB, 50 * GIB), 0, "a fiftieth");
    assert_eq!(spare(3 * GIB, 50 * GIB), 2 * GIB);
    assert_eq!(spare(100 << 20, GIB), (100 << 20) - LEFT_MIN);
    assert_eq!(spare(100 * GIB, 10_000 * GIB), 100 * GIB - LEFT_MAX);
    let mut lru = Lru::new(100);
    assert_eq!(lru.most_bytes(), 100);
    lru.taken_bytes = 30;
    for (spare_bytes, most_bytes) in [(Some(20), 50), (Some(0), 30), (Some(1000), 100), (None, 100)]
    {
        lru.heed(spare_bytes);
        assert_eq!(lru.most_bytes(), most_bytes, "{spare_bytes:?}");
    }
    // What is there makes room for what comes, and does not grow.
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 100 * ONE);
    let files = ["a", "b", "c"].map(|name| key(name, "1"));
    let whole = Range::new(0, GROUP);
    for one in &files[..2] {
        read_all(&cache.lookup(one, GROUP).unwrap(), one, whole);
    }
    let mut lru = cache.shared.lru();
    lru.heed(Some(0));
    let taken_bytes = lru.taken_bytes;
    let gone = lru.make_room(ONE);
    assert!(gone.len() == 1 && gone[0].url() == files[0].url, "the older one");
    assert!(lru.taken_bytes + ONE <= taken_bytes && lru.count() == 1);
}

#[test]
fn what_lies_in_the_folder_is_bounded_and_counted_to_the_block() {
    // 900 files of a byte, for which 4 MiB were given, took 6 MiB: blocks of group hashes were not counted.
    let folder = tempfile::tempdir().unwrap();
    let small = 2 << 20;
    let (cache, _) = Cache::open(folder.path(), small).unwrap();
    let is_true = |cache: &Cache, size_bytes: u64, what: &str| {
        let (room, on_disk_bytes) = (cache.usage(), on_disk_bytes(folder.path()));
        let (taken_bytes, files) = (room.taken_bytes, room.files);
        println!("{what}: {files} files, {taken_bytes} counted, {on_disk_bytes} there");
        assert!(on_disk_bytes <= size_bytes, "{what}: {on_disk_bytes} bytes");
        // Less is there where what is small lies with the names.
        assert!(on_disk_bytes <= taken_bytes, "{what}: {taken_bytes} of {on_disk_bytes} counted");
        assert!(taken_bytes <= size_bytes, "{what}");
    };
    for number in 0..400 {
        let key = key(&format!("{number}"), "1");
        read_all(&cache.lookup(&key, 1).unwrap(), &key, Range::new(0, 1));
        if number % 50 == 49 {
            is_true(&cache, small, "small files");
        }
    }
    // With group hashes in three blocks.
    let size_bytes = 300 * GROUP - 5000;
    let large = key("large", "1");
    drop(cache);
    let (cache, _) = Cache::open(folder.path(), size_bytes / 2).unwrap();
    let entry = cache.lookup(&large, size_bytes).unwrap();
    for group in [0, 1, 127, 128, 255, 256, 299] {
        let start = group * GROUP;
        read_all(&entry, &large, Range::new(start, size_bytes.min(start + GROUP)));
    }
    is_true(&cache, size_bytes / 2, "a file with holes");
    // What is begun and given up again takes nothing.
    let other = cache.lookup(&key("other", "1"), size_bytes).unwrap();
    let before = (cache.usage().taken_bytes, on_disk_bytes(folder.path()));
    for at in [0, size_bytes - 1] {
        let Step::Fetch(fetch) = other.next(Range::new(at, at + 1)).unwrap() else {
            panic!("nothing is here")
        };
        // As one that breaks off before it says what it has written.
        other.file.write(at, b"a").unwrap();
        other.file.write_group_hash(other.inner.layout.group_at(at).start, &[1; 32]).unwrap();
        drop(fetch);
    }
    assert_eq!((cache.usage().taken_bytes, on_disk_bytes(folder.path())), before);
    read_all(&entry, &large, Range::new(0, size_bytes));
    is_true(&cache, size_bytes / 2, "as much as finds room");
    drop((entry, other, cache));
    let (cache, kept) = Cache::open(folder.path(), size_bytes / 2).unwrap();
    assert!(kept.files > 0);
    is_true(&cache, size_bytes / 2, "after a restart");
}
