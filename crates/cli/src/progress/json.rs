//! One event a line, for programs.

use std::io::Write;

use serde::Serialize;
use swath_transfer::observe::{Event, Observer};

use crate::say;

/// Writes each event as one line of JSON; stops at the first error of the writer, since the transfer
/// goes on: silently if the reader went away.
pub struct Json {
    out: Option<Box<dyn Write + Send>>,
}

impl Json {
    /// Writes to `out`, usually standard output.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out: Some(out) }
    }

    /// Any value as a line.
    pub(super) fn line(&mut self, value: &impl Serialize) {
        let Some(out) = &mut self.out else { return };
        let written =
            serde_json::to_vec(value).map_err(std::io::Error::from).and_then(|mut bytes| {
                bytes.push(b'\n');
                out.write_all(&bytes)?;
                out.flush()
            });
        if let Err(error) = written {
            self.out = None;
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                say::err(&format!("no more events are told: cannot write them: {error}"));
                say::has_lost_words();
            }
        }
    }
}

impl Observer for Json {
    fn observe(&mut self, event: &Event) {
        self.line(event);
    }
}

/// An event of one file of a list.
#[derive(Serialize)]
pub(super) struct OfFile<'a> {
    /// The file's place in the list, from 0.
    pub(super) file: u64,
    /// The event, its fields beside `file`.
    #[serde(flatten)]
    pub(super) event: &'a Event,
}
