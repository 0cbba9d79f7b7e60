//! What a study found, as data: every measurement, and what was skipped and why.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// One run of a study's program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Which study, for example `multisource`.
    pub name: String,
    /// Where and when.
    pub machine: Machine,
    /// The command that repeats it.
    pub command: String,
    /// Tools with their versions.
    pub versions: Vec<(String, String)>,
    /// In the order of measurement.
    pub scenarios: Vec<ScenarioResult>,
}

/// All tools in one scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioResult {
    /// Short name, as on the command line.
    pub name: String,
    /// What happens, in one line.
    pub title: String,
    /// Bytes transferred.
    pub size_bytes: u64,
    /// The least time that the links (or the disk) allow; what every time is divided by.
    pub bound_s: f64,
    /// What the bound is, in words.
    pub bound_is: String,
    /// In the order in which they are shown.
    pub tools: Vec<ToolResult>,
    /// Tool and reason.
    pub skipped: Vec<(String, String)>,
    /// What was to be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Goal>,
}

/// A figure of a tool and what it has to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Name of the tool.
    pub tool: String,
    /// The heading of the figure.
    pub figure: String,
    /// It must not be below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// It must not be above this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
}

impl Goal {
    /// A figure that must not be below `least`.
    pub fn at_least(tool: &str, figure: &str, least: f64) -> Self {
        let (tool, figure) = (tool.to_owned(), figure.to_owned());
        Self { tool, figure, least: Some(least), most: None }
    }

    /// A figure that must not be above `most`.
    pub fn at_most(tool: &str, figure: &str, most: f64) -> Self {
        let (tool, figure) = (tool.to_owned(), figure.to_owned());
        Self { tool, figure, least: None, most: Some(most) }
    }

    /// Whether a value will do.
    pub fn is_reached(&self, value: f64) -> bool {
        self.least.is_none_or(|least| value >= least) && self.most.is_none_or(|most| value <= most)
    }
}

/// One tool in one scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Name of the tool.
    pub name: String,
    /// One example of its command line.
    pub command: String,
    /// In the order of measurement.
    pub runs: Vec<Run>,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// From start to end, in seconds.
    pub elapsed_s: f64,
    /// Processor time of the client, in seconds.
    pub cpu_s: f64,
    /// Largest resident memory of the client.
    pub peak_memory_bytes: u64,
    /// Bytes that arrived at the client over all links, IP headers included; zero where no
    /// emulated link is involved.
    pub wire_bytes: u64,
    /// Until all of it was on the disk after the program had ended; zero where that is of no
    /// interest.
    #[serde(default)]
    pub sync_s: f64,
    /// What else is of interest, each under the heading of its column: the server's share of the
    /// work, for example.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<(String, f64)>,
    /// Why the run does not count; `None` for a good one.
    pub failure: Option<String>,
    /// It was stopped at its time limit: it takes at least as long as it ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stopped: bool,
}

impl ToolResult {
    /// The good runs.
    pub fn good(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.failure.is_none())
    }

    /// Median, least and greatest elapsed time of the good runs; `None` when there is none.
    pub fn elapsed_s(&self) -> Option<Spread> {
        Spread::of(self.good().map(|run| run.elapsed_s))
    }

    /// Median processor time of the good runs.
    pub fn cpu_s(&self) -> Option<f64> {
        Spread::of(self.good().map(|run| run.cpu_s)).map(|spread| spread.median)
    }

    /// Median time from the end of the program until all was on the disk.
    pub fn sync_s(&self) -> Option<f64> {
        Spread::of(self.good().map(|run| run.sync_s)).map(|spread| spread.median)
    }

    /// Greatest peak memory of the good runs.
    pub fn peak_memory_bytes(&self) -> Option<u64> {
        self.good().map(|run| run.peak_memory_bytes).max()
    }

    /// Median of one of the figures of the good runs.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let figures = self.good().flat_map(|run| &run.figures);
        let values = figures.filter(|(known, _)| known == name).map(|(_, value)| *value);
        Spread::of(values).map(|spread| spread.median)
    }

    /// Runs that do not count.
    pub fn failures(&self) -> usize {
        self.runs.len() - self.good().count()
    }
}

impl ScenarioResult {
    /// The names of all figures that some run has, in the order in which they come.
    pub fn figure_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let runs = self.tools.iter().flat_map(|tool| &tool.runs);
        for (name, _) in runs.flat_map(|run| &run.figures) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Median time of a tool in this scenario.
    pub fn median_s(&self, tool: &str) -> Option<f64> {
        let tool = self.tools.iter().find(|result| result.name == tool)?;
        tool.elapsed_s().map(|spread| spread.median)
    }
}

/// Median and extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of any number of values; `None` of no values.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let upper = values[values.len() / 2];
        let lower = values[(values.len() - 1) / 2];
        Some(Self { median: (lower + upper) / 2.0, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Spread::of([].into_iter()), None);
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter()).unwrap();
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0].into_iter()).unwrap().median, 2.5);
    }

    #[test]
    fn a_goal_is_reached_at_its_bound() {
        let least = Goal::at_least("a", "x", 2.0);
        assert_eq!([1.9, 2.0, 2.1].map(|value| least.is_reached(value)), [false, true, true]);
        let most = Goal::at_most("a", "x", 2.0);
        assert_eq!([1.9, 2.0, 2.1].map(|value| most.is_reached(value)), [true, true, false]);
        assert!(!least.is_reached(f64::NAN));
    }
}
