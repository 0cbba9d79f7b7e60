//! What a user sees while `swath get` works: bars in a terminal, plain lines elsewhere, one JSON
//! event a line for programs, next to nothing with `--quiet`; and the summary at the end.
//!
//! [`Progress`] is the front: it gives an observer for one file or, for lists, one for each file
//! with a common display. Everything for people goes to standard error, JSON to standard output.
//! What a frame or a line says is decided by pure functions of the events and a `Look`; only
//! `screen` moves a cursor. Names are shown without control characters. Write errors are ignored:
//! a closed terminal is no reason to stop a transfer.

mod bar;
mod batch;
mod batch_view;
mod eta;
mod frame;
pub mod json;
pub mod look;
mod plain;
mod quiet;
mod screen;
mod summary;
mod terminal;
#[cfg(test)]
mod tests;
mod text;

use std::io::{self, IsTerminal as _};
use std::time::Instant;

pub use swath_model::units;
use swath_transfer::observe::{Event, Observer};

pub use batch::Files;
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
    /// A line now and then.
    Plain,
    /// One event a line on standard output.
    Json,
    /// Warnings only.
    Quiet,
}

impl Mode {
    /// What the options and the place that standard error leads to ask for.
    pub fn choose(json: bool, quiet: bool) -> Self {
        // A terminal that does not say what it is may not know the sequences that move a cursor.
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

/// The display of one run of the program; clones are the same.
#[derive(Clone)]
pub struct Progress {
    mode: Mode,
    terminal: Terminal,
    begun: Instant,
}

impl Progress {
    /// A display of this kind; nothing is shown before the first event.
    pub fn new(mode: Mode) -> Self {
        Self { mode, terminal: Terminal::stderr(), begun: Instant::now() }
    }

    /// The observer of a transfer of one file.
    pub fn observer(&self) -> Box<dyn Observer> {
        match self.mode {
            Mode::Terminal => Box::new(self.terminal.clone()),
            Mode::Plain => Box::new(Plain::new(Box::new(io::stderr()))),
            Mode::Json => Box::new(Json::new(Box::new(io::stdout()))),
            Mode::Quiet => Box::new(Quiet::new(Box::new(io::stderr()))),
        }
    }

    /// The common display of a list, of `count` files where that is known.
    pub fn files(&self, title: &str, count: Option<u64>) -> Files {
        Files::new(self.mode, self.terminal.clone(), title, count)
    }

    /// A sentence that belongs to no file.
    pub fn note(&self, text: &str, warning: bool) {
        let at_s = self.begun.elapsed().as_secs_f64();
        self.observer().observe(&Event::note(at_s, text.to_owned(), warning));
    }

    /// Where log lines go so that they appear above the bars and do not tear them.
    pub fn log_writer(&self) -> LogWriter {
        self.terminal.log_writer()
    }

    /// Take the bars off the screen, for whoever exits without waiting for the transfer's end.
    pub fn clear(&self) {
        self.terminal.clear();
    }
}
