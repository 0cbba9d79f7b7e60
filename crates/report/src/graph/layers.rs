//! Which column a site stands in: as many to the left of the receiver as its widest route there has
//! hops, sources at the very left. So each site's best edge leads one column to the right.

use super::{Drawing, Kind};

/// The column of each site, from the right, the receiver's being 0.
pub(super) fn columns(drawing: &Drawing) -> Vec<usize> {
    let count = drawing.sites.len();
    let mut column = by_width(drawing);
    // The routes that stand out lead from column to column, whatever else would be shorter. Where
    // two of them contradict each other, one leads back somewhere.
    drawing.routes.iter().flatten().for_each(|site| column[*site] = Some(0));
    for _ in 0..drawing.routes.len() {
        for route in &drawing.routes {
            for pair in route.windows(2).rev() {
                let next = column[pair[1]].unwrap_or(0) + 1;
                column[pair[0]] = Some(column[pair[0]].unwrap_or(0).max(next));
            }
        }
    }
    column[drawing.target] = Some(0);
    // What has no way to the receiver stands beside what it has to do with.
    for _ in 0..count {
        let mut changed = false;
        for line in &drawing.edges {
            for (one, other, further) in [(line.from, line.to, 1), (line.to, line.from, 0)] {
                if let (None, Some(at)) = (column[one], column[other]) {
                    column[one] = Some((at + further).max(1));
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    let mut column: Vec<usize> = column.into_iter().map(|it| it.unwrap_or(1)).collect();
    let relays = (0..count).filter(|site| drawing.sites[*site].kind != Kind::Source);
    let deepest = relays.map(|site| column[site]).max().unwrap_or(0);
    for (site, column) in column.iter_mut().enumerate() {
        let is_source = drawing.sites[site].kind == Kind::Source;
        if is_source && site != drawing.target {
            *column = deepest + 1;
        }
    }
    without_gaps(column)
}

/// The number of hops of each site's widest route to the receiver, the fewest of equally wide
/// ones; over edges without a rate only where there is nothing else.
fn by_width(drawing: &Drawing) -> Vec<Option<usize>> {
    let count = drawing.sites.len();
    let mut best = vec![(0.0_f64, None); count];
    let mut reached = vec![0.0_f64; count];
    reached[drawing.target] = f64::INFINITY;
    for hops in 1..=HOPS_MAX.min(count) {
        let mut next = vec![0.0_f64; count];
        for line in &drawing.edges {
            let width = reached[line.to].min(line.rate().max(UNMEASURED));
            next[line.from] = next[line.from].max(width);
        }
        next[drawing.target] = 0.0;
        for site in 0..count {
            if next[site] > best[site].0 {
                best[site] = (next[site], Some(hops));
            }
        }
        reached = next;
    }
    best.into_iter().map(|(_, hops)| hops).collect()
}

fn without_gaps(column: Vec<usize>) -> Vec<usize> {
    let mut used = column.clone();
    used.sort_unstable();
    used.dedup();
    column.into_iter().map(|it| used.binary_search(&it).unwrap_or(0)).collect()
}

/// Relays pass on what comes over so many hops.
const HOPS_MAX: usize = 8;
/// An edge that nobody has measured is an edge all the same, after all others. Bytes per second.
const UNMEASURED: f64 = 1e-3;
