//! Torrents and seeders on loopback.
#![allow(dead_code, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use swath_formats::peer::{Bitfield, PieceLayout};
use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::{Builder, Kind, NewFile};
use swath_model::digest::{Algorithm, Hasher, sha256_tree::Sha256Tree};
use swath_model::path::SafePath;
use swath_model::{Limiter, Range, RangeSet};
use swath_source::peer::{
    EncryptionPolicy, Identity, Peer, PeerEvent, PeerEventKind, Torrent, TorrentOptions, Uploads,
    Utp, accept,
};
use swath_source::{Net, NetOptions, Pending};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

/// Returns a torrent of one file.
pub fn single(kind: Kind, content: &[u8], piece_bytes: u64) -> Arc<Metainfo> {
    let name = SafePath::new("data.bin").unwrap();
    let mut builder = Builder::new(kind, name.clone(), piece_bytes);
    builder.is_single_file = true;
    let mut file = NewFile::new(name, content.len() as u64);
    if kind.has_v2() {
        let mut tree = Sha256Tree::new(piece_bytes);
        tree.update(content);
        file.hashes = tree.finish();
    }
    builder.files.push(file);
    if kind.has_v1() {
        let piece = |piece: &[u8]| Hasher::digest(Algorithm::Sha1, piece).as_bytes().to_vec();
        builder.pieces_v1 = content.chunks(piece_bytes as usize).flat_map(piece).collect();
    }
    Arc::new(builder.build().unwrap())
}

/// The bytes of a torrent's piece space, in memory.
pub struct InMemory(pub Vec<u8>);

impl Uploads for InMemory {
    fn read<'a>(&'a self, range: Range, into: &'a mut Vec<u8>) -> Pending<'a, std::io::Result<()>> {
        Box::pin(async move {
            let bytes = self.0.get(range.start as usize..range.end as usize);
            into.extend_from_slice(bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }
}

/// One side of a swarm.
pub struct Side {
    pub torrent: Arc<Torrent>,
    pub have: watch::Sender<Bitfield>,
    pub events: UnboundedReceiver<PeerEvent>,
}

/// What sets a side apart.
pub struct Made {
    pub encryption: EncryptionPolicy,
    pub upload_bytes_per_s: Option<u64>,
    pub content: Option<Vec<u8>>,
    pub has_all: bool,
    pub timeout: Duration,
    pub utp: Option<Utp>,
}

impl Default for Made {
    fn default() -> Made {
        Made {
            encryption: EncryptionPolicy::default(),
            upload_bytes_per_s: None,
            content: None,
            has_all: false,
            timeout: Duration::from_secs(60),
            utp: None,
        }
    }
}

impl Made {
    /// A seeder of `content`.
    pub fn seeder(content: &[u8]) -> Made {
        Made { content: Some(content.to_vec()), has_all: true, ..Made::default() }
    }

    pub fn side(self, metainfo: &Arc<Metainfo>) -> Side {
        let pieces = metainfo.info.piece_count() as u32;
        let all = if self.has_all { Bitfield::all(pieces) } else { Bitfield::none(pieces) };
        let (have, receiver) = watch::channel(all);
        let (sender, events) = unbounded_channel();
        let options = NetOptions { timeout: self.timeout, ..NetOptions::default() };
        let uploads = self.content.map(|content| Arc::new(InMemory(content)) as Arc<dyn Uploads>);
        let torrent = Torrent::new(TorrentOptions {
            net: Net::new(options).unwrap(),
            utp: self.utp,
            identity: Identity::new(None),
            metainfo: Arc::clone(metainfo),
            have: receiver,
            uploads,
            upload_limiter: Arc::new(Limiter::new(self.upload_bytes_per_s)),
            encryption: self.encryption,
            events: sender,
        });
        Side { torrent, have, events }
    }
}

impl Side {
    /// Lets peers in, serves all of them, and returns where.
    pub async fn listen(&self) -> SocketAddr {
        self.listen_as(EncryptionPolicy::PlainFirst, Peer::unchoke).await
    }

    pub async fn listen_as(&self, encryption: EncryptionPolicy, welcome: fn(&Peer)) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let torrent = Arc::clone(&self.torrent);
        tokio::spawn(async move {
            while let Ok((tcp, from)) = listener.accept().await {
                let torrent = Arc::clone(&torrent);
                tokio::spawn(async move {
                    if let Ok(peer) = accept(&torrent, Box::new(tcp), from, encryption).await {
                        welcome(&peer);
                    }
                });
            }
        });
        address
    }

    /// Waits for the end of a connection.
    pub async fn ended(&mut self) -> swath_source::peer::PeerEnd {
        self.ended_within(Duration::from_secs(90)).await
    }

    pub async fn ended_within(&mut self, limit: Duration) -> swath_source::peer::PeerEnd {
        loop {
            let event = tokio::time::timeout(limit, self.events.recv()).await;
            if let PeerEventKind::Ended(end) = event.expect("an end").expect("events").kind {
                return end;
            }
        }
    }
}

/// The pieces that lie wholly in `held`.
pub fn pieces_of(held: &RangeSet, metainfo: &Metainfo) -> Bitfield {
    let info = &metainfo.info;
    let layout = PieceLayout::new(info.piece_bytes() as u32, info.total_bytes()).unwrap();
    Bitfield::from_ranges(held, layout)
}
