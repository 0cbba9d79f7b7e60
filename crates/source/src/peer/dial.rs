//! Connecting to a peer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use swath_formats::peer::encryption::Methods;
use swath_formats::peer::{Handshake, WireInfoHash};

use super::connection::{self, Established};
use super::error::PeerError;
use super::handle::Peer;
use super::handshake;
use super::stream::PeerStream;
use super::torrent::{EncryptionPolicy, Torrent};
use crate::net::Net;
use crate::source::Trust;

/// Connects to a peer of `torrent`. Its connection lives until either side closes it.
///
/// `trust` says who named the address: one from the network must not lead into networks that the
/// user's own sources are not in.
///
/// # Errors
/// [`PeerError`] if there is no connection.
pub async fn dial(
    torrent: &Arc<Torrent>,
    address: SocketAddr,
    trust: Trust,
) -> Result<Peer, PeerError> {
    let options = &torrent.options;
    let Some(&info_hash) = torrent.info_hashes().first() else {
        return Err(PeerError::NoMetadata);
    };
    let ours =
        Handshake { reserved: torrent.reserved(), info_hash, peer_id: options.identity.peer_id };
    let call =
        Call { address, trust, ours, upgrade: torrent.upgrade(), policy: options.encryption };
    let (stream, theirs, rtt) = call.connect(&options.net).await?;
    let admission = torrent.admit(theirs.peer_id)?;
    let established = Established { address, is_incoming: false, theirs, rtt, admission };
    Ok(connection::start(Arc::clone(torrent), stream, established))
}

/// Whom to connect to, and what to say.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub address: SocketAddr,
    pub trust: Trust,
    pub ours: Handshake,
    /// The truncated v2 info-hash, if the peer may answer with that.
    pub upgrade: Option<WireInfoHash>,
    pub policy: EncryptionPolicy,
}

impl Call {
    /// Connects, by the first way that the peer takes. Returns the peer's handshake and the round
    /// trip.
    pub async fn connect(self, net: &Net) -> Result<(PeerStream, Handshake, Duration), PeerError> {
        let encrypted =
            Some(Methods { plain: self.policy != EncryptionPolicy::Require, rc4: true });
        let ways = match self.policy {
            EncryptionPolicy::PlainFirst => &[None, encrypted][..],
            EncryptionPolicy::EncryptedFirst => &[encrypted, None],
            EncryptionPolicy::Require => &[encrypted],
        };
        let mut result = Err(PeerError::Closed);
        for &methods in ways {
            result = self.connect_by(net, methods).await;
            if !matches!(&result, Err(error) if error.may_be_encryption()) {
                break;
            }
        }
        result
    }

    async fn connect_by(
        self,
        net: &Net,
        methods: Option<Methods>,
    ) -> Result<(PeerStream, Handshake, Duration), PeerError> {
        let (tcp, rtt) = net.connect_peer(self.address, self.trust).await?;
        let mut stream = PeerStream::new(tcp);
        let called = handshake::call(&mut stream, &self.ours, methods);
        let within = net.awake().within(HANDSHAKE_WITHIN, called).await;
        let theirs = within.ok_or(PeerError::Slow(HANDSHAKE_WITHIN))??;
        self.ours.check_answer(&theirs, self.upgrade)?;
        Ok((stream, theirs, rtt))
    }
}

/// Peers answer within some round trips; who does not has no place for us.
pub(super) const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
