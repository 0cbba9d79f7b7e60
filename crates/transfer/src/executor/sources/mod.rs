//! The sources of a transfer, and the state of each.

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
use tokio::sync::{mpsc, watch};

use crate::executor::integrity::agree::{Agreement, Version};
use crate::executor::persistence::deliverer::Deliverer;
use crate::executor::routes::OnRoute;
use crate::executor::sources::no_progress::NoProgress;
use crate::executor::telemetry::figures::Figures;
use crate::observe::SourceState;
use crate::reason::{Reason, Why};

/// All sources, by their numbers; none is ever removed.
#[derive(Default)]
pub(crate) struct SourceTable {
    entries: Vec<SourceEntry>,
    /// Replicas that could not be opened, and why.
    pub unopened: Vec<Reason>,
    /// Number of sources found in answers.
    pub discovered: usize,
    /// Brings sources while the transfer runs.
    pub discovery: Option<mpsc::Receiver<Arc<dyn Source>>>,
    /// The weakest agreement between the mirrors in use; `None` with one mirror.
    pub agreement: Option<Agreement>,
}

impl SourceTable {
    /// Returns the number of sources.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a source, with the next number.
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

    /// Returns whether this source is out, or does not exist.
    pub fn is_bad(&self, at: usize) -> bool {
        self.get(at).is_none_or(|entry| entry.state == SourceState::Bad)
    }

    /// Returns whether this source is out for its answers, not only for long silence.
    pub fn is_out(&self, at: usize) -> bool {
        self.is_bad(at) && self.get(at).is_none_or(|entry| !entry.given_up)
    }

    /// Returns whether this source is not out, and accepted or not asked yet.
    pub fn is_usable(&self, at: usize) -> bool {
        !self.is_bad(at) && self[at].accepted != Some(false)
    }

    /// Returns whether this source has any of these bytes.
    pub fn has_some(&self, at: usize, range: Range) -> bool {
        self.get(at).is_some_and(|entry| !entry.lacks.covers(range))
    }

    /// Returns whether another source has yet to report its file.
    pub fn others_to_hear(&self, source: usize) -> bool {
        (0..self.len()).any(|at| at != source && !self.is_bad(at) && self[at].accepted.is_none())
    }

    /// Returns the sources in their journal form.
    pub fn deliverers(&self) -> impl Iterator<Item = Deliverer> {
        self.iter().map(|entry| Deliverer::of(&*entry.source))
    }

    /// Returns the sources whose file is the fetched one.
    pub fn accepted(&self) -> impl Iterator<Item = &SourceEntry> {
        self.iter().filter(|entry| entry.accepted == Some(true))
    }

    /// Returns the next source that is found, `None` when no more will come; never without a discovery.
    pub async fn found(&mut self) -> Option<Arc<dyn Source>> {
        match &mut self.discovery {
            Some(discovery) => discovery.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the fetched version of the file.
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
    /// Whether it was found while the transfer ran, by whoever finds sources.
    pub is_found: bool,
    pub facts: Option<Facts>,
    /// Bytes of the file that it does not have.
    pub lacks: RangeSet,
    /// The bytes that it holds, if they change.
    pub holdings: Option<watch::Receiver<RangeSet>>,
    /// Whether its file is the fetched one; `None` until it has answered.
    pub accepted: Option<bool>,
    pub state: SourceState,
    pub reason: Option<Why>,
    pub ever_up: bool,
    /// Whether it once answered with a Metalink in place of the file.
    pub metalink_passed: bool,
    /// How often it was started again, because no two of its answers have the same version.
    pub one_answers: u32,
    /// Whether it was left out because its file is another version.
    pub left_out_for_version: bool,
    /// Whether it contradicted itself.
    pub lied: bool,
    pub failures: u32,
    /// Connections in a row that broke after a few bytes.
    pub short_lanes: u32,
    /// Whether it lacked bytes that it should hold.
    pub was_short: bool,
    /// Files that it lacks, if it has several.
    pub files_missing: u32,
    pub no_progress: NoProgress,
    pub figures: Figures,
    /// Its place in the graph of routes.
    pub on_route: Option<OnRoute>,
    /// Most lanes while its route is on trial.
    pub lanes_max: Option<u32>,
    /// Connection limit of its host, as the planner knows it.
    pub host_serves: Option<u32>,
    /// Bytes that it delivered under earlier planners.
    pub planned_bytes: u64,
    /// What its last error shows about its route.
    pub fault: Fault,
    /// Whether that error is about the file there, on any route.
    pub is_gone: bool,
    /// Whether it is out only because nothing came from it for long.
    pub given_up: bool,
    /// Whether it is retried after it was given up, with no bytes yet: not worth an event.
    pub asked_again: bool,
}

impl SourceEntry {
    /// Returns whether relays lead to it.
    pub fn is_relayed(&self) -> bool {
        self.source.relaying().is_some()
    }

    /// Returns whether relays could change its bytes.
    pub fn is_exposed(&self) -> bool {
        self.source.relaying().is_some_and(|relaying| relaying.is_exposed)
    }

    /// Returns whether relays forward its answers and can read them.
    pub fn is_passed(&self) -> bool {
        self.source.relaying().is_some_and(|it| it.relay_mode == RelayMode::Forward)
    }

    /// Makes the entry of a source that has not been asked yet.
    pub fn new(source: Arc<dyn Source>) -> Self {
        let holdings = source.holdings();
        let held = holdings.as_ref().map(|holdings| holdings.borrow().clone());
        let lacks = held.map(|held| held.gaps_within(Range::new(0, u64::MAX)));
        Self {
            source,
            is_found: false,
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
            files_missing: 0,
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
