//! Warnings only.

use std::io::Write;

use swath_transfer::observe::{Event, Observer};

use super::look::Look;
use super::text;

/// Writes warnings and nothing else; the error that ends a transfer is the program's to tell.
pub struct Quiet {
    out: Box<dyn Write + Send>,
    look: Look,
}

impl Quiet {
    /// Writes to `out`, usually standard error.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out, look: Look::of_lines() }
    }
}

impl Observer for Quiet {
    fn observe(&mut self, event: &Event) {
        if let Event::Note { text, warning: true, .. } = event {
            let _ = writeln!(self.out, "warning: {}", text::safe(text, self.look));
        }
    }
}
