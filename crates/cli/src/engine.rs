//! The engine as the command line wants it.

use crate::failure::Failure;
use swath_jobs::CONNECTIONS_PER_HOST;
use swath_model::digest::Digest;
use swath_source::{Bearer, NetOptions};
use swath_transfer::{Engine, EngineOptions, IoMode, RouteOptions};

use crate::args::Net;

/// What a command asks of its engine.
pub struct Wishes<'a> {
    /// The network.
    pub net: &'a Net,
    /// The ways that data may take.
    pub routes: RouteOptions,
    /// Most bytes a second, over all sources.
    pub limit_rate: Option<u64>,
    /// How the disk is written.
    pub io: IoMode,
    /// Memory for buffers, in bytes.
    pub memory: u64,
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
            io: IoMode::Buffered,
            memory,
            own_server: None,
        }
    }
}

/// Start an engine; the error is an exit code and a sentence.
pub fn start(wishes: Wishes<'_>) -> Result<Engine, Failure> {
    let memory_bytes = usize::try_from(wishes.memory).unwrap_or(usize::MAX);
    let mut net = crate::net::options(wishes.net)?;
    if let Some((bearer, fingerprint)) = &wishes.own_server {
        net.bearer = Some(bearer.clone());
        net.fingerprints.push(*fingerprint);
    }
    let options = EngineOptions {
        routes: wishes.routes,
        net: NetOptions {
            limit_bytes_per_s: wishes.limit_rate,
            connections_per_host: Some(CONNECTIONS_PER_HOST),
            ..net
        },
        io: wishes.io,
        memory_bytes,
        ..EngineOptions::default()
    };
    Ok(Engine::start(options)?)
}
