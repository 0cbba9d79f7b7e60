//! The progress display: bars in a terminal, plain lines elsewhere, JSON events for programs, only
//! warnings with `--quiet`; and the summary at the end.
//!
//! [`Progress`] gives an observer for one file, or a common display for a list. Text goes to standard
//! error, JSON to standard output. Frames and lines are pure functions of the events and a `Look`; only
//! `screen` moves the cursor. Names are shown without control characters. Write errors are ignored: a
//! closed terminal must not stop a transfer.

mod bar;
pub mod batch;
mod batch_view;
mod eta;
mod frame;
pub mod json;
pub mod look;
mod plain;
mod quiet;
mod screen;
pub mod summary;
mod terminal;
#[cfg(test)]
mod tests;
mod text;

use std::io::{self, IsTerminal as _};
use std::time::Instant;

pub use swath_model::units;
use swath_transfer::observe::{Event, Observer};

pub use batch::ListProgress;
pub use json::Json;
pub use plain::Plain;
pub use quiet::Quiet;
pub use summary::{already, stopped_summary, summary};
pub use terminal::{LogWriter, Terminal};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Bars that move.
    Terminal,
    /// Lines at intervals.
    Plain,
    /// JSON events on standard output.
    Json,
    /// Warnings only.
    Quiet,
}

impl Mode {
    /// Chooses the mode by the options and by standard error.
    pub fn choose(json: bool, quiet: bool) -> Self {
        // An unknown terminal may not support moving the cursor.
        let term = std::env::var_os("TERM");
        let dumb = term.is_none_or(|term| term.is_empty() || term == "dumb");
        match (json, quiet) {
            (true, _) => Self::Json,
            (false, true) => Self::Quiet,
            (false, false) if io::stderr().is_terminal() && !dumb => Self::Terminal,
            (false, false) => Self::Plain,
        }
    }
}

/// The progress display; clones share it.
#[derive(Clone)]
pub struct Progress {
    mode: Mode,
    terminal: Terminal,
    begun: Instant,
}

impl Progress {
    /// Returns a display, which shows nothing before the first event.
    pub fn new(mode: Mode) -> Self {
        Self { mode, terminal: Terminal::stderr(), begun: Instant::now() }
    }

    /// Returns the observer of a single transfer.
    pub fn observer(&self) -> Box<dyn Observer> {
        match self.mode {
            Mode::Terminal => Box::new(self.terminal.clone()),
            Mode::Plain => Box::new(Plain::new(Box::new(io::stderr()))),
            Mode::Json => Box::new(Json::new(Box::new(io::stdout()))),
            Mode::Quiet => Box::new(Quiet::new(Box::new(io::stderr()))),
        }
    }

    /// Returns the display of a list of `count` files, if that is known.
    pub fn files(&self, title: &str, count: Option<u64>) -> ListProgress {
        ListProgress::new(self.mode, self.terminal.clone(), title, count)
    }

    /// Prints a note about no particular file.
    pub fn note(&self, text: &str, warning: bool) {
        let at_s = self.begun.elapsed().as_secs_f64();
        self.observer().observe(&Event::note(at_s, text.to_owned(), warning));
    }

    /// Returns a writer that prints log lines above the bars.
    pub fn log_writer(&self) -> LogWriter {
        self.terminal.log_writer()
    }

    /// Removes the bars from the screen.
    pub fn clear(&self) {
        self.terminal.clear();
    }
}
