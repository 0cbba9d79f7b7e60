//! Depots as programs use them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Home;
use super::serve::Served;

/// What a depot answered.
#[derive(Debug)]
pub struct Told {
    pub status: u16,
    /// All of it, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Told {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The last of several lines.
    #[track_caller]
    pub fn last(&self) -> Value {
        let text = self.text();
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Told {
        assert_eq!(self.status, status, "{}{}", self.head, self.text());
        self
    }
}

/// The three capabilities of an allocation, as paths.
#[derive(Clone, Debug)]
pub struct Lease {
    pub read: String,
    pub write: String,
    pub manage: String,
}

impl Home {
    /// A relay with a depot of this size in the folder `depot`.
    pub fn depot(&self, size: &str, more: &[&str]) -> Served {
        let usual = ["--depot", "depot", "--depot-size", size];
        self.relay(&[&usual[..], more].concat())
    }
}

impl Served {
    /// One request on a connection of its own.
    pub fn ask(&self, method: &str, target: &str, fields: &str, body: &[u8]) -> Told {
        let mut tcp = TcpStream::connect(self.address()).unwrap();
        let length = match method {
            "PUT" => format!("Content-Length: {}\r\n", body.len()),
            _ => String::new(),
        };
        // HTTP/1.0, so that bodies come without chunks.
        let head = format!("{method} {target} HTTP/1.0\r\nHost: a\r\n{length}{fields}\r\n");
        // It may have refused before all of the body is sent.
        let _ = tcp.write_all(&[head.as_bytes(), body].concat());
        let mut answer = Vec::new();
        let _ = tcp.read_to_end(&mut answer);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no answer to {method} {target}")) + 4;
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let status = head[9..12].parse().unwrap();
        Told { status, head, body: answer[end..].to_vec() }
    }

    /// An allocation of so many bytes.
    #[track_caller]
    pub fn allocate(&self, size: u64, lease_s: u64, more: &str) -> Lease {
        let told = self.ask("POST", &format!("/depot?size={size}&lease={lease_s}{more}"), "", b"");
        let told = told.is(201).json();
        let path = |name: &str| told[name].as_str().unwrap().to_owned();
        Lease { read: path("read"), write: path("write"), manage: path("manage") }
    }

    /// Store bytes of an allocation at an offset.
    pub fn put(&self, lease: &Lease, at: u64, size: u64, bytes: &[u8]) -> Told {
        let last = at + bytes.len() as u64 - 1;
        let range = format!("Content-Range: bytes {at}-{last}/{size}\r\n");
        self.ask("PUT", &lease.write, &range, bytes)
    }

    /// What an allocation is like.
    #[track_caller]
    pub fn status(&self, lease: &Lease) -> Value {
        self.ask("GET", &format!("{}?status", lease.read), "", b"").is(200).json()
    }

    /// Have it fetch bytes, up to and without `end`.
    pub fn fetch(&self, lease: &Lease, from: &str, start: u64, end: u64, fields: &str) -> Told {
        let from = from.replace('%', "%25").replace('&', "%26").replace('+', "%2b");
        let target = format!("{}?from={from}&range={start}-{}", lease.write, end - 1);
        self.ask("POST", &target, fields, b"")
    }
}

/// Wait until something is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(90), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
