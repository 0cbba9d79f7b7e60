//! The tracker over UDP (BEP 15): takes several packets at a time and answers each from the address
//! that it was sent to.
//!
//! Packets that show no valid connection id are ignored, so that nobody can have answers sent to
//! somebody else. Only an answer to `connect` goes to an address that is not proven, and it is no
//! longer than the request.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use swath_formats::tracker::udp::{Answer, ConnectionId, Request};
use swath_model::Time;
use swath_serve::Life;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::core::{Core, Requester};
use crate::route::Route;
use crate::tracker::Tracker;

/// A UDP socket of the tracker.
pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// An answer and where it goes.
struct Reply {
    to: SocketAddr,
    from: Option<IpAddr>,
    bytes: Vec<u8>,
}

impl Socket {
    /// Listens at this address.
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        let socket = std::net::UdpSocket::bind(address)?;
        let state = UdpSocketState::new((&socket).into())?;
        // What comes while a snapshot is written must not be lost; the system may allow less.
        let _ = state.set_recv_buffer_size((&socket).into(), RECEIVE_BUFFER_BYTES);
        Ok(Socket { socket: UdpSocket::from_std(socket)?, state })
    }

    /// Answers until the server ends.
    pub async fn serve(self, tracker: Arc<Tracker>) {
        let mut life = tracker.life.clone();
        let mut buffer = vec![0; BATCH_SIZE * SLICE_BYTES];
        loop {
            let readable = tokio::select! {
                readable = self.socket.readable() => readable,
                _ = life.wait_for(|&life| life != Life::Open) => return,
            };
            if readable.is_err() {
                return;
            }
            for _ in 0..BATCHES_PER_WAKE {
                let Some(replies) = self.receive(&tracker, &mut buffer) else { break };
                replies.iter().for_each(|reply| self.send(&tracker, reply));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes the packets that are there, and answers them; `None` if there are none.
    fn receive(&self, tracker: &Tracker, buffer: &mut [u8]) -> Option<Vec<Reply>> {
        let mut slices: Vec<IoSliceMut<'_>> =
            buffer.chunks_mut(SLICE_BYTES).map(IoSliceMut::new).collect();
        let mut about = [RecvMeta::default(); BATCH_SIZE];
        let received = self.socket.try_io(Interest::READABLE, || {
            self.state.recv((&self.socket).into(), &mut slices, &mut about)
        });
        // Other errors than that there is nothing come from packets sent earlier.
        let count = received.ok()?;
        let now = tracker.now();
        let mut core = tracker.core();
        let mut replies = Vec::with_capacity(count);
        for (about, slice) in about.iter().zip(&slices).take(count) {
            // The kernel may have joined packets of one sender.
            for packet in slice[..about.len].chunks(about.stride.max(1)) {
                let answer = tracker.answer_packet(&mut core, now, about.addr.ip(), packet);
                if let Some(bytes) = answer {
                    replies.push(Reply { to: about.addr, from: about.dst_ip, bytes });
                }
            }
        }
        Some(replies)
    }

    fn send(&self, tracker: &Tracker, reply: &Reply) {
        let transmit = Transmit {
            destination: reply.to,
            ecn: None,
            contents: &reply.bytes,
            segment_size: None,
            src_ip: reply.from,
        };
        let counted = match self.state.try_send((&self.socket).into(), &transmit) {
            Ok(()) => &tracker.datagrams.answered,
            // The client asks again.
            Err(_) => &tracker.datagrams.unsent,
        };
        counted.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tracker {
    /// Answers a packet; `None` if it deserves no answer.
    fn answer_packet(
        &self,
        core: &mut Core,
        now: Time,
        ip: IpAddr,
        packet: &[u8],
    ) -> Option<Vec<u8>> {
        let ip = ip.to_canonical();
        self.datagrams.received.fetch_add(1, Ordering::Relaxed);
        let request = Request::read(packet).ok().filter(|request| match connection(request) {
            Some(connection) => self.connections.is_valid(connection, ip, now),
            None => true,
        });
        let Some(request) = request else {
            self.datagrams.ignored.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let mut bytes = Vec::with_capacity(ANSWER_BYTES);
        self.answer_request(core, now, ip, request).write(&mut bytes);
        Some(bytes)
    }

    fn answer_request(&self, core: &mut Core, now: Time, ip: IpAddr, request: Request) -> Answer {
        let result = match request {
            Request::Connect { transaction } => {
                return Answer::Connect {
                    transaction,
                    connection: self.connections.issue(ip, now),
                };
            }
            Request::Announce { transaction, mut announce, path, .. } => {
                if ip.is_ipv6() {
                    announce.want = announce.want.map(|want| want.min(PEERS_SIX_MAX));
                }
                let path = std::str::from_utf8(&path).unwrap_or_default();
                let from = Requester { ip, passkey: Route::of(path).passkey };
                let answer = core.announce(now, from, &announce);
                let answer = answer.map(|answer| Answer::Announce { transaction, answer });
                answer.map_err(|refusal| (transaction, refusal))
            }
            Request::Scrape { transaction, info_hashes, .. } => {
                let from = Requester { ip, passkey: None };
                let counts = core.scrape(now, from, &info_hashes);
                let answer = counts.map(|counts| Answer::Scrape { transaction, counts });
                answer.map_err(|refusal| (transaction, refusal))
            }
        };
        result.unwrap_or_else(|(transaction, refusal)| Answer::Error {
            transaction,
            reason: refusal.to_string(),
        })
    }
}

/// The connection id that a request shows.
fn connection(request: &Request) -> Option<ConnectionId> {
    match request {
        Request::Connect { .. } => None,
        Request::Announce { connection, .. } | Request::Scrape { connection, .. } => {
            Some(*connection)
        }
    }
}

/// Peers of IPv6 in an answer that fits into the smallest packet that every network takes (1,280
/// bytes).
const PEERS_SIX_MAX: u32 = 67;
/// Packets that the kernel has joined have at most so many bytes.
const SLICE_BYTES: usize = 65_536;
/// Batches before other tasks have their turn.
const BATCHES_PER_WAKE: usize = 16;
/// Some 20,000 announces.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// An answer with 50 peers.
const ANSWER_BYTES: usize = 320;
