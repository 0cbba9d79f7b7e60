//! Listening, TLS, and the life cycle of a server.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use swath_transport::{CLIENT_CERTIFICATE, Congestion};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, TlsStream};

use crate::descriptors;
use crate::http::{Records, Slot, Slots, Stream};
use crate::site::{Log, Site, SiteError, SiteOptions};
use crate::tls::{Identity, Speaks, Tls, TlsError};

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// What to serve.
    pub site: SiteOptions,
    /// Where and how.
    pub listening: Listening,
}

/// Where and how a server listens.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Where; port 0 takes a free one.
    pub at: Vec<SocketAddr>,
    /// Encrypted how.
    pub tls: Tls,
    /// More connections than this wait until others end; those that are silent make room.
    pub max_connections: usize,
    /// How congestion control is chosen.
    pub congestion: Congestion,
}

/// How far a server is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Life {
    /// Everything is answered.
    Open,
    /// Trees that are under way are brought to their end: what belongs to them is answered, on new
    /// connections too, and nothing else.
    Finishing,
    /// Answers that are under way are sent; no request comes behind them.
    Ending,
}

/// What answers on the connections of a server.
pub trait Service: Send + Sync + 'static {
    /// Its connections.
    fn traffic(&self) -> &Traffic;

    /// Whether it answers HTTP/2 too.
    fn speaks_http2(&self) -> bool {
        false
    }

    /// Resolves when nothing is under way that takes more than one request.
    fn finished(&self) -> Later<'_> {
        Box::pin(std::future::ready(()))
    }

    /// How many descriptors a connection takes, the file that it is sent among them.
    fn descriptors_per_connection(&self) -> usize {
        2
    }

    /// Clients see this certificate from now on; `None` without TLS.
    fn shown_as(&self, _identity: Option<&Identity>) {}

    /// Gives up what nobody uses any more. Called every now and then.
    fn tidy(&self) {}

    /// Answers on a connection until it ends.
    fn serve_connection<'a>(
        self: Arc<Self>,
        stream: Stream,
        peer: SocketAddr,
        slot: &'a Slot,
    ) -> Later<'a>;

    /// Answers somebody who does not encrypt where that is asked for.
    fn serve_plain_http<'a>(
        self: Arc<Self>,
        stream: Stream,
        peer: SocketAddr,
        slot: &'a Slot,
    ) -> Later<'a>;
}

/// Something that ends.
pub type Later<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// How many connections there were and are.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Accepted so far.
    pub connections: AtomicU64,
    /// Open.
    pub now: AtomicU64,
    /// Had to wait until another one made room.
    pub waited: AtomicU64,
}

/// How a server is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Trees that are under way come to their end first.
    Orderly,
    /// Nobody wants any more of them.
    Abandoned,
}

/// Why a server cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// What it is to serve.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// How it is to encrypt.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Where it is to listen.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Nowhere to listen.
    #[error("no address to listen at was given")]
    Nowhere,
}

/// A server that listens already, and answers once it [runs](Server::run).
pub struct Server {
    service: Arc<dyn Service>,
    speaks: Speaks,
    listeners: Vec<TcpListener>,
    acceptor: watch::Sender<Option<Acceptors>>,
    identity: Option<Identity>,
    slots: Arc<Slots>,
    end: watch::Sender<Life>,
    max_connections: usize,
    congestion: Arc<Congestion>,
}

/// Changes the certificate of a server that runs.
#[derive(Clone)]
pub struct Renewal {
    service: Arc<dyn Service>,
    acceptor: watch::Sender<Option<Acceptors>>,
    speaks: Speaks,
}

/// What agrees on encryption.
#[derive(Clone)]
struct Acceptors {
    usual: Arc<ServerConfig>,
    /// For connections that have no seat yet: one request is answered there, or waits.
    waiting: Arc<ServerConfig>,
    /// For clients that have a certificate of their own.
    known: Arc<ServerConfig>,
}

impl Acceptors {
    /// Agrees on encryption with a client.
    async fn accept(&self, tcp: TcpStream, is_waiting: bool) -> io::Result<TlsStream<TcpStream>> {
        let begun = LazyConfigAcceptor::new(Acceptor::default(), tcp).await?;
        let is_known = {
            let hello = begun.client_hello();
            let mut protocols = hello.alpn().into_iter().flatten();
            protocols.any(|protocol| protocol == CLIENT_CERTIFICATE)
        };
        let config = match is_known {
            true => &self.known,
            false if is_waiting => &self.waiting,
            false => &self.usual,
        };
        Ok(begun.into_stream(Arc::clone(config)).await?.into())
    }
}

impl Renewal {
    /// Whoever connects from now on is shown this certificate; connections that are open go on.
    /// Answers what it is.
    ///
    /// # Errors
    /// [`TlsError`]; all stays as it was then.
    pub fn renew(&self, tls: &Tls) -> Result<Option<Identity>, TlsError> {
        let identity = tls.identity()?;
        let acceptor = acceptor(identity.as_ref(), self.speaks)?;
        self.acceptor.send_replace(acceptor);
        self.service.shown_as(identity.as_ref());
        Ok(identity)
    }
}

fn acceptor(identity: Option<&Identity>, speaks: Speaks) -> Result<Option<Acceptors>, TlsError> {
    let Some(identity) = identity else { return Ok(None) };
    let of = |speaks| Ok::<_, TlsError>(Arc::new(identity.config(speaks)?));
    let (usual, waiting, known) = (of(speaks)?, of(Speaks::OneOnly)?, of(Speaks::KnownClients)?);
    Ok(Some(Acceptors { usual, waiting, known }))
}

impl Server {
    /// Opens what is to be served and listen. Must be called within a tokio runtime.
    pub fn bind(
        options: ServerOptions,
        log: Option<Box<dyn Log>>,
    ) -> BoxFuture<'static, Result<Server, ServeError>> {
        Box::pin(async move {
            let (end, ending) = watch::channel(Life::Open);
            let is_plain = options.listening.tls == Tls::Plain;
            let scheme = if is_plain { "http" } else { "https" };
            let site = Site::open(options.site, log, scheme, crate::tls::random, ending)?;
            site.resume_jobs();
            Server::of(Arc::new(site), options.listening, end).await
        })
    }

    /// Listens for a service, which learns by `end` how far the server is on its way.
    pub fn of(
        service: Arc<dyn Service>,
        listening: Listening,
        end: watch::Sender<Life>,
    ) -> BoxFuture<'static, Result<Server, ServeError>> {
        Box::pin(async move {
            let Listening { at, tls, max_connections, congestion } = listening;
            let identity = tls.identity()?;
            service.shown_as(identity.as_ref());
            let speaks = if service.speaks_http2() { Speaks::All } else { Speaks::OneOnly };
            let (acceptor, _) = watch::channel(acceptor(identity.as_ref(), speaks)?);
            let mut listeners = Vec::new();
            for address in at {
                let failed = |source| ServeError::Listen { address, source };
                listeners.push(TcpListener::bind(address).await.map_err(failed)?);
            }
            if listeners.is_empty() {
                return Err(ServeError::Nowhere);
            }
            let room = descriptors::limit().saturating_sub(DESCRIPTORS_APART);
            let waiting = (room / WAITING_PART).min(WAITING_MAX);
            // An answer by HTTP/2 beside the first of its connection; see `Slot::answers`.
            let of_answers = usize::from(identity.is_some() && speaks == Speaks::All);
            let of_connection = service.descriptors_per_connection() + of_answers;
            let room = (room - waiting) / of_connection;
            let max_connections = max_connections.min(room).max(1);
            let slots = Arc::new(Slots::new(max_connections, waiting));
            let congestion = Arc::new(congestion);
            Ok(Server {
                service,
                speaks,
                listeners,
                acceptor,
                identity,
                slots,
                end,
                max_connections,
                congestion,
            })
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// What it shows as its certificate; `None` without TLS.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// How many connections it bears at once: fewer than it was told to where the limit of open files
    /// allows no more.
    pub fn max_connections(&self) -> usize {
        self.max_connections
    }

    /// What changes its certificate while it runs.
    pub fn renewal(&self) -> Renewal {
        let (service, acceptor) = (Arc::clone(&self.service), self.acceptor.clone());
        Renewal { service, acceptor, speaks: self.speaks }
    }

    /// Answers until `stop` resolves; then what is under way may end within `grace`: answers, and
    /// trees with all the requests that they still take. Where it does not end at once, `waits` is told of how many connections there are.
    pub async fn run(
        self,
        stop: impl Future<Output = Stop>,
        grace: Duration,
        waits: impl FnOnce(u64),
    ) {
        let mut accepting = JoinSet::new();
        for listener in self.listeners {
            let (service, acceptor) = (Arc::clone(&self.service), self.acceptor.subscribe());
            accepting.spawn(accept(
                listener,
                service,
                acceptor,
                Arc::clone(&self.slots),
                Arc::clone(&self.congestion),
                self.end.subscribe(),
            ));
        }
        let service = Arc::clone(&self.service);
        let tidying = async {
            loop {
                tokio::time::sleep(TIDY_EVERY).await;
                service.tidy();
            }
        };
        let stop = tokio::select! {
            stop = stop => stop,
            () = tidying => Stop::Orderly,
        };
        let all = async {
            if stop == Stop::Orderly {
                let _ = self.end.send(Life::Finishing);
                self.service.finished().await;
            }
            let _ = self.end.send(Life::Ending);
            // Each answers when all its connections have ended; dropped, they end at once.
            while accepting.join_next().await.is_some() {}
        };
        let mut all = std::pin::pin!(timeout(grace, all));
        if timeout(AT_ONCE, &mut all).await.is_err() {
            waits(self.service.traffic().now.load(Ordering::Relaxed));
            let _ = all.await;
        }
    }
}

fn accept(
    listener: TcpListener,
    service: Arc<dyn Service>,
    acceptor: watch::Receiver<Option<Acceptors>>,
    slots: Arc<Slots>,
    congestion: Arc<Congestion>,
    mut ending: watch::Receiver<Life>,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = ending.wait_for(|&life| life == Life::Ending) => break,
                Some(_) = connections.join_next() => continue,
            };
            let Ok((tcp, peer)) = accepted else {
                // Out of descriptors, most likely: those that are open have to end first.
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let waits = || _ = service.traffic().waited.fetch_add(1, Ordering::Relaxed);
            let slot = tokio::select! {
                slot = slots.take(waits) => slot,
                _ = ending.wait_for(|&life| life == Life::Ending) => break,
            };
            congestion.choose(&tcp);
            let acceptor = acceptor.borrow().clone();
            let service = Arc::clone(&service);
            connections.spawn(async move {
                let traffic = service.traffic();
                traffic.connections.fetch_add(1, Ordering::Relaxed);
                traffic.now.fetch_add(1, Ordering::Relaxed);
                if let Some(stream) = open(tcp, acceptor, &service, peer, &slot).await {
                    Arc::clone(&service).serve_connection(stream, peer, &slot).await;
                }
                service.traffic().now.fetch_sub(1, Ordering::Relaxed);
                drop(slot);
            });
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    })
}

async fn open(
    tcp: TcpStream,
    acceptor: Option<Acceptors>,
    service: &Arc<dyn Service>,
    peer: SocketAddr,
    slot: &Slot,
) -> Option<Stream> {
    let _ = tcp.set_nodelay(true);
    match acceptor {
        None => Some(Box::new(tcp)),
        Some(acceptor) => {
            let silence = slot.silence();
            let mut first = [0];
            unless_wanted(slot, tcp.peek(&mut first)).await?;
            // A method begins so, and no record of TLS does.
            if first[0].is_ascii_uppercase() {
                drop(silence);
                Arc::clone(service).serve_plain_http(Box::new(tcp), peer, slot).await;
                return None;
            }
            let tls = unless_wanted(slot, acceptor.accept(tcp, slot.is_waiting())).await?;
            Some(Box::new(Records::new(tls)))
        }
    }
}

/// What comes of a part of the handshake, if it comes in time and nobody else needs the place.
async fn unless_wanted<T>(slot: &Slot, part: impl Future<Output = io::Result<T>>) -> Option<T> {
    tokio::select! {
        part = timeout(HANDSHAKE_WITHIN, part) => part.ok()?.ok(),
        () = slot.wanted() => None,
    }
}

/// What nobody uses is given up this often.
const TIDY_EVERY: Duration = Duration::from_secs(30);
/// A client has so long for its part of the TLS handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(15);
/// Descriptors for listening, folders, logs, and connections that are being refused.
const DESCRIPTORS_APART: usize = 64;
/// Connections that may wait for a seat with a request that is read, …
const WAITING_MAX: usize = 256;
/// … and no more than this part of the descriptors.
const WAITING_PART: usize = 8;
/// Nobody need be told of what ends as soon as this.
const AT_ONCE: Duration = Duration::from_millis(300);
/// After a failure to accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
