//! A graph of sites as a picture: data flows from left to right, sources at the left, its receiver
//! at the right, relays between them in layers by their number of hops.
//!
//! Edges are as wide as their rates, and pale where they were measured long ago; the routes asked
//! for stand out. [`svg`] makes one self-contained file that needs no network and no script; every
//! text that came from outside is escaped. Where there are too many edges for all to have a
//! figure, the widest have one and the others tell theirs under the pointer.
//!
//! - `layers`: which column a site stands in; `order`: where in it, so that few edges cross;
//! - `lines`: the curves of the edges; `labels`: where figures find room; `draw`: the picture.

mod draw;
mod labels;
mod layers;
mod lines;
mod order;

pub use draw::svg;

#[cfg(test)]
mod tests;

/// What is drawn.
#[derive(Clone, Debug, Default)]
pub struct Drawing {
    /// Names of sites.
    pub sites: Vec<Site>,
    /// From one site to another, by their places in the list.
    pub edges: Vec<Line>,
    /// Routes that stand out: sites in the order in which data passes them.
    pub routes: Vec<Vec<usize>>,
    /// The site at the right.
    pub target: usize,
}

/// A site.
#[derive(Clone, Debug)]
pub struct Site {
    /// `host:port`, or how we are called.
    pub name: String,
    /// What it does.
    pub kind: Kind,
}

/// What a site does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is us.
    Here,
    /// It passes data on.
    Relay,
    /// Data comes from it.
    Source,
}

/// An edge.
#[derive(Clone, Debug)]
pub struct Line {
    /// The site that sends.
    pub from: usize,
    /// The site that receives.
    pub to: usize,
    /// Bytes per second, where it was measured.
    pub rate_bytes_per_s: Option<f64>,
    /// It could bring more.
    pub at_least: bool,
    /// Seconds since it was measured.
    pub age_s: f64,
    /// Its round trip in seconds, where that is known.
    pub rtt_s: Option<f64>,
    /// The narrowest of a route that stands out.
    pub limits: bool,
}

impl Line {
    fn rate(&self) -> f64 {
        self.rate_bytes_per_s.filter(|rate| rate.is_finite()).unwrap_or(0.0).max(0.0)
    }
}

impl Drawing {
    /// Whether an edge lies on a route that stands out.
    fn stands_out(&self, line: &Line) -> bool {
        self.routes.iter().any(|route| route.windows(2).any(|pair| *pair == [line.from, line.to]))
    }
}
