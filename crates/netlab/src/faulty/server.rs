//! A running server: its thread, its listener, and the handle that changes it while it runs.
//!
//! States of the listener: listening → dead (`die`, or a `Die` rule comes due) → listening
//! (`revive`, or the pause is over); stopping from either. A dead server keeps its port bound, so
//! that connections are refused and nobody else gets it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::behaviour::{Behaviour, Rule};
use super::connection;
use super::content::Content;
use super::log::Log;
use super::state::{Route, Shared};
use super::tls::{self, Certificate};

/// Collects what a server is to serve and how.
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    files: Vec<(String, String, Content)>,
    rules: Vec<(Option<String>, Rule)>,
    certificate: Option<Certificate>,
    ipv6: bool,
    port: u16,
}

impl Builder {
    /// Serves `content` at `path`. The media type follows from the name.
    pub fn file(self, path: &str, content: Content) -> Self {
        let media_type = media_type_of(path);
        self.file_as(path, media_type, content)
    }

    /// Serves `content` at `path` with this media type. With a query behind it the path is that of
    /// requests with this query alone, and without it those with any other.
    pub fn file_as(mut self, path: &str, media_type: &str, content: Content) -> Self {
        self.files.push((path.to_owned(), media_type.to_owned(), content));
        self
    }

    /// Adds a rule for the whole server, unknown paths included.
    pub fn behaviour(mut self, rule: impl Into<Rule>) -> Self {
        self.rules.push((None, rule.into()));
        self
    }

    /// Adds a rule for one path.
    pub fn behaviour_on(mut self, path: &str, rule: impl Into<Rule>) -> Self {
        self.rules.push((Some(path.to_owned()), rule.into()));
        self
    }

    /// Speaks TLS with this certificate.
    pub fn tls(mut self, certificate: Certificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Listens on `[::1]` in place of `127.0.0.1`.
    pub fn ipv6(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    /// Listens on this port in place of any free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Starts the server; it accepts connections when this returns.
    ///
    /// # Errors
    /// When the port is taken, or no thread or certificate can be made.
    pub fn start(self) -> io::Result<Server> {
        let routes = self
            .files
            .into_iter()
            .map(|(path, media_type, content)| Route::new(path, media_type, content));
        let shared = Shared::new(routes.collect());
        for (path, rule) in self.rules {
            shared.add_rule(path.as_deref(), rule, false);
        }
        let tls = self.certificate.map(tls::acceptor).transpose()?;
        let is_tls = tls.is_some();
        let ip = if self.ipv6 {
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        } else {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        };
        let wanted = SocketAddr::new(ip, self.port);

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (reserved, listener) = {
            let _inside = runtime.enter();
            let reserved = bind(wanted)?;
            let listener = bind(reserved.local_addr()?)?.listen(BACKLOG)?;
            (reserved, listener)
        };
        let address = listener.local_addr()?;
        shared.set_listens(true);
        let (stop, stopped) = oneshot::channel();
        let main = Main { shared: shared.clone(), reserved, address, tls };
        let thread = std::thread::Builder::new().name(format!("netlab-{}", address.port())).spawn(
            move || {
                runtime.block_on(main.run(listener, stopped));
            },
        )?;
        Ok(Server {
            handle: Handle { shared, address, is_tls },
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// A running server. Stops, and closes all that it had open, when dropped.
///
/// Everything a [`Handle`] does can be done on the server itself.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins a server.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a handle that may go to other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops now.
    pub fn stop(self) {}
}

impl Deref for Server {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The receiver is gone only if the thread has ended already.
        self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Watches and changes a running server. Cheap to clone. Changes take hold in the middle of
/// bodies too.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    address: SocketAddr,
    is_tls: bool,
}

impl Handle {
    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port that the server listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the URL of a path, with the address as the host.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// Returns the URL of a path with another name for this host, such as `localhost`.
    pub fn url_as(&self, host: &str, path: &str) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{host}:{}{path}", self.port())
    }

    /// Sets a rule for the whole server in place of those of its kind.
    pub fn set(&self, rule: impl Into<Rule>) {
        self.shared.add_rule(None, rule.into(), true);
    }

    /// Sets a rule for one path in place of those of its kind.
    pub fn set_on(&self, path: &str, rule: impl Into<Rule>) {
        self.shared.add_rule(Some(path), rule.into(), true);
    }

    /// Adds a rule for the whole server.
    pub fn add(&self, rule: impl Into<Rule>) {
        self.shared.add_rule(None, rule.into(), false);
    }

    /// Takes away the server's rules of the kind of this one, whatever its values.
    pub fn unset(&self, kind: &Behaviour) {
        let kind = std::mem::discriminant(kind);
        self.shared.remove_rules(None, |known| std::mem::discriminant(known) == kind);
    }

    /// Takes away all rules of the whole server: it is honest again, apart from its paths' rules.
    pub fn clear(&self) {
        self.shared.remove_rules(None, |_| true);
    }

    /// Takes away all rules of one path.
    pub fn clear_on(&self, path: &str) {
        self.shared.remove_rules(Some(path), |_| true);
    }

    /// Serves one more file, or starts a path anew.
    pub fn put(&self, path: &str, content: Content) {
        let media_type = media_type_of(path).to_owned();
        self.shared.put_route(Route::new(path.to_owned(), media_type, content));
    }

    /// The file becomes another one with new validators, as by renaming: bodies on their way
    /// keep the old bytes. Does nothing for an unknown path.
    pub fn replace(&self, path: &str, content: Content) {
        if let Some(route) = self.shared.route(path) {
            route.replace(content, false);
        }
    }

    /// The file is overwritten: bodies on their way continue with the new bytes.
    pub fn overwrite(&self, path: &str, content: Content) {
        if let Some(route) = self.shared.route(path) {
            route.replace(content, true);
        }
    }

    /// Closes the listener and all connections; further ones are refused. Returns when done.
    pub fn die(&self) {
        self.shared.die(None);
        self.shared.wait_listens(false);
    }

    /// Listens again on the same port. Returns when done.
    pub fn revive(&self) {
        self.shared.revive();
        self.shared.wait_listens(true);
    }

    /// Returns whether the server accepts connections.
    pub fn is_alive(&self) -> bool {
        self.shared.listens()
    }

    /// Returns all requests so far.
    pub fn log(&self) -> Log {
        Log { records: self.shared.log() }
    }

    /// Forgets the requests so far.
    pub fn clear_log(&self) {
        self.shared.clear_log();
    }

    /// Body bytes sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Relaxed)
    }

    /// Connections open now.
    pub fn open_connections(&self) -> u64 {
        self.shared.open_connections.load(Relaxed)
    }

    /// Waits until something about this server holds, and answers whether it came to that.
    pub fn wait_until(&self, at_most: Duration, mut holds: impl FnMut(&Handle) -> bool) -> bool {
        let deadline = Instant::now() + at_most;
        loop {
            if holds(self) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(POLL);
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What the server's thread runs.
struct Main {
    shared: Arc<Shared>,
    /// Bound but never listening: keeps the port while the server is dead.
    reserved: TcpSocket,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl Main {
    async fn run(self, listener: TcpListener, mut stopped: oneshot::Receiver<()>) {
        let mut listener = Some(listener);
        let mut tasks = JoinSet::new();
        let mut changed = self.shared.changed.subscribe();
        loop {
            let (wants_life, next) = self.shared.tick(Instant::now());
            if wants_life && listener.is_none() {
                listener = bind(self.address).and_then(|socket| socket.listen(BACKLOG)).ok();
                self.shared.set_listens(listener.is_some());
            } else if !wants_life && let Some(listener) = listener.take() {
                close(listener);
                tasks.shutdown().await;
                self.shared.set_listens(false);
            }
            tokio::select! {
                _ = &mut stopped => break,
                accepted = accept(listener.as_ref()) => {
                    match accepted {
                        Ok(stream) => {
                        let number = self.shared.connections.fetch_add(1, Relaxed);
                        let (shared, tls) = (self.shared.clone(), self.tls.clone());
                        tasks.spawn(connection::serve(shared, stream, tls, number));
                        }
                        // Out of descriptors, most likely: others must close first.
                        Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                    }
                }
                _ = changed.changed() => {}
                () = until(next) => {}
                _ = tasks.join_next(), if !tasks.is_empty() => {}
            }
        }
        if let Some(listener) = listener {
            close(listener);
        }
        tasks.shutdown().await;
        drop(self.reserved);
    }
}

/// The next connection; never, without a listener.
async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}

/// Ends listening at once, even while a process that this one is just starting still has a copy
/// of the descriptor.
fn close(listener: TcpListener) {
    // SAFETY: the descriptor is the listener's, which lives until the end of this function;
    // `shutdown` touches no memory.
    unsafe {
        libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR);
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => connection::sleep_to(at).await,
        None => std::future::pending().await,
    }
}

/// Several sockets may be bound to one port as long as none of them listens, which is what
/// `SO_REUSEADDR` allows and what keeps the port of a dead server.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn media_type_of(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("meta4") => "application/metalink4+xml",
        Some("metalink") => "application/metalink+xml",
        Some("html") => "text/html; charset=utf-8",
        Some("txt") => "text/plain; charset=utf-8",
        Some("torrent") => "application/x-bittorrent",
        _ => "application/octet-stream",
    }
}

/// Short beside any step of a test.
const POLL: Duration = Duration::from_millis(2);
const BACKLOG: u32 = 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
