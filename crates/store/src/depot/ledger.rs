//! The promises of a depot: sizes, terms, capabilities. Pure; the time is a parameter.
//!
//! Invariant: the space taken of a medium never exceeds its size, unless the depot was opened with
//! a smaller size than before. Space is taken before any part of an allocation exists, and freed
//! when nothing is left of it.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use swath_model::Time;

use super::capability::{CapabilityHash, LeaseId, Right};

/// The medium that an allocation lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// The depot's folder: acknowledged bytes survive restarts and power loss.
    Disk,
    /// Memory: fast, but lost when the program ends.
    Memory,
}

/// When an allocation takes its space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Space {
    /// All at once: everything stored there finds room.
    #[default]
    Reserved,
    /// Block by block, as bytes are stored: for clients that do not know how many of the bytes will
    /// lie here. Stored bytes stay; bytes that find no room are refused.
    AsStored,
}

/// The space that a depot can promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) disk_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) length_max: Duration,
    pub(crate) leases_max: usize,
}

/// Why nothing is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooLong,
    TooMany,
    /// The allocation does not exist any more.
    Ended,
    NoRoom {
        free_bytes: u64,
    },
}

/// The leases. `L` is what is kept of each allocation.
#[derive(Debug)]
pub(crate) struct Ledger<L> {
    limits: Limits,
    disk_taken: u64,
    memory_taken: u64,
    /// Promises that are not entered yet, or not given back yet.
    between: usize,
    entries: HashMap<LeaseId, Entry<L>>,
    by_end: BTreeSet<(Time, LeaseId)>,
    by_hash: HashMap<CapabilityHash, (LeaseId, Right)>,
    ended: Ended,
}

/// Hashes of allocations that ended lately, so that late requests get a clear answer.
#[derive(Debug, Default)]
struct Ended {
    hashes: HashSet<CapabilityHash>,
    order: VecDeque<CapabilityHash>,
}

/// One allocation in the leases.
#[derive(Clone, Debug)]
pub(crate) struct Entry<L> {
    pub(crate) medium: Medium,
    /// Space that it takes.
    pub(crate) bytes: u64,
    pub(crate) ends: Time,
    pub(crate) hashes: [CapabilityHash; 3],
    pub(crate) lease: L,
}

impl<L: Clone> Ledger<L> {
    pub(crate) fn new(limits: Limits) -> Ledger<L> {
        Ledger {
            limits,
            disk_taken: 0,
            memory_taken: 0,
            between: 0,
            entries: HashMap::new(),
            by_end: BTreeSet::new(),
            by_hash: HashMap::new(),
            ended: Ended::default(),
        }
    }

    /// Takes `bytes` for an allocation that will be entered or given back.
    pub(crate) fn promise(
        &mut self,
        medium: Medium,
        bytes: u64,
        length: Duration,
    ) -> Result<(), Refusal> {
        if length > self.limits.length_max {
            return Err(Refusal::TooLong);
        }
        if self.entries.len() + self.between >= self.limits.leases_max {
            return Err(Refusal::TooMany);
        }
        let free_bytes = self.free_bytes(medium);
        if bytes > free_bytes {
            return Err(Refusal::NoRoom { free_bytes });
        }
        *self.taken(medium) += bytes;
        self.between += 1;
        Ok(())
    }

    /// Enters a promised allocation.
    pub(crate) fn enter(&mut self, id: LeaseId, entry: Entry<L>) {
        self.between -= 1;
        self.insert(id, entry);
    }

    /// Takes `bytes` more for a live allocation.
    pub(crate) fn grow(&mut self, id: LeaseId, bytes: u64) -> Result<(), Refusal> {
        let medium = self.entries.get(&id).ok_or(Refusal::Ended)?.medium;
        let free_bytes = self.free_bytes(medium);
        if bytes > free_bytes {
            return Err(Refusal::NoRoom { free_bytes });
        }
        *self.taken(medium) += bytes;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.bytes += bytes;
        }
        Ok(())
    }

    /// Gives back the space of a promise, or of an allocation that was taken out.
    pub(crate) fn give_back(&mut self, medium: Medium, bytes: u64) {
        *self.taken(medium) -= bytes;
        self.between -= 1;
    }

    /// Enters an allocation of an earlier run, even if there is no room for it.
    pub(crate) fn resume(&mut self, id: LeaseId, entry: Entry<L>) {
        *self.taken(entry.medium) += entry.bytes;
        self.insert(id, entry);
    }

    /// Enters an allocation that has ended, or seems to have. It takes space and is not taken out
    /// before [`Ledger::ends_at`].
    pub(crate) fn resume_doubtful(&mut self, id: LeaseId, entry: Entry<L>) {
        let ends = entry.ends;
        self.resume(id, entry);
        self.by_end.remove(&(ends, id));
    }

    /// Sets the end of a doubtful allocation, which may be past.
    pub(crate) fn ends_at(&mut self, id: LeaseId, ends: Time) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.ends = ends;
            self.by_end.insert((ends, id));
        }
    }

    /// Returns whether an allocation has this hash.
    pub(crate) fn knows(&self, hash: &CapabilityHash) -> bool {
        self.by_hash.contains_key(hash)
    }

    /// Takes space for files that remain but are no allocation any more.
    pub(crate) fn occupy(&mut self, bytes: u64) {
        self.disk_taken += bytes;
    }

    fn insert(&mut self, id: LeaseId, entry: Entry<L>) {
        for (hash, right) in entry.hashes.iter().zip([Right::Read, Right::Write, Right::Manage]) {
            self.by_hash.insert(*hash, (id, right));
        }
        self.by_end.insert((entry.ends, id));
        self.entries.insert(id, entry);
    }

    /// Returns the live allocation of a capability with this hash, and what that allows.
    pub(crate) fn find(
        &self,
        hash: &CapabilityHash,
        now: Time,
    ) -> Option<(LeaseId, Right, &Entry<L>)> {
        self.find_any(hash).filter(|(_, _, entry)| entry.ends > now)
    }

    /// Returns the same for allocations that are live or not.
    pub(crate) fn find_any(&self, hash: &CapabilityHash) -> Option<(LeaseId, Right, &Entry<L>)> {
        let (id, right) = *self.by_hash.get(hash)?;
        Some((id, right, self.entries.get(&id)?))
    }

    /// Makes an allocation end later. Returns false if it has ended.
    pub(crate) fn extend(&mut self, id: LeaseId, ends: Time, now: Time) -> bool {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.ends > now) else {
            return false;
        };
        self.by_end.remove(&(entry.ends, id));
        entry.ends = ends;
        self.by_end.insert((ends, id));
        true
    }

    /// Takes an allocation out. Its space stays taken until it is given back.
    pub(crate) fn take_out(&mut self, id: LeaseId) -> Option<Entry<L>> {
        let entry = self.entries.remove(&id)?;
        self.by_end.remove(&(entry.ends, id));
        for hash in &entry.hashes {
            self.by_hash.remove(hash);
        }
        self.note_ended(&entry.hashes);
        self.between += 1;
        Some(entry)
    }

    /// Takes out an allocation that has ended.
    pub(crate) fn take_ended(&mut self, now: Time) -> Option<(LeaseId, Entry<L>)> {
        let &(ends, id) = self.by_end.first()?;
        if ends > now {
            return None;
        }
        self.take_out(id).map(|entry| (id, entry))
    }

    /// Remembers the hashes of an allocation that is gone.
    pub(crate) fn note_ended(&mut self, hashes: &[CapabilityHash; 3]) {
        for hash in hashes {
            if self.ended.hashes.insert(*hash) {
                self.ended.order.push_back(*hash);
            }
        }
        while self.ended.order.len() > ENDED_MAX {
            if let Some(oldest) = self.ended.order.pop_front() {
                self.ended.hashes.remove(&oldest);
            }
        }
    }

    /// Returns whether this is the hash of an allocation that has ended, if still remembered.
    pub(crate) fn has_ended(&self, hash: &CapabilityHash, now: Time) -> bool {
        let entry = self.by_hash.get(hash).and_then(|(id, _)| self.entries.get(id));
        entry.map_or_else(|| self.ended.hashes.contains(hash), |entry| entry.ends <= now)
    }

    /// Returns when the next allocation ends.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.by_end.first().map(|&(ends, _)| ends)
    }

    /// Returns how many bytes are free.
    pub(crate) fn free_bytes(&self, medium: Medium) -> u64 {
        let (size, taken) = match medium {
            Medium::Disk => (self.limits.disk_bytes, self.disk_taken),
            Medium::Memory => (self.limits.memory_bytes, self.memory_taken),
        };
        size.saturating_sub(taken)
    }

    /// Returns how many bytes are taken.
    pub(crate) fn taken_bytes(&self, medium: Medium) -> u64 {
        match medium {
            Medium::Disk => self.disk_taken,
            Medium::Memory => self.memory_taken,
        }
    }

    /// Returns all allocations.
    pub(crate) fn leases(&self) -> Vec<L> {
        self.entries.values().map(|entry| entry.lease.clone()).collect()
    }

    /// Returns the number of allocations.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    fn taken(&mut self, medium: Medium) -> &mut u64 {
        match medium {
            Medium::Disk => &mut self.disk_taken,
            Medium::Memory => &mut self.memory_taken,
        }
    }
}

/// Enough for some ten thousand allocations: a few MiB.
const ENDED_MAX: usize = 3 << 14;
