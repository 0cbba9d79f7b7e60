//! Time-outs and limits on a clock that stands still while anybody is busy: servers, transfer and readers
//! share one runtime, so minutes pass in a moment, and no pause of this machine is seen.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use swath_jobs::{
    Address, Control, GetFrom, GetSpec, GetTo, JobError, JobEvent, JobObserver, JobSpec, Jobs,
    Outcome, Streams, Work,
};
use swath_netlab::faulty::Content;
use swath_transfer::GetError;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

/// What happens to a server once.
#[derive(Clone, Copy)]
enum Event {
    /// Nothing comes any more.
    Silence,
    /// The whole machine is asleep for an hour.
    Sleep,
}

/// Serves ranges of `content`.
async fn honest(content: &Content) -> String {
    server(content, u64::MAX, Event::Silence).await
}

/// The same, until something happens after so many bytes.
async fn server(content: &Content, after: u64, event: Event) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/data.bin", listener.local_addr().unwrap());
    let (content, left) = (content.clone(), Arc::new(AtomicU64::new(after)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, content.clone(), Arc::clone(&left), event));
        }
    });
    url
}

async fn serve(
    mut stream: TcpStream,
    content: Content,
    left: Arc<AtomicU64>,
    event: Event,
) -> Option<()> {
    // The kernel's clock does not stand still: a second small write would wait for it.
    stream.set_nodelay(true).ok()?;
    let (mut input, size) = (Vec::new(), content.size_bytes());
    loop {
        let end = loop {
            if let Some(at) = input.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut input).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(input.drain(..end).collect()).ok()?;
        let range = head.lines().find_map(|line| line.strip_prefix("Range: bytes="))?;
        let (start, last) = range.split_once('-')?;
        let start: u64 = start.parse().ok()?;
        let end = last.parse().map_or(size, |last: u64| (last + 1).min(size));
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{size}\r\n\r\n",
            end - start,
            end - 1
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut at = start;
        while at < end {
            match event {
                _ if left.load(Relaxed) > 0 => {}
                Event::Silence => std::future::pending().await,
                Event::Sleep => {
                    tokio::time::advance(Duration::from_secs(3600)).await;
                    left.store(u64::MAX, Relaxed);
                }
            }
            let part = (end - at).min(64 << 10).min(left.load(Relaxed));
            left.fetch_sub(part, Relaxed);
            stream.write_all(&content.read(at, at + part)).await.ok()?;
            at += part;
        }
    }
}

fn to_stream(urls: &[String]) -> JobSpec {
    let from = GetFrom::Replicas(urls.iter().cloned().map(Address::new).collect());
    JobSpec::new(Work::Get(GetSpec::new(from, GetTo::Stream)))
}

/// Runs a job; its reader begins only after so long.
async fn run(spec: JobSpec, reads_after: Duration) -> (Result<Outcome, JobError>, Vec<u8>) {
    let (writer, mut reader) = tokio::io::duplex(64 << 10);
    let writer = Arc::new(std::sync::Mutex::new(Some(writer)));
    let reads = tokio::spawn(async move {
        sleep(reads_after).await;
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).await.unwrap();
        bytes
    });
    let output = move || -> Box<dyn AsyncWrite + Send + Unpin> {
        Box::new(writer.lock().unwrap().take().expect("it is opened once"))
    };
    let streams = Streams { list: None, output: Some(Arc::new(output)) };
    let observer: Arc<dyn JobObserver> = Arc::new(|_: JobEvent| {});
    let ended = Jobs::default().run(&spec, &streams, &observer, &Control::default()).await;
    (ended, reads.await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_pauses_is_no_stall() {
    let content = Content::random(1, 3_000_011);
    let urls = [honest(&content).await, honest(&content).await];
    let mut spec = to_stream(&urls);
    spec.network.timeout_ms = 1000;
    let (ended, bytes) = run(spec, Duration::from_secs(1000)).await;
    assert!(matches!(ended, Ok(Outcome::File(_))), "{ended:?}");
    assert!(bytes == content.read(0, content.size_bytes()));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_got_only_a_part_ends_as_incomplete() {
    let content = Content::random(1, 6_000_011);
    let mut spec = to_stream(&[server(&content, 1_000_000, Event::Silence).await]);
    spec.network.timeout_ms = 20_000;
    spec.plan.connections = Some(1);
    let began = Instant::now();
    let (ended, bytes) = run(spec, Duration::ZERO).await;
    let Err(JobError::Transfer { error, kept, .. }) = ended else { panic!("{ended:?}") };
    assert!(matches!(&*error, GetError::Stalled { stall_s, .. } if *stall_s == 20.0), "{error:?}");
    assert!(error.to_string().contains("nothing arrived from any source for 20 s"), "{error}");
    assert!(kept.received_bytes > 0, "{kept:?}");
    assert!(!bytes.is_empty() && bytes.len() < 6_000_011);
    assert!(bytes == content.read(0, bytes.len() as u64), "a part of it, in order");
    assert!(began.elapsed() >= Duration::from_secs(20), "{:?}", began.elapsed());
}

/// It ended on waking up: "nothing arrived from any source for 2 s", since the silence had been longer
/// than the time-out.
#[tokio::test(start_paused = true)]
async fn a_machine_that_was_asleep_is_no_stall() {
    let content = Content::random(1, 6_000_011);
    let mut spec = to_stream(&[server(&content, 1_000_000, Event::Sleep).await]);
    spec.network.timeout_ms = 2000;
    let began = Instant::now();
    let (ended, bytes) = run(spec, Duration::ZERO).await;
    assert!(matches!(ended, Ok(Outcome::File(_))), "{ended:?}");
    assert!(bytes == content.read(0, content.size_bytes()));
    assert!(began.elapsed() >= Duration::from_secs(3600), "it never slept");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_kept() {
    let content = Content::random(1, 6_000_011);
    let urls = [honest(&content).await, honest(&content).await];
    let mut spec = to_stream(&urls);
    spec.network.limit_bytes_per_s = Some(100_000);
    let began = Instant::now();
    let (ended, bytes) = run(spec, Duration::ZERO).await;
    assert!(matches!(ended, Ok(Outcome::File(_))), "{ended:?}");
    assert!(bytes == content.read(0, content.size_bytes()));
    let took = began.elapsed();
    assert!((50..70).contains(&took.as_secs()), "6 MB at 100 kB/s took {took:?}");
}
