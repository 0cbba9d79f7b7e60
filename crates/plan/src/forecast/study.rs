//! The regressions of the comparative study (ANTS 2018), as it has them: linear, polynomial, and the
//! nearest neighbours. To be compared with.

/// One of the study's regressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regression {
    /// A constant and a factor for each column.
    Linear,
    /// The powers of each column up to a degree, but less than the number of its distinct values.
    Polynomial {
        /// The degree.
        degree: u32,
    },
    /// The mean of so many nearest rows, 2 or 3 in the study.
    Nearest {
        /// How many.
        neighbours: usize,
    },
}

/// A regression that was fitted to rows.
#[derive(Clone, Debug)]
pub struct Fitted {
    columns: Vec<Column>,
    answer: Answer,
}

/// How a column is brought to mean 0 and variance 1, and which of its powers count.
#[derive(Clone, Debug)]
struct Column {
    mean: f64,
    deviation: f64,
    degree: u32,
}

impl Column {
    fn of(values: &[f64], regression: Regression) -> Column {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let mut distinct = values.to_vec();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        let most = distinct.len().saturating_sub(1) as u32;
        let degree = match regression {
            Regression::Polynomial { degree } => degree.min(most),
            _ => most.min(1),
        };
        let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        Column { mean, deviation, degree }
    }

    fn scaled(&self, value: f64) -> f64 {
        (value - self.mean) / self.deviation
    }
}

#[derive(Clone, Debug)]
enum Answer {
    /// A factor for 1 and for each power of each column.
    Factors(Vec<f64>),
    /// Scaled rows and their targets, and how many of the nearest count.
    Rows(Vec<(Vec<f64>, f64)>, usize),
}

impl Regression {
    /// Fits it to rows of equal length.
    ///
    /// # Panics
    /// If rows differ in length, or there are not as many targets as rows.
    pub fn fit(self, rows: &[Vec<f64>], targets: &[f64]) -> Fitted {
        assert_eq!(rows.len(), targets.len(), "each row needs a target");
        let width = rows.first().map_or(0, Vec::len);
        let values = |at: usize| rows.iter().map(|row| row[at]).collect::<Vec<f64>>();
        let columns: Vec<Column> = (0..width).map(|at| Column::of(&values(at), self)).collect();
        let answer = match self {
            Regression::Nearest { neighbours } => {
                let scaled = rows.iter().map(|row| scaled(&columns, row));
                Answer::Rows(scaled.zip(targets.iter().copied()).collect(), neighbours)
            }
            _ => {
                let powers: Vec<Vec<f64>> = rows.iter().map(|row| powers(&columns, row)).collect();
                Answer::Factors(factors(&powers, targets))
            }
        };
        Fitted { columns, answer }
    }
}

impl Fitted {
    /// Returns the answer for a row.
    pub fn answer(&self, row: &[f64]) -> f64 {
        match &self.answer {
            Answer::Factors(factors) => {
                powers(&self.columns, row).iter().zip(factors).map(|(a, b)| a * b).sum()
            }
            Answer::Rows(rows, neighbours) => {
                let wanted = scaled(&self.columns, row);
                let distance = |row: &[f64]| -> f64 {
                    row.iter().zip(&wanted).map(|(a, b)| (a - b).powi(2)).sum()
                };
                let mut near: Vec<(f64, f64)> =
                    rows.iter().map(|(row, target)| (distance(row), *target)).collect();
                near.sort_by(|a, b| a.0.total_cmp(&b.0));
                near.truncate(*neighbours);
                near.iter().map(|(_, target)| target).sum::<f64>() / near.len() as f64
            }
        }
    }
}

fn scaled(columns: &[Column], row: &[f64]) -> Vec<f64> {
    columns.iter().zip(row).map(|(column, &value)| column.scaled(value)).collect()
}

fn powers(columns: &[Column], row: &[f64]) -> Vec<f64> {
    let of = |(column, &value): (&Column, &f64)| {
        let scaled = column.scaled(value);
        (1..=column.degree).map(move |power| scaled.powi(power as i32))
    };
    std::iter::once(1.0).chain(columns.iter().zip(row).flat_map(of)).collect()
}

/// Least squares by Gram-Schmidt's method; what depends on earlier columns gets no factor.
fn factors(rows: &[Vec<f64>], targets: &[f64]) -> Vec<f64> {
    let width = rows.first().map_or(0, Vec::len);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    // Directions at right angles to each other, each with what it is made of.
    let mut directions: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
    for at in 0..width {
        let mut direction: Vec<f64> = rows.iter().map(|row| row[at]).collect();
        let mut made_of = vec![0.0; width];
        made_of[at] = 1.0;
        let whole = dot(&direction, &direction);
        // Twice: rounding leaves something of the others the first time.
        for _ in 0..2 {
            for (other, other_of) in &directions {
                let part = dot(&direction, other);
                direction.iter_mut().zip(other).for_each(|(a, b)| *a -= part * b);
                made_of.iter_mut().zip(other_of).for_each(|(a, b)| *a -= part * b);
            }
        }
        let length = dot(&direction, &direction);
        if length > DEPENDENT * whole {
            let length = length.sqrt();
            direction.iter_mut().for_each(|a| *a /= length);
            made_of.iter_mut().for_each(|a| *a /= length);
            directions.push((direction, made_of));
        }
    }
    let mut factors = vec![0.0; width];
    for (direction, made_of) in &directions {
        let part = dot(direction, targets);
        factors.iter_mut().zip(made_of).for_each(|(a, b)| *a += part * b);
    }
    factors
}

/// A column of which less than this part is new depends on the others.
const DEPENDENT: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_and_a_curve_are_found() {
        let rows: Vec<Vec<f64>> =
            (0..20).map(|i| vec![f64::from(i % 4), f64::from(i / 4)]).collect();
        let plane: Vec<f64> = rows.iter().map(|row| 3.0 + 2.0 * row[0] - row[1]).collect();
        let fitted = Regression::Linear.fit(&rows, &plane);
        assert!((fitted.answer(&[10.0, 1.0]) - 22.0).abs() < 1e-9);
        let curve: Vec<f64> = rows.iter().map(|row| row[0].powi(3) + row[1]).collect();
        let fitted = Regression::Polynomial { degree: 3 }.fit(&rows, &curve);
        assert!((fitted.answer(&[2.5, 4.0]) - 19.625).abs() < 1e-9);
        assert!((Regression::Linear.fit(&rows, &curve).answer(&[2.5, 4.0]) - 19.625).abs() > 0.5);
    }

    #[test]
    fn a_column_that_never_differs_does_no_harm() {
        let rows = vec![vec![1.0, 5.0], vec![2.0, 5.0], vec![3.0, 5.0]];
        for regression in [Regression::Linear, Regression::Polynomial { degree: 9 }] {
            let answer = regression.fit(&rows, &[10.0, 20.0, 30.0]).answer(&[2.0, 5.0]);
            assert!((answer - 20.0).abs() < 1e-9, "{regression:?}: {answer}");
        }
    }

    #[test]
    fn the_nearest_count() {
        let rows: Vec<Vec<f64>> = [1.0, 2.0, 10.0, 11.0].iter().map(|&x| vec![x]).collect();
        let fitted = Regression::Nearest { neighbours: 2 }.fit(&rows, &[1.0, 3.0, 50.0, 70.0]);
        assert_eq!((fitted.answer(&[1.4]), fitted.answer(&[30.0])), (2.0, 60.0));
    }
}
