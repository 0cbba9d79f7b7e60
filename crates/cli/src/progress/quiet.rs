//! `--quiet`: only warnings.

use std::io::Write;

use swath_transfer::observe::{Event, Observer};

use super::frame::name_of;
use super::look::Look;
use super::text;

/// Writes only warnings; the program prints the error that ends a transfer.
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
        let text = match event {
            Event::Note { text, warning: true, .. } => text.clone(),
            Event::Unverified { path, why, .. } => format!(
                "{} is NOT VERIFIED: {why} (--digest verifies it, --require-digest refuses it)",
                name_of(path, self.look)
            ),
            _ => return,
        };
        let _ = writeln!(self.out, "warning: {}", text::safe(&text, self.look));
    }
}
