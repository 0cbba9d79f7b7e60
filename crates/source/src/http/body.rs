//! Where in the byte stream a body's payload lies: by length, in chunks, or up to the end of
//! the connection.
//!
//! While [`Body::payload`] is above zero the next bytes of the stream are payload and may go
//! straight into a pool buffer; at zero, and before [`Body::is_done`], framing bytes come next.

use swath_formats::chunks::{ChunkError, Chunks};

use super::head::{Head, HeadError};

/// The rest of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    state: State,
    /// Payload bytes consumed so far.
    taken_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    UntilClose,
    /// Whoever reads it tells of each part, of which so much is left, and of the end.
    Told(u64),
    Chunks(Chunks),
    Done,
}

impl Body {
    /// The body that follows `head` as the answer to a GET.
    pub fn after(head: &Head) -> Result<Body, HeadError> {
        let state = if head.status < 200 || head.status == 204 || head.status == 304 {
            State::Done
        } else if head.is_chunked()? {
            State::Chunks(Chunks::lenient())
        } else {
            match head.content_length()? {
                Some(0) => State::Done,
                Some(length) => State::Length(length),
                None => State::UntilClose,
            }
        };
        Ok(Body { state, taken_bytes: 0 })
    }

    /// No body at all.
    pub fn none() -> Body {
        Body { state: State::Done, taken_bytes: 0 }
    }

    /// The same, read by somebody who tells of its parts and its end.
    pub fn told(self) -> Body {
        if self.ends_with_connection() { Body { state: State::Told(0), ..self } } else { self }
    }

    /// A part of `bytes` bytes is here, if parts are told of.
    pub fn tell(&mut self, bytes: u64) {
        if let State::Told(left) = &mut self.state {
            *left += bytes;
        }
    }

    /// That was all; whether it may be, as far as was announced.
    pub fn tell_end(&mut self) -> bool {
        if let State::Told(_) = self.state {
            self.state = State::Done;
        }
        self.is_done()
    }

    /// Returns how many of the next bytes of the stream are payload.
    pub fn payload(&self) -> u64 {
        match &self.state {
            State::Length(left) | State::Told(left) => *left,
            State::Chunks(chunks) => chunks.payload(),
            State::UntilClose => u64::MAX,
            State::Done => 0,
        }
    }

    /// Whether the body is complete; the next byte belongs to the next answer.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Chunks(chunks) => chunks.is_done(),
            state => *state == State::Done,
        }
    }

    /// Payload bytes still to come, where that was announced.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            _ if self.is_done() => Some(0),
            _ => None,
        }
    }

    /// Payload bytes consumed so far.
    pub fn taken(&self) -> u64 {
        self.taken_bytes
    }

    /// Returns whether only the end of the connection ends this body.
    pub fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// `bytes` of payload (at most [`Body::payload`]) were consumed.
    pub fn take(&mut self, bytes: u64) {
        self.taken_bytes = self.taken_bytes.saturating_add(bytes);
        match &mut self.state {
            State::Length(left) if bytes >= *left => self.state = State::Done,
            State::Length(left) | State::Told(left) => *left = left.saturating_sub(bytes),
            State::Chunks(chunks) => chunks.take(bytes),
            State::UntilClose | State::Done => {}
        }
    }

    /// Consumes framing at the start of `input`; returns how many bytes that were. Stops where
    /// payload begins, the body ends or the input is used up.
    pub fn frame(&mut self, input: &[u8]) -> Result<usize, ChunkError> {
        match &mut self.state {
            State::Chunks(chunks) => chunks.frame(input),
            _ => Ok(0),
        }
    }

    /// Whether it could be complete here, if it were said: without a length, or between two chunks.
    pub fn may_end_here(&self) -> bool {
        match &self.state {
            State::Chunks(chunks) => chunks.is_between(),
            state => matches!(state, State::UntilClose | State::Told(_)),
        }
    }

    /// It is complete.
    pub fn end(&mut self) {
        self.state = State::Done;
    }

    /// The connection ended here: whether that is this body's proper end.
    pub fn end_of_connection(&mut self) -> bool {
        if self.state == State::UntilClose {
            self.state = State::Done;
        }
        self.is_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(head: &str) -> Body {
        Body::after(&Head::parse(head.as_bytes()).unwrap().unwrap().0).unwrap()
    }

    /// Feeds `input` and returns the payload and how many bytes were used.
    fn drive(body: &mut Body, input: &[u8]) -> (Vec<u8>, usize) {
        let (mut payload, mut at) = (Vec::new(), 0);
        while !body.is_done() && at < input.len() {
            let run = usize::try_from(body.payload()).unwrap_or(usize::MAX).min(input.len() - at);
            payload.extend_from_slice(&input[at..at + run]);
            body.take(run as u64);
            at += run + body.frame(&input[at + run..]).unwrap();
        }
        (payload, at)
    }

    #[test]
    fn chunks_end_the_body() {
        let mut chunked = body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let input = b"5;name=\"x\"\r\nhello\r\n6\n world\n0\r\nDigest: x\r\n\r\nHTTP/1.1 200";
        assert!(chunked.may_end_here());
        let (payload, used) = drive(&mut chunked, input);
        assert_eq!(
            (payload.as_slice(), &input[used..]),
            (&b"hello world"[..], &b"HTTP/1.1 200"[..])
        );
        assert_eq!((chunked.is_done(), chunked.taken(), chunked.remaining()), (true, 11, Some(0)));
    }

    #[test]
    fn lengths_and_connection_ends() {
        let mut length = body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(drive(&mut length, b"abcdef"), (b"abc".to_vec(), 3));
        let mut short = body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        drive(&mut short, b"ab");
        assert!(!short.end_of_connection());
        let mut open = body("HTTP/1.1 200 OK\r\n\r\n");
        drive(&mut open, b"abc");
        assert!(open.end_of_connection());
        assert!(body("HTTP/1.1 204 No Content\r\n\r\n").is_done());
        assert!(body("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_done());
    }
}
