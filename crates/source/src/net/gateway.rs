//! The library behind the interface of our own lanes: a small gateway within the process.
//!
//! For servers and proxies that our own connections cannot speak with (HTTP/2 only, SOCKS) a
//! lane talks HTTP/1.1 over a pipe in memory, and this task at its other end makes each request
//! with reqwest and writes the answer back. So every rule about answers exists once, and both
//! kinds of lane keep to it. One request at a time; the rest waits in the pipe.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::connect::tls_failed;
use super::tls;
use crate::error::LaneError;
use crate::http::request::is_field_safe;
use crate::target::Origin;

/// The library at work. Dropping it ends it.
pub(crate) struct Gateway {
    failure: Failure,
    _task: AbortOnDropHandle<()>,
}

/// Why the library could not answer.
type Failure = Arc<Mutex<Option<LaneError>>>;

/// What the pipe holds in each direction.
const PIPE_BYTES: usize = 256 * 1024;
/// A request is written by us and is never this long …
const REQUEST_LIMIT_BYTES: usize = 64 * 1024;
/// … and has no more fields than this, however many a user adds.
const REQUEST_FIELDS_MAX: usize = 512;

impl Gateway {
    /// A gateway to `origin` by way of `client`, and the lane's end of its pipe.
    pub fn open(client: reqwest::Client, origin: &Origin) -> (Gateway, DuplexStream) {
        let (pipe, mut far_end) = tokio::io::duplex(PIPE_BYTES);
        let failure = Failure::default();
        let origin = origin.clone();
        let noted = Arc::clone(&failure);
        let task = tokio::spawn(async move {
            if let Err(error) = serve(client, &origin, &mut far_end).await {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = error;
            }
            // The pipe ends only now, so that whoever sees its end finds the reason.
            drop(far_end);
        });
        (Gateway { failure, _task: AbortOnDropHandle::new(task) }, pipe)
    }

    /// Why the pipe ended, if the library is to blame.
    pub fn failure(&self) -> Option<LaneError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Answer requests until the pipe or the connection behind it ends. An error of `None` is the
/// lane's own doing.
async fn serve(
    client: reqwest::Client,
    origin: &Origin,
    pipe: &mut DuplexStream,
) -> Result<(), Option<LaneError>> {
    let mut input = Vec::with_capacity(4096);
    loop {
        while let Some(length) = answer_one(&client, origin, &input, pipe).await? {
            input.drain(..length);
        }
        if input.len() > REQUEST_LIMIT_BYTES {
            return Err(Some(LaneError::protocol("its own request is too long")));
        }
        if pipe.read_buf(&mut input).await.map_err(|_| None)? == 0 {
            return Ok(());
        }
    }
}

/// Answer the first request in `input`; its length, `None` while it is incomplete.
async fn answer_one(
    client: &reqwest::Client,
    origin: &Origin,
    input: &[u8],
    pipe: &mut DuplexStream,
) -> Result<Option<usize>, Option<LaneError>> {
    let mut fields = [httparse::EMPTY_HEADER; REQUEST_FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => {
            let reason = format!("its own request cannot be read: {error}");
            return Err(Some(LaneError::protocol(reason)));
        }
    };
    let scheme = if origin.tls { "https" } else { "http" };
    let address = format!("{scheme}://{origin}{}", request.path.unwrap_or("/"));
    let url = Url::parse(&address).map_err(|error| Some(LaneError::protocol(error.to_string())))?;
    let method =
        reqwest::Method::from_bytes(request.method.unwrap_or("GET").as_bytes()).unwrap_or_default();
    let mut call = client.request(method, url);
    for field in request.headers.iter().filter(|field| !field.name.eq_ignore_ascii_case("host")) {
        call = call.header(field.name, field.value);
    }
    let mut response = call.send().await.map_err(|error| Some(lane_error(&error, origin)))?;
    pipe.write_all(head_of(&response).as_bytes()).await.map_err(|_| None)?;
    let bare = request.method == Some("HEAD")
        || response.status().as_u16() == 204
        || response.status().as_u16() == 304;
    let chunked = !bare && !response.headers().contains_key("content-length");
    loop {
        match response.chunk().await {
            Ok(Some(data)) => write_data(pipe, &data, chunked).await.map_err(|_| None)?,
            Ok(None) => break,
            Err(error) => return Err(body_error(&error)),
        }
    }
    if chunked {
        pipe.write_all(b"0\r\n\r\n").await.map_err(|_| None)?;
    }
    Ok(Some(length))
}

async fn write_data(pipe: &mut DuplexStream, data: &[u8], chunked: bool) -> io::Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    if chunked {
        pipe.write_all(format!("{:x}\r\n", data.len()).as_bytes()).await?;
    }
    pipe.write_all(data).await?;
    if chunked { pipe.write_all(b"\r\n").await } else { Ok(()) }
}

fn head_of(response: &reqwest::Response) -> String {
    let status = response.status();
    let mut head =
        format!("HTTP/1.1 {} {}\r\n", status.as_u16(), status.canonical_reason().unwrap_or(""));
    for (name, value) in response.headers() {
        let Ok(text) = value.to_str() else { continue };
        // The library has undone these; they say nothing about the pipe.
        if ["transfer-encoding", "connection", "keep-alive"].contains(&name.as_str())
            || !is_field_safe(name.as_str(), text)
        {
            continue;
        }
        head.push_str(&format!("{name}: {text}\r\n"));
    }
    if !response.headers().contains_key("content-length") {
        head.push_str("Transfer-Encoding: chunked\r\n");
    }
    head.push_str("\r\n");
    head
}

/// A body that breaks off looks to the lane as it would over its own connection.
fn body_error(error: &reqwest::Error) -> Option<LaneError> {
    error.is_timeout().then(|| LaneError::Reset { reason: root_cause(error) })
}

fn lane_error(error: &reqwest::Error, origin: &Origin) -> LaneError {
    let secure = origin.tls && error.is_connect() && tls::is_behind(error);
    let (host, timed_out) = (origin.to_string(), error.is_timeout());
    if timed_out {
        LaneError::Connect { host, timed_out, reason: "no answer in time".to_owned() }
    } else if secure {
        tls_failed(origin, error)
    } else if error.is_connect() {
        LaneError::Connect { host, timed_out, reason: root_cause(error) }
    } else {
        LaneError::Reset { reason: root_cause(error) }
    }
}

/// The innermost reason; the outer ones repeat the address.
fn root_cause(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
