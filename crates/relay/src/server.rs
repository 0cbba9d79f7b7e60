//! Starting a relay: its options, and where it listens.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_model::Limiter;
use swath_serve::{Life, Listening, Log, ServeError, Server};
use swath_source::{HpkeError, NetError, NetOptions};
use swath_store::cache::CacheOpenError;
use swath_store::depot::Depot;
use tokio::sync::watch;

use crate::{CacheOptions, Clients, Relay, Upstream};

/// What a relay passes on, and for whom.
pub struct RelayOptions {
    /// How it calls itself.
    pub name: String,
    /// The names by which it is asked for from this machine; `None` where it encrypts, and its
    /// certificate says that.
    pub hosts: Option<Vec<String>>,
    /// Whom it asks; nobody else.
    pub upstreams: Vec<Upstream>,
    /// Who may use it; nobody else.
    pub clients: Clients,
    /// How it asks. What is not public is reached only where it is listed.
    pub net: NetOptions,
    /// Limits all that it passes on.
    pub send_limit: Option<Arc<Limiter>>,
    /// Either side may be silent for so long while it owes something.
    pub timeout: Duration,
    /// Keeps what passes.
    pub cache: Option<CacheOptions>,
    /// Space for others.
    pub depot: Option<Depot>,
}

impl std::fmt::Debug for RelayOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RelayOptions({}, {:?}, {:?})", self.name, self.upstreams, self.clients)
    }
}

/// Why there can be no such relay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// How it would ask.
    #[error(transparent)]
    Net(#[from] NetError),
    /// It can have no key.
    #[error(transparent)]
    Key(#[from] HpkeError),
    /// What it would keep.
    #[error(transparent)]
    Cache(#[from] CacheOpenError),
    /// It would pass nothing on.
    #[error("a relay needs at least one upstream server")]
    NoUpstreams,
    /// It cannot listen.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// It would be there for nobody, or for everybody.
    #[error("a relay needs a list of allowed clients")]
    NoClients,
}

/// How to serve as a relay.
#[derive(Debug)]
pub struct RelayServerOptions {
    /// What is passed on, and for whom.
    pub relay: RelayOptions,
    /// Where and how to listen.
    pub listening: Listening,
}

/// A relay that listens already.
pub struct Bound {
    /// It answers once it [runs](Server::run).
    pub server: Server,
    /// How many bytes the cache can keep, where its disk has less than it was told to keep.
    pub narrowed_cache_bytes: Option<u64>,
}

/// Opens a relay and listens. Must be called within a tokio runtime.
pub fn bind(
    options: RelayServerOptions,
    log: Option<Box<dyn Log>>,
) -> BoxFuture<'static, Result<Bound, RelayError>> {
    Box::pin(async move {
        let RelayServerOptions { relay, listening } = options;
        let (end, ending) = watch::channel(Life::Open);
        let relay = Arc::new(Relay::open(relay, log, ending)?);
        let narrowed_cache_bytes = relay.narrowed_cache_bytes();
        let server = Server::of(relay, listening, end).await?;
        Ok(Bound { server, narrowed_cache_bytes })
    })
}
