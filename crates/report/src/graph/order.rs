//! Where in its column a site stands: edges should cross seldom and lead straight on. Long edges
//! get a place of their own in the columns between, a *bend*, so that they lead past what stands
//! there (Sugiyama's method: order by the mean place of the neighbours, over and over).

use super::Drawing;

/// What stands in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// A site.
    Site(usize),
    /// An edge on its way past the column.
    Bend(usize),
}

/// The columns, from the left, each from top to bottom, with the middle of each slot.
pub(super) struct Placed {
    pub(super) columns: Vec<Vec<(Slot, f64)>>,
    /// The height of everything.
    pub(super) height: f64,
}

impl Placed {
    /// Where a slot is: its column from the left and its middle.
    pub(super) fn of(&self, slot: Slot, column: usize) -> f64 {
        let found = self.columns[column].iter().find(|(it, _)| *it == slot);
        found.map_or(0.0, |(_, y)| *y)
    }
}

/// Place all; `column` counts from the left here, `heights` are those of the sites.
pub(super) fn place(drawing: &Drawing, column: &[usize], heights: &[f64]) -> Placed {
    let last = column.iter().copied().max().unwrap_or(0);
    let mut columns: Vec<Vec<Slot>> = vec![Vec::new(); last + 1];
    let mut sites: Vec<usize> = (0..drawing.sites.len()).collect();
    sites.sort_by(|a, b| drawing.sites[*a].name.cmp(&drawing.sites[*b].name));
    for site in sites {
        columns[column[site]].push(Slot::Site(site));
    }
    // Each link joins neighbouring columns: (left column, left slot, right slot, weight).
    let mut links: Vec<(usize, Slot, Slot, f64)> = Vec::new();
    let mut bends = 0;
    for (number, line) in by_rate(drawing) {
        let (left, right) = if column[line.from] <= column[line.to] {
            (line.from, line.to)
        } else {
            (line.to, line.from)
        };
        let (from, to) = (column[left], column[right]);
        if from == to {
            continue;
        }
        let between = to - from - 1;
        let stands_out = drawing.stands_out(line);
        if between > 0 && bends + between > BENDS_MAX && !stands_out {
            continue;
        }
        bends += between;
        let weight = if stands_out { ROUTE_WEIGHT } else { 1.0 };
        let mut before = Slot::Site(left);
        for (at, column) in columns.iter_mut().enumerate().take(to).skip(from + 1) {
            column.push(Slot::Bend(number));
            links.push((at - 1, before, Slot::Bend(number), weight));
            before = Slot::Bend(number);
        }
        links.push((to - 1, before, Slot::Site(right), weight));
    }
    sort(&mut columns, &links);
    settle(columns, &links, heights)
}

/// Edges, the important ones first.
fn by_rate(drawing: &Drawing) -> Vec<(usize, &super::Line)> {
    let mut lines: Vec<(usize, &super::Line)> = drawing.edges.iter().enumerate().collect();
    lines.sort_by(|(_, a), (_, b)| {
        let rank = |line: &super::Line| (drawing.stands_out(line), line.rate());
        let (a, b) = (rank(a), rank(b));
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    lines
}

/// Order by the mean place of the neighbours, from left to right and back; the order with the
/// fewest crossings is kept.
fn sort(columns: &mut Vec<Vec<Slot>>, links: &[(usize, Slot, Slot, f64)]) {
    let mut best = (crossings(columns, links), columns.clone());
    for sweep in 0..SWEEPS {
        let rightwards = sweep % 2 == 0;
        for step in 1..columns.len() {
            let at = if rightwards { step } else { columns.len() - 1 - step };
            let beside = if rightwards { at - 1 } else { at + 1 };
            let places: Vec<(Slot, f64)> = columns[at]
                .iter()
                .enumerate()
                .map(|(place, slot)| {
                    let neighbours = links.iter().filter_map(|(left, one, other, weight)| {
                        let (own, its) = if rightwards { (other, one) } else { (one, other) };
                        let between = if rightwards { beside } else { at };
                        (*left == between && own == slot).then_some((its, weight))
                    });
                    let (mut sum, mut weights) = (0.0, 0.0);
                    for (neighbour, weight) in neighbours {
                        let found = columns[beside].iter().position(|it| it == neighbour);
                        let count = columns[beside].len().max(1) as f64;
                        sum += weight * (found.unwrap_or(0) as f64 + 0.5) / count;
                        weights += weight;
                    }
                    let own = (place as f64 + 0.5) / columns[at].len() as f64;
                    (*slot, if weights > 0.0 { sum / weights } else { own })
                })
                .collect();
            let mut places = places;
            places.sort_by(|a, b| a.1.total_cmp(&b.1));
            columns[at] = places.into_iter().map(|(slot, _)| slot).collect();
        }
        let crossed = crossings(columns, links);
        if crossed < best.0 {
            best = (crossed, columns.clone());
        }
    }
    *columns = best.1;
}

/// How often links cross, those of routes counting for more.
fn crossings(columns: &[Vec<Slot>], links: &[(usize, Slot, Slot, f64)]) -> f64 {
    let place =
        |column: usize, slot: &Slot| columns[column].iter().position(|it| it == slot).unwrap_or(0);
    let mut sum = 0.0;
    for left in 0..columns.len().saturating_sub(1) {
        let here: Vec<(usize, usize, f64)> = links
            .iter()
            .filter(|(at, ..)| *at == left)
            .map(|(_, one, other, weight)| (place(left, one), place(left + 1, other), *weight))
            .collect();
        for (n, a) in here.iter().enumerate() {
            for b in &here[..n] {
                if (a.0 < b.0 && a.1 > b.1) || (a.0 > b.0 && a.1 < b.1) {
                    sum += a.2 * b.2;
                }
            }
        }
    }
    sum
}

/// Heights for slots in their order: each wants to be level with its neighbours.
fn settle(columns: Vec<Vec<Slot>>, links: &[(usize, Slot, Slot, f64)], heights: &[f64]) -> Placed {
    let room = |slot: &Slot| match slot {
        Slot::Site(site) => heights[*site],
        Slot::Bend(_) => BEND_HEIGHT,
    };
    let gap = |a: &Slot, b: &Slot| {
        let between = match (a, b) {
            (Slot::Site(_), Slot::Site(_)) => SITE_GAP,
            _ => BEND_GAP,
        };
        (room(a) + room(b)) / 2.0 + between
    };
    let mut placed: Vec<Vec<(Slot, f64)>> = columns
        .into_iter()
        .map(|column| {
            let mut y = 0.0;
            let mut out: Vec<(Slot, f64)> = Vec::new();
            for slot in column {
                if let Some((above, _)) = out.last() {
                    y += gap(above, &slot);
                }
                out.push((slot, y));
            }
            let middle = y / 2.0;
            out.into_iter().map(|(slot, y)| (slot, y - middle)).collect()
        })
        .collect();
    for round in 0..ROUNDS {
        let count = placed.len();
        for step in 0..count {
            let at = if round % 2 == 0 { step } else { count - 1 - step };
            let wished: Vec<f64> = placed[at]
                .iter()
                .map(|(slot, y)| {
                    let (mut sum, mut weights) = (0.0, 0.0);
                    for (left, one, other, weight) in links {
                        let beside = if *left == at && one == slot {
                            Some((at + 1, other))
                        } else if *left + 1 == at && other == slot {
                            Some((*left, one))
                        } else {
                            None
                        };
                        let Some((column, its)) = beside else { continue };
                        let found = placed[column].iter().find(|(it, _)| it == its);
                        // A bend is best off where its edge leads straight through.
                        let straight = match (slot, its) {
                            (Slot::Bend(_), Slot::Bend(_)) => 4.0,
                            _ => 1.0,
                        };
                        sum += weight * straight * found.map_or(0.0, |(_, y)| *y);
                        weights += weight * straight;
                    }
                    if weights > 0.0 { sum / weights } else { *y }
                })
                .collect();
            apart(&mut placed[at], &wished, &gap);
        }
    }
    let edges =
        placed.iter().flatten().map(|(slot, y)| (y - room(slot) / 2.0, y + room(slot) / 2.0));
    let (top, bottom) =
        edges.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))).unwrap_or_default();
    placed.iter_mut().flatten().for_each(|(_, y)| *y -= top);
    Placed { columns: placed, height: bottom - top }
}

/// As near to what is wished as the room allows: neighbours that are too close push each other
/// away, as one block, to the mean of what they wish.
fn apart(column: &mut [(Slot, f64)], wished: &[f64], gap: &dyn Fn(&Slot, &Slot) -> f64) {
    // Blocks: (where its first stands, how many, the sum of what they wish of the first).
    let mut blocks: Vec<(f64, usize, f64)> = Vec::new();
    // How far each stands below the first of all if all stand as close as they may.
    let mut offset = vec![0.0; column.len()];
    for at in 1..column.len() {
        offset[at] = offset[at - 1] + gap(&column[at - 1].0, &column[at].0);
    }
    for at in 0..column.len() {
        let mut block = (wished[at] - offset[at], 1, wished[at] - offset[at]);
        while let Some(above) = blocks.last().filter(|above| above.0 > block.0) {
            let (count, sum) = (above.1 + block.1, above.2 + block.2);
            block = (sum / count as f64, count, sum);
            blocks.pop();
        }
        blocks.push(block);
    }
    let places = blocks.iter().flat_map(|block| std::iter::repeat_n(block.0, block.1));
    for (at, first) in places.enumerate() {
        column[at].1 = first + offset[at];
    }
}

/// Orders converge within a few sweeps.
const SWEEPS: usize = 12;
const ROUNDS: usize = 24;
/// Past this many, what is narrow leads behind the sites instead of past them.
const BENDS_MAX: usize = 60;
/// A route that stands out is kept straight.
const ROUTE_WEIGHT: f64 = 12.0;
const SITE_GAP: f64 = 26.0;
const BEND_GAP: f64 = 16.0;
const BEND_HEIGHT: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_their_order_and_their_distance_and_come_near_their_wishes() {
        let mut random = fastrand::Rng::with_seed(7);
        let gap = |_: &Slot, _: &Slot| 10.0;
        for _ in 0..200 {
            let count = random.usize(1..12);
            let wished: Vec<f64> = (0..count).map(|_| random.f64() * 100.0).collect();
            let mut column: Vec<(Slot, f64)> =
                (0..count).map(|site| (Slot::Site(site), 0.0)).collect();
            apart(&mut column, &wished, &gap);
            for pair in column.windows(2) {
                assert!(pair[1].1 - pair[0].1 >= 10.0 - 1e-9, "{column:?}");
            }
            let mean = |ys: &mut dyn Iterator<Item = f64>| ys.sum::<f64>() / count as f64;
            let shift = mean(&mut column.iter().map(|it| it.1)) - mean(&mut wished.iter().copied());
            assert!(shift.abs() < 1e-6, "{shift}");
        }
        // Who has room stands where he wants to.
        let mut column = vec![(Slot::Site(0), 0.0), (Slot::Site(1), 0.0)];
        apart(&mut column, &[5.0, 50.0], &gap);
        assert_eq!((column[0].1, column[1].1), (5.0, 50.0));
    }
}
