//! How well the times of a study can be predicted: the regressions of the study beside our forecasts.
//!
//! The study has training errors: how well a regression fits the times that it was made from. Beside
//! them stand errors of times that a model has not seen: each cell is predicted from all other cells.

use std::fmt::Write as _;

use swath_plan::forecast::study::Regression;
use swath_plan::forecast::{Numbers, Outcome, Planned, Replay, TRAITS};

use super::Tool;
use super::cell::{Cell, DATASETS, RTTS_MS, cells};
use super::published::{PREDICTED, Predictable};
use super::standing::mean_s;
use crate::results::Study;
use crate::third_party::Data;
use crate::tree_data::Shape;

/// Mean relative errors of predictions of one tool in one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Which cells.
    pub case: Case,
    /// The name of the tool.
    pub tool: &'static str,
    /// Cells that it completed.
    pub cells: usize,
    /// Of the times that linear, polynomial and nearest-neighbour regressions were fitted to.
    pub training: [f64; 3],
    /// Of times that they had not seen.
    pub held_out: [f64; 3],
    /// Of times that our forecasts had not seen.
    pub ours: f64,
}

/// Which cells of a study: those of the paper's predictability table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// All datasets at 0.6 ms.
    Near,
    /// One large file at all round-trip times.
    Large,
    /// All datasets at all round-trip times.
    All,
}

impl Case {
    /// In the order of the paper.
    pub const ALL: [Case; 3] = [Case::Near, Case::Large, Case::All];

    /// Returns its number and what it has.
    pub fn title(self) -> &'static str {
        match self {
            Case::Near => "1: 0.6 ms, all datasets",
            Case::Large => "2: all round-trip times, DS1",
            Case::All => "3: all round-trip times, all datasets",
        }
    }

    fn has(self, point: &Point) -> bool {
        match self {
            Case::Near => point.rtt_ms == NEAR_MS,
            Case::Large => point.files == 1.0,
            Case::All => true,
        }
    }
}

/// A cell of one tool.
#[derive(Clone, Debug)]
struct Point {
    rtt_ms: f64,
    files: f64,
    file_bytes: f64,
    mean_s: f64,
    runs_s: Vec<f64>,
}

impl Predicted {
    /// Returns it in one line.
    pub fn line(&self) -> String {
        let three = |errors: [f64; 3]| errors.map(percent).join(" / ");
        format!(
            "case {}, {}: swath's forecasts {}; linear / polynomial / nearest {}, training {}",
            self.case.title(),
            self.tool,
            percent(self.ours),
            three(self.held_out),
            three(self.training)
        )
    }
}

/// Returns the errors of each tool in each case, if at least three cells of the case were measured.
pub fn predict(study: &Study) -> Vec<Predicted> {
    let mut all = Vec::new();
    for case in Case::ALL {
        for tool in Tool::STUDY {
            let mut points = points(study, tool.name());
            points.retain(|point| case.has(point));
            if points.len() >= POINTS_MIN {
                all.push(Predicted {
                    case,
                    tool: tool.name(),
                    cells: points.len(),
                    training: REGRESSIONS.map(|one| training_error(one, &points)),
                    held_out: REGRESSIONS
                        .map(|one| held_out(&points, |known, wanted| fit(one, known)(wanted))),
                    ours: held_out(&points, forecast),
                });
            }
        }
    }
    all
}

/// Returns the cells of DS1 to DS6 at the study's round-trip times that a tool completed.
fn points(study: &Study, tool: &str) -> Vec<Point> {
    let sizes = study.scenarios.iter().map(|result| result.size_bytes);
    let total_bytes = sizes.max().unwrap_or(1);
    let of = |cell: Cell| {
        let Data::Tree(Shape::Equal { files, bytes }) = cell.data else { return None };
        let result = study.scenarios.iter().find(|result| result.name == cell.name)?;
        let known = result.tools.iter().find(|known| known.name == tool)?;
        Some(Point {
            rtt_ms: cell.rtt_ms,
            files: files as f64,
            file_bytes: bytes as f64,
            mean_s: mean_s(known)?.mean,
            runs_s: known.good().map(|run| run.elapsed_s).collect(),
        })
    };
    let own = |cell: &Cell| DATASETS.iter().any(|(dataset, _)| *dataset == cell.dataset);
    cells(total_bytes, &RTTS_MS).into_iter().filter(own).filter_map(of).collect()
}

fn fit(regression: Regression, known: &[Point]) -> impl Fn(&Point) -> f64 {
    let row = |point: &Point| vec![point.rtt_ms, point.files, point.file_bytes];
    let rows: Vec<Vec<f64>> = known.iter().map(row).collect();
    let targets: Vec<f64> = known.iter().map(|point| point.mean_s).collect();
    let fitted = regression.fit(&rows, &targets);
    move |point| fitted.answer(&row(point))
}

fn training_error(regression: Regression, points: &[Point]) -> f64 {
    let answer = fit(regression, points);
    mean(points.iter().map(|point| error(answer(point), point.mean_s)))
}

/// Returns the mean error of what `predict` says of each point, from all others.
fn held_out(points: &[Point], predict: impl Fn(&[Point], &Point) -> f64) -> f64 {
    mean((0..points.len()).map(|at| {
        let mut known = points.to_vec();
        let wanted = known.remove(at);
        error(predict(&known, &wanted), wanted.mean_s)
    }))
}

/// Returns our forecast, as if all known runs had happened one after the other: from one server, to a
/// place of its own for each round-trip time.
fn forecast(known: &[Point], wanted: &Point) -> f64 {
    let mut places = Numbers::default();
    let mut planned = |point: &Point, at_s: f64| {
        let place = places.of(point.rtt_ms.to_bits());
        Planned {
            at_s,
            bytes: point.files * point.file_bytes,
            files: point.files,
            pair: place,
            kind: 0,
            from: vec![0],
            to: Some(place),
            prior: None,
            traits: [f32::NAN; TRAITS],
        }
    };
    let mut replay = Replay::default();
    let mut at_s = 0.0;
    let rounds = known.iter().map(|point| point.runs_s.len()).max().unwrap_or(0);
    for round in 0..rounds {
        for point in known {
            let Some(&seconds) = point.runs_s.get(round) else { continue };
            replay.begin(&planned(point, at_s), Outcome::Took { seconds });
            at_s += seconds + PAUSE_S;
            replay.advance(at_s);
            if replay.forecaster().is_due() {
                replay.forecaster().learn();
            }
        }
    }
    replay.forecaster().forecast(&planned(wanted, at_s)).likely_s
}

/// Returns the table of the report, with what was published.
pub fn table(all: &[Predicted]) -> String {
    let mut text = "| case | tool | training | held out | swath's forecasts, held out |\n\
                    | --- | --- | --- | --- | --- |\n"
        .to_owned();
    let three = |errors: [f64; 3]| errors.map(percent).join(" / ");
    for one in all {
        let Predicted { case, tool, cells, training, held_out, ours } = one;
        let (training, held_out, ours) = (three(*training), three(*held_out), percent(*ours));
        let _ = writeln!(
            text,
            "| {}; {cells} cells | {tool} | {training} | {held_out} | {ours} |",
            case.title()
        );
    }
    for Predictable { case, tool, training } in PREDICTED {
        let _ = writeln!(
            text,
            "| {}; published | {tool} | {} | – | – |",
            case.title(),
            three(training.map(|percent| percent / 100.0))
        );
    }
    text
}

/// Returns an error in percent; what is far off needs no decimals, and how far beyond the tenfold
/// tells nothing.
pub fn percent(error: f64) -> String {
    if error > 10.0 {
        return "> 1,000 %".to_owned();
    }
    let decimals = if error < 0.1 { 1 } else { 0 };
    format!("{:.decimals$} %", error * 100.0)
}

fn error(predicted_s: f64, took_s: f64) -> f64 {
    (predicted_s / took_s - 1.0).abs()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// Those of the study. It takes as high a degree as the values allow.
const REGRESSIONS: [Regression; 3] = [
    Regression::Linear,
    Regression::Polynomial { degree: u32::MAX },
    Regression::Nearest { neighbours: 2 },
];

/// With fewer cells there is nothing to be learned.
const POINTS_MIN: usize = 3;
/// The local network of the study.
const NEAR_MS: f64 = 0.6;
/// Between two runs.
const PAUSE_S: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<Point> {
        let mut points = Vec::new();
        for rtt_ms in [0.6, 15.0, 30.0, 60.0] {
            for files in [1.0, 10.0, 100.0, 1000.0, 10_000.0] {
                let mean_s = 8.0 + rtt_ms / 100.0 + files * 1e-4;
                let runs_s = vec![mean_s * 0.99, mean_s, mean_s * 1.01];
                points.push(Point { rtt_ms, files, file_bytes: 1e9 / files, mean_s, runs_s });
            }
        }
        points
    }

    #[test]
    fn times_that_follow_the_model_are_predicted() {
        let points = points();
        assert!(training_error(Regression::Linear, &points) < 1e-6);
        let ours = held_out(&points, forecast);
        assert!(ours < 0.05, "{ours}");
    }

    #[test]
    fn a_regression_that_fits_exactly_may_predict_badly() {
        let mut points = points();
        points.retain(|point| Case::Near.has(point));
        // One that is far off what the others say.
        points[2].mean_s *= 3.0;
        let steep = Regression::Polynomial { degree: u32::MAX };
        assert!(training_error(steep, &points) < 1e-6);
        assert!(held_out(&points, |known, wanted| fit(steep, known)(wanted)) > 0.5);
    }

    #[test]
    fn the_nearest_of_the_study_include_the_point_itself() {
        let points = &points()[..2];
        let nearest = Regression::Nearest { neighbours: 2 };
        let middle = (points[0].mean_s + points[1].mean_s) / 2.0;
        assert!((fit(nearest, points)(&points[0]) - middle).abs() < 1e-9);
    }
}
