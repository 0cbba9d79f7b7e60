//! Why nothing more comes: of each source, of the route that it is reached by, and of relays.

use swath_model::Range;
use swath_plan::routes::{Fault, SiteId};
use swath_source::{Class, LaneError};

use crate::executor::sources::SourceEntry;
use crate::executor::state::Run;
use crate::observe::SourceState;
use crate::reason::{Party, Reason};
use crate::routes::RouteChoice;

impl Run<'_> {
    /// Why each source is out that was to be asked.
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

    /// Whether this source has some of the file alone, and nothing of that is missing.
    fn has_given_all(&self, entry: &SourceEntry) -> bool {
        let missing = self
            .coverage
            .size_bytes
            .map(|size| self.coverage.have.gaps_within(Range::new(0, size)));
        !entry.lacks.is_empty()
            && missing.is_some_and(|missing| missing.iter().all(|&range| entry.lacks.covers(range)))
    }

    /// Whether nobody wanted anything of this source: the user has named the route that is taken, and
    /// this is the source without it.
    fn is_unasked(&self, entry: &SourceEntry) -> bool {
        let is_named = self.named_relays().is_some();
        let is_direct = entry.on_route.as_ref().is_some_and(|own| own.route.is_direct());
        is_named && is_direct && entry.state == SourceState::Waiting && entry.reason.is_none()
    }

    /// The relays of the route that the user has named.
    pub(crate) fn named_relays(&self) -> Option<&[usize]> {
        match self.routing.as_ref()?.routes.choice() {
            RouteChoice::Fixed(relays) if !relays.is_empty() => Some(relays),
            _ => None,
        }
    }

    /// Of the route that the user has named, what is known to be wrong with its relays.
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
    /// What an error says of the route that a source is reached by.
    pub fn blame_route(&mut self, error: &LaneError) {
        self.is_gone = matches!(error.class(), Class::Missing | Class::Gone | Class::Lying);
        self.fault = if error.is_refusal() { Fault::Refused } else { Fault::Broken };
    }
}
