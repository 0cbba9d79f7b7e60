//! `swath seed` and `swath track` while clients of a test use them, these clients, and any command whose
//! words are read while it runs.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Home;
use super::libtorrent::{self, Libtorrent};
use super::serve::Served;
use super::torrent::Client;

/// A command that runs, and what it has printed. Killed when dropped.
pub struct Live {
    child: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

/// A seeder that runs. Killed when dropped.
pub struct Seeding {
    live: Live,
    /// The port at which it listens for peers.
    pub port: u16,
}

impl Home {
    /// `swath seed` with these arguments, on a free port of the loopback interface.
    pub fn seed(&self, args: &[&str]) -> Seeding {
        self.seed_at("127.0.0.1:0", args)
    }

    /// The same at this address.
    pub fn seed_at(&self, address: &str, args: &[&str]) -> Seeding {
        let live = Live::of(self.swath(["seed", "--listen", address].iter().chain(args)));
        live.says("listening on ");
        let text = live.said();
        let line = text.lines().find(|line| line.starts_with("listening on ")).unwrap();
        let port = line.rsplit(':').next().unwrap().parse().unwrap();
        Seeding { live, port }
    }

    /// Starts a command whose words are read while it runs.
    pub fn live(&self, args: &[&str]) -> Live {
        Live::of(self.swath(args))
    }

    /// Waits until the journal of a fetch vouches for some of its content: it has grown since it was made.
    pub fn wait_for_commit(&self, journal: &str) {
        let began = Instant::now();
        let path = self.path(journal);
        let length = || path.metadata().map_or(0, |found| found.len());
        let grows_from = |least: u64| {
            while length() <= least {
                assert!(began.elapsed() < LIMIT, "{journal} has {} bytes", length());
                std::thread::sleep(Duration::from_millis(5));
            }
            length()
        };
        grows_from(grows_from(0));
    }

    /// Makes `NAME.torrent` of a file or folder, with these announce addresses.
    pub fn publish_torrent(&self, name: &str, kind: &str, trackers: &[&str], more: &[&str]) {
        let mut args = vec!["publish", name, "--torrent", kind, "--only", "torrent", "-q"];
        args.extend(trackers.iter().flat_map(|tracker| ["--tracker", tracker]));
        self.run(args.iter().chain(more)).code_is(0);
    }

    /// `swath track` on a free port; its `url` is the address for announces by HTTP.
    pub fn track(&self, args: &[&str]) -> Served {
        let swath = self.swath(["track", "--listen", "127.0.0.1:0"].iter().chain(args));
        Served::of(swath, &["--token-file"])
    }
}

/// Reads lines as they come.
fn collect(from: impl Read + Send + 'static, said: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            eprintln!("{line}");
            said.lock().unwrap().push_str(&(line + "\n"));
        }
    })
}

impl Live {
    fn of(mut swath: super::Swath) -> Live {
        let mut child = swath.command().spawn().expect("it starts");
        let said: Arc<Mutex<String>> = Arc::default();
        let readers = vec![
            collect(child.stdout.take().unwrap(), Arc::clone(&said)),
            collect(child.stderr.take().unwrap(), Arc::clone(&said)),
        ];
        Live { child, said, readers }
    }

    /// What it has printed so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub fn says(&self, words: &str) {
        let began = Instant::now();
        while !self.said().contains(words) {
            assert!(began.elapsed() < LIMIT, "{words:?} is missing: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn signal(&self, signal: i32) {
        let status =
            Command::new("kill").args([format!("-{signal}"), self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "the signal was sent");
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; returns its exit code, `None` if it was killed, and what it has printed.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // Its last lines may be on their way.
                self.readers.drain(..).for_each(|reader| reader.join().unwrap());
                return (status.code(), self.said());
            }
            assert!(began.elapsed() < LIMIT, "it does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Deref for Seeding {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.live
    }
}

impl Seeding {
    /// Waits for its end; returns its exit code, `None` if it was killed, and what it has printed.
    pub fn wait(self) -> (Option<i32>, String) {
        self.live.wait()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tracker that runs.
pub struct Tracking {
    pub served: Served,
    pub address: SocketAddr,
}

impl Tracking {
    pub fn start(home: &Home, listen: &str, args: &[&str]) -> Tracking {
        let swath = home.swath(["track", "--listen", listen].iter().chain(args));
        // It is ready when it has printed its first address.
        let served = Served::of(swath, &["--token-file"]);
        let address = served.url.trim_start_matches("http://").trim_end_matches("/announce");
        let address = address.parse().unwrap_or_else(|_| panic!("{}", served.url));
        Tracking { served, address }
    }

    pub fn udp(&self) -> String {
        format!("udp://{}/announce", self.address)
    }

    /// The body of an answer.
    pub fn get(&self, path: &str) -> String {
        self.ask(path, "").1
    }

    /// The answer to a GET with these header lines: head and body.
    pub fn ask(&self, path: &str, fields: &str) -> (String, String) {
        let mut tcp = TcpStream::connect(self.address).unwrap();
        tcp.set_read_timeout(Some(LIMIT)).unwrap();
        write!(tcp, "GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{fields}\r\n").unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }

    /// Waits until the tracker has so many peers.
    #[track_caller]
    pub fn has_peers(&self, count: u32) {
        self.has_peers_or(count, String::new);
    }

    /// The same, with what is known of why it has not.
    #[track_caller]
    pub fn has_peers_or(&self, count: u32, why: impl Fn() -> String) {
        let began = Instant::now();
        let wanted = format!("\"peers\":{count},");
        while !self.get("/stats.json").contains(&wanted) {
            assert!(began.elapsed() < LIMIT, "{}\n{}", self.get("/stats.json"), why());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// libtorrent, which fetches `torrent` into `folder`. `encrypts` makes it refuse plain connections; `peer`
/// is a port of this machine to connect to. `None`, with a message, where Python has no such library.
pub fn leecher(folder: &Path, torrent: &Path, encrypts: bool, peer: Option<u16>) -> Option<Client> {
    // Encryption is forced by 0 and possible with 1.
    let settings = match encrypts {
        true => r#"{"in_enc_policy": 0, "out_enc_policy": 0}"#,
        false => r#"{"in_enc_policy": 1, "out_enc_policy": 1}"#,
    };
    let client = Libtorrent { python: libtorrent::NEW, settings, peer };
    client.start(folder, "leecher", &[torrent.to_str().unwrap()])
}

/// Clients may wait for half a minute before they try something again.
const LIMIT: Duration = Duration::from_secs(90);
