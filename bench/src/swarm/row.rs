//! What is measured: networks, sizes and who takes part.

use std::time::Duration;

use swath_netlab::access::AccessSpec;

use super::{Client, Origin};

/// Sites that fetch the same file at the same time.
#[derive(Clone, Debug)]
pub struct Row {
    /// What `--row` calls it.
    pub name: &'static str,
    /// In words.
    pub title: &'static str,
    /// Size of the file.
    pub size_bytes: u64,
    /// Link of the origin. `None` puts everybody on one machine without links.
    pub origin: Option<AccessSpec>,
    /// Links of web servers that have the file.
    pub mirrors: Vec<AccessSpec>,
    /// Links of the sites that fetch it; the first one alone counts without links.
    pub sites: Vec<AccessSpec>,
    /// Who takes part, by turns.
    pub cases: Vec<Case>,
}

/// Programs that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// In the table and for `--tools`.
    pub name: &'static str,
    /// Has the file.
    pub origin: Origin,
    /// Fetches it.
    pub client: Client,
}

impl Row {
    /// Returns the least time in which all sites can have the file, in seconds: by what the origin and
    /// the mirrors must send once, by the slowest site, and by what all must send together. Headers of
    /// packets are not counted, so even a perfect swarm takes 1.036 times as long.
    pub fn bound_s(&self) -> f64 {
        let Some(origin) = self.origin else { return 0.0 };
        let bits = self.size_bytes as f64 * 8.0;
        let up = |links: &[AccessSpec]| -> f64 {
            links.iter().map(|link| link.up_bits_per_s as f64).sum()
        };
        let first = origin.up_bits_per_s as f64 + up(&self.mirrors);
        let slowest = self.sites.iter().map(|link| link.down_bits_per_s).min().unwrap_or(1) as f64;
        let all = bits * self.sites.len() as f64 / (first + up(&self.sites));
        (bits / first).max(bits / slowest).max(all)
    }

    /// Returns when a tool has said what it has to say.
    pub fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.bound_s() * LIMIT_OVER_BOUND) + LIMIT_AT_LEAST
    }

    /// Returns half of what a site's link and the origin's let it reach, in bytes per second.
    pub fn fair_bytes_per_s(&self, site: usize) -> f64 {
        let own = self.sites[site].down_bits_per_s;
        let origin = self.origin.map_or(own, |origin| origin.up_bits_per_s);
        own.min(origin) as f64 / 8.0 / 2.0
    }
}

/// Returns all rows.
pub fn rows() -> Vec<Row> {
    let equal = |size_mib: u64| Row {
        name: if size_mib == 128 { "sites" } else { "sites512" },
        title: "8 sites of 100 Mbit/s up and down, 40 ms, one origin of 100 Mbit/s",
        size_bytes: size_mib << 20,
        origin: Some(link(100, 40)),
        mirrors: Vec::new(),
        sites: vec![link(100, 40); 8],
        cases: SWARMS.to_vec(),
    };
    let slow = Row {
        name: "sites25",
        title: "8 sites of 25 Mbit/s up and down, 40 ms, one origin of 25 Mbit/s",
        origin: Some(link(25, 40)),
        sites: vec![link(25, 40); 8],
        ..equal(128)
    };
    let unequal = Row {
        name: "unequal",
        title: "8 sites of 20 to 200 Mbit/s up and down, 40 ms, one origin of 100 Mbit/s",
        sites: UNEQUAL_MBIT_PER_S.iter().map(|rate| link(*rate, 40)).collect(),
        ..equal(128)
    };
    let webseeds = Row {
        name: "webseeds",
        title: "8 sites of 100 Mbit/s, 40 ms, one origin of 100 Mbit/s, 2 web seeds of 50 Mbit/s",
        mirrors: vec![link(50, 40); 2],
        ..equal(128)
    };
    let long = |name, title, round_trip_ms| Row {
        name,
        title,
        size_bytes: 512 << 20,
        origin: Some(link(1000, round_trip_ms)),
        mirrors: Vec::new(),
        sites: vec![link(1000, round_trip_ms)],
        cases: LONG.to_vec(),
    };
    let leech = Row {
        name: "leech",
        title: "one libtorrent seeder, loopback",
        size_bytes: 1 << 30,
        origin: None,
        mirrors: Vec::new(),
        sites: vec![link(1000, 0)],
        cases: LEECH.to_vec(),
    };
    vec![
        equal(128),
        equal(512),
        slow,
        unequal,
        webseeds,
        long("long100", "one seeder, 1 Gbit/s, 100 ms", 100),
        long("long200", "one seeder, 1 Gbit/s, 200 ms", 200),
        leech,
    ]
}

/// Returns a link that gives a round trip of `round_trip_ms` to another one like it.
fn link(rate_mbit_per_s: u64, round_trip_ms: u64) -> AccessSpec {
    AccessSpec::new(rate_mbit_per_s, Duration::from_micros(round_trip_ms * 1000 / 4))
}

const fn case(name: &'static str, origin: Origin, client: Client) -> Case {
    Case { name, origin, client }
}

/// Each with its own seeder.
const SWARMS: [Case; 4] = [
    case("swath", Origin::Swath, Client::Swath),
    case("libtorrent", Origin::Libtorrent, Client::Libtorrent),
    case("aria2", Origin::Aria2, Client::Aria2),
    case("transmission", Origin::Transmission, Client::Transmission),
];

const LONG: [Case; 7] = [
    case("swath from swath seed", Origin::Swath, Client::Swath),
    case("swath from swath serve", Origin::SwathServe, Client::SwathByHttp),
    case("swath from libtorrent", Origin::Libtorrent, Client::Swath),
    case("swath from transmission", Origin::Transmission, Client::Swath),
    case("libtorrent from libtorrent", Origin::Libtorrent, Client::Libtorrent),
    case("transmission from transmission", Origin::Transmission, Client::Transmission),
    case("curl from nginx", Origin::Nginx, Client::Curl),
];

const LEECH: [Case; 3] = [
    case("swath", Origin::Libtorrent, Client::Swath),
    case("libtorrent", Origin::Libtorrent, Client::Libtorrent),
    case("aria2", Origin::Libtorrent, Client::Aria2),
];

/// From a small institute to one that has twice the origin's rate.
const UNEQUAL_MBIT_PER_S: [u64; 8] = [20, 40, 60, 80, 100, 120, 160, 200];
/// A tool that is this many times slower than it could be has said what it has to say.
const LIMIT_OVER_BOUND: f64 = 6.0;
const LIMIT_AT_LEAST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        rows().into_iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn bounds_are_those_of_the_narrowest_place() {
        let is_near = |name: &str, wanted: f64| {
            let bound = row(name).bound_s();
            assert!((bound - wanted).abs() < 0.01, "{name}: {bound}");
        };
        // 134,217,728 bytes at 100, 100, 20 Mbit/s; with mirrors 8 copies over 1,000 Mbit/s.
        is_near("sites", 10.74);
        is_near("sites512", 42.95);
        is_near("unequal", 53.69);
        is_near("webseeds", 10.74);
        is_near("leech", 0.0);
    }

    #[test]
    fn a_fair_rate_is_half_of_the_narrower_link() {
        let row = row("unequal");
        assert_eq!(row.fair_bytes_per_s(0), 1.25e6);
        assert_eq!(row.fair_bytes_per_s(7), 6.25e6);
    }
}
