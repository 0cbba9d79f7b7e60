//! The sources of a transfer, with what is known of each.

pub(super) mod charge;
pub(super) mod holdings;
pub(super) mod meet;
pub(super) mod no_progress;
pub(super) mod reasons;

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use swath_model::{Range, RangeSet};
use swath_plan::routes::Fault;
use swath_source::{Facts, RelayMode, Source};
use tokio::sync::watch;

use crate::executor::integrity::agree::{Agreement, Version};
use crate::executor::persistence::deliverer::Deliverer;
use crate::executor::routes::OnRoute;
use crate::executor::sources::no_progress::NoProgress;
use crate::executor::telemetry::figures::Figures;
use crate::observe::SourceState;
use crate::reason::{Reason, Why};

/// All sources, by their numbers; none is ever taken away.
#[derive(Default)]
pub(crate) struct SourceTable {
    entries: Vec<SourceEntry>,
    /// Replicas that are no source at all, and why.
    pub unopened: Vec<Reason>,
    /// How many were found by themselves.
    pub discovered: usize,
    /// The weakest agreement between the mirrors in use; `None` with one mirror.
    pub agreement: Option<Agreement>,
}

impl SourceTable {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// One more, with the next number.
    pub fn push(&mut self, entry: SourceEntry) {
        self.entries.push(entry);
    }

    pub fn get(&self, at: usize) -> Option<&SourceEntry> {
        self.entries.get(at)
    }

    pub fn get_mut(&mut self, at: usize) -> Option<&mut SourceEntry> {
        self.entries.get_mut(at)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, SourceEntry> {
        self.entries.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, SourceEntry> {
        self.entries.iter_mut()
    }

    /// Whether this one is out; what is no source is too.
    pub fn is_bad(&self, at: usize) -> bool {
        self.get(at).is_none_or(|entry| entry.state == SourceState::Bad)
    }

    /// Out for what it said or did, and not only because nothing came of it for long.
    pub fn is_out(&self, at: usize) -> bool {
        self.is_bad(at) && self.get(at).is_none_or(|entry| !entry.given_up)
    }

    /// Accepted, or not asked yet; not out.
    pub fn is_usable(&self, at: usize) -> bool {
        !self.is_bad(at) && self[at].accepted != Some(false)
    }

    /// Whether this one has any of these bytes.
    pub fn has_some(&self, at: usize, range: Range) -> bool {
        self.get(at).is_some_and(|entry| !entry.lacks.covers(range))
    }

    /// Whether a source other than this one has yet to say what its file is.
    pub fn others_to_hear(&self, source: usize) -> bool {
        (0..self.len()).any(|at| at != source && !self.is_bad(at) && self[at].accepted.is_none())
    }

    /// As the journal knows them.
    pub fn deliverers(&self) -> impl Iterator<Item = Deliverer> {
        self.iter().map(|entry| Deliverer::of(&*entry.source))
    }

    /// Those whose file is the one that is fetched.
    pub fn accepted(&self) -> impl Iterator<Item = &SourceEntry> {
        self.iter().filter(|entry| entry.accepted == Some(true))
    }

    /// The version of the file that is fetched.
    pub fn version(&self) -> Option<Version> {
        self.accepted().find_map(|entry| entry.facts.as_ref().and_then(Version::of))
    }
}

impl Index<usize> for SourceTable {
    type Output = SourceEntry;

    fn index(&self, at: usize) -> &SourceEntry {
        &self.entries[at]
    }
}

impl IndexMut<usize> for SourceTable {
    fn index_mut(&mut self, at: usize) -> &mut SourceEntry {
        &mut self.entries[at]
    }
}

/// One source of this transfer.
pub(crate) struct SourceEntry {
    pub source: Arc<dyn Source>,
    pub facts: Option<Facts>,
    /// What of the file it does not have.
    pub lacks: RangeSet,
    /// What it holds, where that changes.
    pub holdings: Option<watch::Receiver<RangeSet>>,
    /// Whether its file is the one that we fetch; `None` while it has not said.
    pub accepted: Option<bool>,
    pub state: SourceState,
    pub reason: Option<Why>,
    pub ever_up: bool,
    /// It has answered with a Metalink in place of the file once.
    pub metalink_passed: bool,
    /// How often it was begun anew, because no two of its answers are of one version.
    pub one_answers: u32,
    /// Left out because its file is another version than the one being fetched.
    pub left_out_for_version: bool,
    /// It contradicted itself.
    pub lied: bool,
    pub failures: u32,
    /// Connections in a row that broke after a few bytes.
    pub short_lanes: u32,
    /// It turned out not to hold all that it was to hold.
    pub was_short: bool,
    pub no_progress: NoProgress,
    pub figures: Figures,
    /// Where it belongs in the graph of routes.
    pub on_route: Option<OnRoute>,
    /// Most lanes that it may have while its route is on trial.
    pub lanes_max: Option<u32>,
    /// So many connections its host serves, as the planner was told.
    pub host_serves: Option<u32>,
    /// What it has delivered by the books of planners before the one in use.
    pub planned_bytes: u64,
    /// What its last error says of the route that it is reached by.
    pub fault: Fault,
    /// That error is about the file there, by whatever route it is reached.
    pub is_gone: bool,
    /// It is out because nothing came of it for long, and for nothing else.
    pub given_up: bool,
    /// It was given up before, is asked once more, and has brought nothing yet: no news.
    pub asked_again: bool,
}

impl SourceEntry {
    /// Whether relays lead to it.
    pub fn is_relayed(&self) -> bool {
        self.source.relaying().is_some()
    }

    /// Whether relays could change what comes of it.
    pub fn is_exposed(&self) -> bool {
        self.source.relaying().is_some_and(|relaying| relaying.is_exposed)
    }

    /// Whether relays answer its requests, and see what they pass on.
    pub fn is_passed(&self) -> bool {
        self.source.relaying().is_some_and(|it| it.relay_mode == RelayMode::Forward)
    }

    /// Of which nothing is known yet.
    pub fn new(source: Arc<dyn Source>) -> Self {
        let holdings = source.holdings();
        let held = holdings.as_ref().map(|holdings| holdings.borrow().clone());
        let lacks = held.map(|held| held.gaps_within(Range::new(0, u64::MAX)));
        Self {
            source,
            lacks: lacks.into_iter().flatten().collect(),
            holdings,
            facts: None,
            accepted: None,
            state: SourceState::Waiting,
            reason: None,
            ever_up: false,
            metalink_passed: false,
            one_answers: 0,
            left_out_for_version: false,
            lied: false,
            failures: 0,
            short_lanes: 0,
            was_short: false,
            no_progress: NoProgress::default(),
            figures: Figures::default(),
            on_route: None,
            lanes_max: None,
            host_serves: None,
            planned_bytes: 0,
            fault: Fault::Broken,
            is_gone: false,
            given_up: false,
            asked_again: false,
        }
    }
}
