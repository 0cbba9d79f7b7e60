//! Why nothing more comes: of each source, of the way that it is reached by, and of relays.

use swath_model::Range;
use swath_plan::routes::{Fault, SiteId};
use swath_source::{Class, LaneError};

use super::state::{Run, SourceEntry};
use crate::observe::SourceState;
use crate::routes::RouteChoice;

impl Run<'_> {
    /// (source, why it is out) for every source that was to be asked.
    pub(super) fn reasons(&self) -> Vec<(String, String)> {
        let asked = self.sources.iter().filter(|source| !self.is_unasked(source));
        let reasons: Vec<(String, String)> = asked
            .map(|source| {
                let why = source.barren.words().map(str::to_owned);
                let why = why.or_else(|| source.reason.clone());
                let why = why.unwrap_or_else(|| match source.state {
                    SourceState::Silent => "it went silent".to_owned(),
                    _ if self.has_given_all(source) => "all that it holds has come".to_owned(),
                    _ => "no answer".to_owned(),
                });
                (source.source.name().to_string(), why)
            })
            .collect();
        if reasons.is_empty() { self.lost_relays() } else { reasons }
    }

    /// Whether this source has some of the file alone, and nothing of that is missing.
    fn has_given_all(&self, entry: &SourceEntry) -> bool {
        let missing = self.size_bytes.map(|size| self.have.gaps_within(Range::new(0, size)));
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
    pub(super) fn named_relays(&self) -> Option<&[usize]> {
        match self.ways.as_ref()?.routes.choice() {
            RouteChoice::Fixed(relays) if !relays.is_empty() => Some(relays),
            _ => None,
        }
    }

    /// Of the route that the user has named, what is known to be wrong with its relays.
    fn lost_relays(&self) -> Vec<(String, String)> {
        let (Some(ways), Some(named)) = (&self.ways, self.named_relays()) else {
            return Vec::new();
        };
        let sites = named.iter().map(|&at| SiteId(at as u32 + 1));
        let name = |site| ways.of(site).map(|site| format!("the relay {}", site.name));
        sites.filter_map(|site| Some((name(site)?, ways.lost.get(&site)?.clone()))).collect()
    }
}

impl SourceEntry {
    /// What an error says of the way that a source is reached by.
    pub fn blame_way(&mut self, error: &LaneError) {
        use swath_formats::ProxyFault::{
            Certificate, Denied, IpProhibited, Loop, OtherKey, Request, Tls,
        };
        self.is_gone = matches!(error.class(), Class::Gone | Class::Lying);
        self.fault = match error {
            LaneError::Relay {
                fault: Some(Denied | IpProhibited | Loop | Certificate | Tls | Request | OtherKey),
                ..
            }
            | LaneError::Denied { .. } => Fault::Refused,
            LaneError::Status { code: 400..=499, .. } => Fault::Refused,
            _ => Fault::Broken,
        };
    }
}
