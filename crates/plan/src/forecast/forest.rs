//! Gradient-boosted regression trees: many small trees, each of which corrects the sum of the earlier
//! ones (Friedman, "Greedy function approximation: a gradient boosting machine", 2001).
//!
//! The loss is the absolute one, or its tilted form for a quantile other than one half, so a few
//! transfers that took a hundred times longer than usual do not bend the others. Columns are sorted
//! into bins once; then a tree costs rows × columns. The same rows and the same seed make the same
//! forest, on every machine. What is unknown is NaN and counts as less than everything.

use std::ops::Range;

/// How a forest is grown.
#[derive(Clone, Debug)]
pub struct Growth {
    /// Number of trees.
    pub trees: u32,
    /// Most leaves of a tree.
    pub leaves: usize,
    /// Which part of its correction each tree contributes.
    pub rate: f64,
    /// Fewest rows in a leaf.
    pub leaf_rows: usize,
    /// The part of the rows that each tree sees.
    pub rows_part: f64,
    /// The part of the columns that each tree may use.
    pub columns_part: f64,
    /// Decides which rows and columns.
    pub seed: u64,
}

/// Trees that together answer a quantile of the target for a row of `N` columns.
#[derive(Clone, Debug)]
pub struct Forest<const N: usize> {
    /// The answer without any tree.
    base: f64,
    trees: Vec<Vec<Node>>,
}

#[derive(Clone, Copy, Debug)]
enum Node {
    Leaf(f64),
    /// Rows whose column is at most `limit`, or unknown, go to the next node, others to `right`.
    Split {
        column: usize,
        limit: f32,
        right: usize,
    },
}

impl<const N: usize> Forest<N> {
    /// Grows a forest that answers the `quantile` (between 0 and 1) of the targets of rows.
    ///
    /// # Panics
    /// If there are not as many targets as rows.
    pub fn grow(rows: &[[f32; N]], targets: &[f64], quantile: f64, growth: &Growth) -> Self {
        assert_eq!(rows.len(), targets.len(), "each row needs a target");
        let base = quantile_of(&mut targets.to_vec(), quantile).unwrap_or(0.0);
        let mut forest = Forest { base, trees: Vec::new() };
        let bins = Bins::new(rows);
        let mut left: Vec<f64> = targets.iter().map(|target| target - base).collect();
        let mut random = fastrand::Rng::with_seed(growth.seed);
        for _ in 0..growth.trees {
            let pulls: Vec<f64> = left
                .iter()
                .map(|&left| if left < 0.0 { quantile - 1.0 } else { quantile })
                .collect();
            let mut part = |count, part| (0..count).filter(|_| random.f64() < part).collect();
            let order = part(rows.len(), growth.rows_part);
            let columns = part(N, growth.columns_part);
            let mut grower = Grower { bins: &bins, pulls, columns, growth, order };
            let mut tree = Vec::new();
            let leaves = grower.grow();
            grower.write(&leaves, 0, &left, quantile, &mut tree);
            for (row, left) in rows.iter().zip(&mut left) {
                *left -= answer(&tree, row);
            }
            forest.trees.push(tree);
        }
        forest
    }

    /// Returns the answer for a row.
    pub fn answer(&self, row: &[f32; N]) -> f64 {
        self.base + self.trees.iter().map(|tree| answer(tree, row)).sum::<f64>()
    }
}

/// Returns what one tree answers.
fn answer<const N: usize>(tree: &[Node], row: &[f32; N]) -> f64 {
    let mut at = 0;
    loop {
        match tree[at] {
            Node::Leaf(value) => return value,
            Node::Split { column, limit, right } => {
                at = if row[column] > limit { right } else { at + 1 };
            }
        }
    }
}

/// The columns of all rows, as positions between limits.
struct Bins {
    /// For each column the upper limits of its bins 1, 2, …, ascending. Bin 0 has what is unknown,
    /// the last one has no limit.
    limits: Vec<Vec<f32>>,
    /// For each column the bin of each row.
    of: Vec<Vec<u8>>,
}

impl Bins {
    fn new<const N: usize>(rows: &[[f32; N]]) -> Self {
        let (mut limits, mut of) = (Vec::with_capacity(N), Vec::with_capacity(N));
        for column in 0..N {
            let step = rows.len().div_ceil(SAMPLE_ROWS).max(1);
            let known = rows.iter().step_by(step).map(|row| row[column]);
            let mut known: Vec<f32> = known.filter(|value| value.is_finite()).collect();
            known.sort_unstable_by(f32::total_cmp);
            let mut cuts = known.clone();
            cuts.dedup();
            if cuts.len() > BINS - 2 {
                let part = |k: usize| known[k * (known.len() - 1) / (BINS - 2)];
                cuts = (1..BINS - 2).map(part).collect();
                cuts.dedup();
            }
            let bin = |value: f32| match value.is_nan() {
                true => 0,
                false => (1 + cuts.partition_point(|&limit| limit < value)) as u8,
            };
            of.push(rows.iter().map(|row| bin(row[column])).collect());
            limits.push(cuts);
        }
        Bins { limits, of }
    }
}

/// Where the rows of a leaf are divided: those of bin `bin` and less go left.
#[derive(Clone, Copy)]
struct Cut {
    column: usize,
    bin: u8,
    gain: f64,
}

/// What the rows of a bin want together.
#[derive(Clone, Copy, Default)]
struct Sum {
    pull: f64,
    rows: u32,
}

impl Sum {
    fn minus(self, other: Sum) -> Sum {
        Sum { pull: self.pull - other.pull, rows: self.rows - other.rows }
    }

    /// What an answer of their own is worth to them.
    fn worth(self) -> f64 {
        self.pull * self.pull / f64::from(self.rows.max(1))
    }
}

struct Leaf {
    /// Its rows, as positions in the grower's order.
    rows: Range<usize>,
    /// For each column in use, [`BINS`] sums.
    sums: Vec<Sum>,
    best: Option<Cut>,
    /// Where it was divided, and the two leaves that came of it.
    divided: Option<(Cut, usize, usize)>,
}

/// Grows one tree: again and again the leaf is divided that gains most.
struct Grower<'a> {
    bins: &'a Bins,
    /// Which way, and how strongly, each row wants its answer changed.
    pulls: Vec<f64>,
    /// Columns in use.
    columns: Vec<usize>,
    /// Rows in use; those of a leaf stand together.
    order: Vec<usize>,
    growth: &'a Growth,
}

impl Grower<'_> {
    fn grow(&mut self) -> Vec<Leaf> {
        let all = 0..self.order.len();
        let sums = self.sums(all.clone());
        let mut leaves = vec![self.leaf(all, sums)];
        for _ in 1..self.growth.leaves {
            let open = leaves.iter().enumerate().filter(|(_, leaf)| leaf.divided.is_none());
            let gains = open.filter_map(|(at, leaf)| leaf.best.map(|cut| (at, cut)));
            let Some((at, cut)) = gains.max_by(|a, b| a.1.gain.total_cmp(&b.1.gain)) else { break };
            let rows = leaves[at].rows.clone();
            let middle = rows.start + self.part(rows.clone(), cut);
            let (low, high) = (rows.start..middle, middle..rows.end);
            // Count the smaller side; the rest of the sums belongs to the other one.
            let is_low = low.len() <= high.len();
            let counted = self.sums(if is_low { low.clone() } else { high.clone() });
            let whole = std::mem::take(&mut leaves[at].sums);
            let rest = whole.iter().zip(&counted).map(|(all, part)| all.minus(*part)).collect();
            let (low_sums, high_sums) = if is_low { (counted, rest) } else { (rest, counted) };
            leaves[at].divided = Some((cut, leaves.len(), leaves.len() + 1));
            leaves.push(self.leaf(low, low_sums));
            leaves.push(self.leaf(high, high_sums));
        }
        leaves
    }

    fn sums(&self, rows: Range<usize>) -> Vec<Sum> {
        let mut sums = vec![Sum::default(); self.columns.len() * BINS];
        for (sums, &column) in sums.chunks_exact_mut(BINS).zip(&self.columns) {
            let bins = &self.bins.of[column];
            for &row in &self.order[rows.clone()] {
                let sum = &mut sums[usize::from(bins[row])];
                sum.pull += self.pulls[row];
                sum.rows += 1;
            }
        }
        sums
    }

    fn leaf(&self, rows: Range<usize>, sums: Vec<Sum>) -> Leaf {
        let best = self.best_cut(&sums);
        Leaf { rows, sums, best, divided: None }
    }

    fn best_cut(&self, sums: &[Sum]) -> Option<Cut> {
        let rows_min = self.growth.leaf_rows as u32;
        let mut best: Option<Cut> = None;
        for (sums, &column) in sums.chunks_exact(BINS).zip(&self.columns) {
            let add = |a: Sum, b: &Sum| Sum { pull: a.pull + b.pull, rows: a.rows + b.rows };
            let all = sums.iter().fold(Sum::default(), add);
            let mut low = Sum::default();
            for (bin, sum) in sums.iter().enumerate().take(self.bins.limits[column].len() + 1) {
                low = add(low, sum);
                let high = all.minus(low);
                if sum.rows == 0 || low.rows < rows_min || high.rows < rows_min {
                    continue;
                }
                let gain = low.worth() + high.worth() - all.worth();
                if gain > best.map_or(GAIN_MIN, |best| best.gain) {
                    best = Some(Cut { column, bin: bin as u8, gain });
                }
            }
        }
        best
    }

    /// Moves those that go left to the front; returns how many they are.
    fn part(&mut self, rows: Range<usize>, cut: Cut) -> usize {
        let bins = &self.bins.of[cut.column];
        let (low, high): (Vec<usize>, Vec<usize>) =
            self.order[rows.clone()].iter().partition(|&&row| bins[row] <= cut.bin);
        let order = &mut self.order[rows];
        order[..low.len()].copy_from_slice(&low);
        order[low.len()..].copy_from_slice(&high);
        low.len()
    }

    /// Appends the nodes below a leaf, with the quantile of what is left in each as its answer.
    fn write(&self, leaves: &[Leaf], at: usize, left: &[f64], quantile: f64, tree: &mut Vec<Node>) {
        let leaf = &leaves[at];
        let Some((cut, low, high)) = leaf.divided else {
            let mut left: Vec<f64> =
                self.order[leaf.rows.clone()].iter().map(|&row| left[row]).collect();
            let value = quantile_of(&mut left, quantile).unwrap_or(0.0);
            tree.push(Node::Leaf(value * self.growth.rate));
            return;
        };
        let limits = &self.bins.limits[cut.column];
        // Nothing is less than what is unknown.
        let limit = usize::from(cut.bin).checked_sub(1).map_or(f32::NEG_INFINITY, |at| limits[at]);
        let split = tree.len();
        tree.push(Node::Split { column: cut.column, limit, right: 0 });
        self.write(leaves, low, left, quantile, tree);
        let right = tree.len();
        tree[split] = Node::Split { column: cut.column, limit, right };
        self.write(leaves, high, left, quantile, tree);
    }
}

/// Returns the value below which this part of the values lies; `None` if there are none.
pub(super) fn quantile_of(values: &mut [f64], part: f64) -> Option<f64> {
    let at = (values.len().checked_sub(1)? as f64 * part).round() as usize;
    Some(*values.select_nth_unstable_by(at, f64::total_cmp).1)
}

/// Bins of a column; they fit a byte, and a leaf's sums the first cache.
const BINS: usize = 64;

/// About so many rows decide the limits of bins.
const SAMPLE_ROWS: usize = 10_000;

/// Smaller gains come from rounding.
const GAIN_MIN: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    fn growth() -> Growth {
        Growth {
            trees: 60,
            leaves: 8,
            rate: 0.2,
            leaf_rows: 5,
            rows_part: 0.8,
            columns_part: 1.0,
            seed: 1,
        }
    }

    /// Rows of two columns with a step in the first one, its height by the second.
    fn rows() -> (Vec<[f32; 2]>, Vec<f64>) {
        let mut random = fastrand::Rng::with_seed(3);
        let rows: Vec<[f32; 2]> =
            (0..2000).map(|_| [random.f32(), random.u8(0..3).into()]).collect();
        let target = |row: &[f32; 2]| f64::from(row[1]) * if row[0] > 0.4 { 1.0 } else { -1.0 };
        let targets = rows.iter().map(target).collect();
        (rows, targets)
    }

    #[test]
    fn a_step_is_learned() {
        let (rows, targets) = rows();
        let forest = Forest::grow(&rows, &targets, 0.5, &growth());
        for (row, target) in
            [([0.1, 2.0], -2.0), ([0.9, 2.0], 2.0), ([0.9, 1.0], 1.0), ([0.1, 0.0], 0.0)]
        {
            let answer = forest.answer(&row);
            assert!((answer - target).abs() < 0.1, "{row:?}: {answer}, not {target}");
        }
    }

    #[test]
    fn few_wild_targets_do_not_bend_the_others() {
        let (rows, mut targets) = rows();
        targets.iter_mut().step_by(20).for_each(|target| *target += 1e6);
        let forest = Forest::grow(&rows, &targets, 0.5, &growth());
        assert!((forest.answer(&[0.9, 2.0]) - 2.0).abs() < 0.2);
    }

    #[test]
    fn quantiles_part_the_targets() {
        let mut random = fastrand::Rng::with_seed(5);
        let rows: Vec<[f32; 1]> = (0..4000).map(|_| [random.f32()]).collect();
        let targets: Vec<f64> = rows.iter().map(|row| f64::from(row[0]) * random.f64()).collect();
        for quantile in [0.1, 0.5, 0.9] {
            let forest = Forest::grow(&rows, &targets, quantile, &growth());
            let below =
                rows.iter().zip(&targets).filter(|(row, target)| **target < forest.answer(row));
            let part = below.count() as f64 / 4000.0;
            assert!((part - quantile).abs() < 0.05, "{quantile}: {part}");
        }
    }

    #[test]
    fn what_is_unknown_has_an_answer_of_its_own() {
        let rows: Vec<[f32; 1]> =
            (0..200).map(|i| [if i % 2 == 0 { f32::NAN } else { i as f32 }]).collect();
        let targets: Vec<f64> = (0..200).map(|i| f64::from(i % 2)).collect();
        let forest = Forest::grow(&rows, &targets, 0.5, &growth());
        assert!(forest.answer(&[f32::NAN]) < 0.01 && forest.answer(&[7.0]) > 0.99);
    }

    #[test]
    fn a_forest_without_rows_or_columns_answers() {
        assert_eq!(Forest::<1>::grow(&[], &[], 0.5, &growth()).answer(&[1.0]), 0.0);
        assert_eq!(Forest::grow(&[[], []], &[3.0, 3.0], 0.5, &growth()).answer(&[]), 3.0);
    }
}
