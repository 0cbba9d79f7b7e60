//! A relay in this process on a port of its own, and the plain clients and servers that tests put around
//! it. Nothing here measures time: what is awaited is awaited up to [`HANG`].

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use swath_netlab::faulty::{Behaviour, Content, Rule, Server};
use swath_relay::{CacheOptions, Clients, RelayOptions, RelayServerOptions, bind};
use swath_serve::{Access, Congestion, Listening, Log, LogLine, Stop, Tls, Token};
use swath_source::NetOptions;
use swath_store::depot::{Depot, DepotOptions};
use tokio::sync::oneshot;

/// Longer than anything takes on a busy machine.
pub const HANG: Duration = Duration::from_secs(90);
/// The patience of relays whose time-outs are not looked at.
pub const LONG: Duration = Duration::from_secs(600);
/// What most servers serve.
pub const FILE: &str = "/data.bin";

/// Options of a relay for this machine, to what is on it.
pub fn options() -> RelayOptions {
    RelayOptions {
        name: "between".to_owned(),
        hosts: None,
        upstreams: vec!["127.0.0.1".parse().unwrap()],
        clients: networks("127.0.0.0/8"),
        net: NetOptions { timeout: LONG, ..NetOptions::default() },
        send_limit: None,
        timeout: LONG,
        cache: None,
        depot: None,
    }
}

/// Whoever comes from this network.
pub fn networks(network: &str) -> Clients {
    Clients::new(vec![network.parse().unwrap()], None)
}

/// Whoever shows one of these.
pub fn tokens(secrets: &[&str]) -> Clients {
    Clients::new(Vec::new(), Some(access(secrets)))
}

pub fn access(secrets: &[&str]) -> Access {
    Access::new(secrets.iter().map(|secret| token(secret)).collect(), Vec::new())
}

pub fn token(secret: &str) -> Token {
    Token { secret: secret.to_owned(), ..Token::default() }
}

/// Options with a cache in this folder.
pub fn caching(folder: &Path) -> RelayOptions {
    caching_up_to(folder, 1 << 30)
}

/// Options with a cache of this size.
pub fn caching_up_to(folder: &Path, size_bytes: u64) -> RelayOptions {
    let cache = CacheOptions { folder: folder.to_owned(), size_bytes };
    RelayOptions { cache: Some(cache), ..options() }
}

/// Options with a depot of so many bytes in memory.
pub fn lending(memory_bytes: u64) -> RelayOptions {
    lending_as(DepotOptions { memory_bytes, ..DepotOptions::default() })
}

/// Options with a depot like this.
pub fn lending_as(depot: DepotOptions) -> RelayOptions {
    RelayOptions { depot: Some(Depot::open(depot).unwrap().0), ..options() }
}

/// One request that a relay noted.
#[derive(Clone, Debug)]
pub struct Noted {
    pub method: String,
    pub target: String,
    pub status: u16,
    pub bytes: u64,
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Noted>>>);

impl Log for Notes {
    fn note(&self, line: &LogLine<'_>) {
        self.0.lock().unwrap().push(Noted {
            method: line.method.to_owned(),
            target: line.target.to_owned(),
            status: line.status,
            bytes: line.bytes,
        });
    }
}

/// A relay that runs. Ended when dropped, with all that it has open.
pub struct Relay {
    pub address: SocketAddr,
    notes: Notes,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub fn start(relay: RelayOptions) -> Relay {
        Relay::with(relay, Tls::Plain, 4000)
    }

    /// One that encrypts in this way, or has room for so many connections.
    pub fn with(relay: RelayOptions, tls: Tls, max_connections: usize) -> Relay {
        let at = vec![(Ipv4Addr::LOCALHOST, 0).into()];
        let listening = Listening { at, tls, max_connections, congestion: Congestion::Auto };
        let options = RelayServerOptions { relay, listening };
        let (tells, told) = mpsc::channel();
        let (end, ended) = oneshot::channel::<()>();
        let notes = Notes::default();
        let log = Box::new(notes.clone());
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let server = bind(options, Some(log)).await.unwrap().server;
                tells.send(server.addresses()[0]).unwrap();
                let stop = async {
                    let _ = ended.await;
                    Stop::Abandoned
                };
                server.run(stop, Duration::ZERO, |_| {}).await;
            });
        });
        let address = told.recv().expect("the relay starts");
        Relay { address, notes, end: Some(end), thread: Some(thread) }
    }

    /// Its address, without a slash at the end.
    pub fn named(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address at which it passes on what is at `url`.
    pub fn through(&self, url: &str) -> String {
        format!("{}/relay/{url}", self.named())
    }

    /// All requests that it has noted so far.
    pub fn noted(&self) -> Vec<Noted> {
        self.notes.0.lock().unwrap().clone()
    }

    /// One request on a connection of its own, as HTTP/1.0: bodies come without chunks.
    pub fn ask(&self, method: &str, target: &str, fields: &str, body: &[u8]) -> Told {
        let length = match method {
            "PUT" => format!("Content-Length: {}\r\n", body.len()),
            _ => String::new(),
        };
        let head = format!("{method} {target} HTTP/1.0\r\nHost: r\r\n{length}{fields}\r\n");
        told(connect(self.address), &[head.as_bytes(), body].concat())
    }

    /// `GET` of what is at `url`, passed on.
    pub fn get(&self, url: &str, fields: &str) -> Told {
        self.ask("GET", &format!("/relay/{url}"), fields, b"")
    }

    /// The same of the head.
    pub fn head(&self, url: &str, fields: &str) -> Told {
        self.ask("HEAD", &format!("/relay/{url}"), fields, b"")
    }

    /// `GET` as clients of proxies ask.
    pub fn proxied(&self, url: &str, fields: &str) -> Told {
        self.ask("GET", url, fields, b"")
    }

    /// All that comes back for these requests, the last of which ends the connection.
    pub fn raw(&self, requests: &str) -> Vec<u8> {
        let mut tcp = connect(self.address);
        // It may answer and close before it has read all.
        let _ = tcp.write_all(requests.as_bytes());
        to_end(&mut tcp)
    }

    /// The answer to a request for a tunnel, and the connection.
    pub fn connect_to(&self, end: &str, fields: &str) -> (String, TcpStream) {
        let mut tcp = connect(self.address);
        write!(tcp, "CONNECT {end} HTTP/1.1\r\nHost: {end}\r\n{fields}\r\n").unwrap();
        let head = head_of(&mut tcp).expect("an answer");
        (head, tcp)
    }

    /// A tunnel that has been opened.
    pub fn tunnel(&self, end: SocketAddr) -> TcpStream {
        let (head, tcp) = self.connect_to(&end.to_string(), "");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        tcp
    }

    /// One figure of `/metrics`.
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.ask("GET", "/metrics", "", b"").is(200).text();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.unwrap_or_else(|| panic!("{name}: {page}"));
        value.parse::<f64>().unwrap() as u64
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        if let Some(thread) = self.thread.take() {
            // A relay that fails has told so.
            let _ = thread.join();
        }
    }
}

/// The three capabilities of an allocation, as paths.
#[derive(Clone, Debug)]
pub struct Lease {
    pub read: String,
    pub write: String,
    pub manage: String,
}

/// What a relay with a depot does.
impl Relay {
    #[track_caller]
    pub fn allocate(&self, size: u64, lease_s: u64, more: &str) -> Lease {
        let target = format!("/depot?size={size}&lease={lease_s}{more}");
        let told = self.ask("POST", &target, "", b"").is(201).json();
        let path = |name: &str| told[name].as_str().unwrap().to_owned();
        Lease { read: path("read"), write: path("write"), manage: path("manage") }
    }

    /// Stores bytes of an allocation at an offset.
    pub fn put(&self, lease: &Lease, at: u64, size: u64, bytes: &[u8]) -> Told {
        let last = at + bytes.len() as u64 - 1;
        let range = format!("Content-Range: bytes {at}-{last}/{size}\r\n");
        self.ask("PUT", &lease.write, &range, bytes)
    }

    #[track_caller]
    pub fn status(&self, lease: &Lease) -> Value {
        self.ask("GET", &format!("{}?status", lease.read), "", b"").is(200).json()
    }

    /// Has the depot fetch bytes, up to and without `end`.
    pub fn fetch(&self, lease: &Lease, from: &str, start: u64, end: u64, fields: &str) -> Told {
        let from = from.replace('%', "%25").replace('&', "%26").replace('+', "%2b");
        let target = format!("{}?from={from}&range={start}-{}", lease.write, end - 1);
        self.ask("POST", &target, fields, b"")
    }
}

/// An answer.
#[derive(Debug)]
pub struct Told {
    pub status: u16,
    /// All of it, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Told {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The last of several lines.
    #[track_caller]
    pub fn last(&self) -> Value {
        let text = self.text();
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Told {
        assert_eq!(self.status, status, "{}{}", self.head, self.text());
        self
    }

    /// The value of a field, or of the first of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    #[track_caller]
    pub fn says(self, words: &str) -> Told {
        let text = self.text();
        assert!(self.head.contains(words) || text.contains(words), "{words}: {}{text}", self.head);
        self
    }
}

/// Sends `request` and takes what comes back as one answer, up to the end of the connection.
#[track_caller]
pub fn told(mut stream: impl Read + Write, request: &[u8]) -> Told {
    // The relay may have refused before all of the body is sent.
    let _ = stream.write_all(request).and_then(|()| stream.flush());
    let answer = to_end(&mut stream);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let asked = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
    let end = end.unwrap_or_else(|| panic!("no answer to {asked}")) + 4;
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let status = head[9..12].parse().unwrap();
    Told { status, head, body: answer[end..].to_vec() }
}

pub fn to_end(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    // The end may be a reset, or of an encrypted connection an error.
    let _ = stream.read_to_end(&mut all);
    all
}

pub fn connect(to: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(to).unwrap();
    tcp.set_read_timeout(Some(HANG)).unwrap();
    tcp
}

/// The head of the next message on a connection; nothing behind it is taken.
pub fn head_of(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// An honest server of `content` at [`FILE`].
pub fn honest(content: &Content) -> Server {
    Server::builder().file(FILE, content.clone()).start().unwrap()
}

/// A server of `content` at [`FILE`] with one rule.
pub fn server(content: &Content, rule: impl Into<Rule>) -> Server {
    Server::builder().file(FILE, content.clone()).behaviour(rule).start().unwrap()
}

/// A server of the same that redirects to `to`.
pub fn redirecting(content: &Content, to: &str) -> Server {
    server(content, Behaviour::redirect(to))
}

/// The URL of [`FILE`].
pub fn url(server: &Server) -> String {
    server.url(FILE)
}

pub fn whole(content: &Content) -> Vec<u8> {
    content.read(0, content.size_bytes())
}

/// A server of a few lines: what it says to each head, on connections that it keeps; `None`: nothing.
pub fn saying(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    let answer = Arc::new(answer);
    each_connection(move |mut tcp| {
        while let Some(head) = head_of(&mut tcp) {
            if let Some(text) = answer(&head) {
                let _ = tcp.write_all(text.as_bytes());
            }
        }
    })
}

/// A listener that does this with each connection, on a thread of its own.
pub fn each_connection(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(tcp));
        }
    });
    address
}

/// Ends of connections that keep silent and open until the test ends.
pub fn silent() -> SocketAddr {
    each_connection(|mut tcp| drop(to_end(&mut tcp)))
}

/// Stands before a server and hears what is sent to it.
pub struct Ear {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Ear {
    pub fn before(server: SocketAddr) -> Ear {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let address = each_connection(move |mut near| {
            let Ok(mut far) = TcpStream::connect(server) else { return };
            let (mut back, mut answers) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut answers, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
            let mut part = vec![0; 65536];
            while let Ok(bytes @ 1..) = near.read(&mut part) {
                hears.lock().unwrap().extend_from_slice(&part[..bytes]);
                if far.write_all(&part[..bytes]).is_err() {
                    break;
                }
            }
            let _ = far.shutdown(Shutdown::Write);
        });
        Ear { address, heard }
    }

    pub fn heard(&self, words: &str) -> bool {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).contains(words)
    }
}

/// Something that is shut until it is opened: for servers that answer when the test says so.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<u64>, Condvar)>);

impl Gate {
    /// Lets so many more pass.
    pub fn open(&self, count: u64) {
        *self.0.0.lock().unwrap() += count;
        self.0.1.notify_all();
    }

    /// Passes, when that is allowed.
    pub fn pass(&self) {
        let shut = |left: &mut u64| *left == 0;
        let mut left = self.0.1.wait_while(self.0.0.lock().unwrap(), shut).unwrap();
        *left -= 1;
    }
}

/// Waits until something is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
