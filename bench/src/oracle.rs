//! The oracle: one plain socket per link, each given its exact share in advance.
//!
//! It knows what no download tool can know, the rate of every link to come, and has nothing to
//! decide: a thread per link asks for its share once and throws the bytes away. What remains is
//! the handshake, slow start and the end of the slowest link.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A link's share: from where, and which half-open range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// `HOST:PORT`.
    pub address: String,
    /// Path of the file, with its slash.
    pub path: String,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

/// Cuts `size_bytes` into shares in proportion to `weights`; the shares are consecutive and
/// cover everything.
pub fn cut_shares(size_bytes: u64, weights: &[f64]) -> Vec<(u64, u64)> {
    let sum: f64 = weights.iter().sum();
    let mut shares = Vec::new();
    let mut before = 0.0;
    let mut start = 0;
    for (position, weight) in weights.iter().enumerate() {
        before += weight;
        let last = position + 1 == weights.len();
        let end = if last { size_bytes } else { (size_bytes as f64 * before / sum) as u64 };
        shares.push((start, end.max(start)));
        start = end.max(start);
    }
    shares
}

/// Fetches every share at once; ends when the last one is complete.
pub fn fetch(shares: &[Share]) -> io::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            shares.iter().map(|share| scope.spawn(move || fetch_share(share))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })
}

fn fetch_share(share: &Share) -> io::Result<()> {
    if share.start == share.end {
        return Ok(());
    }
    let mut stream = TcpStream::connect(&share.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_LIMIT))?;
    let Share { address, path, start, end } = share;
    let last = end - 1;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nRange: bytes={start}-{last}\r\n\r\n");
    stream.write_all(request.as_bytes())?;

    let mut buffer = vec![0; BUFFER_BYTES];
    let mut filled = 0;
    let body_start = loop {
        let count = stream.read(&mut buffer[filled..])?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        filled += count;
        let head = buffer[..filled].windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(head) = head {
            break head + 4;
        }
    };
    if !buffer.starts_with(b"HTTP/1.1 206") {
        return Err(io::Error::other("the server did not answer 206"));
    }
    let mut left_bytes = (end - start).saturating_sub((filled - body_start) as u64);
    while left_bytes > 0 {
        match stream.read(&mut buffer)? as u64 {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            count => left_bytes = left_bytes.saturating_sub(count),
        }
    }
    Ok(())
}

const BUFFER_BYTES: usize = 256 << 10;

/// Only there so that a broken run ends.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_in_proportion() {
        assert_eq!(cut_shares(100, &[1.0, 3.0]), [(0, 25), (25, 100)]);
        assert_eq!(cut_shares(100, &[1.0, 0.0, 1.0]), [(0, 50), (50, 50), (50, 100)]);
        let odd = cut_shares(268_435_457, &[20.0, 40.0, 60.0, 80.0, 120.0, 180.0]);
        assert_eq!(odd.last().unwrap().1, 268_435_457);
        assert!(odd.windows(2).all(|pair| pair[0].1 == pair[1].0));
    }
}
