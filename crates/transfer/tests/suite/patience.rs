//! Which waiting is a source's fault, in virtual time: servers and transfer share one paused
//! clock, so minutes pass in a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use swath_source::NetOptions;
use swath_transfer::observe::{Event, SourceState};
use swath_transfer::{Engine, EngineOptions, GetError, Lanes, Request, Stop};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::Asked;

const SIZE: u64 = 600_000;

/// Serves ranges of a file of zeros.
async fn server() -> String {
    broken_after(u64::MAX, Arc::default()).await
}

/// The same, but each connection ends after so many body bytes; counts them.
async fn broken_after(body_bytes: u64, connections: Arc<AtomicU32>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/zeros.bin", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(stream, body_bytes));
        }
    });
    url
}

async fn serve(mut stream: TcpStream, body_bytes: u64) -> Option<()> {
    // The kernel's clock is not paused: a second small write would wait seconds of ours for the
    // acknowledgement of the first.
    stream.set_nodelay(true).ok()?;
    let mut input = Vec::new();
    loop {
        let asked = Asked::next(&mut stream, &mut input, SIZE).await?;
        asked.begin(&mut stream, SIZE).await?;
        let body = asked.len().min(body_bytes);
        stream.write_all(&vec![0; body as usize]).await.ok()?;
        if body < asked.len() {
            return None;
        }
    }
}

fn engine(limit_bytes_per_s: Option<u64>) -> Engine {
    let net = NetOptions { limit_bytes_per_s, ..NetOptions::default() };
    // Small buffers, so that every source gets a part of a small file.
    let buffer_bytes = 64 << 10;
    Engine::start(EngineOptions { net, buffer_bytes, ..EngineOptions::default() }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_low_rate_limit_over_many_sources_silences_none() {
    // Each lane has its turn every few seconds; that was taken for the sources' silence.
    let mut request = Request::to_writer(tokio::io::sink());
    request.plan.lanes = Lanes::Fixed(1);
    for _ in 0..6 {
        request = request.url(&server().await).unwrap();
    }
    let mut silences = 0;
    let mut observer = |event: &Event| {
        silences += u32::from(matches!(event, Event::Source { state: SourceState::Silent, .. }));
    };
    let engine = engine(Some(3000));
    let stop = Stop::default();
    let done = engine.get_observed(request, &mut observer, &stop);
    timeout(Duration::from_secs(1000), done)
        .await
        .expect("at 3 kB/s it takes 200 s")
        .expect("it is fetched");
    assert_eq!(silences, 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_says_nothing_ends_with_the_time_limit() {
    // Each new connection set the clock back, so the transfer never ended.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/file", mute.local_addr().unwrap());
    let request = Request::to_writer(tokio::io::sink()).url(&url).unwrap();
    let ended = timeout(Duration::from_secs(90), engine(None).get(request)).await;
    let error = ended.expect("it ends after 60 s").expect_err("nothing came");
    assert!(matches!(error, GetError::Stalled { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn connections_that_break_after_a_few_bytes_are_no_storm() {
    // Each useful byte made the failures before it forgotten: four connections a second for ever.
    let connections = Arc::new(AtomicU32::new(0));
    let url = broken_after(1000, Arc::clone(&connections)).await;
    let mut request = Request::to_writer(tokio::io::sink()).url(&url).unwrap();
    request.plan.lanes = Lanes::Fixed(1);
    let two_minutes = Duration::from_secs(120);
    assert!(timeout(two_minutes, engine(None).get(request)).await.is_err(), "it still tries");
    let connections = connections.load(Ordering::Relaxed);
    assert!((5..50).contains(&connections), "{connections} connections in two minutes");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forbids_a_second_connection_keeps_the_first() {
    // The 403 to a further connection was taken for a refusal of the file.
    const LARGE: u64 = 12 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/zeros.bin", listener.local_addr().unwrap());
    let forbidden = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&forbidden);
    tokio::spawn(async move {
        let first = Arc::new(tokio::sync::Mutex::new(()));
        while let Ok((mut stream, _)) = listener.accept().await {
            let (first, counter) = (Arc::clone(&first), Arc::clone(&counter));
            tokio::spawn(async move {
                let mut input = Vec::new();
                let mut turn = None;
                while let Some(asked) = Asked::next(&mut stream, &mut input, LARGE).await {
                    turn = turn.or_else(|| first.try_lock().ok());
                    if turn.is_none() {
                        counter.fetch_add(1, Ordering::Relaxed);
                        let head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
                        stream.write_all(head).await.ok()?;
                        continue;
                    }
                    asked.begin(&mut stream, LARGE).await?;
                    let mut left = asked.len();
                    while left > 0 {
                        // In bursts, as a sender does that a window holds up: worth a further lane.
                        let burst = left.min(64 << 10);
                        stream.write_all(&vec![0; burst as usize]).await.ok()?;
                        tokio::time::sleep(Duration::from_millis(80)).await;
                        left -= burst;
                    }
                }
                Some(())
            });
        }
    });
    let request = Request::to_writer(tokio::io::sink()).url(&url).unwrap();
    engine(None).get(request).await.expect("the first connection delivers all of it");
    assert!(forbidden.load(Ordering::Relaxed) > 0, "no second connection was tried");
}

#[tokio::test(start_paused = true)]
async fn parts_of_blocks_do_not_fill_the_buffers_of_an_ordered_stream() {
    // What broken connections had brought lay in a buffer each, until none was left for what had
    // to come first.
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/zeros.bin", slow.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = slow.accept().await {
            tokio::spawn(async move {
                stream.set_nodelay(true).ok()?;
                let mut input = Vec::new();
                while let Some(asked) = Asked::next(&mut stream, &mut input, SIZE).await {
                    asked.begin(&mut stream, SIZE).await?;
                    let mut left = asked.len();
                    while left > 0 {
                        let part = left.min(200);
                        stream.write_all(&vec![0; part as usize]).await.ok()?;
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        left -= part;
                    }
                }
                Some(())
            });
        }
    });
    let mut request = Request::to_writer(tokio::io::sink()).url(&url).unwrap();
    for _ in 0..3 {
        request = request.url(&broken_after(9_000, Arc::default()).await).unwrap();
    }
    let buffer_bytes = 64 << 10;
    let memory_bytes = 8 * buffer_bytes;
    let options = EngineOptions { memory_bytes, buffer_bytes, ..EngineOptions::default() };
    let engine = Engine::start(options).unwrap();
    let done = timeout(Duration::from_secs(2000), engine.get(request)).await;
    let summary = done.expect("it ends").expect("all of it comes");
    assert_eq!(summary.size_bytes, SIZE);
}
