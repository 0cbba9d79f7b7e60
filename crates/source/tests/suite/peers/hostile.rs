//! Peers that break the rules, stall, or flood.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use swath_formats::peer::{
    Bitfield, Block, HANDSHAKE_BYTES, Handshake, Message, PeerFault, PeerId, PieceIndex, Reserved,
    Violation, WireInfoHash,
};
use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::Kind;
use swath_model::{LaneId, Pool, Range, SwathId};
use swath_source::peer::{EncryptionPolicy, Peer, PeerEnd, PeerError, PeerSource, accept, dial};
use swath_source::{Class, LaneError, LaneEventKind, Source, Trust};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

use super::support::{Made, single};
use crate::support::content;

const RESERVED: Reserved = Reserved { extended: false, fast: true, dht: false, v2: false };
const PATIENCE: Duration = Duration::from_secs(90);

fn torrent() -> (Vec<u8>, Arc<Metainfo>) {
    let content = content(Range::new(0, 1_000_000));
    let metainfo = single(Kind::V1, &content, 65_536);
    (content, metainfo)
}

fn handshake(metainfo: &Metainfo, id: u8) -> Handshake {
    let hash = metainfo.info.hash_v1().unwrap();
    Handshake { reserved: RESERVED, info_hash: WireInfoHash(hash.0), peer_id: PeerId([id; 20]) }
}

fn encoded(handshake: &Handshake, messages: &[Message<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    handshake.encode(&mut bytes);
    messages.iter().for_each(|message| message.encode(&mut bytes));
    bytes
}

/// Connects as a peer that sends these bytes.
async fn caller(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(bytes).await.unwrap();
    tcp
}

/// A peer that answers each connection by these bytes and then keeps quiet.
async fn answerer(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut tcp, _)) = listener.accept().await {
            let _ = tcp.read_exact(&mut [0; 68]).await;
            let _ = tcp.write_all(&bytes).await;
            kept.push(tcp);
        }
    });
    address
}

async fn closes(tcp: &mut TcpStream) {
    let mut rest = Vec::new();
    let end = timeout(PATIENCE, tcp.read_to_end(&mut rest)).await.expect("it is closed");
    assert!(end.is_ok() || end.is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionReset));
}

/// Fetches the whole; the last error of a swath or lane.
async fn error_of(source: Arc<PeerSource>) -> LaneError {
    let (sender, mut events) = unbounded_channel();
    let pool = Pool::new(4, 16 << 10);
    let lane = (source as Arc<dyn Source>).open_lane(LaneId(0), &pool, sender);
    lane.fetch(SwathId(0), Range::new(0, 1_000_000));
    loop {
        let event = timeout(PATIENCE, events.recv()).await.expect("an event").expect("events");
        match event.kind {
            LaneEventKind::Failed { error, .. } => return error,
            LaneEventKind::Closed { error, .. } => return error.expect("an error"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_lies() {
    let (_, metainfo) = torrent();
    let hello = handshake(&metainfo, 1);
    let block = Block { piece: PieceIndex(0), begin: 0, length: 16_384 };
    for message in [
        Message::Have(PieceIndex(1000)),
        Message::Bitfield(&[0xff; 100]),
        Message::Piece(block),
        Message::Reject(block),
        Message::Extended { id: 0, payload: b"i1e" },
    ] {
        let mut bytes = encoded(&hello, &[message]);
        bytes.resize(bytes.len() + 20_000, 0);
        let leecher = Made::default().side(&metainfo);
        let address = answerer(bytes).await;
        let source = PeerSource::at(&leecher.torrent, address, Trust::Named);
        let error = error_of(source).await;
        assert!(matches!(error, LaneError::PeerFault(_)), "{message:?}: {error:?}");
        assert_eq!(error.class(), Class::Lying);
    }
}

#[tokio::test]
async fn what_is_no_peer_of_the_torrent_is_none() {
    let (_, metainfo) = torrent();
    let leecher = Made::default().side(&metainfo);
    let other = Handshake { info_hash: WireInfoHash([9; 20]), ..handshake(&metainfo, 1) };
    for (bytes, class) in [
        (encoded(&other, &[]), Class::Missing),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Class::Transient),
    ] {
        let source = PeerSource::at(&leecher.torrent, answerer(bytes).await, Trust::Named);
        let dialled = timeout(PATIENCE * 2, source.describe()).await.expect("an end");
        let error = dialled.unwrap_err();
        assert_eq!(error.class(), class, "{error}");
    }
}

/// A caller that decided for v2 while it waited refused the v1 answer, and came back after a minute.
#[tokio::test]
async fn a_caller_that_knows_v2_is_answered_with_v2() {
    let content = content(Range::new(0, 200_000));
    for (kind, knows_v2, is_upgraded) in
        [(Kind::Hybrid, true, true), (Kind::Hybrid, false, false), (Kind::V1, true, false)]
    {
        let metainfo = single(kind, &content, 65_536);
        let address = {
            let seeder = Made::seeder(&content).side(&metainfo);
            seeder.listen().await
        };
        let reserved = Reserved { v2: knows_v2, ..RESERVED };
        let ours = Handshake { reserved, ..handshake(&metainfo, 1) };
        let mut tcp = caller(address, &encoded(&ours, &[])).await;
        let mut answer = [0; HANDSHAKE_BYTES];
        timeout(PATIENCE, tcp.read_exact(&mut answer)).await.expect("an answer").unwrap();
        let theirs = Handshake::decode(&answer).unwrap().unwrap();
        let v2 = metainfo.info.hash_v2().map(|hash| WireInfoHash(hash.truncated()));
        let wanted = if is_upgraded { v2.unwrap() } else { ours.info_hash };
        assert_eq!(theirs.info_hash, wanted, "{kind:?} {knows_v2}");
    }
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_left() {
    let (_, metainfo) = torrent();
    let mut seeder = Made::default().side(&metainfo);
    let address = seeder.listen().await;
    // Behind the handshake.
    let mut silent = caller(address, &encoded(&handshake(&metainfo, 1), &[])).await;
    silent.read_exact(&mut [0; HANDSHAKE_BYTES]).await.unwrap();
    // In it.
    let mut more_silent = TcpStream::connect(address).await.unwrap();
    tokio::time::pause();
    closes(&mut more_silent).await;
    let end = seeder.ended_within(Duration::from_secs(400)).await;
    assert!(matches!(end, PeerEnd::Silent(_)), "{end:?}");
}

#[tokio::test]
async fn a_flood_of_requests_ends_the_connection() {
    let (content, metainfo) = torrent();
    let mut seeder = Made::seeder(&content).side(&metainfo);
    // Nobody is unchoked.
    let address = seeder.listen_as(EncryptionPolicy::PlainFirst, |_| ()).await;
    let block = Block { piece: PieceIndex(1), begin: 0, length: 16_384 };
    let requests = vec![Message::Request(block); 50_000];
    let bytes = encoded(&handshake(&metainfo, 1), &requests);
    let tcp = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = tcp.into_split();
    tokio::spawn(async move { write.write_all(&bytes).await });
    tokio::spawn(async move { tokio::io::copy(&mut read, &mut tokio::io::sink()).await });
    let end = seeder.ended().await;
    let PeerEnd::Fault(PeerFault { violation: Violation::Flood, .. }) = end else {
        panic!("{end:?}");
    };
}

#[tokio::test]
async fn who_asks_and_does_not_read_is_not_heard_for_ever() {
    let (content, metainfo) = torrent();
    let seeder = Made::seeder(&content).side(&metainfo);
    let address = seeder.listen().await;
    let block = |piece: u32| Block { piece: PieceIndex(piece % 15), begin: 0, length: 16_384 };
    let requests: Vec<Message> = (0..100_000).map(|at| Message::Request(block(at))).collect();
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(&encoded(&handshake(&metainfo, 1), &[])).await.unwrap();
    tcp.read_exact(&mut [0; HANDSHAKE_BYTES]).await.unwrap();
    let mut bytes = Vec::new();
    requests.iter().for_each(|message| message.encode(&mut bytes));
    // It takes some of it, and then lets the peer wait; the kernel holds some more. The clock goes on when
    // there is nothing more to do.
    tokio::time::pause();
    let mut asked = 0;
    let ended = loop {
        match timeout(Duration::from_secs(3), tcp.write_all(&bytes)).await {
            Ok(Ok(())) if asked < 50 => asked += 1,
            wrote => break wrote,
        }
    };
    assert!(ended.is_err() || ended.is_ok_and(|it| it.is_err()), "it reads 5,000,000 requests");
}

/// libtorrent 2.0 (qBittorrent 4) takes the last piece of a v2 torrent for one as long as the others.
#[tokio::test]
async fn behind_the_last_byte_there_are_zeros() {
    let (content, metainfo) = torrent();
    let seeder = Made::seeder(&content).side(&metainfo);
    let address = seeder.listen().await;
    let last = PieceIndex(15);
    let mut tcp = caller(address, &encoded(&handshake(&metainfo, 1), &[Message::Interested])).await;
    tcp.read_exact(&mut [0; 68]).await.unwrap();
    for (begin, there) in [(16_384, 576), (32_768, 0)] {
        let mut request = Vec::new();
        Message::Request(Block { piece: last, begin, length: 16_384 }).encode(&mut request);
        tcp.write_all(&request).await.unwrap();
        let message = loop {
            let mut message = vec![0; tcp.read_u32().await.unwrap() as usize];
            tcp.read_exact(&mut message).await.unwrap();
            if message.first() == Some(&7) {
                break message;
            }
        };
        let mut expected = content[content.len() - there..].to_vec();
        expected.resize(16_384, 0);
        assert!(message[9..] == expected, "{begin}");
    }
}

#[tokio::test]
async fn nobody_is_connected_twice_or_to_himself() {
    let (content, metainfo) = torrent();
    let seeder = Made::seeder(&content).side(&metainfo);
    let address = seeder.listen().await;
    let itself = dial(&seeder.torrent, address, Trust::Named).await;
    assert!(itself.is_err(), "{itself:?}");
    let bytes = encoded(&handshake(&metainfo, 7), &[]);
    let mut first = caller(address, &bytes).await;
    first.read_exact(&mut [0; 68]).await.unwrap();
    closes(&mut caller(address, &bytes).await).await;
    // Another one is welcome, and the first one once more when it has left.
    let mut other = caller(address, &encoded(&handshake(&metainfo, 8), &[])).await;
    other.read_exact(&mut [0; 68]).await.unwrap();
    drop(first);
    let mut seeder = seeder;
    assert_eq!(seeder.ended().await, PeerEnd::Left);
    caller(address, &bytes).await.read_exact(&mut [0; 68]).await.unwrap();
}

#[tokio::test]
async fn programs_of_ours_have_several_connections() {
    let (content, metainfo) = torrent();
    let seeder = Made::seeder(&content).side(&metainfo);
    let address = seeder.listen().await;
    let leecher = Made::default().side(&metainfo);
    let mut peers: Vec<Peer> = Vec::new();
    let refused = loop {
        match dial(&leecher.torrent, address, Trust::Named).await {
            Ok(peer) => peers.push(peer),
            Err(error) => break error,
        }
    };
    assert_eq!(peers.len(), 16);
    // Each side counts, and either may be the first to refuse.
    assert!(matches!(refused, PeerError::Duplicate | PeerError::Closed), "{refused:?}");
    assert!(peers[0].id().client().starts_with("swath"));
}

#[tokio::test]
async fn what_must_be_encrypted_is() {
    let (content, metainfo) = torrent();
    let seeder = Made::seeder(&content).side(&metainfo);
    let strict = seeder.listen_as(EncryptionPolicy::Require, Peer::unchoke).await;
    let mut plain = caller(strict, &encoded(&handshake(&metainfo, 1), &[])).await;
    closes(&mut plain).await;
    let leecher = Made::default().side(&metainfo);
    let peer = dial(&leecher.torrent, strict, Trust::Named).await.unwrap();
    assert!(peer.is_encrypted(), "plain first, then encrypted");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = caller(listener.local_addr().unwrap(), &[0x55; 700]).await;
    let (tcp, from) = listener.accept().await.unwrap();
    let refused = accept(&seeder.torrent, Box::new(tcp), from, EncryptionPolicy::PlainFirst).await;
    assert!(matches!(refused, Err(PeerError::Encryption(_))), "{refused:?}");
    closes(&mut client).await;
}

#[tokio::test]
async fn a_choked_swath_fails_for_others_to_have_it() {
    let (content, metainfo) = torrent();
    let seeder = Made::seeder(&content).side(&metainfo);
    let address = seeder.listen_as(EncryptionPolicy::PlainFirst, |_| ()).await;
    let leecher = Made::default().side(&metainfo);
    let peer = dial(&leecher.torrent, address, Trust::Named).await.unwrap();
    let whole = Range::new(0, 1_000_000);
    peer.holdings().clone().wait_for(|held| held.covers(whole)).await.unwrap();
    tokio::time::pause();
    let error = error_of(PeerSource::of(&leecher.torrent, peer, Trust::Named)).await;
    assert!(matches!(error.class(), Class::Busy(_)), "{error:?}");
}

#[tokio::test]
async fn a_peer_is_offered_only_while_it_serves_us() {
    let (content, metainfo) = torrent();
    let seeder = Made::seeder(&content).side(&metainfo);
    let (sender, mut served) = unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let torrent = Arc::clone(&seeder.torrent);
    tokio::spawn(async move {
        let (tcp, from) = listener.accept().await.unwrap();
        sender.send(
            accept(&torrent, Box::new(tcp), from, EncryptionPolicy::PlainFirst).await.unwrap(),
        )
    });
    let leecher = Made::default().side(&metainfo);
    let peer = dial(&leecher.torrent, address, Trust::Named).await.unwrap();
    let other = served.recv().await.unwrap();
    let source = PeerSource::of(&leecher.torrent, peer.clone(), Trust::Named);
    let mut offered = source.holdings().unwrap();
    let whole = Range::new(0, 1_000_000);
    let mut holdings = peer.holdings().clone();
    holdings.wait_for(|held| held.covers(whole)).await.unwrap();
    assert!(offered.borrow().is_empty());
    other.unchoke();
    offered.wait_for(|held| held.covers(whole)).await.unwrap();
    other.choke();
    offered.wait_for(|held| held.is_empty()).await.unwrap();
    assert!(peer.pieces().borrow().is_full() && peer.status().is_choking_us);
    let status = loop {
        let status = other.status();
        if status.is_interested {
            break status;
        }
        tokio::task::yield_now().await;
    };
    assert!(status.client.starts_with("swath "), "{status:?}");
    other.close();
    offered.wait_for(|_| false).await.unwrap_err();
}

#[tokio::test]
async fn a_block_that_cannot_be_read_fails_its_swath() {
    let (content, metainfo) = torrent();
    // Its file is shorter than it should be.
    let seeder = Made::seeder(&content[..100_000]).side(&metainfo);
    let address = seeder.listen().await;
    let leecher = Made::default().side(&metainfo);
    let source = PeerSource::at(&leecher.torrent, address, Trust::Named);
    let error = error_of(source).await;
    assert!(matches!(error, LaneError::Rejected { .. }), "{error:?}");
}

#[tokio::test]
async fn a_seeder_that_stalls_is_timed_out() {
    let (_, metainfo) = torrent();
    let pieces = Bitfield::all(16);
    let messages = [Message::Bitfield(pieces.as_wire()), Message::Unchoke];
    let address = answerer(encoded(&handshake(&metainfo, 1), &messages)).await;
    let leecher = Made::default().side(&metainfo);
    let peer = dial(&leecher.torrent, address, Trust::Named).await.unwrap();
    let source = PeerSource::of(&leecher.torrent, peer, Trust::Named);
    let whole = Range::new(0, 1_000_000);
    source.holdings().unwrap().wait_for(|offered| offered.covers(whole)).await.unwrap();
    tokio::time::pause();
    let error = error_of(source).await;
    assert!(matches!(error, LaneError::Timeout { .. }), "{error:?}");
}
