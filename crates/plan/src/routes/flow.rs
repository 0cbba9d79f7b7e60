//! Maximum flow, and the routes that carry it.
//!
//! Shortest augmenting paths (Edmonds and Karp 1972) over the dense matrix: graphs of a hundred
//! sites are small, and few paths are needed because few edges lead to us.

use std::collections::VecDeque;

use super::graph::FlowPath;
use super::matrix::{Hop, Matrix};

/// A flow from all sources to us.
pub(crate) struct Flow {
    /// Bytes per second in all.
    pub rate: f64,
    /// What flows over each edge.
    edges: Matrix,
}

/// Returns the largest flow from the sources to us. Every edge's rate must be finite.
pub(crate) fn max_flow(matrix: &Matrix) -> Flow {
    let n = matrix.sites.len();
    let mut left = vec![0.0; n * n];
    let mut widest = 0.0_f64;
    for from in 0..n {
        for to in 0..n {
            if let Some(hop) = matrix.hop(from, to) {
                left[from * n + to] = hop.rate;
                widest = widest.max(hop.rate);
            }
        }
    }
    let nothing = widest * NOTHING;
    let mut rate = 0.0;
    while let Some((path, more)) = augmenting(&left, n, matrix.first_source, nothing) {
        for pair in path.windows(2) {
            left[pair[0] * n + pair[1]] -= more;
            left[pair[1] * n + pair[0]] += more;
        }
        rate += more;
    }
    let edges = matrix.map(|from, to, hop| {
        // Backward flow reduces forward flow.
        let used = hop.rate - left[from * n + to];
        (used > nothing).then_some(Hop { rate: used, ..hop })
    });
    Flow { rate, edges }
}

impl Flow {
    /// Returns routes that carry the flow, the widest first. They are few, because each uses up at
    /// least one edge.
    pub fn routed_sources(mut self, ways_max: usize, hops_max: usize) -> Vec<FlowPath> {
        let mut routed_sources = Vec::new();
        while routed_sources.len() < ways_max
            && let Some(routed_id) = self.edges.widest(hops_max)
        {
            if routed_id.rate_bytes_per_s <= self.rate * NOTHING {
                break;
            }
            self.edges.take(&routed_id);
            routed_sources.push(routed_id);
        }
        routed_sources
    }
}

/// Returns the shortest path with capacity left from any source to us, and that capacity.
fn augmenting(
    left: &[f64],
    n: usize,
    first_source: usize,
    nothing: f64,
) -> Option<(Vec<usize>, f64)> {
    let mut before = vec![usize::MAX; n];
    let mut queue: VecDeque<usize> = (first_source..n).collect();
    for (source, before) in before.iter_mut().enumerate().skip(first_source) {
        *before = source;
    }
    while let Some(from) = queue.pop_front() {
        for to in 0..n {
            if before[to] == usize::MAX && left[from * n + to] > nothing {
                before[to] = from;
                if to == 0 {
                    let mut path = vec![0];
                    let mut more = f64::INFINITY;
                    let mut at = 0;
                    while before[at] != at {
                        more = more.min(left[before[at] * n + at]);
                        at = before[at];
                        path.push(at);
                    }
                    path.reverse();
                    return Some((path, more));
                }
                queue.push_back(to);
            }
        }
    }
    None
}

/// Capacity below this part of the widest edge is a rounding error.
const NOTHING: f64 = 1e-9;
