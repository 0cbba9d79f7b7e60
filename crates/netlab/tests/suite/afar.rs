//! A server far away: what comes how late, and how fast.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use swath_netlab::afar::Afar;
use swath_netlab::star::LinkSpec;

/// Connections to `server` over a link, as long as the runtime lives.
fn afar(server: SocketAddr, link: LinkSpec) -> (tokio::runtime::Runtime, SocketAddr) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let afar = runtime.block_on(Afar::listen(server, link)).unwrap();
    let address = afar.address();
    runtime.spawn(afar.carry());
    (runtime, address)
}

/// A server that does the same with each of its connections, until the test ends.
fn server(with_each: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let with_each = Arc::new(with_each);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let with_each = Arc::clone(&with_each);
            thread::spawn(move || with_each(stream));
        }
    });
    address
}

fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
    let _ = stream.write_all(b"the end");
}

#[test]
fn an_answer_takes_a_round_trip_and_the_first_one_that_of_the_handshake_too() {
    let (_runtime, address) = afar(server(echo), LinkSpec::new(1000, 40));
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    let mut answer = [0; 4];
    let mut ask = |began: Instant| {
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
        began.elapsed()
    };
    assert!(ask(began) >= Duration::from_millis(160));
    // Of several one may be disturbed by the rest of the machine.
    let best = (0..5).map(|_| ask(Instant::now())).min().unwrap();
    assert!(best >= Duration::from_millis(80), "{best:?}");
    assert!(best < Duration::from_millis(160), "{best:?}");
}

#[test]
fn the_end_of_one_direction_arrives_and_the_other_goes_on() {
    let (_runtime, address) = afar(server(echo), LinkSpec::new(1000, 5));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"some words, and ").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert_eq!(all, "some words, and the end");
}

#[test]
fn all_connections_together_are_no_faster_than_the_link_and_all_bytes_come() {
    const EACH_BYTES: usize = 1 << 20;
    let content: Arc<Vec<u8>> = Arc::new((0..EACH_BYTES).map(|at| (at % 251) as u8).collect());
    let sent = Arc::clone(&content);
    let server = server(move |mut stream| {
        let _ = stream.write_all(&sent);
    });
    let (_runtime, address) = afar(server, LinkSpec::new(80, 1));
    let began = Instant::now();
    let all: Vec<_> = (0..3)
        .map(|_| {
            let content = Arc::clone(&content);
            thread::spawn(move || {
                let mut received = Vec::new();
                TcpStream::connect(address).unwrap().read_to_end(&mut received).unwrap();
                assert!(received == *content);
            })
        })
        .collect();
    for one in all {
        one.join().unwrap();
    }
    let took_s = began.elapsed().as_secs_f64();
    let least_s = 3.0 * EACH_BYTES as f64 * 8.0 / 80e6;
    assert!(took_s >= least_s, "{took_s} s where {least_s} s are the least");
    // The best that this link can do is 0.33 s.
    assert!(took_s < 5.0, "{took_s} s");
}

#[test]
fn one_connection_does_not_fill_a_long_link() {
    // 4 MiB a round trip of 0.2 s, however fast the link is.
    let server = server(|mut stream| {
        let _ = stream.write_all(&vec![7; 16 << 20]);
    });
    let (_runtime, address) = afar(server, LinkSpec::new(10_000, 100));
    let began = Instant::now();
    let mut received = Vec::new();
    TcpStream::connect(address).unwrap().read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 16 << 20);
    assert!(began.elapsed() >= Duration::from_millis(1000), "{:?}", began.elapsed());
}

#[test]
fn who_takes_nothing_is_not_sent_to_without_end() {
    let written = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&written);
    let server = server(move |mut stream| {
        let part = [0; 64 << 10];
        while stream.write_all(&part).is_ok() {
            count.fetch_add(part.len() as u64, Ordering::Relaxed);
        }
    });
    let (_runtime, address) = afar(server, LinkSpec::new(100_000, 1));
    let _idle = TcpStream::connect(address).unwrap();
    // Until nothing more is taken for a while.
    let mut last = (0, Instant::now());
    while last.1.elapsed() < Duration::from_millis(500) {
        let now = written.load(Ordering::Relaxed);
        assert!(now < 64 << 20, "{now} bytes were taken");
        if now != last.0 {
            last = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(last.0 > 0);
}
