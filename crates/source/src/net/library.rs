//! A connection by the library (reqwest), for servers and proxies that our own HTTP/1.1 cannot speak
//! with: HTTP/2 only, SOCKS.
//!
//! It takes whole requests and gives heads and parts of bodies, which [`super::Http1Conn`] hands on as
//! it does those of its own: so every rule about answers exists once. One request at a time; the rest
//! waits.
//!
//! States: idle -> asked -> answering -> idle …, or ended.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;
use reqwest::{Body, Client, Request, Response};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::connect::tls_failed;
use super::tls;
use crate::error::LaneError;
use crate::http::head::{Head, HeadError};
use crate::http::request::is_field_safe;
use crate::target::Origin;

/// The library, on its way to one origin.
pub(crate) struct Library {
    client: Client,
    origin: Origin,
    /// Requests that have not been made.
    requests: Vec<u8>,
    state: State,
    failure: Option<LaneError>,
}

enum State {
    Idle,
    Asked(AbortOnDropHandle<reqwest::Result<Response>>),
    Answering(Body),
    Ended,
}

/// What comes of a request.
pub(crate) enum Came {
    Head(Result<Head, HeadError>),
    /// Some of its body, not empty.
    Part(Bytes),
    /// The end of its body.
    End,
    /// Nothing comes any more.
    Closed,
}

impl Library {
    pub fn new(client: Client, origin: &Origin) -> Library {
        let (origin, state) = (origin.clone(), State::Idle);
        Library { client, origin, requests: Vec::new(), state, failure: None }
    }

    /// Takes requests, each behind the one before.
    pub fn send(&mut self, requests: &mut Vec<u8>) {
        self.requests.append(requests);
    }

    /// Returns whether nothing is under way.
    pub fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            match self.poll(cx) {
                Poll::Ready(Came::End) => {}
                Poll::Ready(_) => return false,
                Poll::Pending => return matches!(self.state, State::Idle),
            }
        }
    }

    /// Takes the reason why it has ended, if the library is to blame.
    pub fn take_failure(&mut self) -> Option<LaneError> {
        self.failure.take()
    }

    /// Returns what comes next.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Came> {
        loop {
            match &mut self.state {
                State::Idle => match self.next_request() {
                    Ok(Some(request)) => {
                        let call = tokio::spawn(self.client.execute(request));
                        self.state = State::Asked(AbortOnDropHandle::new(call));
                    }
                    // Whoever sends the next one polls again.
                    Ok(None) => return Poll::Pending,
                    Err(error) => self.end(Some(error)),
                },
                State::Asked(call) => match ready!(Pin::new(call).poll(cx)) {
                    Ok(Ok(response)) => {
                        let head = head_of(&response);
                        self.state = State::Answering(response.into());
                        return Poll::Ready(Came::Head(head));
                    }
                    Ok(Err(error)) => {
                        let error = lane_error(&error, &self.origin);
                        self.end(Some(error));
                    }
                    Err(error) => self.end(Some(LaneError::protocol(error.to_string()))),
                },
                State::Answering(body) => match ready!(Pin::new(body).poll_frame(cx)) {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(part) if !part.is_empty() => return Poll::Ready(Came::Part(part)),
                        _ => {}
                    },
                    None => {
                        self.state = State::Idle;
                        return Poll::Ready(Came::End);
                    }
                    Some(Err(error)) => self.end(body_error(&error)),
                },
                State::Ended => return Poll::Ready(Came::Closed),
            }
        }
    }

    fn end(&mut self, failure: Option<LaneError>) {
        self.state = State::Ended;
        self.failure = failure;
    }

    /// Returns the first request that waits.
    fn next_request(&mut self) -> Result<Option<Request>, LaneError> {
        let own = |error: &dyn std::fmt::Display| {
            LaneError::protocol(format!("its own request cannot be read: {error}"))
        };
        let mut fields = [httparse::EMPTY_HEADER; REQUEST_FIELDS_MAX];
        let mut parsed = httparse::Request::new(&mut fields);
        let httparse::Status::Complete(length) =
            parsed.parse(&self.requests).map_err(|error| own(&error))?
        else {
            return Ok(None);
        };
        let scheme = if self.origin.tls { "https" } else { "http" };
        let address = format!("{scheme}://{}{}", self.origin, parsed.path.unwrap_or("/"));
        let url = Url::parse(&address).map_err(|error| own(&error))?;
        let method = parsed.method.unwrap_or("GET").parse().map_err(|error| own(&error))?;
        let mut call = self.client.request(method, url);
        for field in parsed.headers.iter().filter(|field| !field.name.eq_ignore_ascii_case("host"))
        {
            call = call.header(field.name, field.value);
        }
        let request = call.build().map_err(|error| own(&error))?;
        self.requests.drain(..length);
        Ok(Some(request))
    }
}

/// The head of an answer, without what the library has undone.
fn head_of(response: &Response) -> Result<Head, HeadError> {
    let status = response.status();
    let fields = response.headers().iter().filter_map(|(name, value)| {
        let (name, value) = (name.as_str(), value.to_str().ok()?);
        let is_undone = ["transfer-encoding", "connection", "keep-alive"].contains(&name);
        let is_kept = !is_undone && is_field_safe(name, value);
        is_kept.then(|| (name.to_owned(), value.to_owned()))
    });
    Head::made(status.as_u16(), status.canonical_reason().unwrap_or(""), fields.collect())
}

/// A body that breaks off looks to the lane as it would over its own connection.
fn body_error(error: &reqwest::Error) -> Option<LaneError> {
    error.is_timeout().then(|| LaneError::Reset { reason: root_cause(error) })
}

fn lane_error(error: &reqwest::Error, origin: &Origin) -> LaneError {
    // What a server says of our certificate may come in place of the answer.
    let secure =
        origin.tls && (error.is_connect() && tls::is_behind(error) || tls::wants_ours(error));
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

/// A request is written by us and has no more fields than this, however many a user adds.
const REQUEST_FIELDS_MAX: usize = 512;
