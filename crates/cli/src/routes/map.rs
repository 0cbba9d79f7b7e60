//! The remembered network as a graph, and the routes through it. Only measured edges count.

use std::collections::BTreeSet;

use swath_plan::routes::{self, FlowPath, Graph, SiteId};
use swath_state::{Grade, HERE, KnownEdge};
use url::Url;

/// The remembered graph.
pub struct Map {
    /// The edges, by their names.
    pub edges: Vec<KnownEdge>,
    sites: Vec<String>,
    /// Known relays, even without an edge to them.
    relays: BTreeSet<String>,
}

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// The sites in the order in which data passes them.
    pub sites: Vec<String>,
    /// Its rate, in bytes per second.
    pub rate_bytes_per_s: f64,
    /// The site at which its slowest edge begins.
    pub narrowest: usize,
}

impl Path {
    /// Returns its edges as pairs of sites.
    pub fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sites.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str()))
    }

    /// Returns its slowest edge.
    pub fn limit(&self) -> (&str, &str) {
        (&self.sites[self.narrowest], &self.sites[self.narrowest + 1])
    }
}

/// Why a name is no site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSite {
    /// Unknown.
    Unknown(String),
    /// Ambiguous: all sites that it may mean.
    Ambiguous(String, Vec<String>),
}

impl Map {
    /// Makes a map of these edges and relays.
    pub fn new(edges: Vec<KnownEdge>, relays: BTreeSet<String>) -> Map {
        let names = edges.iter().flat_map(|edge| [edge.from.clone(), edge.to.clone()]);
        let sites: BTreeSet<String> = names.filter(|name| name != HERE).collect();
        Map { sites: std::iter::once(HERE.to_owned()).chain(sites).collect(), edges, relays }
    }

    /// Returns all sites, this machine first.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// Returns the sites that only send data.
    pub fn origins(&self) -> Vec<&str> {
        let is_reached = |name: &str| self.edges.iter().any(|edge| edge.to == name);
        let others = self.sites.iter().map(String::as_str).filter(|name| *name != HERE);
        others.filter(|name| !is_reached(name) && !self.relays.contains(*name)).collect()
    }

    /// Finds a site by its URL, `host:port` or host.
    pub fn site(&self, text: &str) -> Result<&str, NoSite> {
        let named = named(text);
        let with_port = format!("{named}:");
        let is = |name: &&String| {
            let rest = name.strip_prefix(&with_port);
            **name == named || rest.is_some_and(|port| port.bytes().all(|it| it.is_ascii_digit()))
        };
        let found: Vec<&String> = self.sites.iter().filter(is).collect();
        match found[..] {
            [] => Err(NoSite::Unknown(named)),
            [site] => Ok(site),
            _ => match found.iter().find(|name| ***name == named) {
                Some(site) => Ok(site),
                None => {
                    let names = found.into_iter().cloned().collect();
                    Err(NoSite::Ambiguous(named, names))
                }
            },
        }
    }

    /// Returns the edge between two sites.
    pub fn edge(&self, from: &str, to: &str) -> Option<&KnownEdge> {
        self.edges.iter().find(|edge| edge.from == from && edge.to == to)
    }

    /// Returns the widest route between two sites.
    pub fn widest(&self, from: &str, to: &str) -> Option<Path> {
        let way = self.graph(to).widest_known(self.id(from, to), HOPS_MAX)?;
        Some(self.path(&way, to))
    }

    /// Returns the routes that together have the highest rate between two sites, the widest first, and
    /// that rate in bytes per second.
    pub fn together(&self, from: &str, to: &str) -> (Vec<Path>, f64) {
        let (graph, source) = (self.graph(to), self.id(from, to));
        let ways = graph.flow_paths(&[source], WAYS_MAX, HOPS_MAX);
        let paths: Vec<Path> = ways.iter().map(|way| self.path(way, to)).collect();
        let sum = paths.iter().map(|path| path.rate_bytes_per_s).sum();
        (paths, sum)
    }

    /// Returns the route over these sites, or its first unmeasured edge.
    pub fn over(&self, sites: Vec<String>) -> Result<Path, (String, String)> {
        let mut path = Path { sites, rate_bytes_per_s: f64::INFINITY, narrowest: 0 };
        for at in 0..path.sites.len() - 1 {
            let (from, to) = (&path.sites[at], &path.sites[at + 1]);
            let rate = self.rate(from, to).ok_or_else(|| (from.clone(), to.clone()))?;
            if rate < path.rate_bytes_per_s {
                (path.rate_bytes_per_s, path.narrowest) = (rate, at);
            }
        }
        Ok(path)
    }

    fn rate(&self, from: &str, to: &str) -> Option<f64> {
        Some(self.edge(from, to)?.measured.as_ref()?.rate_bytes_per_s)
    }

    /// Returns the planner's graph with `to` as the receiver.
    fn graph(&self, to: &str) -> Graph {
        let mut graph = Graph::default();
        for edge in &self.edges {
            let (from, into) = (self.id(&edge.from, to), self.id(&edge.to, to));
            // Every receiver except this machine forwards data.
            graph.set_relay(into, edge.to != HERE || graph.is_relay(into));
            if let Some(measured) = &edge.measured {
                let grade = match measured.grade {
                    Grade::AtLeast => routes::Grade::AtLeast,
                    Grade::Exact => routes::Grade::Exact,
                };
                let rate_bytes_per_s = measured.rate_bytes_per_s;
                let reading = routes::Reading { rate_bytes_per_s, grade, age_s: measured.age_s };
                graph.measured(from, into, reading, 0.0);
            }
            if let Some(rtt_s) = edge.rtt_s {
                graph.round_trip(from, into, Some(rtt_s));
            }
        }
        graph
    }

    /// Returns the position of a site in [`Map::sites`].
    pub fn number(&self, name: &str) -> Option<usize> {
        if name == HERE {
            return Some(0);
        }
        let others = &self.sites[1..];
        others.binary_search_by(|site| site.as_str().cmp(name)).ok().map(|at| at + 1)
    }

    /// Returns the number of a site, with `to` as number 0.
    fn id(&self, name: &str, to: &str) -> SiteId {
        let number = |name: &str| self.number(name).unwrap_or(0);
        match name == to {
            true => SiteId::HERE,
            // Site 0 gets the number of `to`.
            false if number(name) == 0 => SiteId(number(to) as u32),
            false => SiteId(number(name) as u32),
        }
    }

    fn path(&self, way: &FlowPath, to: &str) -> Path {
        let name = |id: SiteId| {
            let found = self.sites.iter().find(|site| self.id(site, to) == id);
            found.cloned().unwrap_or_default()
        };
        let relays = way.route.relays().iter().rev();
        let ids = std::iter::once(&way.source).chain(relays).chain([&SiteId::HERE]);
        let sites: Vec<String> = ids.map(|id| name(*id)).collect();
        let narrowest = self.over(sites.clone()).map_or(0, |path| path.narrowest);
        Path { sites, rate_bytes_per_s: way.rate_bytes_per_s, narrowest }
    }
}

/// Returns all sites of a route in the direction of the data.
pub fn through(from: &str, relays: &[String], to: &str) -> Vec<String> {
    let ends = |name: &str| std::iter::once(name.to_owned());
    ends(from).chain(relays.iter().rev().cloned()).chain(ends(to)).collect()
}

/// Returns the site of a URL, or the typed text without what may be secret.
pub fn named(text: &str) -> String {
    let site = Url::parse(text).ok().filter(|_| text.contains("://"));
    let site = site.and_then(|url| swath_formats::relay::site(&url));
    site.unwrap_or_else(|| {
        // An address that is none may have a password or a token.
        let public = text.split(['?', '#']).next().unwrap_or_default();
        let host = public.rsplit('@').next().unwrap_or_default();
        host.trim_end_matches('/').to_ascii_lowercase()
    })
}

/// The hop limit of relays.
const HOPS_MAX: usize = 8;
/// Most routes that are shown.
const WAYS_MAX: usize = 16;

#[cfg(test)]
pub mod tests {
    use swath_state::{By, Measured};

    use super::*;

    #[test]
    fn a_site_is_named_without_secrets() {
        for (text, name) in [
            ("https://ada:pw@A.example/x?token=t", "a.example:443"),
            ("A.example:8470/", "a.example:8470"),
            ("ht!tp://ada:pw@a.example/x?token=t", "a.example/x"),
            ("ada:pw@a.example", "a.example"),
        ] {
            assert_eq!(named(text), name, "{text}");
        }
    }

    /// Megabits per second, as the paper has them.
    pub fn edge(from: &str, to: &str, mbit_per_s: f64) -> KnownEdge {
        let measured = Measured {
            rate_bytes_per_s: mbit_per_s * 125_000.0,
            grade: Grade::Exact,
            age_s: 180.0,
            by: By::Us,
        };
        let (from, to) = (from.to_owned(), to.to_owned());
        KnownEdge { from, to, measured: Some(measured), rtt_s: Some(0.02), used_age_s: None }
    }

    /// The seven sites of the paper, at ten times its rates.
    pub fn published() -> Map {
        Map::new(
            vec![
                edge("ornl:443", HERE, 26.3),
                edge("ornl:443", "atlanta:443", 174.4),
                edge("atlanta:443", "indianapolis:443", 117.6),
                edge("indianapolis:443", "kansas:443", 115.2),
                edge("kansas:443", "denver:443", 110.1),
                edge("denver:443", HERE, 59.9),
                edge("ornl:443", "newyork:443", 90.0),
                edge("newyork:443", HERE, 16.6),
                edge("washington:443", HERE, 32.3),
                edge("boston:443", HERE, 32.3),
            ],
            BTreeSet::from(["boston:443".to_owned()]),
        )
    }

    fn text(path: &Path) -> String {
        path.sites.join(" ").replace(":443", "")
    }

    #[test]
    fn the_published_route_is_the_widest_and_its_last_edge_the_limit() {
        let map = published();
        let path = map.widest("ornl:443", HERE).unwrap();
        assert_eq!(text(&path), "ornl atlanta indianapolis kansas denver here");
        assert_eq!(path.limit(), ("denver:443", HERE));
        assert!((path.rate_bytes_per_s / 125_000.0 - 59.9).abs() < 1e-9);
        let (ways, sum) = map.together("ornl:443", HERE);
        assert_eq!(ways.len(), 3);
        assert!((sum / 125_000.0 - (59.9 + 26.3 + 16.6)).abs() < 1e-6, "{sum}");
        assert_eq!(map.origins(), ["ornl:443", "washington:443"]);
    }

    #[test]
    fn any_two_sites_have_a_route_between_them_but_none_leads_through_us() {
        let mut edges = published().edges;
        edges.push(edge(HERE, "newyork:443", 1000.0));
        let map = Map::new(edges, BTreeSet::new());
        let path = map.widest("atlanta:443", "denver:443").unwrap();
        assert_eq!(text(&path), "atlanta indianapolis kansas denver");
        assert_eq!(path.limit(), ("kansas:443", "denver:443"));
        assert_eq!(map.widest("denver:443", "newyork:443"), None);
        let up = map.widest(HERE, "newyork:443").unwrap();
        assert_eq!(text(&up), "here newyork");
        assert_eq!(map.widest("denver:443", "ornl:443"), None);
    }

    #[test]
    fn a_named_route_is_as_wide_as_its_edges_or_says_which_is_unknown() {
        let map = published();
        let over = |relays: &[&str]| {
            let relays: Vec<String> = relays.iter().map(|name| (*name).to_owned()).collect();
            map.over(through("ornl:443", &relays, HERE))
        };
        assert_eq!(over(&[]).unwrap().rate_bytes_per_s, 26.3 * 125_000.0);
        let path = over(&["newyork:443"]).unwrap();
        assert_eq!((text(&path).as_str(), path.narrowest), ("ornl newyork here", 1));
        let unknown = over(&["denver:443", "newyork:443"]).unwrap_err();
        assert_eq!(unknown, ("newyork:443".to_owned(), "denver:443".to_owned()));
    }

    #[test]
    fn sites_are_found_by_address_and_by_host() {
        let map = Map::new(
            vec![edge("a:80", HERE, 1.0), edge("a:443", HERE, 1.0), edge("b:1", "a:80", 1.0)],
            BTreeSet::new(),
        );
        assert_eq!(map.site("https://a/x?y"), Ok("a:443"));
        assert_eq!(
            (map.site("B"), map.site("b:1"), map.site("here")),
            (Ok("b:1"), Ok("b:1"), Ok(HERE))
        );
        assert!(matches!(map.site("a"), Err(NoSite::Ambiguous(..))));
        assert_eq!(map.site("https://b/"), Err(NoSite::Unknown("b:443".into())));
    }
}
