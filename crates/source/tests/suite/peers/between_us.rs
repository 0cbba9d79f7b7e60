//! Both sides are ours.

use std::cell::RefCell;
use std::sync::Arc;

use swath_formats::torrent::metainfo::Kind;
use swath_model::RangeSet;
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
