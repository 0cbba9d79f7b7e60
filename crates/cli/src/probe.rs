//! `swath probe`: what each replica offers.

use crate::args::Probe;
use crate::exit::Exit;

/// Run the command.
pub async fn run(_probe: Probe) -> Exit {
    Exit::Internal
}
