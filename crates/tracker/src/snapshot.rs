//! The peers of a tracker as bytes, so that they survive a restart.
//!
//! A file begins with [`MAGIC`] and the time of saving; a record for each swarm follows, and the
//! BLAKE3 of all that at the end. Numbers are little-endian. Peers have the seconds since their last
//! announce. A file is written part by part, between announces: a swarm that another one's end has
//! moved meanwhile may be missing, and its peers announce themselves again.

use std::net::IpAddr;
use std::time::Duration;

use swath_formats::tracker::{InfoHash, PeerId};
use swath_model::Time;

use crate::core::{Core, seconds};
use crate::swarm::{Before, Member, Peers, Swarm, Table};

/// The bytes are not a whole snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the saved peers are damaged")]
pub struct Damaged;

/// Returns the head of a snapshot that is made this long after 1970.
pub fn head(since_1970: Duration) -> Vec<u8> {
    [MAGIC, &since_1970.as_secs().to_le_bytes()].concat()
}

/// Whether the bytes begin like a snapshot, whole or damaged.
pub fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns the end of a snapshot with this hash.
pub fn end(hasher: &blake3::Hasher) -> [u8; 32] {
    *hasher.finalize().as_bytes()
}

impl Core {
    /// Appends the records of some swarms, from the one at position `from` on, about a megabyte;
    /// returns the position of the next one, if there are more.
    pub fn save_part(&self, from: usize, now: Time, out: &mut Vec<u8>) -> Option<usize> {
        let until = out.len() + PART_BYTES;
        for (at, (hash, swarm)) in self.swarms.iter().enumerate().skip(from) {
            if out.len() >= until {
                return Some(at);
            }
            save(out, hash, swarm, seconds(now));
        }
        None
    }

    /// Adds the peers of a snapshot, unless they have been silent for too long meanwhile or do not
    /// fit; returns how many.
    ///
    /// # Errors
    /// [`Damaged`]; no peer is added then.
    pub fn restore(
        &mut self,
        bytes: &[u8],
        now: Time,
        since_1970: Duration,
    ) -> Result<usize, Damaged> {
        let (content, hash) = bytes.split_last_chunk::<32>().ok_or(Damaged)?;
        if blake3::hash(content) != *hash {
            return Err(Damaged);
        }
        let mut fields = Fields(content.strip_prefix(MAGIC).ok_or(Damaged)?);
        let saved_s = u64::from_le_bytes(fields.array()?);
        // A clock that was set back makes peers no younger than they were.
        let passed_s = since_1970.as_secs().saturating_sub(saved_s);
        let mut swarms = Vec::new();
        while !fields.0.is_empty() {
            swarms.push(fields.swarm(seconds(now), u32::try_from(passed_s).unwrap_or(u32::MAX))?);
        }
        let before = self.peers;
        for (hash, mut swarm) in swarms {
            swarm.expire(self.silent_since_s(now));
            let is_listed = self.lists.torrents.as_ref().is_none_or(|it| it.contains(&hash));
            let has_room = self.peers + swarm.len() <= self.limits.peers_max
                && swarm.len() <= self.limits.swarm_peers_max
                && (self.lists.torrents.is_some() || self.swarms.len() < self.limits.torrents_max);
            let is_useful = swarm.len() > 0 || self.lists.torrents.is_some();
            if is_listed && has_room && is_useful && !self.swarms.contains_key(&hash) {
                self.peers += swarm.len();
                self.swarms.insert(hash, swarm);
            }
        }
        Ok(self.peers - before)
    }
}

fn save(out: &mut Vec<u8>, hash: &InfoHash, swarm: &Swarm, now_s: u32) {
    out.extend_from_slice(&hash.0);
    out.extend_from_slice(&swarm.completed.to_le_bytes());
    let Swarm { four, six, .. } = swarm;
    save_table(out, &four.seeders, now_s);
    save_table(out, &four.leechers, now_s);
    save_table(out, &six.seeders, now_s);
    save_table(out, &six.leechers, now_s);
}

fn save_table<A: Copy + AsRef<[u8]>>(out: &mut Vec<u8>, table: &Table<A>, now_s: u32) {
    out.extend_from_slice(&u32::try_from(table.len()).unwrap_or(u32::MAX).to_le_bytes());
    for ((ip, port), member) in table.iter().take(u32::MAX as usize) {
        out.extend_from_slice(ip.as_ref());
        out.extend_from_slice(&port.to_le_bytes());
        out.extend_from_slice(&member.id.0);
        out.extend_from_slice(&now_s.saturating_sub(member.seen_s).to_le_bytes());
    }
}

/// The bytes of a snapshot that are still to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Damaged)?;
        self.0 = rest;
        Ok(*array)
    }

    fn swarm(&mut self, now_s: u32, passed_s: u32) -> Result<(InfoHash, Swarm), Damaged> {
        let hash = InfoHash(self.array()?);
        let mut swarm = Swarm { completed: u32::from_le_bytes(self.array()?), ..Swarm::default() };
        let Swarm { four, six, .. } = &mut swarm;
        for is_seeder in [true, false] {
            self.table(four, is_seeder, now_s, passed_s)?;
        }
        for is_seeder in [true, false] {
            self.table(six, is_seeder, now_s, passed_s)?;
        }
        Ok((hash, swarm))
    }

    fn table<const N: usize>(
        &mut self,
        peers: &mut Peers<[u8; N]>,
        is_seeder: bool,
        now_s: u32,
        passed_s: u32,
    ) -> Result<(), Damaged>
    where
        [u8; N]: Into<IpAddr>,
    {
        for _ in 0..u32::from_le_bytes(self.array()?) {
            let key = (self.array()?, u16::from_le_bytes(self.array()?));
            let id = PeerId(self.array()?);
            let age_s = u32::from_le_bytes(self.array()?).saturating_add(passed_s);
            let member = Member { id, seen_s: now_s.saturating_sub(age_s), served_s: 0 };
            if peers.find(&key) == Before::Absent {
                peers.put(key, member, is_seeder, Before::Absent);
            }
        }
        Ok(())
    }
}

/// The first bytes of the file, with the version of its form.
const MAGIC: &[u8] = b"swath tracker 1\n";
/// Saved in one go, while announces wait.
const PART_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use swath_formats::tracker::{Announce, Event, PeerForm};

    use super::*;
    use crate::core::{Limits, Requester};
    use crate::lists::{Lists, Torrents};

    fn at(s: u64) -> Time {
        Time::from_millis(s * 1000)
    }

    fn core(lists: Lists) -> Core {
        Core::new(Limits::default(), lists, 1)
    }

    /// 1,000 peers of ten torrents, a tenth of them seeders, a fifth with IPv6.
    fn filled() -> Core {
        let mut core = core(Lists::default());
        for number in 0..1000u32 {
            let ip = match number % 5 {
                0 => IpAddr::from([0x2001, 0xdb8, 0, number as u16, 0, 0, 0, 1]),
                _ => IpAddr::from((10 << 24 | number).to_be_bytes()),
            };
            let announce = Announce {
                info_hash: InfoHash([(number % 10) as u8; 20]),
                peer_id: PeerId([number as u8; 20]),
                port: 1 + number as u16,
                uploaded: 0,
                downloaded: 0,
                left: Some(u64::from(number % 100 >= 10)),
                event: Event::Completed,
                want: None,
                key: None,
                form: PeerForm::Compact,
            };
            core.announce(
                at(10_000 + u64::from(number)),
                Requester { ip, passkey: None },
                &announce,
            )
            .unwrap();
        }
        core
    }

    fn saved(core: &Core, now_s: u64) -> Vec<u8> {
        let mut bytes = head(Duration::from_secs(1_000_000));
        assert_eq!(core.save_part(0, at(now_s), &mut bytes), None);
        let hash = blake3::hash(&bytes);
        [&bytes[..], hash.as_bytes()].concat()
    }

    fn sorted(core: &Core) -> Vec<(InfoHash, swath_formats::tracker::SwarmCounts)> {
        let mut all: Vec<_> =
            core.all_summaries().into_iter().map(|it| (it.info_hash, it.counts)).collect();
        all.sort_unstable_by_key(|(hash, _)| *hash);
        all
    }

    #[test]
    fn peers_come_back_unless_they_were_silent_for_two_intervals() {
        let whole = filled();
        let bytes = saved(&whole, 11_000);
        assert!(bytes.len() < 1000 * 40);
        let mut again = core(Lists::default());
        let passed = |s: u64| Duration::from_secs(1_000_000 + s);
        assert_eq!(again.restore(&bytes, at(50_000), passed(0)), Ok(1000));
        assert_eq!(sorted(&again), sorted(&whole));
        // Half of them had announced 500 s ago or earlier, and the interval is 1800 s.
        let mut later = core(Lists::default());
        assert_eq!(later.restore(&bytes, at(50_000), passed(3600 - 500)), Ok(500));
        // A clock that was set back.
        assert_eq!(core(Lists::default()).restore(&bytes, at(50_000), passed(0)), Ok(1000));
        let none = core(Lists::default()).restore(&bytes, at(50_000), passed(1 << 40));
        assert_eq!(none, Ok(0));
    }

    #[test]
    fn torrents_that_are_not_listed_any_more_do_not_come_back() {
        let bytes = saved(&filled(), 11_000);
        let mut torrents = Torrents::default();
        torrents.insert(InfoHash([3; 20]), "three");
        let mut again = core(Lists { torrents: Some(torrents), ..Lists::default() });
        assert_eq!(again.restore(&bytes, at(50_000), Duration::from_secs(1_000_000)), Ok(100));
    }

    #[test]
    fn a_large_tracker_is_saved_in_parts() {
        let mut core = filled();
        for number in 0..30_000u32 {
            let mut hash = [9; 20];
            hash[..4].copy_from_slice(&number.to_be_bytes());
            core.swarms.insert(InfoHash(hash), Swarm::default());
        }
        let (mut from, mut parts, mut bytes) = (Some(0), 0, Vec::new());
        while let Some(at_swarm) = from {
            from = core.save_part(at_swarm, at(11_000), &mut bytes);
            parts += 1;
        }
        assert_eq!(parts, 2);
        let mut whole = Vec::new();
        let hash = |bytes: &[u8]| *blake3::hash(bytes).as_bytes();
        whole.extend_from_slice(&head(Duration::ZERO));
        whole.extend_from_slice(&bytes);
        let whole = [&whole[..], &hash(&whole)].concat();
        let restored = Core::new(Limits::default(), Lists::default(), 1).restore(
            &whole,
            at(50_000),
            Duration::ZERO,
        );
        assert_eq!(restored, Ok(1000));
    }

    #[test]
    fn damage_is_found() {
        let bytes = saved(&filled(), 11_000);
        let mut empty = core(Lists::default());
        let mut restore = |bytes: &[u8]| empty.restore(bytes, at(50_000), Duration::ZERO);
        for end in [0, 1, 31, 32, 33, 100, bytes.len() - 1] {
            assert_eq!(restore(&bytes[..end]), Err(Damaged), "{end}");
        }
        for at in [0, 20, 500, bytes.len() - 1] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert_eq!(restore(&bytes), Err(Damaged), "{at}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm_even_with_the_right_checksum(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200), counts in prop::collection::vec(0..3u8, 4)
        ) {
            for (at, count) in counts.iter().enumerate() {
                if let Some(low) = bytes.get_mut(24 + at * 4..28 + at * 4) {
                    low.copy_from_slice(&[*count, 0, 0, 0]);
                }
            }
            let bytes = [&head(Duration::ZERO)[..], &bytes].concat();
            let bytes = [&bytes[..], blake3::hash(&bytes).as_bytes()].concat();
            let _ = core(Lists::default()).restore(&bytes, at(50_000), Duration::ZERO);
        }
    }
}
