//! Time passes in a swarm: members come and go, uplinks carry, planners decide.

use std::collections::BTreeMap;
use std::fmt;

use swath_model::{Range, RangeSet, Time};
use swath_plan::{Config, Lanes, PickerKind};

use super::member::Member;

/// A swarm to simulate.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// How many members come, the origin not counted.
    pub members: u32,
    /// Over how long they come, in seconds.
    pub arrivals_s: f64,
    /// How many others each of them is told of.
    pub acquaintances: usize,
    /// The file, in pieces: a piece is passed on once it is whole.
    pub pieces: u64,
    /// Length of a piece in bytes.
    pub piece_bytes: u64,
    /// The origin's uplink, bytes per second.
    pub origin_bytes_per_s: f64,
    /// Every other member's.
    pub member_bytes_per_s: f64,
    /// When the origin leaves, in seconds.
    pub origin_leaves_s: f64,
    /// How long a member stays once it has everything, in seconds.
    pub stays_s: f64,
    /// Which part of the members leaves before it has everything, within `stays_s` of coming.
    pub leaves_early: f64,
    /// How many pieces a second a member drops again, so that it cannot pass them on.
    pub drops_per_s: f64,
    /// In which order they fetch.
    pub picker: PickerKind,
    /// Seed of every random draw.
    pub seed: u64,
    /// Most virtual seconds that it may take.
    pub limit_s: f64,
}

/// What became of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Members that got everything.
    pub finished: u32,
    /// Members that left before they had everything, as they were to.
    pub left: u32,
    /// Members that were still waiting at the end.
    pub waiting: u32,
    /// How long it took a member to get everything, on average, in seconds.
    pub mean_s: f64,
    /// And the last one.
    pub worst_s: f64,
    /// What the origin sent, in copies of the file.
    pub origin_copies: f64,
    /// Most sources that one planner kept at a time.
    pub sources_peak: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} finished in {:.1} s on average and {:.1} s at most, {} left, {} wait; the origin sent {:.2} copies; at most {} sources",
            self.finished,
            self.mean_s,
            self.worst_s,
            self.left,
            self.waiting,
            self.origin_copies,
            self.sources_peak
        )
    }
}

impl Default for Swarm {
    fn default() -> Self {
        Self {
            members: 20,
            arrivals_s: 0.0,
            acquaintances: 10,
            pieces: 32,
            piece_bytes: 256 << 10,
            origin_bytes_per_s: 1e6,
            member_bytes_per_s: 1e6,
            origin_leaves_s: f64::INFINITY,
            stays_s: 10.0,
            leaves_early: 0.0,
            drops_per_s: 0.0,
            picker: PickerKind::RarestFirst,
            seed: 1,
            limit_s: 600.0,
        }
    }
}

impl Swarm {
    /// Simulates it.
    ///
    /// # Errors
    /// A rule that a planner broke.
    pub fn run(&self) -> Result<Outcome, String> {
        World::new(self).run()
    }

    fn size_bytes(&self) -> u64 {
        self.pieces * self.piece_bytes
    }

    fn config(&self, seed: u64) -> Config {
        Config {
            picker: self.picker,
            lanes: Lanes::Fixed(1),
            max_sources: UPLOADERS,
            grid_bytes: self.piece_bytes,
            seed,
            ..Config::default()
        }
    }
}

struct World<'a> {
    swarm: &'a Swarm,
    now: Time,
    rng: fastrand::Rng,
    members: BTreeMap<u32, Member>,
    arrivals: Vec<f64>,
    times_s: Vec<f64>,
    left: u32,
    origin_bytes: u64,
    sources_peak: usize,
}

impl<'a> World<'a> {
    fn new(swarm: &'a Swarm) -> Self {
        let mut rng = fastrand::Rng::with_seed(swarm.seed);
        let mut arrivals: Vec<f64> =
            (0..swarm.members).map(|_| swarm.arrivals_s * rng.f64()).collect();
        arrivals.sort_by(|a, b| b.total_cmp(a));
        let size_bytes = swarm.size_bytes();
        let mut origin = Member::new(
            swarm.config(swarm.seed),
            size_bytes,
            RangeSet::full(size_bytes),
            swarm.piece_bytes,
        );
        origin.uplink_bytes_per_s = swarm.origin_bytes_per_s;
        if swarm.origin_leaves_s.is_finite() {
            origin.leaves_at = Time::from_secs_f64(swarm.origin_leaves_s);
        }
        Self {
            swarm,
            now: Time::ZERO,
            rng,
            members: BTreeMap::from([(ORIGIN, origin)]),
            arrivals,
            times_s: Vec::new(),
            left: 0,
            origin_bytes: 0,
            sources_peak: 0,
        }
    }

    fn run(mut self) -> Result<Outcome, String> {
        let mut step = 0u64;
        loop {
            self.come();
            self.go();
            self.drop_pieces();
            self.carry();
            self.act()?;
            if step.is_multiple_of(AUDIT_STEPS) {
                self.audit()?;
            }
            let is_over = self.arrivals.is_empty() && self.waiting() == 0;
            if is_over || self.now.as_secs_f64() > self.swarm.limit_s {
                return Ok(self.conclude());
            }
            step += 1;
            self.now = Time::from_secs_f64(step as f64 * STEP_S);
        }
    }

    fn waiting(&self) -> u32 {
        self.members.values().filter(|member| member.done_at.is_none()).count() as u32
    }

    fn come(&mut self) {
        while self.arrivals.last().is_some_and(|&at_s| at_s <= self.now.as_secs_f64()) {
            self.arrivals.pop();
            let number = self.swarm.members - self.arrivals.len() as u32;
            let seed = self.rng.u64(..);
            let mut new = Member::new(
                self.swarm.config(seed),
                self.swarm.size_bytes(),
                RangeSet::new(),
                self.swarm.piece_bytes,
            );
            new.uplink_bytes_per_s = self.swarm.member_bytes_per_s;
            new.came_at = self.now;
            if self.rng.f64() < self.swarm.leaves_early {
                new.leaves_at = self.now.plus_secs(self.swarm.stays_s * self.rng.f64());
            }
            let mut others: Vec<u32> = self.members.keys().copied().collect();
            self.rng.shuffle(&mut others);
            others.truncate(self.swarm.acquaintances);
            for other in others {
                let Some(known) = self.members.get_mut(&other) else { continue };
                new.meet(other, &known.serves, self.now);
                known.meet(number, &new.serves, self.now);
            }
            self.members.insert(number, new);
        }
    }

    fn go(&mut self) {
        let now = self.now;
        let leaving: Vec<u32> = self
            .members
            .iter()
            .filter(|(_, member)| member.leaves_at <= now)
            .map(|(&number, _)| number)
            .collect();
        for number in leaving {
            let Some(gone) = self.members.remove(&number) else { continue };
            self.left += u32::from(gone.done_at.is_none());
            for other in gone.known {
                if let Some(other) = self.members.get_mut(&other) {
                    other.part(number, now);
                }
            }
        }
    }

    fn drop_pieces(&mut self) {
        let numbers: Vec<u32> = self.members.keys().copied().filter(|&it| it != ORIGIN).collect();
        for number in numbers {
            if self.rng.f64() >= self.swarm.drops_per_s * STEP_S {
                continue;
            }
            let piece = self.rng.u64(..self.swarm.pieces) * self.swarm.piece_bytes;
            let range = Range::of_len(piece, self.swarm.piece_bytes);
            let Some(member) = self.members.get_mut(&number) else { continue };
            if member.serves.remove(range) == 0 {
                continue;
            }
            for other in member.known.clone() {
                if let Some(other) = self.members.get_mut(&other) {
                    other.refused(number, range, self.now);
                }
            }
        }
    }

    fn carry(&mut self) {
        let mut served: BTreeMap<u32, u64> = BTreeMap::new();
        for lane in self.members.values().flat_map(|it| it.lanes.values()).filter(|it| it.is_busy())
        {
            *served.entry(lane.to).or_default() += 1;
        }
        let share = |(number, lanes): (u32, u64)| {
            let uplink = self.members.get(&number).map_or(0.0, |it| it.uplink_bytes_per_s);
            (number, (uplink * STEP_S) as u64 / lanes)
        };
        let shares: BTreeMap<u32, u64> = served.into_iter().map(share).collect();
        let mut news = Vec::new();
        for (&number, member) in &mut self.members {
            let (came, whole) = member.receive(&shares, self.now);
            self.origin_bytes +=
                came.iter().filter(|it| it.0 == ORIGIN).map(|it| it.1).sum::<u64>();
            for &piece in &whole {
                member.serves.insert(piece);
            }
            news.push((number, whole));
        }
        for (number, whole) in news {
            let Some(known) = self.members.get(&number).map(|it| it.known.clone()) else {
                continue;
            };
            for other in known {
                let Some(other) = self.members.get_mut(&other) else { continue };
                for &range in &whole {
                    other.has(number, range, self.now);
                }
            }
        }
    }

    fn act(&mut self) -> Result<(), String> {
        let mut requests = Vec::new();
        for (&number, member) in &mut self.members {
            let was_done = member.done_at.is_some();
            for (to, range) in member.act(self.now) {
                requests.push((number, to, range));
            }
            if let Some(done_at) = member.done_at.filter(|_| !was_done) {
                self.times_s.push(done_at.secs_since(member.came_at));
                member.leaves_at = done_at.plus_secs(self.swarm.stays_s);
            }
        }
        for (from, to, range) in requests {
            let serves = self.members.get(&to).map(|it| &it.serves);
            if !serves.is_some_and(|serves| serves.covers(range)) {
                return Err(format!("{from} asked {to} for {range}, which it does not have"));
            }
        }
        Ok(())
    }

    fn audit(&mut self) -> Result<(), String> {
        for member in self.members.values() {
            let books = member.planner.audit()?;
            if books.sources != member.known.len() {
                return Err(format!("{books:?}, but {} are known", member.known.len()));
            }
            self.sources_peak = self.sources_peak.max(books.sources);
        }
        Ok(())
    }

    fn conclude(self) -> Outcome {
        let finished = self.times_s.len() as u32;
        Outcome {
            finished,
            left: self.left,
            waiting: self.waiting(),
            mean_s: self.times_s.iter().sum::<f64>() / f64::from(finished.max(1)),
            worst_s: self.times_s.iter().copied().fold(0.0, f64::max),
            origin_copies: self.origin_bytes as f64 / self.swarm.size_bytes() as f64,
            sources_peak: self.sources_peak,
        }
    }
}

/// The number of the origin.
const ORIGIN: u32 = 0;
/// Length of a step in seconds.
const STEP_S: f64 = 0.1;
/// So many others each member fetches from at a time.
const UPLOADERS: usize = 6;
/// How often all books are looked through.
const AUDIT_STEPS: u64 = 40;
