//! What is remembered between runs, as the environment wants it.

use std::fs::File;
use std::path::Path;

use swath_state::{Location, State, Warning};

use crate::exit::warn;

/// Where it is remembered, if anywhere.
pub fn place() -> Location {
    swath_state::locate(|name| std::env::var_os(name))
}

/// Open it to be looked at, and whether what it says could be read: of a file that is locked, of a
/// newer swath or no file at all it could not.
pub fn look(path: &Path) -> (State, bool) {
    let (state, warning) = State::look(path);
    let is_read = match &warning {
        None | Some(Warning::Damaged { .. } | Warning::Full { .. }) => true,
        // A disk without leave to write can be read.
        Some(Warning::Unwritable { .. }) => File::open(path).is_ok() && !path.is_dir(),
        Some(_) => false,
    };
    let is_read = is_read || !state.edges().is_empty();
    if let Some(warning) = warning {
        match warning {
            Warning::Unwritable { path, reason } if !is_read => {
                let path = path.display();
                warn(&format!("{path} cannot be read ({reason})"));
            }
            other => warn(&other.to_string()),
        }
    }
    (state, is_read)
}

/// Open it; whatever is wrong with the file is said, and nothing fails for it.
pub fn open(path: &Path) -> State {
    let (state, warning) = State::open(path);
    if let Some(warning) = warning {
        warn(&warning.to_string());
    }
    state
}
