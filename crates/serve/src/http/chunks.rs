//! Bodies in chunks (RFC 9112, section 7.1), understood from however many bytes have come.

/// Where in a body we are. States: `Size` -> `Data` -> `DataEnd` -> `Size` …, at the last chunk
/// `Size` -> `Trailers` -> `Done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the line with a chunk's size.
    Size,
    /// So many bytes of a chunk are still to come.
    Data(u64),
    /// Before the line end behind a chunk.
    DataEnd,
    /// In the lines behind the last chunk, of which so many bytes have come.
    Trailers(usize),
    Done,
}

/// Takes the bytes of a body out of its chunks.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    state: State,
}

/// What is no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not in chunks as HTTP has them")]
pub(super) struct ChunkError;

impl Chunks {
    pub fn new() -> Chunks {
        Chunks { state: State::Size }
    }

    /// Whether all of the body has come.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many bytes of the present chunk are still to come.
    pub fn ahead_bytes(&self) -> u64 {
        if let State::Data(left) = self.state { left } else { 0 }
    }

    /// Move bytes of the body from `input` to `out`, `most` at once; what is not understood yet
    /// stays. Nothing is taken from what follows the body.
    pub fn take(
        &mut self,
        input: &mut Vec<u8>,
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<(), ChunkError> {
        let mut at = 0;
        while self.state != State::Done {
            let rest = &input[at..];
            match self.state {
                State::Size => {
                    let Some((line, bytes)) = line(rest, SIZE_LINE_BYTES_MAX)? else { break };
                    // What follows a semicolon is for nobody here.
                    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
                    let digits = digits.trim_ascii_end();
                    self.state = match size(digits)? {
                        0 => State::Trailers(0),
                        size => State::Data(size),
                    };
                    at += bytes;
                }
                State::Data(left) => {
                    let room = most.saturating_sub(out.len()).min(rest.len());
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(room);
                    if here == 0 {
                        break;
                    }
                    out.extend_from_slice(&rest[..here]);
                    at += here;
                    let left = left - here as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                }
                State::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        at += 2;
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => break,
                    _ => return Err(ChunkError),
                },
                State::Trailers(so_far) => {
                    let limit = TRAILER_BYTES_MAX.saturating_sub(so_far);
                    let Some((line, bytes)) = line(rest, limit)? else { break };
                    at += bytes;
                    self.state =
                        if line.is_empty() { State::Done } else { State::Trailers(so_far + bytes) };
                }
                State::Done => {}
            }
        }
        input.drain(..at);
        Ok(())
    }
}

/// The first line and its length with its end; `None` while it has none.
fn line(input: &[u8], limit: usize) -> Result<Option<(&[u8], usize)>, ChunkError> {
    match input.iter().position(|&byte| byte == b'\n') {
        Some(end) if end < limit => {
            // Two readers could see two lines where only one of them takes a lone line feed.
            let line = input[..end].strip_suffix(b"\r").ok_or(ChunkError)?;
            if line.contains(&b'\r') { Err(ChunkError) } else { Ok(Some((line, end + 1))) }
        }
        None if input.len() < limit => Ok(None),
        _ => Err(ChunkError),
    }
}

fn size(digits: &[u8]) -> Result<u64, ChunkError> {
    if digits.is_empty() || digits.len() > SIZE_DIGITS_MAX {
        return Err(ChunkError);
    }
    digits.iter().try_fold(0, |size, &byte| {
        let digit = char::from(byte).to_digit(16).ok_or(ChunkError)?;
        Ok(size << 4 | u64::from(digit))
    })
}

/// Sizes below 2^60.
const SIZE_DIGITS_MAX: usize = 15;
/// A size and what may stand behind it.
const SIZE_LINE_BYTES_MAX: usize = 256;
/// All lines behind the last chunk.
const TRAILER_BYTES_MAX: usize = 8 << 10;

/// Understand `bytes` as a body in chunks: the same, in whatever parts they come.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_bodies(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let all = in_parts(bytes, bytes.len().max(1), usize::MAX);
    let parts = in_parts(bytes, usize::from(step).max(1), 7);
    assert_eq!(all.is_ok(), parts.is_ok());
    if let (Ok(all), Ok(parts)) = (all, parts) {
        assert_eq!(all, parts);
    }
}

/// The body, what followed it, and whether it was whole, of bytes that come `step` at a time.
#[cfg(any(test, feature = "fuzzing"))]
fn in_parts(
    bytes: &[u8],
    step: usize,
    most: usize,
) -> Result<(Vec<u8>, Vec<u8>, bool), ChunkError> {
    let mut chunks = Chunks::new();
    let (mut input, mut body) = (Vec::new(), Vec::new());
    for part in bytes.chunks(step) {
        input.extend_from_slice(part);
        loop {
            let mut out = Vec::new();
            chunks.take(&mut input, &mut out, most)?;
            assert!(out.len() <= most);
            if out.is_empty() {
                break;
            }
            body.append(&mut out);
        }
    }
    Ok((body, input, chunks.is_done()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_body_is_what_the_chunks_hold() {
        let text = b"5\r\nhello\r\n1;x=y\r\n,\r\nA \r\n 123456789\r\n0\r\nTrailer: 1\r\n\r\nGET /";
        for step in 1..text.len() {
            for most in [1, 3, usize::MAX] {
                let (body, rest, is_done) = in_parts(text, step, most).unwrap();
                assert_eq!(body, b"hello, 123456789", "{step}");
                assert_eq!((rest.as_slice(), is_done), (&b"GET /"[..], true), "{step}");
            }
        }
        let (body, _, is_done) = in_parts(b"5\r\nhel", 2, usize::MAX).unwrap();
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
            b"1000000000000000\r\n",
            b"0\r\nTrailer: 1\n\r\n",
        ] {
            for step in [1, 2, text.len()] {
                let read = in_parts(text, step, usize::MAX);
                assert!(read.is_err(), "{}", String::from_utf8_lossy(text));
            }
        }
        let long = [b"5;".to_vec(), vec![b'a'; SIZE_LINE_BYTES_MAX]].concat();
        assert_eq!(in_parts(&long, 10, usize::MAX), Err(ChunkError));
        let many = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(TRAILER_BYTES_MAX / 6 + 1)].concat();
        assert_eq!(in_parts(&many, 1000, usize::MAX), Err(ChunkError));
    }

    proptest! {
        #[test]
        fn no_bytes_can_do_harm_and_parts_make_no_difference(
            text in "([0-9a-fA-F]{1,3}\\r\\n.{0,12}(\\r\\n){0,1}){0,4}(0\\r\\n\\r\\n)?\\PC{0,9}",
            step in 1usize..9,
        ) {
            let all = in_parts(text.as_bytes(), text.len().max(1), usize::MAX);
            let parts = in_parts(text.as_bytes(), step, 5);
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
            let (body, rest, is_done) = in_parts(&text, step, 16).unwrap();
            prop_assert_eq!(body, parts.concat());
            prop_assert_eq!((rest.as_slice(), is_done), (&b"next"[..], true));
        }
    }
}
