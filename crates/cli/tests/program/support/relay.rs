//! Relays while a test uses them, and ears on the way between two of them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::depot::until;
use super::serve::{FINGERPRINT, Served, lasting};
use super::{Home, Ran};

impl Home {
    /// A relay for this machine, to what is on it, without encryption.
    pub fn relay(&self, args: &[&str]) -> Served {
        self.relay_at("127.0.0.1:0", args)
    }

    /// A relay for this machine, to this network alone.
    pub fn relay_to(&self, network: &str) -> Served {
        let usual = ["relay", "--plain", "--clients", "127.0.0.0/8", "--listen", "127.0.0.1:0"];
        Served::of(self.swath(usual.iter().chain(&["--upstream", network])), &["--token-file"])
    }

    /// The same, with a certificate that it has made for itself.
    pub fn tls_relay(&self, args: &[&str]) -> Served {
        let usual = ["relay", "--upstream", "127.0.0.1", "--listen", "127.0.0.1:0"];
        Served::of(self.swath(usual.iter().chain(args)), &[FINGERPRINT])
    }

    /// The same at this address.
    pub fn relay_at(&self, address: &str, args: &[&str]) -> Served {
        let usual = ["relay", "--plain", "--upstream", "127.0.0.1", "--listen", lasting(address)];
        let clients: &[&str] =
            if args.contains(&"--clients") { &[] } else { &["--clients", "127.0.0.0/8"] };
        let swath = self.swath(usual.iter().chain(clients).chain(args));
        Served::of(swath, &["--token-file"])
    }
}

impl Served {
    /// Where this relay passes on what is at `url`.
    pub fn through(&self, url: &str) -> String {
        format!("{}relay/{url}", self.url)
    }

    /// Its address as `--relay` takes it.
    pub fn named(&self) -> String {
        self.url.trim_end_matches('/').to_owned()
    }
}

/// Waits until somebody has asked in vain at `address`, where nobody serves meanwhile. The port is
/// reserved, and a relay may stand there again.
pub fn asked_in_vain(address: &str) {
    let listener = TcpListener::bind(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    until("it is asked for in vain", || listener.accept().is_ok());
}

/// Stands between somebody and a server, and may change what comes back.
pub struct Ear {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
    /// What came back, as it came.
    brought: Arc<Mutex<Vec<u8>>>,
}

/// What it does with each part of what comes back.
pub type Change = fn(&mut [u8]);

impl Ear {
    /// In front of the server at this address.
    pub fn before(server: SocketAddr, change: Change) -> Ear {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let brought = Arc::new(Mutex::new(Vec::new()));
        let (hears, sees) = (Arc::clone(&heard), Arc::clone(&brought));
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let Ok(far) = TcpStream::connect(server) else { continue };
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (hears, sees) = (Arc::clone(&hears), Arc::clone(&sees));
                std::thread::spawn(move || {
                    pass(near, far, |bytes| hears.lock().unwrap().extend_from_slice(bytes));
                });
                std::thread::spawn(move || {
                    pass(far_too, near_too, |bytes| {
                        sees.lock().unwrap().extend_from_slice(bytes);
                        change(bytes);
                    });
                });
            }
        });
        Ear { address, heard, brought }
    }

    /// In front of a relay at this address: where it is asked for something of `from`, it is asked for
    /// that of `to`, a name of the same length.
    pub fn leading_astray(relay: SocketAddr, from: &str, to: &str) -> Ear {
        assert_eq!(from.len(), to.len(), "or lengths would have to be mended");
        let (from, to) = (from.to_owned(), to.to_owned());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let Ok(far) = TcpStream::connect(relay) else { continue };
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (from, to) = (from.clone(), to.clone());
                std::thread::spawn(move || {
                    pass(near, far, |bytes| {
                        for at in 0..(bytes.len() + 1).saturating_sub(from.len()) {
                            let part = &mut bytes[at..at + from.len()];
                            if part == from.as_bytes() {
                                part.copy_from_slice(to.as_bytes());
                            }
                        }
                    });
                });
                std::thread::spawn(move || pass(far_too, near_too, |_| {}));
            }
        });
        Ear { address, heard: Arc::default(), brought: Arc::default() }
    }

    /// As a server's address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests for this that somebody asked for others, each as its head.
    pub fn passed_on(&self, what: &str) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let text = String::from_utf8_lossy(&heard).to_lowercase();
        let heads = text.split("\r\n\r\n").filter(|head| head.contains("\r\nvia: "));
        heads.filter(|head| head.contains(what)).map(str::to_owned).collect()
    }

    /// Whether this was sent through it, as text.
    pub fn heard(&self, words: &str) -> bool {
        let heard = self.heard.lock().unwrap();
        heard.windows(words.len()).any(|part| part == words.as_bytes())
    }

    /// Whether this came back through it.
    pub fn brought(&self, bytes: &[u8]) -> bool {
        let brought = self.brought.lock().unwrap();
        brought.windows(bytes.len()).any(|part| part == bytes)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut with: impl FnMut(&mut [u8])) {
    let mut part = vec![0; 65536];
    while let Ok(bytes @ 1..) = from.read(&mut part) {
        with(&mut part[..bytes]);
        if to.write_all(&part[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

/// What opens the first one of [`Two`].
pub const FIRST: &str = "opens-the-first-relay";
/// And the second one.
pub const SECOND: &str = "opens-the-second-relay";

/// Two relays, each open to whoever shows a token of its own, with an ear before each, and a
/// configuration file that has both tokens.
pub struct Two {
    pub home: Home,
    pub near: Ear,
    pub far: Ear,
    _relays: [Served; 2],
    route: String,
    /// What else is said in each call.
    pub more: Vec<String>,
}

impl Two {
    pub fn new(is_far_tls: bool) -> Two {
        let home = Home::new();
        let tokens = [FIRST, SECOND].map(|token| {
            home.write(&format!("{token}.clients"), format!("{token}\n"));
            home.write(token, token).display().to_string()
        });
        let first = home.relay(&["--clients", &format!("{FIRST}.clients"), "--log", "near.log"]);
        let of_second = format!("{SECOND}.clients");
        let args = ["--clients", &of_second, "--log", "far.log"];
        let second = if is_far_tls { home.tls_relay(&args) } else { home.relay(&args) };
        let (near, far) =
            (Ear::before(first.address(), |_| {}), Ear::before(second.address(), |_| {}));
        let scheme = if is_far_tls { "https" } else { "http" };
        let urls = [near.url(), far.url().replace("http", scheme)];
        let [one, two] = [0, 1].map(|at| {
            format!("  {{ url = \"{}\", token-file = \"{}\" }},\n", urls[at], tokens[at])
        });
        home.write("config.toml", format!("relays = [\n{one}{two}]\n"));
        let print = second.words.lines().find_map(|line| line.strip_prefix(FINGERPRINT));
        let more = print.map(|print| vec!["--fingerprint".to_owned(), print.trim().to_owned()]);
        let (route, more) = (urls.join(","), more.unwrap_or_default());
        Two { home, near, far, _relays: [first, second], route, more }
    }

    pub fn get(&self, from: &str, config: &str) -> Ran {
        let more: Vec<&str> = self.more.iter().map(String::as_str).collect();
        let usual =
            ["get", from, "-o", "got", "--overwrite", "--end-to-end", "--route", &self.route];
        let swath = self.home.swath([&usual[..], &more].concat());
        swath.env("SWATH_CONFIG", self.home.path(config).to_str().unwrap()).run()
    }
}

/// A relay that forges: it changes a tree's bytes, and the group hashes so that they fit. One request a
/// connection, and blocks of just one group.
pub struct Forger {
    pub url: String,
    forged: Arc<Mutex<u32>>,
}

impl Forger {
    pub fn start() -> Forger {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let forged = Arc::new(Mutex::new(0));
        let counts = Arc::clone(&forged);
        std::thread::spawn(move || {
            while let Ok((mut near, _)) = listener.accept() {
                let counts = Arc::clone(&counts);
                std::thread::spawn(move || {
                    let Some(request) = head_of(&mut near) else { return };
                    let answer = forge(&request, &counts);
                    let _ = near.write_all(&answer);
                });
            }
        });
        Forger { url, forged }
    }

    /// How many blocks it has forged.
    pub fn forged(&self) -> u32 {
        *self.forged.lock().unwrap()
    }
}

/// The head of the next request on a connection, byte by byte: nothing behind it is taken.
pub fn head_of(tcp: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        tcp.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn forge(request: &str, counts: &Mutex<u32>) -> Vec<u8> {
    let Some((_, rest)) = request.split_once("/relay/http://") else {
        let about = r#"{"relay":"swath","name":"forger","hops":{}}"#;
        let length = about.len();
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ";
        return format!("{head}{length}\r\n\r\n{about}").into_bytes();
    };
    let (host, rest) = rest.split_once('/').unwrap();
    let mut origin = TcpStream::connect(host).unwrap();
    let own = format!("GET /{}", rest.replacen("\r\nHost: ", "\r\nConnection: close\r\nHost: ", 1));
    origin.write_all(own.as_bytes()).unwrap();
    let mut answer = Vec::new();
    origin.read_to_end(&mut answer).unwrap();
    let body = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let length = answer.len() - body;
    if length > 32 && answer.starts_with(b"HTTP/1.1 206") {
        let (data, group_hash) = answer[body..].split_at_mut(length - 32);
        data[0] ^= 1;
        group_hash.copy_from_slice(&swath_model::digest::blake3_tree::group_value(0, data));
        *counts.lock().unwrap() += 1;
    }
    answer
}
