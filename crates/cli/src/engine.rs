//! The engine of commands that write no file.

use crate::failure::Failure;
use swath_jobs::CONNECTIONS_PER_HOST;
use swath_model::digest::Digest;
use swath_source::Bearer;
use swath_transfer::{Engine, EngineOptions, IoMode, RouteOptions};

use crate::args::Net;

/// What a command asks of its engine.
pub struct Wishes<'a> {
    /// The network.
    pub net: &'a Net,
    /// The ways that data may take.
    pub routes: RouteOptions,
    /// Memory for buffers, in bytes.
    pub memory_bytes: usize,
    /// A server that was started for this: what opens it, and its certificate's fingerprint.
    pub own_server: Option<(Bearer, Digest)>,
}

impl<'a> Wishes<'a> {
    /// Without routes over relays, and without a server of its own.
    pub fn reading(net: &'a Net, memory_bytes: usize) -> Wishes<'a> {
        Wishes { net, routes: RouteOptions::default(), memory_bytes, own_server: None }
    }
}

/// Start an engine.
pub fn start(wishes: Wishes<'_>) -> Result<Engine, Failure> {
    let mut net = crate::net::options(wishes.net)?;
    net.connections_per_host = Some(CONNECTIONS_PER_HOST);
    if let Some((bearer, fingerprint)) = wishes.own_server {
        net.bearer = Some(bearer);
        net.fingerprints.push(fingerprint);
    }
    Ok(Engine::start(EngineOptions {
        routes: wishes.routes,
        net,
        io: IoMode::Buffered,
        memory_bytes: wishes.memory_bytes,
        ..EngineOptions::default()
    })?)
}
