//! Local copies: this process serves the source and fetches from itself over private loopback
//! connections, so that local copies work like those from a server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use swath_model::Limiter;
use swath_serve::{Access, Filter, Offer, Only, Reads, Single, SiteOptions};
use swath_source::Dialled;
use swath_transfer::Engine;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::Url;

use super::error::OfferError;

/// Returns the folder to serve for `from`, and its restriction: to the filter, or to the single file
/// `from` under the name `single`.
pub fn offered(from: &Path, single: Option<&str>, filter: Filter) -> io::Result<(PathBuf, Only)> {
    let Some(name) = single else { return Ok((from.to_owned(), Only::Part(Box::new(filter)))) };
    // A link means its target.
    let whole = from.canonicalize()?;
    let (Some(folder), Some(own)) = (whole.parent(), whole.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let (path, name) = (own.as_bytes().to_vec(), name.as_bytes().to_vec());
    Ok((folder.to_owned(), Only::File(Single { path, name })))
}

/// Serves `from` to other processes or to this one, as [`offered`] restricts it.
pub fn offer(
    from: &Path,
    single: Option<&str>,
    filter: Filter,
    reads: Reads,
    limit_bytes_per_s: Option<u64>,
) -> Result<Offer, OfferError> {
    let (folder, only) = offered(from, single, filter)
        .map_err(|error| OfferError::Read { path: from.to_owned(), error })?;
    Ok(Offer::open(SiteOptions {
        folders: vec![folder.into()],
        access: Access::default(),
        follow_links: false,
        only: Some(only),
        name: String::new(),
        reads,
        hosts: None,
        idle_index_bytes: 0,
        mount: None,
        receive: None,
        third_party: None,
        send_limit: limit_bytes_per_s.map(|rate| Arc::new(Limiter::new(Some(rate)))),
        receive_limit: None,
    })?)
}

/// A folder served to this process.
pub struct LocalOffer {
    offer: Offer,
    dialled: Dialled,
    url: Url,
}

impl LocalOffer {
    /// Serves `from`, as [`offered`] restricts it.
    pub fn open(
        engine: &Engine,
        from: &Path,
        single: Option<&str>,
        filter: Filter,
        reads: Reads,
    ) -> Result<LocalOffer, OfferError> {
        let offer = offer(from, single, filter, reads, None)?;
        let (url, dialled) = engine.net().dialled(NAME)?;
        Ok(LocalOffer { offer, dialled, url })
    }

    /// Returns its address for the engine.
    pub fn url(&self) -> Url {
        self.url.clone()
    }

    /// Answers requests as long as it is polled.
    pub async fn serve(&mut self) {
        let come = self.dialled.come();
        let mut lanes: JoinSet<()> = JoinSet::new();
        loop {
            tokio::select! {
                true = self.dialled.is_wanted() => {
                    let (ours, theirs, peer) = pair().await;
                    come.take(Box::new(theirs), peer);
                    let offer = self.offer.clone();
                    lanes.spawn(async move { offer.serve(ours, peer).await });
                }
                Some(_) = lanes.join_next() => {}
            }
        }
    }
}

/// Connects to this process; retries if there are no free descriptors.
async fn pair() -> (TcpStream, TcpStream, SocketAddr) {
    loop {
        match connect().await {
            Ok(both) => return both,
            Err(error) => {
                tracing::debug!(%error, "cannot connect to this process");
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
        }
    }
}

/// Returns the two ends of a connection; other clients of the port are rejected.
async fn connect() -> io::Result<(TcpStream, TcpStream, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let theirs = TcpStream::connect(listener.local_addr()?).await?;
    let own = theirs.local_addr()?;
    loop {
        let (ours, peer) = listener.accept().await?;
        if peer == own {
            ours.set_nodelay(true)?;
            theirs.set_nodelay(true)?;
            return Ok((ours, theirs, peer));
        }
    }
}

/// The internal host name.
const NAME: &str = "here";
/// Pause before the next attempt.
const CONNECT_AGAIN: Duration = Duration::from_millis(50);
