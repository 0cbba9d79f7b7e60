//! A tracker that runs while a test asks it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use swath_formats::tracker::udp::{Answer, ConnectionId, Request, TransactionId};
use swath_formats::tracker::{
    Announce, AnnounceAnswer, Event, InfoHash, PeerForm, PeerId, http as wire,
};
use swath_serve::{Stop, Tls};
use swath_tracker::{
    Background, Bound, Limits, ListFiles, Note, TorrentList, TrackerOptions, bind,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub const HASH: InfoHash = InfoHash([0xab; 20]);

/// A tracker that runs.
pub struct Running {
    pub address: SocketAddr,
    notes: Arc<Mutex<Vec<String>>>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    background: Background,
}

pub fn options() -> TrackerOptions {
    TrackerOptions {
        name: "here".to_owned(),
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        tls: Tls::Plain,
        max_connections: 64,
        limits: Limits::default(),
        lists: ListFiles::default(),
        proxies: Vec::new(),
        state: None,
    }
}

/// With this whitelist, networks and passkeys, as files in `folder`.
pub fn lists(folder: &Path, files: &[(&str, &str)]) -> ListFiles {
    let mut lists = ListFiles::default();
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        match *name {
            "whitelist" => lists.torrents = Some(TorrentList::Whitelist(path)),
            "networks" => lists.network_files.push(path),
            "passkeys" => lists.passkeys = Some(path),
            name => panic!("{name}"),
        }
    }
    lists
}

impl Running {
    pub async fn start(options: TrackerOptions) -> Running {
        let notes: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&notes);
        let note = move |note: Note| noted.lock().unwrap().push(format!("{note:?}"));
        let Bound { server, background } = bind(options, None, Arc::new(note)).await.unwrap();
        let address = server.addresses()[0];
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
            Stop::Orderly
        };
        let server = tokio::spawn(server.run(stopped, Duration::from_secs(10), |_| ()));
        Running { address, notes, stop, server, background }
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.server.await.unwrap();
        self.background.finish().await.unwrap();
    }

    /// Waits until something was noted.
    pub async fn notes(&self, words: &str) {
        let began = Instant::now();
        loop {
            let notes = self.notes.lock().unwrap().clone();
            if notes.iter().any(|note| note.contains(words)) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{words} is missing: {notes:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The answer to a GET with these header lines: status and body.
    pub async fn get(&self, target: &str, fields: &str) -> (u16, Vec<u8>) {
        let mut tcp = TcpStream::connect(self.address).await.unwrap();
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{fields}\r\n");
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, tcp.read_to_end(&mut answer));
        read.await.expect("in time").unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
        (status, answer.split_off(end + 4))
    }

    pub async fn text(&self, target: &str) -> String {
        let (status, body) = self.get(target, "").await;
        assert_eq!(status, 200, "{target}");
        String::from_utf8(body).unwrap()
    }

    /// Announces by HTTP; `begin` is what stands before `/announce`.
    pub async fn announce(
        &self,
        begin: &str,
        announce: &Announce,
    ) -> Result<AnnounceAnswer, wire::AnswerError> {
        let target = wire::announce_url(&format!("{begin}/announce"), announce);
        let (status, body) = self.get(&target, "").await;
        assert_eq!(status, 200);
        wire::read_announce(&body)
    }
}

/// A peer with this port that has just started.
pub fn peer(port: u16, left: u64) -> Announce {
    Announce {
        info_hash: HASH,
        peer_id: PeerId([port as u8; 20]),
        port,
        uploaded: 0,
        downloaded: 0,
        left: Some(left),
        event: Event::Started,
        want: None,
        key: None,
        form: PeerForm::Compact,
    }
}

/// The ports of an answer, sorted.
pub fn ports(answer: &AnnounceAnswer) -> Vec<u16> {
    let mut ports: Vec<u16> = answer.peers.iter().map(|peer| peer.address.port()).collect();
    ports.sort_unstable();
    ports
}

/// A client that asks by UDP.
pub struct UdpClient {
    socket: UdpSocket,
    is_six: bool,
}

pub const TRANSACTION: TransactionId = TransactionId(7);

impl UdpClient {
    /// One with this address that asks the tracker at `to`.
    pub async fn new(ip: &str, to: SocketAddr) -> UdpClient {
        let ip: IpAddr = ip.parse().unwrap();
        let socket = UdpSocket::bind((ip, 0)).await.unwrap();
        // A connected socket gets nothing from other addresses.
        socket.connect(to).await.unwrap();
        UdpClient { socket, is_six: ip.is_ipv6() }
    }

    /// Sends bytes, whatever comes of it.
    pub async fn send(&self, bytes: &[u8]) {
        self.socket.send(bytes).await.unwrap();
    }

    pub async fn ask(&self, request: &Request) -> Answer {
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        self.send(&bytes).await;
        let mut answer = vec![0; 65_536];
        let received = timeout(PATIENCE, self.socket.recv(&mut answer)).await;
        answer.truncate(received.expect("in time").unwrap());
        Answer::read(&answer, self.is_six).unwrap()
    }

    pub async fn connect(&self) -> ConnectionId {
        match self.ask(&Request::Connect { transaction: TRANSACTION }).await {
            Answer::Connect { connection, transaction: TRANSACTION } => connection,
            answer => panic!("{answer:?}"),
        }
    }

    pub async fn announce(&self, announce: Announce, path: &str) -> Answer {
        let connection = self.connect().await;
        let path = path.as_bytes().to_vec();
        let transaction = TRANSACTION;
        self.ask(&Request::Announce { connection, transaction, announce, path }).await
    }

    pub async fn peers(&self, announce: Announce) -> Vec<u16> {
        match self.announce(announce, "").await {
            Answer::Announce { answer, .. } => ports(&answer),
            answer => panic!("{answer:?}"),
        }
    }
}

/// Long, because other work may keep the machine busy.
pub const PATIENCE: Duration = Duration::from_secs(90);
