//! uTP (BEP 29): byte streams in datagrams, as BitTorrent peers speak it where TCP does not get through.
//!
//! The protocol is the library's. Here are its socket and what keeps it within bounds: datagrams that
//! no Ethernet carries are dropped, requests for connections are judged before anything is kept of
//! them, and the number of connections and their buffers are limited. The address of a datagram proves
//! nothing; who has finished a handshake has shown that he receives there.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::{Duration, Instant};

use librqbit_dualstack_sockets::PollSendToVectored;
use librqbit_utp::{SocketOpts, UtpSocket, UtpSocketUdp};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UdpSocket;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::kernel;
use crate::transport::{Incoming, Transport};

/// A UDP port at which peers connect to us, and from which we connect to them. Clones share it; it is
/// closed soon after the last of them and the last stream are dropped.
#[derive(Clone)]
pub struct Utp(Arc<Port>);

impl Utp {
    /// Opens the port of `address`. `admits` says whether a peer may open a further connection now; it
    /// is asked for every datagram that wants one.
    ///
    /// # Errors
    /// As the system says.
    pub async fn bind(
        address: SocketAddr,
        admits: impl Fn(IpAddr) -> UtpAdmission + Send + Sync + 'static,
    ) -> io::Result<Utp> {
        let socket = UdpSocket::bind(address).await?;
        kernel::set_datagram_buffers(&socket, KERNEL_BUFFER_BYTES);
        let address = socket.local_addr()?;
        let datagrams = Datagrams {
            socket,
            address,
            // Linux gives such a socket the peers of IPv4 too.
            is_dual: address.is_ipv6() && address.ip().is_unspecified(),
            admits: Box::new(admits),
            waiting: Arc::default(),
        };
        let end = CancellationToken::new();
        let options = SocketOpts {
            vsock_rx_bufsize_bytes: NonZeroUsize::new(BUFFER_BYTES),
            vsock_tx_bufsize_bytes_max: NonZeroUsize::new(BUFFER_BYTES),
            max_live_vsocks: NonZeroUsize::new(STREAMS_MAX),
            // Requests are small and must not wait for acknowledgements.
            disable_nagle: true,
            cancellation_token: end.clone(),
            ..SocketOpts::default()
        };
        let socket = UtpSocket::new_with_opts(datagrams, Environment::default(), options);
        Ok(Utp(Arc::new(Port { socket: socket.map_err(io::Error::other)?, end })))
    }

    /// Returns the address of the port.
    pub fn address(&self) -> SocketAddr {
        self.0.socket.bind_addr()
    }

    /// Connects to a peer.
    ///
    /// # Errors
    /// `TimedOut` if nobody answers within some seconds, others as the system says.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<UtpStream> {
        for wait in TRIES {
            let begin = Instant::now();
            if let Ok(connected) = timeout(wait, self.0.socket.connect(address)).await {
                let stream = connected.map_err(io::Error::other)?;
                return Ok(UtpStream::new(stream, self, Some(begin.elapsed())));
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Waits for the next peer that connects to us.
    ///
    /// # Errors
    /// There will be no further one.
    pub async fn accept(&self) -> io::Result<Incoming> {
        let stream = self.0.socket.accept().await.map_err(io::Error::other)?;
        let address = stream.remote_addr();
        Ok((Box::new(UtpStream::new(stream, self, None)), address))
    }
}

impl std::fmt::Debug for Utp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Utp({})", self.address())
    }
}

/// A connection over uTP. Nothing is known of its socket: it has none of its own.
pub struct UtpStream {
    stream: librqbit_utp::UtpStream,
    since: Instant,
    rtt: Option<Duration>,
    _port: Utp,
}

impl UtpStream {
    fn new(stream: librqbit_utp::UtpStream, port: &Utp, rtt: Option<Duration>) -> UtpStream {
        UtpStream { stream, since: Instant::now(), rtt, _port: port.clone() }
    }
}

impl Transport for UtpStream {
    /// How long the handshake took. A peer that has connected to us sends its first bytes when it has
    /// our answer.
    fn rtt(&self) -> Option<Duration> {
        self.rtt
    }
}

impl AsyncRead for UtpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_read(cx, room)).map_err(ended)?;
        this.rtt.get_or_insert_with(|| this.since.elapsed());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UtpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data).map_err(ended)
    }

    /// Takes as much as there is room for: parts that come one by one would leave in datagrams of
    /// their own.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut written = 0;
        for part in parts {
            match Pin::new(&mut self.stream).poll_write(cx, part) {
                Poll::Ready(Ok(bytes)) => written += bytes,
                Poll::Ready(Err(error)) if written == 0 => return Poll::Ready(Err(ended(error))),
                Poll::Pending if written == 0 => return Poll::Pending,
                _ => break,
            }
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx).map_err(ended)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx).map_err(ended)
    }
}

/// Gives an error of the library a kind, because the library sets none. After any error the connection
/// has ended, as after a reset.
fn ended(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

/// The library's socket. It runs until `end` is cancelled.
struct Port {
    socket: Arc<UtpSocket<Datagrams, Environment>>,
    end: CancellationToken,
}

impl Drop for Port {
    fn drop(&mut self) {
        let end = self.end.clone();
        // Streams that were just dropped send what they hold, and that they have ended.
        match Handle::try_current() {
            Ok(runtime) => {
                _ = runtime.spawn(async move {
                    sleep(LAST_WORDS).await;
                    end.cancel();
                })
            }
            Err(_) => end.cancel(),
        }
    }
}

/// The library's clock, whose type it does not export.
type Environment = <UtpSocketUdp as Parts>::Environment;

trait Parts {
    type Environment;
}

impl<T, E> Parts for UtpSocket<T, E> {
    type Environment = E;
}

/// Returns the answer to a request for a connection that ends it (BEP 29): no longer than the request, so that
/// nobody is flooded in somebody else's name.
fn reset(syn: &[u8]) -> Option<[u8; HEADER_BYTES]> {
    let syn = syn.first_chunk::<HEADER_BYTES>()?;
    let mut reset = [0; HEADER_BYTES];
    reset[0] = RESET;
    // The number of the connection, and of what is acknowledged.
    reset[2..4].copy_from_slice(&syn[2..4]);
    reset[18..20].copy_from_slice(&syn[16..18]);
    Some(reset)
}

/// A UDP socket as the library wants it.
struct Datagrams {
    socket: UdpSocket,
    address: SocketAddr,
    /// Peers of IPv4 have mapped addresses.
    is_dual: bool,
    admits: Box<dyn Fn(IpAddr) -> UtpAdmission + Send + Sync>,
    waiting: Arc<Waiting>,
}

/// Whether a peer may open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UtpAdmission {
    /// It may.
    Yes,
    /// It may not, and is told so: clients that try uTP first go on by TCP at once then.
    Refused,
    /// It may not, and hears nothing.
    Ignored,
}

impl Datagrams {
    /// Returns whether a datagram is for the library; answers one that asks for a connection which is refused.
    fn is_wanted(&self, datagram: &[u8], from: SocketAddr) -> bool {
        if datagram.len() > DATAGRAM_BYTES_MAX || datagram.first() != Some(&SYN) {
            return datagram.len() <= DATAGRAM_BYTES_MAX;
        }
        match (self.admits)(from.ip()) {
            UtpAdmission::Yes => true,
            UtpAdmission::Refused => {
                if let Some(reset) = reset(datagram) {
                    // If it is lost, the peer asks again.
                    let _ = self.socket.try_send_to(&reset, self.mapped(from));
                }
                false
            }
            UtpAdmission::Ignored => false,
        }
    }

    /// Returns the address as the socket wants it.
    fn mapped(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(ip) if self.is_dual => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())
            }
            _ => address,
        }
    }
}

impl librqbit_utp::Transport for Datagrams {
    async fn recv_from<'a>(&'a self, room: &'a mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            match self.socket.recv_from(room).await {
                Ok((bytes, from)) => {
                    let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                    if self.is_wanted(&room[..bytes], from) {
                        return Ok((bytes, from));
                    }
                }
                // With an error the library would end all streams. Memory is short, for instance.
                Err(_) => sleep(AFTER_FAILURE).await,
            }
        }
    }

    fn send_to<'a>(
        &'a self,
        datagram: &'a [u8],
        to: SocketAddr,
    ) -> impl Future<Output = io::Result<usize>> + Send + Sync + 'a {
        self.socket.send_to(datagram, self.mapped(to))
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        datagram: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.socket.try_send_to(datagram, self.mapped(to)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
            // The socket wakes one task only, and many streams may wait.
            self.waiting.add(cx.waker());
            let all = Waker::from(Arc::clone(&self.waiting));
            ready!(self.socket.poll_send_ready(&mut Context::from_waker(&all)))?;
        }
    }

    fn bind_addr(&self) -> SocketAddr {
        self.address
    }
}

impl PollSendToVectored for Datagrams {
    fn poll_send_to_vectored(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let mut datagram = [0; DATAGRAM_BYTES_MAX];
        let mut end = 0;
        for part in parts {
            let Some(room) = datagram.get_mut(end..end + part.len()) else {
                return Poll::Ready(Err(io::Error::from_raw_os_error(libc::EMSGSIZE)));
            };
            room.copy_from_slice(part);
            end += part.len();
        }
        librqbit_utp::Transport::poll_send_to(self, cx, &datagram[..end], to)
    }
}

/// Tasks that wait until the socket takes more.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|known| known.will_wake(waker)) {
            all.push(waker.clone());
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        all.into_iter().for_each(Waker::wake);
    }
}

/// The first byte of a datagram that asks for a connection: the type 4 of version 1.
const SYN: u8 = 0x41;
/// The first byte of one that ends a connection: the type 3.
const RESET: u8 = 0x31;
/// What each datagram begins with.
const HEADER_BYTES: usize = 20;
/// What Ethernet carries over IPv4. Without a limit a peer could fill the slots in which its datagrams
/// wait for their order, 2,000 of a stream, with 64 KiB each.
const DATAGRAM_BYTES_MAX: usize = 1472;
/// For each stream, in each direction: enough for 10 MB/s over 100 ms. Three times as much may wait for
/// its order if a peer wants that, as the library counts datagrams and takes them for short ones.
const BUFFER_BYTES: usize = 1 << 20;
/// Streams at once. Those of TCP are many more: uTP is for peers that TCP does not reach.
const STREAMS_MAX: usize = 128;
/// All streams share it, and no datagram may be lost while their tasks wait for a processor. The
/// kernel gives what it allows.
const KERNEL_BUFFER_BYTES: usize = 4 << 20;
/// How long is waited for an answer; the request or the answer may be lost once.
const TRIES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
/// Some round trips.
const LAST_WORDS: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinSet;

    use super::*;

    async fn bound() -> Utp {
        Utp::bind("127.0.0.1:0".parse().unwrap(), |_| UtpAdmission::Yes).await.unwrap()
    }

    /// Answers whoever connects with what was sent.
    fn echo(port: &Utp) {
        let port = port.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = port.accept().await {
                tokio::spawn(async move {
                    let mut room = vec![0; 10_000];
                    while let Ok(bytes @ 1..) = stream.read(&mut room).await {
                        if stream.write_all(&room[..bytes]).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
    }

    /// Sends `bytes` bytes to what echoes; answers whether they came back.
    async fn comes_back(from: &Utp, to: SocketAddr, bytes: usize) -> io::Result<bool> {
        let stream = from.connect(to).await?;
        let sent: Vec<u8> = (0..bytes).map(|at| (at * at / 7) as u8).collect();
        let (mut read, mut write) = tokio::io::split(stream);
        let mut came = vec![0; bytes];
        let (_, written) = tokio::try_join!(read.read_exact(&mut came), write.write_all(&sent))
            .map(|(read, ())| (read, true))?;
        Ok(written && came == sent)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bytes_arrive_in_order_on_many_streams_of_a_port() {
        let (one, other) = (bound().await, bound().await);
        echo(&other);
        let mut streams = JoinSet::new();
        // The library keeps no more requests to one address at a time.
        for _ in 0..4 {
            let (from, to) = (one.clone(), other.address());
            streams.spawn(async move {
                let mut came = true;
                for _ in 0..5 {
                    came &= comes_back(&from, to, 300_000).await.unwrap();
                }
                came
            });
        }
        while let Some(came) = streams.join_next().await {
            assert!(came.unwrap());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_last_words_of_a_stream_arrive_after_all_handles_are_gone() {
        let (one, other) = (bound().await, bound().await);
        let (caller, accepted) = tokio::join!(one.connect(other.address()), other.accept());
        let (mut caller, (mut stream, from)) = (caller.unwrap(), accepted.unwrap());
        assert!(caller.rtt().is_some_and(|rtt| rtt < Duration::from_secs(60)));
        assert!(caller.socket().is_none());
        caller.write_all(&[7; 50_000]).await.unwrap();
        assert_eq!(from, one.address());
        drop((caller, one));
        let mut came = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut came)).await.unwrap().unwrap();
        assert_eq!(came, vec![7; 50_000]);
        assert!(stream.rtt().is_some());
        drop((stream, other));
        let again = timeout(PATIENCE, async {
            while UdpSocket::bind(from).await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        });
        again.await.expect("the port is closed");
    }

    #[tokio::test]
    async fn who_is_not_admitted_hears_nothing() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let admits = move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            UtpAdmission::Ignored
        };
        let strict = Utp::bind("[::]:0".parse().unwrap(), admits).await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], strict.address().port()));
        let error = bound().await.connect(address).await.err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::TimedOut));
        assert_eq!(asked.load(Ordering::Relaxed), TRIES.len());
        // The other direction is ours to choose, whatever the family of addresses.
        let open = bound().await;
        echo(&open);
        assert!(comes_back(&strict, open.address(), 1000).await.unwrap());
    }

    #[tokio::test]
    async fn who_is_refused_hears_so_at_once() {
        let strict = Utp::bind("[::]:0".parse().unwrap(), |_| UtpAdmission::Refused).await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], strict.address().port()));
        let asking = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut syn = [0; HEADER_BYTES];
        (syn[0], syn[2], syn[3], syn[17]) = (SYN, 7, 9, 1);
        asking.send_to(&syn, address).await.unwrap();
        let mut told = [0; 100];
        let (bytes, _) = timeout(PATIENCE, asking.recv_from(&mut told)).await.unwrap().unwrap();
        assert_eq!((bytes, told[0], &told[2..4]), (HEADER_BYTES, RESET, &[7, 9][..]));
        // What is no whole request gets no answer.
        assert_eq!(reset(&[SYN; HEADER_BYTES - 1]), None);
        let asked: [u8; HEADER_BYTES] = std::array::from_fn(|at| at as u8);
        let answer = reset(&asked).unwrap();
        assert_eq!((answer[0], &answer[2..4], &answer[18..]), (RESET, &[2, 3][..], &[16, 17][..]));
    }

    /// Datagrams between two ports, some of them spoilt, and further ones that are like them.
    async fn spoil(to: SocketAddr, seed: u64, is_over: Arc<AtomicBool>) -> SocketAddr {
        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = near.local_addr().unwrap();
        let mut state = seed;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        tokio::spawn(async move {
            let (mut here, mut there) = ([0; 4000], [0; 4000]);
            let mut from = None;
            while !is_over.load(Ordering::Relaxed) {
                let (datagram, socket, to) = tokio::select! {
                    Ok((bytes, address)) = near.recv_from(&mut here) => {
                        from = Some(address);
                        (&here[..bytes], &far, to)
                    }
                    Ok((bytes, _)) = far.recv_from(&mut there), if from.is_some() => {
                        (&there[..bytes], &near, from.unwrap())
                    }
                    else => return,
                };
                let _ = socket.send_to(datagram, to).await;
                if random(3) > 0 {
                    continue;
                }
                let mut spoilt = datagram.to_vec();
                match random(5) {
                    0 => spoilt.truncate(random(spoilt.len() as u64 + 1) as usize),
                    1 => spoilt.extend((0..random(2000)).map(|at| at as u8)),
                    // The type.
                    2 => spoilt[0] = (random(16) as u8) << 4 | 1,
                    // An extension of any length.
                    3 => {
                        spoilt[1] = random(4) as u8;
                        spoilt.splice(20..20, [0, random(256) as u8, 1, 2, 3, 4, 5, 6, 7, 8]);
                    }
                    // Window, sequence number, acknowledgement, payload.
                    _ => {
                        let at = 12 + random(spoilt.len() as u64 - 12) as usize;
                        spoilt[at] = random(256) as u8;
                    }
                }
                let _ = socket.send_to(&spoilt, to).await;
            }
        });
        address
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn spoilt_datagrams_end_their_own_stream_at_most() {
        let panics = Arc::new(AtomicUsize::new(0));
        let (counted, usual) = (Arc::clone(&panics), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |info| {
            if info.location().is_some_and(|it| it.file().contains("librqbit")) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            usual(info);
        }));
        let (one, other) = (bound().await, bound().await);
        echo(&other);
        let mut ways = JoinSet::new();
        for seed in 0..ROUNDS {
            let (from, to) = (one.clone(), other.address());
            ways.spawn(async move {
                let is_over = Arc::new(AtomicBool::new(false));
                let to = spoil(to, seed, Arc::clone(&is_over)).await;
                let came = timeout(Duration::from_secs(5), comes_back(&from, to, 200_000)).await;
                is_over.store(true, Ordering::Relaxed);
                came.is_ok_and(|came| came.is_ok())
            });
        }
        let rubbish = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        for length in 0..3000_usize {
            let datagram: Vec<u8> = (0..length).map(|at| (at * length) as u8 ^ 0x21).collect();
            let _ = rubbish.send_to(&datagram, other.address()).await;
        }
        let mut came = 0;
        while let Some(way) = ways.join_next().await {
            came += usize::from(way.unwrap());
        }
        println!("{came} of {ROUNDS} streams came through");
        assert!(comes_back(&one, other.address(), 300_000).await.unwrap());
        assert_eq!(panics.load(Ordering::Relaxed), 0);
    }

    const PATIENCE: Duration = Duration::from_secs(90);
    const ROUNDS: u64 = 60;
}
