//! The description of a torrent from a peer, for magnet links: the info dictionary (BEP 9), then the
//! piece layers of a v2 torrent.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use swath_formats::peer::{
    Event, ExtensionHandshake, Handshake, METADATA_PIECE_BYTES, MetadataAssembly, MetadataMessage,
    Reserved, Session, SessionConfig, WireInfoHash,
};
use swath_formats::torrent::metainfo::{Kind, Metainfo};
use swath_formats::torrent::{Info, InfoHash};
use swath_model::Time;
use swath_transport::Utp;
use tokio::time::Instant;

use super::dial::Call;
use super::error::PeerError;
use super::layers::fetch_layers;
use super::stream::PeerStream;
use super::torrent::{EncryptionPolicy, Identity};
use crate::net::Net;
use crate::source::Trust;

/// Whose metadata is fetched, and how.
#[derive(Clone, Copy, Debug)]
pub struct MetadataRequest {
    /// The torrent. Of a hybrid torrent either info-hash will do.
    pub info_hash: InfoHash,
    /// Who we are.
    pub identity: Identity,
    /// Who named the peer's address.
    pub trust: Trust,
    /// Whether the connection is encrypted.
    pub encryption: EncryptionPolicy,
}

/// Fetches the description of a torrent from the peer at `address`, verified by its info-hash: its
/// info dictionary, and for a v2 torrent all piece layers. The peer is reached by TCP, or by `utp`.
///
/// # Errors
/// [`PeerError`] if the peer cannot be reached, does not have it, takes longer than half a minute
/// for the dictionary or for an answer with hashes, or sends something wrong;
/// [`PeerError::Torrent`] if the torrent itself is unusable, whoever sends it.
pub fn fetch_metadata<'a>(
    net: &'a Net,
    utp: Option<&'a Utp>,
    address: SocketAddr,
    request: MetadataRequest,
) -> BoxFuture<'a, Result<Metainfo, PeerError>> {
    Box::pin(async move {
        let info_hash = request.info_hash;
        let fetching = async {
            let mut talk = connect(net, utp, address, request).await?;
            let raw = Fetch { talk: &mut talk, info_hash, assembly: None, asked: 0, came: 0 }.run();
            let raw = raw.await?;
            Ok::<_, PeerError>((raw, talk))
        };
        let within = net.awake().within(METADATA_WITHIN, fetching).await;
        let (raw, mut talk) = within.ok_or(PeerError::Slow(METADATA_WITHIN))??;
        let mut metainfo = Metainfo::of(Info::read(&raw).map_err(PeerError::Torrent)?);
        // The pieces of a hybrid torrent can be verified by their SHA-1.
        if metainfo.info.kind() == Kind::V2 {
            fetch_layers(net, &mut talk, &mut metainfo).await?;
        }
        Ok(metainfo)
    })
}

async fn connect(
    net: &Net,
    utp: Option<&Utp>,
    address: SocketAddr,
    request: MetadataRequest,
) -> Result<Talk, PeerError> {
    let v2 = matches!(request.info_hash, InfoHash::V2(_));
    let reserved = Reserved { extended: true, fast: true, dht: false, v2 };
    let ours = Handshake {
        reserved,
        info_hash: WireInfoHash::from(request.info_hash),
        peer_id: request.identity.peer_id,
    };
    let MetadataRequest { trust, encryption: policy, .. } = request;
    let to = net.permitted_peer(address, trust)?;
    let call = Call { to, ours, upgrade: None, policy, utp };
    let (stream, theirs, _) = call.connect(net).await?;
    let config = SessionConfig {
        handshake: ExtensionHandshake {
            client: Some(concat!("swath ", env!("CARGO_PKG_VERSION")).to_owned()),
            port: request.identity.port,
            ..ExtensionHandshake::default()
        },
        ..SessionConfig::default()
    };
    let session = Session::new(Time::ZERO, reserved, theirs.reserved, None, config);
    if !session.agreed().extended {
        return Err(PeerError::NoMetadata);
    }
    Ok(Talk { stream, session, begin: Instant::now() })
}

/// A connection without payloads.
pub(super) struct Talk {
    stream: PeerStream,
    pub(super) session: Session,
    begin: Instant,
}

impl Talk {
    /// Sends what waits, and returns the next event.
    pub(super) async fn event(&mut self) -> Result<Event, PeerError> {
        loop {
            if let Some(event) = self.session.poll_event() {
                return Ok(event);
            }
            let now = Time::ZERO + self.begin.elapsed();
            let used = self.session.handle_input(now, self.stream.input())?;
            self.stream.consume(used);
            let mut out = Vec::new();
            self.session.poll_transmit(now, &mut out);
            self.stream.push(out);
            self.stream.send_all().await.map_err(|error| PeerError::io(&error))?;
            if used == 0 {
                match self.stream.read_more().await {
                    Ok(0) => return Err(PeerError::NoMetadata),
                    Ok(_) => {}
                    Err(error) => return Err(PeerError::io(&error)),
                }
            }
        }
    }
}

/// An info dictionary that arrives.
struct Fetch<'a> {
    talk: &'a mut Talk,
    info_hash: InfoHash,
    assembly: Option<MetadataAssembly>,
    /// Pieces that were asked for, from the first on, and how many came.
    asked: u32,
    came: u32,
}

impl Fetch<'_> {
    async fn run(mut self) -> Result<Vec<u8>, PeerError> {
        loop {
            let event = self.talk.event().await?;
            if let Some(metadata) = self.happened(event)? {
                return Ok(metadata);
            }
        }
    }

    /// Returns the metadata when it is complete.
    fn happened(&mut self, event: Event) -> Result<Option<Vec<u8>>, PeerError> {
        match event {
            Event::Handshake if self.assembly.is_none() => {
                let bytes = self.talk.session.peer_handshake().metadata_bytes;
                let bytes = bytes.ok_or(PeerError::NoMetadata)?;
                self.assembly = Some(MetadataAssembly::new(self.info_hash, bytes)?);
                self.ask(bytes);
            }
            Event::Metadata(MetadataMessage::Data { piece, total_bytes, data }) => {
                let Some(assembly) = &mut self.assembly else { return Ok(None) };
                if let Some(metadata) = assembly.insert(piece, total_bytes, &data)? {
                    return Ok(Some(metadata));
                }
                self.came += 1;
                self.ask(total_bytes);
            }
            Event::Metadata(MetadataMessage::Reject { .. }) => return Err(PeerError::NoMetadata),
            _ => {}
        }
        Ok(None)
    }

    /// Asks for the next pieces, a few at a time: peers refuse to queue much of that.
    fn ask(&mut self, total_bytes: u32) {
        let pieces = total_bytes.div_ceil(METADATA_PIECE_BYTES);
        while self.asked < pieces.min(self.came + OUTSTANDING_MAX) {
            self.talk.session.send_metadata(&MetadataMessage::Request { piece: self.asked });
            self.asked += 1;
        }
    }
}

/// libtorrent refuses while ten pieces wait to be sent.
const OUTSTANDING_MAX: u32 = 4;
/// Metadata is small; a peer that needs longer is not worth waiting for.
const METADATA_WITHIN: Duration = Duration::from_secs(30);
