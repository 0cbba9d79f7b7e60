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
//! What others hold may come slowly, or not at all. Then the origin is asked for it.
//!
//! `vouches` has the hashes, and `pace` what is slow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use swath_model::{Range, RangeSet, Time};
use swath_transfer::{CameFrom, Judgement};

use crate::flags::Flags;
use crate::log::{Entry, NodeId, Vouch};
use crate::pace::Pace;
use crate::units::{Unit, Units};
use crate::vouches::{Told, Vouches};

/// The books of a node on one content.
#[derive(Debug)]
pub struct Ledger {
    units: Units,
    count: Unit,
    me: NodeId,
    /// Units that are here and verified.
    here: Flags,
    /// Bytes that are here and not verified: other nodes are not told of them.
    unverified: RangeSet,
    /// Units that are here, in part unverified: nothing of them is fetched.
    needless: Flags,
    vouches: Vouches,
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
    pace: Pace,
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

/// Our claim on a unit.
#[derive(Clone, Copy, Debug)]
struct Claim {
    since: Time,
    /// The length of our log with it.
    log_length: u64,
    /// Whether others know of it, so that it may be fetched.
    counts: bool,
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
            unverified: RangeSet::new(),
            needless: Flags::none(count),
            vouches: Vouches::new(count, me),
            held: vec![0; all],
            claimed: vec![0; all],
            others: BTreeMap::new(),
            banned: BTreeSet::new(),
            news_banned: Vec::new(),
            claims: BTreeMap::new(),
            next: rng.u32(..count.max(1)),
            began: None,
            pace: Pace::default(),
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
        if let Some(wrong) = self.vouches.hear(unit, Told { vouch, teller: from }) {
            self.ban_for(wrong);
        }
        // Unless it is being fetched already, it is taken from there.
        if self.claims.get(&unit).is_some_and(|claim| !claim.counts) {
            self.release(unit);
        }
    }

    /// Bans the node that is to blame for a wrong hash.
    fn ban_for(&mut self, wrong: Told) {
        // If the node that is said to vouch for it is here, it would have said so itself.
        let by = wrong.vouch.by;
        if wrong.is_first_hand() || self.others.contains_key(&by) || by == self.me {
            self.ban(wrong.teller);
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
        self.vouches.forget(node);
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
        self.vouches
            .told_within(range, &self.units)
            .into_iter()
            .for_each(|told| self.ban_for(told));
    }

    /// Compares the hash of a complete unit with what nodes vouched for, and bans those that vouched for
    /// another one. The origin's bytes count as right.
    pub fn judge(&mut self, unit: Unit, hash: [u8; 32], from: CameFrom) -> Judgement {
        let (judgement, wrong) = self.vouches.judge(unit, hash, from);
        wrong.into_iter().for_each(|told| self.ban_for(told));
        judgement
    }

    /// These bytes are here, unverified: they are neither fetched nor passed on. `verified` has all that are
    /// verified.
    pub fn has_unverified(&mut self, verified: &RangeSet, new: Range) {
        self.unverified.insert(new);
        for unit in self.units.around(new) {
            self.release_needless(unit, verified);
        }
    }

    /// Releases a unit if nothing of it is to be fetched any more.
    fn release_needless(&mut self, unit: Unit, verified: &RangeSet) {
        let range = self.units.range(unit);
        let bytes = verified.bytes_within(range) + self.unverified.bytes_within(range);
        if bytes >= range.len() {
            self.needless.insert(unit);
            self.release(unit);
        }
    }

    /// These bytes are verified. Returns the units among them whose hash nobody has told: they are to be
    /// hashed and judged, and then told of again.
    pub fn verified(&mut self, whole: &RangeSet, new: Range, now: Time) -> Vec<Unit> {
        let mut unknown = Vec::new();
        for unit in self.units.around(new) {
            let range = self.units.range(unit);
            if self.here.has(unit) {
                continue;
            }
            if !whole.covers(range) {
                self.release_needless(unit, whole);
                continue;
            }
            let Some(vouch) = self.vouches.of(unit) else {
                unknown.push(unit);
                continue;
            };
            self.here.insert(unit);
            match self.claims.remove(&unit) {
                Some(claim) => self.pace.came(now.since(claim.since), now),
                None => self.pace.passed(now),
            }
            self.log.push(Entry::Held(unit, vouch));
        }
        unknown
    }

    /// The transfer begins again, with nothing.
    pub fn clear(&mut self) {
        self.here = Flags::none(self.count);
        (self.unverified, self.needless) = (RangeSet::new(), Flags::none(self.count));
        self.claims.clear();
        self.pace = Pace::default();
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

    /// Returns whether the digest of the whole is wrong.
    pub fn is_refuted(&self) -> bool {
        self.is_refuted
    }

    /// Does what is due: gives up old claims, makes new ones. Call it several times a second.
    pub fn turn(&mut self, now: Time) {
        if self.is_refuted || self.is_whole {
            return;
        }
        self.pace.turn(now);
        let patience = self.pace.patience();
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
        let is_slow = self.pace.are_others_slow(self.count - self.here.count())
            && (0..self.count).any(|unit| self.is_waited_for(unit, now));
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
        let per_s = self.pace.origin_per_s();
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

    /// Returns the unit behind the last claim if it is free, else a free one at random; without any, one
    /// whose claim has come to nothing.
    fn unit_to_claim(&mut self, now: Time, patience: Duration, is_slow: bool) -> Option<Unit> {
        if self.here.count() == self.count {
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
        !is_ours
            && !self.needless.has(unit)
            && since.is_some_and(|since| now.since(since) > OTHERS_PATIENCE)
    }

    /// Returns whether only the origin has a unit, as far as is known, and nobody fetches it.
    fn is_free(&self, unit: Unit) -> bool {
        self.is_lacking(unit) && self.claimed[unit as usize] == 0
    }

    /// Returns whether only the origin has a unit, as far as is known.
    fn is_lacking(&self, unit: Unit) -> bool {
        let is_obtainable = self.held[unit as usize] > 0 && self.vouches.of(unit).is_some();
        let is_ours = self.here.has(unit) || self.claims.contains_key(&unit);
        !is_ours && !self.needless.has(unit) && !is_obtainable
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
        let is_obtainable =
            |unit: &Unit| self.vouches.of(*unit).is_some() && !self.claims.contains_key(unit);
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
        let lacking = self.others.values().filter(|other| other.held.count() < self.count).count();
        (lacking, self.others.values().map(|other| u64::from(other.held.count())).sum())
    }
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
/// An honest log has a claim and a unit for each unit, and some claims that came to nothing.
const ENTRIES_A_UNIT_MAX: u64 = 16;
const ENTRIES_LEAST: u64 = 10_000;
/// One is being fetched, one is being read by others.
const CLAIMS_LEAST: usize = 2;
/// More than others deliver at a time.
const CLAIMS_BESIDE_SLOW: usize = 32;
/// More claims of one node are not kept.
const CLAIMS_OF_ONE_MAX: usize = 65_536;

#[cfg(test)]
mod tests;
