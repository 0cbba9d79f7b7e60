//! Whatever bytes come, in whatever pieces: no panic, and the pieces do not matter.

use swath_model::Range;

use super::answer::{Answer, Teller, judge};
use super::body::Body;
use super::head::Head;

/// Everything that was understood of a stream of bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Understood {
    answers: Vec<(Head, Answer)>,
    payload: Vec<u8>,
    bodies_done: usize,
    error: Option<String>,
}

/// A client that reads answer after answer, fed piece by piece.
#[derive(Default)]
struct Client {
    input: Vec<u8>,
    body: Option<Body>,
    result: Understood,
}

impl Client {
    fn feed(&mut self, piece: &[u8]) {
        self.input.extend_from_slice(piece);
        while self.result.error.is_none() {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.result.error = Some(error),
            }
        }
    }

    /// One step; `false` if more input is needed.
    fn step(&mut self) -> Result<bool, String> {
        let Some(body) = &mut self.body else {
            let Some((head, bytes)) =
                Head::parse(&self.input).map_err(|error| error.to_string())?
            else {
                return Ok(false);
            };
            self.input.drain(..bytes);
            self.body = Some(Body::after(&head).map_err(|error| error.to_string())?);
            let answer = judge(&head, Range::new(5, 105), Teller::Relay);
            self.result.answers.push((head, answer));
            return Ok(true);
        };
        if body.is_done() {
            self.body = None;
            self.result.bodies_done += 1;
            return Ok(true);
        }
        if self.input.is_empty() {
            return Ok(false);
        }
        let payload = usize::try_from(body.payload()).unwrap_or(usize::MAX).min(self.input.len());
        if payload > 0 {
            self.result.payload.extend(self.input.drain(..payload));
            body.take(payload as u64);
        } else {
            let used = body.frame(&self.input).map_err(|error| error.to_string())?;
            assert!(used > 0, "framing makes progress");
            self.input.drain(..used);
        }
        Ok(true)
    }
}

fn understand(bytes: &[u8], cuts: &[usize]) -> Understood {
    let mut client = Client::default();
    let mut at = 0;
    for &cut in cuts {
        let end = (at + cut).min(bytes.len());
        client.feed(&bytes[at..end]);
        at = end;
    }
    client.feed(&bytes[at..]);
    client.result
}

/// Understands `bytes` in pieces; the same must come of it as when they come at once.
#[cfg(feature = "fuzzing")]
pub(crate) fn answers(bytes: &[u8]) {
    let (cuts, bytes) = bytes.split_at(bytes.len().min(8));
    let cuts: Vec<usize> = cuts.iter().map(|&cut| usize::from(cut)).collect();
    let (whole, pieces) = (understand(bytes, &[]), understand(bytes, &cuts));
    assert_eq!(whole.answers, pieces.answers);
    assert_eq!(whole.payload, pieces.payload);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pieces of HTTP that, strung together, come close enough to answers to reach every corner.
    fn fragments() -> impl Strategy<Value = Vec<u8>> {
        let words: Vec<&'static [u8]> = vec![
            b"HTTP/1.1 206 Partial Content\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.0 302\r\n",
            b"HTTP/1.1 416 No\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"Content-Range: bytes 5-104/1000\r\n",
            b"Content-Range: bytes */0\r\n",
            b"Content-Range: bytes 18446744073709551615-18446744073709551615/*\r\n",
            b"Content-Length: 100\r\n",
            b"Content-Length: 7\r\n",
            b"Content-Length: 18446744073709551615\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"Retry-After: 99999999999999999999\r\n",
            b"Location: //\xff\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b"a\r\n0123456789\r\n",
            b"0\r\n\r\n",
            b"fffffffffffffff\r\n",
            b"5;x=\"y\"\r\nabcde\r\n",
            b": \r\n",
            b"\n",
            b"\0",
        ];
        prop::collection::vec(
            prop_oneof![
                8 => prop::sample::select(words).prop_map(<[u8]>::to_vec),
                1 => prop::collection::vec(any::<u8>(), 0..40),
            ],
            0..12,
        )
        .prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn pieces_do_not_matter(bytes in fragments(), cuts in prop::collection::vec(1_usize..20, 0..60)) {
            let whole = understand(&bytes, &[]);
            let pieces = understand(&bytes, &cuts);
            // An error may be seen at an earlier byte when pieces are small, never another one or none.
            prop_assert_eq!(&pieces.answers, &whole.answers);
            prop_assert_eq!(&pieces.payload, &whole.payload);
            prop_assert_eq!(pieces.error.is_some(), whole.error.is_some());
        }

        #[test]
        fn noise_is_harmless(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            understand(&bytes, &[1, 2, 3, 500]);
        }

        #[test]
        fn locations_are_harmless(from in 0_usize..2, location in "\\PC{0,60}") {
            let from = ["http://a/b", "https://[::1]:8/c?d"][from];
            let from = url::Url::parse(from).unwrap();
            let from = crate::redirect::Visit { url: from, cookies: String::new() };
            let _ = crate::redirect::follow(from, &location, &mut Vec::new(), &Default::default());
        }
    }
}
