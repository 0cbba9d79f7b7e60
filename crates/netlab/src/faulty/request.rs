//! The inbound side of a connection: bytes with the time of their arrival, cut into requests.
//!
//! A pump reads the socket while answers leave, so a pipelined request has its true time of
//! arrival, and behaviours can tell that it is there. The queue between them is bounded.

use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use super::log::find;

/// One request head.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub method: String,
    /// As sent.
    pub target: String,
    /// Without scheme, authority and query.
    pub path: String,
    pub query: Option<String>,
    pub http10: bool,
    pub headers: Vec<(String, String)>,
    pub arrived: Instant,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// Returns whether a comma-separated header holds this word.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        self.header(name).is_some_and(|value| {
            value.split(',').any(|part| {
                part.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(word)
            })
        })
    }

    /// Returns whether the client wants the connection kept.
    pub(super) fn keeps_alive(&self) -> bool {
        if self.http10 {
            self.lists("connection", "keep-alive")
        } else {
            !self.lists("connection", "close")
        }
    }

    fn parse(head: &str, arrived: Instant) -> Option<Request> {
        let mut lines = head.lines();
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if method.is_empty() || words.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        let headers = lines
            .take_while(|line| !line.is_empty())
            .map(|line| {
                let (name, value) = line.split_once(':')?;
                Some((name.to_owned(), value.trim().to_owned()))
            })
            .collect::<Option<Vec<_>>>()?;
        // A client that takes us for a proxy sends the absolute form.
        let local = match target.split_once("://") {
            Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
            None => target,
        };
        let (path, query) = match local.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (local, None),
        };
        Some(Request {
            method: method.to_owned(),
            target: target.to_owned(),
            path: path.to_owned(),
            query,
            http10: version == "HTTP/1.0",
            headers,
            arrived,
        })
    }
}

/// What a `Range` header means for a file of this size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// No range, or one that RFC 9110 lets a server ignore.
    Whole,
    Part(Range<u64>),
    Unsatisfiable,
}

/// Reads a `Range` header. Several ranges in one header are refused by answering with the whole.
pub(super) fn asked(header: Option<&str>, size_bytes: u64) -> Asked {
    let Some(spec) = header.and_then(|value| value.trim().strip_prefix("bytes=")) else {
        return Asked::Whole;
    };
    let Some((first, last)) = spec.split_once('-') else { return Asked::Whole };
    let (first, last) = (first.trim(), last.trim());
    let part = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first > last => return Asked::Whole,
        (Ok(first), Ok(last)) => first..last.saturating_add(1).min(size_bytes),
        (Ok(first), Err(_)) if last.is_empty() => first..size_bytes,
        (Err(_), Ok(suffix)) if first.is_empty() => size_bytes.saturating_sub(suffix)..size_bytes,
        _ => return Asked::Whole,
    };
    if part.start >= part.end { Asked::Unsatisfiable } else { Asked::Part(part) }
}

/// Why there is no next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRequest {
    /// The client closed.
    Closed,
    /// Idle for longer than the server keeps a connection.
    Idle,
    /// What came is no HTTP, or a head beyond any sense.
    Bad,
}

/// Moves what arrives into the queue; never ends before the connection does.
pub(super) async fn pump(
    mut reader: impl AsyncRead + Unpin,
    queue: mpsc::Sender<(Instant, Vec<u8>)>,
) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
        if queue.send((Instant::now(), buffer[..count].to_vec())).await.is_err() {
            break;
        }
    }
    // The session sees the end of the queue, not the end of this future.
    drop(queue);
    std::future::pending().await
}

/// The receiving end of the pump.
pub(super) struct Incoming {
    queue: mpsc::Receiver<(Instant, Vec<u8>)>,
    buffer: Vec<u8>,
    /// When the newest byte of the buffer arrived.
    newest: Instant,
}

impl Incoming {
    pub(super) fn new(queue: mpsc::Receiver<(Instant, Vec<u8>)>) -> Self {
        Incoming { queue, buffer: Vec::new(), newest: Instant::now() }
    }

    /// Returns the next request, and its body read and forgotten.
    pub(super) async fn next(&mut self, idle: Duration) -> Result<Request, NoRequest> {
        let head_bytes = loop {
            if let Some(end) = head_end(&self.buffer) {
                break end;
            }
            if self.buffer.len() > MAX_HEAD_BYTES {
                return Err(NoRequest::Bad);
            }
            match tokio::time::timeout(idle, self.queue.recv()).await {
                Err(_) => return Err(NoRequest::Idle),
                Ok(None) if self.buffer.is_empty() => return Err(NoRequest::Closed),
                Ok(None) => return Err(NoRequest::Bad),
                Ok(Some(chunk)) => self.take(chunk),
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_bytes]).into_owned();
        self.buffer.drain(..head_bytes);
        let request = Request::parse(head.trim_start(), self.newest).ok_or(NoRequest::Bad)?;
        let mut body_bytes = match request.header("content-length") {
            Some(length) => length.parse::<u64>().map_err(|_| NoRequest::Bad)?,
            None => 0,
        };
        while body_bytes > 0 {
            let step = body_bytes.min(self.buffer.len() as u64);
            self.buffer.drain(..step as usize);
            body_bytes -= step;
            if body_bytes > 0 {
                let chunk = self.queue.recv().await.ok_or(NoRequest::Closed)?;
                self.take(chunk);
            }
        }
        Ok(request)
    }

    /// Whether something has arrived that no answer was made to.
    pub(super) fn has_more(&mut self) -> bool {
        while let Ok(chunk) = self.queue.try_recv() {
            self.take(chunk);
        }
        !self.buffer.is_empty()
    }

    pub(super) fn forget(&mut self) {
        while self.has_more() {
            self.buffer.clear();
        }
    }

    /// Reads until the client closes: a socket closed with unread bytes would reset and take the
    /// end of the answer with it.
    pub(super) async fn drain(&mut self, at_most: Duration) {
        let drained = async { while self.queue.recv().await.is_some() {} };
        let _ = tokio::time::timeout(at_most, drained).await;
    }

    fn take(&mut self, (arrived, bytes): (Instant, Vec<u8>)) {
        self.newest = arrived;
        self.buffer.extend_from_slice(&bytes);
    }
}

fn head_end(buffer: &[u8]) -> Option<usize> {
    buffer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

const READ_BYTES: usize = 16 << 10;
/// The queue of the pump, in reads: a client may pipeline this much before it is held back.
pub(super) const QUEUE_READS: usize = 16;
const MAX_HEAD_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_rfc_9110_says() {
        let cases = [
            (None, Asked::Whole),
            (Some("bytes=0-0"), Asked::Part(0..1)),
            (Some("bytes=10-19"), Asked::Part(10..20)),
            (Some("bytes=90-"), Asked::Part(90..100)),
            (Some("bytes=-10"), Asked::Part(90..100)),
            (Some("bytes=-1000"), Asked::Part(0..100)),
            (Some("bytes=50-1000"), Asked::Part(50..100)),
            (Some("bytes=100-"), Asked::Unsatisfiable),
            (Some("bytes=-0"), Asked::Unsatisfiable),
            (Some("bytes=9-3"), Asked::Whole),
            (Some("bytes=0-1,5-6"), Asked::Whole),
            (Some("items=0-1"), Asked::Whole),
            (Some("bytes=a-b"), Asked::Whole),
            (Some("bytes=-"), Asked::Whole),
            (Some("bytes=5-18446744073709551615"), Asked::Part(5..100)),
        ];
        for (header, meaning) in cases {
            assert_eq!(asked(header, 100), meaning, "{header:?}");
        }
        assert_eq!(asked(Some("bytes=0-"), 0), Asked::Unsatisfiable);
    }

    #[test]
    fn heads_are_read_leniently_and_targets_in_all_forms() {
        let now = Instant::now();
        let parse = |head: &str| Request::parse(head, now);
        let request = parse("GET /a?b=c HTTP/1.1\r\nHost: x\r\nrange:bytes=0-\r\n\r\n").unwrap();
        assert_eq!((request.path.as_str(), request.query.as_deref()), ("/a", Some("b=c")));
        assert_eq!(request.header("Range"), Some("bytes=0-"));
        assert!(request.keeps_alive());
        let request = parse("GET http://other:80/a HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(request.path, "/a");
        assert!(!request.keeps_alive());
        for junk in ["", "GET", "GET / HTTP/2", "GET /a b HTTP/1.1", "GET / HTTP/1.1\r\nx\r\n"] {
            assert!(parse(junk).is_none(), "{junk:?}");
        }
    }
}
