//! All known sources that have not left for good.
//!
//! Sources come and go by the thousand, so nothing here searches all of them. `engaged` sources
//! have lanes, or had some lately; each tick visits these. The others wait in a [`Queue`] or, if
//! they are out, cost only memory, which is freed when they leave. [`SourceTable::change`] files a
//! source's place in line by its state, so every change that may affect that must go through it.

use std::collections::{BTreeSet, HashMap};

use swath_model::{LaneId, SourceId, Time};

use crate::source::Source;

/// Where a source is kept. Ordered by the source's number. The key of a source that has left finds
/// nothing, even if its slot is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceKey {
    pub id: SourceId,
    slot: u32,
}

/// The sources by their numbers.
#[derive(Default)]
pub(crate) struct SourceTable {
    slots: Vec<Option<Source>>,
    free: Vec<u32>,
    keys: HashMap<SourceId, SourceKey>,
    engaged: BTreeSet<SourceKey>,
    queue: Queue,
    /// Sources whose waits are cut short when no source delivers.
    hasty: BTreeSet<SourceKey>,
    tally: Tally,
}

/// Usable sources without lanes.
#[derive(Default)]
struct Queue {
    /// Sources that may be contacted; those that failed lately come last.
    ready: BTreeSet<(bool, SourceKey)>,
    /// Sources that wait, by the time at which they are ready.
    resting: BTreeSet<(Time, SourceKey)>,
    /// Sources that have nothing of what is missing, until that changes.
    useless: BTreeSet<SourceKey>,
}

/// Counts of sources.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Ever added.
    seen: u64,
    /// Not out.
    usable: usize,
    /// Not out and not failing for long.
    promising: usize,
}

/// What the table has on file for a source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Filed {
    place: QueuePosition,
    hasty: bool,
    usable: bool,
    promising: bool,
}

/// A source's place in line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum QueuePosition {
    /// It has lanes, is not wanted, or is out.
    #[default]
    Nowhere,
    Ready(bool),
    Resting(Time),
    Useless,
}

#[cfg(test)]
impl SourceKey {
    /// Returns the key of the first source of a table.
    pub fn first() -> Self {
        Self { id: SourceId(0), slot: 0 }
    }
}

impl SourceTable {
    /// Adds a source that `new` makes from its key.
    pub fn add(&mut self, id: SourceId, new: impl FnOnce(SourceKey) -> Source) {
        debug_assert!(!self.keys.contains_key(&id), "a source's number is used twice");
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        let key = SourceKey { id, slot };
        self.slots[slot as usize] = Some(new(key));
        self.keys.insert(id, key);
        self.tally.seen += 1;
        self.file(key);
    }

    /// Removes a source that has left for good, once its lanes are gone.
    pub fn leave(&mut self, key: SourceKey) {
        self.change(key, Source::leave);
        self.forget_if_gone(key);
    }

    fn forget_if_gone(&mut self, key: SourceKey) {
        if self.get(key).is_some_and(|source| source.has_left() && source.lanes.is_empty()) {
            self.engaged.remove(&key);
            self.keys.remove(&key.id);
            self.slots[key.slot as usize] = None;
            self.free.push(key.slot);
        }
    }

    pub fn key(&self, id: SourceId) -> Option<SourceKey> {
        self.keys.get(&id).copied()
    }

    pub fn get(&self, key: SourceKey) -> Option<&Source> {
        self.slots.get(key.slot as usize)?.as_ref().filter(|source| source.key == key)
    }

    /// Returns a source for changes that do not affect its place in line.
    pub fn get_mut(&mut self, key: SourceKey) -> Option<&mut Source> {
        self.slots.get_mut(key.slot as usize)?.as_mut().filter(|source| source.key == key)
    }

    /// Changes a source and files it anew.
    pub fn change<R>(&mut self, key: SourceKey, how: impl FnOnce(&mut Source) -> R) -> Option<R> {
        let answer = how(self.get_mut(key)?);
        self.file(key);
        Some(answer)
    }

    /// Changes all sources; rarely called.
    pub fn change_all(&mut self, how: impl Fn(&mut Source)) {
        for key in self.all() {
            self.change(key, &how);
        }
    }

    /// Returns the keys of all sources, in order.
    pub fn all(&self) -> Vec<SourceKey> {
        let mut keys: Vec<SourceKey> = self.keys.values().copied().collect();
        keys.sort();
        keys
    }

    /// Returns the number of sources.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether any source was ever known.
    pub fn were_any(&self) -> bool {
        self.tally.seen > 0
    }

    /// Returns the number of usable sources.
    pub fn usable(&self) -> usize {
        self.tally.usable
    }

    /// Returns the number of sources that can be relied on.
    pub fn promising(&self) -> usize {
        self.tally.promising
    }

    /// Returns the sources with lanes now or lately, in order.
    pub fn engaged(&self) -> impl Iterator<Item = &Source> {
        self.engaged.iter().filter_map(|&key| self.get(key))
    }

    /// Returns the keys of those, for changes.
    pub fn engaged_keys(&self) -> Vec<SourceKey> {
        self.engaged.iter().copied().collect()
    }

    /// Records bytes from a lane of a source, `bytes` of them useful.
    pub fn delivered(&mut self, key: SourceKey, bytes: u64) {
        match self.get_mut(key) {
            // The usual case: nothing on file changes.
            Some(source) if source.is_promising() => source.delivered(bytes),
            _ => _ = self.change(key, |source| source.delivered(bytes)),
        }
    }

    /// Records a new lane of a source.
    pub fn lane_opened(&mut self, key: SourceKey, lane: LaneId) {
        self.engaged.insert(key);
        self.change(key, |source| source.lane_opened(lane));
    }

    /// Records the loss of a lane of a source.
    pub fn lane_lost(&mut self, key: SourceKey, lane: LaneId, now: Time) {
        self.change(key, |source| {
            source.lanes.retain(|&other| other != lane);
            source.left_at = now;
        });
        self.forget_if_gone(key);
    }

    /// Stops visiting sources that have had no lane for a while.
    pub fn disengage_idle(&mut self, now: Time) {
        let slots = &self.slots;
        self.engaged.retain(|key| {
            slots[key.slot as usize].as_ref().is_some_and(|source| {
                !source.lanes.is_empty()
                    || (source.is_usable() && now.secs_since(source.left_at) < LATELY_S)
            })
        });
    }

    /// Cuts waits short that the source did not ask for, because no source delivers.
    pub fn make_haste(&mut self) {
        for key in std::mem::take(&mut self.hasty) {
            self.change(key, |source| source.backoff.make_haste());
        }
    }

    /// Makes sources ready whose wait is over.
    pub fn wake(&mut self, now: Time) {
        while let Some(&(_, key)) = self.queue.resting.first().filter(|it| it.0 <= now) {
            let Some(failed) = self.get(key).map(|source| source.backoff.has_failed()) else {
                return;
            };
            self.put(key, QueuePosition::Ready(failed));
        }
    }

    /// Returns the first ready source, and whether it failed lately.
    pub fn first_ready(&self) -> Option<(bool, SourceKey)> {
        self.queue.ready.first().copied()
    }

    /// Returns the first source that is ready or will be.
    pub fn first_waiting(&self) -> Option<SourceKey> {
        let resting = || self.queue.resting.first().map(|it| it.1);
        self.first_ready().map(|it| it.1).or_else(resting)
    }

    /// Records that a source has nothing of what is missing.
    pub fn set_useless(&mut self, key: SourceKey) {
        self.put(key, QueuePosition::Useless);
    }

    /// Puts useless sources in line again, because more is missing than before.
    pub fn reconsider(&mut self) {
        for key in std::mem::take(&mut self.queue.useless) {
            self.file(key);
        }
    }

    /// Checks that the files agree with the sources, which have `lanes` lanes in all.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn audit(&self, lanes: usize) -> Result<(), String> {
        let (mut listed, mut usable, mut promising, mut waiting) = (0, 0, 0, 0);
        for source in self.all().into_iter().filter_map(|key| self.get(key)) {
            listed += source.lanes.len();
            usable += usize::from(source.is_usable());
            promising += usize::from(source.is_promising());
            waiting += usize::from(source.waits());
            if !source.lanes.is_empty() && !self.engaged.contains(&source.key) {
                return Err(format!("{:?} has lanes, but is not looked at", source.key));
            }
            let filed = Filed { place: source.filed.place, ..source.filing() };
            if source.filed != filed {
                return Err(format!("{:?} is filed as {:?}", source.key, source.filed));
            }
        }
        let queued = self.queue.ready.len() + self.queue.resting.len() + self.queue.useless.len();
        let counts = [
            ("lanes", listed, lanes),
            ("usable sources", usable, self.tally.usable),
            ("promising sources", promising, self.tally.promising),
            ("waiting sources", waiting, queued),
        ];
        match counts.into_iter().find(|(_, real, filed)| real != filed) {
            Some((what, real, filed)) => Err(format!("{real} {what}, {filed} on file")),
            None => Ok(()),
        }
    }

    /// Puts a source where its state says.
    fn file(&mut self, key: SourceKey) {
        let Some(source) = self.get(key) else { return };
        let (before, now) = (source.filed, source.filing());
        let place = match () {
            () if !source.waits() => QueuePosition::Nowhere,
            () => QueuePosition::Resting(source.backoff.retry_at),
        };
        self.tally.usable =
            self.tally.usable + usize::from(now.usable) - usize::from(before.usable);
        self.tally.promising =
            self.tally.promising + usize::from(now.promising) - usize::from(before.promising);
        match now.hasty {
            true => self.hasty.insert(key),
            false => before.hasty && self.hasty.remove(&key),
        };
        if let Some(source) = self.get_mut(key) {
            source.filed = Filed { place: before.place, ..now };
        }
        self.put(key, place);
    }

    fn put(&mut self, key: SourceKey, place: QueuePosition) {
        let Some(source) = self.get_mut(key) else { return };
        match std::mem::replace(&mut source.filed.place, place) {
            QueuePosition::Nowhere => false,
            QueuePosition::Ready(failed) => self.queue.ready.remove(&(failed, key)),
            QueuePosition::Resting(until) => self.queue.resting.remove(&(until, key)),
            QueuePosition::Useless => self.queue.useless.remove(&key),
        };
        match place {
            QueuePosition::Nowhere => false,
            QueuePosition::Ready(failed) => self.queue.ready.insert((failed, key)),
            QueuePosition::Resting(until) => self.queue.resting.insert((until, key)),
            QueuePosition::Useless => self.queue.useless.insert(key),
        };
    }
}

impl Filed {
    /// Returns the file of a source in this state, without its place.
    pub fn of(usable: bool, promising: bool, hasty: bool) -> Self {
        Self { place: QueuePosition::Nowhere, hasty, usable, promising }
    }
}

/// How long a source without lanes is still visited: longer than the longest back-off, so that the
/// measurements of a source that keeps failing continue.
const LATELY_S: f64 = 15.0;
