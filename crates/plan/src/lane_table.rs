//! All lanes that are open, opening or closing, and the swaths on each.
//!
//! Invariant: each swath of a queue is known by its number, and a lane is on the list of hungry
//! lanes exactly if it is marked so.

use std::collections::{BTreeMap, HashMap, VecDeque};

use swath_model::{LaneId, Range, SwathId, Time};

use crate::lane::{Lane, Slot};
use crate::source_table::SourceKey;

/// The lanes by their numbers.
#[derive(Default)]
pub(crate) struct LaneTable {
    lanes: BTreeMap<LaneId, Lane>,
    swaths: HashMap<SwathId, LaneId>,
    /// Lanes that may take more; each at most once.
    hungry: VecDeque<LaneId>,
    next_lane: u32,
    next_swath: u64,
}

impl LaneTable {
    pub fn get(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(&id)
    }

    pub fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.lanes.values_mut()
    }

    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the existing lanes among these numbers.
    pub fn of<'a>(&'a self, ids: &'a [LaneId]) -> impl Iterator<Item = &'a Lane> {
        ids.iter().filter_map(|id| self.lanes.get(id))
    }

    /// Adds a new lane and returns it.
    pub fn open(&mut self, source: SourceKey, now: Time) -> &mut Lane {
        let id = LaneId(self.next_lane);
        self.next_lane += 1;
        self.lanes.entry(id).or_insert_with(|| Lane::new(id, source, now))
    }

    /// Removes a lane and its swaths.
    pub fn remove(&mut self, id: LaneId) -> Option<Lane> {
        let lane = self.lanes.remove(&id)?;
        for slot in &lane.pipe.queue {
            self.swaths.remove(&slot.swath);
        }
        Some(lane)
    }

    /// Puts a new swath on a lane.
    pub fn push(&mut self, id: LaneId, range: Range, now: Time) -> Option<SwathId> {
        let lane = self.lanes.get_mut(&id)?;
        let swath = SwathId(self.next_swath);
        self.next_swath += 1;
        lane.push(
            Slot {
                swath,
                start: range.start,
                end: range.end,
                asked_end: range.end,
                asked_at: now,
                delivered_to: range.start,
                trailing_bytes: 0,
            },
            now,
        );
        self.swaths.insert(swath, id);
        Some(swath)
    }

    /// Returns the lane that a swath is on.
    pub fn lane_of(&self, swath: SwathId) -> Option<LaneId> {
        self.swaths.get(&swath).copied()
    }

    /// Forgets a swath's number; returns the lane that it is on.
    pub fn forget(&mut self, swath: SwathId) -> Option<LaneId> {
        self.swaths.remove(&swath)
    }

    /// Returns how many swaths are known by number.
    pub fn swaths(&self) -> usize {
        self.swaths.len()
    }

    pub fn make_hungry(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && !std::mem::replace(&mut lane.hungry, true)
        {
            self.hungry.push_back(id);
        }
    }

    pub fn all_hungry(&mut self) {
        for lane in self.lanes.values_mut() {
            if lane.is_up() && !std::mem::replace(&mut lane.hungry, true) {
                self.hungry.push_back(lane.id);
            }
        }
    }

    /// Returns the next lane that may be given more.
    pub fn next_hungry(&mut self) -> Option<LaneId> {
        let id = self.hungry.pop_front()?;
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.hungry = false;
        }
        Some(id)
    }

    /// Returns whether a lane is on the list of hungry lanes.
    pub fn is_listed(&self, id: LaneId) -> bool {
        self.hungry.contains(&id)
    }
}
