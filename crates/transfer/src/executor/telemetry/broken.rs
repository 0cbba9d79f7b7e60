//! The route to a tree breaks while it comes, and goes on: both are told, in the words in which
//! whoever sends a tree is told of its receiver.
//!
//! The route is broken when the last connection that worked has ended badly, and it is there again with
//! the first bytes, or when a server answers that it does not know the walk any more: it was started
//! again. What takes no longer than a moment is not told, unless it is that.

use std::time::Duration;

use swath_model::Time;
use swath_source::LaneError;

use crate::executor::state::Run;
use swath_model::units;

/// How the route broke.
pub(crate) struct Broken {
    at: Time,
    /// Why.
    words: String,
    /// Whose it is.
    name: String,
    is_told: bool,
}

impl Run<'_> {
    /// A lane of this source ended before its end, perhaps with an error.
    pub(crate) fn note_break(&mut self, source: usize, error: Option<&LaneError>) {
        let is_left = self.lanes.open.values().any(|entry| entry.up);
        let Some(entry) = self.sources.get(source).filter(|entry| entry.ever_up) else { return };
        if !self.dataset.proves_blocks() || is_left {
            return;
        }
        let name = entry.source.name().to_string();
        let words = error.map_or(ENDED.to_owned(), ToString::to_string);
        match &mut self.telemetry.broken {
            // The last error tells more than the first one, which at times is none.
            Some(broken) if error.is_some() => broken.words = words,
            Some(_) => {}
            None => {
                self.telemetry.broken = Some(Broken { at: self.now(), words, name, is_told: false })
            }
        }
    }

    /// Tell what is due of it.
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

    /// The server of this source does not know the walk any more.
    pub(crate) fn tell_forgotten(&mut self, source: usize) {
        match &self.telemetry.broken {
            None => {
                let Some(entry) = self.sources.get(source) else { return };
                let name = entry.source.name().to_string();
                let text = format!("{name}: it has forgotten what it listed, and is asked again");
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
        let text =
            format!("{}: {}; it is asked again, for up to {wait}", broken.name, broken.words);
        self.note(text, true);
    }

    fn tell_return(&mut self) {
        let Some(broken) = &self.telemetry.broken else { return };
        let after = units::duration(self.now().secs_since(broken.at));
        let text = format!("{}: it is there again after {after}, and goes on", broken.name);
        self.note(text, true);
    }
}

/// What is said of a connection that ended without an error.
const ENDED: &str = "the connection ended";
/// Connections break and are made anew.
const WORTH_TELLING: Duration = Duration::from_secs(1);
