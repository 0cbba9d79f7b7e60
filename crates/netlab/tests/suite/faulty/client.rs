//! A plain client: one socket, bytes out, bytes in, nothing clever that could hide a fault.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use swath_netlab::faulty::Handle;

/// One answer as it arrived.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

pub struct Client {
    pub socket: TcpStream,
    pub buffer: Vec<u8>,
}

impl Client {
    pub fn to(server: &Handle) -> Client {
        let socket = TcpStream::connect(server.address()).unwrap();
        // Only a hang reaches this.
        socket.set_read_timeout(Some(HANG)).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { socket, buffer: Vec::new() }
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &[&str]) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
        for header in headers {
            text.push_str(header);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        self.socket.write_all(text.as_bytes()).unwrap();
    }

    /// Reads a head; `None` when the connection ended first.
    pub fn head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = self.buffer.drain(..at + 4).collect();
                return Some(String::from_utf8(head).unwrap());
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// Reads one answer as its head announces it; the body may be shorter if the connection ends.
    pub fn answer(&mut self) -> Option<Answer> {
        let head = self.head()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut answer = Answer { status, head, body: Vec::new() };
        if let Some(length) = answer.header("content-length") {
            let length = length.parse().unwrap();
            while self.buffer.len() < length && self.more() {}
            let length = length.min(self.buffer.len());
            answer.body = self.buffer.drain(..length).collect();
        }
        Some(answer)
    }

    pub fn get(&mut self, path: &str, headers: &[&str]) -> Answer {
        self.send("GET", path, headers);
        self.answer().expect("an answer")
    }

    /// Everything until the end; the error where it ended badly.
    pub fn rest(&mut self) -> Result<Vec<u8>, ErrorKind> {
        let mut bytes = std::mem::take(&mut self.buffer);
        match self.socket.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(error.kind()),
        }
    }

    /// Whether nothing has arrived that was not read.
    pub fn has_nothing(&mut self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let result = self.socket.peek(&mut [0; 1]);
        self.socket.set_nonblocking(false).unwrap();
        matches!(result, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Reads until so many bytes are here.
    pub fn take(&mut self, bytes: u64) {
        while (self.buffer.len() as u64) < bytes {
            assert!(self.more());
        }
    }

    /// Reads once; false at the end of the connection.
    pub fn more(&mut self) -> bool {
        let mut chunk = [0; 65536];
        match self.socket.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no answer: {error}"),
        }
    }
}

/// Waits until the server has received so many requests since it began, whatever it does with them.
/// Afterwards all that it did before it received the last of them is done: it has one thread.
pub fn received(server: &Handle, requests: usize) {
    assert!(server.wait_until(HANG, |server| server.log().len() >= requests));
}

/// One request on a connection of its own.
pub fn get(server: &Handle, path: &str, headers: &[&str]) -> Answer {
    Client::to(server).get(path, headers)
}

/// Only a hang reaches this.
pub const HANG: Duration = Duration::from_secs(90);
