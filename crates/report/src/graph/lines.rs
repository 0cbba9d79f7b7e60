//! The curves of the edges. Each leaves a site at its side and enters another at its side, level
//! both times; at a side they stand in the order of where they lead, so that they do not cross
//! there.

use super::Drawing;
use super::order::{Placed, Slot};

/// A site's rectangle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A curve: cubic pieces from the left to the right (or from one to another within a column).
#[derive(Clone, Debug)]
pub(super) struct Curve {
    /// Beginning, two points of control and end of each piece.
    pub(super) pieces: Vec<[(f64, f64); 4]>,
    /// Where the arrow's tip is.
    pub(super) tip: (f64, f64),
    /// The arrow points to the left.
    pub(super) leftwards: bool,
    /// How wide it is.
    pub(super) width: f64,
}

impl Curve {
    /// A point of it, at 0 to 1 of its way.
    pub(super) fn at(&self, share: f64) -> (f64, f64) {
        let along = share.clamp(0.0, 0.999_999) * self.pieces.len() as f64;
        let [a, b, c, d] = self.pieces[along as usize];
        let t = along.fract();
        let mix = |a: f64, b: f64, c: f64, d: f64| {
            let u = 1.0 - t;
            a * u * u * u + 3.0 * b * u * u * t + 3.0 * c * u * t * t + d * t * t * t
        };
        (mix(a.0, b.0, c.0, d.0), mix(a.1, b.1, c.1, d.1))
    }
}

/// How wide an edge is drawn, by its share of the widest one.
pub(super) fn width(rate: f64, widest: f64) -> f64 {
    if widest > 0.0 { 1.2 + 7.8 * (rate / widest).clamp(0.0, 1.0).sqrt() } else { 1.2 }
}

/// Which side of a site an edge meets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Where an edge meets both of its sites.
pub(super) fn sides(from: usize, to: usize) -> (Side, Side) {
    match from.cmp(&to) {
        std::cmp::Ordering::Less => (Side::Right, Side::Left),
        std::cmp::Ordering::Greater => (Side::Left, Side::Right),
        std::cmp::Ordering::Equal => (Side::Right, Side::Right),
    }
}

/// The curves of all edges. `column` counts from the left.
pub(super) fn curves(
    drawing: &Drawing,
    column: &[usize],
    frames: &[Frame],
    spans: &[(f64, f64)],
    placed: &Placed,
    widths: &[f64],
) -> Vec<Curve> {
    let ports = ports(drawing, column, frames, placed, widths);
    let bend = |edge: usize, at: usize| {
        let is_there = placed.columns[at].iter().any(|(slot, _)| *slot == Slot::Bend(edge));
        is_there.then(|| placed.of(Slot::Bend(edge), at))
    };
    let edges = drawing.edges.iter().enumerate();
    edges
        .map(|(edge, line)| {
            let (begin, end) = sides(column[line.from], column[line.to]);
            let point = |site: usize, side: Side, y: f64, gap: f64| {
                let frame = frames[site];
                match side {
                    Side::Left => (frame.x - gap, y),
                    Side::Right => (frame.x + frame.width + gap, y),
                }
            };
            let width = widths[edge];
            let start = point(line.from, begin, ports[edge].0, 0.0);
            let tip = point(line.to, end, ports[edge].1, 1.0);
            let stop = point(line.to, end, ports[edge].1, arrow(width).0);
            let leftwards = end == Side::Right;
            let pieces = if begin == end {
                let bulge = 26.0 + (start.1 - stop.1).abs().min(400.0) * 0.22;
                let (a, b) = ((start.0 + bulge, start.1), (stop.0 + bulge, stop.1));
                vec![[start, a, b, stop]]
            } else {
                // From the left to the right, whichever way the data flows.
                let (left, right) = if leftwards { (stop, start) } else { (start, stop) };
                let ends = (column[line.from], column[line.to]);
                let (first, last) = (ends.0.min(ends.1), ends.0.max(ends.1));
                let mut pieces = Vec::new();
                let mut before = left;
                for (at, span) in spans.iter().enumerate().take(last).skip(first + 1) {
                    if let Some(y) = bend(edge, at) {
                        pieces.push(level(before, (span.0, y)));
                        pieces.push(level((span.0, y), (span.1, y)));
                        before = (span.1, y);
                    }
                }
                pieces.push(level(before, right));
                pieces
            };
            Curve { pieces, tip, leftwards, width }
        })
        .collect()
}

/// Length and half the height of an edge's arrow.
pub(super) fn arrow(width: f64) -> (f64, f64) {
    (5.0 + width * 1.1, 3.0 + width * 0.85)
}

fn level(a: (f64, f64), b: (f64, f64)) -> [(f64, f64); 4] {
    let half = (b.0 - a.0) * 0.5;
    [a, (a.0 + half, a.1), (b.0 - half, b.1), b]
}

/// How high each edge meets the site that it leaves and the one that it enters.
fn ports(
    drawing: &Drawing,
    column: &[usize],
    frames: &[Frame],
    placed: &Placed,
    widths: &[f64],
) -> Vec<(f64, f64)> {
    let mut ports = vec![(0.0, 0.0); drawing.edges.len()];
    for (site, frame) in frames.iter().enumerate() {
        for side in [Side::Left, Side::Right] {
            // (where it leads, edge, whether it begins here)
            let mut here: Vec<(f64, usize, bool)> = Vec::new();
            for (edge, line) in drawing.edges.iter().enumerate() {
                let (begin, end) = sides(column[line.from], column[line.to]);
                for (own, other, own_side, begins) in
                    [(line.from, line.to, begin, true), (line.to, line.from, end, false)]
                {
                    if own == site && own_side == side {
                        let next = match side {
                            Side::Left => column[site].checked_sub(1),
                            Side::Right => Some(column[site] + 1),
                        };
                        let middle = frames[other].y + frames[other].height / 2.0;
                        let toward = next
                            .filter(|_| column[other] != column[site])
                            .and_then(|at| placed.columns.get(at))
                            .and_then(|slots| {
                                slots.iter().find(|(slot, _)| *slot == Slot::Bend(edge))
                            })
                            .map_or(middle, |(_, y)| *y);
                        here.push((toward, edge, begins));
                    }
                }
            }
            here.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let total: f64 = here.iter().map(|it| widths[it.1] + PORT_GAP).sum();
            let mut y = frame.y + frame.height / 2.0 - total / 2.0;
            for (_, edge, begins) in here {
                y += (widths[edge] + PORT_GAP) / 2.0;
                if begins {
                    ports[edge].0 = y;
                } else {
                    ports[edge].1 = y;
                }
                y += (widths[edge] + PORT_GAP) / 2.0;
            }
        }
    }
    ports
}

/// Between edges at a site's side, where arrows are wider than their lines.
pub(super) const PORT_GAP: f64 = 5.0;
