//! The engine of commands that write no file.

use crate::failure::Failure;
use swath_jobs::CONNECTIONS_PER_HOST;
use swath_model::digest::Digest;
use swath_source::Bearer;
use swath_transfer::{Engine, EngineOptions, IoMode, RouteOptions};

use crate::args::Net;

/// Starts an engine; `own_server` has the token and the fingerprint of a server started for it.
pub fn start(
    net: &Net,
    memory_bytes: usize,
    routes: RouteOptions,
    own_server: Option<(Bearer, Digest)>,
) -> Result<Engine, Failure> {
    let mut net = crate::net::options(net)?;
    net.connections_per_host = Some(CONNECTIONS_PER_HOST);
    if let Some((bearer, fingerprint)) = own_server {
        net.bearer = Some(bearer);
        net.fingerprints.push(fingerprint);
    }
    let io = IoMode::Buffered;
    Ok(Engine::start(EngineOptions { net, routes, io, memory_bytes, ..EngineOptions::default() })?)
}
