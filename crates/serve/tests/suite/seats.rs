//! Clients that make a server hold on to what others need: seats, memory, threads.
//!
//! The clock of these tests stands still until nothing is left to do, once everybody is connected: a
//! minute of silence takes no time, and no pause of the machine is taken for one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use swath_serve::exposition::Page;
use swath_serve::http::{Content, Head, Made, Make, Response};
use swath_serve::{Mount, Server, Stop};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, pause, sleep};

use crate::support::{HANG_LIMIT, Plan, Tree};
use crate::tls;

/// Serves within this runtime; returns the address, and the fingerprint of the certificate.
async fn serve(plan: Plan) -> (SocketAddr, String) {
    let server: Server = plan.bind().await;
    let address = server.addresses()[0];
    let fingerprint = server.identity().map(|it| it.fingerprint().to_string());
    tokio::spawn(server.run(std::future::pending::<Stop>(), HANG_LIMIT, |_| {}));
    (address, fingerprint.unwrap_or_default())
}

async fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await.unwrap();
    tcp
}

/// What comes, to the end of its head at least.
async fn answered(tcp: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        if tcp.read_buf(&mut answer).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// A small file, and one that takes no room on the disk and a long time to send.
fn tree() -> Tree {
    let tree = Tree::of(&[("tree/small", "small")]);
    tree.hollow("tree/large", 64 << 30);
    tree
}

#[tokio::test]
async fn who_says_nothing_after_the_handshake_is_left() {
    // By HTTP/2 it was as long as the client was there.
    let tree = tree();
    let (address, fingerprint) = serve(tree.plan(&["tree"]).encrypted()).await;
    let mut silent = Vec::new();
    for alpn in ["h2", "http/1.1"] {
        silent.push(tls::connect(address, &fingerprint, alpn).await.unwrap());
    }
    pause();
    let began = Instant::now();
    for stream in &mut silent {
        // Only the server's own first words come before the end.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert!(began.elapsed() >= Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_handshake_that_does_not_begin_is_given_up() {
    let tree = tree();
    let (address, _) = serve(tree.plan(&["tree"]).encrypted()).await;
    let mut tcp = TcpStream::connect(address).await.unwrap();
    pause();
    assert_eq!(tcp.read(&mut [0]).await.unwrap_or(0), 0, "it was closed");
}

#[tokio::test]
async fn silent_connections_make_room_and_busy_ones_do_not() {
    // As many as there may be, and nobody else was let in for as long as they liked.
    let tree = tree();
    tree.write("tree/big", vec![7; 8 << 20]);
    let (address, _) = serve(tree.plan(&["tree"]).max_connections(3).limit(2_000_000)).await;
    let mut busy = ask(address, "big").await;
    let first = answered(&mut busy).await;
    let first_bytes = first.len();
    let busy = tokio::spawn(async move {
        let (mut part, mut all) = (vec![0; 64 << 10], first_bytes);
        while all < 8 << 20 {
            match busy.read(&mut part).await.unwrap() {
                0 => break,
                bytes => all += bytes,
            }
        }
        all
    });
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    pause();
    let mut asks = ask(address, "small").await;
    assert!(answered(&mut asks).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(silent[0].read(&mut [0]).await.unwrap_or(0), 0, "it made room");
    drop(asks);
    let mut asks = TcpStream::connect(address).await.unwrap();
    asks.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut metrics = String::new();
    asks.read_to_string(&mut metrics).await.unwrap();
    let waited = "swath_connections_waited_total ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(waited)).unwrap();
    // All but the first three, which found room.
    assert!(line.trim().parse::<u32>().unwrap() >= 4, "{line}");
    assert!(busy.await.unwrap() >= 8 << 20, "it came to its end");
}

/// Clients that took nothing of their answers kept all seats for two minutes.
#[tokio::test]
async fn clients_that_take_nothing_make_room() {
    let tree = tree();
    let (address, _) = serve(tree.plan(&["tree"]).max_connections(2)).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut tcp = ask(address, "large").await;
        assert!(answered(&mut tcp).await.starts_with("HTTP/1.1 200 "));
        held.push(tcp);
    }
    pause();
    let began = Instant::now();
    let mut asks = ask(address, "small").await;
    assert!(answered(&mut asks).await.starts_with("HTTP/1.1 200 "));
    // Longer than nothing moves before that counts as silence, shorter than two minutes.
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(110), "{took:?}");
}

/// Where all seats were taken by clients that were at it, whoever asked whether the server is well
/// waited for the first of them to end.
#[tokio::test]
async fn whether_it_is_well_is_answered_while_all_seats_are_taken() {
    let tree = tree();
    let (address, _) = serve(tree.plan(&["tree"]).max_connections(2)).await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut tcp = ask(address, "large").await;
        assert!(answered(&mut tcp).await.starts_with("HTTP/1.1 200 "));
        busy.push(tokio::spawn(async move {
            let mut part = vec![0; 64 << 10];
            loop {
                tcp.read_exact(&mut part).await.unwrap();
                sleep(Duration::from_millis(50)).await;
            }
        }));
    }
    pause();
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(ask(address, "small").await);
    }
    for _ in 0..3 {
        let answer = answered(&mut ask(address, "health").await).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
        assert!(answer.contains("connection: close"), "{answer:?}");
    }
    for tcp in &waiting {
        assert!(tcp.try_read(&mut [0]).is_err(), "nobody has made room yet");
    }
    busy.iter().for_each(tokio::task::JoinHandle::abort);
    for mut tcp in waiting {
        let answer = answered(&mut tcp).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
    }
}

/// Asks for `path` on `streams` streams of a connection that takes `window` bytes of each answer, and
/// no more; returns what keeps it all open.
async fn takes_nothing(
    address: SocketAddr,
    fingerprint: &str,
    path: &str,
    (streams, window): (usize, u32),
) -> Vec<(h2::client::SendRequest<Bytes>, Option<h2::RecvStream>)> {
    let stream = tls::connect(address, fingerprint, "h2").await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(1 << 30);
    let (client, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut held = Vec::new();
    for _ in 0..streams {
        let url = format!("https://h/{path}");
        let request = Request::builder().uri(url).body(()).unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let body = response.await.unwrap().into_body();
        held.push((client.clone(), Some(body)));
        client = client.ready().await.unwrap();
    }
    held
}

/// Streams whose clients took nothing never counted as silent, and kept all seats for two minutes.
#[tokio::test]
async fn streams_of_which_nothing_is_taken_make_room() {
    let tree = tree();
    let plan = tree.plan(&["tree"]).encrypted().max_connections(2);
    let (address, fingerprint) = serve(plan).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(takes_nothing(address, &fingerprint, "large", (2, 1)).await);
    }
    pause();
    let began = Instant::now();
    let mut stream = tls::connect(address, &fingerprint, "http/1.1").await.unwrap();
    stream.write_all(b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let mut answer = [0; 13];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 ");
    assert!(began.elapsed() < Duration::from_secs(110), "{:?}", began.elapsed());
}

/// Answers with bodies that have no end, and counts the parts that were made of them.
struct Endless(Arc<AtomicUsize>);

impl Mount for Endless {
    fn answer(&self, head: &Head, _peer: SocketAddr) -> Option<Response> {
        let made = Box::new(Parts(Arc::clone(&self.0)));
        let is_it = head.target.path == b"endless";
        is_it.then(|| Response::empty(200).containing(Content::Made(made)))
    }

    fn metrics(&self, _page: &mut Page) {}
}

struct Parts(Arc<AtomicUsize>);

impl Make for Parts {
    fn length(&self) -> Option<u64> {
        None
    }

    fn next(&mut self) -> Made<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(vec![7; 256 << 10])))
    }
}

#[tokio::test]
async fn who_takes_nothing_of_many_answers_has_few_made_ahead() {
    // Each answer had most of a megabyte made ahead: sixteen connections took 1.3 GB.
    const CONNECTIONS: usize = 12;
    let (tree, made) = (tree(), Arc::new(AtomicUsize::new(0)));
    let mount: Arc<dyn Mount> = Arc::new(Endless(Arc::clone(&made)));
    let plan = tree.plan(&["tree"]).encrypted().with(|site| site.mount = Some(mount));
    // As many answers at a time as there may be connections.
    let plan = plan.max_connections(1000);
    let (address, fingerprint) = serve(plan).await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(takes_nothing(address, &fingerprint, "endless", (24, 1)).await);
    }
    // All 288 were asked for; whatever is ready to run has run when others were answered.
    for _ in 0..20 {
        let mut stream = tls::connect(address, &fingerprint, "http/1.1").await.unwrap();
        let request = b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    let parts = made.load(Ordering::Relaxed);
    // Those that all connections share, and one of each one's own.
    assert!(parts <= 256 + CONNECTIONS, "{parts} parts");
    assert!(parts >= 256, "{parts} parts");
}
