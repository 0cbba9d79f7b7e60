//! Where figures find room: on their edges, clear of sites and of each other.

use super::lines::{Curve, Frame};

/// The figures for which there is room, each with its middle and its width. They are wanted in the
/// order of their importance: edges, and how wide their figures are.
pub(super) fn place(
    wanted: &[(usize, f64)],
    curves: &[Curve],
    frames: &[Frame],
) -> Vec<(usize, (f64, f64), f64)> {
    let mut taken: Vec<Frame> = frames.to_vec();
    let mut out = Vec::new();
    for &(edge, width) in wanted {
        let spot = SHARES.iter().map(|share| curves[edge].at(*share)).find(|(x, y)| {
            let frame = around((*x, *y), width);
            !taken.iter().any(|other| overlap(&frame, other))
        });
        if let Some(at) = spot {
            taken.push(around(at, width));
            out.push((edge, at, width));
        }
    }
    out
}

fn around((x, y): (f64, f64), width: f64) -> Frame {
    Frame { x: x - width / 2.0 - 2.0, y: y - HEIGHT / 2.0, width: width + 4.0, height: HEIGHT }
}

fn overlap(a: &Frame, b: &Frame) -> bool {
    a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
}

/// Where along an edge a figure may stand, the best places first.
const SHARES: [f64; 13] =
    [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82, 0.12, 0.88, 0.07, 0.93];
/// Of a figure, with a little air.
const HEIGHT: f64 = 17.0;
