//! A swarm in virtual time: one origin that super-seeds, and leechers that pass on what they get.
//!
//! Links carry a piece per second each way. Every leecher serves four others at a time, and asks for
//! the rarest piece first; who asks whom is random. Rates are shared fairly, in small steps.

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
    piece: u32,
    left: f64,
}

struct Swarm {
    holds: Vec<Bitfield>,
    /// Pieces per second that each node sends at most.
    up: Vec<f64>,
    flows: Vec<Flow>,
    /// What the origin offers to each leecher.
    offered: Vec<HashSet<u32>>,
    random: fastrand::Rng,
}

/// What a run took.
struct Ran {
    /// Seconds until the last leecher was complete.
    seconds: f64,
    /// Copies of the content that the origin sent.
    copies: f64,
}

/// Runs until all leechers have `pieces` pieces. `super_seeds` is whether the origin offers pieces one
/// by one, or has all for everybody.
fn run(pieces: u32, up: &[f64], super_seeds: bool, seed: u64) -> Ran {
    let count = up.len();
    let mut holds = vec![Bitfield::none(pieces); count];
    holds[0] = Bitfield::all(pieces);
    let all: HashSet<u32> = (0..pieces).collect();
    let offered = match super_seeds {
        true => vec![HashSet::new(); count],
        false => vec![all.clone(); count],
    };
    let random = fastrand::Rng::with_seed(seed);
    let mut swarm = Swarm { holds, up: up.to_vec(), flows: Vec::new(), offered, random };
    let mut seeding = SuperSeeding::new(pieces, PIECE_BYTES, seed);
    for leecher in 1..count {
        seeding.join(PeerKey(leecher as u64), Bitfield::none(pieces), Time::ZERO);
        seeding.serve(PeerKey(leecher as u64), true, Time::ZERO);
    }
    let (mut sent, mut step) = (0.0, 0);
    while !swarm.holds.iter().all(Bitfield::is_full) {
        step += 1;
        assert!(step < 20 * STEPS * u64::from(pieces), "it does not end");
        let now = Time::ZERO + Duration::from_secs_f64(step as f64 / STEPS as f64);
        if super_seeds && seeding.is_over() {
            swarm.offered.fill(all.clone());
        } else if super_seeds {
            for (key, piece) in seeding.offers(PIECE_BYTES, now) {
                swarm.offered[key.0 as usize].insert(piece.0);
            }
        }
        swarm.ask();
        sent += swarm.send();
        for (node, piece) in swarm.arrived() {
            seeding.gained(PeerKey(node as u64), PieceIndex(piece), now);
        }
    }
    Ran { seconds: step as f64 / STEPS as f64, copies: sent / f64::from(pieces) }
}

impl Swarm {
    /// Starts what can be started.
    fn ask(&mut self) {
        let count = self.holds.len();
        let (mut leaving, mut coming) = (vec![0; count], vec![0; count]);
        let mut links = HashSet::new();
        let pieces = self.holds[0].pieces() as usize;
        let at = |to: usize, piece: u32| to * pieces + piece as usize;
        let mut under_way = vec![false; count * pieces];
        for flow in &self.flows {
            leaving[flow.from] += 1;
            coming[flow.to] += 1;
            links.insert((flow.from, flow.to));
            under_way[at(flow.to, flow.piece)] = true;
        }
        let is_open = |from: usize, leaving: &[usize]| from == 0 || leaving[from] < SLOTS;
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for from in (0..count).filter(|from| is_open(*from, &leaving)) {
            // Everybody asks the origin, and some ask each leecher.
            let all = (1..count).filter(|to| from != *to && !self.holds[*to].is_full());
            match from {
                0 => pairs.extend(all.map(|to| (from, to))),
                _ => {
                    let some = self.random.choose_multiple(all, ASKING);
                    pairs.extend(some.into_iter().map(|to| (from, to)));
                }
            }
        }
        self.random.shuffle(&mut pairs);
        let mut holders = vec![0u32; pieces];
        for node in &self.holds[1..] {
            node.iter().for_each(|piece| holders[piece.0 as usize] += 1);
        }
        for (from, to) in pairs {
            let is_busy = links.contains(&(from, to)) || coming[to] >= REQUESTS;
            if is_busy || !is_open(from, &leaving) {
                continue;
            }
            let wanted = self.holds[from].iter().map(|piece| piece.0).filter(|piece| {
                (from > 0 || self.offered[to].contains(piece))
                    && !self.holds[to].contains(PieceIndex(*piece))
                    && !under_way[at(to, *piece)]
            });
            // Among pieces that are as rare, each asks for another one.
            let mix = self.random.u32(..) | 1;
            let rarest =
                wanted.min_by_key(|piece| (holders[*piece as usize], piece.wrapping_mul(mix)));
            if let Some(piece) = rarest {
                leaving[from] += 1;
                coming[to] += 1;
                links.insert((from, to));
                under_way[at(to, piece)] = true;
                self.flows.push(Flow { from, to, piece, left: 1.0 });
            }
        }
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
        for _ in 0..3 {
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
    fn arrived(&mut self) -> Vec<(usize, u32)> {
        let mut arrived = Vec::new();
        self.flows.retain(|flow| {
            let is_done = flow.left < 1e-9;
            if is_done {
                arrived.push((flow.to, flow.piece));
            }
            !is_done
        });
        for (to, piece) in &arrived {
            self.holds[*to].insert(PieceIndex(*piece));
        }
        arrived
    }
}

/// The time that nobody beats: the origin's link, and all links together.
fn bound(pieces: u32, up: &[f64]) -> f64 {
    let (pieces, leechers) = (f64::from(pieces), (up.len() - 1) as f64);
    (pieces / up[0]).max(pieces).max(pieces * leechers / up.iter().sum::<f64>())
}

#[track_caller]
fn is_within(pieces: u32, up: &[f64], seeds: u64, time_max: f64, copies_max: f64) {
    for seed in 1..=seeds {
        let ran = run(pieces, up, true, seed);
        let plain = run(pieces, up, false, seed);
        let time = ran.seconds / bound(pieces, up);
        let plain_time = plain.seconds / bound(pieces, up);
        println!(
            "{} leechers, {pieces} pieces, seed {seed}: {time:.3} × bound, {:.2} copies; without \
             super-seeding {plain_time:.3} × bound, {:.2} copies",
            up.len() - 1,
            ran.copies,
            plain.copies
        );
        assert!(time <= time_max && ran.copies <= copies_max, "{time} {}", ran.copies);
        assert!(time <= plain_time * 1.05, "it slows the swarm: {plain_time}");
    }
}

#[test]
fn eight_sites_get_a_dataset_of_which_the_origin_sends_one_copy() {
    is_within(512, &[1.0; 9], 3, 1.25, 1.3);
}

#[test]
fn a_hundred_sites_get_it_of_less_than_two_copies() {
    // The bound needs all links to be busy from the start, which a piece for each site cannot do.
    is_within(100, &[1.0; 101], 1, 2.2, 2.0);
}

#[test]
fn slow_sites_do_not_hold_up_the_others() {
    let mut up = vec![1.0; 9];
    up[1..4].fill(0.2);
    is_within(256, &up, 3, 1.4, 1.6);
}
