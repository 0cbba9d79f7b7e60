//! Relays while a test uses them, and ears on the way between two of them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::Home;
use super::serve::Served;

impl Home {
    /// A relay for this machine, to what is on it, without encryption.
    pub fn relay(&self, args: &[&str]) -> Served {
        self.relay_at("127.0.0.1:0", args)
    }

    /// The same at this address.
    pub fn relay_at(&self, address: &str, args: &[&str]) -> Served {
        let usual = ["relay", "--plain", "--upstream", "127.0.0.1", "--listen", address];
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

/// Stands between somebody and a server, and may change what comes back.
pub struct Ear {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

/// What it does with each part of what comes back.
pub type Change = fn(&mut [u8]);

impl Ear {
    /// In front of the server at this address.
    pub fn before(server: SocketAddr, change: Change) -> Ear {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let Ok(far) = TcpStream::connect(server) else { continue };
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let hears = Arc::clone(&hears);
                std::thread::spawn(move || {
                    pass(near, far, |bytes| hears.lock().unwrap().extend_from_slice(bytes));
                });
                std::thread::spawn(move || pass(far_too, near_too, change));
            }
        });
        Ear { address, heard }
    }

    /// As a server's address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Whether this was sent through it, as text.
    pub fn heard(&self, words: &str) -> bool {
        let heard = self.heard.lock().unwrap();
        heard.windows(words.len()).any(|part| part == words.as_bytes())
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
