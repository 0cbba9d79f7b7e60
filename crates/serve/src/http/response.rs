//! An answer: status, header fields, and a body that may be larger than memory.

use std::fs::File;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;

use http::StatusCode;
use swath_model::Range;

use super::stream::Stream;

/// An answer.
pub struct Response {
    /// Its status code.
    pub status: u16,
    /// All but those of the body's framing and of the connection.
    pub fields: Vec<(&'static str, String)>,
    /// What follows the head.
    pub body: Content,
    /// What the status line says, if that is not what it says of every such status.
    pub own_reason: Option<&'static str>,
    /// Takes the connection over, once the head of a 101 is sent.
    pub takes_over: Option<TakesOver>,
}

/// Goes on with a connection that speaks HTTP no more.
pub type TakesOver = Box<dyn FnOnce(Stream, SocketAddr) + Send>;

/// What comes after the head.
pub enum Content {
    /// Nothing.
    Empty,
    /// What is in memory.
    Bytes(Vec<u8>),
    /// Parts of files, with text around them.
    Pieces(Vec<Piece>),
    /// What is made while it is sent.
    Made(Box<dyn Make>),
    /// Parts of files, each found when it is its turn. The length is known.
    Found(Box<dyn Find>),
}

/// A part of a body.
pub enum Piece {
    /// Bytes in memory.
    Text(Vec<u8>),
    /// A part of a file.
    Part {
        /// The file.
        file: Arc<File>,
        /// Where in it.
        range: Range,
    },
}

/// The next bytes of a body that is being made.
pub type Made<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send + 'a>>;

/// Makes a body part by part.
pub trait Make: Send {
    /// Its length, if that is known from the beginning.
    fn length(&self) -> Option<u64>;

    /// The next bytes, none at the end. An error ends the connection: nobody takes what came for
    /// the whole.
    fn next(&mut self) -> Made<'_>;

    /// What [`Make::next`] made last was sent: its memory may be used again.
    fn take_back(&mut self, _sent: Vec<u8>) {}
}

/// Finds a body part by part in open files, for where the kernel can send these as they are.
pub trait Find: Make {
    /// The next part; `None` at the end. To be used in place of [`Make::next`], not beside it.
    fn part(&mut self) -> Finding<'_>;
}

/// The next part of a body that is being found.
pub type Finding<'a> = Pin<Box<dyn Future<Output = io::Result<Option<FoundPart>>> + Send + 'a>>;

/// A part of an open file.
pub struct FoundPart {
    /// The file.
    pub file: Box<dyn AsFd + Send + Sync>,
    /// Where in the file.
    pub range: Range,
}

impl Content {
    /// How long it is, if that is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Content::Empty => Some(0),
            Content::Bytes(bytes) => Some(bytes.len() as u64),
            Content::Pieces(pieces) => Some(pieces.iter().map(Piece::bytes).sum()),
            Content::Made(made) => made.length(),
            Content::Found(found) => found.length(),
        }
    }
}

impl Piece {
    /// How long it is.
    pub fn bytes(&self) -> u64 {
        match self {
            Piece::Text(text) => text.len() as u64,
            Piece::Part { range, .. } => range.len(),
        }
    }
}

impl Response {
    /// An answer without a body.
    pub fn empty(status: u16) -> Response {
        Response {
            status,
            fields: Vec::new(),
            body: Content::Empty,
            own_reason: None,
            takes_over: None,
        }
    }

    /// The connection is turned into one of `protocol` (RFC 9110, section 7.8).
    pub fn switching(protocol: &'static str, takes_over: TakesOver) -> Response {
        let response = Response::empty(101).with("upgrade", protocol);
        Response { takes_over: Some(takes_over), ..response }
    }

    /// An answer that says something in plain text, for people.
    pub fn text(status: u16, text: impl Into<String>) -> Response {
        let mut text = text.into();
        text.push('\n');
        Response::empty(status)
            .with("content-type", "text/plain; charset=utf-8")
            .containing(Content::Bytes(text.into_bytes()))
    }

    /// The same with one more header field. Names in lower case.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.fields.push((name, value.into()));
        self
    }

    /// The same with another body.
    pub fn containing(mut self, body: Content) -> Response {
        self.body = body;
        self
    }

    /// Whether this status never has a body (RFC 9112, section 6.3).
    pub fn is_bodiless(&self) -> bool {
        matches!(self.status, 100..=199 | 204 | 304)
    }

    /// Its head as HTTP/1.1 writes it. `date` is the value of `Date`; with `length` unknown the
    /// body comes in chunks if `chunked`, else up to the end of the connection.
    pub fn head(&self, date: &str, chunked: bool, keeps_alive: bool) -> Vec<u8> {
        let reason = self.own_reason.unwrap_or_else(|| reason(self.status));
        let mut head = format!("HTTP/1.1 {} {reason}\r\ndate: {date}\r\n", self.status);
        for (name, value) in &self.fields {
            // A line end within a value would begin another field.
            let value = value.replace(['\r', '\n', '\0'], " ");
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match self.body.length() {
            _ if self.is_bodiless() => {}
            Some(length) => head.push_str(&format!("content-length: {length}\r\n")),
            None if chunked => head.push_str("transfer-encoding: chunked\r\n"),
            None => {}
        }
        head.push_str(if self.takes_over.is_some() {
            "connection: upgrade\r\n\r\n"
        } else if keeps_alive {
            "connection: keep-alive\r\n\r\n"
        } else {
            "connection: close\r\n\r\n"
        });
        head.into_bytes()
    }
}

/// What the status line says of a status.
pub fn reason(status: u16) -> &'static str {
    match status {
        // The library still has the name of RFC 7231.
        413 => "Content Too Large",
        _ => StatusCode::from_u16(status)
            .ok()
            .and_then(|it| it.canonical_reason())
            .unwrap_or("Status"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_written() {
        let response = Response::text(404, "there is nothing here").with("x-a", "1\r\nevil: 2");
        let head = String::from_utf8(response.head("D", true, true)).unwrap();
        assert_eq!(
            head,
            "HTTP/1.1 404 Not Found\r\ndate: D\r\ncontent-type: text/plain; charset=utf-8\r\n\
             x-a: 1  evil: 2\r\ncontent-length: 22\r\nconnection: keep-alive\r\n\r\n"
        );
        let head = Response::empty(304).head("D", true, false);
        assert_eq!(head, b"HTTP/1.1 304 Not Modified\r\ndate: D\r\nconnection: close\r\n\r\n");
    }
}
