//! Announces to a tracker of ours, and to strange ones.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use swath_formats::tracker::udp::{Answer, ConnectionId, Request, TransactionId};
use swath_formats::tracker::{
    Announce, AnnounceAnswer, Event, InfoHash, Peer, PeerForm, PeerId, http as wire,
};
use swath_serve::{Stop, Tls};
use swath_source::{LaneError, Net, NetOptions, Trust};
use swath_swarm::{AnnounceError, Announced, Announcer, Announcing, Standing, TrackerList, ask};
use swath_tracker::{Background, Bound, Limits, ListFiles, TrackerOptions, bind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use url::Url;

const HASH: InfoHash = InfoHash([0xab; 20]);
const OTHER: InfoHash = InfoHash([0xcd; 20]);

/// A tracker of ours that runs.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    background: Background,
}

impl Running {
    async fn start(listen: &str) -> Running {
        let options = TrackerOptions {
            name: "here".to_owned(),
            listen: vec![listen.parse().unwrap()],
            tls: Tls::Plain,
            max_connections: 64,
            limits: Limits { interval: Duration::from_secs(10), ..Limits::default() },
            lists: ListFiles::default(),
            proxies: Vec::new(),
            state: None,
        };
        let Bound { server, background } = bind(options, None, Arc::new(|_| ())).await.unwrap();
        let address = server.addresses()[0];
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
            Stop::Orderly
        };
        let server = tokio::spawn(server.run(stopped, Duration::from_secs(10), |_| ()));
        Running { address, stop, server, background }
    }

    fn url(&self, scheme: &str) -> Url {
        format!("{scheme}://{}/announce", self.address).parse().unwrap()
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.server.await.unwrap();
        self.background.finish().await.unwrap();
    }
}

fn net() -> Net {
    Net::new(NetOptions { timeout: Duration::from_secs(20), ..NetOptions::default() }).unwrap()
}

fn announce(port: u16, left: u64) -> Announce {
    Announce {
        info_hash: HASH,
        peer_id: PeerId([port as u8; 20]),
        port,
        uploaded: 0,
        downloaded: 0,
        left: Some(left),
        event: Event::Started,
        want: Some(50),
        key: None,
        form: PeerForm::Compact,
    }
}

fn ports(answer: &AnnounceAnswer) -> Vec<u16> {
    let mut ports: Vec<u16> = answer.peers.iter().map(|peer| peer.address.port()).collect();
    ports.sort_unstable();
    ports
}

#[tokio::test]
async fn trackers_are_asked_by_http_and_udp() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let tracker = Running::start(listen).await;
        let net = net();
        for (port, scheme, wanted) in [(1, "http", Vec::new()), (2, "udp", vec![1])] {
            let asked = ask(&net, &tracker.url(scheme), Trust::Listed, &announce(port, 5)).await;
            let answer = asked.unwrap();
            assert_eq!(ports(&answer), wanted, "{listen} {scheme}");
            let ip: IpAddr = tracker.address.ip();
            assert!(answer.peers.iter().all(|peer| peer.address.ip() == ip));
        }
        // Where the tracker is, peers may be; elsewhere only public ones.
        assert!(net.may_be_led_to(tracker.address).is_ok());
        for (address, may) in [("10.0.0.1:5", false), ("[fe80::1]:5", false), ("8.8.8.8:5", true)] {
            assert_eq!(net.may_be_led_to(address.parse().unwrap()).is_ok(), may, "{address}");
        }
        tracker.stop().await;
    }
    let failed = async |url: &str| {
        ask(&net(), &url.parse().unwrap(), Trust::Listed, &announce(1, 0)).await.unwrap_err()
    };
    assert!(matches!(failed("http://127.0.0.1:1/announce").await, AnnounceError::Net(_)));
    assert!(matches!(failed("udp://127.0.0.1/announce").await, AnnounceError::NoPort));
    assert!(matches!(failed("wss://127.0.0.1:1/").await, AnnounceError::Scheme(_)));
}

/// Answers each request over HTTP with this, one connection after the other.
async fn answers_http(body: Vec<u8>) -> (Url, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/announce", listener.local_addr().unwrap()).parse().unwrap();
    let task = tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let _ = tcp.read(&mut request).await;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = tcp.write_all(&[head.as_bytes(), &body].concat()).await;
        }
    });
    (url, task)
}

#[tokio::test]
async fn trackers_that_the_network_names_lead_nowhere_inside() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (tcp, udp) = (listener.local_addr().unwrap().port(), socket.local_addr().unwrap().port());
    for url in [
        format!("http://127.0.0.1:{tcp}/announce"),
        format!("http://localhost:{tcp}/announce"),
        format!("https://[::ffff:127.0.0.1]:{tcp}/announce"),
        format!("udp://127.0.0.1:{udp}/announce"),
        format!("udp://localhost:{udp}/announce"),
    ] {
        let url: Url = url.parse().unwrap();
        let (standing, told) = (watch::channel(Standing::default()).1, mpsc::channel(1));
        let lists = vec![TrackerList { tiers: vec![vec![url.clone()]], trust: Trust::Discovered }];
        let announcing = Announcing {
            net: net(),
            lists,
            info_hashes: vec![HASH],
            peer_id: PeerId([7; 20]),
            port: 7,
        };
        let (told, mut hears) = told;
        let announcer = Announcer::start(announcing, standing, told);
        let Announced { outcome, .. } = hears.recv().await.unwrap();
        let refused = matches!(outcome, Err(AnnounceError::Net(LaneError::RefusedAddress { .. })));
        assert!(refused, "{url}: {outcome:?}");
        announcer.stop().await;
    }
    // Nobody was contacted, also not to say goodbye.
    assert!(listener.accept().now_or_never().is_none());
    assert!(socket.recv(&mut [0; 64]).now_or_never().is_none());
}

#[tokio::test]
async fn peers_by_name_are_found_and_lead_nowhere_inside_either() {
    let body = b"d8:intervali60e5:peersld2:ip9:localhost4:porti7eed2:ip4:a..b4:porti8eeee".to_vec();
    // A tracker of the user's on this machine: peers may be here too.
    let (url, task) = answers_http(body).await;
    let net = net();
    let answer = ask(&net, &url, Trust::Listed, &announce(1, 5)).await.unwrap();
    assert!(answer.named.is_empty() && !answer.peers.is_empty());
    assert!(answer.peers.iter().all(|it| it.address.ip().is_loopback() && it.address.port() == 7));
    task.abort();
}

#[tokio::test]
async fn strange_answers_are_errors() {
    let refusal = wire::write_failure("not here");
    let huge = [b"d8:intervali9e5:peers900000:".to_vec(), vec![1; 900_000], b"e".to_vec()].concat();
    for (body, words) in [
        (refusal, "refuses: not here"),
        (b"<html>".to_vec(), "not one of a tracker"),
        (b"d4:spam4:eggse".to_vec(), "not one of a tracker"),
        (huge, "262144"),
    ] {
        let (url, task) = answers_http(body).await;
        let error = ask(&net(), &url, Trust::Listed, &announce(1, 0)).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(words), "{words}: {shown}");
        task.abort();
    }
}

#[tokio::test]
async fn datagrams_that_are_no_answers_are_ignored() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let url = format!("udp://{}/key/announce?a=b", socket.local_addr().unwrap()).parse().unwrap();
    let asked =
        tokio::spawn(async move { ask(&net(), &url, Trust::Listed, &announce(1, 0)).await });
    let mut packet = vec![0; 2048];
    let (length, from) = socket.recv_from(&mut packet).await.unwrap();
    let Ok(Request::Connect { transaction }) = Request::read(&packet[..length]) else { panic!() };
    let send = async |answer: Answer| {
        let mut bytes = Vec::new();
        answer.write(&mut bytes);
        socket.send_to(&bytes, from).await.unwrap();
    };
    let wrong = TransactionId(transaction.0 ^ 1);
    socket.send_to(b"rubbish", from).await.unwrap();
    send(Answer::Connect { transaction: wrong, connection: ConnectionId(1) }).await;
    send(Answer::Error { transaction: wrong, reason: "forged".to_owned() }).await;
    send(Answer::Connect { transaction, connection: ConnectionId(9) }).await;
    let (length, _) = socket.recv_from(&mut packet).await.unwrap();
    let Ok(Request::Announce { connection, transaction, path, announce }) =
        Request::read(&packet[..length])
    else {
        panic!()
    };
    assert_eq!((connection, &path[..]), (ConnectionId(9), &b"/key/announce?a=b"[..]));
    assert_eq!((announce.port, announce.info_hash), (1, HASH));
    let peers = vec![Peer { address: "192.0.2.1:7".parse().unwrap(), id: None }];
    let answer = AnnounceAnswer { interval_s: 60, peers, ..AnnounceAnswer::default() };
    send(Answer::Connect { transaction, connection: ConnectionId(1) }).await;
    send(Answer::Announce { transaction, answer }).await;
    assert_eq!(ports(&asked.await.unwrap().unwrap()), [7]);
}

#[tokio::test(start_paused = true)]
async fn a_tracker_that_is_silent_by_udp_is_asked_again() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let url = format!("udp://{}/announce", socket.local_addr().unwrap()).parse().unwrap();
    let counted = tokio::spawn(async move {
        let mut count = 0;
        while socket.recv(&mut [0; 64]).await.is_ok() {
            count += 1;
            if count == 3 {
                break;
            }
        }
        count
    });
    let error = ask(&net(), &url, Trust::Listed, &announce(1, 0)).await.unwrap_err();
    assert!(matches!(error, AnnounceError::TimedOut(after) if after.as_secs() == 105), "{error}");
    assert_eq!(counted.await.unwrap(), 3);
}

#[tokio::test]
async fn both_info_hashes_are_announced_until_we_leave() {
    let tracker = Running::start("127.0.0.1:0").await;
    let (standing, watched) =
        watch::channel(Standing { left: Some(5), want: 9, ..Standing::default() });
    let (told, mut hears) = mpsc::channel(16);
    let dead: Url = "http://127.0.0.1:1/secret/announce".parse().unwrap();
    let announcing = Announcing {
        net: net(),
        lists: vec![TrackerList {
            tiers: vec![vec![dead], vec![tracker.url("http")]],
            trust: Trust::Listed,
        }],
        info_hashes: vec![HASH, OTHER],
        peer_id: PeerId([7; 20]),
        port: 7,
    };
    let announcer = Announcer::start(announcing, watched, told);
    let mut answers: Vec<(InfoHash, bool)> = Vec::new();
    for _ in 0..4 {
        let Announced { tracker, info_hash, outcome } = hears.recv().await.unwrap();
        assert!(!tracker.contains("secret"), "{tracker}");
        answers.push((info_hash, outcome.is_ok()));
    }
    answers.sort_unstable();
    assert_eq!(answers, [(HASH, false), (HASH, true), (OTHER, false), (OTHER, true)]);
    // Complete: the tracker is told at once.
    standing.send_replace(Standing { left: Some(0), want: 9, ..Standing::default() });
    for _ in 0..2 {
        assert!(hears.recv().await.unwrap().outcome.is_ok());
    }
    let seen =
        async || ask(&net(), &tracker.url("udp"), Trust::Listed, &announce(9, 1)).await.unwrap();
    let answer = seen().await;
    assert_eq!((ports(&answer), answer.seeders), (vec![7], Some(1)));
    announcer.stop().await;
    assert!(ports(&seen().await).is_empty());
    tracker.stop().await;
}
