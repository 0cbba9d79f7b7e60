//! Connecting to a peer.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_formats::peer::encryption::Methods;
use swath_formats::peer::{Handshake, WireInfoHash};
use swath_transport::{Transport, Utp};
use tokio::time::timeout;

use super::connection::{self, Established};
use super::error::PeerError;
use super::handle::Peer;
use super::handshake;
use super::stream::PeerStream;
use super::torrent::{EncryptionPolicy, Torrent};
use crate::error::LaneError;
use crate::net::{Net, Permitted};
use crate::source::Trust;

/// Connects to a peer of `torrent`. Its connection lives until either side closes it.
///
/// `trust` says who named the address: one from the network must not lead into networks that the
/// user's own sources are not in.
///
/// # Errors
/// [`PeerError`] if there is no connection.
pub fn dial<'a>(
    torrent: &'a Arc<Torrent>,
    address: SocketAddr,
    trust: Trust,
) -> BoxFuture<'a, Result<Peer, PeerError>> {
    Box::pin(async move {
        let options = &torrent.options;
        let Some(&info_hash) = torrent.info_hashes().first() else {
            return Err(PeerError::NoMetadata);
        };
        let ours = Handshake {
            reserved: torrent.reserved(),
            info_hash,
            peer_id: options.identity.peer_id,
        };
        let (upgrade, policy, utp) = (torrent.upgrade(), options.encryption, options.utp.as_ref());
        let to = options.net.permitted_peer(address, trust)?;
        let call = Call { to, ours, upgrade, policy, utp };
        let (stream, theirs, rtt) = call.connect(&options.net).await?;
        let admission = torrent.admit(theirs.peer_id)?;
        let established = Established { address, is_incoming: false, theirs, rtt, admission };
        Ok(connection::start(Arc::clone(torrent), stream, established))
    })
}

/// Whom to connect to, and what to say.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub to: Permitted,
    pub ours: Handshake,
    /// The truncated v2 info-hash, if the peer may answer with that.
    pub upgrade: Option<WireInfoHash>,
    pub policy: EncryptionPolicy,
    /// What makes connections by uTP, where it is spoken.
    pub utp: Option<&'a Utp>,
}

/// A connection and its round trip.
type Connected = (Box<dyn Transport>, Duration);
/// The same after the handshake, and what the peer said in it.
type Agreed = (PeerStream, Handshake, Duration);

impl Call<'_> {
    /// Connects, by the first way that the peer takes. Returns the peer's handshake and the round
    /// trip.
    pub async fn connect(self, net: &Net) -> Result<Agreed, PeerError> {
        let agreed = self.agree(net, false).await;
        match &agreed {
            // So does a peer that wants uTP only, and a firewall that knows BitTorrent.
            Err(PeerError::Closed) if self.utp.is_some() => self.agree(net, true).await.or(agreed),
            _ => agreed,
        }
    }

    /// Connects, encrypted or not; `by_utp` only, or by what gets through first.
    async fn agree(self, net: &Net, by_utp: bool) -> Result<Agreed, PeerError> {
        let encrypted =
            Some(Methods { plain: self.policy != EncryptionPolicy::Require, rc4: true });
        let ways = match self.policy {
            EncryptionPolicy::PlainFirst => &[None, encrypted][..],
            EncryptionPolicy::EncryptedFirst => &[encrypted, None],
            EncryptionPolicy::Require => &[encrypted],
        };
        let mut result = Err(PeerError::Closed);
        for &methods in ways {
            result = self.connect_by(net, by_utp, methods).await;
            if !matches!(&result, Err(error) if error.may_be_encryption()) {
                break;
            }
        }
        result
    }

    async fn connect_by(
        self,
        net: &Net,
        by_utp: bool,
        methods: Option<Methods>,
    ) -> Result<Agreed, PeerError> {
        let (transport, rtt) = match by_utp {
            true => self.by_utp().await.map_err(|error| PeerError::io(&error))?,
            false => self.reach(net).await?,
        };
        let mut stream = PeerStream::new(transport);
        let called = handshake::call(&mut stream, &self.ours, methods);
        let within = net.awake().within(HANDSHAKE_WITHIN, called).await;
        let theirs = within.ok_or(PeerError::Slow(HANDSHAKE_WITHIN))??;
        self.ours.check_answer(&theirs, self.upgrade)?;
        Ok((stream, theirs, rtt))
    }

    /// Returns a connection and its round trip: by TCP, or by uTP if that fails or takes long.
    async fn reach(self, net: &Net) -> Result<Connected, LaneError> {
        if self.utp.is_none() {
            return self.by_tcp(net).await;
        }
        let mut by_tcp = pin!(self.by_tcp(net));
        match timeout(HEAD_START, &mut by_tcp).await {
            Ok(Err(error @ LaneError::Connect { .. })) => self.by_utp().await.map_err(|_| error),
            Ok(reached) => reached,
            Err(_) => tokio::select! {
                Ok(connected) = self.by_utp() => Ok(connected),
                reached = by_tcp => reached,
            },
        }
    }

    async fn by_tcp(self, net: &Net) -> Result<Connected, LaneError> {
        let (tcp, rtt) = net.connect_peer(self.to).await?;
        Ok((Box::new(tcp), rtt))
    }

    async fn by_utp(self) -> io::Result<Connected> {
        let utp = self.utp.ok_or(io::ErrorKind::Unsupported)?;
        let stream = utp.connect(self.to.address()).await?;
        let rtt = stream.rtt().unwrap_or_default();
        Ok((Box::new(stream), rtt))
    }
}

/// Peers answer within some round trips; who does not has no place for us.
pub(super) const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Where TCP gets through, it is there by then, with one packet lost on the way.
const HEAD_START: Duration = Duration::from_secs(2);
