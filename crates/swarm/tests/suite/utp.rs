//! Peers that connect by uTP, and those that only seem to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use swath_formats::peer::Bitfield;
use swath_source::peer::{Transport, Utp, UtpAdmission};
use swath_swarm::SwarmEvent;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, timeout};

use super::swarms::{PATIENCE, PIECES, handshake, joined, metainfo, swarms, swarms_at};

async fn port(address: &str) -> Utp {
    Utp::bind(address.parse().unwrap(), |_| UtpAdmission::Ignored).await.unwrap()
}

/// A peer's connection after its handshake, if it was let in.
async fn let_in(from: &Utp, to: SocketAddr, peer: u8) -> Option<impl Transport> {
    let mut stream = from.connect(to).await.ok()?;
    stream.write_all(&handshake(peer)).await.ok()?;
    let mut answer = [0; 68];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.ok()?.ok()?;
    assert_eq!(answer[28..48], handshake(peer)[28..48]);
    Some(stream)
}

/// Tries until the peer is let in: a flood may take the place of its requests in the kernel, too.
async fn let_in_at_last(from: &Utp, to: SocketAddr, peer: u8) {
    let tries = async {
        while let_in(from, to, peer).await.is_none() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, tries).await.expect("it is let in");
}

/// A request for a connection that nobody goes on with.
fn syn(number: u16) -> Vec<u8> {
    let id = number.to_be_bytes();
    [&[0x41, 0][..], &id, &[0; 12], &[0, 1, 0, 0]].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_from_one_address_leaves_room_for_others_and_holds_nothing_against_it() {
    let (seeding, mut events) = swarms_at("0.0.0.0:0", &[]).await;
    let _seeder = joined(&seeding, metainfo(false), Bitfield::all(PIECES), &[]);
    let to = SocketAddr::from(([127, 0, 0, 1], seeding.address().port()));
    let flood = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let other = port("127.0.0.2:0").await;
    let (began, answers, sent) = (Instant::now(), AtomicU32::new(0), AtomicU32::new(0));
    let flooding = async {
        for number in (0..=u16::MAX).step_by(2).cycle() {
            let _ = flood.send_to(&syn(number), to).await;
            sent.fetch_add(1, Relaxed);
            if number % 1000 == 0 {
                sleep(Duration::from_millis(20)).await;
                while flood.try_recv(&mut [0; 100]).is_ok() {
                    answers.fetch_add(1, Relaxed);
                }
            }
        }
    };
    // So many that a limit which is none shows, and until another address got through.
    let others = async {
        while sent.load(Relaxed) < 20_000 || answers.load(Relaxed) == 0 {
            sleep(Duration::from_millis(20)).await;
        }
        let_in_at_last(&other, to, 1).await;
    };
    tokio::select! {
        () = flooding => unreachable!("it has no end"),
        () = others => {}
    }
    // A port has at most 128 connections. Each is answered at most six times before it is given up, which
    // takes a second, on a busy machine somewhat less. Most requests go without an answer.
    let (answers, seconds) =
        (answers.into_inner(), began.elapsed().as_secs_f64().ceil() as u32 + 1);
    assert!((1..=seconds * 128 * 12).contains(&answers), "{answers} in {seconds} s");
    // The address may be that of a victim.
    let_in_at_last(&port("127.0.0.1:0").await, to, 2).await;
    while let Ok(event) = events.try_recv() {
        assert!(!matches!(event, SwarmEvent::Banned { .. }), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_stalls_is_closed_and_its_place_is_free_again() {
    let (seeding, _events) = swarms(&[]).await;
    let seeder = joined(&seeding, metainfo(false), Bitfield::all(PIECES), &[]);
    let (port, to) = (port("127.0.0.1:0").await, seeding.address());
    let mut stalled = Vec::new();
    while let Ok(mut stream) = port.connect(to).await {
        // A part of the handshake.
        stream.write_all(b"\x13BitTorrent pro").await.unwrap();
        stalled.push(stream);
        assert!(stalled.len() <= 16, "an address has no end of half-open connections");
    }
    assert_eq!(stalled.len(), 16);
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, stalled[0].read_to_end(&mut rest)).await;
    assert!(ended.is_ok() && rest.is_empty(), "{rest:?}");
    let (began, mut is_in) = (Instant::now(), None);
    while is_in.is_none() && began.elapsed() < PATIENCE {
        is_in = let_in(&port, to, 1).await;
    }
    assert!(is_in.is_some());
    assert_eq!(seeder.stop().await.uploaded_bytes, 0);
}

/// The connections have the same addresses at both ends. One that ended once took the other with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_connection_is_not_that_of_another_one_of_the_same_port() {
    let (seeding, _events) = swarms(&[]).await;
    let seeder = joined(&seeding, metainfo(false), Bitfield::all(PIECES), &[]);
    let (port, to) = (port("127.0.0.1:0").await, seeding.address());
    let mut first = let_in(&port, to, 1).await.unwrap();
    let second = let_in(&port, to, 1).await.unwrap();
    let has = async |count| {
        while seeder.counts().peers != count {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, has(2)).await.expect("both are let in");
    drop(second);
    timeout(PATIENCE, has(1)).await.expect("one is left");
    // Being interested, it gets a slot. Earlier messages come before the unchoke.
    first.write_all(&[0, 0, 0, 1, 2]).await.unwrap();
    let mut came = Vec::new();
    let unchoked = async {
        while !came.windows(5).any(|it| it == [0, 0, 0, 1, 1]) {
            assert_ne!(first.read_buf(&mut came).await.unwrap(), 0, "{came:?}");
        }
    };
    timeout(PATIENCE, unchoked).await.expect("it is served");
}

#[tokio::test]
async fn who_may_not_connect_gets_no_answer_by_utp_either() {
    let (seeding, _events) = swarms(&["127.0.0.2/32"]).await;
    let _seeder = joined(&seeding, metainfo(false), Bitfield::all(PIECES), &[]);
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for number in 0..100 {
        socket.send_to(&syn(2 * number), seeding.address()).await.unwrap();
    }
    // Whoever asks later and may connect is let in.
    let_in_at_last(&port("127.0.0.2:0").await, seeding.address(), 1).await;
    let answer = socket.try_recv(&mut [0; 100]);
    assert!(answer.is_err(), "{answer:?}");
}
