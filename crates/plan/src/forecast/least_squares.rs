//! Linear least squares for a few unknowns.

/// Returns the `x` without negative parts that minimises
/// `Σ weight · (row · x − target)² + Σ ridge_k · (x_k − anchor_k)²`.
///
/// With a positive ridge there is always exactly one. `None` if the rows do not decide it.
pub(super) fn solve_nonnegative<const N: usize>(
    rows: impl IntoIterator<Item = ([f64; N], f64, f64)>,
    ridge: &[f64; N],
    anchor: &[f64; N],
) -> Option<[f64; N]> {
    let (matrix, vector) = normal(rows, ridge, anchor);
    solve_normal(&matrix, &vector)
}

/// Returns the `x` without negative parts that comes closest to `matrix · x = vector`, the normal
/// equations.
pub(super) fn solve_normal<const N: usize>(
    matrix: &[[f64; N]; N],
    vector: &[f64; N],
) -> Option<[f64; N]> {
    let cost = |x: &[f64; N]| {
        let image = |k: usize| (0..N).map(|j| matrix[k][j] * x[j]).sum::<f64>();
        (0..N).map(|k| x[k] * (image(k) - 2.0 * vector[k])).sum::<f64>()
    };
    // For a few unknowns every choice of those that are zero can be tried.
    let choices = (0..1_u32 << N).map(|choice| std::array::from_fn(|k| choice >> k & 1 == 1));
    let answers = choices.filter_map(|used| solve_symmetric(matrix, vector, used));
    let allowed = answers.filter(|x| x.iter().all(|&x| x >= 0.0));
    allowed.min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

/// The normal equations.
fn normal<const N: usize>(
    rows: impl IntoIterator<Item = ([f64; N], f64, f64)>,
    ridge: &[f64; N],
    anchor: &[f64; N],
) -> ([[f64; N]; N], [f64; N]) {
    let (mut matrix, mut vector) = ([[0.0; N]; N], [0.0; N]);
    for k in 0..N {
        matrix[k][k] = ridge[k];
        vector[k] = ridge[k] * anchor[k];
    }
    for (row, target, weight) in rows {
        for k in 0..N {
            vector[k] += weight * row[k] * target;
            for j in 0..N {
                matrix[k][j] += weight * row[k] * row[j];
            }
        }
    }
    (matrix, vector)
}

/// Solves `matrix · x = vector` by Cholesky's method; unknowns that are not `used` are zero. `None`
/// if the matrix is singular.
fn solve_symmetric<const N: usize>(
    matrix: &[[f64; N]; N],
    vector: &[f64; N],
    used: [bool; N],
) -> Option<[f64; N]> {
    let entry = |k: usize, j: usize| match used[k] && used[j] {
        true => matrix[k][j],
        false => f64::from(u8::from(k == j)),
    };
    let mut root = [[0.0; N]; N];
    for k in 0..N {
        for j in 0..=k {
            let known: f64 = (0..j).map(|i| root[k][i] * root[j][i]).sum();
            let rest = entry(k, j) - known;
            root[k][j] = match k == j {
                true if rest > SINGULAR * entry(k, k).abs() => rest.sqrt(),
                true => return None,
                false => rest / root[j][j],
            };
        }
    }
    let mut x = [0.0; N];
    for k in 0..N {
        let known: f64 = (0..k).map(|j| root[k][j] * x[j]).sum();
        x[k] = (if used[k] { vector[k] } else { 0.0 } - known) / root[k][k];
    }
    for k in (0..N).rev() {
        let known: f64 = (k + 1..N).map(|j| root[j][k] * x[j]).sum();
        x[k] = (x[k] - known) / root[k][k];
    }
    x.iter().all(|x| x.is_finite()).then_some(x)
}

/// A pivot that lost this much of its entry is noise.
const SINGULAR: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found() {
        let rows = [0.0, 1.0, 2.0, 5.0].map(|x| ([1.0, x], 3.0 + 2.0 * x, 1.0));
        let [a, b] = solve_nonnegative(rows, &[0.0; 2], &[0.0; 2]).unwrap();
        assert!((a - 3.0).abs() < 1e-9 && (b - 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_rows_leave_open_is_taken_from_the_anchor() {
        let rows = [([1.0, 1.0], 5.0, 1.0)];
        let [a, b] = solve_nonnegative(rows, &[1e-6; 2], &[1.0, 2.0]).unwrap();
        assert!((a + b - 5.0).abs() < 1e-3 && (b - a - 1.0).abs() < 1e-3, "{a} {b}");
    }

    #[test]
    fn nothing_costs_less_than_nothing() {
        let rows = [0.0, 1.0, 2.0, 5.0].map(|x| ([1.0, x], -1.0 + 2.0 * x, 1.0));
        let [a, b] = solve_nonnegative(rows, &[0.0; 2], &[0.0; 2]).unwrap();
        assert!(a == 0.0 && (1.6..2.0).contains(&b), "{a} {b}");
        let rows = [([1.0, 1.0], -1.0, 1.0)];
        assert_eq!(solve_nonnegative(rows, &[1e-6; 2], &[0.0; 2]), Some([0.0; 2]));
    }
}
