//! Letting in peers that connect to us.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_formats::peer::encryption::Methods;
use swath_formats::peer::{Handshake, HandshakeError, WireInfoHash};
use swath_transport::Transport;
use tokio::time::timeout;

use super::connection::{self, Established};
use super::dial::HANDSHAKE_WITHIN;
use super::error::PeerError;
use super::handle::Peer;
use super::handshake;
use super::stream::PeerStream;
use super::torrent::{EncryptionPolicy, Torrent};

/// The torrents that peers may ask for.
pub trait Torrents: Send + Sync {
    /// Returns the torrent that peers know by this name; a hybrid torrent has two names.
    fn find(&self, info_hash: WireInfoHash) -> Option<Arc<Torrent>>;

    /// Returns all names: an encrypted handshake hides the name, which is found by trying.
    fn info_hashes(&self) -> Vec<WireInfoHash>;
}

impl Torrents for Arc<Torrent> {
    fn find(&self, info_hash: WireInfoHash) -> Option<Arc<Torrent>> {
        Torrent::info_hashes(self).contains(&info_hash).then(|| Arc::clone(self))
    }

    fn info_hashes(&self) -> Vec<WireInfoHash> {
        Torrent::info_hashes(self).to_vec()
    }
}

impl<S: BuildHasher + Send + Sync> Torrents for HashMap<WireInfoHash, Arc<Torrent>, S> {
    fn find(&self, info_hash: WireInfoHash) -> Option<Arc<Torrent>> {
        self.get(&info_hash).cloned()
    }

    fn info_hashes(&self) -> Vec<WireInfoHash> {
        self.keys().copied().collect()
    }
}

/// Lets a peer in that has connected to us from `address`. The peer is choked at first.
///
/// # Errors
/// [`PeerError`] if its handshake leads nowhere, takes too long, or breaks `encryption`'s rules.
pub fn accept<'a>(
    torrents: &'a dyn Torrents,
    transport: Box<dyn Transport>,
    address: SocketAddr,
    encryption: EncryptionPolicy,
) -> BoxFuture<'a, Result<Peer, PeerError>> {
    Box::pin(async move {
        let let_in = let_in(torrents, PeerStream::new(transport), address, encryption);
        timeout(HANDSHAKE_WITHIN, let_in).await.map_err(|_| PeerError::Slow(HANDSHAKE_WITHIN))?
    })
}

async fn let_in(
    torrents: &dyn Torrents,
    mut stream: PeerStream,
    address: SocketAddr,
    encryption: EncryptionPolicy,
) -> Result<Peer, PeerError> {
    let is_required = encryption == EncryptionPolicy::Require;
    let methods = Methods { plain: !is_required, rc4: true };
    let theirs = handshake::answer(&mut stream, &torrents.info_hashes(), methods).await?;
    if is_required && !stream.is_encrypted() {
        return Err(PeerError::NotEncrypted);
    }
    let unknown = PeerError::UnknownTorrent(theirs.info_hash);
    let torrent = torrents.find(theirs.info_hash).ok_or(unknown)?;
    let peer_id = torrent.options.identity.peer_id;
    if theirs.peer_id == peer_id {
        return Err(HandshakeError::Ourselves.into());
    }
    let admission = torrent.admit(theirs.peer_id)?;
    // A peer that knows both names of a hybrid torrent may decide for v2 while it waits, as libtorrent
    // does if a tracker answers meanwhile; it takes v1 for an error then.
    let upgrade = torrent.upgrade().filter(|_| theirs.reserved.v2);
    let info_hash = upgrade.unwrap_or(theirs.info_hash);
    let ours = Handshake { reserved: torrent.reserved(), info_hash, peer_id };
    handshake::send(&mut stream, &ours).await?;
    let rtt = stream.rtt().unwrap_or(Duration::ZERO);
    let established = Established { address, is_incoming: true, theirs, rtt, admission };
    Ok(connection::start(torrent, stream, established))
}
