//! `swath seed` while a test's clients fetch from it, and these clients.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Home;
use super::libtorrent::{self, Libtorrent};
use super::serve::Served;
use super::torrent::Client;

/// A seeder that runs. Killed when dropped.
pub struct Seeding {
    child: Child,
    /// The port at which it listens for peers.
    pub port: u16,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Home {
    /// `swath seed` with these arguments, on a free port of the loopback interface.
    pub fn seed(&self, args: &[&str]) -> Seeding {
        self.seed_at("127.0.0.1:0", args)
    }

    /// The same at this address.
    pub fn seed_at(&self, address: &str, args: &[&str]) -> Seeding {
        let mut swath = self.swath(["seed", "--listen", address].iter().chain(args));
        let mut child = swath.command().spawn().expect("it starts");
        let said: Arc<Mutex<String>> = Arc::default();
        let readers = vec![
            collect(child.stdout.take().unwrap(), Arc::clone(&said)),
            collect(child.stderr.take().unwrap(), Arc::clone(&said)),
        ];
        let mut seeding = Seeding { child, port: 0, said, readers };
        seeding.says("listening on ");
        let text = seeding.said();
        let line = text.lines().find(|line| line.starts_with("listening on ")).unwrap();
        seeding.port = line.rsplit(':').next().unwrap().parse().unwrap();
        seeding
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

impl Seeding {
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

    /// Waits for its end; returns its exit code, `None` if it was killed.
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

impl Drop for Seeding {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
