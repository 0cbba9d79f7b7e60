//! The network: sites, edges with their rates of now, and what relays are like.

use std::collections::BTreeMap;

use crate::map::MapSpec;

/// What a relay is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mood {
    Well,
    /// Nothing comes from it any more, nor does it say so.
    Silent,
    /// It resets what there is and refuses what is new.
    Refuses,
}

/// Something that changes, at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Bytes per second of one direction of a link.
    Rate {
        from: usize,
        to: usize,
        bytes_per_s: f64,
    },
    Mood {
        site: usize,
        mood: Mood,
    },
    Corrupts {
        site: usize,
        corrupts: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub from: usize,
    pub to: usize,
    /// Bytes per second, as the script says.
    pub rate: f64,
    pub rtt_s: f64,
    /// The most that one connection brings: its window and losses limit it.
    pub connection: f64,
    /// What its rate is multiplied with just now.
    swing: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Net {
    pub names: Vec<String>,
    pub edges: Vec<Edge>,
    by_sites: BTreeMap<(usize, usize), usize>,
    pub moods: Vec<Mood>,
    /// What a relay's reports are multiplied with; 1: the truth.
    pub lies: Vec<f64>,
    /// Whether a relay says the contrary of which hop held it up.
    pub misleads: Vec<bool>,
    /// How long relays take to answer whether they are well, beside the round trip, in seconds.
    pub answers_s: f64,
    pub corrupts: Vec<bool>,
    /// Bytes per second that a site sends and receives at most.
    pub sends: Vec<f64>,
    pub receives: Vec<f64>,
    /// How far rates swing: the standard deviation, as a part.
    pub swing: f64,
    rng: fastrand::Rng,
}

impl Net {
    pub fn new(map: &MapSpec, seed: u64) -> Self {
        let edges: Vec<Edge> = map
            .edges
            .iter()
            .map(|edge| {
                let rtt_s = (2.0 * edge.one_way_ms / 1e3).max(1e-4);
                let window = map.window_bytes.map_or(f64::INFINITY, |bytes| bytes as f64 / rtt_s);
                // Mathis, Semke, Mahdavi and Ott 1997.
                let lossy = match edge.loss {
                    loss if loss > 0.0 => 1.22 * 1448.0 / (rtt_s * loss.sqrt()),
                    _ => f64::INFINITY,
                };
                let (from, to, rate) = (edge.from, edge.to, edge.mbit * 125e3);
                Edge { from, to, rate, rtt_s, connection: window.min(lossy), swing: 1.0 }
            })
            .collect();
        let n = map.sites.len();
        Self {
            names: map.sites.clone(),
            by_sites: edges.iter().enumerate().map(|(at, it)| ((it.from, it.to), at)).collect(),
            edges,
            moods: vec![Mood::Well; n],
            lies: vec![1.0; n],
            misleads: vec![false; n],
            answers_s: 0.0,
            corrupts: vec![false; n],
            sends: vec![f64::INFINITY; n],
            receives: vec![f64::INFINITY; n],
            swing: 0.0,
            rng: fastrand::Rng::with_seed(seed ^ 0x5eed),
        }
    }

    pub fn edge(&self, from: usize, to: usize) -> Option<usize> {
        self.by_sites.get(&(from, to)).copied()
    }

    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Rate { from, to, bytes_per_s } => {
                if let Some(at) = self.edge(from, to) {
                    self.edges[at].rate = bytes_per_s;
                }
            }
            Change::Mood { site, mood } => self.moods[site] = mood,
            Change::Corrupts { site, corrupts } => self.corrupts[site] = corrupts,
        }
    }

    /// Lets rates swing on for 0.1 s: they return to their mean within about a second.
    pub fn sway(&mut self) {
        if self.swing > 0.0 {
            for edge in &mut self.edges {
                let noise = (0..6).map(|_| self.rng.f64()).sum::<f64>() - 3.0;
                let kick = self.swing * 0.44 * noise * std::f64::consts::SQRT_2;
                edge.swing = (1.0 + 0.9 * (edge.swing - 1.0) + kick).clamp(0.1, 2.0);
            }
        }
    }

    /// What each resource bears now: the edges, then what each site sends, then what it receives.
    pub fn capacities(&self) -> Vec<f64> {
        let edges = self.edges.iter().map(|edge| edge.rate * edge.swing);
        edges.chain(self.sends.iter().copied()).chain(self.receives.iter().copied()).collect()
    }

    /// Returns the resources that data over these edges uses.
    pub fn resources(&self, edges: &[usize]) -> Vec<usize> {
        let (n, m) = (self.edges.len(), self.names.len());
        let mut resources = Vec::with_capacity(3 * edges.len());
        for &at in edges {
            let edge = &self.edges[at];
            resources.push(at);
            if self.sends[edge.from].is_finite() {
                resources.push(n + edge.from);
            }
            if self.receives[edge.to].is_finite() {
                resources.push(n + m + edge.to);
            }
        }
        resources
    }
}
