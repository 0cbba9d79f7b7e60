//! A scripted server and helpers that collect what a lane reports.
#![allow(dead_code, missing_docs)]

pub mod driver;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, SwathId};
use swath_source::{
    Facts, HttpSource, Lane, LaneError, LaneEvent, LaneEventKind, Net, NetOptions, Source, Trust,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use url::Url;

/// Byte `offset` of the test file.
pub fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

pub fn content(range: Range) -> Vec<u8> {
    (range.start..range.end).map(byte_at).collect()
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub struct Request {
    pub connection: usize,
    pub path: String,
    pub head: String,
    pub range: Option<(u64, Option<u64>)>,
}

impl Request {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// What the server answers: bytes to send, and whether the connection ends after them.
pub struct Reply {
    pub bytes: Vec<u8>,
    pub close: bool,
}

impl Reply {
    pub fn keep(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply { bytes: bytes.into(), close: false }
    }
    pub fn close(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply { bytes: bytes.into(), close: true }
    }
}

/// A proper 206 for `request` of a file of `size` bytes; a 400 if it asks for no range.
pub fn partial(request: &Request, size: u64) -> Vec<u8> {
    partial_of(request, Range::new(0, size))
}

/// The same for a file that is this part of the test file.
pub fn partial_of(request: &Request, part: Range) -> Vec<u8> {
    let size = part.len();
    let Some((start, last)) = request.range else {
        return "HTTP/1.1 400 Ranges only\r\nContent-Length: 0\r\n\r\n".into();
    };
    let end = last.map_or(size, |last| (last + 1).min(size));
    if start >= size {
        return format!(
            "HTTP/1.1 416 No\r\nContent-Range: bytes */{size}\r\nContent-Length: 0\r\n\r\n"
        )
        .into();
    }
    let mut bytes = format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{size}\r\nETag: \"v1\"\r\n\r\n",
        end - start,
        end - 1
    )
    .into_bytes();
    bytes.extend(content(Range::new(part.start + start, part.start + end)));
    bytes
}

/// A server on loopback whose answers come from a function; it remembers what it was asked.
pub struct Server {
    pub url: Url,
    pub requests: Arc<Mutex<Vec<Request>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url =
            Url::parse(&format!("http://{}/file.bin", listener.local_addr().unwrap())).unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            let mut connection = 0;
            let mut tasks = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                tasks.spawn(serve(stream, connection, Arc::clone(&log), Arc::clone(&answer)));
                connection += 1;
            }
        });
        Server { url, requests, task }
    }

    pub fn seen(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

pub async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    log: Arc<Mutex<Vec<Request>>>,
    answer: Arc<impl Fn(&Request) -> Reply>,
) {
    let mut input = Vec::new();
    loop {
        while let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&input[..end]).into_owned();
            input.drain(..end + 4);
            let request = parse(connection, head);
            log.lock().unwrap().push(request.clone());
            let reply = answer(&request);
            if stream.write_all(&reply.bytes).await.is_err() {
                return;
            }
            if reply.close {
                let _ = stream.shutdown().await;
                return;
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(bytes) if bytes > 0 => input.extend_from_slice(&chunk[..bytes]),
            _ => return,
        }
    }
}

fn parse(connection: usize, head: String) -> Request {
    let path = head.split(' ').nth(1).unwrap_or("").to_owned();
    let mut request = Request { connection, path, head, range: None };
    request.range = request.field("range").and_then(|value| {
        let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()))
    });
    request
}

/// A lane with everything around it.
pub struct Bench<S: ?Sized = HttpSource> {
    pub source: Arc<S>,
    pub lane: Box<dyn Lane>,
    pub pool: Pool,
    pub events: UnboundedReceiver<LaneEvent>,
}

/// What a lane reported.
#[derive(Debug, Default)]
pub struct Story {
    pub ups: usize,
    pub facts: Vec<Facts>,
    /// Data by swath: (offset, bytes).
    pub chunks: Vec<(SwathId, u64, Vec<u8>)>,
    pub done: Vec<SwathId>,
    pub failed: Vec<(SwathId, LaneError)>,
    pub closed: Option<(Option<LaneError>, Vec<SwathId>)>,
}

impl Story {
    /// Whether the swath was delivered exactly as `range` of the test file.
    pub fn delivered(&self, swath: u64, range: Range) -> bool {
        let mut at = range.start;
        for (_, offset, data) in self.chunks.iter().filter(|(id, ..)| id.0 == swath) {
            if *offset != at || data.iter().zip(at..).any(|(&byte, offset)| byte != byte_at(offset))
            {
                return false;
            }
            at += data.len() as u64;
        }
        at == range.end && self.done.contains(&SwathId(swath))
    }
}

pub fn options() -> NetOptions {
    NetOptions { timeout: Duration::from_secs(60), ..NetOptions::default() }
}

impl Bench<HttpSource> {
    pub fn open(url: &Url) -> Bench {
        Bench::with(&Net::new(options()).unwrap(), url)
    }

    pub fn with(net: &Net, url: &Url) -> Bench {
        let source = HttpSource::new(net, url.clone(), Trust::Named);
        Bench::on(source, Pool::new(8, 64 * 1024))
    }
}

impl<S: Source + ?Sized> Bench<S> {
    pub fn on(source: Arc<S>, pool: Pool) -> Bench<S> {
        let (sender, events) = unbounded_channel();
        let lane = Arc::clone(&source).open_lane(LaneId(0), &pool, sender);
        Bench { source, lane, pool, events }
    }

    pub fn fetch(&self, swath: u64, start: u64, end: u64) {
        self.lane.fetch(SwathId(swath), Range::new(start, end));
    }

    /// Collect events until `enough` says so or the lane has closed.
    pub async fn until(&mut self, story: &mut Story, enough: impl Fn(&Story) -> bool) {
        while story.closed.is_none() && !enough(story) {
            let event = tokio::time::timeout(Duration::from_secs(90), self.events.recv())
                .await
                .unwrap_or_else(|_| panic!("nothing happens any more: {story:?}"))
                .expect("a lane says that it closed");
            match event.kind {
                LaneEventKind::Up { .. } => story.ups += 1,
                LaneEventKind::Hops(_) => {}
                LaneEventKind::Facts(facts) => story.facts.push(*facts),
                LaneEventKind::Chunk { swath, offset, buffer, .. } => {
                    story.chunks.push((swath, offset, buffer.to_vec()))
                }
                LaneEventKind::Done { swath } => story.done.push(swath),
                LaneEventKind::Failed { swath, error } => story.failed.push((swath, error)),
                LaneEventKind::Closed { error, unfinished } => {
                    story.closed = Some((error, unfinished))
                }
            }
        }
    }

    /// Collect until so many swaths are done or failed.
    pub async fn settled(&mut self, count: usize) -> Story {
        let mut story = Story::default();
        self.until(&mut story, |story| story.done.len() + story.failed.len() >= count).await;
        story
    }
}
