//! The lines that a server sends while it receives or fetches, as they come.

use swath_source::Download;
use swath_transfer::sending::{Line, LineReader};

use super::retry::{Interruption, Retries};
use crate::event::JobEvent;

/// Reads the lines of one answer.
pub struct Lines {
    answer: Download,
    reader: LineReader,
    /// Who sends them, for errors.
    sender: &'static str,
}

/// Why there is no further line.
pub enum NoLine {
    /// The connection broke.
    Broken(Interruption),
    /// The sender does not make sense.
    Invalid(String),
}

impl Lines {
    /// Returns the lines of an answer.
    pub fn of(answer: Download, sender: &'static str) -> Lines {
        Lines { answer, reader: LineReader::default(), sender }
    }

    /// Waits for the next line. Nothing is lost if this is given up while it waits.
    pub async fn next(&mut self, retries: &mut Retries<'_>) -> Result<Line, NoLine> {
        loop {
            while let Some(line) = self.reader.next_line() {
                // An empty one is a sign of life.
                if !line.is_empty() {
                    return Line::parse(&line).map_err(|error| {
                        NoLine::Invalid(format!("invalid message from {}: {error}", self.sender))
                    });
                }
            }
            if self.reader.is_too_long() {
                let text = format!("{} sent a message that is too long", self.sender);
                return Err(NoLine::Invalid(text));
            }
            match self.answer.next().await {
                Ok(part) if part.is_empty() => {
                    let text = format!("{} ended without a message", self.sender);
                    return Err(NoLine::Broken(Interruption::new(text)));
                }
                Ok(part) => self.reader.take_in(&part),
                Err(error) => {
                    let broken = Interruption::of(&error);
                    let broken = broken.unwrap_or_else(|| Interruption::new(error));
                    return Err(NoLine::Broken(broken));
                }
            }
            retries.hears();
        }
    }
}

/// Returns the event of a change that a server plans.
pub fn planned(bytes: Option<u64>, path: String, further_of: Option<String>) -> JobEvent {
    let further_of = further_of.map(String::into_bytes);
    let folder = bytes.and_then(|_| path.strip_suffix('/'));
    let (is_folder, path) = (folder.is_some(), folder.unwrap_or(&path).as_bytes().to_vec());
    JobEvent::Planned { bytes, path, is_folder, further_of }
}
