//! What is remembered between runs, as the environment wants it.

use std::path::Path;

use swath_state::{Place, State};

use crate::exit::warn;

/// Where it is remembered, if anywhere.
pub fn place() -> Place {
    swath_state::place(|name| std::env::var_os(name))
}

/// Open it; whatever is wrong with the file is said, and nothing fails for it.
pub fn open(path: &Path) -> State {
    let (state, warning) = State::open(path);
    if let Some(warning) = warning {
        warn(&warning.to_string());
    }
    state
}
