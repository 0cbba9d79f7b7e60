//! What changes while a tracker runs, and what survives its end.

use std::time::Duration;

use swath_formats::tracker::http::AnswerError;
use swath_formats::tracker::{Announce, InfoHash};
use swath_tracker::{KeepError, TrackerError, TrackerOptions, bind};

use crate::support::{PATIENCE, Running, lists, options, peer, ports};

#[tokio::test]
async fn lists_are_read_again_when_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let one = format!("{} run 7\n", "ab".repeat(20));
    let files = lists(folder.path(), &[("whitelist", &one), ("networks", "127.0.0.0/8\n")]);
    let tracker = Running::start(TrackerOptions { lists: files, ..options() }).await;
    let other = Announce { info_hash: InfoHash([0xcd; 20]), ..peer(2, 0) };
    assert!(tracker.announce("", &peer(1, 0)).await.is_ok());
    assert!(tracker.announce("", &other).await.is_err());
    std::fs::write(folder.path().join("whitelist"), format!("{one}{}\n", "cd".repeat(20))).unwrap();
    tracker.notes("ListsRead").await;
    assert!(tracker.announce("", &other).await.is_ok());
    // The peers of the first torrent are still there.
    assert_eq!(ports(&tracker.announce("", &peer(2, 5)).await.unwrap()), [1]);
    std::fs::write(folder.path().join("networks"), "127.0.0.0/33\n").unwrap();
    tracker.notes("ListsKept").await;
    assert!(tracker.announce("", &other).await.is_ok());
    std::fs::write(folder.path().join("networks"), "192.0.2.0/24\n").unwrap();
    tokio::time::timeout(PATIENCE, async {
        while tracker.announce("", &other).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .expect("the new networks count");
    assert_eq!(tracker.get("/", "").await.0, 403);
    tracker.stop().await;
}

#[tokio::test]
async fn peers_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let state = Some(folder.path().join("new/peers"));
    let with_state = || TrackerOptions { state: state.clone(), ..options() };
    let tracker = Running::start(with_state()).await;
    for port in 1..=9 {
        tracker.announce("", &peer(port, u64::from(port > 3))).await.unwrap();
    }
    // A second tracker must not write the same file.
    let second = bind(with_state(), None, std::sync::Arc::new(|_| ())).await;
    assert!(matches!(second, Err(TrackerError::Keep(KeepError::InUse { .. }))));
    tracker.stop().await;

    let tracker = Running::start(with_state()).await;
    tracker.notes("Restored { peers: 9 }").await;
    let answer = tracker.announce("", &peer(10, 5)).await.unwrap();
    assert_eq!((ports(&answer).len(), answer.seeders, answer.leechers), (9, Some(3), Some(7)));
    tracker.stop().await;
}

#[tokio::test]
async fn a_damaged_file_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("peers");
    let damaged = "swath tracker 1\nand what no tracker writes";
    std::fs::write(&path, damaged).unwrap();
    let tracker = Running::start(TrackerOptions { state: Some(path.clone()), ..options() }).await;
    tracker.notes("Damaged").await;
    assert!(tracker.announce("", &peer(1, 0)).await.is_ok());
    tracker.stop().await;
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let aside = names.iter().find(|name| name.starts_with("peers.damaged-")).expect("kept");
    let kept = std::fs::read_to_string(folder.path().join(aside)).unwrap();
    assert_eq!(kept, damaged);
    assert!(path.exists() && !names.contains(&"peers.new".to_owned()), "{names:?}");
}

#[tokio::test]
async fn what_cannot_be_used_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let no_bind = async |options| match bind(options, None, std::sync::Arc::new(|_| ())).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it starts"),
    };
    let files = lists(folder.path(), &[("whitelist", "not a hash\n")]);
    let error = no_bind(TrackerOptions { lists: files, ..options() }).await;
    assert!(error.contains("whitelist: line 1: an info-hash has 40"), "{error}");
    // A port that is taken by UDP alone.
    let taken = std::iter::repeat_with(|| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let is_free = |address| std::net::TcpListener::bind(address).is_ok();
    let mut taken = taken.filter(|taken| is_free(taken.local_addr().unwrap()));
    let taken = taken.next().unwrap();
    let listen = vec![taken.local_addr().unwrap()];
    let error = no_bind(TrackerOptions { listen, ..options() }).await;
    assert!(error.ends_with("by UDP"), "{error}");
    // What is no file of a tracker stays as it is.
    let other = folder.path().join("whitelist");
    let error = no_bind(TrackerOptions { state: Some(other.clone()), ..options() }).await;
    assert!(error.ends_with("whitelist is not a file of a tracker's peers"), "{error}");
    assert_eq!(std::fs::read_to_string(other).unwrap(), "not a hash\n");
    let state = Some(folder.path().join("whitelist/peers"));
    let error = no_bind(TrackerOptions { state, ..options() }).await;
    assert!(error.starts_with("cannot keep the peers in "), "{error}");
}

#[tokio::test]
async fn a_refusal_is_no_error_of_http() {
    let folder = tempfile::tempdir().unwrap();
    let files = lists(folder.path(), &[("networks", "192.0.2.0/24\n")]);
    let tracker = Running::start(TrackerOptions { lists: files, ..options() }).await;
    let refused = tracker.announce("", &peer(1, 0)).await.unwrap_err();
    let words = "this tracker does not answer your address";
    assert_eq!(refused, AnswerError::Refused(words.to_owned()));
    for (target, status) in [("/", 403), ("/stats.json", 403), ("/metrics", 403), ("/health", 200)]
    {
        assert_eq!(tracker.get(target, "").await.0, status, "{target}");
    }
    tracker.stop().await;
}
