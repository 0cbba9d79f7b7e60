//! The edges of one search as a matrix, and the searches for one route.
//!
//! Both searches go hop by hop (best over one edge, two, three …) with the published rule, `bw =
//! min(bandwidth[v], edge[v][a])`. The published search takes the vertex of largest bandwidth next
//! instead; going by hops allows a limit on their number. O(hops · sites²).

use super::graph::FlowPath;
use super::name::{Route, SiteId};

/// An edge in a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    /// Bytes per second.
    pub rate: f64,
    pub rtt_s: f64,
    /// Whether the rate is only a guess.
    pub guess: bool,
    /// The rate it is certain to bring, in bytes per second.
    pub least: f64,
}

/// Edges between sites. Vertex 0 is us, then come the relays, then the sources.
pub(crate) struct Matrix {
    pub sites: Vec<SiteId>,
    /// The first vertex that is a source.
    pub first_source: usize,
    hops: Vec<Option<Hop>>,
}

impl Matrix {
    pub fn new(
        relays: &[SiteId],
        sources: &[SiteId],
        hop: impl Fn(SiteId, SiteId) -> Option<Hop>,
    ) -> Self {
        let mut sites = vec![SiteId::HERE];
        sites.extend(relays);
        let first_source = sites.len();
        sites.extend(sources);
        let mut hops = vec![None; sites.len() * sites.len()];
        for from in 1..sites.len() {
            for to in (0..first_source).filter(|&to| sites[to] != sites[from]) {
                hops[from * sites.len() + to] =
                    hop(sites[from], sites[to]).filter(|hop| hop.rate > 0.0);
            }
        }
        Self { sites, first_source, hops }
    }

    pub fn hop(&self, from: usize, to: usize) -> Option<Hop> {
        self.hops[from * self.sites.len() + to]
    }

    /// Returns a matrix of the same sites with changed edges.
    pub fn map(&self, change: impl Fn(usize, usize, Hop) -> Option<Hop>) -> Self {
        let n = self.sites.len();
        let hops = self.hops.iter().enumerate();
        let hops = hops.map(|(at, hop)| hop.and_then(|hop| change(at / n, at % n, hop))).collect();
        Self { sites: self.sites.clone(), first_source: self.first_source, hops }
    }

    /// Splits the matrix: one part for each source whose site is also a relay, so that no route
    /// leads from it through itself, and one for all other sources together.
    pub fn by_source(&self) -> Vec<Self> {
        let relay_at = |source: usize| {
            (1..self.first_source).find(|&relay| self.sites[relay] == self.sites[source])
        };
        let sources = || self.first_source..self.sites.len();
        let none_but = |keeps: &dyn Fn(usize) -> bool, without: Option<usize>| {
            self.map(|from, to, hop| {
                let is_open = from < self.first_source || keeps(from);
                let is_there = without.is_none_or(|relay| from != relay && to != relay);
                (is_open && is_there).then_some(hop)
            })
        };
        let own = sources()
            .filter_map(|source| Some((source, relay_at(source)?)))
            .map(|(source, relay)| none_but(&|from| from == source, Some(relay)));
        let mut all: Vec<Self> = own.collect();
        if sources().any(|source| relay_at(source).is_none()) {
            all.push(none_but(&|from| relay_at(from).is_none(), None));
        }
        all
    }

    /// Subtracts what a route carries from its edges.
    pub fn take(&mut self, routed_id: &FlowPath) {
        for at in self.positions(routed_id) {
            self.hops[at] = self.hops[at]
                .map(|hop| Hop {
                    rate: hop.rate - routed_id.rate_bytes_per_s,
                    least: hop.least - routed_id.rate_bytes_per_s,
                    ..hop
                })
                .filter(|hop| hop.rate > 0.0);
        }
    }

    /// Removes the narrowest edge of a route, so that another route is found.
    pub fn cut_narrowest(&mut self, routed_id: &FlowPath) {
        let rate = |at: &usize| self.hops[*at].map_or(f64::INFINITY, |hop| hop.rate);
        let narrowest =
            self.positions(routed_id).into_iter().min_by(|a, b| rate(a).total_cmp(&rate(b)));
        if let Some(at) = narrowest {
            self.hops[at] = None;
        }
    }

    /// Returns the least rate among a route's known (not guessed) edges.
    pub fn known(&self, routed_id: &FlowPath) -> f64 {
        let hops = self.positions(routed_id).into_iter().filter_map(|at| self.hops[at]);
        hops.filter(|hop| !hop.guess).map(|hop| hop.rate).fold(f64::INFINITY, f64::min)
    }

    /// Removes the edges from these relays.
    pub fn drop_relays(&mut self, relays: impl Iterator<Item = SiteId>) {
        let n = self.sites.len();
        for relay in relays {
            if let Some(at) = (1..self.first_source).find(|&at| self.sites[at] == relay) {
                (0..n).for_each(|to| self.hops[at * n + to] = None);
            }
        }
    }

    fn positions(&self, routed_id: &FlowPath) -> Vec<usize> {
        let n = self.sites.len();
        let find =
            |site, mut among: std::ops::Range<usize>| among.find(|&at| self.sites[at] == site);
        let edges = routed_id.route.edges(routed_id.source);
        edges
            .filter_map(|(from, to)| {
                // A site may be both relay and source: data of the source starts at the source.
                let among = if from == routed_id.source {
                    self.first_source..n
                } else {
                    1..self.first_source
                };
                Some(find(from, among)? * n + find(to, 0..self.first_source)?)
            })
            .collect()
    }

    /// Returns the widest route of all sources. Ties go to fewer hops, then to smaller round trips.
    pub fn widest(&self, hops_max: usize) -> Option<FlowPath> {
        let layers = self.layers(hops_max, |rate, hop| rate.min(hop.rate));
        let rate = layers.iter().map(|layer| layer[0].value).fold(0.0, f64::max);
        if rate <= 0.0 {
            return None;
        }
        // Among equally wide routes prefer fewer hops, then smaller round trips: search again over
        // the edges that are wide enough.
        let hops = 1 + layers.iter().position(|layer| layer[0].value >= rate)?;
        let layers =
            self.layers(
                hops,
                |sooner, hop| {
                    if hop.rate < rate { 0.0 } else { 1.0 / (1.0 / sooner + hop.rtt_s) }
                },
            );
        self.trace(&layers, hops, rate)
    }

    /// Returns the route that is likely to bring most. A known edge counts as its rate. A guess may
    /// be wrong in either direction, and the smallest of several is likely to be below the smallest
    /// guess. If rates scatter about their guesses as Weibull's distribution with this shape, the
    /// smallest scatters likewise about `(Σ rate^-shape)^(-1/shape)`. Good guesses (a large shape)
    /// favour several short hops over a long one; bad guesses favour few hops.
    pub fn likeliest(&self, hops_max: usize, shape: f64) -> Option<FlowPath> {
        let layers = self.layers(hops_max, |rate, hop| {
            if hop.guess && rate.is_finite() && hop.rate.is_finite() {
                (rate.powf(-shape) + hop.rate.powf(-shape)).powf(-1.0 / shape)
            } else {
                rate.min(hop.rate)
            }
        });
        let rate = layers.iter().map(|layer| layer[0].value).fold(0.0, f64::max);
        let hops = 1 + layers.iter().position(|layer| rate > 0.0 && layer[0].value >= rate)?;
        self.trace(&layers, hops, rate)
    }

    /// Returns the widest route by certain rates.
    pub fn surest(&self, hops_max: usize) -> Option<FlowPath> {
        let sure = |_, _, hop: Hop| (hop.least > 0.0).then_some(Hop { rate: hop.least, ..hop });
        self.map(sure).widest(hops_max)
    }

    /// Returns `layers[h][v]`: the best value with which `v` is reached over exactly `h + 1` edges.
    /// `over` must never increase the value and must keep the order of values; then no best route
    /// visits a vertex twice.
    fn layers(&self, hops_max: usize, over: impl Fn(f64, Hop) -> f64) -> Vec<Vec<Reached>> {
        let mut layers: Vec<Vec<Reached>> = Vec::new();
        for _ in 0..hops_max {
            let mut layer = vec![Reached { value: 0.0, from: 0 }; self.first_source];
            let froms = match layers.last() {
                None => self.first_source..self.sites.len(),
                Some(_) => 1..self.first_source,
            };
            for from in froms {
                let before = layers.last().map_or(f64::INFINITY, |layer| layer[from].value);
                if before <= 0.0 {
                    continue;
                }
                for (to, reached) in layer.iter_mut().enumerate() {
                    let Some(hop) = self.hop(from, to) else { continue };
                    let value = over(before, hop);
                    if value > reached.value {
                        *reached = Reached { value, from };
                    }
                }
            }
            layers.push(layer);
        }
        layers
    }

    fn trace(&self, layers: &[Vec<Reached>], hops: usize, rate: f64) -> Option<FlowPath> {
        let (mut at, mut relays) = (0, Vec::new());
        for layer in layers[..hops].iter().rev() {
            at = layer[at].from;
            if at >= self.first_source {
                let route = Route::through(relays);
                return Some(FlowPath { source: self.sites[at], route, rate_bytes_per_s: rate });
            }
            relays.push(self.sites[at]);
        }
        None
    }
}

#[derive(Clone, Copy)]
struct Reached {
    value: f64,
    from: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the shortest routes are cut, since they are open, one led from a depot through its own relay.
    #[test]
    fn no_route_leads_from_a_source_through_itself() {
        let (site, other) = (SiteId(1), SiteId(4));
        let relays = [site, SiteId(2), SiteId(3)];
        let hop = |_, _| Some(Hop { rate: 10.0, rtt_s: 0.01, guess: true, least: 0.0 });
        let routed_sources = |source| {
            let mut all = Matrix::new(&relays, &[source], hop);
            std::iter::from_fn(move || {
                let [one] = &all.by_source()[..] else { panic!("of one source") };
                let routed_id = one.likeliest(5, 2.0)?;
                all.cut_narrowest(&routed_id);
                Some(routed_id.route)
            })
        };
        assert!(routed_sources(site).count() > 2);
        assert!(routed_sources(site).all(|route| !route.contains(site)));
        assert!(
            routed_sources(other).any(|route| route.contains(site)),
            "what lies elsewhere may come by it"
        );
        assert_eq!(Matrix::new(&relays, &[site, other], hop).by_source().len(), 2);
    }
}
