//! How long a server waits for its clients: on a clock that stands still until nothing is left to do, so
//! that a minute takes no time and no pause of the machine counts.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};

use crate::pipe::Piped;
use crate::support::{Tree, auth};

/// A site of one file, which takes files too.
fn site() -> (Tree, Piped) {
    let tree = Tree::of(&[("tree/a.txt", "alpha\n")]);
    let plan = tree.plan(&["tree"]).writes();
    let piped = Piped::of(plan.into_site());
    (tree, piped)
}

fn get() -> String {
    format!("GET /a.txt HTTP/1.1\r\nHost: h\r\n{}\r\n\r\n", auth())
}

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_given_up() {
    let (_tree, site) = site();
    let (client, _served) = site.connect(4096);
    let (mut reads, mut writes) = tokio::io::split(client);
    let began = Instant::now();
    writes.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n").await.unwrap();
    // A field every second: something always comes, and it is never enough.
    let drips = tokio::spawn(async move {
        while writes.write_all(b"X: y\r\n").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    let mut answer = [0; 13];
    reads.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408 ");
    assert_eq!(began.elapsed().as_secs(), 15);
    drop(reads);
    drips.abort();
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_left() {
    // What has a request's head come in time began with its first byte: without one it was 75 s.
    let (_tree, site) = site();
    let (mut client, served) = site.connect(4096);
    let began = Instant::now();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "it was closed without a word");
    assert_eq!(began.elapsed().as_secs(), 15);
    drop(client);
    served.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_of_use_is_kept_for_longer() {
    let (_tree, site) = site();
    let (mut client, _served) = site.connect(4096);
    for _ in 0..3 {
        client.write_all(get().as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"alpha\n") {
            client.read_buf(&mut answer).await.unwrap();
        }
        sleep(Duration::from_secs(60)).await;
    }
    let began = Instant::now();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "it was closed");
    assert_eq!(60 + began.elapsed().as_secs(), 75);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_is_given_up() {
    let (tree, site) = site();
    let (mut client, _served) = site.connect(1 << 20);
    let began = Instant::now();
    let head = format!("PUT /new HTTP/1.1\r\nHost: h\r\n{}\r\nContent-Length: 10\r\n\r\n", auth());
    client.write_all(head.as_bytes()).await.unwrap();
    // Slow, and not silent.
    for _ in 0..5 {
        sleep(Duration::from_secs(50)).await;
        client.write_all(b"x").await.unwrap();
    }
    let mut answer = [0; 13];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408 ");
    assert_eq!(began.elapsed().as_secs(), 5 * 50 + 60);
    assert_eq!(tree.names_in("tree"), ["a.txt"]);
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_of_an_answer_is_left() {
    let tree = Tree::new();
    tree.write("tree/large", vec![7; 1 << 20]);
    let site = Piped::of(tree.plan(&["tree"]).into_site());
    let (mut client, served) = site.connect(4096);
    client.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let mut part = vec![0; 4096];
    // Whoever takes a little now and then is slow, and not silent.
    for _ in 0..5 {
        client.read_exact(&mut part).await.unwrap();
        sleep(Duration::from_secs(100)).await;
    }
    let began = Instant::now();
    served.await.unwrap();
    let took_s = 100 + began.elapsed().as_secs();
    assert!((120..125).contains(&took_s), "{took_s} s, with a farewell");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() < 1 << 20, "it was cut off after {} bytes", rest.len());
}

#[tokio::test(start_paused = true)]
async fn a_refused_body_is_read_to_its_end_and_not_for_ever() {
    let (tree, site) = site();
    tree.folder("tree/folder");
    let (mut client, served) = site.connect(1 << 20);
    let head =
        format!("PUT /folder HTTP/1.1\r\nHost: h\r\n{}\r\nContent-Length: 10\r\n\r\n", auth());
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 13];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 409 ");
    let began = Instant::now();
    served.await.unwrap();
    let took_s = began.elapsed().as_secs();
    assert!((15..20).contains(&took_s), "{took_s} s, and a farewell");
}
