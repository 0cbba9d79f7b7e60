//! Announces to a tracker over UDP, as many as it answers: each socket waits for an answer before it
//! sends the next request, so that nothing is lost and the tracker is always busy.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fastrand::Rng;
use swath_formats::tracker::udp::{Answer, ConnectionId, Request, TransactionId};
use swath_formats::tracker::{Announce, Event, InfoHash, PeerForm, PeerId};

/// Peers that announce themselves.
pub struct Announcers {
    sockets: Vec<Announcer>,
    peers: u32,
    rng: Rng,
}

/// A socket with an address of its own, for some of the peers.
struct Announcer {
    socket: UdpSocket,
    /// A request, whose torrent, peer and port change.
    request: Vec<u8>,
    /// Requests that are not answered yet.
    open: u32,
    heard: Instant,
}

/// What came of the announces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answered {
    /// Announces that were answered with peers or the number of peers.
    pub announces: u64,
    /// Peers in these answers.
    pub peers: u64,
    /// Requests that were refused, or not answered in time.
    pub failed: u64,
}

impl Announcers {
    /// `peers` peers in swarms of a hundred, at several addresses of 127.0.1.0/24.
    ///
    /// # Errors
    /// Those of the system, and of a tracker that does not answer.
    pub fn connect(tracker: SocketAddr, peers: u32) -> io::Result<Announcers> {
        let sockets = (0..SOCKETS).map(|number| Announcer::connect(tracker, number as u8));
        Ok(Announcers {
            sockets: sockets.collect::<Result<_, _>>()?,
            peers,
            rng: Rng::with_seed(1),
        })
    }

    /// Announces every peer once.
    ///
    /// # Errors
    /// Those of the system.
    pub fn fill(&mut self) -> io::Result<Answered> {
        let mut answered = Answered::default();
        let mut next = vec![0; self.sockets.len()];
        let all = |number: u32, next: u32| next * SOCKETS + number;
        while (0..SOCKETS).any(|number| {
            let socket = &self.sockets[number as usize];
            socket.open > 0 || all(number, next[number as usize]) < self.peers
        }) {
            for (number, socket) in (0..).zip(&mut self.sockets) {
                socket.hear(&mut answered)?;
                let next = &mut next[number as usize];
                while socket.open < WINDOW && all(number, *next) < self.peers {
                    socket.announce(all(number, *next))?;
                    *next += 1;
                }
            }
        }
        Ok(answered)
    }

    /// Announces random peers for so long.
    ///
    /// # Errors
    /// Those of the system.
    pub fn run(&mut self, length: Duration) -> io::Result<Answered> {
        let (mut answered, end) = (Answered::default(), Instant::now() + length);
        let each = self.peers / SOCKETS;
        while Instant::now() < end {
            for (number, socket) in (0..).zip(&mut self.sockets) {
                socket.hear(&mut answered)?;
                while socket.open < WINDOW {
                    socket.announce(self.rng.u32(..each) * SOCKETS + number)?;
                }
            }
        }
        Ok(answered)
    }
}

impl Announcer {
    fn connect(tracker: SocketAddr, number: u8) -> io::Result<Announcer> {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 1, number), 0))?;
        socket.connect(tracker)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        let transaction = TransactionId(number.into());
        let mut bytes = Vec::new();
        Request::Connect { transaction }.write(&mut bytes);
        socket.send(&bytes)?;
        let mut answer = [0; 2048];
        let length = socket.recv(&mut answer)?;
        let Ok(Answer::Connect { connection, .. }) = Answer::read(&answer[..length], false) else {
            return Err(io::Error::other("not an answer to a connect"));
        };
        socket.set_nonblocking(true)?;
        let request = request(connection, transaction);
        Ok(Announcer { socket, request, open: 0, heard: Instant::now() })
    }

    /// Sends the announce of a peer.
    fn announce(&mut self, peer: u32) -> io::Result<()> {
        self.request[16..36].copy_from_slice(&info_hash(peer / PEERS_PER_TORRENT).0);
        self.request[48..52].copy_from_slice(&peer.to_be_bytes());
        self.request[96..98].copy_from_slice(&((1024 + peer / SOCKETS) as u16).to_be_bytes());
        self.socket.send(&self.request)?;
        self.open += 1;
        Ok(())
    }

    /// Counts the answers that have arrived.
    fn hear(&mut self, answered: &mut Answered) -> io::Result<()> {
        let mut answer = [0; 2048];
        loop {
            match self.socket.recv(&mut answer) {
                Ok(length) => {
                    self.open = self.open.saturating_sub(1);
                    self.heard = Instant::now();
                    match length >= 20 && answer[..4] == [0, 0, 0, 1] {
                        true => {
                            answered.announces += 1;
                            answered.peers += (length as u64 - 20) / 6;
                        }
                        false => answered.failed += 1,
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.open > 0 && self.heard.elapsed() > LOST_AFTER {
            answered.failed += u64::from(std::mem::take(&mut self.open));
            self.heard = Instant::now();
        }
        Ok(())
    }
}

/// The info-hashes of all swarms of so many peers.
pub fn info_hashes(peers: u32) -> impl Iterator<Item = InfoHash> {
    (0..peers.div_ceil(PEERS_PER_TORRENT)).map(info_hash)
}

fn info_hash(torrent: u32) -> InfoHash {
    let mut hash = [0; 20];
    hash.copy_from_slice(&blake3::hash(&torrent.to_be_bytes()).as_bytes()[..20]);
    InfoHash(hash)
}

/// An announce that wants 50 peers and always gets them: that of a peer that has just started.
fn request(connection: ConnectionId, transaction: TransactionId) -> Vec<u8> {
    let announce = Announce {
        info_hash: InfoHash([7; 20]),
        peer_id: PeerId(*b"-SW0001-benchbenchbe"),
        port: 1,
        uploaded: 0,
        downloaded: 0,
        left: Some(1),
        event: Event::Started,
        want: Some(50),
        key: None,
        form: PeerForm::Compact,
    };
    let mut bytes = Vec::new();
    Request::Announce { connection, transaction, announce, path: Vec::new() }.write(&mut bytes);
    bytes
}

/// Addresses from which announces come.
const SOCKETS: u32 = 64;
/// Requests of one socket that wait for an answer.
const WINDOW: u32 = 8;
/// The swarms have so many peers.
const PEERS_PER_TORRENT: u32 = 100;
/// Over loopback no answer takes so long.
const LOST_AFTER: Duration = Duration::from_secs(1);
