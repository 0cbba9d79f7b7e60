//! A server far away: what comes how late, and how fast, by a clock that stands still while anything is to
//! be done.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use swath_netlab::afar::Afar;
use swath_netlab::star::LinkSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// Connections to `server` over a link, as long as the test lasts.
async fn afar(server: SocketAddr, link: LinkSpec) -> SocketAddr {
    let afar = Afar::listen(server, link).await.unwrap();
    let address = afar.address();
    tokio::spawn(afar.carry());
    address
}

/// A server that does the same with each of its connections, until the test ends.
async fn server<F: Future<Output = ()> + Send + 'static>(
    with_each: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(with_each(stream));
        }
    });
    address
}

async fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        if stream.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
    let _ = stream.write_all(b"the end").await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_takes_a_round_trip_and_the_first_one_that_of_the_handshake_too() {
    let address = afar(server(echo).await, LinkSpec::new(1000, 40)).await;
    let mut began = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    for round_trips in [2, 1, 1] {
        let mut answer = [0; 4];
        stream.write_all(b"ping").await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"ping");
        let (took, least) = (began.elapsed(), 80 * round_trips);
        assert!((least..least + 10).contains(&took.as_millis()), "{took:?}");
        began = Instant::now();
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_one_direction_arrives_and_the_other_goes_on() {
    let address = afar(server(echo).await, LinkSpec::new(1000, 5)).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"some words, and ").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    assert_eq!(all, "some words, and the end");
}

#[tokio::test(start_paused = true)]
async fn all_connections_together_are_no_faster_than_the_link_and_all_bytes_come() {
    const EACH_BYTES: usize = 1 << 20;
    let content: Arc<Vec<u8>> = Arc::new((0..EACH_BYTES).map(|at| (at % 251) as u8).collect());
    let sent = Arc::clone(&content);
    let server = server(move |mut stream| {
        let sent = Arc::clone(&sent);
        async move {
            let _ = stream.write_all(&sent).await;
        }
    });
    let address = afar(server.await, LinkSpec::new(80, 1)).await;
    let began = Instant::now();
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..3 {
        all.spawn(async move {
            let mut received = Vec::new();
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.read_to_end(&mut received).await.unwrap();
            received
        });
    }
    while let Some(received) = all.join_next().await {
        assert!(received.unwrap() == *content);
    }
    let took_s = began.elapsed().as_secs_f64();
    let least_s = 3.0 * EACH_BYTES as f64 * 8.0 / 80e6;
    assert!(took_s >= least_s, "{took_s} s where {least_s} s are the least");
    // The best that this link can do is 0.33 s.
    assert!(took_s < 5.0, "{took_s} s");
}

#[tokio::test(start_paused = true)]
async fn one_connection_does_not_fill_a_long_link() {
    // 4 MiB a round trip of 0.2 s, however fast the link is.
    let server = server(|mut stream| async move {
        let _ = stream.write_all(&vec![7; 16 << 20]).await;
    });
    let address = afar(server.await, LinkSpec::new(10_000, 100)).await;
    let began = Instant::now();
    let mut received = Vec::new();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), 16 << 20);
    assert!(began.elapsed() >= Duration::from_millis(1000), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_is_not_sent_to_without_end() {
    let written = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&written);
    let server = server(move |mut stream| {
        let count = Arc::clone(&count);
        async move {
            let part = [0; 64 << 10];
            while stream.write_all(&part).await.is_ok() {
                let now = count.fetch_add(part.len() as u64, Ordering::Relaxed);
                assert!(now < 64 << 20, "{now} bytes were taken");
            }
        }
    });
    let address = afar(server.await, LinkSpec::new(100_000, 1)).await;
    let _idle = TcpStream::connect(address).await.unwrap();
    // The clock goes on when there is nothing more to do.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!((1..64 << 20).contains(&written.load(Ordering::Relaxed)));
}
