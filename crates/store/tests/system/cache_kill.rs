//! `kill -9` at random instants: a process of its own fills a cache; whenever it is killed, what is
//! read from what it has left has to be right, and whole groups are to be there.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use swath_model::Range;
use swath_store::cache::{Cache, Entry, Key, Part, Step};

const KILLS: u64 = 30;
const SIZE_BYTES: u64 = 900_001;
/// About half of all files.
const ROOM_BYTES: u64 = 5 << 20;
const FILES: u64 = 10;

fn key(number: u64, version: u64) -> Key {
    Key { url: format!("http://origin/{number}"), validator: format!("\"{version}\"") }
}

fn content(number: u64, version: u64, range: Range) -> Vec<u8> {
    let mix = number * 10 + version;
    let byte_at = |offset: u64| (offset ^ mix << 20).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (range.start..range.end).map(|offset| byte_at(offset) as u8).collect()
}

fn bytes_of(part: &Part) -> Vec<u8> {
    let file = File::from(part.as_fd().try_clone_to_owned().unwrap());
    let mut bytes = vec![0; part.range.len() as usize];
    file.read_exact_at(&mut bytes, part.position).unwrap();
    bytes
}

/// Read from `start` on and fetch what is missing, at most `limit` bytes of it; how much was here.
fn read(entry: &Entry, (number, version): (u64, u64), start: u64, limit: u64) -> u64 {
    let (mut at, mut held_bytes, mut left) = (start, 0, limit);
    while at < SIZE_BYTES {
        match entry.next(Range::new(at, SIZE_BYTES)).unwrap() {
            Step::Held(part) => {
                assert!(
                    bytes_of(&part) == content(number, version, part.range),
                    "{:?}",
                    part.range
                );
                held_bytes += part.range.len();
                at = part.range.end;
            }
            Step::Fetch(mut fetch) if left > 0 => {
                let range = fetch.range();
                let part = Range::new(range.start, range.end.min(range.start + left.min(70_000)));
                fetch.write(&content(number, version, part)).unwrap();
                left -= part.len();
                held_bytes -= part.len().min(held_bytes);
            }
            Step::Fetch(fetch) => at = fetch.range().end,
            Step::Pass(gap) => at = gap.end,
            Step::Wait(wait) => panic!("nobody else is there: {wait:?}"),
        }
    }
    held_bytes
}

#[test]
#[ignore = "run and killed by its parent test"]
fn child_that_fills() {
    let place = PathBuf::from(std::env::var_os("SWATH_PLACE").unwrap());
    let seed: u64 = std::env::var("SWATH_SEED").unwrap().parse().unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let (cache, _) = Cache::open(&place, ROOM_BYTES).unwrap();
    loop {
        let which = (random.u64(..FILES), random.u64(..12) / 11);
        let entry = cache.lookup(&key(which.0, which.1), SIZE_BYTES).unwrap();
        read(&entry, which, random.u64(..SIZE_BYTES), random.u64(..SIZE_BYTES));
    }
}

#[test]
fn what_a_killed_cache_has_left_is_right() {
    let base = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&base).unwrap();
    let folder = tempfile::tempdir_in(base).unwrap();
    let seed = fastrand::u64(..1 << 32);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut compared_bytes = 0;
    for number in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "cache_kill::child_that_fills", "--nocapture"])
            .env("SWATH_PLACE", folder.path())
            .env("SWATH_SEED", (seed + number).to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(random.u64(1000..150_000)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "number {number}: {status}");
        let (cache, kept) = Cache::open(folder.path(), ROOM_BYTES).unwrap();
        assert!(cache.usage().taken_bytes <= ROOM_BYTES);
        // All are held before any is read: whoever comes upon a gap takes space for it, and what
        // nobody holds goes for that.
        let known = (0..FILES).filter_map(|file| {
            let (validator, _) = cache.known(&key(file, 0).url)?;
            let version = u64::from(validator == "\"1\"");
            Some((cache.lookup(&key(file, version), SIZE_BYTES).unwrap(), (file, version)))
        });
        let known: Vec<_> = known.collect();
        let found_bytes: u64 = known.iter().map(|(entry, which)| read(entry, *which, 0, 0)).sum();
        assert_eq!(
            found_bytes, kept.bytes,
            "number {number}: a kill loses nothing that was sealed"
        );
        compared_bytes += found_bytes;
    }
    println!("{compared_bytes} bytes compared after {KILLS} kills");
    assert!(compared_bytes > 0, "no kill hit a cache at work");
}
