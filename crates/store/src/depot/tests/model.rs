//! Random operations against a model that keeps a byte for each byte.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::depot::clock::GRACE;
use crate::hashed_file::blocks;

/// An allocation as the model knows it.
struct Known {
    allocation: Allocation,
    bytes: Vec<Option<u8>>,
    ends: Duration,
    /// The blocks that were ever written, of one that takes its space so.
    written: Option<BTreeSet<u64>>,
}

impl Known {
    fn taken_bytes(&self) -> u64 {
        let size_bytes = self.allocation.size_bytes;
        self.written.as_ref().map_or(blocks(size_bytes), |written| written.len() as u64 * BLOCK)
    }
}

fn blocks_of(range: Range) -> impl Iterator<Item = u64> {
    let end = if range.is_empty() { 0 } else { range.end.div_ceil(BLOCK) };
    range.start / BLOCK..end
}

const BLOCK: u64 = 4 * KIB;

struct World {
    folder: tempfile::TempDir,
    clock: Arc<Hands>,
    depot: Option<Depot>,
    known: BTreeMap<u64, Known>,
    gone: Vec<Allocation>,
    now: Duration,
    random: fastrand::Rng,
}

/// Another content for the same place, to be refused where the first is stored.
fn other_content(range: Range) -> Vec<u8> {
    content(range).into_iter().map(|byte| byte ^ 0x40 | 1).collect()
}

impl World {
    fn new(seed: u64) -> World {
        let folder = tempfile::tempdir().unwrap();
        let clock = Hands::new();
        let depot = Some(open(folder.path(), &clock));
        let random = fastrand::Rng::with_seed(seed);
        let (known, gone) = (BTreeMap::new(), Vec::new());
        World { folder, clock, depot, known, gone, now: Duration::ZERO, random }
    }

    fn depot(&self) -> &Depot {
        self.depot.as_ref().unwrap()
    }

    fn some(&mut self) -> Option<u64> {
        let keys: Vec<u64> = self.known.keys().copied().collect();
        (!keys.is_empty()).then(|| keys[self.random.usize(..keys.len())])
    }

    fn free(&self, medium: Medium) -> u64 {
        let size = if medium == Medium::Disk { 8 * GROUP } else { 4 * GROUP };
        let taken = self.known.values().filter(|known| known.allocation.medium == medium);
        size - taken.map(Known::taken_bytes).sum::<u64>()
    }

    fn allocate(&mut self, number: u64) {
        let medium = if self.random.bool() { Medium::Disk } else { Medium::Memory };
        let size_bytes = match self.random.u8(0..4) {
            0 => self.random.u64(1..5000),
            1 => self.random.u64(1..3) * GROUP,
            _ => self.random.u64(1..3 * GROUP),
        };
        let length = HOUR * self.random.u32(1..12);
        let space = if self.random.u8(0..3) == 0 { Space::AsStored } else { Space::Reserved };
        let as_stored = space == Space::AsStored;
        let size_bytes = if as_stored { size_bytes * 4 } else { size_bytes };
        let allocated = self.depot().allocate_with(size_bytes, length, medium, space);
        if length > 10 * HOUR {
            assert!(matches!(allocated, Err(AllocateError::TooLong { .. })));
        } else if !as_stored && blocks(size_bytes) > self.free(medium) {
            let free = self.free(medium);
            assert!(
                matches!(allocated, Err(AllocateError::NoRoom { free_bytes }) if free_bytes == free)
            );
        } else {
            let bytes = vec![None; size_bytes as usize];
            let ends = self.now + length;
            let written = as_stored.then(BTreeSet::new);
            let allocation = allocated.unwrap();
            self.known.insert(number, Known { allocation, bytes, ends, written });
        }
    }

    fn store(&mut self) {
        let Some(key) = self.some() else { return };
        let size_bytes = self.known[&key].allocation.size_bytes;
        let start = match self.random.u8(0..3) {
            0 => 0,
            1 => (self.random.u64(..size_bytes) / GROUP) * GROUP,
            _ => self.random.u64(..size_bytes),
        };
        let len = match self.random.u8(0..4) {
            0 => self.random.u64(1..10),
            1 => size_bytes,
            2 => GROUP,
            _ => self.random.u64(1..100_000),
        };
        let past = self.random.u8(0..20) == 0;
        let end = if past { size_bytes + 1 } else { size_bytes.min(start + len) };
        let range = Range::new(start, end);
        let mut right = content(range);
        if self.random.u8(0..3) == 0 {
            let from = self.random.usize(..right.len());
            right[from..].copy_from_slice(&other_content(range)[from..]);
        }
        let depot = self.depot().clone();
        let free_bytes = self.free(self.known[&key].allocation.medium);
        let known = self.known.get_mut(&key).unwrap();
        let mut writer = depot.writer(&known.allocation.write, start).unwrap();
        // In pieces of any size.
        let (mut outcome, mut at) = (Ok(()), 0);
        while at < right.len() && outcome.is_ok() {
            let piece = if past { right.len() } else { self.random.usize(1..300_000) };
            let piece = &right[at..right.len().min(at + piece)];
            outcome = writer.write(piece);
            at += piece.len();
        }
        if past {
            assert!(matches!(outcome, Err(StoreError::PastEnd { .. })));
            return;
        }
        let written = (writer.offset() - start) as usize;
        let place = &mut known.bytes[start as usize..end as usize];
        let conflict =
            place.iter().zip(&right).position(|(held, new)| held.is_some_and(|held| held != *new));
        if let Some(blocks) = &mut known.written {
            // What was claimed is taken, whatever becomes of it.
            let before = blocks.len() as u64;
            blocks.extend(blocks_of(Range::new(start, start + written as u64)));
            let left_bytes = free_bytes - (blocks.len() as u64 - before) * BLOCK;
            if matches!(outcome, Err(StoreError::NoRoom { free_bytes }) if free_bytes == left_bytes)
            {
                let at = start + written as u64;
                let rest = blocks_of(Range::new(at, end.min((at / GROUP + 1) * GROUP)));
                let more = rest.filter(|block| !blocks.contains(block)).count() as u64;
                assert!(more * BLOCK > left_bytes, "there was room for {more} blocks");
                outcome = Ok(());
                right.truncate(written);
            }
        }
        match (outcome, conflict.filter(|&first| first < right.len())) {
            (Ok(()), None) => assert_eq!(written, right.len()),
            (Err(StoreError::Differs { .. }), Some(first)) => assert!(written <= first),
            (outcome, conflict) => panic!("{outcome:?} where the model has {conflict:?}"),
        }
        if self.random.u8(0..8) == 0 {
            // Nothing was acknowledged.
            return;
        }
        assert_eq!(writer.commit().unwrap(), start + written as u64);
        for (held, new) in place.iter_mut().zip(&right[..written]) {
            *held = Some(*new);
        }
    }

    fn read(&mut self) {
        let Some(key) = self.some() else { return };
        let known = &self.known[&key];
        let size_bytes = known.allocation.size_bytes;
        let reader = self.depot.as_ref().unwrap().reader(&known.allocation.read).unwrap();
        let start = self.random.u64(..size_bytes);
        let range = Range::new(start, size_bytes.min(start + self.random.u64(1..400_000)));
        let place = &known.bytes[range.start as usize..range.end as usize];
        match reader.part(range) {
            Ok(part) => {
                let mut bytes = vec![0; part.range.len() as usize];
                let got = reader.read(range.start, &mut bytes).unwrap();
                assert_eq!(got, bytes.len());
                assert!(place.iter().zip(&bytes).all(|(held, got)| *held == Some(*got)));
                let stops = place.get(bytes.len()).is_none_or(Option::is_none)
                    || part.range.end % GROUP == 0;
                assert!(stops, "{range} was cut to {}", part.range);
            }
            Err(ReadError::NotHeld { range: gap }) => {
                let gap = &known.bytes[gap.start as usize..gap.end as usize];
                assert!(gap.iter().all(Option::is_none) && !gap.is_empty());
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn pass(&mut self, reboot: bool) {
        let time = HOUR / 4 * self.random.u32(0..8);
        self.now += time;
        if reboot {
            // What is in memory is gone.
            self.depot = None;
            self.clock.reboot(time);
            self.reopen();
            // Until then what has ended takes its space.
            self.clock.pass(GRACE);
            self.now += GRACE;
        } else {
            self.clock.pass(time);
        }
        let ended: Vec<u64> = self
            .known
            .iter()
            .filter(|(_, known)| known.ends <= self.now)
            .map(|(&k, _)| k)
            .collect();
        for key in ended {
            self.gone.push(self.known.remove(&key).unwrap().allocation);
        }
    }

    fn reopen(&mut self) {
        self.depot = None;
        self.depot = Some(open(self.folder.path(), &self.clock));
        for known in self.known.values_mut() {
            if let Some(written) = &mut known.written {
                // Nobody was told that the rest is there.
                let held = known.bytes.iter().enumerate().filter(|(_, held)| held.is_some());
                *written = held.map(|(at, _)| at as u64 / BLOCK).collect();
            }
        }
        let lost: Vec<u64> = self
            .known
            .iter()
            .filter(|(_, known)| known.allocation.medium == Medium::Memory)
            .map(|(&key, _)| key)
            .collect();
        for key in lost {
            self.gone.push(self.known.remove(&key).unwrap().allocation);
        }
    }

    fn check(&self) {
        for known in self.known.values() {
            let status = self.depot().status(&known.allocation.read).unwrap();
            assert_eq!(status.left, known.ends - self.now);
            assert_eq!(status.taken_bytes, known.taken_bytes());
            let mut held = RangeSet::new();
            let mut at = 0;
            for run in known.bytes.chunk_by(|one, next| one.is_some() == next.is_some()) {
                let range = Range::of_len(at, run.len() as u64);
                if run[0].is_some() {
                    held.insert(range);
                }
                at = range.end;
            }
            assert_eq!(status.held, held);
            let pieces = self.depot().shared.pieces.load(std::sync::atomic::Ordering::Relaxed);
            assert!(pieces < 2000);
        }
        for gone in &self.gone {
            assert!(self.depot().status(&gone.manage).is_none());
        }
        let room = self.depot().usage();
        assert_eq!(room.disk_free_bytes, self.free(Medium::Disk));
        assert_eq!(room.memory_free_bytes, self.free(Medium::Memory));
        assert_eq!(room.allocations, self.known.len());
    }
}

#[test]
fn random_operations_do_what_a_naive_model_does() {
    let first = fastrand::u64(..1 << 32);
    for seed in first..first + 12 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for number in 0..60 {
            match world.random.u8(0..16) {
                0..=2 => world.allocate(number),
                3..=7 => world.store(),
                8..=10 => world.read(),
                11 => {
                    if let Some(key) = world.some() {
                        let length = HOUR * world.random.u32(1..10);
                        let now = world.now;
                        let known = &world.known[&key];
                        let left = world.depot().extend(&known.allocation.manage, length).unwrap();
                        let ends = known.ends.max(now + length);
                        assert_eq!(now + left, ends);
                        world.known.get_mut(&key).unwrap().ends = ends;
                    }
                }
                12 => {
                    if let Some(key) = world.some() {
                        let known = world.known.remove(&key).unwrap();
                        world.depot().release(&known.allocation.manage).unwrap();
                        world.gone.push(known.allocation);
                    }
                }
                13 => world.pass(false),
                14 => world.reopen(),
                _ => {
                    let reboot = world.random.u8(0..4) == 0;
                    world.pass(reboot);
                }
            }
            world.check();
        }
    }
}

mod contents {
    use proptest::prelude::*;

    use super::super::super::contents::{Contents, Fact};
    use super::*;
    use crate::journal::{Entry as _, Sum as _};

    fn any_range() -> impl Strategy<Value = Range> {
        // Often at groups and close to each other.
        let at = (0..4u64, prop_oneof![Just(0), 0..20u64, GROUP - 3..GROUP]);
        let at = at.prop_map(|(group, offset)| group * GROUP + offset);
        (at.clone(), at).prop_map(|(a, b)| Range::new(a.min(b), a.max(b)))
    }

    fn any_fact() -> impl Strategy<Value = Fact> {
        prop_oneof![
            2 => any_range().prop_map(|range| Fact::Whole { range }),
            4 => (any_range(), any::<u8>()).prop_map(|(range, group_hash)| {
                let group = range.start / GROUP * GROUP;
                let range = Range::new(range.start, range.end.min(group + GROUP));
                Fact::Piece { range, group_hash: [group_hash; 32] }
            }),
            1 => any_range().prop_map(|range| Fact::Bad { range }),
            1 => any_range().prop_map(|range| Fact::Piece { range, group_hash: [0; 32] }),
        ]
    }

    proptest! {
        #[test]
        fn whatever_a_journal_says_its_sum_is_sound(
            size in 1..4 * GROUP,
            facts in proptest::collection::vec(any_fact(), 0..40),
        ) {
            let now = Hands::new().now();
            let mut sum = Contents::new(size, [[1; 32]; 3], Term { from: now, length: HOUR }, Space::AsStored);
            for fact in &facts {
                let mut bytes = Vec::new();
                fact.encode(&mut bytes);
                prop_assert_eq!(Fact::decode(fact.kind(), &bytes), Some(fact.clone()));
                let before = sum.held.clone();
                sum.apply(fact);
                // Nothing but a record of damage takes anything away.
                if !matches!(fact, Fact::Bad { .. }) {
                    prop_assert!(before.iter().all(|range| sum.held.covers(range)));
                }
            }
            let mut whole = sum.held.clone();
            let mut end = 0;
            for (&start, &(piece_end, _)) in &sum.pieces {
                let piece = Range::new(start, piece_end);
                prop_assert!(start >= end && !piece.is_empty() && sum.held.covers(piece));
                prop_assert!(sum.layout().group_at(start).covers(piece));
                whole.remove(piece);
                end = piece_end;
            }
            for run in whole.iter() {
                prop_assert!(sum.layout().is_whole(run), "{run} is not of whole groups");
            }
            prop_assert!(sum.held.last().is_none_or(|last| last.end <= size));
            prop_assert!(sum.damaged.iter().all(|range| sum.held.bytes_within(range) == 0));
            let mut again = Contents::default();
            sum.records().for_each(|fact| again.apply(&fact));
            prop_assert_eq!(again, sum);
        }
    }
}
