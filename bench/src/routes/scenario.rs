//! What is asked about routes: on which map, what happens meanwhile, what is to be reached.

use std::time::Duration;

use swath_netlab::map::{MapEdge, MapSpec};
use swath_netlab::mesh::MeshSpec;
use swath_netlab::wan::{Change, Schedule, Step, Target};
use swath_plan::routes::{Grade, Graph, Reading, Route, SiteId};

use super::client::Client;
use super::timeline::{PAYLOAD_BYTES, PAYLOAD_SHARE};
use crate::results::Goal;

/// One situation.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Short name, for the command line.
    pub name: &'static str,
    /// What happens, in one line.
    pub title: String,
    /// The sites and links.
    pub map: MapSpec,
    /// Congestion control of every site; `None` leaves the machine's own.
    pub congestion_control: Option<&'static str>,
    /// Bytes transferred.
    pub size_bytes: u64,
    /// What happens while somebody fetches, [`EVENT_AT`] after the start.
    pub event: Option<Event>,
    /// Who takes part unless the user says otherwise.
    pub clients: &'static [Client],
    /// What is to be reached.
    pub goals: Vec<Goal>,
}

/// What happens to the relay of the widest route that is next to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its site falls silent: nothing comes and nothing is refused.
    Silent,
    /// Its program is killed: connections break, and new ones are refused.
    Killed,
    /// The link from it to the receiver falls to a tenth.
    Tenth,
}

/// What the links of a map allow.
#[derive(Clone, Debug, PartialEq)]
pub struct Allowed {
    /// Positions of the relays of the widest route, from the receiver toward the source.
    pub widest: Vec<usize>,
    /// What that route carries over one connection at a time, in payload bytes a second.
    pub widest_bytes_per_s: f64,
    /// What all links together carry to the receiver, in payload bytes a second.
    pub flow_bytes_per_s: f64,
}

impl Scenario {
    /// What a route carries that leads from the receiver over these sites to the source, in
    /// payload bytes a second; `None` where an edge is missing.
    pub fn width_bytes_per_s(&self, relays: &[usize]) -> Option<f64> {
        let to = std::iter::once(self.map.here).chain(relays.iter().copied());
        let from = relays.iter().copied().chain(std::iter::once(self.map.source));
        let rates = from.zip(to).map(|(from, to)| {
            self.map.edge(from, to).map(|edge| connection_bytes_per_s(&self.map, edge))
        });
        rates.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
    }

    /// What its links allow before anything happens.
    pub fn allowed(&self) -> Allowed {
        allowed(&self.map)
    }

    /// What they allow after its event.
    pub fn allowed_after_event(&self) -> Allowed {
        let mut map = self.map.clone();
        let relay = self.allowed().widest.first().copied();
        match (self.event, relay) {
            (Some(Event::Silent | Event::Killed), Some(relay)) => {
                map.edges.retain(|edge| edge.from != relay && edge.to != relay);
            }
            (Some(Event::Tenth), Some(relay)) => {
                let here = map.here;
                let mut edges = map.edges.iter_mut();
                if let Some(edge) = edges.find(|edge| (edge.from, edge.to) == (relay, here)) {
                    edge.mbit /= 10.0;
                }
            }
            _ => {}
        }
        allowed(&map)
    }

    /// The mesh of one run.
    pub fn mesh(&self, seed: u64) -> MeshSpec {
        let mut spec = MeshSpec::of(&self.map);
        spec.seed = seed;
        if let Some(name) = self.congestion_control {
            spec.set_congestion_control(name);
        }
        spec
    }

    /// What changes on the links while somebody fetches.
    pub fn schedule(&self, mesh: &MeshSpec) -> Schedule {
        let Some(&relay) = self.allowed().widest.first() else { return Schedule::none() };
        let name = |site: usize| &mesh.sites[site].name;
        let steps = |word: &str, change| {
            let targets = mesh.targets(word).unwrap_or_default().into_iter();
            Schedule::new(
                targets.map(|target: Target| Step { at: EVENT_AT, target, change }).collect(),
            )
        };
        match self.event {
            Some(Event::Silent) => steps(name(relay), Change::Silent(true)),
            Some(Event::Tenth) => {
                let edge = self.map.edge(relay, self.map.here);
                let tenth = edge.map_or(0, |edge| (edge.mbit * 1e5) as u64);
                let word = format!("{}:{}", name(relay), name(self.map.here));
                steps(&word, Change::RateBitsPerS(tenth))
            }
            Some(Event::Killed) | None => Schedule::none(),
        }
    }
}

/// What the links of a map carry, in payload bytes a second: the emulator's rates are those of the
/// wire. A route is as wide as one connection makes it, the flow as large as the links allow.
pub fn allowed(map: &MapSpec) -> Allowed {
    let source = id(map, map.source);
    let connections = graph(map, |edge| connection_bytes_per_s(map, edge));
    let widest = connections.widest(source, HOPS_MAX);
    let route = widest.as_ref().map_or_else(Route::direct, |way| way.route.clone());
    Allowed {
        widest: route.relays().iter().map(|relay| relay.0 as usize - 1).collect(),
        widest_bytes_per_s: widest.map_or(0.0, |way| way.rate_bytes_per_s),
        flow_bytes_per_s: graph(map, link_bytes_per_s).max_flow(source),
    }
}

/// The receiver has a number of its own.
fn id(map: &MapSpec, site: usize) -> SiteId {
    if site == map.here { SiteId::HERE } else { SiteId(site as u32 + 1) }
}

fn graph(map: &MapSpec, rate_bytes_per_s: impl Fn(&MapEdge) -> f64) -> Graph {
    let mut graph = Graph::default();
    for relay in map.relays() {
        graph.set_relay(id(map, relay), true);
    }
    for from in 0..map.sites.len() {
        for to in 0..map.sites.len() {
            let (from_id, to_id) = (id(map, from), id(map, to));
            match map.edge(from, to) {
                Some(edge) => {
                    let rate_bytes_per_s = rate_bytes_per_s(edge);
                    let reading = Reading { rate_bytes_per_s, grade: Grade::Exact, age_s: 0.0 };
                    graph.measured(from_id, to_id, reading, 0.0);
                    graph.round_trip(from_id, to_id, Some(edge.one_way_ms * 2e-3));
                }
                // Unknown edges would count as infinite.
                None => graph.round_trip(from_id, to_id, None),
            }
        }
    }
    graph
}

fn link_bytes_per_s(edge: &MapEdge) -> f64 {
    edge.mbit * 1e6 / 8.0 * PAYLOAD_SHARE
}

/// What one connection can bring over an edge: no more than its window in a round trip, and with
/// losses no more than Mathis, Semke, Mahdavi and Ott have found (1997).
fn connection_bytes_per_s(map: &MapSpec, edge: &MapEdge) -> f64 {
    let round_trip_s = edge.one_way_ms * 2e-3;
    let window = map.window_bytes.map_or(f64::MAX, |bytes| bytes as f64 / round_trip_s);
    let lossy = if edge.loss > 0.0 {
        PAYLOAD_BYTES / round_trip_s * (1.5 / edge.loss).sqrt()
    } else {
        f64::MAX
    };
    link_bytes_per_s(edge).min(window).min(lossy)
}

/// All scenarios over emulated sites, in the order in which they are shown.
pub fn scenarios() -> Vec<Scenario> {
    let basic = Scenario {
        name: "cold",
        title: "seven sites, nothing is known".to_owned(),
        map: MapSpec::seven_sites(),
        congestion_control: None,
        size_bytes: 100_000_000,
        event: None,
        clients: &[Client::Direct, Client::Widest, Client::Cold, Client::Curl, Client::CurlChain],
        goals: vec![
            Goal::at_least("cold", TIMES_DIRECT, 2.0),
            Goal::at_most("cold", CHANGES, 6.0),
            Goal::at_most("cold", CHANGES_TO_WIDEST, 6.0),
        ],
    };
    let event = |name, title: String, event| Scenario {
        name,
        title,
        event: Some(event),
        size_bytes: 300_000_000,
        clients: &[Client::Warm],
        goals: vec![
            Goal::at_most("warm", LOST, 1.0),
            Goal::at_least("warm", AFTER_OF_FLOW, 0.85),
            Goal::at_most("warm", TWICE, 0.05),
        ],
        ..basic.clone()
    };
    // One connection, as curl has it, takes minutes here: `--tools` has it measured.
    let lossy = |name, congestion_control: &'static str, least| Scenario {
        name,
        title: format!(
            "long links, 0.5 % loss, windows of 256 KiB, {}",
            congestion_control.to_uppercase()
        ),
        map: MapSpec::long_lossy(),
        congestion_control: Some(congestion_control),
        clients: &[Client::Direct, Client::Widest, Client::Cold, Client::Warm],
        goals: vec![Goal::at_least("cold", TIMES_DIRECT, least)],
        ..basic.clone()
    };
    let warm = Scenario {
        name: "warm",
        title: "seven sites, an earlier transfer is remembered".to_owned(),
        clients: &[Client::Direct, Client::Widest, Client::Warm],
        goals: vec![
            Goal::at_least("warm", TIMES_WIDEST, 0.95),
            Goal::at_least("warm", FIRST_TIMES_WIDEST, 0.95),
        ],
        ..basic.clone()
    };
    let multi = Scenario {
        name: "multi",
        title: "seven sites, several routes at once".to_owned(),
        size_bytes: 500_000_000,
        clients: &[Client::Multi, Client::MultiCold],
        goals: vec![Goal::at_least("multi", OF_FLOW, 0.85)],
        ..basic.clone()
    };
    let bad_memory = Scenario {
        name: "bad-memory",
        title: "seven sites, all that is remembered is wrong".to_owned(),
        clients: &[Client::Direct, Client::Cold, Client::BadMemory, Client::BadMemoryOne],
        goals: vec![
            Goal::at_least("bad-memory", LEAST_TIMES_DIRECT, 0.95),
            Goal::at_most("bad-memory", CHANGES, 10.0),
            Goal::at_least("bad-memory-one", LEAST_TIMES_DIRECT, 0.95),
            Goal::at_most("bad-memory-one", CHANGES_TO_WIDEST, 10.0),
        ],
        ..basic.clone()
    };
    let useless = Scenario {
        name: "useless",
        title: "six relays behind links of 2 Mbit/s, direct 100 Mbit/s".to_owned(),
        map: useless_relays(),
        clients: &[Client::Direct, Client::Cold, Client::Curl],
        goals: vec![Goal::at_least("cold", TIMES_DIRECT, 0.98)],
        ..basic.clone()
    };
    let seven = "seven sites, the last relay";
    vec![
        basic.clone(),
        warm,
        multi,
        bad_memory,
        event("dies", format!("{seven} falls silent after 4 s"), Event::Silent),
        event("killed", format!("{seven} is killed after 4 s"), Event::Killed),
        event("tenth", format!("{seven}'s link to us falls to a tenth after 4 s"), Event::Tenth),
        useless,
        lossy("lossy-cubic", "cubic", 2.0),
        lossy("lossy-bbr", "bbr", 1.2),
    ]
}

/// Six relays that nothing is gained by.
fn useless_relays() -> MapSpec {
    let mut text = "sites source r1 r2 r3 r4 r5 r6 here\nsource source\nhere here\n\
                    source = here 100/20\n"
        .to_owned();
    for relay in 1..=6 {
        text += &format!("source = r{relay} 2/20\nr{relay} = here 2/20\n");
        for other in relay + 1..=6 {
            text += &format!("r{relay} = r{other} 2/20\n");
        }
    }
    text.parse().expect("a map that is written here is right: a test reads it")
}

/// When an [`Event`] happens: routes are found by then.
pub const EVENT_AT: Duration = Duration::from_secs(4);

/// The relays' own limit.
const HOPS_MAX: usize = 8;

/// Time of `direct` over this one's, in the same round.
pub const TIMES_DIRECT: &str = "× direct";
/// Time of `widest` over this one's, in the same round.
pub const TIMES_WIDEST: &str = "× widest";
/// What came in the first two seconds over what came to `widest` then.
pub const FIRST_TIMES_WIDEST: &str = "first 2 s × widest";
/// The least of what came in two seconds over what came to `direct` in the same two.
pub const LEAST_TIMES_DIRECT: &str = "least × direct";
/// Mean rate over the maximum flow of the graph.
pub const OF_FLOW: &str = "of flow";
/// Seconds until what arrived in one second was as much as the widest route carries.
pub const AS_WIDEST_AFTER: &str = "as widest after s";
/// Changes of routes until then.
pub const CHANGES: &str = "changes";
/// Changes of routes until a route as wide as the widest one was among them.
pub const CHANGES_TO_WIDEST: &str = "to widest";
/// Changes of routes in all.
pub const ALL_CHANGES: &str = "in all";
/// Throughput lost by the event.
pub const LOST: &str = "lost s";
/// Mean rate when routes have settled after the event, over the maximum flow that is left.
pub const AFTER_OF_FLOW: &str = "after of flow";
/// What arrived beyond the file, as a part of it.
pub const TWICE: &str = "beyond";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_route_of_the_seven_sites_is_the_published_one() {
        let map = MapSpec::seven_sites();
        let allowed = allowed(&map);
        let names: Vec<&str> = allowed.widest.iter().map(|&site| &*map.sites[site]).collect();
        assert_eq!(names, ["Denver", "KansasCity", "Indianapolis", "Atlanta"]);
        let mbit = |bytes_per_s: f64| bytes_per_s * 8e-6 / PAYLOAD_SHARE;
        assert!((mbit(allowed.widest_bytes_per_s) - 59.9).abs() < 1e-6);
        // All links to the receiver can be filled.
        assert!((mbit(allowed.flow_bytes_per_s) - 213.8).abs() < 1e-6);
        let scenario = &scenarios()[0];
        let width = scenario.width_bytes_per_s(&allowed.widest);
        assert_eq!(width, Some(allowed.widest_bytes_per_s));
        assert!((mbit(scenario.width_bytes_per_s(&[]).unwrap()) - 26.3).abs() < 1e-6);
    }

    #[test]
    fn short_hops_are_the_widest_where_links_are_long_and_lossy() {
        let map = MapSpec::long_lossy();
        let allowed = allowed(&map);
        let names: Vec<&str> = allowed.widest.iter().map(|&site| &*map.sites[site]).collect();
        assert_eq!(names, ["West", "Middle", "East"]);
        // 1,448 bytes in 30 ms, 17 times.
        assert!((8e5..9e5).contains(&allowed.widest_bytes_per_s), "{allowed:?}");
        let all = 400e6 / 8.0 * PAYLOAD_SHARE;
        assert!((allowed.flow_bytes_per_s - all).abs() < 1.0, "{allowed:?}");
    }

    #[test]
    fn scenarios_have_names_of_their_own_and_events_that_are_there() {
        let all = scenarios();
        for (position, scenario) in all.iter().enumerate() {
            assert!(all[..position].iter().all(|other| other.name != scenario.name));
            let mesh = scenario.mesh(1);
            let steps = scenario.schedule(&mesh).steps().len();
            let mbit = scenario.allowed_after_event().flow_bytes_per_s * 8e-6 / PAYLOAD_SHARE;
            let (expected, flow) = match scenario.event {
                Some(Event::Silent) => (7, 153.9),
                Some(Event::Killed) => (0, 153.9),
                Some(Event::Tenth) => (1, 153.9 + 5.99),
                None => (0, mbit),
            };
            assert!((mbit - flow).abs() < 1e-6, "{}: {mbit}", scenario.name);
            assert_eq!(steps, expected, "{}", scenario.name);
            for goal in &scenario.goals {
                let client = Client::named(&goal.tool).unwrap();
                assert!(scenario.clients.contains(&client), "{}", scenario.name);
            }
        }
    }

    #[test]
    fn useless_relays_carry_next_to_nothing() {
        let allowed = allowed(&useless_relays());
        assert!(allowed.widest.is_empty());
        assert!(allowed.flow_bytes_per_s < 1.13 * allowed.widest_bytes_per_s);
    }
}
