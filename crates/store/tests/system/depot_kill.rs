//! `kill -9` at random instants: a process of its own leases, stores, extends and releases, and says
//! what was acknowledged; whenever it is killed, all of that has to be there, and the next one goes
//! on with it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use swath_model::{Range, RangeSet};
use swath_store::depot::{AllocateError, Capability, Depot, DepotOptions, Medium, StoreError};

const KILLS: u64 = 40;
const SIZE_BYTES: u64 = 6 << 20;
const HOUR: Duration = Duration::from_secs(3600);

fn options(folder: PathBuf) -> DepotOptions {
    DepotOptions { size_bytes: SIZE_BYTES, ..DepotOptions::in_folder(&folder) }
}

fn byte_at(offset: u64) -> u8 {
    let mixed = (offset ^ (offset >> 13)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8 | 1
}

fn content(range: Range) -> Vec<u8> {
    (range.start..range.end).map(byte_at).collect()
}

/// One line for what was acknowledged; a line in two parts is none.
fn say(line: String) {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
}

#[test]
#[ignore = "run and killed by its parent test"]
fn child_that_leases() {
    let place = PathBuf::from(std::env::var_os("SWATH_PLACE").unwrap());
    let seed: u64 = std::env::var("SWATH_SEED").unwrap().parse().unwrap();
    let (depot, found) = Depot::open(options(place)).unwrap();
    assert!(found.notes.is_empty(), "a kill damages nothing: {:?}", found.notes);
    // Several at once, each with leases of its own.
    std::thread::scope(|scope| {
        for number in 0..3 {
            let depot = &depot;
            scope.spawn(move || lease_and_store(depot, seed * 10 + number));
        }
    });
}

fn lease_and_store(depot: &Depot, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut mine = Vec::new();
    loop {
        match random.u8(0..12) {
            0 | 1 => {
                let size_bytes = random.u64(1..1 << 20);
                match depot.allocate(size_bytes, HOUR, Medium::Disk) {
                    Ok(lease) => {
                        say(format!(
                            "\nlease {} {} {} {size_bytes}.",
                            lease.read, lease.write, lease.manage
                        ));
                        mine.push(lease);
                    }
                    Err(AllocateError::NoRoom { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            2 if mine.len() > 1 => {
                let lease = mine.swap_remove(random.usize(..mine.len()));
                say(format!("\nrelease {}.", lease.read));
                depot.release(&lease.manage).unwrap();
                say(format!("\nreleased {}.", lease.read));
            }
            3 if !mine.is_empty() => {
                let lease = &mine[random.usize(..mine.len())];
                depot.extend(&lease.manage, 2 * HOUR).unwrap();
                say(format!("\nextended {}.", lease.read));
            }
            _ if !mine.is_empty() => {
                let lease = &mine[random.usize(..mine.len())];
                let start = random.u64(..lease.size_bytes);
                let range = Range::new(start, lease.size_bytes.min(start + random.u64(1..400_000)));
                match depot.store(&lease.write, start, &content(range)) {
                    Ok(()) => {
                        say(format!("\nstored {} {} {}.", lease.read, range.start, range.end));
                    }
                    Err(StoreError::TooScattered { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            _ => {}
        }
    }
}

struct Lease {
    manage: Capability,
    size_bytes: u64,
    acknowledged: RangeSet,
    extended: bool,
    /// Its release was begun.
    releasing: bool,
}

#[test]
fn whatever_was_acknowledged_is_there_after_every_kill() {
    let base = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    std::fs::create_dir_all(&base).unwrap();
    let folder = tempfile::tempdir_in(base).unwrap();
    let seed = fastrand::u64(..1 << 32);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut known: BTreeMap<String, Lease> = BTreeMap::new();
    let mut compared_bytes = 0;
    for number in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "depot_kill::child_that_leases", "--nocapture"])
            .env("SWATH_PLACE", folder.path())
            .env("SWATH_SEED", (seed + number).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::spawn(move || lines.map(Result::unwrap).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_micros(random.u64(1000..120_000)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(status.code().is_none(), "number {number}: {status}");
        for line in reader.join().unwrap() {
            let Some(line) = line.strip_suffix('.') else { continue };
            enter(&mut known, line);
        }

        let (depot, found) = Depot::open(options(folder.path().to_owned())).unwrap();
        // A record that was being written is cut off; nothing else is amiss.
        let damaged = |note: &_| !matches!(note, swath_store::depot::Note::Cut { .. });
        assert!(!found.notes.iter().any(damaged), "number {number}: {:?}", found.notes);
        let room = depot.usage();
        assert!(room.disk_taken_bytes <= SIZE_BYTES, "number {number}: {room:?}");
        known.retain(|read, lease| {
            let read: Capability = read.parse().unwrap();
            let Some(status) = depot.status(&read) else {
                assert!(lease.releasing, "number {number}: a lease is gone");
                return false;
            };
            for range in lease.acknowledged.iter() {
                assert!(status.held.covers(range), "number {number}: {range} is not held");
            }
            assert!(!lease.extended || status.left > HOUR, "number {number}");
            let reader = depot.reader(&read).unwrap();
            for range in status.held.iter() {
                let mut bytes = vec![0; range.len() as usize];
                let mut at = 0;
                while at < bytes.len() {
                    at += reader.read(range.start + at as u64, &mut bytes[at..]).unwrap();
                }
                assert!(bytes == content(range), "number {number}: wrong bytes in {range}");
                compared_bytes += range.len();
            }
            assert_eq!(status.size_bytes, lease.size_bytes);
            true
        });
        // Room for the next one; who was killed between making a lease and saying so keeps its own.
        for (_, lease) in known.extract_if(.., |_, _| random.bool()) {
            depot.release(&lease.manage).unwrap();
        }
        if depot.usage().disk_free_bytes < SIZE_BYTES / 4 {
            drop(depot);
            std::fs::remove_dir_all(folder.path().join("leases")).unwrap();
            known.clear();
        }
    }
    println!("{compared_bytes} bytes compared after {KILLS} kills");
    assert!(compared_bytes > 0, "no kill hit a depot at work");
}

fn enter(known: &mut BTreeMap<String, Lease>, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["lease", read, _, manage, size] => {
            let lease = Lease {
                manage: manage.parse().unwrap(),
                size_bytes: size.parse().unwrap(),
                acknowledged: RangeSet::new(),
                extended: false,
                releasing: false,
            };
            known.insert((*read).to_owned(), lease);
        }
        ["release", read] => known.get_mut(*read).unwrap().releasing = true,
        ["released", read] => {
            // Gone for good.
            known.remove(*read).unwrap();
        }
        ["extended", read] => known.get_mut(*read).unwrap().extended = true,
        ["stored", read, start, end] => {
            let range = Range::new(start.parse().unwrap(), end.parse().unwrap());
            known.get_mut(*read).unwrap().acknowledged.insert(range);
        }
        _ => {}
    }
}
