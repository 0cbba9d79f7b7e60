//! Names of sites, replicas, routes and routed sources.

use std::fmt;

/// A vertex of the graph: us, a relay, or the origin of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u32);

impl SiteId {
    /// This machine, which receives the data.
    pub const HERE: SiteId = SiteId(0);
}

/// One copy of the data at one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId(pub u32);

/// One replica reached by one route, numbered from 0 in the order of opening. Numbers are never
/// reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoutedId(pub u32);

/// The relays between a source and us, from us toward the source: `[r1, r2]` is us ← r1 ← r2 ←
/// source. Direct is the empty route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route(Vec<SiteId>);

impl Route {
    /// Returns the route without relays.
    pub fn direct() -> Self {
        Self::default()
    }

    /// Returns the route through these relays, from us toward the source.
    pub fn through(relays: Vec<SiteId>) -> Self {
        Self(relays)
    }

    /// Returns whether there is no relay.
    pub fn is_direct(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the relays, from us toward the source.
    pub fn relays(&self) -> &[SiteId] {
        &self.0
    }

    /// Returns how many edges the data crosses.
    pub fn hops(&self) -> usize {
        self.0.len() + 1
    }

    /// Returns whether it leads through this relay.
    pub fn contains(&self, relay: SiteId) -> bool {
        self.0.contains(&relay)
    }

    /// Returns the edges that data from `source` crosses, `(from, to)`, the nearest to us first.
    pub fn edges(&self, source: SiteId) -> impl Iterator<Item = (SiteId, SiteId)> + '_ {
        let to = std::iter::once(SiteId::HERE).chain(self.0.iter().copied());
        let from = self.0.iter().copied().chain(std::iter::once(source));
        from.zip(to)
    }
}

impl fmt::Display for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "site {}", self.0)
    }
}

impl fmt::Display for RoutedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "routed source {}", self.0)
    }
}

impl fmt::Display for Route {
    /// `direct`, or the relays' numbers from us toward the source: `2,5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_direct() {
            return f.write_str("direct");
        }
        for (at, relay) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { "," } else { "" }, relay.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_lead_from_the_source_to_us() {
        let (r1, r2, source) = (SiteId(3), SiteId(7), SiteId(9));
        let route = Route::through(vec![r1, r2]);
        let edges: Vec<_> = route.edges(source).collect();
        assert_eq!(edges, [(r1, SiteId::HERE), (r2, r1), (source, r2)]);
        assert_eq!(route.hops(), 3);
        let direct: Vec<_> = Route::direct().edges(source).collect();
        assert_eq!(direct, [(source, SiteId::HERE)]);
        assert_eq!(
            (route.to_string().as_str(), Route::direct().to_string().as_str()),
            ("3,7", "direct")
        );
    }
}
