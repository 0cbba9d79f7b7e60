//! A swarm in virtual time: one origin that super-seeds, and leechers that pass on what they get.
//!
//! A piece takes a second over a link that nothing else uses. Every leecher serves a few others at a
//! time, and asks for the rarest piece first, of whom it happens to meet; who lacks nothing but what is
//! under way asks for it a second time, as clients do at their end. Rates are shared fairly, in small
//! steps. Nothing is lost, and messages take no time.

use std::collections::HashSet;
use std::time::Duration;

use swath_formats::peer::{Bitfield, PieceIndex};
use swath_model::Time;
use swath_swarm::{PeerKey, SuperSeeding};

/// Links carry one a second.
const PIECE_BYTES: u64 = 256 << 10;
/// Steps per second.
const STEPS: u64 = 8;
/// Peers that a leecher serves at a time.
const SLOTS: usize = 4;
/// Leechers that ask each leecher in a step.
const ASKING: usize = 12;
/// Pieces that a leecher receives at a time.
const REQUESTS: usize = 8;

/// A piece on its way. Node 0 is the origin.
struct Flow {
    from: usize,
    to: usize,
    piece: usize,
    left: f64,
}

/// A set of pieces.
type Pieces = Vec<u64>;

struct Swarm {
    pieces: usize,
    holds: Vec<Pieces>,
    /// How many leechers have each piece, and how many pieces each node has.
    holders: Vec<u32>,
    counts: Vec<usize>,
    /// What is on its way to each node.
    coming: Vec<Pieces>,
    /// What the origin offers to each leecher.
    offered: Vec<Pieces>,
    /// Pieces per second that each node sends at most.
    up: Vec<f64>,
    flows: Vec<Flow>,
    random: fastrand::Rng,
}

/// What a run took.
pub struct Ran {
    /// Seconds until the last leecher was complete.
    pub seconds: f64,
    /// Copies of the content that the origin sent.
    pub copies: f64,
}

/// Runs until all leechers have `pieces` pieces; node 0 of `up` is the origin. `super_seeds` is whether
/// the origin offers pieces one by one, or has all for everybody.
pub fn run(pieces: u32, up: &[f64], super_seeds: bool, seed: u64) -> Ran {
    let mut swarm = Swarm::new(pieces as usize, up, super_seeds, seed);
    let mut seeding = SuperSeeding::new(pieces, PIECE_BYTES, seed);
    for leecher in 1..up.len() {
        seeding.join(PeerKey(leecher as u64), Bitfield::none(pieces), Time::ZERO);
        seeding.serve(PeerKey(leecher as u64), true, Time::ZERO);
    }
    let (mut sent, mut step, mut offers_all) = (0.0, 0, !super_seeds);
    while swarm.counts.iter().any(|count| *count < pieces as usize) {
        step += 1;
        assert!(step < 20 * STEPS * u64::from(pieces), "it does not end");
        let now = Time::ZERO + Duration::from_secs_f64(step as f64 / STEPS as f64);
        if !offers_all && seeding.is_over() {
            offers_all = true;
            swarm.offered.fill(all(pieces as usize));
        } else if !offers_all {
            for (key, piece) in seeding.offers(PIECE_BYTES, now) {
                insert(&mut swarm.offered[key.0 as usize], piece.0 as usize);
            }
        }
        swarm.ask();
        let sent_now = swarm.send();
        sent += sent_now;
        seeding.sent((sent_now * PIECE_BYTES as f64) as u64);
        for (node, piece) in swarm.arrived() {
            seeding.gained(PeerKey(node as u64), PieceIndex(piece as u32), now);
        }
    }
    Ran { seconds: step as f64 / STEPS as f64, copies: sent / f64::from(pieces) }
}

impl Swarm {
    fn new(pieces: usize, up: &[f64], super_seeds: bool, seed: u64) -> Swarm {
        let none = vec![0; pieces.div_ceil(64)];
        let mut holds = vec![none.clone(); up.len()];
        holds[0] = all(pieces);
        let mut counts = vec![0; up.len()];
        counts[0] = pieces;
        let offered = if super_seeds { none.clone() } else { all(pieces) };
        Swarm {
            pieces,
            holds,
            holders: vec![0; pieces],
            counts,
            coming: vec![none; up.len()],
            offered: vec![offered; up.len()],
            up: up.to_vec(),
            flows: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Starts what can be started.
    fn ask(&mut self) {
        let count = self.holds.len();
        let (mut leaving, mut arriving) = (vec![0; count], vec![0; count]);
        let mut links = HashSet::new();
        for flow in &self.flows {
            leaving[flow.from] += 1;
            arriving[flow.to] += 1;
            links.insert((flow.from, flow.to));
        }
        let is_open = |from: usize, leaving: &[usize]| from == 0 || leaving[from] < SLOTS;
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for from in (0..count).filter(|from| is_open(*from, &leaving)) {
            // Everybody asks the origin, and some ask each leecher.
            match from > 0 && count > 2 * ASKING {
                false => pairs.extend((1..count).map(|to| (from, to))),
                true => pairs.extend((0..ASKING).map(|_| (from, self.random.usize(1..count)))),
            }
        }
        self.random.shuffle(&mut pairs);
        for (from, to) in pairs {
            let is_busy = links.contains(&(from, to)) || arriving[to] >= REQUESTS;
            let is_done = self.counts[to] == self.pieces;
            if from == to || is_done || is_busy || !is_open(from, &leaving) {
                continue;
            }
            if let Some(piece) = self.wanted(from, to, arriving[to]) {
                leaving[from] += 1;
                arriving[to] += 1;
                links.insert((from, to));
                insert(&mut self.coming[to], piece);
                self.flows.push(Flow { from, to, piece, left: 1.0 });
            }
        }
    }

    /// Returns the rarest piece that a node wants of another one, to which `arriving` are on their way.
    fn wanted(&mut self, from: usize, to: usize, arriving: usize) -> Option<usize> {
        let shows = if from == 0 { &self.offered[to] } else { &self.holds[from] };
        let (has, coming) = (&self.holds[to], &self.coming[to]);
        // Everything else is under way.
        let is_end = self.counts[to] + arriving >= self.pieces;
        // Among pieces that are as rare, each asks for another one.
        let mix = self.random.usize(..) | 1;
        let mut best: Option<(u32, usize, usize)> = None;
        for (at, ((shown, has), coming)) in shows.iter().zip(has).zip(coming).enumerate() {
            let mut left = shown & !has & if is_end { u64::MAX } else { !coming };
            while left != 0 {
                let piece = 64 * at + left.trailing_zeros() as usize;
                left &= left - 1;
                let rank = (self.holders[piece], piece.wrapping_mul(mix), piece);
                best = Some(best.map_or(rank, |best| best.min(rank)));
            }
        }
        best.map(|best| best.2)
    }

    /// Moves all flows by a step; returns what the origin sent, in pieces.
    fn send(&mut self) -> f64 {
        let count = self.holds.len();
        let (mut leaving, mut coming) = (vec![0.0; count], vec![0.0; count]);
        for flow in &self.flows {
            leaving[flow.from] += 1.0;
            coming[flow.to] += 1.0;
        }
        // First everybody's even share, then what others could not use of it.
        let mut rates: Vec<f64> = vec![0.0; self.flows.len()];
        for _ in 0..ROUNDS {
            let (mut up, mut down) = (self.up.clone(), vec![1.0; count]);
            for (flow, rate) in self.flows.iter().zip(&rates) {
                up[flow.from] -= rate;
                down[flow.to] -= rate;
            }
            for (flow, rate) in self.flows.iter().zip(&mut rates) {
                let more =
                    (up[flow.from] / leaving[flow.from]).min(down[flow.to] / coming[flow.to]);
                *rate += more.max(0.0);
            }
        }
        let mut sent = 0.0;
        for (flow, rate) in self.flows.iter_mut().zip(&rates) {
            let moved = (rate / STEPS as f64).min(flow.left);
            flow.left -= moved;
            sent += if flow.from == 0 { moved } else { 0.0 };
        }
        sent
    }

    /// Takes the pieces that are complete.
    fn arrived(&mut self) -> Vec<(usize, usize)> {
        let complete = self.flows.iter().filter(|flow| flow.left < 1e-9);
        let arrived: HashSet<(usize, usize)> = complete.map(|flow| (flow.to, flow.piece)).collect();
        // What came is not wanted of others any more.
        self.flows.retain(|flow| !arrived.contains(&(flow.to, flow.piece)));
        let mut arrived: Vec<_> = arrived.into_iter().collect();
        arrived.sort_unstable();
        for (to, piece) in &arrived {
            insert(&mut self.holds[*to], *piece);
            remove(&mut self.coming[*to], *piece);
            self.holders[*piece] += 1;
            self.counts[*to] += 1;
        }
        arrived
    }
}

fn all(pieces: usize) -> Pieces {
    let mut set = vec![0; pieces.div_ceil(64)];
    (0..pieces).for_each(|piece| insert(&mut set, piece));
    set
}

fn insert(set: &mut Pieces, piece: usize) {
    set[piece / 64] |= 1 << (piece % 64);
}

fn remove(set: &mut Pieces, piece: usize) {
    set[piece / 64] &= !(1 << (piece % 64));
}

/// Returns the time that nobody beats: the origin's link, and all links together.
pub fn bound(pieces: u32, up: &[f64]) -> f64 {
    let (pieces, leechers) = (f64::from(pieces), (up.len() - 1) as f64);
    (pieces / up[0]).max(pieces).max(pieces * leechers / up.iter().sum::<f64>())
}

/// Rates of flows settle within so many rounds.
const ROUNDS: usize = 5;
