//! Torrents, and the programs of others that seed and fetch them. All stay on the loopback interface:
//! torrents are private, so that nobody looks for peers but at their tracker.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Home;
use super::libtorrent::{self, Libtorrent};

/// A program that runs until it is dropped.
pub struct Client {
    child: Child,
    /// What it prints goes there.
    log: std::path::PathBuf,
}

impl Client {
    /// Starts a program in a folder; what it prints goes to `NAME.log` there. `None`, with a
    /// message, where it is not installed.
    pub fn start(folder: &Path, name: &str, program: &str, args: &[&str]) -> Option<Client> {
        let log = folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let child = Command::new(program)
            .args(args)
            .current_dir(folder)
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn();
        match child {
            Ok(child) => Some(Client { child, log }),
            Err(_) => {
                println!("skipped: {program} is not installed");
                None
            }
        }
    }

    /// libtorrent, which seeds or fetches `torrent` in `folder`. `None`, with a message, where Python has
    /// no such library.
    pub fn libtorrent(folder: &Path, name: &str, torrent: &Path) -> Option<Client> {
        let client = Libtorrent { python: libtorrent::OLD, settings: "{}", peer: None };
        client.start(folder, name, &[torrent.to_str().unwrap()])
    }

    /// What it has printed so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub fn says(&self, words: &str) {
        let began = Instant::now();
        while !self.said().contains(words) {
            assert!(began.elapsed() < LIMIT, "{words:?} is missing: {}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes `NAME.torrent` of a file in the working folder, with these announce addresses; returns its
/// info-hash. `None`, with a message, where no program for that is installed.
pub fn make(home: &Home, name: &str, trackers: &[&str]) -> Option<String> {
    let torrent = format!("{name}.torrent");
    let mut args = vec!["-p", "-o", &torrent];
    args.extend(trackers.iter().flat_map(|tracker| ["-t", tracker]));
    args.push(name);
    super::serve::succeeds(&home.work(), "transmission-create", &args)?;
    let shown = super::serve::succeeds(&home.work(), "transmission-show", &[&torrent])?;
    let hash = shown.lines().find_map(|line| line.trim().strip_prefix("Hash: "));
    Some(hash.unwrap_or_else(|| panic!("no hash: {shown}")).to_owned())
}

/// Waits until a file has these bytes.
#[track_caller]
pub fn arrives(path: &Path, bytes: &[u8]) {
    arrives_by(path, bytes, String::new);
}

/// The same; if it does not arrive, `said` tells what its client has printed.
#[track_caller]
pub fn arrives_by(path: &Path, bytes: &[u8], said: impl Fn() -> String) {
    let began = Instant::now();
    while std::fs::read(path).ok().as_deref() != Some(bytes) {
        let (path, had) = (path.display(), path.metadata().map(|it| it.len()));
        assert!(began.elapsed() < LIMIT, "{path} does not arrive: {had:?}\n{}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Clients may wait for half a minute before they try something again.
const LIMIT: Duration = Duration::from_secs(90);
