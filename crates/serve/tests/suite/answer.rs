//! Answers of a server, as they come.

use std::io::Read as _;
use std::net::TcpStream;

/// Reads until the other side closes.
#[track_caller]
pub fn all_of(tcp: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut part = vec![0; 65536];
    loop {
        match tcp.read(&mut part) {
            Ok(bytes @ 1..) => answer.extend_from_slice(&part[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the connection stays open: {}", String::from_utf8_lossy(&answer));
            }
            // A reset that follows an early answer is an end too.
            Ok(0) | Err(_) => return answer,
        }
    }
}

/// Reads to the end of a head, and no more than came with it.
#[track_caller]
pub fn head_of(tcp: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        match tcp.read(&mut part) {
            Ok(bytes @ 1..) => answer.extend_from_slice(&part[..bytes]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// An answer as it came.
pub struct Answer(pub Vec<u8>);

impl Answer {
    #[track_caller]
    pub fn status(&self) -> u16 {
        let status = self.0.get(9..12).and_then(|status| str::from_utf8(status).ok()?.parse().ok());
        status.unwrap_or_else(|| panic!("no answer: {self}"))
    }

    pub fn head(&self) -> String {
        let end = self.0.windows(4).position(|four| four == b"\r\n\r\n");
        String::from_utf8_lossy(&self.0[..end.map_or(self.0.len(), |end| end + 2)]).into_owned()
    }

    /// The value of a field; names in lower case.
    pub fn field(&self, name: &str) -> Option<String> {
        let head = self.head();
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(other, _)| *other == name).map(|(_, value)| value.to_owned())
    }

    /// Its body, put together if it came in chunks.
    #[track_caller]
    pub fn body(&self) -> Vec<u8> {
        let start = self.head().len() + 2;
        let bytes = self.0.get(start..).unwrap_or_default();
        match self.field("transfer-encoding").as_deref() {
            Some("chunked") => of_chunks(bytes),
            _ => bytes.to_vec(),
        }
    }

    #[track_caller]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body()).into_owned()
    }

    /// The status must be this one.
    #[track_caller]
    pub fn is(&self, status: u16) -> &Answer {
        assert_eq!(self.status(), status, "{self}");
        self
    }

    /// Head or body must hold all of these.
    #[track_caller]
    pub fn has(&self, words: &[&str]) -> &Answer {
        let all = format!("{}\r\n{}", self.head(), self.text());
        for word in words {
            assert!(all.contains(word), "{word:?} is missing: {all}");
        }
        self
    }

    /// Neither head nor body may hold any of these.
    #[track_caller]
    pub fn has_not(&self, words: &[&str]) -> &Answer {
        let all = format!("{}\r\n{}", self.head(), self.text());
        for word in words {
            assert!(!all.contains(word), "{word:?} must not be there: {all}");
        }
        self
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.0);
        f.write_str(text.char_indices().nth(4000).map_or(&*text, |(end, _)| &text[..end]))
    }
}

/// The chunks of a body (RFC 9112, section 7.1); the last one must be there.
#[track_caller]
fn of_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            assert_eq!(&bytes[end..], b"\r\n\r\n", "nothing follows the last chunk");
            return body;
        }
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
}
