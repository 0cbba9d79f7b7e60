//! Two swarms of one process that meet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use swath_formats::peer::{Bitfield, PieceIndex};
use swath_formats::torrent::Metainfo;
use swath_formats::torrent::metainfo::{Builder, Kind, NewFile};
use swath_model::digest::{Algorithm, Hasher};
use swath_model::path::SafePath;
use swath_model::{Range, RangeSet};
use swath_source::peer::{EncryptionPolicy, Uploads};
use swath_source::{Net, NetOptions, Pending, Source, Trust};
use swath_swarm::{Participation, SourceChange, Swarm, SwarmEvent, Swarms, SwarmsOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

pub const PIECE: u64 = 16 << 10;
pub const PIECES: u32 = 5;

/// Content that can be told from any other.
fn content() -> Vec<u8> {
    (0..PIECE * u64::from(PIECES)).map(|at| (at * at / 7) as u8).collect()
}

struct Content;

impl Uploads for Content {
    fn read<'a>(&'a self, range: Range, into: &'a mut Vec<u8>) -> Pending<'a, std::io::Result<()>> {
        into.extend_from_slice(&content()[range.start as usize..range.end as usize]);
        Box::pin(std::future::ready(Ok(())))
    }
}

pub fn metainfo(is_private: bool) -> Arc<Metainfo> {
    let name = SafePath::new("data").unwrap();
    let mut builder = Builder::new(Kind::V1, name.clone(), PIECE);
    builder.is_single_file = true;
    builder.is_private = is_private;
    builder.files = vec![NewFile::new(name, content().len() as u64)];
    let pieces = content();
    let digests = pieces.chunks(PIECE as usize).map(|it| Hasher::digest(Algorithm::Sha1, it));
    builder.pieces_v1 = digests.flat_map(|digest| digest.as_bytes().to_vec()).collect();
    Arc::new(builder.build().unwrap())
}

pub async fn swarms(allow: &[&str]) -> (Swarms, mpsc::Receiver<SwarmEvent>) {
    swarms_at("127.0.0.1:0", allow).await
}

pub async fn swarms_at(listen: &str, allow: &[&str]) -> (Swarms, mpsc::Receiver<SwarmEvent>) {
    swarms_of(listen, allow, 10).await
}

async fn swarms_of(
    listen: &str,
    allow: &[&str],
    peers_max: usize,
) -> (Swarms, mpsc::Receiver<SwarmEvent>) {
    let (events, hears) = mpsc::channel(100);
    let options = SwarmsOptions {
        net: Net::new(NetOptions::default()).unwrap(),
        listen: listen.parse().unwrap(),
        encryption: EncryptionPolicy::default(),
        listens_for_utp: true,
        allow: allow.iter().map(|network| network.parse().unwrap()).collect(),
        upload_bytes_per_s: None,
        upload_limiter: None,
        peers_max,
    };
    (Swarms::bind(options, events).await.unwrap(), hears)
}

pub fn joined(
    swarms: &Swarms,
    metainfo: Arc<Metainfo>,
    have: Bitfield,
    to: &[SocketAddr],
) -> Swarm {
    let participation = Participation {
        metainfo,
        have,
        uploads: Some(Arc::new(Content)),
        trackers: Vec::new(),
        peers: to.iter().map(|peer| (*peer, Trust::Named)).collect(),
        super_seeds: true,
    };
    swarms.join(participation).unwrap()
}

/// The next source that comes.
async fn source(
    changes: &mut mpsc::UnboundedReceiver<SourceChange>,
) -> (SocketAddr, Arc<dyn Source>) {
    match timeout(PATIENCE, changes.recv()).await.expect("in time") {
        Some(SourceChange::Came { address, source }) => (address, source),
        _ => panic!("no source came"),
    }
}

/// The next source that comes; `None` if one leaves before.
async fn source_or_left(changes: &mut mpsc::UnboundedReceiver<SourceChange>) -> Option<SocketAddr> {
    match timeout(PATIENCE, changes.recv()).await.expect("in time").expect("it takes part") {
        SourceChange::Came { address, .. } => Some(address),
        SourceChange::Left { .. } => None,
    }
}

/// Waits until a source holds this.
async fn holds(source: &Arc<dyn Source>, wanted: impl Fn(&RangeSet) -> bool) {
    let mut holdings = source.holdings().unwrap();
    let held = timeout(PATIENCE, holdings.wait_for(|held| wanted(held))).await;
    held.expect("in time").expect("it stays");
}

/// The handshake of a peer (BEP 3) that runs this program, and may have several connections.
pub fn handshake(peer: u8) -> Vec<u8> {
    let hash = metainfo(false).info.hash_v1().unwrap();
    let start = b"\x13BitTorrent protocol\0\0\0\0\0\x10\0\0";
    [&start[..], &hash.0, b"-SW0100-", &[peer; 12]].concat()
}

/// A connection to a swarm, after the handshake.
async fn connected(to: SocketAddr, peer: u8) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(&handshake(peer)).await.unwrap();
    timeout(PATIENCE, stream.read_exact(&mut [0; 68])).await.unwrap().unwrap();
    stream
}

/// Long, because other work may keep the machine busy.
pub const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test]
async fn pieces_are_passed_on_while_they_come() {
    let (first, _events) = swarms(&[]).await;
    let (second, _others) = swarms(&[]).await;
    let seeder = joined(&first, metainfo(false), Bitfield::none(PIECES), &[]);
    let leecher = joined(&second, metainfo(false), Bitfield::none(PIECES), &[first.address()]);
    let (_, source) = source(&mut leecher.sources()).await;
    seeder.gained(PieceIndex(3));
    let piece = Range::of_len(3 * PIECE, PIECE);
    // Once it is served, it may fetch what there is.
    let fetched = async {
        loop {
            match source.fetch_part(piece).await {
                Ok((_, bytes)) => return bytes,
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let bytes = timeout(PATIENCE, fetched).await.expect("in time");
    assert_eq!(bytes, content()[piece.start as usize..piece.end as usize]);
    leecher.gained(PieceIndex(3));
    let (sent, received) = (seeder.stop().await, leecher.stop().await);
    assert_eq!((sent.uploaded_bytes, received.downloaded_bytes), (PIECE, PIECE));
}

#[tokio::test]
async fn a_lone_leecher_is_offered_everything_by_a_super_seeder() {
    let (first, _events) = swarms(&[]).await;
    let (second, _others) = swarms(&[]).await;
    let _seeder = joined(&first, metainfo(false), Bitfield::all(PIECES), &[]);
    let leecher = joined(&second, metainfo(false), Bitfield::none(PIECES), &[first.address()]);
    let (_, source) = source(&mut leecher.sources()).await;
    holds(&source, |held| held.total_bytes() == content().len() as u64).await;
}

/// They had all slots and all offers of a super-seeder, for more than a minute and a half.
#[tokio::test]
async fn peers_that_say_nothing_keep_nobody_waiting() {
    let (first, _events) = swarms_of("127.0.0.1:0", &[], 60).await;
    let (second, _others) = swarms(&[]).await;
    let _seeder = joined(&first, metainfo(false), Bitfield::all(PIECES), &[]);
    let mut silent = Vec::new();
    for peer in 1..=30 {
        silent.push(connected(first.address(), peer).await);
    }
    let leecher = joined(&second, metainfo(false), Bitfield::none(PIECES), &[first.address()]);
    let (_, source) = source(&mut leecher.sources()).await;
    let mut holdings = source.holdings().unwrap();
    let all = async {
        for lacking in (0..PIECES).rev() {
            let held = |held: &RangeSet| held.total_bytes() >= u64::from(PIECES - lacking) * PIECE;
            let held = holdings.wait_for(held).await.expect("it stays").clone();
            let pieces = held.iter().flat_map(|range| range.start / PIECE..range.end / PIECE);
            pieces.for_each(|piece| leecher.gained(PieceIndex(piece as u32)));
        }
    };
    timeout(PATIENCE, all).await.expect("in time");
    assert_eq!(silent.len(), 30);
}

#[tokio::test]
async fn a_banned_peer_leaves_and_is_not_called_back() {
    let (first, _events) = swarms(&[]).await;
    let (second, mut events) = swarms(&[]).await;
    let _seeder = joined(&first, metainfo(false), Bitfield::none(PIECES), &[]);
    let leecher = joined(&second, metainfo(false), Bitfield::none(PIECES), &[first.address()]);
    let mut changes = leecher.sources();
    let (address, _) = source(&mut changes).await;
    assert_eq!(address, first.address());
    leecher.ban(address, "it sent wrong bytes".to_owned());
    let left = timeout(PATIENCE, changes.recv()).await.expect("in time");
    assert!(matches!(left, Some(SourceChange::Left { address: who }) if who == address));
    let told = async {
        loop {
            if let Some(SwarmEvent::Banned { address, why }) = events.recv().await {
                return (address, why);
            }
        }
    };
    let told = timeout(PATIENCE, told).await.expect("in time");
    assert_eq!(told, (address.ip(), "it sent wrong bytes".to_owned()));
    assert_eq!(leecher.stop().await.peers, 0);
}

#[tokio::test]
async fn the_connections_of_one_peer_are_one_source() {
    let (swarms, mut events) = swarms(&[]).await;
    let swarm = joined(&swarms, metainfo(false), Bitfield::none(PIECES), &[]);
    let mut changes = swarm.sources();
    let mut have_joined = async |count| {
        for _ in 0..count {
            let joined =
                async { while !matches!(events.recv().await, Some(SwarmEvent::Joined { .. })) {} };
            timeout(PATIENCE, joined).await.expect("in time");
        }
    };
    let (first, other) =
        (connected(swarms.address(), 1).await, connected(swarms.address(), 2).await);
    let both = [source(&mut changes).await.0, source(&mut changes).await.0];
    for stream in [&first, &other] {
        assert!(both.contains(&stream.local_addr().unwrap()), "{both:?}");
    }
    let (second, third) =
        (connected(swarms.address(), 1).await, connected(swarms.address(), 1).await);
    have_joined(4).await;
    assert!(changes.try_recv().is_err(), "they are the same peer");
    let ended = first.local_addr().unwrap();
    drop(first);
    let left = timeout(PATIENCE, changes.recv()).await.expect("in time");
    assert!(matches!(left, Some(SourceChange::Left { address }) if address == ended));
    let (next, _) = source(&mut changes).await;
    let (last, next) = match next == second.local_addr().unwrap() {
        true => (third, second),
        false => (second, third),
    };
    drop(last);
    let ended = next.local_addr().unwrap();
    drop(next);
    let left = timeout(PATIENCE, changes.recv()).await.expect("in time");
    assert!(matches!(left, Some(SourceChange::Left { address }) if address == ended));
    // Before that, the other one may have become the source for a moment.
    let again = connected(swarms.address(), 1).await;
    while source_or_left(&mut changes).await != Some(again.local_addr().unwrap()) {}
}

#[tokio::test]
async fn private_torrents_use_trackers_only_and_strangers_are_not_let_in() {
    let (first, _events) = swarms(&["192.0.2.0/24"]).await;
    let (second, mut told) = swarms(&[]).await;
    let _seeder = joined(&first, metainfo(false), Bitfield::all(PIECES), &[]);
    // The private one is not dialled, although its peer was named first.
    let peer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = [peer.local_addr().unwrap()];
    let private = joined(&second, metainfo(true), Bitfield::none(PIECES), &to);
    let open = joined(&second, metainfo(false), Bitfield::none(PIECES), &to);
    let (mut dialled, _) = timeout(PATIENCE, peer.accept()).await.expect("in time").unwrap();
    // It may begin encrypted. The peer goes without a word, and the next attempt is a plain one.
    let mut head = [0; 68];
    while timeout(PATIENCE, dialled.read_exact(&mut head)).await.expect("in time").is_err()
        || !head.starts_with(b"\x13BitTorrent protocol")
    {
        dialled = timeout(PATIENCE, peer.accept()).await.expect("in time").unwrap().0;
    }
    assert_eq!(head[28..48], metainfo(false).info.hash_v1().unwrap().0);
    // Whoever is not allowed is not let in.
    let mut stranger = TcpStream::connect(first.address()).await.unwrap();
    let _ = stranger.write_all(&handshake(1)).await;
    let answer = timeout(PATIENCE, stranger.read(&mut head)).await.expect("in time");
    assert_eq!(answer.unwrap_or(0), 0);
    assert_eq!((private.counts().peers, open.counts().peers), (0, 0));
    assert!(told.try_recv().is_err());
    let again = Participation {
        metainfo: metainfo(false),
        have: Bitfield::none(PIECES),
        uploads: None,
        trackers: Vec::new(),
        peers: Vec::new(),
        super_seeds: false,
    };
    assert!(second.join(again).is_err(), "it takes part already");
}
