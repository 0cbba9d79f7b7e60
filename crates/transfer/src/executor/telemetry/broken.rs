//! Notes about a broken and restored connection to a tree's source, in the words that a sender gets
//! about its receiver.
//!
//! The connection is broken when the last working lane has ended badly. It is restored with the
//! first bytes, or when the server answers that it has forgotten the walk, because it was
//! restarted. Short breaks cause no note, except a restart of the server.

use std::time::Duration;

use swath_model::Time;
use swath_source::LaneError;

use crate::executor::state::Run;
use swath_model::units;

/// A break of the connection.
pub(crate) struct Broken {
    at: Time,
    /// The error.
    words: String,
    /// The source.
    name: String,
    is_told: bool,
}

impl Run<'_> {
    /// Notes that a lane of this source ended early, perhaps with an error.
    pub(crate) fn note_break(&mut self, source: usize, error: Option<&LaneError>) {
        let is_left = self.lanes.open.values().any(|entry| entry.up);
        let Some(entry) = self.sources.get(source).filter(|entry| entry.ever_up) else { return };
        if !self.dataset.proves_blocks() || is_left {
            return;
        }
        let name = entry.source.name().to_string();
        let words = error.map_or(ENDED.to_owned(), ToString::to_string);
        match &mut self.telemetry.broken {
            // The last error tells more than the first one, which may be missing.
            Some(broken) if error.is_some() => broken.words = words,
            Some(_) => {}
            None => {
                self.telemetry.broken = Some(Broken { at: self.now(), words, name, is_told: false })
            }
        }
    }

    /// Reports the break or its end if that is due.
    pub(crate) fn tell_break(&mut self) {
        let Some(broken) = &self.telemetry.broken else { return };
        if self.clock.last_arrival > broken.at {
            if broken.is_told {
                self.tell_return();
            }
            self.telemetry.broken = None;
        } else if !broken.is_told && self.now().since(broken.at) >= WORTH_TELLING {
            self.tell_broken();
        }
    }

    /// Reports that the server of this source has forgotten the walk.
    pub(crate) fn tell_forgotten(&mut self, source: usize) {
        match &self.telemetry.broken {
            None => {
                let Some(entry) = self.sources.get(source) else { return };
                let name = entry.source.name().to_string();
                let text = format!("{name}: it restarted and forgot its file list; asking again");
                self.note(text, true);
            }
            Some(broken) => {
                if !broken.is_told {
                    self.tell_broken();
                }
                self.tell_return();
            }
        }
        self.telemetry.broken = None;
    }

    fn tell_broken(&mut self) {
        let silent_s = self.clock.silence_s();
        let wait = units::duration((self.request.stall_s - silent_s).max(0.0));
        let Some(broken) = &mut self.telemetry.broken else { return };
        broken.is_told = true;
        let text = format!("{}: {}; retrying for up to {wait}", broken.name, broken.words);
        self.note(text, true);
    }

    fn tell_return(&mut self) {
        let Some(broken) = &self.telemetry.broken else { return };
        let after = units::duration(self.now().secs_since(broken.at));
        let text = format!("{}: reconnected after {after}", broken.name);
        self.note(text, true);
    }
}

/// Stands in for the error of a connection that ended without one.
const ENDED: &str = "the connection ended";
/// Shortest break that is reported: many connections break and are replaced at once.
const WORTH_TELLING: Duration = Duration::from_secs(1);
