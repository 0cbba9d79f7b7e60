//! Both sides are ours.

use std::cell::RefCell;
use std::sync::Arc;

use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::{Builder, Kind, NewFile};
use swath_model::digest::{Algorithm, Hasher};
use swath_model::path::SafePath;
use swath_model::{Range, RangeSet};
use swath_source::peer::{EncryptionPolicy, Peer, PeerSource, dial};
use swath_source::{Source, Trust, conformance};
use tokio::sync::watch;

use super::support::{Made, pieces_of, single};

#[tokio::test]
async fn a_peer_is_a_source() {
    use EncryptionPolicy::{EncryptedFirst, PlainFirst, Require};
    for (kind, piece_bytes) in [(Kind::V1, 50_000), (Kind::V2, 16_384), (Kind::Hybrid, 65_536)] {
        for encryption in [PlainFirst, EncryptedFirst, Require] {
            let sides = RefCell::new(Vec::new());
            conformance::run(async |content| {
                let metainfo = single(kind, &content, piece_bytes);
                let seeder = Made::seeder(&content).side(&metainfo);
                let address = seeder.listen_as(encryption, Peer::unchoke).await;
                let leecher = Made { encryption, ..Made::default() }.side(&metainfo);
                let source = PeerSource::at(&leecher.torrent, address, Trust::Named);
                sides.borrow_mut().extend([seeder, leecher]);
                source as Arc<dyn Source>
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_peer_with_a_connection_is_a_source() {
    let sides = RefCell::new(Vec::new());
    conformance::run(async |content| {
        let metainfo = single(Kind::V1, &content, 50_000);
        let seeder = Made::seeder(&content).side(&metainfo);
        let address = seeder.listen().await;
        let leecher = Made::default().side(&metainfo);
        let peer = dial(&leecher.torrent, address, Trust::Named).await.unwrap();
        let source = PeerSource::of(&leecher.torrent, peer, Trust::Named);
        sides.borrow_mut().extend([seeder, leecher]);
        source as Arc<dyn Source>
    })
    .await;
}

#[tokio::test]
async fn a_peer_may_gain_pieces() {
    let sides = RefCell::new(Vec::new());
    conformance::run_growing(async |content| {
        // The test's parts end where pieces end.
        let metainfo = single(Kind::V1, &content, 50_000);
        let seeder = Made { content: Some(content), ..Made::default() }.side(&metainfo);
        let address = seeder.listen().await;
        let leecher = Made::default().side(&metainfo);
        let peer = dial(&leecher.torrent, address, Trust::Named).await.unwrap();
        let source = PeerSource::of(&leecher.torrent, peer, Trust::Named);
        let (sender, mut held) = watch::channel(RangeSet::new());
        let have = seeder.have;
        tokio::spawn(async move {
            while held.changed().await.is_ok() {
                have.send_replace(pieces_of(&held.borrow(), &metainfo));
            }
        });
        sides.borrow_mut().push((seeder.torrent, leecher));
        (source as Arc<dyn Source>, sender)
    })
    .await;
}

/// A torrent of which files are selected whose content, with what shares pieces with them, is `content`:
/// its first half lies behind two other pieces, its second half behind three more. Returns also the bytes
/// of all pieces.
fn selected(content: &[u8]) -> (Arc<Metainfo>, Vec<u8>) {
    const PIECE: usize = 16_384;
    let (one, other) = content.split_at(content.len() / 2 / PIECE * PIECE);
    let junk = |pieces: usize| vec![7; pieces * PIECE];
    let space = [junk(2), one.to_vec(), junk(3), other.to_vec()].concat();
    // The files that are not selected end and begin within these halves.
    let cut = other.len().min(4).saturating_sub(1);
    let mut ends = vec![2 * PIECE + 1, 2 * PIECE + one.len() - 2, 5 * PIECE + one.len() + cut];
    if one.is_empty() {
        ends.drain(..2);
    }
    ends.push(space.len());
    let name = |name: &str| SafePath::new(name).unwrap();
    let mut builder = Builder::new(Kind::V1, name("set"), PIECE as u64);
    let mut start = 0;
    for (number, end) in ends.into_iter().enumerate() {
        builder.files.push(NewFile::new(name(&number.to_string()), (end - start) as u64));
        start = end;
    }
    let digest = |piece: &[u8]| Hasher::digest(Algorithm::Sha1, piece).as_bytes().to_vec();
    builder.pieces_v1 = space.chunks(PIECE).flat_map(digest).collect();
    let mut metainfo = builder.build().unwrap();
    metainfo.select(|file| ["1", "3"].contains(&file.path.as_str()));
    assert_eq!(metainfo.piece_map().content_bytes(), content.len() as u64);
    (Arc::new(metainfo), space)
}

#[tokio::test]
async fn a_peer_is_a_source_of_selected_files() {
    let sides = RefCell::new(Vec::new());
    conformance::run(async |content| {
        let (metainfo, space) = selected(&content);
        let seeder = Made::seeder(&space).side(&metainfo);
        let address = seeder.listen().await;
        let leecher = Made::default().side(&metainfo);
        let peer = dial(&leecher.torrent, address, Trust::Named).await.unwrap();
        let source = PeerSource::of(&leecher.torrent, peer, Trust::Named);
        sides.borrow_mut().extend([seeder, leecher]);
        source as Arc<dyn Source>
    })
    .await;
}

#[tokio::test]
async fn pieces_that_are_not_wanted_are_of_no_interest() {
    let (metainfo, space) = selected(&vec![1; 200_000]);
    let seeder = Made { content: Some(space), ..Made::default() }.side(&metainfo);
    let address = seeder.listen().await;
    let leecher = Made::default().side(&metainfo);
    let peer = dial(&leecher.torrent, address, Trust::Named).await.unwrap();
    let mut told = peer.pieces().clone();
    // Interest is decided, and told, in the step that notes the pieces; one thread runs all of them.
    for (end, is_wanted) in [(1, false), (2, false), (3, true)] {
        let held: RangeSet = [Range::new(0, end * 16_384)].into_iter().collect();
        seeder.have.send_replace(pieces_of(&held, &metainfo));
        told.wait_for(|it| u64::from(it.count()) == end).await.unwrap();
        assert_eq!(peer.status().are_we_interested, is_wanted, "{end} pieces");
    }
}
