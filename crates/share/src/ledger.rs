//! Which node fetches what from the origin: the books of one node, without clock and sockets.
//!
//! A node claims units before it fetches them from the origin, and takes what others hold or claim from
//! them. Claims are read by all others before they count, so that two nodes seldom fetch the same unit.
//! If two claim one unit at the same time, both know whose claim stands. A claim that comes to nothing
//! for much longer than usual may be taken over.
//!
//! The node that fetched a unit from the origin vouches for its hash. A unit that comes from others must
//! have the hash that is vouched for; two hashes for one unit are settled by the origin. Whoever vouched
//! wrongly is banned, or whoever says so of a node that does not say it itself.
//!
//! What others hold may come slowly, or not at all. If it does, the origin is asked for that, too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use swath_model::{Range, RangeSet, Time};
use swath_transfer::{CameFrom, Judgement};

use crate::log::{Entry, NodeId, Vouch};
use crate::units::{Unit, Units};

/// The books of a node on one content.
#[derive(Debug)]
pub struct Ledger {
    units: Units,
    count: Unit,
    me: NodeId,
    /// Units that are here and verified.
    here: Flags,
    /// The hashes of units.
    vouched: Vec<Vouched>,
    /// How many others hold each unit, and how many claim it.
    held: Vec<u16>,
    claimed: Vec<u16>,
    others: BTreeMap<NodeId, Other>,
    /// Nodes that vouched for wrong hashes or sent wrong bytes.
    banned: BTreeSet<NodeId>,
    /// Nodes that were banned, until somebody asks.
    news_banned: Vec<NodeId>,
    claims: BTreeMap<Unit, Claim>,
    /// Where the last claim ends.
    next: Unit,
    /// When the first turn was.
    began: Option<Time>,
    /// How long a claim usually takes.
    usual: Option<Duration>,
    /// When units came from the origin, and from others, in the last moments.
    came: VecDeque<Time>,
    passed: VecDeque<Time>,
    /// The best rate at which units came from the origin, per second.
    origin_per_s: f64,
    /// Since when each unit can be had from others.
    obtainable_since: Vec<Option<Time>>,
    /// Everything is here, and is only being hashed: nothing is claimed.
    is_whole: bool,
    log: Vec<Entry>,
    /// The digest of the whole is wrong: everything may be fetched from the origin, nothing from others.
    is_refuted: bool,
    rng: fastrand::Rng,
}

/// What is known of another node.
#[derive(Debug)]
struct Other {
    held: Flags,
    claims: BTreeMap<Unit, Time>,
    /// How many entries of our log it has read, and when it last asked.
    read: Option<(u64, Time)>,
    /// How many entries of its log we have read.
    told: u64,
}

/// The hash of a unit.
#[derive(Clone, Copy, Debug)]
enum Vouched {
    /// Nobody has told one.
    Nobody,
    By(Told),
    /// These two told different ones.
    Disputed(Told, Told),
}

/// A hash, and the node that told it: the one that vouches, or one that passes that on.
#[derive(Clone, Copy, Debug)]
struct Told {
    vouch: Vouch,
    teller: NodeId,
}

/// Our claim on a unit.
#[derive(Clone, Copy, Debug)]
struct Claim {
    since: Time,
    /// The length of our log with it.
    log_length: u64,
    /// Whether others know of it, so that it may be fetched.
    counts: bool,
}

/// A flag for each unit.
#[derive(Debug)]
struct Flags {
    words: Vec<u64>,
    set: Unit,
}

impl Ledger {
    /// Opens books for a content of `count` units.
    pub fn new(units: Units, count: Unit, me: NodeId, seed: u64) -> Ledger {
        let mut rng = fastrand::Rng::with_seed(seed);
        let all = count as usize;
        Ledger {
            units,
            count,
            me,
            here: Flags::none(count),
            vouched: vec![Vouched::Nobody; all],
            held: vec![0; all],
            claimed: vec![0; all],
            others: BTreeMap::new(),
            banned: BTreeSet::new(),
            news_banned: Vec::new(),
            claims: BTreeMap::new(),
            next: rng.u32(..count.max(1)),
            began: None,
            usual: None,
            came: VecDeque::new(),
            passed: VecDeque::new(),
            origin_per_s: 0.0,
            obtainable_since: vec![None; all],
            is_whole: false,
            log: Vec::new(),
            is_refuted: false,
            rng,
        }
    }

    /// Returns our log from this entry on, at most `most` entries.
    pub fn log(&self, from: u64, most: usize) -> &[Entry] {
        let from = usize::try_from(from).map_or(self.log.len(), |from| from.min(self.log.len()));
        &self.log[from..self.log.len().min(from + most)]
    }

    /// Returns the number of entries of our log.
    pub fn log_length(&self) -> u64 {
        self.log.len() as u64
    }

    /// Another node asks for our log from this entry on: it has read those before.
    pub fn was_read(&mut self, by: NodeId, from: u64, now: Time) {
        if let Some(other) = self.others.get_mut(&by) {
            other.read = Some((from, now));
        }
    }

    /// Takes in what another node says; it begins with an empty log. `false` for one that is banned.
    pub fn hear(&mut self, from: NodeId, entries: &[Entry], now: Time) -> bool {
        if self.banned.contains(&from) || from == self.me {
            return false;
        }
        let count = self.count;
        let was_alone = self.others.is_empty();
        self.others.entry(from).or_insert_with(|| Other {
            held: Flags::none(count),
            claims: BTreeMap::new(),
            read: None,
            told: 0,
        });
        let most = u64::from(count) * ENTRIES_A_UNIT_MAX + ENTRIES_LEAST;
        if let Some(other) = self.others.get_mut(&from) {
            other.told += entries.len() as u64;
            if other.told > most {
                self.ban(from);
                return false;
            }
        }
        if was_alone {
            self.leave_some();
        }
        for &entry in entries {
            match entry {
                Entry::Claimed(unit) if unit < self.count => self.hear_claim(from, unit, now),
                Entry::Released(unit) => self.hear_release(from, unit),
                Entry::Held(unit, vouch) if unit < self.count => {
                    self.hear_held(from, unit, vouch, now);
                }
                Entry::Claimed(_) | Entry::Held(..) => {}
                Entry::Cleared => self.clear_other(from),
            }
        }
        true
    }

    /// Somebody has come: what was claimed while nobody else was there is left to all, but for the oldest
    /// claims, which are being fetched.
    fn leave_some(&mut self) {
        let mut claims: Vec<(Time, Unit)> =
            self.claims.iter().map(|(&unit, claim)| (claim.since, unit)).collect();
        claims.sort_unstable();
        claims.drain(..claims.len().min(self.claims_wanted(false)));
        claims.into_iter().for_each(|(_, unit)| self.release(unit));
    }

    fn hear_claim(&mut self, from: NodeId, unit: Unit, now: Time) {
        let Some(other) = self.others.get_mut(&from) else { return };
        if other.claims.len() < CLAIMS_OF_ONE_MAX && other.claims.insert(unit, now).is_none() {
            self.claimed[unit as usize] += 1;
        }
        if self.claims.contains_key(&unit) && rank(unit, from) < rank(unit, self.me) {
            self.release(unit);
        }
    }

    fn hear_release(&mut self, from: NodeId, unit: Unit) {
        let Some(other) = self.others.get_mut(&from) else { return };
        if other.claims.remove(&unit).is_some() {
            self.claimed[unit as usize] -= 1;
        }
    }

    fn hear_held(&mut self, from: NodeId, unit: Unit, vouch: Vouch, now: Time) {
        self.hear_release(from, unit);
        if self.banned.contains(&vouch.by) {
            return;
        }
        let Some(other) = self.others.get_mut(&from) else { return };
        if other.held.insert(unit) {
            self.held[unit as usize] += 1;
        }
        self.obtainable_since[unit as usize].get_or_insert(now);
        let told = Told { vouch, teller: from };
        let vouched = &mut self.vouched[unit as usize];
        match *vouched {
            Vouched::Nobody => *vouched = Vouched::By(told),
            Vouched::By(known) if known.vouch.hash != vouch.hash => {
                self.disputed(unit, known, told);
            }
            // What the node itself says counts more than what is said of it.
            Vouched::By(known) if vouch.by == from && known.vouch.by == from => {
                *vouched = Vouched::By(told);
            }
            Vouched::By(_) | Vouched::Disputed(..) => {}
        }
        // Unless it is being fetched already, it is taken from there.
        if self.claims.get(&unit).is_some_and(|claim| !claim.counts) {
            self.release(unit);
        }
    }

    /// Two hashes are told of one unit. If it is here from the origin, we know who is wrong.
    fn disputed(&mut self, unit: Unit, known: Told, told: Told) {
        match known.vouch.by == self.me {
            true => self.ban_for(told),
            false => self.vouched[unit as usize] = Vouched::Disputed(known, told),
        }
    }

    /// Bans the node that is to blame for a wrong hash.
    fn ban_for(&mut self, wrong: Told) {
        let Told { vouch, teller } = wrong;
        // If the node that is said to vouch for it is here, it would have said so itself.
        if teller == vouch.by || self.others.contains_key(&vouch.by) || vouch.by == self.me {
            self.ban(teller);
        }
    }

    fn clear_other(&mut self, node: NodeId) {
        let Some(other) = self.others.get_mut(&node) else { return };
        for unit in std::mem::take(&mut other.claims).into_keys() {
            self.claimed[unit as usize] -= 1;
        }
        let held = std::mem::replace(&mut other.held, Flags::none(self.count));
        held.iter().for_each(|unit| self.held[unit as usize] -= 1);
    }

    /// This node has gone.
    pub fn gone(&mut self, node: NodeId) {
        self.clear_other(node);
        self.others.remove(&node);
    }

    /// This node vouched for a wrong hash, or sent wrong bytes: nothing that it says counts.
    pub fn ban(&mut self, node: NodeId) {
        if node == self.me || !self.banned.insert(node) {
            return;
        }
        self.news_banned.push(node);
        self.gone(node);
        for vouched in &mut self.vouched {
            *vouched = match *vouched {
                Vouched::By(told) if told.is_of(node) => Vouched::Nobody,
                Vouched::Disputed(one, other) if one.is_of(node) && other.is_of(node) => {
                    Vouched::Nobody
                }
                Vouched::Disputed(one, other) if one.is_of(node) => Vouched::By(other),
                Vouched::Disputed(one, other) if other.is_of(node) => Vouched::By(one),
                same => same,
            };
        }
    }

    /// Returns the nodes that were banned since the last call.
    pub fn newly_banned(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.news_banned)
    }

    /// Returns whether a node is banned.
    pub fn is_banned(&self, node: NodeId) -> bool {
        self.banned.contains(&node)
    }

    /// Bans the nodes that vouched for any of these bytes, which are wrong.
    pub fn ban_vouchers(&mut self, range: Range) {
        for unit in self.units.around(range) {
            match self.vouched.get(unit as usize) {
                Some(&Vouched::By(told)) => self.ban_for(told),
                Some(&Vouched::Disputed(one, other)) => {
                    self.ban_for(one);
                    self.ban_for(other);
                }
                _ => {}
            }
        }
    }

    /// Judges a unit that has come whole. The origin is right.
    pub fn judge(&mut self, unit: Unit, hash: [u8; 32], from: CameFrom) -> Judgement {
        let Some(vouched) = self.vouched.get_mut(unit as usize) else { return Judgement::Unknown };
        let (told, is_disputed): (Vec<Told>, bool) = match *vouched {
            Vouched::Nobody => (Vec::new(), false),
            Vouched::By(told) => (vec![told], false),
            Vouched::Disputed(one, other) => (vec![one, other], true),
        };
        let is_told = !is_disputed && told.iter().any(|told| told.vouch.hash == hash);
        match from {
            _ if is_told => return Judgement::Right,
            CameFrom::Found if !is_disputed && !told.is_empty() => return Judgement::Wrong,
            CameFrom::Mixed => {
                // Either is wrong: all of it is to come from the origin.
                if let (false, Some(&told)) = (is_disputed, told.first()) {
                    *vouched = Vouched::Disputed(told, told);
                }
                return Judgement::Unknown;
            }
            CameFrom::Found => return Judgement::Unknown,
            // Nobody is to blame: who delivered it is not known.
            CameFrom::EarlierRun if !told.is_empty() => return Judgement::Unknown,
            CameFrom::EarlierRun | CameFrom::Named => {}
        }
        *vouched = Vouched::By(Told { vouch: Vouch { hash, by: self.me }, teller: self.me });
        told.into_iter().filter(|told| told.vouch.hash != hash).for_each(|told| self.ban_for(told));
        Judgement::Right
    }

    /// These bytes are verified. Returns the units among them whose hash nobody has told: they are to be
    /// hashed and judged, and then told of again.
    pub fn verified(&mut self, whole: &RangeSet, new: Range, now: Time) -> Vec<Unit> {
        let mut unknown = Vec::new();
        for unit in self.units.around(new) {
            if self.here.has(unit) || !whole.covers(self.units.range(unit)) {
                continue;
            }
            let Some(&Vouched::By(told)) = self.vouched.get(unit as usize) else {
                unknown.push(unit);
                continue;
            };
            self.here.insert(unit);
            match self.claims.remove(&unit) {
                Some(claim) => {
                    let took = now.since(claim.since);
                    self.usual = Some(self.usual.map_or(took, |usual| (usual * 7 + took) / 8));
                    self.came.push_back(now);
                }
                None => self.passed.push_back(now),
            }
            self.log.push(Entry::Held(unit, told.vouch));
        }
        unknown
    }

    /// The transfer begins again, with nothing.
    pub fn clear(&mut self) {
        self.here = Flags::none(self.count);
        self.claims.clear();
        self.came.clear();
        self.passed.clear();
        self.is_whole = false;
        if !self.log.is_empty() {
            self.log.push(Entry::Cleared);
        }
    }

    /// All of the content is here, and will be told of unit by unit: nothing is to be fetched.
    pub fn is_whole(&mut self) {
        self.is_whole = true;
    }

    /// The digest of the whole is wrong. From now on everything comes from the origin, and nobody is told
    /// to take anything from here.
    pub fn refuted(&mut self) {
        self.is_refuted = true;
        self.log.push(Entry::Cleared);
    }

    /// Does what is due: gives up old claims, makes new ones. Call it several times a second.
    pub fn turn(&mut self, now: Time) {
        if self.is_refuted || self.is_whole {
            return;
        }
        while self.came.front().is_some_and(|&came| now.since(came) > RATE_OVER) {
            self.came.pop_front();
        }
        while self.passed.front().is_some_and(|&passed| now.since(passed) > RATE_OVER) {
            self.passed.pop_front();
        }
        self.origin_per_s = self.origin_per_s.max(per_s(&self.came));
        let patience = self.patience();
        let stale: Vec<Unit> = self
            .claims
            .iter()
            .filter(|(unit, claim)| {
                now.since(claim.since) > patience && self.held[**unit as usize] > 0
            })
            .map(|(&unit, _)| unit)
            .collect();
        stale.into_iter().for_each(|unit| self.release(unit));
        self.count_claims(now);
        let began = *self.began.get_or_insert(now);
        // Others may have most of it.
        if self.others.is_empty() && now.since(began) < ALONE_AFTER {
            return;
        }
        let is_slow =
            self.are_others_slow() && (0..self.count).any(|unit| self.is_waited_for(unit, now));
        while self.claims.len() < self.claims_wanted(is_slow)
            && let Some(unit) = self.unit_to_claim(now, patience, is_slow)
        {
            self.log.push(Entry::Claimed(unit));
            let log_length = self.log_length();
            self.claims.insert(unit, Claim { since: now, log_length, counts: false });
            self.next = (unit + 1) % self.count;
        }
        self.count_claims(now);
    }

    /// Claims count once all others have read them, or have had time to.
    fn count_claims(&mut self, now: Time) {
        let readers = self.others.values().filter_map(|other| other.read);
        let live = readers.filter(|&(_, at)| now.since(at) < READER_GONE);
        let read = live.map(|(read, _)| read).min().unwrap_or(u64::MAX);
        for claim in self.claims.values_mut() {
            claim.counts |= claim.log_length <= read || now.since(claim.since) > READ_WITHIN;
        }
    }

    fn release(&mut self, unit: Unit) {
        if self.claims.remove(&unit).is_some() {
            self.log.push(Entry::Released(unit));
        }
    }

    /// Returns how many units are to be claimed at a time: as many as come until new claims count.
    /// `is_slow` says that others deliver too slowly.
    fn claims_wanted(&self, is_slow: bool) -> usize {
        let per_s = per_s(&self.came);
        let (ahead_s, least_bytes) = match self.others.is_empty() {
            true => (ALONE_AHEAD_S, ALONE_LEAST_BYTES),
            false => (AHEAD_S, 0),
        };
        let mut least = (least_bytes / self.units.unit_bytes()) as usize;
        if is_slow {
            // Some of them are on their way from others already, and take long.
            least = least.max(CLAIMS_BESIDE_SLOW);
        }
        ((per_s * ahead_s) as usize + CLAIMS_LEAST).max(least)
    }

    /// Returns how long a claim may take before somebody else may fetch the unit.
    fn patience(&self) -> Duration {
        self.usual.map_or(PATIENCE_AT_FIRST, |usual| usual * 4).clamp(PATIENCE_LEAST, PATIENCE_MOST)
    }

    /// Returns the unit behind the last claim if it is free, else a free one at random; without any, one
    /// whose claim has come to nothing.
    fn unit_to_claim(&mut self, now: Time, patience: Duration, is_slow: bool) -> Option<Unit> {
        if self.here.set == self.count {
            return None;
        }
        if self.is_free(self.next) {
            return Some(self.next);
        }
        let start = self.rng.u32(..self.count);
        let around = (start..self.count).chain(0..start);
        let is_overdue = |unit: &Unit| {
            let is_old = |other: &Other| {
                other.claims.get(unit).is_none_or(|&since| now.since(since) > patience)
            };
            self.is_lacking(*unit) && self.others.values().all(is_old)
        };
        let mut free = around.clone();
        let (mut overdue, mut waited_for) = (around.clone(), around);
        free.find(|&unit| self.is_free(unit))
            .or_else(|| overdue.find(is_overdue))
            .or_else(|| waited_for.find(|&unit| is_slow && self.is_waited_for(unit, now)))
    }

    /// Returns whether others hold a unit, and do not deliver it.
    fn is_waited_for(&self, unit: Unit, now: Time) -> bool {
        let since = self.obtainable_since[unit as usize];
        let is_ours = self.here.has(unit) || self.claims.contains_key(&unit);
        !is_ours && since.is_some_and(|since| now.since(since) > OTHERS_PATIENCE)
    }

    /// Returns whether what others hold comes much more slowly than from the origin, as far as that is
    /// known, and would take long.
    fn are_others_slow(&self) -> bool {
        let passed_per_s = per_s(&self.passed);
        let left = f64::from(self.count - self.here.set);
        let is_long = left > passed_per_s * OTHERS_LONG_S;
        is_long && (self.origin_per_s == 0.0 || passed_per_s < self.origin_per_s / OTHERS_SLOWER)
    }

    /// Returns whether only the origin has a unit, as far as is known, and nobody fetches it.
    fn is_free(&self, unit: Unit) -> bool {
        self.is_lacking(unit) && self.claimed[unit as usize] == 0
    }

    /// Returns whether only the origin has a unit, as far as is known.
    fn is_lacking(&self, unit: Unit) -> bool {
        let is_obtainable =
            self.held[unit as usize] > 0 && matches!(self.vouched[unit as usize], Vouched::By(_));
        !self.here.has(unit) && !self.claims.contains_key(&unit) && !is_obtainable
    }

    /// Returns what may be fetched from the origin.
    pub fn of_origin(&self) -> RangeSet {
        if self.is_refuted {
            return RangeSet::full(self.units.size_bytes());
        }
        let counting = self.claims.iter().filter(|(_, claim)| claim.counts);
        self.units.ranges(counting.map(|(&unit, _)| unit))
    }

    /// Returns what may be fetched from this node: what is here already is left out, so that the planner
    /// has little to look at.
    pub fn of_other(&self, node: NodeId) -> RangeSet {
        let Some(other) = self.others.get(&node).filter(|_| !self.is_refuted) else {
            return RangeSet::new();
        };
        let is_obtainable = |unit: &Unit| {
            matches!(self.vouched[*unit as usize], Vouched::By(_))
                && !self.claims.contains_key(unit)
        };
        self.units.ranges(other.held.iter_without(&self.here).filter(is_obtainable))
    }

    /// Returns whether all these bytes are here and verified.
    pub fn has(&self, range: Range) -> bool {
        range.end <= self.units.size_bytes()
            && !self.is_refuted
            && self.units.around(range).all(|unit| self.here.has(unit))
    }

    /// Returns how many other nodes lack something, and how many units they have together.
    pub fn others_lack(&self) -> (usize, u64) {
        let lacking = self.others.values().filter(|other| other.held.set < self.count).count();
        (lacking, self.others.values().map(|other| u64::from(other.held.set)).sum())
    }
}

impl Flags {
    fn none(count: Unit) -> Flags {
        Flags { words: vec![0; count.div_ceil(64) as usize], set: 0 }
    }

    fn has(&self, unit: Unit) -> bool {
        self.words.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// Sets a flag; whether it was not set.
    fn insert(&mut self, unit: Unit) -> bool {
        let is_new = !self.has(unit);
        if let Some(word) = self.words.get_mut(unit as usize / 64) {
            *word |= 1 << (unit % 64);
            self.set += u32::from(is_new);
        }
        is_new
    }

    fn iter(&self) -> impl Iterator<Item = Unit> + '_ {
        units_of(self.words.iter().copied())
    }

    /// Iterates over those that are not set in `other`.
    fn iter_without<'a>(&'a self, other: &'a Flags) -> impl Iterator<Item = Unit> + 'a {
        units_of(self.words.iter().zip(&other.words).map(|(own, other)| own & !other))
    }
}

fn units_of(words: impl Iterator<Item = u64>) -> impl Iterator<Item = Unit> {
    let of_word = |(at, word): (usize, u64)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as Unit * 64 + bit)
    };
    words.enumerate().filter(|(_, word)| *word != 0).flat_map(of_word)
}

impl Told {
    /// Whether the node vouched for it, or told it.
    fn is_of(&self, node: NodeId) -> bool {
        self.vouch.by == node || self.teller == node
    }
}

/// Returns how many of these times there are in a second.
fn per_s(times: &VecDeque<Time>) -> f64 {
    times.len() as f64 / RATE_OVER.as_secs_f64()
}

/// Orders the claims of nodes on a unit, in another order for each unit: the lowest stands.
fn rank(unit: Unit, node: NodeId) -> u64 {
    let [a, b] = [0, 8].map(|at| {
        let mut half = [0; 8];
        half.copy_from_slice(&node.0[at..at + 8]);
        u64::from_be_bytes(half)
    });
    mixed(mixed(u64::from(unit) ^ a).wrapping_add(b))
}

/// The finalizer of MurmurHash3, which spreads any difference over all bits.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ (bits >> 33)
}

/// Claims are read within a fraction of this where nodes are well.
const READ_WITHIN: Duration = Duration::from_millis(500);
/// Whoever has not asked for so long is not waited for.
const READER_GONE: Duration = Duration::from_secs(2);
/// Claims reach so far ahead: more than they take to be read.
const AHEAD_S: f64 = 0.6;
/// Whoever has heard of nobody by then begins alone.
const ALONE_AFTER: Duration = Duration::from_millis(400);
/// Without others there is no need to leave anything to them.
const ALONE_AHEAD_S: f64 = 4.0;
const ALONE_LEAST_BYTES: u64 = 32 << 20;
/// What others hold is waited for so long, whatever comes of it.
const OTHERS_PATIENCE: Duration = Duration::from_secs(4);
/// What takes less than this from others is not worth another copy from the origin, …
const OTHERS_LONG_S: f64 = 10.0;
/// … nor what it would not bring so many times faster.
const OTHERS_SLOWER: f64 = 4.0;
/// An honest log has a claim and a unit for each unit, and some claims that came to nothing.
const ENTRIES_A_UNIT_MAX: u64 = 16;
const ENTRIES_LEAST: u64 = 10_000;
/// One is being fetched, one is being read by others.
const CLAIMS_LEAST: usize = 2;
/// More than others deliver at a time.
const CLAIMS_BESIDE_SLOW: usize = 32;
/// More claims of one node are not kept.
const CLAIMS_OF_ONE_MAX: usize = 65_536;
/// The rate is measured over this time.
const RATE_OVER: Duration = Duration::from_secs(2);
const PATIENCE_AT_FIRST: Duration = Duration::from_secs(5);
const PATIENCE_LEAST: Duration = Duration::from_secs(2);
const PATIENCE_MOST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: Unit = 400;

    fn node(number: u8) -> NodeId {
        // Spread, as random ids are.
        NodeId([number.wrapping_mul(151); 16])
    }

    fn hash(unit: Unit) -> [u8; 32] {
        let mut hash = [7; 32];
        hash[..4].copy_from_slice(&unit.to_le_bytes());
        hash
    }

    fn ledger(number: u8) -> Ledger {
        let units = Units::of(u64::from(UNITS) * (256 << 10));
        Ledger::new(units, UNITS, node(number), u64::from(number))
    }

    fn in_ranges(ranges: &RangeSet) -> Vec<Unit> {
        ranges.iter().flat_map(|range| Units::of(100 << 20).around(range)).collect()
    }

    fn comes(
        ledger: &mut Ledger,
        verified: &mut RangeSet,
        unit: Unit,
        hash: [u8; 32],
        now: Time,
    ) -> bool {
        let from = match ledger.claims.contains_key(&unit) {
            true => CameFrom::Named,
            false => CameFrom::Found,
        };
        if ledger.judge(unit, hash, from) != Judgement::Right {
            return false;
        }
        let range = ledger.units.range(unit);
        verified.insert(range);
        assert!(ledger.verified(verified, range, now).is_empty());
        true
    }

    /// What a cluster came to.
    #[derive(Debug)]
    struct Outcome {
        /// Units that the origin sent, and when the last node was done.
        sent: u32,
        took_s: f64,
    }

    /// Runs nodes that fetch one content, in steps of 50 ms; the origin sends `per_step` units a step to
    /// all of them together, each node takes at most 8 from others. A node joins when its time has come, and
    /// one may leave.
    fn cluster(
        nodes: u8,
        per_step: f64,
        joins_s: impl Fn(u8) -> f64,
        leaves: Option<(u8, f64)>,
    ) -> Outcome {
        let mut all: Vec<Ledger> = (0..nodes).map(ledger).collect();
        let mut verified = vec![RangeSet::new(); nodes as usize];
        let mut read = vec![vec![0u64; nodes as usize]; nodes as usize];
        let (mut sent, mut credit, mut step) = (0, 0.0, 0u32);
        loop {
            let now = Time::from_secs_f64(f64::from(step) * 0.05);
            let now_s = now.as_secs_f64();
            let has_left = |at: u8| leaves.is_some_and(|(who, when)| who == at && now_s > when);
            let live: Vec<u8> =
                (0..nodes).filter(|&at| joins_s(at) <= now_s && !has_left(at)).collect();
            for &at in &live {
                all[at as usize].turn(now);
                if let Some((who, when)) = leaves
                    && now_s > when
                {
                    all[at as usize].gone(node(who));
                }
            }
            // Everybody reads everybody's log.
            for &reader in &live {
                for &other in live.iter().filter(|&&other| other != reader) {
                    let from = read[reader as usize][other as usize];
                    let entries = all[other as usize].log(from, 4096).to_vec();
                    all[other as usize].was_read(node(reader), from, now);
                    all[reader as usize].hear(node(other), &entries, now);
                    read[reader as usize][other as usize] += entries.len() as u64;
                }
            }
            // The origin's link is shared by all who ask.
            credit = (credit + per_step).min(per_step.max(1.0) * 2.0);
            let mut turn = live.clone();
            while credit >= 1.0 && !turn.is_empty() {
                turn.retain(|&at| {
                    if credit < 1.0 {
                        return false;
                    }
                    let ledger = &mut all[at as usize];
                    let Some(&unit) = in_ranges(&ledger.of_origin()).first() else {
                        return false;
                    };
                    (credit, sent) = (credit - 1.0, sent + 1);
                    assert!(comes(ledger, &mut verified[at as usize], unit, hash(unit), now));
                    true
                });
            }
            for &at in &live {
                let ledger = &mut all[at as usize];
                let mut wanted: BTreeSet<Unit> = BTreeSet::new();
                for &other in live.iter().filter(|&&other| other != at) {
                    wanted.extend(in_ranges(&ledger.of_other(node(other))));
                }
                wanted.retain(|&unit| !ledger.here.has(unit));
                for unit in wanted.into_iter().take(8) {
                    assert!(comes(ledger, &mut verified[at as usize], unit, hash(unit), now));
                }
            }
            if live.len() + usize::from(leaves.is_some()) == nodes as usize
                && live.iter().all(|&at| all[at as usize].here.set == UNITS)
            {
                return Outcome { sent, took_s: now_s };
            }
            step += 1;
            assert!(step < 20_000, "{} of {UNITS}", all[0].here.set);
        }
    }

    #[test]
    fn the_origin_sends_hardly_more_than_one_copy() {
        // 2 units in 50 ms: 10 s for one node alone.
        for nodes in [1, 2, 5, 16] {
            let outcome = cluster(nodes, 2.0, |_| 0.0, None);
            assert!(outcome.sent <= UNITS + UNITS / 20, "{nodes}: {outcome:?}");
            assert!(outcome.took_s < 11.5, "{nodes}: {outcome:?}");
        }
    }

    #[test]
    fn whoever_joins_late_fetches_little_from_the_origin() {
        let outcome = cluster(8, 2.0, |at| f64::from(at) * 1.3, None);
        assert!(outcome.sent <= UNITS + UNITS / 20, "{outcome:?}");
    }

    #[test]
    fn claims_of_a_node_that_leaves_are_taken_over() {
        let outcome = cluster(4, 2.0, |_| 0.0, Some((2, 3.0)));
        assert!(outcome.sent <= UNITS * 3 / 2, "{outcome:?}");
        assert!(outcome.took_s < 16.0, "{outcome:?}");
    }

    #[test]
    fn a_claim_that_comes_to_nothing_is_taken_over() {
        let (mut ours, now) = (ledger(1), Time::ZERO);
        let all: Vec<Entry> = (0..UNITS).map(Entry::Claimed).collect();
        ours.hear(node(2), &all, now);
        ours.turn(now);
        assert!(ours.claims.is_empty(), "all is claimed by another node");
        let later = now + PATIENCE_AT_FIRST * 2;
        ours.turn(later);
        assert!(!ours.claims.is_empty());
    }

    #[test]
    fn of_two_claims_on_one_unit_one_stands() {
        let now = Time::ZERO;
        for unit in 0..20 {
            let mut stand = 0;
            for (one, other) in [(1, 2), (2, 1)] {
                let mut ledger = ledger(one);
                ledger.claims.insert(unit, Claim { since: now, log_length: 0, counts: false });
                ledger.hear(node(other), &[Entry::Claimed(unit)], now);
                stand += u32::from(ledger.claims.contains_key(&unit));
            }
            assert_eq!(stand, 1, "unit {unit}");
        }
    }

    #[test]
    fn a_claim_counts_once_others_have_read_it() {
        let mut ours = ledger(1);
        let now = Time::from_secs_f64(10.0);
        ours.hear(node(2), &[], now);
        ours.was_read(node(2), 0, now);
        ours.turn(now);
        assert!(ours.of_origin().is_empty());
        ours.was_read(node(2), ours.log_length(), now);
        ours.turn(now);
        assert!(!ours.of_origin().is_empty());
        // Or if they do not read.
        let mut ours = ledger(1);
        ours.hear(node(2), &[], now);
        ours.was_read(node(2), 0, now);
        ours.turn(now);
        ours.turn(now + READ_WITHIN + Duration::from_millis(1));
        assert!(!ours.of_origin().is_empty());
    }

    #[test]
    fn what_the_origin_sent_tells_who_vouched_wrongly() {
        let now = Time::ZERO;
        let wrong = Vouch { hash: [0; 32], by: node(3) };
        let right = Vouch { hash: hash(5), by: node(2) };
        // A node passes on what another one vouched for.
        let mut ours = ledger(1);
        ours.hear(node(4), &[Entry::Held(5, wrong), Entry::Held(6, right)], now);
        let judged = ours.judge(5, hash(5), CameFrom::Found);
        assert_eq!(judged, Judgement::Wrong, "others' bytes must have the hash");
        assert_eq!(in_ranges(&ours.of_other(node(4))), [5, 6]);
        // Two nodes differ: only the origin can tell.
        ours.hear(node(2), &[Entry::Held(5, right)], now);
        assert_eq!(in_ranges(&ours.of_other(node(4))), [6]);
        // What a liar delivers meanwhile is not believed, whichever it has.
        for bytes in [hash(5), [0; 32], [9; 32]] {
            assert_eq!(ours.judge(5, bytes, CameFrom::Found), Judgement::Unknown);
        }
        assert_eq!(ours.judge(5, hash(5), CameFrom::Named), Judgement::Right);
        // Node 3 is not here, so whoever passed it on may have been deceived.
        assert_eq!(ours.newly_banned(), []);
        let mut ours = ledger(1);
        ours.hear(node(3), &[Entry::Held(5, wrong)], now);
        assert_eq!(ours.judge(5, hash(5), CameFrom::Named), Judgement::Right);
        assert_eq!(ours.newly_banned(), [node(3)]);
        assert!(!ours.hear(node(3), &[], now));
        // What it vouched for is not believed, whoever passes it on.
        ours.hear(node(4), &[Entry::Held(7, wrong)], now);
        assert!(!in_ranges(&ours.of_other(node(4))).contains(&7));
    }

    #[test]
    fn nobody_is_banned_for_what_another_says_of_it() {
        let now = Time::ZERO;
        let mut ours = ledger(1);
        ours.hear(node(2), &[Entry::Held(6, Vouch { hash: hash(6), by: node(2) })], now);
        // Node 3 says that node 2 vouches for nonsense.
        let framed = Vouch { hash: [0; 32], by: node(2) };
        ours.hear(node(3), &[Entry::Held(5, framed)], now);
        assert_eq!(ours.judge(5, hash(5), CameFrom::Named), Judgement::Right);
        assert_eq!(ours.newly_banned(), [node(3)]);
        assert_eq!(in_ranges(&ours.of_other(node(2))), [6]);
    }

    #[test]
    fn a_unit_of_which_the_origin_sent_a_part_is_settled_by_the_origin() {
        let now = Time::ZERO;
        let mut ours = ledger(1);
        let wrong = Vouch { hash: [0; 32], by: node(2) };
        ours.hear(node(2), &[Entry::Held(5, wrong), Entry::Held(6, wrong)], now);
        assert_eq!(ours.judge(5, [1; 32], CameFrom::Mixed), Judgement::Unknown);
        assert_eq!(in_ranges(&ours.of_other(node(2))), [6]);
        assert_eq!(ours.judge(5, [0; 32], CameFrom::Found), Judgement::Unknown, "not from it");
        assert_eq!(ours.judge(5, hash(5), CameFrom::Named), Judgement::Right);
        assert_eq!(ours.newly_banned(), [node(2)]);
    }

    #[test]
    fn what_an_earlier_run_left_blames_nobody() {
        let now = Time::ZERO;
        let mut ours = ledger(1);
        assert_eq!(ours.judge(4, hash(4), CameFrom::EarlierRun), Judgement::Right);
        ours.hear(node(2), &[Entry::Held(5, Vouch { hash: hash(5), by: node(2) })], now);
        assert_eq!(ours.judge(5, [0; 32], CameFrom::EarlierRun), Judgement::Unknown);
        assert_eq!(ours.judge(5, hash(5), CameFrom::EarlierRun), Judgement::Right);
        assert_eq!(ours.newly_banned(), []);
    }

    #[test]
    fn the_origin_is_asked_for_what_others_hold_and_do_not_deliver() {
        let now = Time::ZERO;
        let mut ours = ledger(1);
        let all: Vec<Entry> = (0..UNITS)
            .map(|unit| Entry::Held(unit, Vouch { hash: hash(unit), by: node(2) }))
            .collect();
        ours.hear(node(2), &all, now);
        ours.turn(now);
        assert!(ours.claims.is_empty());
        ours.turn(now + PATIENCE_AT_FIRST * 2);
        assert!(!ours.claims.is_empty());
        // Not while they deliver well.
        let mut ours = ledger(1);
        ours.hear(node(2), &all, now);
        let mut verified = RangeSet::new();
        let later = now + PATIENCE_AT_FIRST * 2;
        for unit in 0..UNITS / 2 {
            assert!(comes(&mut ours, &mut verified, unit, hash(unit), later));
        }
        ours.turn(later);
        assert!(ours.claims.is_empty());
    }

    #[test]
    fn an_endless_log_is_not_read_to_its_end() {
        let mut ours = ledger(1);
        let entries = [Entry::Claimed(1), Entry::Released(1)].repeat(1000);
        let heard = (0..100).take_while(|_| ours.hear(node(2), &entries, Time::ZERO)).count();
        assert!(heard < 20, "{heard}");
        assert!(ours.is_banned(node(2)));
    }

    #[test]
    fn a_wrong_whole_leaves_only_the_origin() {
        let now = Time::ZERO;
        let mut ours = ledger(1);
        let vouch = Vouch { hash: hash(5), by: node(2) };
        ours.hear(node(2), &[Entry::Held(5, vouch)], now);
        let mut verified = RangeSet::new();
        assert!(comes(&mut ours, &mut verified, 5, hash(5), now));
        assert!(ours.has(ours.units.range(5)));
        ours.refuted();
        assert!(!ours.has(ours.units.range(5)) && ours.of_other(node(2)).is_empty());
        assert_eq!(ours.of_origin().total_bytes(), ours.units.size_bytes());
        assert_eq!(ours.log(0, 9).last(), Some(&Entry::Cleared));
        ours.ban_vouchers(ours.units.range(5));
        assert_eq!(ours.newly_banned(), [node(2)]);
    }

    #[test]
    fn nonsense_changes_nothing() {
        let mut ours = ledger(1);
        let vouch = Vouch { hash: [0; 32], by: node(2) };
        let odd = [
            Entry::Claimed(UNITS),
            Entry::Released(Unit::MAX),
            Entry::Held(Unit::MAX, vouch),
            Entry::Released(3),
            Entry::Claimed(4),
            Entry::Claimed(4),
            Entry::Cleared,
            Entry::Released(4),
        ];
        assert!(ours.hear(node(2), &odd, Time::ZERO));
        assert!(ours.held.iter().chain(&ours.claimed).all(|&count| count == 0));
        ours.gone(node(2));
        ours.gone(node(9));
        assert!(!ours.hear(node(1), &[], Time::ZERO), "that is us");
    }
}
