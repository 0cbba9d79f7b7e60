//! The clients that people have, with settings that keep them on the loopback interface: no distributed
//! hash table, no local discovery, no exchange of peers, no port forwarding.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io::Read as _, io::Write as _};

use super::Home;
use super::libtorrent::{self, Libtorrent};
use super::serve::Served;
use super::torrent::Client;
use swath_netlab::reserve_port;

impl Home {
    /// transmission 3, which fetches `NAME.torrent` into `folder` over encrypted connections only. It
    /// never connects to 127.0.0.0/8 itself.
    pub fn transmission(&self, name: &str, folder: &str) -> Option<Client> {
        let config = self.path(format!("config-{name}"));
        fs::create_dir_all(config.join("watch")).unwrap();
        fs::create_dir_all(self.path(folder)).unwrap();
        let torrent = format!("{name}.torrent");
        fs::copy(self.path(&torrent), config.join("watch").join(&torrent)).unwrap();
        let settings = format!(
            "{{\"dht-enabled\": false, \"lpd-enabled\": false, \"pex-enabled\": false, \
             \"port-forwarding-enabled\": false, \"utp-enabled\": false, \"rpc-enabled\": false, \
             \"watch-dir-enabled\": true, \"watch-dir\": {:?}, \"bind-address-ipv4\": \"127.0.0.1\"}}",
            config.join("watch")
        );
        fs::write(config.join("settings.json"), settings).unwrap();
        let (port, folder) = (reserve_port().to_string(), self.path(folder));
        let (config, into) = (config.to_str().unwrap(), folder.to_str().unwrap());
        let args = ["-f", "-er", "-M", "-P", &port, "-g", config, "-w", into, "--log-info"];
        Client::start(&folder, "transmission", "transmission-daemon", &args)
    }

    /// qBittorrent, which has or fetches the data of these torrents in `folder`. `encrypts` makes it
    /// refuse plain connections.
    pub fn qbittorrent(&self, names: &[&str], folder: &str, encrypts: bool) -> Option<Client> {
        let profile = self.path("profile");
        let config = profile.join("qBittorrent/config");
        fs::create_dir_all(&config).unwrap();
        fs::create_dir_all(self.path(folder)).unwrap();
        let folder = self.path(folder);
        let settings = format!(
            "[LegalNotice]\nAccepted=true\n[BitTorrent]\nSession\\Port={}\nSession\\DHTEnabled=false\n\
             Session\\LSDEnabled=false\nSession\\PeXEnabled=false\nSession\\Encryption={}\n\
             Session\\Interface=lo\nSession\\InterfaceName=lo\nSession\\InterfaceAddress=127.0.0.1\n\
             Session\\MultiConnectionsPerIp=true\nSession\\QueueingSystemEnabled=false\n\
             Session\\BTProtocol=TCP\nSession\\DefaultSavePath={}\n[Network]\n\
             PortForwardingEnabled=false\n[Preferences]\nConnection\\ResolvePeerCountries=false\n\
             WebUI\\Address=127.0.0.1\nWebUI\\Port={}\nWebUI\\UseUPnP=false\n",
            reserve_port(),
            u8::from(encrypts),
            folder.display(),
            reserve_port(),
        );
        fs::write(config.join("qBittorrent.conf"), settings).unwrap();
        let torrents: Vec<String> = names
            .iter()
            .map(|name| self.path(format!("{name}.torrent")).display().to_string())
            .collect();
        let profile = format!("--profile={}", profile.display());
        let into = format!("--save-path={}", folder.display());
        let mut args = vec![&*profile, "--skip-dialog=true", &into];
        args.extend(torrents.iter().map(String::as_str));
        Client::start(&folder, "qbittorrent", "qbittorrent-nox", &args)
    }

    /// aria2, which has or fetches the data of a torrent or magnet link in `folder`, and the port where
    /// peers reach it.
    pub fn aria2(&self, torrent: &str, folder: &str, more: &[&str]) -> Option<(Client, u16)> {
        fs::create_dir_all(self.path(folder)).unwrap();
        let port = reserve_port();
        let listen = format!("--listen-port={port}");
        let args = [
            "--enable-dht=false",
            "--enable-dht6=false",
            "--bt-enable-lpd=false",
            "--enable-peer-exchange=false",
            "--file-allocation=none",
            "--seed-time=1000",
            "--seed-ratio=0",
            "--allow-overwrite=true",
            "--log=-",
            "--log-level=info",
            &listen,
        ];
        let args = [&args[..], more, &[torrent]].concat();
        let client = Client::start(&self.path(folder), "aria2", "aria2c", &args)?;
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < LIMIT, "{}", client.said());
            std::thread::sleep(Duration::from_millis(50));
        }
        Some((client, port))
    }

    /// The `torrent` command of anacrolix/torrent, a library in Go, which has or fetches the data of
    /// these torrent files and magnet links in `folder`. It encrypts where it can.
    pub fn anacrolix(&self, torrents: &[&str], folder: &str, more: &[&str]) -> Option<Client> {
        self.anacrolix_by(&[&["--no-utp-peers"], more].concat(), torrents, folder)
    }

    /// The same without TCP.
    pub fn anacrolix_by_utp(&self, torrent: &str, folder: &str) -> Option<Client> {
        self.anacrolix_by(&["--no-tcp-peers"], &[torrent], folder)
    }

    fn anacrolix_by(&self, more: &[&str], torrents: &[&str], folder: &str) -> Option<Client> {
        let program = anacrolix()?;
        fs::create_dir_all(self.path(folder)).unwrap();
        let args = [
            "download",
            "--addr",
            "127.0.0.1:0",
            "--seed",
            "--no-dht",
            "--no-webtorrent",
            "--no-port-forward",
            "--no-pex",
            "--no-ipv6",
        ];
        let torrents: Vec<String> = torrents
            .iter()
            .map(|it| match it.ends_with(".torrent") {
                true => self.path(it).display().to_string(),
                false => (*it).to_owned(),
            })
            .collect();
        let mut args = [&args[..], more].concat();
        args.extend(torrents.iter().map(String::as_str));
        Client::start(&self.path(folder), "anacrolix", program.to_str().unwrap(), &args)
    }

    /// libtorrent, which fetches these magnet links into `folder`.
    pub fn libtorrent_by_links(&self, links: &[String], folder: &Path) -> Option<Client> {
        let settings = r#"{"enable_outgoing_utp": false}"#;
        let client = Libtorrent { python: libtorrent::OLD, settings, peer: None };
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        client.start(folder, "libtorrent", &links)
    }
}

/// Waits until a tracker has so many peers; a hybrid torrent counts twice.
#[track_caller]
pub fn has_peers(tracker: &Served, count: u32) {
    let began = Instant::now();
    // One that has left may still be counted: a busy machine leaves without a word.
    let peers = |answer: &str| -> Option<u32> {
        let (_, count) = answer.split_once("{\"peers\":")?;
        count.split(',').next()?.parse().ok()
    };
    loop {
        let address = tracker.url.trim_start_matches("http://").trim_end_matches("announce");
        let address = address.trim_end_matches('/');
        let mut tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(LIMIT)).unwrap();
        write!(tcp, "GET /stats.json HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).unwrap();
        if peers(&answer).is_some_and(|peers| peers >= count) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "not {count} peers: {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Finds anacrolix' `torrent` where `scripts/test` installs it, or in PATH. `None`, with a message, if
/// there is none.
fn anacrolix() -> Option<PathBuf> {
    // The program lies in TARGET/PROFILE.
    let target = Path::new(env!("CARGO_BIN_EXE_swath")).ancestors().nth(2).unwrap();
    let is_one = |program: &PathBuf| {
        let ran = std::process::Command::new(program).arg("version").output();
        ran.is_ok_and(|ran| String::from_utf8_lossy(&ran.stdout).contains("anacrolix"))
    };
    let found = [target.join("tools/torrent"), "torrent".into()].into_iter().find(is_one);
    if found.is_none() {
        println!("skipped: the torrent command of anacrolix is not installed");
    }
    found
}

/// Clients may wait for half a minute before they try something again.
const LIMIT: Duration = Duration::from_secs(90);
