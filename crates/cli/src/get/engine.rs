//! The engine as the command line wants it.

use swath_source::NetOptions;
use swath_transfer::{Engine, EngineError, EngineOptions};

use crate::args::Get;
use crate::exit::{Exit, chain};
use crate::progress::units;

/// Start an engine; the error is an exit code and a sentence.
pub fn start(get: &Get, to_stdout: bool) -> Result<Engine, (Exit, String)> {
    let memory_bytes = usize::try_from(get.memory).unwrap_or(usize::MAX);
    let options = EngineOptions {
        net: NetOptions {
            limit_bytes_per_s: get.limit_rate,
            metalinks: !get.no_discover,
            ..crate::net::options(&get.net).map_err(|error| (Exit::Input, error))?
        },
        io: get.io,
        memory_bytes: if to_stdout { memory_bytes.min(STDOUT_MEMORY_BYTES) } else { memory_bytes },
        buffer_bytes: if to_stdout {
            STDOUT_BUFFER_BYTES
        } else {
            EngineOptions::default().buffer_bytes
        },
    };
    Engine::start(options).map_err(|error| match error {
        EngineError::Memory { least_bytes, most_bytes, .. } => (
            Exit::Usage,
            format!(
                "--memory: buffers of {} in all are not possible: it takes at least {}, and this machine can spare {} now",
                units::bytes(get.memory),
                units::bytes(least_bytes as u64),
                units::bytes(most_bytes as u64)
            ),
        ),
        error => (Exit::Input, chain(&error)),
    })
}

/// Buffers of an ordered transfer: with everything else the program stays below 128 MiB.
const STDOUT_MEMORY_BYTES: usize = 96 << 20;
/// Smaller ones than for a disk: what waits for its turn is counted in buffers, full or not.
const STDOUT_BUFFER_BYTES: usize = 128 << 10;
