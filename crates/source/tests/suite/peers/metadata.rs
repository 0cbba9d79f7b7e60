//! What a magnet link needs of a peer: the info dictionary, and the piece layers of a v2 torrent.

use std::net::SocketAddr;
use std::sync::Arc;

use swath_formats::peer::{
    Event, ExtensionHandshake, Handshake, MetadataMessage, PeerId, Reserved, Session,
    SessionConfig, WireInfoHash,
};
use swath_formats::torrent::metainfo::{Builder, Kind, NewFile};
use swath_formats::torrent::{InfoHash, Metainfo};
use swath_model::digest::sha256_tree::{MerkleHash, Sha256Tree};
use swath_model::path::SafePath;
use swath_model::{Range, Time};
use swath_source::peer::{EncryptionPolicy, Identity, MetadataRequest, PeerError, fetch_metadata};
use swath_source::{Net, NetOptions, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::support::Made;
use crate::support::content;

const PIECE_BYTES: u64 = 16_384;

/// A v2 torrent of these files.
fn torrent(files: &[(&str, &[u8])]) -> Arc<Metainfo> {
    let mut builder = Builder::new(Kind::V2, SafePath::new("data").unwrap(), PIECE_BYTES);
    for (name, content) in files {
        let mut tree = Sha256Tree::new(PIECE_BYTES);
        tree.update(content);
        let mut file = NewFile::new(SafePath::new(name).unwrap(), content.len() as u64);
        file.hashes = tree.finish();
        builder.files.push(file);
    }
    Arc::new(builder.build().unwrap())
}

async fn fetched(metainfo: &Metainfo, address: SocketAddr) -> Result<Metainfo, PeerError> {
    let request = MetadataRequest {
        info_hash: InfoHash::V2(metainfo.info.hash_v2().unwrap()),
        identity: Identity::new(None),
        trust: Trust::Named,
        encryption: EncryptionPolicy::PlainFirst,
    };
    fetch_metadata(&Net::new(NetOptions::default()).unwrap(), None, address, request).await
}

#[tokio::test]
async fn all_piece_layers_come_with_it() {
    // The layer of the first file needs several requests, the last of which reaches behind its end.
    let large = content(Range::new(0, 1_200 * PIECE_BYTES + 5));
    let of_pieces = |pieces: u64, more: u64| &large[..(pieces * PIECE_BYTES + more) as usize];
    let metainfo = torrent(&[
        ("a", &large),
        ("b", of_pieces(2, 0)),
        ("c", of_pieces(1, 0)),
        ("d", of_pieces(512, 1)),
        ("e", of_pieces(2, 0)),
        ("f", b""),
        ("g", b"small"),
    ]);
    let seeder = Made::default().side(&metainfo);
    let fetched = fetched(&metainfo, seeder.listen().await).await.unwrap();
    assert_eq!(fetched, *metainfo);
    assert!(fetched.has_piece_layers());
}

#[tokio::test]
async fn a_peer_without_the_layers_says_so() {
    let metainfo = torrent(&[("a", &content(Range::new(0, 3 * PIECE_BYTES)))]);
    let without = Arc::new(Metainfo::of(metainfo.info.clone()));
    let seeder = Made::default().side(&without);
    let error = fetched(&metainfo, seeder.listen().await).await.unwrap_err();
    assert_eq!(error, PeerError::NoHashes);
}

#[tokio::test]
async fn wrong_hashes_are_found_out() {
    let metainfo = torrent(&[("a", &content(Range::new(0, 3 * PIECE_BYTES)))]);
    let address = liar(&metainfo, |hashes| hashes[2][0] ^= 1).await;
    let error = fetched(&metainfo, address).await.unwrap_err();
    assert!(matches!(error, PeerError::Hashes(_)), "{error}");
    // What it fills up with is of no matter.
    let address = liar(&metainfo, |hashes| hashes[3][0] ^= 1).await;
    assert_eq!(fetched(&metainfo, address).await.as_ref(), Ok(&*metainfo));
    let address = liar(&metainfo, |hashes| hashes.truncate(2)).await;
    let error = fetched(&metainfo, address).await.unwrap_err();
    assert!(matches!(error, PeerError::Fault(_)), "{error}");
}

/// A peer that changes the hashes of a torrent of one file before it sends them.
async fn liar(metainfo: &Arc<Metainfo>, change: fn(&mut Vec<MerkleHash>)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let metainfo = Arc::clone(metainfo);
    tokio::spawn(async move {
        let reserved = Reserved { extended: true, fast: true, dht: false, v2: true };
        let info = &metainfo.info;
        let info_hash = WireInfoHash::from(InfoHash::V2(info.hash_v2().unwrap()));
        let mut first = Vec::new();
        Handshake { reserved, info_hash, peer_id: PeerId([9; 20]) }.encode(&mut first);
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.read_exact(&mut [0; 68]).await.unwrap();
        tcp.write_all(&first).await.unwrap();
        let metadata_bytes = Some(info.raw().len() as u32);
        let handshake = ExtensionHandshake { metadata_bytes, ..ExtensionHandshake::default() };
        let config = SessionConfig { handshake, ..SessionConfig::default() };
        let mut session = Session::new(Time::ZERO, reserved, reserved, None, config);
        let mut input = Vec::new();
        loop {
            let used = session.handle_input(Time::ZERO, &input).unwrap();
            input.drain(..used);
            while let Some(event) = session.poll_event() {
                match event {
                    Event::Metadata(MetadataMessage::Request { piece: 0 }) => {
                        let (total_bytes, data) = (info.raw().len() as u32, info.raw().to_vec());
                        let data = MetadataMessage::Data { piece: 0, total_bytes, data };
                        session.send_metadata(&data);
                    }
                    Event::HashesRequested(range) => {
                        let layer = metainfo.piece_layer(&info.files()[0]).unwrap();
                        let mut hashes = layer.to_vec();
                        hashes.resize(range.length as usize, [0; 32]);
                        change(&mut hashes);
                        session.send_hashes(range, &hashes);
                    }
                    _ => {}
                }
            }
            let mut out = Vec::new();
            session.poll_transmit(Time::ZERO, &mut out);
            if tcp.write_all(&out).await.is_err()
                || tcp.read_buf(&mut input).await.unwrap_or(0) == 0
            {
                return;
            }
        }
    });
    address
}
