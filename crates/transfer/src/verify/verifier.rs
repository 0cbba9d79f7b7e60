//! The verifier of one file: its tracks, the buffers kept for them, and verdicts.

use std::collections::BTreeMap;
use std::sync::Arc;

use swath_model::digest::{Algorithm, Digest};
use swath_model::pieces::Pieces;
use swath_model::{Buffer, Range, RangeSet};

use super::allowance::Share;
use super::blocks::{Hashed, verifiers};
use super::track::Track;
use crate::discovery::Voucher;

/// The digests that prove a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proof {
    /// Digests of the whole, the preferred one first; each is checked.
    pub wholes: Vec<Digest>,
    /// Digest of each piece.
    pub pieces: Option<Pieces>,
    /// Who vouches for blocks, without piece digests. That is no proof.
    pub voucher: Option<Arc<dyn Voucher>>,
}

impl Proof {
    /// Returns whether nothing proves the file.
    pub fn is_empty(&self) -> bool {
        self.wholes.is_empty() && self.pieces.is_none()
    }

    /// Returns whether parts of the file are judged before the whole is there.
    pub fn judges_parts(&self) -> bool {
        self.pieces.is_some() || self.voucher.is_some()
    }

    /// Returns whether there is anything to hash.
    pub fn judges(&self) -> bool {
        self.judges_parts() || !self.wholes.is_empty()
    }
}

/// A result of the verifier.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// These bytes are proved.
    Good(Range),
    /// A piece does not match its digest.
    Bad {
        /// The piece.
        piece: Range,
        /// Its actual digest.
        actual: Digest,
    },
    /// A block that somebody vouches for has come whole.
    Block {
        /// Which block.
        index: u64,
        /// Its bytes.
        range: Range,
        /// Its BLAKE3 hash.
        actual: Digest,
    },
    /// The chaining value of a group of the BLAKE3 tree, for the journal.
    Group {
        /// Which group.
        index: u64,
        /// Its value.
        value: [u8; 32],
    },
    /// The whole file was hashed.
    Whole {
        /// The expected digest.
        wanted: Digest,
        /// The actual digest.
        actual: Digest,
    },
}

/// The state of a hash in progress, for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    /// Which digest.
    pub algorithm: Algorithm,
    /// Bytes before this offset have been taken in.
    pub front: u64,
    /// The serialized hasher.
    pub state: Vec<u8>,
}

/// Verifies one file.
pub(crate) struct Verifier {
    size_bytes: u64,
    tracks: Vec<Track>,
    seen: RangeSet,
    /// Bytes proved by pieces; only these may enter the whole-file hash, if there is one too.
    proved: RangeSet,
    gated: bool,
    retained: BTreeMap<u64, Buffer>,
    /// Slots of the pool that they may occupy.
    share: Share,
    verdicts: Vec<Verdict>,
}

impl Verifier {
    /// Makes a verifier for a file of `size_bytes` (`u64::MAX` while that is unknown) that keeps
    /// early buffers within `share`.
    pub fn new(proof: &Proof, size_bytes: u64, share: Share) -> Self {
        let tracks = verifiers(proof, size_bytes).into_iter();
        Self {
            size_bytes,
            gated: proof.pieces.is_some(),
            tracks: tracks.map(|verifier| Track::new(verifier, size_bytes)).collect(),
            seen: RangeSet::new(),
            proved: RangeSet::new(),
            retained: BTreeMap::new(),
            share,
            verdicts: Vec::new(),
        }
    }

    /// Resumes an earlier run: `seen` is on the disk, `left` are its hashes.
    pub fn resume(&mut self, seen: &RangeSet, left: &Hashed) {
        self.seen = seen.clone();
        self.proved = left.proved.iter().copied().collect();
        for track in &mut self.tracks {
            track.resume(left, seen);
        }
    }

    /// Returns whether a digest of the whole takes the bytes in from front to back.
    pub fn goes_in_order(&self) -> bool {
        self.tracks.iter().any(Track::is_whole)
    }

    /// Judges the file before any bytes come: a file without bytes is complete.
    pub fn begin(&mut self) {
        self.judge_whole();
    }

    /// Sets the size of a stream that had none.
    pub fn end_at(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
        for track in &mut self.tracks {
            track.set_size(size_bytes);
        }
        self.judge_whole();
    }

    /// Takes in written bytes. Those that cannot be hashed yet are kept while there is room.
    pub fn accept(&mut self, offset: u64, buffer: Buffer) {
        self.take_in(offset, buffer);
        // The farthest buffer is needed last, and its bytes are on the disk.
        let mut slots = self.retained_slots();
        let kept = self.share.fit(slots);
        while slots > kept
            && let Some((_, farthest)) = self.retained.pop_last()
        {
            slots -= farthest.slots();
        }
        self.share.fit(slots);
    }

    fn retained_slots(&self) -> usize {
        self.retained.values().map(Buffer::slots).sum()
    }

    /// Takes in bytes that were read back for [`Verifier::wants`]. Never keeps them: the next
    /// read-back waits for this buffer.
    pub fn accept_back(&mut self, offset: u64, buffer: Buffer) {
        self.take_in(offset, buffer);
        self.retained.remove(&offset);
        self.share.fit(self.retained_slots());
    }

    fn take_in(&mut self, offset: u64, buffer: Buffer) {
        let range = Range::of_len(offset, buffer.len() as u64);
        self.seen.insert(range);
        for track in &mut self.tracks {
            for gap in track.hashed.gaps_within(range) {
                track.behind.insert(gap);
            }
        }
        if !range.is_empty() {
            self.retained.insert(offset, buffer);
            self.advance(range);
        }
    }

    fn advance(&mut self, range: Range) {
        let mut around = range;
        for at in 0..self.tracks.len() {
            // Pieces come first in the list: the whole may take in what they prove.
            while let Some((key, position)) = self.next_step(at, around) {
                let limit = self.limit(at, position);
                let Some(buffer) = self.retained.get(&key) else { break };
                if !self.tracks[at].absorb(key, buffer, limit, &mut self.verdicts) {
                    break;
                }
            }
            for verdict in &self.verdicts {
                if let Verdict::Good(range) = verdict {
                    self.proved.insert(*range);
                    around = Range::new(around.start.min(range.start), around.end.max(range.end));
                }
            }
        }
        let tracks = &self.tracks;
        self.retained.retain(|&offset, buffer| {
            let range = Range::of_len(offset, buffer.len() as u64);
            !tracks.iter().all(|track| track.hashed.covers(range))
        });
        self.judge_whole();
    }

    /// Returns key and position of a kept buffer with which track `at` can go on near `around`.
    fn next_step(&self, at: usize, around: Range) -> Option<(u64, u64)> {
        let track = &self.tracks[at];
        track.continuations(around).into_iter().find_map(|position| {
            let (&key, buffer) = self.retained.range(..=position).next_back()?;
            (key + buffer.len() as u64 > position && self.limit(at, position) > position)
                .then_some((key, position))
        })
    }

    /// Returns how far track `at` may go from `position`: a whole-file hash takes in only bytes
    /// that pieces have proved, because a hasher cannot remove bad ones.
    fn limit(&self, at: usize, position: u64) -> u64 {
        if !self.gated || !self.tracks[at].is_whole() {
            return u64::MAX;
        }
        match self.proved.first_from(position) {
            Some(run) if run.start == position => run.end,
            _ => position,
        }
    }

    fn judge_whole(&mut self) {
        if self.size_bytes == u64::MAX {
            return;
        }
        for track in &mut self.tracks {
            self.verdicts.extend(track.finish());
        }
    }

    /// Returns the verdicts since the last call.
    pub fn verdicts(&mut self) -> Vec<Verdict> {
        std::mem::take(&mut self.verdicts)
    }

    /// Forgets void bytes (they proved bad, or are fetched again from another source).
    pub fn forget(&mut self, range: Range) {
        self.seen.remove(range);
        self.proved.remove(range);
        self.retained.retain(|&offset, buffer| {
            Range::of_len(offset, buffer.len() as u64).intersect(range).is_none()
        });
        for track in &mut self.tracks {
            track.forget(range, &self.seen);
        }
    }

    /// Returns bytes, at most `most_bytes`, to read back so that hashing can go on.
    pub fn wants(&self, most_bytes: u64) -> Option<Range> {
        (0..self.tracks.len()).find_map(|at| {
            let track = &self.tracks[at];
            let limit = if track.is_whole() { self.limit(at, track.front()) } else { u64::MAX };
            track.wants(most_bytes, limit, |offset| {
                let before = self.retained.range(..=offset).next_back();
                match before {
                    Some((&key, buffer)) if key + buffer.len() as u64 > offset => offset,
                    _ => self.retained.range(offset..).next().map_or(u64::MAX, |(&key, _)| key),
                }
            })
        })
    }

    /// Returns the number of bytes that every track has taken in.
    pub fn hashed_bytes(&self) -> u64 {
        self.tracks.iter().map(|track| track.hashed.total_bytes()).min().unwrap_or(0)
    }

    /// Returns the whole-file hashes in progress, for the journal.
    pub fn save(&self) -> Vec<Saved> {
        self.tracks.iter().filter_map(Track::save).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::{CameFrom, Judgement, block_hash};
    use crate::verify::Allowance;
    use swath_model::Pool;
    use swath_model::digest::Hasher;
    use swath_model::pieces::Pieces;

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i as u32).wrapping_mul(2_654_435_761).rotate_left(7) as u8).collect()
    }

    fn pieces(data: &[u8], algorithm: Algorithm, length: usize) -> Pieces {
        let packed = data
            .chunks(length)
            .flat_map(|piece| Hasher::digest(algorithm, piece).as_bytes().to_vec())
            .collect();
        Pieces::new(algorithm, length as u64, packed).unwrap()
    }

    /// Hands `data` over in random cuts and order, reading back whenever asked to.
    fn run(
        verifier: &mut Verifier,
        pool: &Pool,
        data: &[u8],
        rng: &mut fastrand::Rng,
    ) -> Vec<Verdict> {
        let mut cuts = vec![0, data.len()];
        for _ in 0..rng.usize(0..40) {
            cuts.push(rng.usize(0..=data.len()));
        }
        cuts.sort_unstable();
        let mut parts: Vec<(usize, usize)> =
            cuts.windows(2).map(|w| (w[0], w[1])).filter(|(a, b)| a < b).collect();
        rng.shuffle(&mut parts);
        verifier.begin();
        let mut verdicts = Vec::new();
        for (start, end) in parts {
            let mut at = start;
            while at < end {
                let mut buffer = pool.try_take_for(rng.usize(1..20_000)).unwrap();
                at += {
                    let n = buffer.push(&data[at..end]);
                    verifier.accept(at as u64, buffer);
                    n
                };
                if rng.bool() {
                    read_back(verifier, pool, data, 1);
                }
            }
            verdicts.extend(verifier.verdicts());
        }
        read_back(verifier, pool, data, usize::MAX);
        verdicts.extend(verifier.verdicts());
        verdicts
    }

    /// Whoever vouches for blocks of this size.
    #[derive(Debug)]
    struct Blocks(u64);

    impl Voucher for Blocks {
        fn block_bytes(&self) -> u64 {
            self.0
        }

        fn judge(&self, _: u64, _: Digest, _: CameFrom) -> Judgement {
            Judgement::Right
        }
    }

    /// How many digests of the whole came out right and wrong.
    fn wholes(verdicts: &[Verdict]) -> (usize, usize) {
        let told = verdicts.iter().filter_map(|verdict| match verdict {
            Verdict::Whole { wanted, actual } => Some(wanted == actual),
            _ => None,
        });
        let (right, wrong): (Vec<bool>, Vec<bool>) = told.partition(|&right| right);
        (right.len(), wrong.len())
    }

    fn read_back(verifier: &mut Verifier, pool: &Pool, data: &[u8], most: usize) {
        for _ in 0..most {
            let Some(range) = verifier.wants(pool.slot_bytes() as u64) else { return };
            let mut buffer = pool.try_take().unwrap();
            buffer.push(&data[range.start as usize..range.end as usize]);
            verifier.accept_back(range.start, buffer);
        }
    }

    #[test]
    fn any_order_any_proof_comes_to_the_same_digest() {
        let pool = Pool::new(64, 4096);
        for seed in 0..120 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let data = content(rng.usize(0..700_000));
            let rng_wholes = rng.usize(0..3);
            let proof = Proof {
                wholes: rng
                    .choose_multiple(&Algorithm::ALL, rng_wholes)
                    .into_iter()
                    .map(|&algorithm| Hasher::digest(algorithm, &data))
                    .collect(),
                pieces: rng.bool().then(|| {
                    pieces(
                        &data,
                        *rng.choice(&[Algorithm::Sha1, Algorithm::Sha256]).unwrap(),
                        10_000,
                    )
                }),
                voucher: rng.bool().then(|| {
                    let block_bytes = *rng.choice(&[1 << 10, 1 << 17, 100_000]).unwrap();
                    Arc::new(Blocks(block_bytes)) as Arc<dyn Voucher>
                }),
            };
            let allowance = Allowance::new(rng.usize(0..40));
            let mut verifier = Verifier::new(&proof, data.len() as u64, allowance.share());
            let verdicts = run(&mut verifier, &pool, &data, &mut rng);
            assert!(!verdicts.iter().any(|v| matches!(v, Verdict::Bad { .. })), "seed {seed}");
            assert_eq!(wholes(&verdicts), (proof.wholes.len(), 0), "seed {seed}");
            if proof.pieces.is_some() {
                let good: u64 = verdicts
                    .iter()
                    .map(|v| if let Verdict::Good(r) = v { r.len() } else { 0 })
                    .sum();
                assert_eq!(good, data.len() as u64, "seed {seed}");
            } else if let Some(voucher) = &proof.voucher {
                let (block_bytes, size) = (voucher.block_bytes(), data.len() as u64);
                let mut judged = 0;
                for verdict in &verdicts {
                    let Verdict::Block { index, range, actual } = verdict else { continue };
                    let bytes = &data[range.start as usize..range.end as usize];
                    let hash = block_hash(*index, block_bytes, size, bytes);
                    assert_eq!(actual.as_bytes(), hash, "seed {seed}");
                    judged += range.len();
                }
                assert_eq!(judged, size, "seed {seed}");
            }
            assert_eq!(pool.free_slots() + verifier.retained_slots(), pool.slots());
        }
    }

    #[test]
    fn good_pieces_that_touch_are_told_at_once() {
        // A verdict for each of a million pieces took more memory than the file's buffers.
        let pool = Pool::new(64, 4096);
        let data = content(64 * 4096);
        let proof = Proof {
            wholes: Vec::new(),
            pieces: Some(pieces(&data, Algorithm::Sha256, 64)),
            voucher: None,
        };
        let mut verifier = Verifier::new(&proof, data.len() as u64, Allowance::new(10).share());
        let verdicts = run(&mut verifier, &pool, &data, &mut fastrand::Rng::with_seed(1));
        assert!(verdicts.len() < 200, "{} verdicts", verdicts.len());
    }

    #[test]
    fn a_bad_piece_is_named_and_heals() {
        let pool = Pool::new(64, 4096);
        for seed in 0..60 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let data = content(rng.usize(50_000..300_000));
            let mut wrong = data.clone();
            let spot = rng.usize(0..data.len());
            wrong[spot] ^= 1;
            let proof = Proof {
                wholes: vec![Hasher::digest(Algorithm::Sha256, &data)],
                pieces: Some(pieces(&data, Algorithm::Sha1, 10_000)),
                voucher: None,
            };
            let mut verifier = Verifier::new(&proof, data.len() as u64, Allowance::new(10).share());
            let verdicts = run(&mut verifier, &pool, &wrong, &mut rng);
            let bad: Vec<Range> = verdicts
                .iter()
                .filter_map(
                    |v| if let Verdict::Bad { piece, .. } = v { Some(*piece) } else { None },
                )
                .collect();
            assert_eq!(bad.len(), 1, "seed {seed}");
            assert!(bad[0].contains(spot as u64));
            verifier.forget(bad[0]);
            let mut at = bad[0].start;
            while at < bad[0].end {
                let mut buffer = pool.try_take().unwrap();
                let n = buffer.push(&data[at as usize..bad[0].end as usize]);
                verifier.accept(at, buffer);
                at += n as u64;
            }
            read_back(&mut verifier, &pool, &data, usize::MAX);
            assert_eq!(wholes(&verifier.verdicts()), (1, 0), "seed {seed}");
        }
    }

    #[test]
    fn reading_back_takes_one_buffer_at_a_time() {
        // Read-backs that the pieces still gated were kept, until no buffer was left to read the
        // missing piece into.
        let data = content(200_000);
        let proof = Proof {
            wholes: vec![Hasher::digest(Algorithm::Sha256, &data)],
            pieces: Some(pieces(&data, Algorithm::Sha1, 10_000)),
            voucher: None,
        };
        let size = data.len() as u64;
        let mut verifier = Verifier::new(&proof, size, Allowance::new(40).share());
        // All but the first piece is there.
        let seen = RangeSet::from(Range::new(10_000, size));
        verifier.resume(&seen, &Hashed::default());
        let pool = Pool::new(1, 4096);
        read_back(&mut verifier, &pool, &data, usize::MAX);
        let late = Pool::new(3, 4096);
        for (at, part) in data[..10_000].chunks(4096).enumerate() {
            let mut buffer = late.try_take().unwrap();
            buffer.push(part);
            verifier.accept(at as u64 * 4096, buffer);
        }
        read_back(&mut verifier, &pool, &data, usize::MAX);
        let verdicts = verifier.verdicts();
        assert_eq!(wholes(&verdicts), (1, 0));
    }

    #[test]
    fn a_saved_hash_goes_on_where_it_was() {
        let pool = Pool::new(64, 4096);
        for algorithm in Algorithm::ALL {
            let data = content(600_000);
            let proof =
                Proof { wholes: vec![Hasher::digest(algorithm, &data)], ..Proof::default() };
            let mut first = Verifier::new(&proof, data.len() as u64, Allowance::new(8).share());
            let mut groups = Vec::new();
            let half = 300_000;
            for (i, part) in data[..half].chunks(4096).enumerate() {
                let mut buffer = pool.try_take().unwrap();
                buffer.push(part);
                first.accept(i as u64 * 4096, buffer);
            }
            for verdict in first.verdicts() {
                if let Verdict::Group { index, value } = verdict {
                    groups.push((index, value));
                }
            }
            let saved = first.save();
            let mut second = Verifier::new(&proof, data.len() as u64, Allowance::new(8).share());
            let seen = RangeSet::from(Range::new(0, half as u64));
            second.resume(&seen, &Hashed { proved: Vec::new(), saved, groups });
            let behind = second.tracks[0].behind.total_bytes();
            assert!(behind < 262_144, "{algorithm}: {behind} bytes to hash again");
            for (i, part) in data[half..].chunks(4096).enumerate() {
                let mut buffer = pool.try_take().unwrap();
                buffer.push(part);
                second.accept((half + i * 4096) as u64, buffer);
            }
            read_back(&mut second, &pool, &data, usize::MAX);
            assert_eq!(wholes(&second.verdicts()), (1, 0), "{algorithm}");
        }
    }
}
