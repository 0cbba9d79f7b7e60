//! Addresses of peers, told by peers (BEP 11, `ut_pex`). Never used for private torrents (BEP 27).
//!
//! What a peer tells is untrusted: each message is cut to [`EXCHANGED_PEERS_MAX`] addresses of each
//! kind, and addresses without a port are left out.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::ExtensionError;
use crate::torrent::bencode::{self, Value, Writer};

/// The peers to which a peer has connected, and from which it has parted, since its last message.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PeerExchange {
    /// New connections.
    pub added: Vec<ExchangedPeer>,
    /// Connections that have ended.
    pub dropped: Vec<SocketAddr>,
}

/// A peer to which the sender is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangedPeer {
    /// Its address and TCP (or uTP) port.
    pub address: SocketAddr,
    /// What the sender knows of it.
    pub flags: PeerFlags,
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PeerFlags(u8);

#[allow(missing_docs, reason = "the getters below say what the flags mean")]
impl PeerFlags {
    pub const PREFERS_ENCRYPTION: PeerFlags = PeerFlags(0x01);
    pub const SEED: PeerFlags = PeerFlags(0x02);
    pub const UTP: PeerFlags = PeerFlags(0x04);
    pub const HOLEPUNCH: PeerFlags = PeerFlags(0x08);
    pub const REACHABLE: PeerFlags = PeerFlags(0x10);
}

impl PeerFlags {
    /// Returns these flags and those of `other`.
    pub fn with(self, other: PeerFlags) -> PeerFlags {
        PeerFlags(self.0 | other.0)
    }

    /// Returns whether all flags of `other` are set.
    pub fn has(self, other: PeerFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl PeerExchange {
    /// Reads the payload of a `ut_pex` message.
    ///
    /// # Errors
    /// [`ExtensionError`] if it is not a dictionary, or a list of addresses is cut off.
    pub fn decode(payload: &[u8]) -> Result<PeerExchange, ExtensionError> {
        let mut told = PeerExchange::default();
        let (mut added, mut added6) = (Vec::new(), Vec::new());
        let (mut flags, mut flags6) = (&[][..], &[][..]);
        let entries = bencode::read(payload)?.value.dict().ok_or(ExtensionError::NoDictionary)?;
        for (key, value) in entries {
            match key {
                b"added" => added = addresses::<6>(value, "added", v4)?,
                b"added6" => added6 = addresses::<18>(value, "added6", v6)?,
                b"added.f" => flags = value.bytes().unwrap_or_default(),
                b"added6.f" => flags6 = value.bytes().unwrap_or_default(),
                b"dropped" => told.dropped.extend(addresses::<6>(value, "dropped", v4)?),
                b"dropped6" => told.dropped.extend(addresses::<18>(value, "dropped6", v6)?),
                _ => {}
            }
        }
        for (addresses, flags) in [(added, flags), (added6, flags6)] {
            let flags = flags.iter().copied().chain(std::iter::repeat(0)).map(PeerFlags);
            let peers = addresses.into_iter().zip(flags);
            told.added.extend(peers.map(|(address, flags)| ExchangedPeer { address, flags }));
        }
        told.added.retain(|peer| peer.address.port() != 0);
        told.dropped.retain(|address| address.port() != 0);
        Ok(told)
    }

    /// Returns the payload of a `ut_pex` message. BEP 11 allows one a minute, with 50 added and 50
    /// dropped peers, more only in the first.
    pub fn encode(&self) -> Vec<u8> {
        let is_v4 = |address: &SocketAddr| address.is_ipv4();
        let added = |v4: bool| self.added.iter().filter(move |peer| is_v4(&peer.address) == v4);
        let dropped = |v4: bool| self.dropped.iter().filter(move |it| is_v4(it) == v4);
        let flags = |v4| added(v4).map(|peer| peer.flags.0).collect::<Vec<_>>();
        let mut out = Writer::new();
        // Keys in ascending order.
        out.dict();
        out.text("added").bytes(&compact(added(true).map(|peer| &peer.address)));
        out.text("added.f").bytes(&flags(true));
        out.text("added6").bytes(&compact(added(false).map(|peer| &peer.address)));
        out.text("added6.f").bytes(&flags(false));
        out.text("dropped").bytes(&compact(dropped(true)));
        out.text("dropped6").bytes(&compact(dropped(false)));
        out.end();
        out.finish()
    }
}

/// Reads addresses of `N` bytes in a row.
fn addresses<const N: usize>(
    value: Value<'_>,
    key: &'static str,
    read: impl Fn(&[u8; N]) -> Option<SocketAddr>,
) -> Result<Vec<SocketAddr>, ExtensionError> {
    let (addresses, []) = value.bytes().ok_or(ExtensionError::Value(key))?.as_chunks::<N>() else {
        return Err(ExtensionError::Value(key));
    };
    Ok(addresses.iter().take(EXCHANGED_PEERS_MAX).filter_map(read).collect())
}

fn v4(bytes: &[u8; 6]) -> Option<SocketAddr> {
    let address = Ipv4Addr::from(*bytes.first_chunk::<4>()?);
    Some(SocketAddr::from((address, port(bytes)?)))
}

fn v6(bytes: &[u8; 18]) -> Option<SocketAddr> {
    let address = Ipv6Addr::from(*bytes.first_chunk::<16>()?);
    Some(SocketAddr::from((address, port(bytes)?)))
}

fn port(bytes: &[u8]) -> Option<u16> {
    bytes.last_chunk().map(|port| u16::from_be_bytes(*port))
}

/// Returns addresses in a row: 4 or 16 bytes, and the port.
fn compact<'a>(addresses: impl Iterator<Item = &'a SocketAddr>) -> Vec<u8> {
    let mut out = Vec::new();
    for address in addresses {
        match address {
            SocketAddr::V4(address) => out.extend_from_slice(&address.ip().octets()),
            SocketAddr::V6(address) => out.extend_from_slice(&address.ip().octets()),
        }
        out.extend_from_slice(&address.port().to_be_bytes());
    }
    out
}

/// Addresses taken from one list of one message. The first message of a peer may be long.
pub const EXCHANGED_PEERS_MAX: usize = 200;
