//! Maps of sites and the links between them, as data: for the simulator of routes and for the
//! emulated mesh alike.
//!
//! A map names one source of data and one receiver; all other sites are relays. Each edge is one
//! direction of a link, in the direction of the data. Built in are the sites of the published
//! measurement of logistical routing, long lossy links of equal rate, and two maps for copies between
//! servers that a third site orders.

use std::fmt;
use std::str::FromStr;

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEdge {
    /// Position in [`MapSpec::sites`] of where data comes from.
    pub from: usize,
    /// Position in [`MapSpec::sites`] of where data goes.
    pub to: usize,
    /// Megabits a second.
    pub mbit: f64,
    /// Half of the round trip, in milliseconds.
    pub one_way_ms: f64,
    /// Probability that a packet is lost.
    pub loss: f64,
}

/// Sites and the links between them.
#[derive(Clone, Debug, PartialEq)]
pub struct MapSpec {
    /// Names, without spaces; each once.
    pub sites: Vec<String>,
    /// Position of the site where the data is.
    pub source: usize,
    /// Position of the site that fetches.
    pub here: usize,
    /// Largest window of a connection in bytes; `None` leaves the machine's own.
    pub window_bytes: Option<u64>,
    /// At most one for each ordered pair, in the order of `from`, then `to`. Sites that no edge joins cannot reach each other.
    pub edges: Vec<MapEdge>,
}

/// Why a text is not a map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct MapError {
    /// Counted from 1; 0 for what is wrong with the whole.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

impl MapSpec {
    /// Returns the measurement of LaBissoniere and Roche ("Adaptive logistical routing"), ORNL to
    /// Sunnyvale with six depots, at ten times its rates. The five hops of its best route and
    /// direct are published. The others are chosen so that the paper's own exploration (unknown
    /// edges infinite, ties to fewer hops and then to smaller round trips) makes the paper's
    /// thirteen attempts in their order, each with ten times its published throughput. Edges that
    /// it never uses follow what the measured ones have in common: rate times round trip is about
    /// 1,200 Mbit/s·ms. Delays are those of the network of that time, along its backbone. What
    /// goes against the direction of the data is as wide as what goes along.
    pub fn seven_sites() -> Self {
        parse_own(SEVEN_SITES)
    }

    /// Links of equal rate, all with 0.5 % loss and windows of 256 KiB, from a source over three
    /// relays that stand at equal distances on the way to the receiver: what a connection brings
    /// is limited by its round trip alone, so shorter hops win.
    pub fn long_lossy() -> Self {
        parse_own(LONG_LOSSY)
    }

    /// Returns a server with data (A), another one that shall have it (B), 95 ms of round trip and
    /// 1 Gbit/s away, and a client (C) with a slow link to both, which orders the copy.
    pub fn three_sites() -> Self {
        parse_own(THREE_SITES)
    }

    /// Returns the same with three servers that have the data, on links of different rates to B.
    pub fn three_sources() -> Self {
        parse_own(THREE_SOURCES)
    }

    /// A map that is built in, by its name: `seven-sites`, `long-lossy`, `three-sites` or
    /// `three-sources`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "seven-sites" => Some(Self::seven_sites()),
            "long-lossy" => Some(Self::long_lossy()),
            "three-sites" => Some(Self::three_sites()),
            "three-sources" => Some(Self::three_sources()),
            _ => None,
        }
    }

    /// Returns the position of a site.
    pub fn site(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| site == name)
    }

    /// Returns the edge between two sites, if there is one.
    pub fn edge(&self, from: usize, to: usize) -> Option<&MapEdge> {
        self.edges.iter().find(|edge| edge.from == from && edge.to == to)
    }

    /// Returns the positions of all sites but the source and the receiver.
    pub fn relays(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.sites.len()).filter(|&site| site != self.source && site != self.here)
    }

    fn check(&self) -> Result<(), String> {
        for (at, edge) in self.edges.iter().enumerate() {
            if self
                .edges
                .iter()
                .take(at)
                .any(|other| (other.from, other.to) == (edge.from, edge.to))
            {
                let (from, to) = (&self.sites[edge.from], &self.sites[edge.to]);
                return Err(format!("{from} > {to} is there twice"));
            }
        }
        if self.source == self.here {
            return Err("source and receiver are the same site".to_owned());
        }
        Ok(())
    }
}

impl fmt::Display for MapSpec {
    /// The text form, which [`MapSpec::from_str`] reads: equal directions in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sites {}", self.sites.join(" "))?;
        writeln!(f, "source {}", self.sites[self.source])?;
        writeln!(f, "here {}", self.sites[self.here])?;
        if let Some(bytes) = self.window_bytes {
            writeln!(f, "window {bytes}")?;
        }
        for edge in &self.edges {
            let back = self.edge(edge.to, edge.from);
            let both = back.is_some_and(|back| {
                (back.mbit, back.one_way_ms, back.loss) == (edge.mbit, edge.one_way_ms, edge.loss)
            });
            if both && edge.from > edge.to {
                continue;
            }
            let MapEdge { mbit, one_way_ms, .. } = edge;
            let (from, to) = (&self.sites[edge.from], &self.sites[edge.to]);
            write!(f, "{from} {} {to} {mbit}/{one_way_ms}", if both { '=' } else { '>' })?;
            if edge.loss > 0.0 {
                write!(f, " loss {}", edge.loss)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl FromStr for MapSpec {
    type Err = MapError;

    /// Reads one statement a line; `#` begins a comment:
    ///
    /// ```text
    /// sites ORNL Atlanta Sunnyvale     # all names, first
    /// source ORNL
    /// here Sunnyvale
    /// window 262144                    # bytes; may be left out
    /// ORNL > Atlanta 174.4/2.5         # one direction: Mbit/s and milliseconds one way
    /// Atlanta = Sunnyvale 32/28 loss 0.005   # both directions
    /// ```
    fn from_str(text: &str) -> Result<Self, MapError> {
        let mut map = Self { sites: vec![], source: 0, here: 0, window_bytes: None, edges: vec![] };
        let (mut source, mut here) = (None, None);
        for (at, line) in text.lines().enumerate() {
            let wrong = |reason: String| MapError { line: at + 1, reason };
            let words: Vec<&str> =
                line.split('#').next().unwrap_or_default().split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                ["sites", names @ ..] => {
                    for name in names {
                        if map.site(name).is_some() {
                            return Err(wrong(format!("site {name} is there twice")));
                        }
                        map.sites.push((*name).to_owned());
                    }
                }
                ["source", name] => source = Some(known(&map, name).map_err(wrong)?),
                ["here", name] => here = Some(known(&map, name).map_err(wrong)?),
                ["window", bytes] => {
                    let bytes = bytes.parse().map_err(|_| wrong(format!("{bytes} bytes?")))?;
                    map.window_bytes = Some(bytes);
                }
                [from, how @ (">" | "="), to, shape, rest @ ..] => {
                    let (from, to) =
                        (known(&map, from).map_err(wrong)?, known(&map, to).map_err(wrong)?);
                    if from == to {
                        return Err(wrong("a link joins two sites".to_owned()));
                    }
                    let (mbit, one_way_ms) = rate_and_delay(shape).map_err(wrong)?;
                    let loss = loss(rest).map_err(wrong)?;
                    map.edges.push(MapEdge { from, to, mbit, one_way_ms, loss });
                    if *how == "=" {
                        map.edges.push(MapEdge { from: to, to: from, mbit, one_way_ms, loss });
                    }
                }
                _ => return Err(wrong(format!("'{}' is no statement of a map", line.trim()))),
            }
        }
        let whole = |reason: &str| MapError { line: 0, reason: reason.to_owned() };
        map.source = source.ok_or_else(|| whole("no line names the source"))?;
        map.here = here.ok_or_else(|| whole("no line names the receiver ('here')"))?;
        map.edges.sort_by_key(|edge| (edge.from, edge.to));
        map.check().map_err(|reason| MapError { line: 0, reason })?;
        Ok(map)
    }
}

fn known(map: &MapSpec, name: &str) -> Result<usize, String> {
    map.site(name).ok_or_else(|| format!("there is no site {name} in the line 'sites'"))
}

fn rate_and_delay(shape: &str) -> Result<(f64, f64), String> {
    let wrong = || format!("'{shape}' is not RATE/DELAY in Mbit/s and ms, for example 20/60");
    let (mbit, delay) = shape.split_once('/').ok_or_else(wrong)?;
    let (mbit, delay): (f64, f64) =
        (mbit.parse().map_err(|_| wrong())?, delay.parse().map_err(|_| wrong())?);
    let sane = mbit > 0.0 && mbit <= 1e5 && (0.0..=1e5).contains(&delay);
    if sane { Ok((mbit, delay)) } else { Err(wrong()) }
}

fn loss(words: &[&str]) -> Result<f64, String> {
    match words {
        [] => Ok(0.0),
        ["loss", part] => part
            .parse()
            .ok()
            .filter(|loss| (0.0..1.0).contains(loss))
            .ok_or_else(|| format!("'{part}' is no probability below 1")),
        _ => Err(format!("'{}' is not 'loss P'", words.join(" "))),
    }
}

fn parse_own(text: &str) -> MapSpec {
    text.parse().expect("the maps that are built in are right: a test reads them")
}

/// The line of a hop says what shows it: P published, N the attempt whose throughput it decides.
const SEVEN_SITES: &str = "\
sites ORNL Atlanta Indianapolis KansasCity Denver NewYork Washington Sunnyvale
source ORNL
here Sunnyvale
ORNL = Sunnyvale 26.3/31            # P, attempt 1
ORNL = Atlanta 174.4/2.5            # P
Atlanta = Indianapolis 117.6/5.5    # P
Indianapolis = KansasCity 115.2/4.5 # P
KansasCity = Denver 110.1/5.5       # P
Denver = Sunnyvale 59.9/12.5        # P, attempt 13
KansasCity = Sunnyvale 35.8/18      # 2
ORNL = Denver 37.5/17.5             # 3
Indianapolis = Sunnyvale 25.5/23    # 4
Atlanta = Sunnyvale 32.3/28.5       # 5
Washington = Sunnyvale 16.6/36      # 6
NewYork = Sunnyvale 17.4/33         # 7
Atlanta = Denver 43/15.5            # 8
Indianapolis = Denver 49.4/10       # 9
Atlanta = KansasCity 44/10.5        # 10
Washington = Denver 27.2/21.5       # 11
NewYork = Denver 24.4/19.5          # 12
ORNL = KansasCity 48/11.5
ORNL = Indianapolis 55/7.5
ORNL = Washington 52/9
ORNL = NewYork 45/12.5
Atlanta = Washington 80/7.5
Atlanta = NewYork 57/10.5
Indianapolis = NewYork 58/10
Indianapolis = Washington 50/12
KansasCity = NewYork 41/14.5
KansasCity = Washington 36/16
NewYork = Washington 170/2.5
";

/// 100 Mbit/s everywhere; 15 ms from each to its neighbour.
const LONG_LOSSY: &str = "\
sites Source East Middle West Here
source Source
here Here
window 262144
Source = Here 100/60 loss 0.005
Source = East 100/15 loss 0.005
Source = Middle 100/30 loss 0.005
Source = West 100/45 loss 0.005
East = Middle 100/15 loss 0.005
East = West 100/30 loss 0.005
East = Here 100/45 loss 0.005
Middle = West 100/15 loss 0.005
Middle = Here 100/30 loss 0.005
West = Here 100/15 loss 0.005
";

/// The client's link is so narrow that no data can go through it unnoticed.
const THREE_SITES: &str = "\
sites A B C
source A
here C
A = B 1000/47.5
A = C 10/20
B = C 10/20
";

/// Sources do not reach each other: nothing would have to go there.
const THREE_SOURCES: &str = "\
sites A1 A2 A3 B C
source A3
here C
A1 = B 100/47.5
A2 = B 200/47.5
A3 = B 400/47.5
A1 = C 10/20
A2 = C 10/20
A3 = C 10/20
B = C 10/20
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maps_survive_their_text() {
        for map in [MapSpec::seven_sites(), MapSpec::long_lossy()] {
            assert_eq!(map.to_string().parse(), Ok(map.clone()), "{map}");
            assert!(map.relays().count() + 2 == map.sites.len());
            // Every pair, in both directions.
            assert_eq!(map.edges.len(), map.sites.len() * (map.sites.len() - 1));
        }
    }

    #[test]
    fn the_client_of_copies_between_servers_reaches_all_of_them() {
        for name in ["three-sites", "three-sources"] {
            let map = MapSpec::named(name).unwrap();
            assert_eq!(map.to_string().parse(), Ok(map.clone()), "{map}");
            let destination = map.site("B").unwrap();
            for source in (0..map.sites.len()).filter(|&it| it != destination && it != map.here) {
                assert!(map.edge(source, destination).unwrap().mbit >= 100.0);
                assert_eq!(map.edge(source, map.here).unwrap().mbit, 10.0);
            }
            assert!(map.edge(map.here, destination).is_some());
        }
    }

    #[test]
    fn directions_may_differ() {
        let text = "sites a b c\nsource a\nhere b\na > b 10/5\nb > a 1/5 loss 0.01 # narrow\n";
        let map: MapSpec = text.parse().unwrap();
        assert_eq!(map.edge(1, 0).unwrap().loss, 0.01);
        assert_eq!(map.edge(0, 1).unwrap().mbit, 10.0);
        assert!(map.edge(0, 2).is_none());
        assert_eq!(map.to_string().parse(), Ok(map));
    }

    #[test]
    fn what_is_no_map_is_named_by_its_line() {
        let head = "sites a b\nsource a\nhere b\n";
        for (tail, line) in [
            ("a > c 1/1", 4),
            ("a > a 1/1", 4),
            ("a > b 0/1", 4),
            ("a > b 1/-1", 4),
            ("a > b 1", 4),
            ("a > b 1/1 loss 1", 4),
            ("a > b 1/1 lost 1", 4),
            ("\na < b 1/1", 5),
            ("window many", 4),
            ("a = b 1/1\nb > a 1/1", 0),
            ("source b", 0),
        ] {
            let wrong = format!("{head}{tail}").parse::<MapSpec>().unwrap_err();
            assert_eq!(wrong.line, line, "{tail}: {wrong}");
        }
        assert!("sites a a".parse::<MapSpec>().is_err());
        assert!("sites a b\nsource a".parse::<MapSpec>().is_err());
    }
}
