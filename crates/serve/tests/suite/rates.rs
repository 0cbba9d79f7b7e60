//! Limits of rates, on a clock that stands still until nothing else is left to do: what comes when is
//! exact, whatever else the machine does.

use std::sync::Arc;
use std::time::Duration;

use swath_model::Limiter;
use swath_serve::http::Pace;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;

use crate::pipe::Piped;
use crate::support::{Tree, auth, bytes};

/// What a second may bring in these tests.
const RATE_BYTES_PER_S: u64 = 1_000_000;
/// So much may come at once when a limit begins: what was not used of the last 50 ms, and the turn
/// that is due (20 ms).
const BURST_S: f64 = 0.072;

fn limited(files: &[(&str, usize)]) -> (Tree, Piped) {
    let tree = Tree::new();
    tree.folder("tree");
    for (name, size_bytes) in files {
        tree.write(&format!("tree/{name}"), bytes(3, *size_bytes));
    }
    let plan = tree.plan(&["tree"]).writes().limit(RATE_BYTES_PER_S);
    let piped = Piped::of(plan.into_site());
    (tree, piped)
}

/// When how many bytes of the answer were there.
async fn fetch(mut client: DuplexStream, name: &str) -> Vec<(Duration, usize)> {
    let began = Instant::now();
    let head = format!("GET /{name} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{}", auth());
    client.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    let mut steps = Vec::new();
    let (mut part, mut all) = (vec![0; 64 << 10], 0);
    loop {
        let bytes = client.read(&mut part).await.unwrap();
        if bytes == 0 {
            return steps;
        }
        all += bytes;
        steps.push((began.elapsed(), all));
    }
}

/// The least time that the limit leaves for so many bytes.
fn least(size_bytes: usize) -> Duration {
    Duration::from_secs_f64(size_bytes as f64 / RATE_BYTES_PER_S as f64 - BURST_S)
}

/// And the most that it takes where nothing else holds it up.
fn most(size_bytes: usize) -> Duration {
    Duration::from_secs_f64(size_bytes as f64 / RATE_BYTES_PER_S as f64 + BURST_S)
}

#[tokio::test(start_paused = true)]
async fn a_file_comes_at_the_limit_and_smoothly() {
    let (_tree, site) = limited(&[("file", 2_000_000)]);
    let (client, _served) = site.connect(1 << 20);
    let steps = fetch(client, "file").await;
    let (took, all) = *steps.last().unwrap();
    assert!(all > 2_000_000, "all came: {all}");
    assert!(took >= least(2_000_000) && took <= most(2_000_000), "{took:?}");
    // What is sent once a second comes in steps of 1,000,000 bytes; 20 ms are a share here.
    for (at, &(from, before)) in steps.iter().enumerate() {
        let soon =
            steps[at..].iter().take_while(|(then, _)| *then < from + Duration::from_millis(100));
        let brought = soon.last().unwrap().1 - before;
        assert!(brought < 200_000, "{brought} bytes within 100 ms at {from:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_share_it_evenly() {
    let (_tree, site) = limited(&[("file", 800_000)]);
    let all: Vec<_> =
        (0..3).map(|_| tokio::spawn(fetch(site.connect(1 << 20).0, "file"))).collect();
    let mut ends = Vec::new();
    for one in all {
        ends.push(one.await.unwrap().last().unwrap().0);
    }
    ends.sort_unstable();
    // One before the others it would have been there after 0.8 s.
    assert!(ends[0] >= least(2_200_000), "{ends:?}");
    assert!(ends[2] >= least(2_400_000) && ends[2] <= most(2_400_000), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_others_are_served_waits_for_nobody() {
    let (_tree, site) = limited(&[("large", 2_000_000), ("small", 20_000)]);
    let large = tokio::spawn(fetch(site.connect(1 << 20).0, "large"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let took = fetch(site.connect(1 << 20).0, "small").await.last().unwrap().0;
    assert!(took < Duration::from_millis(150), "{took:?}");
    assert!(large.await.unwrap().last().unwrap().0 >= least(2_020_000));
}

#[tokio::test(start_paused = true)]
async fn pages_and_trees_count_as_files_do() {
    let (tree, site) = limited(&[("file", 400_000)]);
    for n in 0..1500 {
        tree.write(&format!("tree/many/{n:0100}"), "");
    }
    let page = fetch(site.connect(1 << 20).0, "many/").await;
    let (took, all) = *page.last().unwrap();
    assert!(all > 300_000 && took >= least(all - 1000), "{all} bytes in {took:?}");
    let index = fetch(site.connect(1 << 20).0, "?swath=index").await;
    let (took, all) = *index.last().unwrap();
    assert!(took >= least(all - 1000), "{all} bytes in {took:?}");
}

#[tokio::test(start_paused = true)]
async fn files_are_taken_at_the_limit() {
    let (tree, site) = limited(&[]);
    let (mut client, _served) = site.connect(64 << 10);
    let body = bytes(1, 1_200_000);
    let began = Instant::now();
    let head = format!("PUT /new HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{}", auth());
    let head = format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len());
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&body).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&answer));
    let took = began.elapsed();
    // What comes with the head is not waited for.
    assert!(took >= least(1_200_000 - 16_384) && took <= most(1_200_000), "{took:?}");
    assert!(tree.read("tree/new") == body);
}

#[tokio::test(start_paused = true)]
async fn a_share_that_was_not_used_goes_back() {
    let limiter = Arc::new(Limiter::new(Some(RATE_BYTES_PER_S)));
    let mut one = Pace::new(Some(Arc::clone(&limiter)));
    let began = Instant::now();
    one.spend_all(500_000).await;
    assert!(began.elapsed() >= least(500_000), "{:?}", began.elapsed());
    // Each takes a share and leaves: nobody after them waits for it.
    for _ in 0..100 {
        let mut leaves = Pace::new(Some(Arc::clone(&limiter)));
        assert!(leaves.allowed(1 << 20).await > 0);
    }
    let before = began.elapsed();
    one.spend_all(20_000).await;
    assert!(began.elapsed() - before < Duration::from_millis(100), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_lifted_holds_up_nobody() {
    let limiter = Arc::new(Limiter::new(Some(1000)));
    let mut pace = Pace::new(Some(Arc::clone(&limiter)));
    assert!(pace.is_limited());
    pace.spend_all(1000).await;
    limiter.set(None);
    assert!(!pace.is_limited());
    let began = Instant::now();
    pace.spend_all(1 << 40).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    let mut none = Pace::new(None);
    none.spend_all(1 << 40).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}
