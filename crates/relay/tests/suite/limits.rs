//! Relays that are full: of bytes (`send_limit`) and of connections.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use swath_model::Limiter;
use swath_netlab::faulty::{Content, Server};
use swath_relay::RelayOptions;
use swath_serve::Tls;

use crate::support::{
    Gate, Relay, connect, each_connection, head_of, honest, options, to_end, until, url,
};

#[test]
fn what_is_passed_and_what_is_tunnelled_share_one_limit() {
    // Each client had a limit of its own, or tunnels none, and nobody would have seen it. (How evenly it
    // is shared is tested with a given clock where `Limiter` is.)
    const EACH: u64 = 300_000;
    const RATE_BYTES_PER_S: u64 = 1_000_000;
    // So much may come before the clock counts: what was not used of the last 50 ms, and the last turn
    // (20 ms), all of which may be moved when it begins.
    const BURST_S: f64 = 0.072;
    let content = Content::random(1, EACH);
    let origin = honest(&content);
    let send_limit = Some(Arc::new(Limiter::new(Some(RATE_BYTES_PER_S))));
    let relay = Relay::start(RelayOptions { send_limit, ..options() });
    // They are connected first: what an answer without bytes costs is not looked at here.
    let all = Arc::new(Barrier::new(5));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (all, is_tunnel) = (Arc::clone(&all), number == 3);
            let mut tcp = match is_tunnel {
                true => relay.tunnel(origin.address()),
                false => connect(relay.address),
            };
            let from =
                if is_tunnel { "/data.bin".into() } else { format!("/relay/{}", url(&origin)) };
            std::thread::spawn(move || {
                all.wait();
                write!(tcp, "GET {from} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
                head_of(&mut tcp).unwrap();
                to_end(&mut tcp)
            })
        })
        .collect();
    // A busy machine makes it later, and nothing makes it sooner.
    let began = Instant::now();
    all.wait();
    for client in clients {
        assert!(client.join().unwrap() == content.read(0, EACH));
    }
    let least = (4 * EACH) as f64 / RATE_BYTES_PER_S as f64 - BURST_S;
    assert!(began.elapsed() >= Duration::from_secs_f64(least), "{:?}", began.elapsed());
    until("all is counted", || relay.metric("swath_relay_tunnelled_bytes_total") >= EACH);
    until("all is counted", || relay.metric("swath_relay_bytes_total") >= 3 * EACH);
}

#[test]
fn whoever_waits_for_the_relay_s_own_limit_is_not_silent() {
    // A turn comes every few milliseconds, a byte at a time: the time-out counts from the last one.
    let content = Content::random(1, 3000);
    let origin = honest(&content);
    let limiter = Arc::new(Limiter::new(Some(1)));
    let send_limit = Some(Arc::clone(&limiter));
    let timeout = Duration::from_secs(3600);
    let relay = Relay::start(RelayOptions { send_limit, timeout, ..options() });
    let mut tcp = connect(relay.address);
    write!(tcp, "GET /relay/{} HTTP/1.0\r\nHost: a\r\n\r\n", url(&origin)).unwrap();
    head_of(&mut tcp).unwrap();
    // A limit that is lifted while somebody waits holds nobody up for long.
    limiter.set(None);
    assert!(to_end(&mut tcp) == content.read(0, 3000));
}

/// A server that answers each request when the gate lets it, and how many wait or are answered now.
fn gated(gate: &Gate) -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (now, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counts, all, gate) = (Arc::clone(&now), Arc::clone(&asked), gate.clone());
    let server = each_connection(move |mut tcp| {
        while head_of(&mut tcp).is_some() {
            counts.fetch_add(1, Ordering::SeqCst);
            all.fetch_add(1, Ordering::SeqCst);
            gate.pass();
            counts.fetch_sub(1, Ordering::SeqCst);
            let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell");
        }
    });
    (server, now, asked)
}

#[test]
fn more_clients_than_there_is_room_for_wait_and_lose_nothing() {
    const ROOM: usize = 4;
    const CLIENTS: usize = 10;
    let gate = Gate::default();
    let (server, now, asked) = gated(&gate);
    let relay = Relay::with(options(), Tls::Plain, ROOM);
    let mut clients: Vec<TcpStream> = Vec::new();
    for at in 0..CLIENTS {
        let mut tcp = connect(relay.address);
        let request = format!("GET /relay/http://{server}/{at} HTTP/1.0\r\nHost: a\r\n\r\n");
        tcp.write_all(request.as_bytes()).unwrap();
        clients.push(tcp);
        until("those that have room are asked for", || {
            asked.load(Ordering::SeqCst) >= (at + 1).min(ROOM)
        });
    }
    for done in 0..CLIENTS {
        // One leaves, one comes: never more than there is room for.
        let under_way = now.load(Ordering::SeqCst);
        assert!(under_way <= ROOM, "{under_way}");
        gate.open(1);
        until("the next one is asked for", || {
            asked.load(Ordering::SeqCst) >= (ROOM + 1 + done).min(CLIENTS)
        });
    }
    for tcp in &mut clients {
        let answer = to_end(tcp);
        assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"\r\n\r\nwell"));
    }
    until("all have left", || relay.metric("swath_connections_waited_total") >= 6);
}

#[test]
fn a_full_relay_still_says_that_it_is_well() {
    let gate = Gate::default();
    let (server, _, asked) = gated(&gate);
    let relay = Relay::with(options(), Tls::Plain, 1);
    let mut first = connect(relay.address);
    write!(first, "GET /relay/http://{server}/ HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    until("it is full", || asked.load(Ordering::SeqCst) == 1);
    assert_eq!(relay.ask("GET", "/health", "", b"").is(200).text(), "well\n");
    gate.open(1);
    assert!(to_end(&mut first).ends_with(b"well"));
}

#[test]
fn whoever_is_silent_makes_room_for_the_next() {
    let origin = honest(&Content::random(1, 1000));
    let relay = Relay::with(options(), Tls::Plain, 2);
    let mut idle: Vec<TcpStream> = (0..2).map(|_| connect(relay.address)).collect();
    for tcp in &mut idle {
        write!(tcp, "GET /relay/{} HTTP/1.1\r\nHost: a\r\n\r\n", url(&origin)).unwrap();
        head_of(tcp).unwrap();
        tcp.read_exact(&mut [0; 1000]).unwrap();
    }
    // Both have all that they asked for, and keep their connections.
    for _ in 0..3 {
        assert_eq!(relay.get(&url(&origin), "").is(200).body.len(), 1000);
    }
    assert!(idle.iter_mut().any(|tcp| to_end(tcp).is_empty()), "one was closed");
}

#[test]
fn nobody_who_takes_nothing_keeps_others_from_what_they_want() {
    // One after the other, the second would never have anything: the first takes no more.
    const CLIENTS: usize = 20;
    const EACH: usize = 256_000;
    let content = Content::random(4, 1 << 40);
    let origin: Server = honest(&content);
    let relay = Relay::start(options());
    let begun = content.read(0, EACH as u64);
    let all: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut tcp = connect(relay.address);
            write!(tcp, "GET /relay/{} HTTP/1.1\r\nHost: a\r\n\r\n", url(&origin)).unwrap();
            head_of(&mut tcp).unwrap();
            let mut came = vec![0; EACH];
            tcp.read_exact(&mut came).unwrap();
            assert!(came == begun);
            tcp
        })
        .collect();
    assert_eq!(origin.open_connections() as usize, all.len());
}
