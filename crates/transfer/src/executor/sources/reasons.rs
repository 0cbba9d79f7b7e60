//! The reasons why nothing more comes: of each source, its route, and the relays.

use swath_model::Range;
use swath_plan::routes::{Fault, SiteId};
use swath_source::{Class, LaneError};

use crate::executor::sources::SourceEntry;
use crate::executor::state::Run;
use crate::observe::SourceState;
use crate::reason::{Party, Reason};
use crate::routes::RouteChoice;

impl Run<'_> {
    /// Returns why each source that should deliver is out.
    pub(crate) fn reasons(&self) -> Vec<Reason> {
        let asked = self.sources.iter().filter(|source| !self.is_unasked(source));
        let reasons: Vec<Reason> = asked
            .map(|source| {
                let why = source.no_progress.why().or(source.reason.as_ref()).cloned();
                let why = why.unwrap_or_else(|| match source.state {
                    SourceState::Silent => "it went silent".into(),
                    _ if self.has_given_all(source) => "all that it holds has come".into(),
                    _ => "no answer".into(),
                });
                Reason::of_source(source.source.name().clone(), why)
            })
            .collect();
        let reasons: Vec<Reason> =
            reasons.into_iter().chain(self.sources.unopened.iter().cloned()).collect();
        if reasons.is_empty() { self.lost_relays() } else { reasons }
    }

    /// Returns whether this source holds only a part of the file, which has all come.
    fn has_given_all(&self, entry: &SourceEntry) -> bool {
        let missing = self
            .coverage
            .size_bytes
            .map(|size| self.coverage.have.gaps_within(Range::new(0, size)));
        !entry.lacks.is_empty()
            && missing.is_some_and(|missing| missing.iter().all(|&range| entry.lacks.covers(range)))
    }

    /// Returns whether this source was not used: the user chose a route, and this is the source
    /// without it.
    fn is_unasked(&self, entry: &SourceEntry) -> bool {
        let is_named = self.named_relays().is_some();
        let is_direct = entry.on_route.as_ref().is_some_and(|own| own.route.is_direct());
        is_named && is_direct && entry.state == SourceState::Waiting && entry.reason.is_none()
    }

    /// Returns the relays of the route that the user chose.
    pub(crate) fn named_relays(&self) -> Option<&[usize]> {
        match self.routing.as_ref()?.routes.choice() {
            RouteChoice::Fixed(relays) if !relays.is_empty() => Some(relays),
            _ => None,
        }
    }

    /// Returns the known failures of relays on the route that the user chose.
    fn lost_relays(&self) -> Vec<Reason> {
        let (Some(routing), Some(named)) = (&self.routing, self.named_relays()) else {
            return Vec::new();
        };
        let sites = named.iter().map(|&at| SiteId(at as u32 + 1));
        let reason = |site| {
            let of = Party::Relay(routing.sites.get(site)?.name.clone());
            Some(Reason { of, why: routing.relays.lost.get(&site)?.clone() })
        };
        sites.filter_map(reason).collect()
    }
}

impl SourceEntry {
    /// Stores what an error shows about the source's route.
    pub fn blame_route(&mut self, error: &LaneError) {
        self.is_gone = matches!(error.class(), Class::Missing | Class::Gone | Class::Lying);
        self.fault = if error.is_refusal() { Fault::Refused } else { Fault::Broken };
    }
}
