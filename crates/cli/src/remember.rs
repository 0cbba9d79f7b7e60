//! The state file: what swath remembers between runs.

use std::fs::File;
use std::path::{Path, PathBuf};

use swath_state::{Location, State, Warning};

use crate::exit::warn;

/// Returns the path of the state file, if there is one.
pub fn place() -> Location {
    swath_state::locate(|name| std::env::var_os(name))
}

/// Returns the path of the history of transfers, if there is one: beside the state file.
pub fn history() -> Option<PathBuf> {
    match place() {
        Location::At(state) => Some(state.with_file_name("history.db")),
        Location::Off | Location::Homeless => None,
    }
}

/// Opens the state read-only; returns it and whether it could be read, unlike a file that is locked, of
/// a newer swath or missing.
pub fn look(path: &Path) -> (State, bool) {
    let (state, warning) = State::look(path);
    let is_read = match &warning {
        None | Some(Warning::Damaged { .. } | Warning::Full { .. }) => true,
        // A read-only disk can be read.
        Some(Warning::Unwritable { .. }) => File::open(path).is_ok() && !path.is_dir(),
        Some(_) => false,
    };
    let is_read = is_read || !state.edges().is_empty();
    if let Some(warning) = warning {
        match warning {
            Warning::Unwritable { path, reason } if !is_read => {
                let path = path.display();
                warn(&format!("cannot read {path}: {reason}"));
            }
            other => warn(&other.to_string()),
        }
    }
    (state, is_read)
}

/// Opens the state; problems with the file are only warnings.
pub fn open(path: &Path) -> State {
    let (state, warning) = State::open(path);
    if let Some(warning) = warning {
        warn(&warning.to_string());
    }
    state
}
