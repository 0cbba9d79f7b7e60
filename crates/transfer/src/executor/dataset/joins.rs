//! Further replicas of a tree: how they join, and what waits for them.
//!
//! A block that a source could not read as its index said is laid down with what it has of it once
//! nobody else may bring it. As long as the index of a further replica is on its way that is
//! undecided: the planner takes the block for delivered, and it is opened again when the replica
//! joins, or, for whoever had it, when there is none left to wait for.

use swath_model::{Range, RangeSet, SourceId};
use swath_plan::Event as PlanEvent;
use url::Url;

use crate::executor::state::Run;
use crate::request::Mirror;
use crate::tree::Joined;

/// A block of the sealed file, and the source that could not read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undecided {
    source: usize,
    range: Range,
}

impl Run<'_> {
    /// A source could not read this block as promised, and it was not laid down.
    pub(crate) fn void_came(&mut self, source: usize, range: Range) {
        let is_elsewhere = (0..self.sources.len()).any(|at| {
            let is_void = |void: &RangeSet| void.covers(range);
            at != source && !self.sources.is_bad(at) && !self.tree_void(at).is_some_and(is_void)
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
            // With nobody else it is laid down the next time.
            _ => self.open_again(source, range, is_elsewhere),
        }
    }

    /// A further replica is here, or is not coming.
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

    /// Whether it is a source now.
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
            // As good as void: nothing of it is taken from there.
            source.void = doubtful.clone();
        }
        let (source, now) = (SourceId(at as u32), self.now());
        for range in doubtful.iter() {
            self.planner.handle(PlanEvent::Forbidden { source, range }, now);
        }
        true
    }

    /// No more replicas are to be waited for: what is undecided is laid down as it is.
    pub(crate) fn joins_ended(&mut self) {
        let Some(tree) = self.dataset.tree_mut() else { return };
        tree.joins_ended = true;
        for Undecided { source, range } in std::mem::take(&mut tree.undecided) {
            self.open_again(source, range, false);
        }
    }

    /// Whether there is nothing to do but to wait for further replicas.
    pub(crate) fn waits_for_joins(&self) -> bool {
        let undecided = self.dataset.tree().is_some_and(|tree| !tree.undecided.is_empty());
        undecided && self.planner_done && self.jobs.is_empty()
    }

    /// A block that came is to come once more, from another source if `elsewhere`.
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
        // Whoever is to bring it has the usual time for that.
        self.clock.last_arrival = now;
    }
}
