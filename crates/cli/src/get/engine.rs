//! The engine as the command line wants it.

use std::path::PathBuf;

use swath_source::{Bearer, NetOptions, Secret, discover_bearer};
use swath_transfer::{Engine, EngineOptions};

use crate::args::{Get, Net};
use crate::exit::chain;

/// Start an engine; the error is a sentence.
pub fn start(get: &Get, to_stdout: bool) -> Result<Engine, String> {
    let memory_bytes = usize::try_from(get.memory).unwrap_or(usize::MAX);
    let options = EngineOptions {
        net: net_options(&get.net)?,
        io: get.io,
        memory_bytes: if to_stdout { memory_bytes.min(STDOUT_MEMORY_BYTES) } else { memory_bytes },
        ..EngineOptions::default()
    };
    Engine::start(options).map_err(|error| chain(&error))
}

/// The network as the command line and the environment want it.
pub fn net_options(net: &Net) -> Result<NetOptions, String> {
    let bearer = match &net.bearer_file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read the token in {}: {error}", path.display()))?;
            Some(Bearer { token: Secret::new(text.trim()), explicit: true })
        }
        None => {
            // SAFETY: getuid has no preconditions and cannot fail.
            let uid = unsafe { libc::getuid() };
            discover_bearer(|name| std::env::var(name).ok(), uid)
        }
    };
    Ok(NetOptions {
        headers: net.header.clone(),
        bearer,
        netrc: netrc(),
        ca_files: net.ca.clone(),
        insecure: net.insecure,
        timeout: net.timeout.min(ANSWER_WITHIN),
        limit_bytes_per_s: net.limit_rate,
        metalinks: !net.no_discover,
        ..NetOptions::default()
    })
}

/// The text of `$NETRC` or `~/.netrc`, if there is one.
fn netrc() -> Option<String> {
    let path = std::env::var_os("NETRC")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".netrc")))?;
    std::fs::read_to_string(path).ok()
}

/// A server that has not answered after this long will not.
const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);
/// Buffers of an ordered transfer: with everything else the program stays below 128 MiB.
const STDOUT_MEMORY_BYTES: usize = 64 << 20;
