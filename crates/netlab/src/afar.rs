//! A server of this machine as if it lay far away, for those who may not make networks.
//!
//! [`Afar`] listens on loopback and carries every connection to a server: at the rate of one link
//! that all share, each byte later by the link's delay, each connection no more than its *window*
//! ahead of what has been acknowledged. A window grows as slow start lets it, up to what Linux
//! grants a sender by default, so that one connection fills no long link, as in life. The
//! handshake of a connection takes a round trip too. Nothing is lost, and no packet is made: what
//! the kernel tells of a connection (`TCP_INFO`) is that of loopback. Where that matters there is
//! [`wan`](crate::wan).

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::star::LinkSpec;

/// A port behind which a server lies far away.
pub struct Afar {
    listener: TcpListener,
    address: SocketAddr,
    server: SocketAddr,
    link: Arc<Link>,
}

/// What all connections share.
struct Link {
    one_way_delay: Duration,
    there: Line,
    back: Line,
}

impl Afar {
    /// Returns a free port of 127.0.0.1 that leads to `server` over a link like `link`.
    ///
    /// # Errors
    /// What the system says.
    pub async fn listen(server: SocketAddr, link: LinkSpec) -> io::Result<Afar> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let line = || Line { rate_bits_per_s: link.rate_bits_per_s, free_at: Mutex::new(None) };
        let link = Link { one_way_delay: link.one_way_delay, there: line(), back: line() };
        Ok(Afar { listener, address, server, link: Arc::new(link) })
    }

    /// Returns the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Carries connections; they end when this is dropped.
    ///
    /// # Errors
    /// When no connection can be accepted any more.
    pub async fn carry(self) -> io::Result<()> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => {
                    let (near, _) = accepted?;
                    // A connection that ends badly ends for both sides, and for nobody else.
                    connections.spawn(connection(near, self.server, Arc::clone(&self.link)));
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

async fn connection(near: TcpStream, server: SocketAddr, link: Arc<Link>) -> io::Result<()> {
    let opened = Instant::now();
    let far = TcpStream::connect(server).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    sleep_until(opened + 2 * link.one_way_delay).await;
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let delay = link.one_way_delay;
    tokio::try_join!(
        one_way(near_in, far_out, &link.there, delay),
        one_way(far_in, near_out, &link.back, delay)
    )?;
    Ok(())
}

/// What is on its way, with the moment at which it arrives; nothing stands for the end.
type Parcel = (Instant, Vec<u8>);

/// Carries one direction of a connection to its end.
async fn one_way(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    line: &Line,
    delay: Duration,
) -> io::Result<()> {
    let (parcels, arriving) = unbounded_channel();
    let (acknowledged, acknowledgements) = unbounded_channel();
    let window = Window {
        bytes: WINDOW_FIRST_BYTES,
        under_way_bytes: 0,
        acknowledgements,
        next: None,
        is_over: false,
    };
    tokio::try_join!(
        send(from, line, delay, window, parcels),
        deliver(to, delay, arriving, acknowledged)
    )?;
    Ok(())
}

async fn send(
    mut from: OwnedReadHalf,
    line: &Line,
    delay: Duration,
    mut window: Window,
    parcels: UnboundedSender<Parcel>,
) -> io::Result<()> {
    loop {
        let room_bytes = window.room_bytes().await?;
        let mut bytes = vec![0; room_bytes.min(PARCEL_BYTES)];
        let count = from.read(&mut bytes).await?;
        bytes.truncate(count);
        window.under_way_bytes += count;
        let sent = line.reserve(Instant::now(), count);
        parcels.send((sent + delay, bytes)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        if count == 0 {
            return Ok(());
        }
    }
}

async fn deliver(
    mut to: OwnedWriteHalf,
    delay: Duration,
    mut arriving: UnboundedReceiver<Parcel>,
    acknowledged: UnboundedSender<(Instant, usize)>,
) -> io::Result<()> {
    while let Some((at, bytes)) = arriving.recv().await {
        sleep_until(at).await;
        if bytes.is_empty() {
            return to.shutdown().await;
        }
        to.write_all(&bytes).await?;
        // Whoever sends may have ended already.
        let _ = acknowledged.send((at.max(Instant::now()) + delay, bytes.len()));
    }
    Ok(())
}

/// How much of one direction of a connection may be under way.
struct Window {
    bytes: usize,
    under_way_bytes: usize,
    /// When they come back, and of how many bytes.
    acknowledgements: UnboundedReceiver<(Instant, usize)>,
    next: Option<(Instant, usize)>,
    is_over: bool,
}

impl Window {
    /// Waits until something may leave; answers how much.
    async fn room_bytes(&mut self) -> io::Result<usize> {
        loop {
            if self.next.is_none() {
                self.next = self.acknowledgements.try_recv().ok();
            }
            match self.next {
                Some((at, bytes)) if at <= Instant::now() => {
                    self.next = None;
                    self.under_way_bytes -= bytes;
                    self.bytes = (self.bytes + bytes).min(WINDOW_MAX_BYTES);
                }
                _ if self.under_way_bytes < self.bytes => {
                    return Ok(self.bytes - self.under_way_bytes);
                }
                Some((at, _)) => sleep_until(at).await,
                None if self.is_over => return Err(io::ErrorKind::BrokenPipe.into()),
                None => {
                    self.next = self.acknowledgements.recv().await;
                    self.is_over = self.next.is_none();
                }
            }
        }
    }
}

/// One direction of the link: what it carries goes one behind the other.
struct Line {
    rate_bits_per_s: u64,
    free_at: Mutex<Option<Instant>>,
}

impl Line {
    /// Returns when the last of so many bytes has left, if they are offered now.
    fn reserve(&self, now: Instant, bytes: usize) -> Instant {
        let packets = bytes.div_ceil(PACKET_BYTES);
        let bits = 8.0 * (bytes + packets * HEADERS_BYTES) as f64;
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let start = free_at.map_or(now, |at| at.max(now));
        let end = start + Duration::from_secs_f64(bits / self.rate_bits_per_s.max(1) as f64);
        *free_at = Some(end);
        end
    }
}

/// What a packet of 1,500 bytes carries …
const PACKET_BYTES: usize = 1448;
/// … beside its headers.
const HEADERS_BYTES: usize = 52;
/// Ten packets, as Linux begins.
const WINDOW_FIRST_BYTES: usize = 10 * PACKET_BYTES;
/// What Linux lets a sender have under way unless it is told otherwise (`tcp_wmem`).
const WINDOW_MAX_BYTES: usize = 4 << 20;
/// Half a millisecond of a gigabit a second.
const PARCEL_BYTES: usize = 64 << 10;
