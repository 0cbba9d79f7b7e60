//! Where in the byte stream a body's payload lies: by length, in chunks, or up to the end of
//! the connection.
//!
//! Transitions: `Length(n) -> … -> Length(0)`; chunked: `Size -> Data -> DataEnd -> Size …`,
//! after a chunk of size 0 `Trailer -> Done`; `UntilClose -> Done` at the end of the connection.
//! While [`Body::payload`] is above zero the next bytes of the stream are payload and may go
//! straight into a pool buffer; at zero, and before [`Body::is_done`], framing bytes come next.

use super::head::{Head, HeadError};

/// A line of chunk framing longer than this is refused.
const LINE_LIMIT_BYTES: u32 = 4096;
/// Trailers longer than this in all are refused.
const TRAILER_LIMIT_BYTES: u32 = 16 * 1024;

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
    /// In the line that holds a chunk's size.
    Size {
        value: u64,
        digits: u32,
        in_extension: bool,
        line_bytes: u32,
    },
    Data(u64),
    DataEnd,
    /// In the trailer; `line_bytes` is the length of the current line without its end.
    Trailer {
        line_bytes: u32,
        total_bytes: u32,
    },
    Done,
}

/// Why the framing is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("a chunk of the body has no proper size")]
    BadChunkSize,
    #[error("a chunk of the body does not end where it should")]
    BadChunkEnd,
    #[error("the framing of the body never ends")]
    TooLong,
}

const SIZE_START: State = State::Size { value: 0, digits: 0, in_extension: false, line_bytes: 0 };

impl Body {
    /// The body that follows `head` as the answer to a GET.
    pub fn after(head: &Head) -> Result<Body, HeadError> {
        let state = if head.status < 200 || head.status == 204 || head.status == 304 {
            State::Done
        } else if head.is_chunked()? {
            SIZE_START
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

    /// How many of the next bytes of the stream are payload.
    pub fn payload(&self) -> u64 {
        match self.state {
            State::Length(left) | State::Data(left) => left,
            State::UntilClose => u64::MAX,
            _ => 0,
        }
    }

    /// Whether the body is complete; the next byte belongs to the next answer.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Payload bytes still to come, where that was announced.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            State::Done => Some(0),
            _ => None,
        }
    }

    /// Payload bytes consumed so far.
    pub fn taken(&self) -> u64 {
        self.taken_bytes
    }

    /// Whether only the end of the connection ends this body.
    pub fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// `bytes` of payload (at most [`Body::payload`]) were consumed.
    pub fn take(&mut self, bytes: u64) {
        self.taken_bytes = self.taken_bytes.saturating_add(bytes);
        self.state = match self.state {
            State::Length(left) if bytes >= left => State::Done,
            State::Length(left) => State::Length(left - bytes),
            State::Data(left) if bytes >= left => State::DataEnd,
            State::Data(left) => State::Data(left - bytes),
            ref other => other.clone(),
        };
    }

    /// Consume framing at the start of `input`; returns how many bytes that were. Stops where
    /// payload begins, the body ends or the input is used up.
    pub fn frame(&mut self, input: &[u8]) -> Result<usize, BodyError> {
        let mut used = 0;
        while self.payload() == 0 && !self.is_done() {
            let Some(&byte) = input.get(used) else { break };
            used += 1;
            self.frame_byte(byte)?;
        }
        Ok(used)
    }

    /// Whether it could be complete here, if it were said: without a length, or between two chunks.
    pub fn may_end_here(&self) -> bool {
        matches!(self.state, State::UntilClose | State::Size { digits: 0, .. } | State::DataEnd)
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

    fn frame_byte(&mut self, byte: u8) -> Result<(), BodyError> {
        self.state = match self.state {
            State::Size { line_bytes, .. } if line_bytes >= LINE_LIMIT_BYTES => {
                return Err(BodyError::TooLong);
            }
            State::Size { value, digits, in_extension, line_bytes } => match byte {
                b'\n' if digits == 0 => return Err(BodyError::BadChunkSize),
                b'\n' if value == 0 => State::Trailer { line_bytes: 0, total_bytes: 0 },
                b'\n' => State::Data(value),
                _ if in_extension => {
                    State::Size { value, digits, in_extension, line_bytes: line_bytes + 1 }
                }
                b';' | b'\r' | b' ' | b'\t' if digits > 0 => {
                    State::Size { value, digits, in_extension: true, line_bytes: line_bytes + 1 }
                }
                _ => {
                    let digit = (byte as char).to_digit(16).ok_or(BodyError::BadChunkSize)?;
                    // 15 digits are an exbibyte; more could overflow.
                    if digits >= 15 {
                        return Err(BodyError::BadChunkSize);
                    }
                    let value = value * 16 + u64::from(digit);
                    State::Size {
                        value,
                        digits: digits + 1,
                        in_extension,
                        line_bytes: line_bytes + 1,
                    }
                }
            },
            State::DataEnd => match byte {
                b'\r' => State::DataEnd,
                b'\n' => SIZE_START,
                _ => return Err(BodyError::BadChunkEnd),
            },
            State::Trailer { total_bytes, .. } if total_bytes >= TRAILER_LIMIT_BYTES => {
                return Err(BodyError::TooLong);
            }
            State::Trailer { line_bytes, total_bytes } => match byte {
                b'\n' if line_bytes == 0 => State::Done,
                b'\n' => State::Trailer { line_bytes: 0, total_bytes: total_bytes + 1 },
                b'\r' => State::Trailer { line_bytes, total_bytes: total_bytes + 1 },
                _ => State::Trailer { line_bytes: line_bytes + 1, total_bytes: total_bytes + 1 },
            },
            ref other => other.clone(),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(head: &str) -> Body {
        Body::after(&Head::parse(head.as_bytes()).unwrap().unwrap().0).unwrap()
    }

    /// Feed `input` and return the payload and how many bytes were used.
    fn drive(body: &mut Body, input: &[u8]) -> Result<(Vec<u8>, usize), BodyError> {
        let (mut payload, mut at) = (Vec::new(), 0);
        while !body.is_done() && at < input.len() {
            let run = usize::try_from(body.payload()).unwrap_or(usize::MAX).min(input.len() - at);
            if run > 0 {
                payload.extend_from_slice(&input[at..at + run]);
                body.take(run as u64);
                at += run;
            } else {
                at += body.frame(&input[at..])?;
            }
        }
        Ok((payload, at))
    }

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn chunks_with_extensions_and_trailers() {
        let mut chunked = body(CHUNKED);
        let input = b"5;name=\"x\"\r\nhello\r\n6\n world\n0\r\nDigest: x\r\n\r\nHTTP/1.1 200";
        let (payload, used) = drive(&mut chunked, input).unwrap();
        assert_eq!(payload, b"hello world");
        assert_eq!(&input[used..], b"HTTP/1.1 200");
        assert!(chunked.is_done());
        assert_eq!(chunked.taken(), 11);
    }

    #[test]
    fn bad_chunks_are_refused() {
        assert_eq!(drive(&mut body(CHUNKED), b"xyz\r\n"), Err(BodyError::BadChunkSize));
        assert_eq!(drive(&mut body(CHUNKED), b"\r\n"), Err(BodyError::BadChunkSize));
        assert_eq!(
            drive(&mut body(CHUNKED), b"ffffffffffffffff\r\n"),
            Err(BodyError::BadChunkSize)
        );
        assert_eq!(drive(&mut body(CHUNKED), b"2\r\nabX"), Err(BodyError::BadChunkEnd));
        let endless = format!("5;{}", "x".repeat(5000));
        assert_eq!(drive(&mut body(CHUNKED), endless.as_bytes()), Err(BodyError::TooLong));
        let trailers = format!("0\r\n{}", "a: b\r\n".repeat(4000));
        assert_eq!(drive(&mut body(CHUNKED), trailers.as_bytes()), Err(BodyError::TooLong));
    }

    #[test]
    fn lengths_and_connection_ends() {
        let mut length = body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(drive(&mut length, b"abcdef").unwrap(), (b"abc".to_vec(), 3));
        let mut short = body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        drive(&mut short, b"ab").unwrap();
        assert!(!short.end_of_connection());
        let mut open = body("HTTP/1.1 200 OK\r\n\r\n");
        drive(&mut open, b"abc").unwrap();
        assert!(open.end_of_connection());
        assert!(body("HTTP/1.1 204 No Content\r\n\r\n").is_done());
        assert!(body("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_done());
    }
}
