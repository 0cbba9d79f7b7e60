//! Events as JSON, one per line.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use swath_transfer::observe::{Event, Observer};

/// Whether writing events failed, other than by a closed pipe.
pub fn are_events_lost() -> bool {
    ARE_LOST.load(Ordering::Relaxed)
}

static ARE_LOST: AtomicBool = AtomicBool::new(false);

/// Writes each event as a line of JSON; stops at the first write error, silently if the reader is gone.
pub struct Json {
    out: Option<Box<dyn Write + Send>>,
}

impl Json {
    /// Writes to `out`, usually standard output.
    pub fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out: Some(out) }
    }

    /// Writes a value as a line.
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
                let _ =
                    writeln!(std::io::stderr(), "warning: cannot write events any more: {error}");
                ARE_LOST.store(true, Ordering::Relaxed);
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
    /// The file's position in the list, from 0.
    pub(super) file: u64,
    /// The event, its fields next to `file`.
    #[serde(flatten)]
    pub(super) event: &'a Event,
}
