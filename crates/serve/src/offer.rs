//! Serves on connections that this side has dialled, without listening.

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use swath_transport::Transport;
use tokio::sync::watch;

use crate::http::{Records, Slot, Stream, serve};
use crate::server::Life;
use crate::site::{Site, SiteError, SiteOptions};

/// Folders that are offered to whoever is on the other side of connections of ours.
#[derive(Clone)]
pub struct Offer {
    site: Arc<Site>,
    /// Kept, so that nobody takes its end for ours.
    _end: Arc<watch::Sender<Life>>,
}

impl Offer {
    /// Opens what is to be offered.
    pub fn open(options: SiteOptions) -> Result<Offer, SiteError> {
        let (end, ending) = watch::channel(Life::Open);
        let site = Site::open(options, None, "http", crate::tls::random, ending)?;
        Ok(Offer { site: Arc::new(site), _end: Arc::new(end) })
    }

    /// Remembers the first index that is asked for and comes to its end.
    pub fn keep_first(&self) {
        self.site.walks.keep_first();
    }

    /// The name of its walk, as soon as it has come to its end.
    pub fn first(&self) -> Option<String> {
        self.site.walks.first().map(|walk| walk.to_string())
    }

    /// Answers on a connection to its end.
    pub fn serve(
        &self,
        stream: impl Transport + 'static,
        peer: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        self.serve_stream(Box::new(Records::new(stream)), peer)
    }

    fn serve_stream(&self, stream: Stream, peer: SocketAddr) -> BoxFuture<'static, ()> {
        let site = Arc::clone(&self.site);
        Box::pin(async move { serve(stream, peer, site, &Slot::default()).await })
    }
}
