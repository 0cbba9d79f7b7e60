//! Announces, scrapes and pages by HTTP.

use swath_formats::tracker::http::{AnswerError, read_announce, read_scrape};
use swath_formats::tracker::{Announce, Event, InfoHash, PeerForm, PeerId, SwarmCounts};

use crate::support::{Running, lists, options, peer, ports};

#[tokio::test]
async fn peers_find_each_other_in_every_form() {
    let tracker = Running::start(options()).await;
    let first = tracker.announce("", &peer(1, 0)).await.unwrap();
    assert_eq!((first.peers.len(), first.seeders, first.leechers), (0, Some(1), Some(0)));
    assert!((1620..=1980).contains(&first.interval_s) && first.min_interval_s == Some(300));
    assert_eq!(first.own_address, Some("127.0.0.1".parse().unwrap()));
    let second = tracker.announce("", &peer(2, 5)).await.unwrap();
    assert_eq!((ports(&second), second.peers[0].id), (vec![1], None));
    let dictionary = Announce { form: PeerForm::Dictionary, ..peer(3, 5) };
    let third = tracker.announce("", &dictionary).await.unwrap();
    assert_eq!(ports(&third), [1, 2]);
    assert!(third.peers.iter().any(|peer| peer.id == Some(PeerId([1; 20]))));
    let stopped = Announce { event: Event::Stopped, ..peer(1, 0) };
    assert_eq!(tracker.announce("", &stopped).await.unwrap().seeders, Some(0));
    // In the smallest form that a program can send, and in lower case.
    let hash = "%ab".repeat(20);
    let (_, body) =
        tracker.get(&format!("/announce?info_hash={hash}&peer_id={hash}&port=9"), "").await;
    assert_eq!(ports(&read_announce(&body).unwrap()), [2, 3]);
    tracker.stop().await;
}

#[tokio::test]
async fn scrapes_and_pages_show_the_counts() {
    let folder = tempfile::tempdir().unwrap();
    let whitelist = format!("{} run <7>\n{} run 8\n", "ab".repeat(20), "cd".repeat(20));
    let lists = lists(folder.path(), &[("whitelist", &whitelist)]);
    let tracker = Running::start(swath_tracker::TrackerOptions { lists, ..options() }).await;
    tracker.announce("", &peer(1, 0)).await.unwrap();
    let completed = Announce { event: Event::Completed, ..peer(2, 0) };
    tracker.announce("", &completed).await.unwrap();
    tracker.announce("", &peer(3, 5)).await.unwrap();
    let (one, two) = ("%AB".repeat(20), "%CD".repeat(20));
    let (_, body) = tracker.get(&format!("/scrape?info_hash={two}&info_hash={one}"), "").await;
    let counts = SwarmCounts { seeders: 2, completed: 1, leechers: 1 };
    let wanted = [(InfoHash([0xab; 20]), counts), (InfoHash([0xcd; 20]), SwarmCounts::default())];
    assert_eq!(read_scrape(&body).unwrap(), wanted);
    let (_, body) = tracker.get("/scrape", "").await;
    assert!(matches!(read_scrape(&body), Err(AnswerError::Refused(_))));

    let page = tracker.text("/").await;
    assert!(page.contains("run &lt;7&gt;") && page.contains("2 torrents, 3 peers"), "{page}");
    assert!(page.contains(&"ab".repeat(20)) && page.contains("width=device-width"), "{page}");
    let stats = tracker.text("/stats.json").await;
    assert!(stats.contains("\"name\":\"run <7>\"") && stats.contains("\"seeders\":2"), "{stats}");
    let metrics = tracker.text("/metrics").await;
    for line in [
        "swath_tracker_peers 3",
        "swath_tracker_torrents 1",
        "swath_tracker_announces_total 3",
        "swath_tracker_refused_total{reason=\"torrent\"} 0",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is missing:\n{metrics}");
    }
    assert_eq!(tracker.text("/health").await, "well\n");
    assert_eq!(tracker.get("/other/thing", "").await.0, 404);
    // A program that lists all torrents needs no more than the page has.
    let other = Announce { info_hash: InfoHash([1; 20]), ..peer(1, 0) };
    let refused = tracker.announce("", &other).await.unwrap_err();
    assert_eq!(
        refused,
        AnswerError::Refused("this tracker does not track this torrent".to_owned())
    );
    tracker.stop().await;
}

#[tokio::test]
async fn malformed_requests_are_refused_in_words() {
    let tracker = Running::start(options()).await;
    for (target, reason) in [
        ("/announce", "the request has no port"),
        ("/announce?port=1&info_hash=short", "the request has an invalid info_hash"),
        ("/scrape?info_hash=%a", "the request has an invalid info_hash"),
    ] {
        let (status, body) = tracker.get(target, "").await;
        let refused = AnswerError::Refused(reason.to_owned());
        assert_eq!((status, read_announce(&body)), (200, Err(refused)), "{target}");
    }
    let refused = tracker.announce("", &peer(0, 0)).await.unwrap_err();
    assert!(refused.to_string().contains("port 0"), "{refused}");
    tracker.stop().await;
}

#[tokio::test]
async fn passkeys_open_and_are_shown_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let lists = lists(folder.path(), &[("passkeys", "0123456789abcdef Ada\n")]);
    let tracker = Running::start(swath_tracker::TrackerOptions { lists, ..options() }).await;
    assert_eq!(tracker.announce("/0123456789abcdef", &peer(1, 0)).await.unwrap().seeders, Some(1));
    for (begin, reason) in [("", "needs a passkey"), ("/0123456789abcdeF", "does not know your")] {
        let refused = tracker.announce(begin, &peer(1, 0)).await.unwrap_err().to_string();
        assert!(refused.contains(reason), "{begin}: {refused}");
    }
    for target in ["/", "/stats.json", "/0123456789abcdeF/", "/wrong-key/stats.json"] {
        assert_eq!(tracker.get(target, "").await.0, 403, "{target}");
    }
    // Links of the page need the `/`.
    let (status, _) = tracker.get("/0123456789abcdef", "").await;
    assert_eq!((status, tracker.get("/0123456789abcdeF", "").await.0), (308, 403));
    for target in ["/0123456789abcdef/", "/0123456789abcdef/stats.json", "/metrics"] {
        let page = tracker.text(target).await;
        assert!(!page.contains("0123456789abcdef") && !page.contains("Ada"), "{page}");
    }
    let scrape = format!("/0123456789abcdef/scrape?info_hash={}", "%AB".repeat(20));
    assert_eq!(read_scrape(&tracker.get(&scrape, "").await.1).unwrap()[0].1.seeders, 1);
    tracker.stop().await;
}

#[tokio::test]
async fn a_trusted_proxy_tells_who_its_clients_are() {
    let proxies = vec!["127.0.0.1".parse().unwrap()];
    let tracker = Running::start(swath_tracker::TrackerOptions { proxies, ..options() }).await;
    let target = |port| {
        swath_formats::tracker::http::announce_url("/announce", &peer(port, 5)) + "&ip=198.51.100.9"
    };
    // What stands before the last address comes from the client itself.
    let told = "X-Forwarded-For: 198.51.100.7, 192.0.2.1\r\n";
    tracker.get(&target(1), told).await;
    let (_, body) = tracker.get(&target(2), "").await;
    let answer = read_announce(&body).unwrap();
    assert_eq!(answer.peers[0].address, "192.0.2.1:1".parse().unwrap());
    assert_eq!(answer.own_address, Some("127.0.0.1".parse().unwrap()));
    tracker.stop().await;

    let tracker = Running::start(options()).await;
    let (_, body) = tracker.get(&target(1), told).await;
    assert_eq!(read_announce(&body).unwrap().own_address, Some("127.0.0.1".parse().unwrap()));
    tracker.stop().await;
}
