//! Many clients of one file.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn who_comes_second_waits_for_the_first_and_takes_over_if_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 100 * ONE);
    let key = key("file", "1");
    let first = cache.lookup(&key, GROUP).unwrap();
    let second = cache.lookup(&key, GROUP).unwrap();
    let all = Range::new(0, GROUP);
    let Step::Fetch(mut fetch) = first.next(all).unwrap() else { panic!("nothing is here") };
    let Step::Wait(wait) = second.next(all).unwrap() else { panic!("it is being fetched") };
    assert_eq!(wait.range(), all);
    fetch.write(&content(&key, Range::new(0, 1000))).unwrap();
    block_on(wait.changed());
    // At once, and not when all is there.
    let Step::Held(part) = second.next(all).unwrap() else { panic!("it has come") };
    assert_eq!(part.range, Range::new(0, 1000));
    assert!(bytes_of(&part) == content(&key, part.range));
    let rest = Range::new(1000, GROUP);
    let Step::Wait(wait) = second.next(rest).unwrap() else { panic!("it is being fetched") };
    drop(fetch);
    block_on(wait.changed());
    let Step::Fetch(mut fetch) = second.next(rest).unwrap() else { panic!("nobody fetches it") };
    assert_eq!(fetch.range(), rest);
    // A part of it is given back, what came stays.
    fetch.write(&content(&key, Range::new(1000, 1100))).unwrap();
    assert_eq!(
        fetch.write(&vec![0; GROUP as usize]).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
    drop(fetch);
    assert_eq!(first.held(), RangeSet::from(Range::new(0, 1100)));
    assert_eq!(read_all(&first, &key, all), (GROUP - 1100, 0));
}

#[test]
fn only_what_is_missing_between_others_is_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path(), 100 * ONE);
    let key = key("file", "1");
    let entry = cache.lookup(&key, GROUP).unwrap();
    read_all(&entry, &key, Range::new(500, 600));
    let Step::Fetch(busy) = entry.next(Range::new(200, 300)).unwrap() else { panic!("a gap") };
    let Step::Fetch(one) = entry.next(Range::new(100, GROUP)).unwrap() else { panic!("a gap") };
    assert_eq!((busy.range(), one.range()), (Range::new(200, 300), Range::new(100, 200)));
    let Step::Fetch(other) = entry.next(Range::new(300, GROUP)).unwrap() else { panic!("a gap") };
    assert_eq!(other.range(), Range::new(300, 500));
    let Step::Wait(wait) = entry.next(Range::new(250, GROUP)).unwrap() else { panic!("busy") };
    assert_eq!(wait.range(), Range::new(250, 300));
    let Step::Fetch(last) = entry.next(Range::new(600, 601)).unwrap() else { panic!("a gap") };
    assert_eq!(last.range(), Range::new(600, 601));
}

/// Reads `range` as a client would; fetches what it is told to, and breaks off at random.
fn client(entry: &Entry, key: &Key, range: Range, fetched: &AtomicU64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut at = range.start;
    while at < range.end {
        match entry.next(Range::new(at, range.end)).unwrap() {
            Step::Held(part) => {
                assert_eq!(part.range.start, at);
                assert!(bytes_of(&part) == content(key, part.range), "{:?}", part.range);
                at = part.range.end;
            }
            Step::Wait(wait) => block_on(wait.changed()),
            Step::Fetch(mut fetch) => {
                while !fetch.range().is_empty() && random.u8(0..10) != 0 {
                    let next = fetch.range();
                    let piece =
                        Range::new(next.start, next.end.min(next.start + random.u64(1..70_000)));
                    fetch.write(&content(key, piece)).unwrap();
                    fetched.fetch_add(piece.len(), Ordering::Relaxed);
                }
            }
            Step::Pass(gap) => panic!("there is room for {gap}"),
        }
    }
}

#[test]
fn many_clients_fetch_every_byte_once_although_fetches_break_off() {
    let folder = tempfile::tempdir().unwrap();
    let seed = fastrand::u64(..1 << 32);
    println!("seed {seed}");
    let cache = open(folder.path(), 100 * ONE);
    let size_bytes = 3 * GROUP + 12_345;
    for number in 0..4 {
        let key = key(&format!("{number}"), "1");
        let fetched = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for client_number in 0..10 {
                let (cache, key, fetched) = (&cache, &key, &fetched);
                scope.spawn(move || {
                    let seed = seed + number * 10 + client_number;
                    let mut random = fastrand::Rng::with_seed(seed);
                    let entry = cache.lookup(key, size_bytes).unwrap();
                    let start = if client_number == 0 { 0 } else { random.u64(..size_bytes) };
                    client(&entry, key, Range::new(start, size_bytes), fetched, seed);
                });
            }
        });
        assert_eq!(fetched.load(Ordering::Relaxed), size_bytes);
    }
    drop(cache);
    let (cache, kept) = Cache::open(folder.path(), 100 * ONE).unwrap();
    assert_eq!((kept.files, kept.bytes), (4, 4 * size_bytes), "all groups are sealed");
    for number in 0..4 {
        let key = key(&format!("{number}"), "1");
        let entry = cache.lookup(&key, size_bytes).unwrap();
        assert_eq!(read_all(&entry, &key, Range::new(0, size_bytes)), (0, 0));
    }
}

#[test]
fn many_clients_of_many_files_in_a_small_cache_read_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let seed = fastrand::u64(..1 << 32);
    println!("seed {seed}");
    let cache = open(folder.path(), 5 * ONE);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed + number);
                for _ in 0..60 {
                    let version = ["1", "2"][random.usize(..2)];
                    let key = key(&"n".repeat(random.usize(1..6)), version);
                    let size_bytes = 2 * GROUP;
                    let entry = match cache.lookup(&key, size_bytes) {
                        Ok(entry) => entry,
                        Err(LookupError::Full) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let mut at = random.u64(..size_bytes);
                    while at < size_bytes {
                        match entry.next(Range::new(at, size_bytes)).unwrap() {
                            Step::Held(part) => {
                                assert!(bytes_of(&part) == content(&key, part.range));
                                at = part.range.end;
                            }
                            Step::Wait(wait) => block_on(wait.changed()),
                            Step::Fetch(mut fetch) => {
                                let range = fetch.range();
                                let part =
                                    Range::new(range.start, range.end.min(range.start + 100_000));
                                fetch.write(&content(&key, part)).unwrap();
                            }
                            Step::Pass(gap) => at = gap.end,
                        }
                        if random.u8(0..20) == 0 {
                            break;
                        }
                    }
                    assert!(taken_bytes(cache) <= 5 * ONE);
                }
            });
        }
    });
    // Nothing is forgotten to be counted, or counted twice.
    let mut sum = 0;
    for name in 1..6 {
        for version in ["1", "2"] {
            let key = key(&"n".repeat(name), version);
            if cache.known(&key.url).is_some_and(|(validator, _)| validator == key.validator) {
                let entry = cache.lookup(&key, 2 * GROUP).unwrap();
                let layout = entry.inner.layout;
                let held = entry.held();
                let groups = layout.groups_of(Range::new(0, 2 * GROUP));
                let taken = groups.filter(|group| held.bytes_within(*group) > 0).count() as u64;
                let group_hashes_bytes = if taken > 0 { 4096 } else { 0 };
                sum += taken * GROUP + group_hashes_bytes + layout.head_bytes;
            }
        }
    }
    assert_eq!(taken_bytes(&cache), sum);
}
