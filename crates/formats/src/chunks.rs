//! Chunked bodies (RFC 9112, section 7.1), parsed from however many bytes have arrived.
//!
//! States: `Size -> Data -> DataEnd -> Size …`, after a chunk of size 0 `Trailer -> Done`. While
//! [`Chunks::payload`] is above zero the next bytes of the stream are payload; at zero, and before
//! [`Chunks::is_done`], framing comes next.

/// The rest of a chunked body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    state: State,
    /// Whether to accept only what every reader understands in the same way.
    is_strict: bool,
    /// Whether the last byte of framing was a carriage return.
    was_return: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// In the line with a chunk's size.
    Size {
        value: u64,
        digits: u32,
        part: Part,
        line_bytes: u32,
    },
    /// In a chunk, with this many bytes still to come.
    Data(u64),
    /// In the line end behind a chunk.
    DataEnd,
    /// In the lines behind the last chunk; `line_bytes` is the length of the current one without
    /// its end.
    Trailer {
        line_bytes: u32,
        total_bytes: u32,
    },
    Done,
}

/// The position in a line with a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Digits,
    /// Blanks or the line end behind the digits.
    Blank,
    /// An extension, which is ignored.
    Extension,
}

/// Why the framing is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// A line is not a valid size.
    #[error("a chunk of the body has an invalid size")]
    Size,
    /// A chunk is longer than its size.
    #[error("a chunk of the body does not end where it should")]
    End,
    /// A line end that not all readers accept.
    #[error("a line between the chunks of the body does not end as it should")]
    LineEnd,
    /// A line, or all lines behind the last chunk, exceed the limit.
    #[error("the framing of the body never ends")]
    TooLong,
}

const START: State = State::Size { value: 0, digits: 0, part: Part::Digits, line_bytes: 0 };

impl Chunks {
    /// Returns a parser for clients. It also accepts the output of scripts, above all lines that
    /// end with a lone line feed (RFC 9112, section 2.2).
    pub fn lenient() -> Chunks {
        Chunks { state: START, is_strict: false, was_return: false }
    }

    /// Returns a parser for servers. After a request that two readers understand differently, one
    /// of them could see a request that the other one does not.
    pub fn strict() -> Chunks {
        Chunks { is_strict: true, ..Chunks::lenient() }
    }

    /// Returns how many of the next bytes of the stream are payload.
    pub fn payload(&self) -> u64 {
        if let State::Data(left) = self.state { left } else { 0 }
    }

    /// Returns whether all of the body has arrived; the next byte belongs to what follows it.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns whether the next byte would begin a chunk, so that only the end mark may be missing.
    pub fn is_between(&self) -> bool {
        matches!(self.state, State::Size { digits: 0, .. } | State::DataEnd)
    }

    /// Notes that `bytes` of payload (at most [`Chunks::payload`]) were taken from the stream.
    pub fn take(&mut self, bytes: u64) {
        if let State::Data(left) = self.state {
            self.state = if bytes >= left { State::DataEnd } else { State::Data(left - bytes) };
        }
    }

    /// Reads framing at the start of `input`; returns how many bytes that were. Stops where payload
    /// begins, the body ends or the input is used up.
    ///
    /// # Errors
    /// [`ChunkError`] if this is no valid framing.
    pub fn frame(&mut self, input: &[u8]) -> Result<usize, ChunkError> {
        let mut used = 0;
        while self.payload() == 0 && !self.is_done() {
            let Some(&byte) = input.get(used) else { break };
            used += 1;
            self.frame_byte(byte)?;
        }
        Ok(used)
    }

    /// Moves payload from `input` to `out`, up to `most` bytes in `out`; incomplete framing stays.
    /// Takes nothing behind the body.
    ///
    /// # Errors
    /// [`ChunkError`] if this is no valid framing.
    pub fn read(
        &mut self,
        input: &mut Vec<u8>,
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<(), ChunkError> {
        let mut at = 0;
        loop {
            at += self.frame(&input[at..])?;
            let room = most.saturating_sub(out.len()).min(input.len() - at);
            let here = usize::try_from(self.payload()).unwrap_or(usize::MAX).min(room);
            if here == 0 {
                break;
            }
            out.extend_from_slice(&input[at..at + here]);
            self.take(here as u64);
            at += here;
        }
        input.drain(..at);
        Ok(())
    }

    fn frame_byte(&mut self, byte: u8) -> Result<(), ChunkError> {
        let was_return = std::mem::replace(&mut self.was_return, byte == b'\r');
        if self.is_strict && was_return != (byte == b'\n') {
            return Err(if self.state == State::DataEnd {
                ChunkError::End
            } else {
                ChunkError::LineEnd
            });
        }
        self.state = match self.state {
            State::Size { line_bytes, .. } if line_bytes >= self.line_bytes_max() => {
                return Err(ChunkError::TooLong);
            }
            State::Size { value, digits, part, line_bytes } => {
                let line_bytes = line_bytes + 1;
                let on = |part| State::Size { value, digits, part, line_bytes };
                match byte {
                    b'\n' if digits == 0 => return Err(ChunkError::Size),
                    b'\n' if value == 0 => State::Trailer { line_bytes: 0, total_bytes: 0 },
                    b'\n' => State::Data(value),
                    _ if part == Part::Extension => on(part),
                    b';' if digits > 0 => on(Part::Extension),
                    b'\r' | b' ' | b'\t' if digits > 0 => on(Part::Blank),
                    _ if part == Part::Blank && !self.is_strict => on(Part::Extension),
                    _ => {
                        let digit = char::from(byte).to_digit(16).ok_or(ChunkError::Size)?;
                        // 15 digits allow an exbibyte; more could overflow.
                        if digits >= SIZE_DIGITS_MAX || part == Part::Blank {
                            return Err(ChunkError::Size);
                        }
                        let value = value << 4 | u64::from(digit);
                        State::Size { value, digits: digits + 1, part, line_bytes }
                    }
                }
            }
            State::DataEnd => match byte {
                b'\r' => State::DataEnd,
                b'\n' => START,
                _ => return Err(ChunkError::End),
            },
            State::Trailer { total_bytes, .. } if total_bytes >= TRAILER_BYTES_MAX => {
                return Err(ChunkError::TooLong);
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

    fn line_bytes_max(&self) -> u32 {
        if self.is_strict { STRICT_LINE_BYTES_MAX } else { LINE_BYTES_MAX }
    }
}

/// Sizes below 2^60.
const SIZE_DIGITS_MAX: u32 = 15;
/// Longest line of a size and its extensions, from a server …
const LINE_BYTES_MAX: u32 = 4096;
/// … and from one of many clients.
const STRICT_LINE_BYTES_MAX: u32 = 256;
/// Most bytes of all lines behind the last chunk.
const TRAILER_BYTES_MAX: u32 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The body, what followed it, and whether it was whole, of bytes that come `step` at a time.
    fn in_parts(
        mut chunks: Chunks,
        bytes: &[u8],
        step: usize,
        most: usize,
    ) -> Result<(Vec<u8>, Vec<u8>, bool), ChunkError> {
        let (mut input, mut body) = (Vec::new(), Vec::new());
        for part in bytes.chunks(step) {
            input.extend_from_slice(part);
            loop {
                let mut out = Vec::new();
                chunks.read(&mut input, &mut out, most)?;
                assert!(out.len() <= most);
                if out.is_empty() {
                    break;
                }
                body.append(&mut out);
            }
        }
        Ok((body, input, chunks.is_done()))
    }

    #[test]
    fn a_body_is_what_the_chunks_hold() {
        let text = b"5\r\nhello\r\n1;x=y\r\n,\r\nA \r\n 123456789\r\n0\r\nTrailer: 1\r\n\r\nGET /";
        for step in 1..text.len() {
            for most in [1, 3, usize::MAX] {
                let (body, rest, is_done) = in_parts(Chunks::strict(), text, step, most).unwrap();
                assert_eq!(body, b"hello, 123456789", "{step}");
                assert_eq!((rest.as_slice(), is_done), (&b"GET /"[..], true), "{step}");
            }
        }
        let (body, _, is_done) = in_parts(Chunks::strict(), b"5\r\nhel", 2, usize::MAX).unwrap();
        assert_eq!((body.as_slice(), is_done), (&b"hel"[..], false));
    }

    #[test]
    fn what_two_readers_could_understand_in_two_ways_is_refused() {
        for text in [
            &b"5\nhello\r\n"[..],
            b"\r\n",
            b"x\r\n",
            b"-1\r\n",
            b"+5\r\nhello\r\n",
            b"0x5\r\nhello\r\n",
            b" 5\r\nhello\r\n",
            b"5\r\nhello0\r\n",
            b"5\r\nhello\n0\r\n",
            b"5\rx\r\nhello\r\n",
            b"5 6\r\nhello\r\n",
            b"1000000000000000\r\n",
            b"0\r\nTrailer: 1\n\r\n",
        ] {
            for step in [1, 2, text.len()] {
                let read = in_parts(Chunks::strict(), text, step, usize::MAX);
                assert!(read.is_err(), "{}", String::from_utf8_lossy(text));
            }
        }
        let long = [b"5;".to_vec(), vec![b'a'; STRICT_LINE_BYTES_MAX as usize]].concat();
        assert_eq!(in_parts(Chunks::strict(), &long, 10, usize::MAX), Err(ChunkError::TooLong));
        let many =
            [b"0\r\n".to_vec(), b"a: b\r\n".repeat(TRAILER_BYTES_MAX as usize / 6 + 1)].concat();
        assert_eq!(in_parts(Chunks::strict(), &many, 1000, usize::MAX), Err(ChunkError::TooLong));
    }

    #[test]
    fn a_client_takes_what_scripts_print() {
        let text = b"5;name=\"x\"\r\nhello\r\n6 7\n world\n0\nDigest: x\n\nHTTP/1.1 200";
        let (body, rest, is_done) = in_parts(Chunks::lenient(), text, 3, usize::MAX).unwrap();
        assert_eq!(
            (body.as_slice(), rest.as_slice(), is_done),
            (&b"hello world"[..], &b"HTTP/1.1 200"[..], true)
        );
        let refused = |text: &[u8]| in_parts(Chunks::lenient(), text, 100, usize::MAX).unwrap_err();
        assert_eq!(refused(b"xyz\r\n"), ChunkError::Size);
        assert_eq!(refused(b"\r\n"), ChunkError::Size);
        assert_eq!(refused(b"ffffffffffffffff\r\n"), ChunkError::Size);
        assert_eq!(refused(b"2\r\nabX"), ChunkError::End);
        assert_eq!(refused(format!("5;{}", "x".repeat(5000)).as_bytes()), ChunkError::TooLong);
        assert_eq!(
            refused(format!("0\r\n{}", "a: b\r\n".repeat(4000)).as_bytes()),
            ChunkError::TooLong
        );
    }

    proptest! {
        #[test]
        fn no_bytes_can_do_harm_and_parts_make_no_difference(
            text in "([0-9a-fA-F]{1,3}\\r\\n.{0,12}(\\r\\n){0,1}){0,4}(0\\r\\n\\r\\n)?\\PC{0,9}",
            step in 1usize..9,
        ) {
            let all = in_parts(Chunks::strict(), text.as_bytes(), text.len().max(1), usize::MAX);
            let parts = in_parts(Chunks::strict(), text.as_bytes(), step, 5);
            prop_assert_eq!(all.is_ok(), parts.is_ok());
            if let (Ok(all), Ok(parts)) = (all, parts) {
                prop_assert_eq!(all, parts);
            }
        }

        #[test]
        fn what_is_put_into_chunks_comes_out(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..9),
            step in 1usize..60,
        ) {
            let mut text = Vec::new();
            for part in &parts {
                text.extend_from_slice(format!("{:X}\r\n", part.len()).as_bytes());
                text.extend_from_slice(part);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"0\r\n\r\nnext");
            let (body, rest, is_done) = in_parts(Chunks::strict(), &text, step, 16).unwrap();
            prop_assert_eq!(body, parts.concat());
            prop_assert_eq!((rest.as_slice(), is_done), (&b"next"[..], true));
        }
    }
}
