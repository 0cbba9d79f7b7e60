//! Announces and scrapes by UDP.

use swath_formats::tracker::udp::{Answer, ConnectionId, Request};
use swath_formats::tracker::{Announce, InfoHash, SwarmCounts};
use swath_tracker::{Limits, TrackerOptions};

use crate::support::{HASH, Running, TRANSACTION, UdpClient, lists, options, peer};

#[tokio::test]
async fn peers_of_http_and_udp_are_in_one_swarm() {
    let tracker = Running::start(options()).await;
    let client = UdpClient::new("127.0.0.1", tracker.address).await;
    assert!(client.peers(peer(1, 0)).await.is_empty());
    assert_eq!(tracker.announce("", &peer(2, 5)).await.unwrap().peers.len(), 1);
    assert_eq!(client.peers(peer(3, 5)).await, [1, 2]);
    let scrape = Request::Scrape {
        connection: client.connect().await,
        transaction: TRANSACTION,
        info_hashes: vec![InfoHash([0; 20]), HASH],
    };
    let Answer::Scrape { counts, .. } = client.ask(&scrape).await else { panic!() };
    let swarm = SwarmCounts { seeders: 1, completed: 0, leechers: 2 };
    assert_eq!(counts, [SwarmCounts::default(), swarm]);
    tracker.stop().await;
}

#[tokio::test]
async fn packets_without_a_valid_connection_id_are_ignored() {
    let tracker = Running::start(options()).await;
    let client = UdpClient::new("127.0.0.1", tracker.address).await;
    let other = UdpClient::new("127.0.0.2", tracker.address).await;
    // Of somebody else, guessed, and bytes of other protocols.
    for connection in [other.connect().await, ConnectionId(0), ConnectionId(u64::MAX)] {
        let mut bytes = Vec::new();
        let announce = peer(1, 0);
        Request::Announce { connection, transaction: TRANSACTION, announce, path: Vec::new() }
            .write(&mut bytes);
        client.send(&bytes).await;
        // An answer would come before that of the next question, which fails for any other answer.
        client.connect().await;
    }
    for bytes in
        [&b""[..], b"x", &[0; 16], &[0xff; 1400], b"d1:ad2:id20:aaaaaaaaaaaaaaaaaaaae1:q4:pinge"]
    {
        client.send(bytes).await;
        client.connect().await;
    }
    let metrics = tracker.text("/metrics").await;
    // All but the one without bytes.
    assert!(metrics.contains("swath_tracker_udp_ignored_total 7\n"), "{metrics}");
    assert!(metrics.contains("swath_tracker_peers 0\n"), "{metrics}");
    assert!(client.peers(peer(1, 0)).await.is_empty());
    tracker.stop().await;
}

#[tokio::test]
async fn refusals_come_as_errors() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("whitelist", &*format!("{}\n", "ab".repeat(20))),
        ("networks", "127.0.0.0/30\n"),
        ("passkeys", "0123456789abcdef\n"),
    ];
    let lists = lists(folder.path(), &files);
    let tracker = Running::start(TrackerOptions { lists, ..options() }).await;
    let reason = async |ip: &str, announce, path: &str| {
        let client = UdpClient::new(ip, tracker.address).await;
        match client.announce(announce, path).await {
            Answer::Error { transaction: TRANSACTION, reason } => reason,
            answer => format!("{answer:?}"),
        }
    };
    let key = "/0123456789abcdef/announce";
    let other = Announce { info_hash: InfoHash([1; 20]), ..peer(1, 0) };
    for (ip, announce, path, words) in [
        ("127.0.0.4", peer(1, 0), key, "does not answer your address"),
        ("127.0.0.1", peer(1, 0), "/announce", "needs a passkey"),
        ("127.0.0.1", peer(1, 0), "/0123456789abcdeF/announce", "does not know your passkey"),
        ("127.0.0.1", other, key, "does not track this torrent"),
        ("127.0.0.1", peer(0, 0), key, "port 0"),
        ("127.0.0.1", peer(1, 0), key, "Announce {"),
    ] {
        let said = reason(ip, announce, path).await;
        assert!(said.contains(words), "{ip} {path}: {said}");
    }
    tracker.stop().await;
}

#[tokio::test]
async fn ipv6_clients_get_answers_that_fit_into_a_packet() {
    let listen = vec!["[::]:0".parse().unwrap()];
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        println!("skipped: this machine has no ::1");
        return;
    }
    let limits = Limits { announces_per_s: 1000, ..Limits::default() };
    let tracker = Running::start(TrackerOptions { listen, limits, ..options() }).await;
    let port = tracker.address.port();
    let six = UdpClient::new("::1", format!("[::1]:{port}").parse().unwrap()).await;
    let connection = six.connect().await;
    for number in 1..=150 {
        let announce = Announce { want: Some(200), ..peer(number, 5) };
        let path = Vec::new();
        let request = Request::Announce { connection, transaction: TRANSACTION, announce, path };
        let Answer::Announce { answer, .. } = six.ask(&request).await else { panic!() };
        assert_eq!(answer.peers.len(), usize::from(number - 1).min(67));
        assert!(answer.peers.iter().all(|peer| peer.address.is_ipv6()));
    }
    // The same socket answers IPv4, from the address that was asked.
    for to in ["127.0.0.1", "127.0.0.9"] {
        let four = UdpClient::new("127.0.0.1", format!("{to}:{port}").parse().unwrap()).await;
        assert!(four.peers(peer(4, 5)).await.is_empty(), "{to}");
    }
    tracker.stop().await;
}

#[tokio::test]
async fn floods_from_many_addresses_stay_within_the_limits() {
    let limits = Limits {
        announces_per_s: 1,
        swarm_peers_max: 1_000,
        peers_max: 1_500,
        torrents_max: 40,
        ..Limits::default()
    };
    let tracker = Running::start(TrackerOptions { limits, ..options() }).await;
    let mut refused = 0;
    // 50 addresses, 100 announces each, of as many torrents.
    for address in 1..=50u8 {
        let client = UdpClient::new(&format!("127.0.1.{address}"), tracker.address).await;
        let connection = client.connect().await;
        for port in 1..=100u8 {
            let announce =
                Announce { info_hash: InfoHash([port % 50; 20]), ..peer(port.into(), 5) };
            let path = Vec::new();
            let request =
                Request::Announce { connection, transaction: TRANSACTION, announce, path };
            refused += u32::from(matches!(client.ask(&request).await, Answer::Error { .. }));
        }
    }
    let metrics = tracker.text("/metrics").await;
    let figure = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {metrics}")).parse().unwrap()
    };
    assert!(refused > 50 * 30, "{refused}");
    assert!(figure("swath_tracker_peers") <= 1_500.0, "{metrics}");
    assert_eq!(figure("swath_tracker_torrents"), 40.0);
    assert!(figure("swath_tracker_refused_total{reason=\"too_many\"}") >= 50.0 * 20.0);
    assert!(figure("swath_tracker_refused_total{reason=\"full\"}") > 100.0);
    // Somebody else is served.
    let client = UdpClient::new("127.0.0.1", tracker.address).await;
    let known = Announce { info_hash: InfoHash([1; 20]), ..peer(9, 5) };
    assert!(client.peers(known).await.len() > 20);
    tracker.stop().await;
}
