//! The engine as the command line wants it.

use crate::failure::Failure;
use swath_model::digest::Digest;
use swath_source::{Bearer, NetOptions};
use swath_transfer::{Engine, EngineError, EngineOptions, IoMode, RouteOptions};

use crate::args::Net;
use crate::exit::{Exit, chain};
use crate::progress::units;

/// Most connections to one host unless the user asks for more: what its owner may take for decent.
pub const CONNECTIONS_PER_HOST: u32 = 8;

/// What a command asks of its engine.
pub struct Wishes<'a> {
    /// The network.
    pub net: &'a Net,
    /// The ways that data may take.
    pub routes: RouteOptions,
    /// Most bytes a second, over all sources.
    pub limit_rate: Option<u64>,
    /// Most connections to one host.
    pub connections_per_host: u32,
    /// Ask for Metalinks.
    pub metalinks: bool,
    /// How the disk is written.
    pub io: IoMode,
    /// Memory for buffers, in bytes.
    pub memory: u64,
    /// Everything goes to standard output, in order.
    pub to_stdout: bool,
    /// A server that was started for this: what opens it, and its certificate's fingerprint.
    pub own_server: Option<(Bearer, Digest)>,
}

impl<'a> Wishes<'a> {
    /// Of a command that writes no file.
    pub fn reading(net: &'a Net, memory: u64) -> Wishes<'a> {
        Wishes {
            net,
            routes: RouteOptions::default(),
            limit_rate: None,
            connections_per_host: CONNECTIONS_PER_HOST,
            metalinks: false,
            io: IoMode::Buffered,
            memory,
            to_stdout: false,
            own_server: None,
        }
    }
}

/// Start an engine; the error is an exit code and a sentence.
pub fn start(wishes: Wishes<'_>) -> Result<Engine, Failure> {
    let memory_bytes = usize::try_from(wishes.memory).unwrap_or(usize::MAX);
    let to_stdout = wishes.to_stdout;
    let mut net = crate::net::options(wishes.net)?;
    if let Some((bearer, fingerprint)) = &wishes.own_server {
        net.bearer = Some(bearer.clone());
        net.fingerprints.push(*fingerprint);
    }
    let options = EngineOptions {
        routes: wishes.routes,
        net: NetOptions {
            limit_bytes_per_s: wishes.limit_rate,
            connections_per_host: Some(wishes.connections_per_host),
            metalinks: wishes.metalinks,
            ..net
        },
        io: wishes.io,
        memory_bytes: if to_stdout { memory_bytes.min(STDOUT_MEMORY_BYTES) } else { memory_bytes },
        buffer_bytes: if to_stdout {
            STDOUT_BUFFER_BYTES
        } else {
            EngineOptions::default().buffer_bytes
        },
    };
    Engine::start(options).map_err(|error| match error {
        EngineError::Memory { least_bytes, most_bytes, .. } => Failure::usage(format!(
                "--memory: buffers of {} in all are not possible: it takes at least {}, and this machine can spare {} now",
                units::bytes(wishes.memory),
                units::bytes(least_bytes as u64),
                units::bytes(most_bytes as u64)
            ),
        ),
        EngineError::Thread(error) => crate::threads::failure(&error),
        error => Failure::new(Exit::Input, chain(&error)),
    })
}

/// Buffers of an ordered transfer: with everything else the program stays below 128 MiB.
const STDOUT_MEMORY_BYTES: usize = 96 << 20;
/// Smaller ones than for a disk: what waits for its turn is counted in buffers, full or not.
const STDOUT_BUFFER_BYTES: usize = 128 << 10;
