//! The tracker protocol over UDP (BEP 15), with the path of the announce address (BEP 41).
//!
//! A client first asks for a connection id, which proves that it gets what is sent to its address,
//! and shows it in each request. Numbers are big-endian.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::tracker::{
    Announce, AnnounceAnswer, Event, InfoHash, PEERS_MAX, Peer, PeerForm, PeerId, SCRAPE_MAX,
    SwarmCounts,
};

/// What a client proves with that it gets what is sent to its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId(pub u64);

/// A number that a client gives a request, and that its answer repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionId(pub u32);

/// A request to a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks for a connection id.
    Connect {
        /// Repeated by the answer.
        transaction: TransactionId,
    },
    /// Announces a peer.
    Announce {
        /// From the answer to `Connect`.
        connection: ConnectionId,
        /// Repeated by the answer.
        transaction: TransactionId,
        /// The announce; the form of the answer is always the compact one.
        announce: Announce,
        /// Path and query of the announce address, if the client tells them (BEP 41).
        path: Vec<u8>,
    },
    /// Asks for the counts of swarms.
    Scrape {
        /// From the answer to `Connect`.
        connection: ConnectionId,
        /// Repeated by the answer.
        transaction: TransactionId,
        /// The torrents, at most [`SCRAPE_MAX`].
        info_hashes: Vec<InfoHash>,
    },
}

/// The answer of a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A connection id. Clients use it for a minute; trackers accept it for two.
    Connect {
        /// Of the request.
        transaction: TransactionId,
        /// What to show in further requests.
        connection: ConnectionId,
    },
    /// Peers.
    Announce {
        /// Of the request.
        transaction: TransactionId,
        /// The answer, without what only HTTP has.
        answer: AnnounceAnswer,
    },
    /// The counts of swarms.
    Scrape {
        /// Of the request.
        transaction: TransactionId,
        /// In the order of the request.
        counts: Vec<SwarmCounts>,
    },
    /// A refusal.
    Error {
        /// Of the request.
        transaction: TransactionId,
        /// Why, in words for the user.
        reason: String,
    },
}

/// The bytes are not a message of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of the UDP tracker protocol")]
pub struct Malformed;

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// [`Malformed`], also for a scrape of no torrent. A scrape of too many is cut.
    pub fn read(bytes: &[u8]) -> Result<Request, Malformed> {
        let mut fields = Fields(bytes);
        let connection = ConnectionId(fields.u64()?);
        let action = fields.u32()?;
        let transaction = TransactionId(fields.u32()?);
        match action {
            CONNECT if connection == PROTOCOL => Ok(Request::Connect { transaction }),
            ANNOUNCE => {
                let (announce, path) = fields.announce()?;
                Ok(Request::Announce { connection, transaction, announce, path })
            }
            SCRAPE => {
                let mut info_hashes = Vec::new();
                while let (Ok(hash), true) = (fields.array(), info_hashes.len() < SCRAPE_MAX) {
                    info_hashes.push(InfoHash(hash));
                }
                if info_hashes.is_empty() {
                    return Err(Malformed);
                }
                Ok(Request::Scrape { connection, transaction, info_hashes })
            }
            _ => Err(Malformed),
        }
    }

    /// Appends the request.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut head = |connection: ConnectionId, action, transaction: TransactionId| {
            out.extend_from_slice(&connection.0.to_be_bytes());
            put(out, action);
            put(out, transaction.0);
        };
        match self {
            Request::Connect { transaction } => head(PROTOCOL, CONNECT, *transaction),
            Request::Announce { connection, transaction, announce, path } => {
                head(*connection, ANNOUNCE, *transaction);
                write_announce(out, announce, path);
            }
            Request::Scrape { connection, transaction, info_hashes } => {
                head(*connection, SCRAPE, *transaction);
                info_hashes.iter().for_each(|hash| out.extend_from_slice(&hash.0));
            }
        }
    }
}

impl Answer {
    /// Reads an answer. `is_six` says whether the tracker was asked by IPv6, because answers do not.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn read(bytes: &[u8], is_six: bool) -> Result<Answer, Malformed> {
        let mut fields = Fields(bytes);
        let action = fields.u32()?;
        let transaction = TransactionId(fields.u32()?);
        match action {
            CONNECT => Ok(Answer::Connect { transaction, connection: ConnectionId(fields.u64()?) }),
            ANNOUNCE => {
                Ok(Answer::Announce { transaction, answer: fields.announce_answer(is_six)? })
            }
            SCRAPE => {
                let mut counts = Vec::new();
                while let Ok(seeders) = fields.u32() {
                    let (completed, leechers) = (fields.u32()?, fields.u32()?);
                    counts.push(SwarmCounts { seeders, completed, leechers });
                }
                counts.truncate(SCRAPE_MAX);
                Ok(Answer::Scrape { transaction, counts })
            }
            ERROR => {
                let text = &fields.0[..fields.0.len().min(TEXT_MAX_BYTES)];
                let reason = String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
                Ok(Answer::Error { transaction, reason })
            }
            _ => Err(Malformed),
        }
    }

    /// Appends the answer.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut head = |action, transaction: TransactionId| {
            put(out, action);
            put(out, transaction.0);
        };
        match self {
            Answer::Connect { transaction, connection } => {
                head(CONNECT, *transaction);
                out.extend_from_slice(&connection.0.to_be_bytes());
            }
            Answer::Announce { transaction, answer } => {
                head(ANNOUNCE, *transaction);
                write_announce_answer(out, answer);
            }
            Answer::Scrape { transaction, counts } => {
                head(SCRAPE, *transaction);
                for SwarmCounts { seeders, completed, leechers } in counts {
                    [seeders, completed, leechers].into_iter().for_each(|it| put(out, *it));
                }
            }
            Answer::Error { transaction, reason } => {
                head(ERROR, *transaction);
                out.extend_from_slice(reason.as_bytes());
            }
        }
    }
}

/// The fields of a message that are still to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads an announce and the path behind it.
    fn announce(&mut self) -> Result<(Announce, Vec<u8>), Malformed> {
        let (info_hash, peer_id) = (InfoHash(self.array()?), PeerId(self.array()?));
        let (downloaded, left, uploaded) = (self.u64()?, self.u64()?, self.u64()?);
        let event = match self.u32()? {
            1 => Event::Completed,
            2 => Event::Started,
            3 => Event::Stopped,
            _ => Event::None,
        };
        // The address that the client claims to have: anybody could claim any.
        let _ = self.u32()?;
        let (key, want, port) = (self.u32()?, self.u32()?, self.u16()?);
        let announce = Announce {
            info_hash,
            peer_id,
            port,
            uploaded,
            downloaded,
            left: Some(left).filter(|left| *left != UNKNOWN),
            event,
            // Negative numbers leave it to the tracker.
            want: Some(want).filter(|want| i32::try_from(*want).is_ok()),
            key: Some(key),
            form: PeerForm::Compact,
        };
        Ok((announce, self.options()))
    }

    /// Reads the options of BEP 41: the parts of the path, in order. Unknown options end them, as
    /// nothing tells how long they are.
    fn options(&mut self) -> Vec<u8> {
        let mut path = Vec::new();
        while let Ok([option]) = self.array() {
            match option {
                OPTION_NONE => {}
                OPTION_PATH => {
                    let length = self.array().map_or(0, |[length]| usize::from(length));
                    let part = &self.0[..length.min(self.0.len())];
                    path.extend_from_slice(part);
                    self.0 = &self.0[part.len()..];
                }
                _ => break,
            }
        }
        path
    }

    fn announce_answer(&mut self, is_six: bool) -> Result<AnnounceAnswer, Malformed> {
        let (interval_s, leechers, seeders) = (self.u32()?, self.u32()?, self.u32()?);
        let mut peers = Vec::new();
        while peers.len() < PEERS_MAX {
            let ip = match is_six {
                true => self.array().map(|it| IpAddr::V6(Ipv6Addr::from(it))),
                false => self.array().map(|it| IpAddr::V4(Ipv4Addr::from(it))),
            };
            let (Ok(ip), Ok(port)) = (ip, self.u16()) else { break };
            if port != 0 {
                peers.push(Peer { address: SocketAddr::new(ip, port), id: None });
            }
        }
        Ok(AnnounceAnswer {
            interval_s,
            seeders: Some(seeders),
            leechers: Some(leechers),
            peers,
            ..AnnounceAnswer::default()
        })
    }
}

fn write_announce(out: &mut Vec<u8>, announce: &Announce, path: &[u8]) {
    out.extend_from_slice(&announce.info_hash.0);
    out.extend_from_slice(&announce.peer_id.0);
    for number in [announce.downloaded, announce.left.unwrap_or(UNKNOWN), announce.uploaded] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    put(
        out,
        match announce.event {
            Event::None => 0,
            Event::Completed => 1,
            Event::Started => 2,
            Event::Stopped => 3,
        },
    );
    // The address is the one that the packet comes from.
    put(out, 0);
    put(out, announce.key.unwrap_or(0));
    put(out, announce.want.unwrap_or(u32::MAX));
    out.extend_from_slice(&announce.port.to_be_bytes());
    for part in path.chunks(u8::MAX.into()) {
        out.extend_from_slice(&[OPTION_PATH, part.len() as u8]);
        out.extend_from_slice(part);
    }
}

fn write_announce_answer(out: &mut Vec<u8>, answer: &AnnounceAnswer) {
    put(out, answer.interval_s);
    put(out, answer.leechers.unwrap_or(0));
    put(out, answer.seeders.unwrap_or(0));
    for peer in &answer.peers {
        match peer.address.ip() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
        out.extend_from_slice(&peer.address.port().to_be_bytes());
    }
}

fn put(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// What clients show before they have a connection id.
const PROTOCOL: ConnectionId = ConnectionId(0x417_2710_1980);
const CONNECT: u32 = 0;
const ANNOUNCE: u32 = 1;
const SCRAPE: u32 = 2;
const ERROR: u32 = 3;
/// `left` of clients that do not know it: −1.
const UNKNOWN: u64 = u64::MAX;
const OPTION_NONE: u8 = 1;
const OPTION_PATH: u8 = 2;
/// Trackers write a sentence or two.
const TEXT_MAX_BYTES: usize = 1_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn announce() -> Announce {
        Announce {
            info_hash: InfoHash([1; 20]),
            peer_id: PeerId([2; 20]),
            port: 0x0304,
            uploaded: 5,
            downloaded: 6,
            left: Some(7),
            event: Event::Started,
            want: Some(8),
            key: Some(9),
            form: PeerForm::Compact,
        }
    }

    fn bytes(request: &Request) -> Vec<u8> {
        let mut out = Vec::new();
        request.write(&mut out);
        out
    }

    const TRANSACTION: TransactionId = TransactionId(0x0a0b_0c0d);

    #[test]
    fn requests_are_laid_out_as_in_bep_15() {
        let connect = bytes(&Request::Connect { transaction: TRANSACTION });
        assert_eq!(connect, b"\0\0\x04\x17\x27\x10\x19\x80\0\0\0\0\x0a\x0b\x0c\x0d");
        let request = Request::Announce {
            connection: ConnectionId(1),
            transaction: TRANSACTION,
            announce: announce(),
            path: b"/key/announce".to_vec(),
        };
        let written = bytes(&request);
        assert_eq!(written[..16], *b"\0\0\0\0\0\0\0\x01\0\0\0\x01\x0a\x0b\x0c\x0d");
        assert_eq!(written[56..80], *b"\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x05");
        assert_eq!(written[80..98], *b"\0\0\0\x02\0\0\0\0\0\0\0\x09\0\0\0\x08\x03\x04");
        assert_eq!(written[98..], *b"\x02\x0d/key/announce");
        assert_eq!(Request::read(&written), Ok(request));
    }

    #[test]
    fn odd_requests_are_understood_and_others_refused() {
        let with = |announce, path: &[u8]| {
            let (connection, transaction) = (ConnectionId(1), TRANSACTION);
            Request::Announce { connection, transaction, announce, path: path.to_vec() }
        };
        let unknown = Announce { left: None, want: None, ..announce() };
        let written = bytes(&with(unknown.clone(), b""));
        assert_eq!(written[64..72], [0xff; 8]);
        assert_eq!(Request::read(&written), Ok(with(unknown, b"")));
        // Options: nothing, a part of a path, another one that is cut off; an unknown one.
        let plain = bytes(&with(announce(), b""));
        for (options, path) in [
            (&b"\x01\x01\x02\x02/k\x02\x09/announ"[..], &b"/k/announ"[..]),
            (b"\0\x02\x01x", b""),
            (b"\x09\x02\x01x", b""),
            (b"\x02", b""),
        ] {
            let read = Request::read(&[&plain, options].concat());
            assert_eq!(read, Ok(with(announce(), path)), "{options:?}");
        }
        for end in 0..98 {
            assert_eq!(Request::read(&plain[..end]), Err(Malformed), "{end}");
        }
        // Another protocol; an unknown action; a scrape of nothing.
        let mut connect = bytes(&Request::Connect { transaction: TRANSACTION });
        assert_eq!(Request::read(b"d1:ad2:id20:aaaaaaaaaaaaaaaaaaaae"), Err(Malformed));
        connect[11] = 4;
        assert_eq!(Request::read(&connect), Err(Malformed));
        connect[11] = 2;
        assert_eq!(Request::read(&connect), Err(Malformed));
        let many = [connect, vec![7; 20 * 100]].concat();
        let Ok(Request::Scrape { info_hashes, .. }) = Request::read(&many) else { panic!() };
        assert_eq!(info_hashes, [InfoHash([7; 20]); SCRAPE_MAX]);
    }

    #[test]
    fn answers_are_read_as_written() {
        let peers = |text: [&str; 2]| {
            let peers = text.map(|it| Peer { address: it.parse().unwrap(), id: None });
            AnnounceAnswer {
                interval_s: 1800,
                seeders: Some(2),
                leechers: Some(3),
                peers: peers.to_vec(),
                ..AnnounceAnswer::default()
            }
        };
        let counts = vec![SwarmCounts { seeders: 1, completed: 2, leechers: 3 }; 2];
        let (transaction, connection) = (TRANSACTION, ConnectionId(u64::MAX));
        for (answer, is_six, length) in [
            (Answer::Connect { transaction, connection }, false, 16),
            (
                Answer::Announce { transaction, answer: peers(["1.2.3.4:5", "6.7.8.9:1"]) },
                false,
                32,
            ),
            (
                Answer::Announce { transaction, answer: peers(["[::1]:5", "[2001:db8::]:1"]) },
                true,
                56,
            ),
            (Answer::Scrape { transaction, counts }, false, 32),
            (Answer::Error { transaction, reason: "no".to_owned() }, false, 10),
        ] {
            let mut out = Vec::new();
            answer.write(&mut out);
            assert_eq!((out.len(), Answer::read(&out, is_six)), (length, Ok(answer)));
            assert_eq!(Answer::read(&out[..7], is_six), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn no_message_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), action in 0..5u8) {
            for at in [3, 11] {
                let mut bytes = bytes.clone();
                if let Some(low) = bytes.get_mut(at) {
                    *low = action;
                    bytes[at - 3..at].fill(0);
                }
                let _ = Answer::read(&bytes, action % 2 == 0);
                if let Ok(request) = Request::read(&bytes) {
                    let mut out = Vec::new();
                    request.write(&mut out);
                    prop_assert_eq!(Request::read(&out), Ok(request));
                }
            }
        }
    }
}
