//! Further replicas of a tree: how they join, and which blocks wait for them.
//!
//! A block that differs from the index at its source is written as that source has it once no other
//! source may bring it. While the index of a further replica is on its way, that is undecided: the
//! planner counts the block as delivered. It is fetched again when the replica joins, or from the
//! first source when no replica is left to wait for.

use swath_model::{Range, RangeSet, SourceId};
use swath_plan::Event as PlanEvent;
use url::Url;

use crate::executor::state::Run;
use crate::request::Mirror;
use crate::tree::Joined;

/// A block of the sealed file, and the source that could not read it as its index said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undecided {
    source: usize,
    range: Range,
}

impl Run<'_> {
    /// Handles a block that differs from the index at its source, and was not written.
    pub(crate) fn void_came(&mut self, source: usize, range: Range) {
        let is_elsewhere = (0..self.sources.len()).any(|at| {
            let is_void = |void: &RangeSet| void.covers(range);
            self.is_other_replica(source, at) && !self.tree_void(at).is_some_and(is_void)
        });
        match self.dataset.tree_mut() {
            Some(tree) if !is_elsewhere && !tree.joins_ended => {
                let is_first = tree.undecided.is_empty();
                tree.undecided.push(Undecided { source, range });
                if is_first && !std::mem::replace(&mut tree.told_waiting, true) {
                    let text = "some files cannot be read there: waiting for the other replicas";
                    self.note(text.to_owned(), false);
                }
            }
            // If no other source is left, it is written the next time.
            _ => self.open_again(source, range, is_elsewhere),
        }
    }

    /// Handles a further replica that joins, or is left out.
    pub(crate) fn joined(&mut self, joined: Joined) {
        match joined {
            Joined::Out { name, reason } => {
                self.note(format!("{name} is left out: {reason}"), true);
            }
            Joined::Same { mirror, changed, doubtful } => {
                if !self.tree_joined(&mirror, changed, &doubtful) {
                    return;
                }
                let Some(tree) = self.dataset.tree_mut() else { return };
                let (later, now): (Vec<_>, Vec<_>) = std::mem::take(&mut tree.undecided)
                    .into_iter()
                    .partition(|block| doubtful.covers(block.range));
                tree.undecided = later;
                for Undecided { source, range } in now {
                    self.open_again(source, range, true);
                }
            }
        }
    }

    /// Adds a replica as a source. Returns whether it is one now.
    fn tree_joined(&mut self, mirror: &Mirror, changed: Url, doubtful: &RangeSet) -> bool {
        let at = self.sources.len();
        if !self.add_source(mirror) {
            return false;
        }
        self.sources[at].accepted = Some(true);
        let name = self.sources[at].source.name().to_string();
        self.note(format!("{name} has the same tree and is used too"), false);
        if let Some(tree) = self.dataset.tree_mut() {
            let source = tree.source(at);
            source.changed = Some(changed);
            // These count as void: they are not taken from there.
            source.void = doubtful.clone();
        }
        let (source, now) = (SourceId(at as u32), self.now());
        for range in doubtful.iter() {
            self.planner.handle(PlanEvent::Forbidden { source, range }, now);
        }
        true
    }

    /// Ends the wait for replicas: undecided blocks are written as they are.
    pub(crate) fn joins_ended(&mut self) {
        let Some(tree) = self.dataset.tree_mut() else { return };
        tree.joins_ended = true;
        for Undecided { source, range } in std::mem::take(&mut tree.undecided) {
            self.open_again(source, range, false);
        }
    }

    /// Returns whether the only thing left is to wait for further replicas.
    pub(crate) fn waits_for_joins(&self) -> bool {
        let undecided = self.dataset.tree().is_some_and(|tree| !tree.undecided.is_empty());
        undecided && self.planner_done && self.jobs.is_empty()
    }

    /// Fetches a block once more, from another source if `elsewhere`.
    pub(crate) fn open_again(&mut self, source: usize, range: Range, elsewhere: bool) {
        let (id, now) = (SourceId(source as u32), self.now());
        let range =
            Range::new(range.start, range.end.min(self.coverage.size_bytes.unwrap_or(u64::MAX)));
        self.coverage.have.remove(range);
        if let Some(entry) = self.sources.get_mut(source) {
            entry.figures.bytes = entry.figures.bytes.saturating_sub(range.len());
            entry.figures.wasted_bytes += range.len();
        }
        self.coverage.wasted_bytes += range.len();
        if elsewhere {
            self.planner.handle(PlanEvent::Forbidden { source: id, range }, now);
        }
        self.planner.handle(PlanEvent::Reopened { range }, now);
        self.planner_done = false;
        // The next source has the usual time to bring it.
        self.clock.last_arrival = now;
    }
}
