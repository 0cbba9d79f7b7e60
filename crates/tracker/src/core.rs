//! The decisions of a tracker, without clock, files or sockets: who may announce, who is told of whom,
//! who is forgotten.
//!
//! A peer is forgotten when it has been silent for two intervals, or says that it leaves. When a
//! swarm or the tracker is full, a new peer takes the place of the longest silent one of 16 that are
//! chosen at random: of the swarm if that is full, else of the largest of eight random swarms.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use fastrand::Rng;
use indexmap::IndexMap;
use swath_formats::tracker::{Announce, AnnounceAnswer, Event, InfoHash, SwarmCounts};
use swath_model::Time;

use crate::flood::FloodGuard;
use crate::lists::Lists;
use crate::swarm::{Before, Member, Peers, Swarm, Wish};

/// The limits of a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time between the announces of a peer. Each answer says up to a tenth more or less, so that
    /// clients that started together do not stay together.
    pub interval: Duration,
    /// Announces of one address per second, on average over a minute. More are refused.
    pub announces_per_s: u32,
    /// Peers of one torrent.
    pub swarm_peers_max: usize,
    /// Peers of all torrents.
    pub peers_max: usize,
    /// Torrents, where no whitelist says which.
    pub torrents_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            interval: Duration::from_secs(30 * 60),
            announces_per_s: 20,
            swarm_peers_max: 100_000,
            peers_max: 2_000_000,
            torrents_max: 200_000,
        }
    }
}

/// A client, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// Its address.
    pub ip: IpAddr,
    /// The passkey in its announce address.
    pub passkey: Option<&'a str>,
}

/// Why a request is refused, in words for the user of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its address is in none of the allowed networks.
    #[error("this tracker does not answer your address")]
    Network,
    /// It shows no passkey.
    #[error("this tracker needs a passkey: use the announce address that you were given")]
    NoPasskey,
    /// It shows an unknown passkey.
    #[error("this tracker does not know your passkey")]
    Passkey,
    /// The torrent is not on the whitelist.
    #[error("this tracker does not track this torrent")]
    Torrent,
    /// Nobody can connect to port 0.
    #[error("no other peer can connect to port 0")]
    Port,
    /// Its address announces too often.
    #[error("too many announces from your address: try again in {wait_s} s")]
    TooMany {
        /// Seconds until the next announce is possible.
        wait_s: u64,
    },
    /// There are as many torrents as the tracker can keep.
    #[error("this tracker has no room for another torrent")]
    Full,
}

/// What has happened since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Announces that were accepted.
    pub announces: u64,
    /// Scrapes that were answered.
    pub scrapes: u64,
    /// Requests that were refused, in the order of [`Refusal`].
    pub refused: [u64; 7],
    /// Peers that left.
    pub stopped: u64,
    /// Peers that fell silent.
    pub expired: u64,
    /// Peers that made room for others.
    pub dropped: u64,
}

/// One torrent with its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The torrent.
    pub info_hash: InfoHash,
    /// Its name on the whitelist, else empty.
    pub name: String,
    /// Its counts.
    pub counts: SwarmCounts,
}

/// A tracker.
pub struct Core {
    pub(crate) limits: Limits,
    pub(crate) lists: Lists,
    pub(crate) swarms: IndexMap<InfoHash, Swarm>,
    pub(crate) peers: usize,
    flood: FloodGuard,
    rng: Rng,
    counters: Counters,
    /// The next swarm from which silent peers are removed.
    sweep: usize,
    /// Whether there is something to be saved.
    pub(crate) is_changed: bool,
}

impl Core {
    /// A tracker without peers. `seed` decides all that is random.
    pub fn new(limits: Limits, lists: Lists, seed: u64) -> Core {
        Core {
            flood: FloodGuard::new(limits.announces_per_s, seed),
            limits,
            lists,
            swarms: IndexMap::new(),
            peers: 0,
            rng: Rng::with_seed(seed),
            counters: Counters::default(),
            sweep: 0,
            is_changed: false,
        }
    }

    /// Notes an announce and answers it. A peer that announces before the minimum interval is over,
    /// without an event, gets no peers.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn announce(
        &mut self,
        now: Time,
        from: Requester<'_>,
        announce: &Announce,
    ) -> Result<AnnounceAnswer, Refusal> {
        let answer = self.admit(now, from, announce);
        match &answer {
            Ok(_) => self.counters.announces += 1,
            Err(refusal) => self.counters.refused[refusal.number()] += 1,
        }
        answer
    }

    /// Returns the counts of some torrents.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn scrape(
        &mut self,
        now: Time,
        from: Requester<'_>,
        torrents: &[InfoHash],
    ) -> Result<Vec<SwarmCounts>, Refusal> {
        if let Err(refusal) = self.check_client(now, from) {
            self.counters.refused[refusal.number()] += 1;
            return Err(refusal);
        }
        self.counters.scrapes += 1;
        let counts = |hash| self.swarms.get(hash).map(Swarm::counts).unwrap_or_default();
        Ok(torrents.iter().map(counts).collect())
    }

    /// Whether a client may see which torrents there are.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check_reader(&self, from: Requester<'_>) -> Result<(), Refusal> {
        if !self.lists.allow(from.ip.to_canonical()) {
            return Err(Refusal::Network);
        }
        match (&self.lists.passkeys, from.passkey) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(Refusal::NoPasskey),
            (Some(passkeys), Some(shown)) if passkeys.contains(shown) => Ok(()),
            (Some(_), Some(_)) => Err(Refusal::Passkey),
        }
    }

    /// Removes silent peers of some swarms; called once a second, it visits all of them in half a
    /// minute.
    pub fn expire(&mut self, now: Time) {
        let before_s = self.silent_since_s(now);
        let mut left = (self.peers + self.swarms.len()) / SWEEPS + 1;
        let mut swarms_left = self.swarms.len();
        while left > 0 && swarms_left > 0 {
            swarms_left -= 1;
            if self.sweep >= self.swarms.len() {
                self.sweep = 0;
            }
            let Some((_, swarm)) = self.swarms.get_index_mut(self.sweep) else { return };
            left = left.saturating_sub(swarm.len() + 1);
            let expired = swarm.expire(before_s);
            self.counters.expired += expired as u64;
            self.peers -= expired;
            self.is_changed |= expired > 0;
            // A torrent of the whitelist keeps its count of completed downloads.
            match swarm.len() == 0 && self.lists.torrents.is_none() {
                true => _ = self.swarms.swap_remove_index(self.sweep),
                false => self.sweep += 1,
            }
        }
    }

    /// Replaces the lists. Swarms that are not on the whitelist any more are forgotten.
    pub fn set_lists(&mut self, lists: Lists) {
        self.lists = lists;
        let Some(torrents) = &self.lists.torrents else { return };
        self.swarms.retain(|hash, _| torrents.contains(hash));
        self.peers = self.swarms.values().map(Swarm::len).sum();
        self.is_changed = true;
    }

    /// Appends torrents from position `from` on, those of the whitelist without peers at the end, in no
    /// order; returns the position of the next one, if there are more than one call is to take. A torrent
    /// that comes or goes between two calls may be missing, or be there twice.
    pub fn summaries(&self, from: usize, out: &mut Vec<Summary>) -> Option<usize> {
        let names = self.lists.torrents.as_ref();
        let with_peers = self.swarms.iter().skip(from).map(|(hash, swarm)| {
            let name = names.map_or(String::new(), |names| names.name(hash).to_owned());
            Some(Summary { info_hash: *hash, name, counts: swarm.counts() })
        });
        let from_others = from.saturating_sub(self.swarms.len());
        let others = names.into_iter().flat_map(|names| names.all()).skip(from_others);
        let without = others.map(|(info_hash, name)| {
            let is_alone = !self.swarms.contains_key(&info_hash);
            let counts = SwarmCounts::default();
            is_alone.then(|| Summary { info_hash, name: name.to_owned(), counts })
        });
        let mut left = with_peers.chain(without);
        out.extend(left.by_ref().take(SUMMARIES_AT_ONCE).flatten());
        left.next().map(|_| from + SUMMARIES_AT_ONCE)
    }

    #[cfg(test)]
    pub(crate) fn all_summaries(&self) -> Vec<Summary> {
        let (mut all, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            next = self.summaries(from, &mut all);
        }
        all
    }

    /// Returns the number of torrents with peers or completed downloads.
    pub fn torrents(&self) -> usize {
        self.swarms.len()
    }

    /// Returns the number of peers.
    pub fn peers(&self) -> usize {
        self.peers
    }

    /// Returns what has happened.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the lists.
    pub fn lists(&self) -> &Lists {
        &self.lists
    }

    /// Peers that were last seen before this second are forgotten.
    pub(crate) fn silent_since_s(&self, now: Time) -> u32 {
        seconds(now - 2 * self.limits.interval)
    }

    fn check_client(&mut self, now: Time, from: Requester<'_>) -> Result<(), Refusal> {
        if !self.lists.allow(from.ip) {
            return Err(Refusal::Network);
        }
        // Before the passkey is looked at, so that guesses are limited too.
        let too_many = |wait: Duration| Refusal::TooMany { wait_s: wait.as_secs() + 1 };
        self.flood.admit(from.ip.into(), now).map_err(too_many)?;
        self.check_reader(from)
    }

    fn admit(
        &mut self,
        now: Time,
        from: Requester<'_>,
        announce: &Announce,
    ) -> Result<AnnounceAnswer, Refusal> {
        let from = Requester { ip: from.ip.to_canonical(), ..from };
        self.check_client(now, from)?;
        let hash = announce.info_hash;
        match &self.lists.torrents {
            Some(torrents) if !torrents.contains(&hash) => return Err(Refusal::Torrent),
            Some(_) => {}
            None if self.swarms.len() < self.limits.torrents_max => {}
            None if self.swarms.contains_key(&hash) => {}
            None => return Err(Refusal::Full),
        }
        if announce.port == 0 {
            return Err(Refusal::Port);
        }
        let is_new = !self.swarms.get(&hash).is_some_and(|swarm| match from.ip {
            IpAddr::V4(ip) => swarm.four.find(&(ip.octets(), announce.port)) != Before::Absent,
            IpAddr::V6(ip) => swarm.six.find(&(ip.octets(), announce.port)) != Before::Absent,
        });
        if is_new && announce.event != Event::Stopped {
            self.make_room(&hash);
        }
        let visit = Visit {
            now_s: seconds(now),
            since_s: self.silent_since_s(now),
            min_interval_s: self.min_interval_s(),
        };
        let Core { swarms, rng, .. } = self;
        let swarm = match announce.event {
            // Whoever leaves a swarm that is not there must not make one.
            Event::Stopped => swarms.get_mut(&hash),
            _ => Some(swarms.entry(hash).or_default()),
        };
        let mut answer = AnnounceAnswer::default();
        if let Some(swarm) = swarm {
            let before = swarm.len();
            let completed = &mut swarm.completed;
            answer.peers = match from.ip {
                IpAddr::V4(ip) => {
                    visit.apply(&mut swarm.four, ip.octets(), announce, completed, rng)
                }
                IpAddr::V6(ip) => {
                    visit.apply(&mut swarm.six, ip.octets(), announce, completed, rng)
                }
            };
            let counts = swarm.counts();
            (answer.seeders, answer.leechers) = (Some(counts.seeders), Some(counts.leechers));
            self.peers = self.peers + swarm.len() - before;
            self.counters.stopped += u64::from(before > swarm.len());
        }
        self.is_changed = true;
        answer.interval_s = self.jittered_interval_s();
        answer.min_interval_s = Some(visit.min_interval_s);
        answer.own_address = Some(from.ip);
        Ok(answer)
    }

    /// Drops a peer if the swarm or the tracker is full.
    fn make_room(&mut self, hash: &InfoHash) {
        let full = self.swarms.get_index_of(hash).filter(|at| {
            let swarm = self.swarms.get_index(*at);
            swarm.is_some_and(|(_, swarm)| swarm.len() >= self.limits.swarm_peers_max)
        });
        let at = match full {
            Some(at) => at,
            None if self.peers < self.limits.peers_max || self.swarms.is_empty() => return,
            None => {
                let swarms = (0..LARGEST_OF).map(|_| self.rng.usize(..self.swarms.len()));
                let len = |at: &usize| self.swarms.get_index(*at).map_or(0, |(_, it)| it.len());
                swarms.max_by_key(len).unwrap_or(0)
            }
        };
        if let Some((_, swarm)) = self.swarms.get_index_mut(at)
            && swarm.drop_silent(&mut self.rng)
        {
            self.peers -= 1;
            self.counters.dropped += 1;
        }
    }

    fn min_interval_s(&self) -> u32 {
        (self.limits.interval.as_secs() as u32 / MIN_INTERVAL_PART).max(1)
    }

    fn jittered_interval_s(&mut self) -> u32 {
        let interval_s = self.limits.interval.as_secs() as u32;
        let jitter_s = interval_s / JITTER_PART;
        (interval_s - jitter_s + self.rng.u32(..=2 * jitter_s)).max(1)
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Core({} torrents, {} peers)", self.swarms.len(), self.peers)
    }
}

impl Refusal {
    /// The words for metrics, in the order of [`Counters::refused`].
    pub const KINDS: [&str; 7] =
        ["network", "no_passkey", "passkey", "torrent", "port", "too_many", "full"];

    fn number(self) -> usize {
        match self {
            Refusal::Network => 0,
            Refusal::NoPasskey => 1,
            Refusal::Passkey => 2,
            Refusal::Torrent => 3,
            Refusal::Port => 4,
            Refusal::TooMany { .. } => 5,
            Refusal::Full => 6,
        }
    }
}

/// The circumstances of an announce.
#[derive(Clone, Copy)]
struct Visit {
    now_s: u32,
    since_s: u32,
    min_interval_s: u32,
}

impl Visit {
    /// Notes an announce in its swarm; returns other peers.
    fn apply<A: Copy + Eq + std::hash::Hash + Into<IpAddr>>(
        self,
        peers: &mut Peers<A>,
        ip: A,
        announce: &Announce,
        completed: &mut u32,
        rng: &mut Rng,
    ) -> Vec<swath_formats::tracker::Peer> {
        let key = (ip, announce.port);
        if announce.event == Event::Stopped {
            peers.remove(&key);
            return Vec::new();
        }
        let before = peers.find(&key);
        let is_seeder = announce.left == Some(0);
        if announce.event == Event::Completed && is_seeder && !matches!(before, Before::Seeder(_)) {
            *completed = completed.saturating_add(1);
        }
        let served_s = match before {
            Before::Leecher(member) | Before::Seeder(member) => Some(member.served_s),
            Before::Absent => None,
        };
        let is_early = |served_s| self.now_s.saturating_sub(served_s) < self.earliest_s();
        let is_early = announce.event == Event::None && served_s.is_some_and(is_early);
        let count = announce.want.unwrap_or(WANT_DEFAULT).min(WANT_MAX) as usize;
        let count = if is_early { 0 } else { count };
        let served_s = if count > 0 { self.now_s } else { served_s.unwrap_or(0) };
        let member = Member { id: announce.peer_id, seen_s: self.now_s, served_s };
        peers.put(key, member, is_seeder, before);
        let seeders_max = match (is_seeder, announce.event) {
            (false, _) => usize::MAX,
            // aria2 says so too before it knows the size, with a magnet link.
            (true, Event::Started) => SEEDERS_OF_STARTED,
            (true, _) => 0,
        };
        peers.choose(&key, Wish { count, seeders_max, since_s: self.since_s }, rng)
    }

    /// Clients count from the arrival of the answer and round: a tenth less is not too early.
    fn earliest_s(self) -> u32 {
        self.min_interval_s - self.min_interval_s / 10
    }
}

/// Whole seconds since the clock's zero.
pub(crate) fn seconds(time: Time) -> u32 {
    u32::try_from(time.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX)
}

/// Peers in an answer, if the client does not say how many it wants …
const WANT_DEFAULT: u32 = 50;
/// … and at most: a UDP answer fits into one packet on every network.
const WANT_MAX: u32 = 200;
/// Seeders in the first answer to a peer that lacks nothing: one of them sends the info dictionary, if
/// that is what it lacks, and seeders that are connected in vain leave each other.
const SEEDERS_OF_STARTED: usize = 8;
/// The part of the interval before which a peer gets no others: after five of thirty minutes a
/// client without luck may ask again.
const MIN_INTERVAL_PART: u32 = 6;
/// The part of the interval by which an answer's is shorter or longer.
const JITTER_PART: u32 = 10;
/// Torrents that one call of [`Core::summaries`] takes: announces wait for no more than these.
const SUMMARIES_AT_ONCE: usize = 10_000;
/// Calls of [`Core::expire`] that visit all swarms.
const SWEEPS: usize = 30;
/// Swarms of which the largest makes room where the tracker is full.
const LARGEST_OF: usize = 8;

#[cfg(test)]
mod tests;
