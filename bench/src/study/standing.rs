//! Where a tool stands in a cell: its time, and how that compares with the best.

use super::Interval;
use crate::results::{ScenarioResult, ToolResult};

/// Where a tool stands in a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It was measured: its time, and its mean over the best tool's.
    Measured(Interval, f64),
    /// It was stopped, this many times slower than the best tool or slower still.
    Stopped(f64),
    /// It failed whenever it ran.
    Failed(String),
    /// It does not take part, or did not run yet.
    Absent,
}

impl Standing {
    /// Of a tool in a cell.
    pub fn of(result: &ScenarioResult, tool: &str) -> Self {
        let known = result.tools.iter().find(|known| known.name == tool);
        let (Some(known), Some(best_s)) = (known, best_s(result)) else {
            return known.map_or(Self::Absent, failed);
        };
        let stopped = known.runs.iter().find(|run| run.is_stopped);
        match (mean_s(known), stopped) {
            (Some(mean), _) => Self::Measured(mean, mean.mean / best_s),
            (None, Some(run)) => Self::Stopped(run.elapsed_s / best_s),
            (None, None) => failed(known),
        }
    }

    /// Returns the mean over the best tool's, or the least that it is.
    pub fn ratio(&self) -> Option<f64> {
        match self {
            Self::Measured(_, ratio) | Self::Stopped(ratio) => Some(*ratio),
            Self::Failed(_) | Self::Absent => None,
        }
    }

    /// Returns it for a table: seconds with their interval, and the ratio in brackets.
    pub fn text(&self) -> String {
        match self {
            Self::Measured(Interval { mean, half: Some(half) }, ratio) if *half < 0.005 => {
                format!("{mean:.2} ± < 0.01 ({ratio:.2})")
            }
            Self::Measured(Interval { mean, half: Some(half) }, ratio) => {
                format!("{mean:.2} ± {half:.2} ({ratio:.2})")
            }
            Self::Measured(Interval { mean, half: None }, ratio) => {
                format!("{mean:.2} ({ratio:.2})")
            }
            Self::Stopped(ratio) => format!("≥ {} ×", at_least(*ratio)),
            Self::Failed(_) => "failed".to_owned(),
            Self::Absent => "–".to_owned(),
        }
    }
}

/// Returns a ratio rounded down to a decimal, without one that is 0.
pub fn at_least(ratio: f64) -> String {
    let text = format!("{:.1}", (ratio * 10.0 + 1e-6).floor() / 10.0);
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn failed(tool: &ToolResult) -> Standing {
    let why = tool.runs.iter().rev().find_map(|run| run.failure.clone());
    why.map_or(Standing::Absent, Standing::Failed)
}

/// Returns the least mean of all tools of a cell.
pub fn best_s(result: &ScenarioResult) -> Option<f64> {
    result.tools.iter().filter_map(mean_s).map(|mean| mean.mean).min_by(f64::total_cmp)
}

/// Returns the time of the good runs of a tool.
pub fn mean_s(tool: &ToolResult) -> Option<Interval> {
    Interval::of(tool.good().map(|run| run.elapsed_s))
}
