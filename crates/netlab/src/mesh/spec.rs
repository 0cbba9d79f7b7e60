//! What a mesh looks like, as data.

use std::time::Duration;

use crate::map::{MapEdge, MapSpec};
use crate::wan::{LabError, Queue, Shape};

/// A site and the TCP parameters of connections that begin or end there.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteSpec {
    /// By which commands and scripts know it.
    pub name: String,
    /// Congestion control; `None` leaves the machine's own.
    pub congestion_control: Option<String>,
    /// Largest send buffer of a connection; `None` leaves the machine's own.
    pub send_buffer_bytes: Option<u64>,
    /// Largest receive buffer of a connection; `None` leaves the machine's own.
    pub receive_buffer_bytes: Option<u64>,
}

impl SiteSpec {
    /// Returns a site that leaves everything as the machine has it.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            congestion_control: None,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
        }
    }

    /// Limits both buffers so that `window_bytes` of payload can be under way in a connection.
    pub fn limit_window(&mut self, window_bytes: u64) {
        self.send_buffer_bytes = Some((window_bytes as f64 * SEND_BUFFER_OVER_WINDOW) as u64);
        self.receive_buffer_bytes = Some((window_bytes as f64 * RECEIVE_BUFFER_OVER_WINDOW) as u64);
    }
}

/// A link between two sites.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshLink {
    /// Position of the site at the near end.
    pub near: usize,
    /// Position of the site at the far end.
    pub far: usize,
    /// From the far end to the near one.
    pub down: Shape,
    /// From the near end to the far one.
    pub up: Shape,
}

/// Sites and the links between them.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshSpec {
    /// In any order; site `i` (from 0) has the address `10.79.0.(i+1)`.
    pub sites: Vec<SiteSpec>,
    /// At most one for each pair of sites.
    pub links: Vec<MeshLink>,
    /// Decides which packets are lost.
    pub seed: u64,
    /// Whether links carry segments of one connection together, as network cards with segmentation
    /// offload do: that leaves more processor time for the programs.
    pub has_offload: bool,
}

impl MeshSpec {
    /// Returns the sites and links of a map, with queues of 100 ms. Where the map has one direction only,
    /// the other one, in which acknowledgements go, is as wide.
    pub fn of(map: &MapSpec) -> Self {
        let mut links = Vec::new();
        for near in 0..map.sites.len() {
            for far in near + 1..map.sites.len() {
                let (down, up) = (map.edge(far, near), map.edge(near, far));
                if let Some((down, up)) = down.or(up).zip(up.or(down)) {
                    links.push(MeshLink { near, far, down: shape(down), up: shape(up) });
                }
            }
        }
        let sites = map.sites.iter().map(SiteSpec::new).collect();
        let mut spec = Self { sites, links, seed: 1, has_offload: false };
        if let Some(window_bytes) = map.window_bytes {
            spec.limit_windows(window_bytes);
        }
        spec
    }

    /// Sets the queue of every direction of every link.
    pub fn set_queue(&mut self, queue: Queue) {
        self.each_shape(|shape| shape.queue = queue);
    }

    /// Sets the probability of loss, 0 to 1, of every direction of every link.
    pub fn set_loss(&mut self, loss: f64) {
        self.each_shape(|shape| shape.loss = loss);
    }

    /// Sets the congestion control of every site.
    pub fn set_congestion_control(&mut self, name: &str) {
        for site in &mut self.sites {
            site.congestion_control = Some(name.to_owned());
        }
    }

    /// Limits the windows of connections of every site, as [`SiteSpec::limit_window`] does.
    pub fn limit_windows(&mut self, window_bytes: u64) {
        for site in &mut self.sites {
            site.limit_window(window_bytes);
        }
    }

    fn each_shape(&mut self, mut change: impl FnMut(&mut Shape)) {
        for link in &mut self.links {
            change(&mut link.down);
            change(&mut link.up);
        }
    }

    pub(super) fn check(&self) -> Result<(), LabError> {
        for (position, site) in self.sites.iter().enumerate() {
            let bad = |reason| Err(LabError::BadSite { site: site.name.clone(), reason });
            if position >= MAX_SITES {
                return bad("a mesh has at most 250 sites");
            }
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if site.name.is_empty() || !site.name.chars().all(is_plain) {
                return bad("a name has letters, digits, '-', '_' and '.' only");
            }
            let folded = folded(&site.name);
            if folded == ALL
                || self.sites[..position].iter().any(|s| self::folded(&s.name) == folded)
            {
                return bad("another one has this name");
            }
        }
        for (position, link) in self.links.iter().enumerate() {
            let bad = |reason| Err(LabError::BadLink { link: position + 1, reason });
            if link.near.max(link.far) >= self.sites.len() || link.near == link.far {
                return bad("it does not join two sites");
            }
            let ends = |link: &MeshLink| (link.near.min(link.far), link.near.max(link.far));
            if self.links[..position].iter().any(|other| ends(other) == ends(link)) {
                return bad("another one joins the same two sites");
            }
            if link.down.rate_bits_per_s == 0 || link.up.rate_bits_per_s == 0 {
                return bad("a rate is zero");
            }
        }
        Ok(())
    }
}

fn shape(edge: &MapEdge) -> Shape {
    let delay = Duration::from_secs_f64(edge.one_way_ms / 1e3);
    Shape { loss: edge.loss, ..Shape::new((edge.mbit * 1e6) as u64, delay) }
}

/// Names are the same however they are written: `Kansas-City` is `KANSAS_CITY`.
pub(super) fn folded(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

/// Stands for every link, so that no site may have this name.
pub(super) const ALL: &str = "all";

/// Each site takes an address of 10.79.0.0/24.
const MAX_SITES: usize = 250;

/// The kernel accounts for more than the payload of what it holds: measured, this much lets a
/// window travel.
const SEND_BUFFER_OVER_WINDOW: f64 = 316.0 / 256.0;

/// The kernel advertises the part of a buffer that payload fills: measured, five eighths of it in
/// full packets of 1,500 bytes.
const RECEIVE_BUFFER_OVER_WINDOW: f64 = 1.61;

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(names: &[&str], pairs: &[(usize, usize)]) -> MeshSpec {
        let shape = Shape::new(1_000_000, Duration::from_millis(1));
        let link = |&(near, far)| MeshLink { near, far, down: shape, up: shape };
        MeshSpec {
            sites: names.iter().map(|&name| SiteSpec::new(name)).collect(),
            links: pairs.iter().map(link).collect(),
            seed: 1,
            has_offload: false,
        }
    }

    #[test]
    fn a_mesh_is_that_of_its_map() {
        let text = "sites a b c\nsource a\nhere c\nwindow 65536\n\
                    a > b 2.5/5 loss 0.1\nc > b 8/1\nb > c 4/2\n";
        let spec = MeshSpec::of(&text.parse().unwrap());
        let links: Vec<_> = spec.links.iter().map(|link| (link.near, link.far)).collect();
        assert_eq!(links, [(0, 1), (1, 2)]);
        assert_eq!(spec.links[0].down, spec.links[0].up);
        assert_eq!(spec.links[0].up.rate_bits_per_s, 2_500_000);
        assert_eq!(spec.links[0].up.loss, 0.1);
        assert_eq!(spec.links[1].down.rate_bits_per_s, 8_000_000);
        assert_eq!(spec.links[1].up.one_way_delay, Duration::from_millis(2));
        assert!(spec.sites.iter().all(|site| site.send_buffer_bytes.is_some()));
        for map in [MapSpec::seven_sites(), MapSpec::long_lossy()] {
            let spec = MeshSpec::of(&map);
            assert!(spec.check().is_ok());
            assert_eq!(2 * spec.links.len(), map.edges.len());
        }
    }

    #[test]
    fn impossible_meshes_are_refused() {
        assert!(spec(&["a", "b", "c"], &[(0, 1), (2, 1)]).check().is_ok());
        for names in [&["a", "A"][..], &["x y"], &[""], &["all"], &["k-c", "K_C"]] {
            let error = spec(names, &[]).check().unwrap_err();
            assert!(matches!(error, LabError::BadSite { .. }), "{names:?}: {error}");
        }
        for pairs in [&[(0, 2)][..], &[(1, 1)], &[(0, 1), (1, 0)]] {
            let error = spec(&["a", "b"], pairs).check().unwrap_err();
            assert!(matches!(error, LabError::BadLink { .. }), "{pairs:?}: {error}");
        }
        let mut stopped = spec(&["a", "b"], &[(0, 1)]);
        stopped.links[0].up.rate_bits_per_s = 0;
        assert!(stopped.check().is_err());
    }
}
