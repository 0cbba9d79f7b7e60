//! Which bytes are delivered, requested, or still to be requested.
//!
//! Invariant: every byte of the file is delivered, or open (requested from nobody), or requested on
//! at least one lane. `doubtful` bytes are requested on lanes that fell silent; `shared` bytes are
//! requested on more than one lane.

use swath_model::{Range, RangeSet};

use crate::config::Config;
use crate::holds::Holds;
use crate::lane_table::LaneTable;

/// The bytes of the file, by their state.
pub(crate) struct Coverage {
    pub size_bytes: Option<u64>,
    /// The file may still grow.
    pub grows: bool,
    pub undelivered: RangeSet,
    pub open: RangeSet,
    pub doubtful: RangeSet,
    pub shared: RangeSet,
    /// Range of the first request while the size is unknown; moves on as its bytes arrive.
    pub first_gap: Range,
    /// How far an ordered consumer has come.
    pub consumed: u64,
    /// Counts how often bytes became open or doubtful.
    freed: u64,
}

/// Unless one of these changes, or the source gets more, a source that can be asked for nothing still cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chances {
    /// How often bytes became open or doubtful.
    freed: u64,
    /// The offset from which nothing may be requested yet.
    reach: u64,
}

impl Coverage {
    /// Returns the coverage of an unknown file.
    pub fn new() -> Self {
        Self {
            size_bytes: None,
            grows: false,
            undelivered: RangeSet::new(),
            open: RangeSet::new(),
            doubtful: RangeSet::new(),
            shared: RangeSet::new(),
            first_gap: Range::new(0, u64::MAX),
            consumed: 0,
            freed: 0,
        }
    }

    /// Sets the size and the missing ranges; those in `asked` are already requested.
    pub fn lay_out(&mut self, size_bytes: u64, missing: RangeSet, asked: &[Range]) {
        self.freed += 1;
        self.size_bytes = Some(size_bytes);
        self.grows = false;
        self.undelivered = missing;
        self.open = self.undelivered.clone();
        self.doubtful = RangeSet::new();
        self.shared = RangeSet::new();
        for &range in asked {
            for range in self.undelivered.within(range) {
                if self.open.remove(range) < range.len() {
                    self.shared.insert(range);
                }
            }
        }
    }

    /// Records that the file is longer than known before.
    pub fn grow(&mut self, size_bytes: u64, missing: &RangeSet, more: bool) {
        self.freed += 1;
        self.size_bytes = Some(size_bytes);
        self.grows = more;
        self.undelivered.union_with(missing);
        self.open.union_with(missing);
    }

    /// Returns whether there is, or may yet be, anything to deliver.
    pub fn misses_something(&self) -> bool {
        self.grows || !self.undelivered.is_empty()
    }

    /// Returns whether the size is known and all is delivered.
    pub fn is_complete(&self) -> bool {
        self.size_bytes.is_some() && !self.misses_something()
    }

    /// Returns whether any bytes are requested from nobody, or only from silent lanes.
    pub fn has_work(&self) -> bool {
        !self.open.is_empty() || !self.doubtful.is_empty()
    }

    /// Returns the offset from which nothing may be requested yet.
    pub fn reach(&self, config: &Config) -> u64 {
        config.window_bytes.map_or(u64::MAX, |window| self.consumed.saturating_add(window))
    }

    /// Returns what a search for work depends on, beside the source.
    pub fn chances(&self, config: &Config) -> Chances {
        Chances { freed: self.freed, reach: self.reach(config) }
    }

    /// Returns whether a source may be asked for any of what is missing, now or later.
    pub fn needs_any_of(&self, holds: &Holds) -> bool {
        holds.is_whole()
            || match self.size_bytes {
                // It is not known yet what is missing.
                None => holds.may_any(),
                Some(_) => self.grows || holds.may_any_of(&self.undelivered),
            }
    }

    /// Records that `range` is here; returns how much of it was missing.
    pub fn deliver(&mut self, range: Range) -> u64 {
        let Range { start, end } = self.first_gap;
        if self.size_bytes.is_none() && range.start <= start && range.end > start {
            // The answer does not tell its length: the next request continues behind it.
            let end = if range.end < end { end } else { u64::MAX };
            self.first_gap = Range::new(range.end, end);
        }
        self.open.remove(range);
        self.doubtful.remove(range);
        self.undelivered.remove(range)
    }

    /// Records a request for a range that was open or owed by a silent lane.
    pub fn take(&mut self, range: Range) {
        if self.open.remove(range) == 0 {
            self.doubtful.remove(range);
            self.shared.insert(range);
        }
    }

    /// Marks a silent lane's range as doubtful, except what other lanes may bring.
    pub fn doubt(&mut self, range: Range, lanes: &LaneTable) {
        let mut doubtful: RangeSet = self.undelivered.within(range).collect();
        if self.shared.bytes_within(range) > 0 {
            for lane in lanes.iter().filter(|lane| !lane.silent) {
                for asked in lane.pipe.undelivered() {
                    doubtful.remove(asked);
                }
            }
        }
        self.freed += 1;
        self.doubtful.union_with(&doubtful);
    }

    /// Releases a range from its lane: missing parts that no other lane fetches are open again.
    /// Returns whether there are any.
    pub fn give_back(&mut self, range: Range, lanes: &LaneTable) -> bool {
        let missing: Vec<Range> = self.undelivered.within(range).collect();
        let mut is_any = false;
        for range in missing {
            is_any |= self.reopen(range, lanes);
        }
        is_any
    }

    /// Does the same for a range that is missing as a whole.
    pub fn reopen(&mut self, range: Range, lanes: &LaneTable) -> bool {
        let mut free = RangeSet::from(range);
        let mut doubtful = RangeSet::new();
        if self.shared.bytes_within(range) > 0 || self.doubtful.bytes_within(range) > 0 {
            for lane in lanes.iter() {
                for asked in
                    lane.pipe.undelivered().into_iter().filter_map(|asked| asked.intersect(range))
                {
                    if lane.silent {
                        doubtful.insert(asked);
                    } else {
                        free.remove(asked);
                    }
                }
            }
        }
        self.freed += 1;
        for range in free.iter() {
            self.shared.remove(range);
            self.doubtful.remove(range);
            self.open.insert(range);
            // A silent lane keeps its ranges as well, in case it speaks again.
            for range in doubtful.within(range) {
                self.open.remove(range);
                self.doubtful.insert(range);
            }
        }
        !free.is_empty()
    }

    /// Returns the next `bytes` bytes or fewer, at or after `from`, that a source may be asked for:
    /// open ones first, then those that a silent lane owes.
    pub fn find(&self, holds: &Holds, from: u64, bytes: u64, config: &Config) -> Option<Range> {
        let limit = self.reach(config);
        let first = |set: &RangeSet| holds.first_of(set, from).filter(|run| run.start < limit);
        let run = first(&self.open).or_else(|| first(&self.doubtful))?;
        Some(self.begin(run, bytes, config))
    }

    /// Returns the longest of the ranges that [`Coverage::find`] would accept, not the first.
    pub fn find_long(&self, holds: &Holds, bytes: u64, config: &Config) -> Option<Range> {
        let mut best = self.find(holds, 0, bytes, config)?;
        let mut from = best.end;
        while best.len() < bytes {
            let next = self.find(holds, from, bytes, config);
            let Some(next) = next.filter(|next| next.start >= from) else { break };
            from = next.end;
            if next.len() > best.len() {
                best = next;
            }
        }
        Some(best)
    }

    /// Returns the part of `run` to request if about `bytes` bytes are wanted.
    pub fn begin(&self, run: Range, bytes: u64, config: &Config) -> Range {
        Range::new(run.start, cut(run, bytes, config).min(self.reach(config)))
    }
}

/// Returns the end of a swath of about `bytes` bytes from the start of `run`: on the grid, or the
/// end of the run if hardly anything would be left of it.
pub(crate) fn cut(run: Range, bytes: u64, config: &Config) -> u64 {
    let grid = config.grid_bytes.max(1);
    let end = run.start.saturating_add(bytes);
    if end.saturating_add(grid / 2) >= run.end {
        return run.end;
    }
    let down = end / grid * grid;
    if down > run.start { down } else { (run.start / grid + 1).saturating_mul(grid).min(run.end) }
}

/// Returns where the unit that holds the byte at `offset` begins.
pub(crate) fn unit_at(offset: u64, config: &Config) -> u64 {
    offset - offset % config.unit_bytes.max(1)
}
