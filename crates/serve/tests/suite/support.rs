//! A server of temporary folders within this process, and the clients that ask it.
//!
//! [`Tree`] holds the files, [`Plan`] says how they are served, [`Served`] answers on a free port of the
//! loopback interface until it is dropped. Requests are written as they are, so that a test can send what
//! no client would.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use swath_model::Limiter;
use swath_serve::{
    Access, Congestion, Folder, Listening, Log, LogLine, Order, Receive, Renewal, Server,
    ServerOptions, SiteOptions, Stop, Tls, Token,
};
use tokio::sync::oneshot;

pub use crate::answer::{Answer, all_of, head_of};
pub use crate::tree::{Tree, bytes};

impl Tree {
    /// Plans to serve these folders to everybody, without encryption.
    pub fn plan(&self, folders: &[&str]) -> Plan {
        let folders = folders.iter().map(|name| match name.split_once('=') {
            Some((name, path)) => Folder { path: self.path(path), name: Some(name.into()) },
            None => Folder::from(self.path(name)),
        });
        Plan {
            options: options(folders.collect(), Tls::Plain),
            log: None,
            tokens: Vec::new(),
            allow: Vec::new(),
        }
    }

    /// Serves these folders to everybody.
    pub fn serve(&self, folders: &[&str]) -> Served {
        self.plan(folders).start()
    }
}

fn options(folders: Vec<Folder>, tls: Tls) -> ServerOptions {
    ServerOptions {
        site: SiteOptions {
            folders,
            access: Access::default(),
            follow_links: false,
            only: None,
            name: "here".to_owned(),
            hosts: None,
            reads: swath_serve::Reads::default(),
            idle_index_bytes: 1 << 20,
            mount: None,
            receive: None,
            third_party: None,
            send_limit: None,
            receive_limit: None,
        },
        listening: Listening {
            at: vec!["127.0.0.1:0".parse().unwrap()],
            tls,
            max_connections: 256,
            congestion: Congestion::Kernel,
        },
    }
}

/// How something is served.
pub struct Plan {
    pub options: ServerOptions,
    log: Option<Box<dyn Log>>,
    tokens: Vec<Token>,
    allow: Vec<String>,
}

impl Plan {
    /// Asks for one of these tokens: `secret`, or `secret write`.
    pub fn tokens(mut self, lines: &[&str]) -> Plan {
        self.tokens.extend(lines.iter().map(|line| {
            let (secret, right) = line.split_once(' ').unwrap_or((line, "read"));
            Token { secret: secret.to_owned(), may_write: right == "write", expires: None }
        }));
        self
    }

    /// Takes files from whoever shows [`TOKEN`].
    pub fn writes(self) -> Plan {
        let line = format!("{TOKEN} write");
        self.tokens(&[&line]).receives(Arc::new(TakesNoTrees))
    }

    /// Takes trees so, and files.
    pub fn receives(mut self, receive: Arc<dyn Receive>) -> Plan {
        self.options.site.receive = Some(receive);
        self
    }

    /// Asks for no tokens of its own.
    pub fn without_tokens(mut self) -> Plan {
        self.tokens.clear();
        self
    }

    /// Answers these networks alone.
    pub fn allow(mut self, networks: &[&str]) -> Plan {
        self.allow.extend(networks.iter().map(|&network| network.to_owned()));
        self
    }

    pub fn at(mut self, address: &str) -> Plan {
        self.options.listening.at = vec![address.parse().unwrap()];
        self
    }

    /// Encrypts, with a certificate that is made now.
    pub fn encrypted(mut self) -> Plan {
        self.options.listening.tls = Tls::SelfSigned(vec!["127.0.0.1".to_owned()]);
        self
    }

    pub fn follows_links(mut self) -> Plan {
        self.options.site.follow_links = true;
        self
    }

    pub fn max_connections(mut self, count: usize) -> Plan {
        self.options.listening.max_connections = count;
        self
    }

    /// Sends, and takes, no more than this in a second.
    pub fn limit(mut self, bytes_per_s: u64) -> Plan {
        self.options.site.send_limit = Some(Arc::new(Limiter::new(Some(bytes_per_s))));
        self.options.site.receive_limit = Some(Arc::new(Limiter::new(Some(bytes_per_s))));
        self
    }

    /// Changes any other option.
    pub fn with(mut self, change: impl FnOnce(&mut SiteOptions)) -> Plan {
        change(&mut self.options.site);
        self
    }

    /// Notes what was answered.
    pub fn noting(mut self, notes: &Notes) -> Plan {
        self.log = Some(Box::new(notes.clone()));
        self
    }

    /// What is served, for a test that brings the connections itself.
    pub fn into_site(mut self) -> SiteOptions {
        self.take_access();
        self.options.site
    }

    /// Listens within a runtime of the caller's own.
    pub async fn bind(mut self) -> Server {
        self.take_access();
        Server::bind(self.options, self.log).await.expect("it listens")
    }

    fn take_access(&mut self) {
        if !self.tokens.is_empty() || !self.allow.is_empty() {
            let networks = self.allow.iter().map(|network| network.parse().unwrap());
            let tokens = std::mem::take(&mut self.tokens);
            self.options.site.access = Access::new(tokens, networks.collect());
        }
    }

    /// Serves on a thread of its own.
    #[track_caller]
    pub fn start(mut self) -> Served {
        self.take_access();
        let access = self.options.site.access.clone();
        let (begun, begins) = std::sync::mpsc::channel();
        let ((stop, stops), (kill, killed)) = (oneshot::channel(), oneshot::channel::<()>());
        let waits = Arc::new(Mutex::new(None));
        let told = Arc::clone(&waits);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            runtime.block_on(async move {
                let server = Server::bind(self.options, self.log).await.expect("it listens");
                let fingerprint = server.identity().map(|it| it.fingerprint().to_string());
                begun.send((server.addresses()[0], server.renewal(), fingerprint)).unwrap();
                let stop = async { stops.await.unwrap_or(Stop::Abandoned) };
                let noted = move |connections| *told.lock().unwrap() = Some(connections);
                tokio::select! {
                    () = server.run(stop, HANG_LIMIT, noted) => {}
                    _ = killed => {}
                }
            });
            runtime.shutdown_background();
        });
        let (address, renewal, fingerprint) = begins.recv().expect("it begins");
        Served {
            address,
            access,
            renewal,
            fingerprint,
            waits,
            stop: Some(stop),
            kill: Some(kill),
            thread: Some(thread),
        }
    }
}

/// A server that answers until it is dropped.
pub struct Served {
    pub address: SocketAddr,
    /// Who may ask; changes hold at once.
    pub access: Access,
    pub renewal: Renewal,
    /// Of its certificate.
    pub fingerprint: Option<String>,
    waits: Arc<Mutex<Option<u64>>>,
    stop: Option<oneshot::Sender<Stop>>,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Connects; reads end with an error at the hang limit.
    pub fn connect(&self) -> TcpStream {
        self.connect_by(self.address.ip())
    }

    /// Connects by way of another address of this machine.
    pub fn connect_by(&self, ip: IpAddr) -> TcpStream {
        let tcp = TcpStream::connect(SocketAddr::new(ip, self.address.port())).unwrap();
        tcp.set_read_timeout(Some(HANG_LIMIT)).unwrap();
        tcp
    }

    /// Sends a request on a connection of its own, which stays open as long as it is held.
    pub fn hold(&self, request: &str) -> TcpStream {
        let mut tcp = self.connect();
        tcp.write_all(request.as_bytes()).unwrap();
        tcp
    }

    /// One request on a connection of its own, without its last line; returns what is answered.
    #[track_caller]
    pub fn ask(&self, request: &str) -> Answer {
        self.ask_with(request, b"")
    }

    /// The same with a body.
    #[track_caller]
    pub fn ask_with(&self, request: &str, body: &[u8]) -> Answer {
        let head = format!("{request}\r\nHost: h\r\nConnection: close\r\n\r\n");
        Answer(self.raw(&[head.as_bytes(), body].concat()))
    }

    /// What is there at a path.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1"))
    }

    /// Sends bytes as they are, and reads until the server closes.
    #[track_caller]
    pub fn raw(&self, request: &[u8]) -> Vec<u8> {
        let mut tcp = self.connect();
        // The server may close before it has read all, and has answered then.
        let _ = tcp.write_all(request);
        all_of(&mut tcp)
    }

    /// Tells it to end in good order.
    pub fn stop(&mut self) {
        let _ = self.stop.take().expect("it has not been told before").send(Stop::Orderly);
    }

    /// Waits until it has ended.
    pub fn ended(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    /// How many connections it said that it waits for at its end.
    pub fn waits_for(&self) -> Option<u64> {
        *self.waits.lock().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server failed");
        }
    }
}

/// Notes of what was answered: one line each.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until there are so many: an answer is noted after it was sent.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<String> {
        eventually("the notes", || self.all().len() >= count);
        self.all()
    }
}

impl Log for Notes {
    fn note(&self, line: &LogLine<'_>) {
        let LogLine { method, target, version, status, bytes, referer, agent, .. } = line;
        let line = format!("{method} {target} {version} {status} {bytes} {referer:?} {agent:?}");
        self.0.lock().unwrap().push(line);
    }
}

/// Lets single files be taken, and ends each tree that somebody sends at once.
struct TakesNoTrees;

impl Receive for TakesNoTrees {
    fn begin(&self, _order: Order) {}
}

/// Waits until something is so.
#[track_caller]
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANG_LIMIT, "{what}: not within {HANG_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The token of those who may write.
pub const TOKEN: &str = "a-token-for-writing";
/// What has not happened by then never will.
pub const HANG_LIMIT: Duration = Duration::from_secs(90);

/// The field that shows [`TOKEN`].
pub fn auth() -> String {
    format!("Authorization: Bearer {TOKEN}")
}
