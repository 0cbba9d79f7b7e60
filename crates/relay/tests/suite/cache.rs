//! A relay that keeps what passes: each byte crosses the way to its server once, whoever asks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;

use swath_netlab::faulty::{Behaviour, Content, Scope, Server};

use crate::support::{
    FILE, LONG, Relay, caching, caching_up_to, connect, head_of, honest, options, server, until,
    url, whole,
};

const MIB: u64 = 1 << 20;

/// How many bytes of the file its server sent, all requests together.
fn sent(origin: &Server) -> u64 {
    origin.log().sent_bytes(FILE)
}

/// It has sent so many, and has noted them, which may be a moment after they came.
#[track_caller]
fn has_sent(origin: &Server, bytes: u64) {
    until(&format!("it has sent {bytes}, not {}", sent(origin)), || sent(origin) == bytes);
}

/// A request for the whole, of which the head of the answer has come.
fn begins(relay: &Relay, origin: &Server) -> TcpStream {
    let mut tcp = connect(relay.address);
    write!(tcp, "GET /relay/{} HTTP/1.1\r\nHost: a\r\n\r\n", url(origin)).unwrap();
    assert!(head_of(&mut tcp).unwrap().starts_with("HTTP/1.1 200 "));
    tcp
}

/// The server sends nothing more behind so many bytes, until its rules are cleared.
fn stalls(content: &Content, after_bytes: u64) -> Server {
    server(content, Behaviour::Stall { after_bytes, lasts: LONG, scope: Scope::Server })
}

#[test]
fn ten_clients_make_one_copy() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(1, 4 * MIB + 17);
    // It waits in the middle until all ask.
    let origin = stalls(&content, MIB);
    let relay = Relay::start(caching(folder.path()));
    let mut clients: Vec<TcpStream> = (0..10).map(|_| begins(&relay, &origin)).collect();
    origin.clear();
    for tcp in &mut clients {
        let mut came = vec![0; content.size_bytes() as usize];
        tcp.read_exact(&mut came).unwrap();
        assert!(came == whole(&content));
    }
    // What had been on its way when the last who waited for it left may come twice.
    let copies = relay.metric("swath_relay_cache_fetched_bytes_total");
    assert!(copies <= content.size_bytes() * 102 / 100, "{copies}");
    assert!(sent(&origin) <= content.size_bytes() * 102 / 100, "{}", sent(&origin));
}

#[test]
fn what_was_fetched_once_is_told_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(2, 3 * MIB + 5);
    let origin = honest(&content);
    let relay = Relay::start(caching(folder.path()));
    let from = url(&origin);
    let first = relay.get(&from, "Range: bytes=0-\r\n").is(206).says("cache;desc=miss");
    assert!(first.head.contains("server-timing: hop;desc="), "{first:?}");
    let second = relay.get(&from, "Range: bytes=100-200\r\n").is(206);
    for word in ["cache;desc=hit", "\nage: ", "\nvia: 1.1 swath-", "content-range: bytes 100-200/"]
    {
        assert!(second.head.contains(word), "{word}: {second:?}");
    }
    assert!(!second.head.contains("hop;"), "nobody was asked: {second:?}");
    assert!(second.body == content.read(100, 201));
    has_sent(&origin, content.size_bytes());
    assert_eq!(relay.metric("swath_relay_cache_files"), 1);
    assert!(relay.metric("swath_relay_cache_sent_bytes_total") >= content.size_bytes() + 101);
}

#[test]
fn conditions_heads_and_what_lies_behind_the_end_are_answered_from_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(2, 100_000);
    let origin = honest(&content);
    let relay = Relay::start(caching(folder.path()));
    let from = url(&origin);
    let etag = relay.get(&from, "").is(200).field("etag").unwrap().to_owned();
    for (more, status) in [
        (format!("If-None-Match: {etag}"), 304),
        ("If-Match: \"other\"".to_owned(), 412),
        (format!("If-Match: {etag}"), 206),
        (format!("If-Range: {etag}"), 206),
        ("If-Range: \"other\"".to_owned(), 200),
    ] {
        let told = relay.get(&from, &format!("Range: bytes=7-9\r\n{more}\r\n")).is(status);
        assert!(status != 206 || told.body == content.read(7, 10), "{more}");
    }
    relay.get(&from, "Range: bytes=99999999-\r\n").is(416).says("bytes */100000");
    assert!(relay.get(&from, "Range: bytes=-5\r\n").is(206).body == content.read(99_995, 100_000));
    let head = relay.head(&from, "").is(200).says("cache;");
    assert_eq!(head.field("content-length"), Some("100000"));
    has_sent(&origin, content.size_bytes());
}

#[test]
fn whoever_asks_ahead_is_answered_in_order_by_the_cache_too() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(2, 3 * MIB);
    let origin = honest(&content);
    let relay = Relay::start(caching(folder.path()));
    let ranges = [(5u64, 9u64), (2_000_000, 2_000_999), (300, 300)];
    let requests = ranges.iter().enumerate().map(|(at, (first, last))| {
        let end = if at == 2 { "Connection: close\r\n" } else { "" };
        let target = format!("/relay/{}", url(&origin));
        format!("GET {target} HTTP/1.1\r\nHost: a\r\nRange: bytes={first}-{last}\r\n{end}\r\n")
    });
    let answer = relay.raw(&requests.collect::<String>());
    let mut rest = answer.as_slice();
    for (first, last) in ranges {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let bytes = (last - first + 1) as usize;
        assert!(rest[end..end + bytes] == content.read(first, last + 1), "{first}");
        rest = &rest[end + bytes..];
    }
    assert!(rest.is_empty());
}

#[test]
fn a_relay_that_begins_again_loses_nothing_of_what_it_kept() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(2, 3 * MIB + 5);
    let origin = honest(&content);
    let relay = Relay::start(caching(folder.path()));
    assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
    drop(relay);
    let relay = Relay::start(caching(folder.path()));
    assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
    has_sent(&origin, content.size_bytes());
    assert_eq!(relay.metric("swath_relay_cache_files"), 1);
    assert_eq!(relay.metric("swath_relay_cache_fetched_bytes_total"), 0);
}

#[test]
fn damaged_files_are_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(11, 4 * MIB);
    let origin = honest(&content);
    let relay = Relay::start(caching(folder.path()));
    relay.get(&url(&origin), "").is(200);
    drop(relay);
    let files: Vec<_> = fs::read_dir(folder.path().join("files")).unwrap().collect();
    assert_eq!(files.len(), 1);
    let path = files[0].as_ref().unwrap().path();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(b"not what came", 2 * MIB + 12_345).unwrap();
    let relay = Relay::start(caching(folder.path()));
    assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
    let again = sent(&origin) - content.size_bytes();
    assert!(again > 0 && again <= MIB, "one group, not all: {again}");
}

#[test]
fn a_full_cache_costs_nobody_anything() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(6, 12 * MIB);
    let origin = honest(&content);
    let relay = Relay::start(caching_up_to(folder.path(), 3 * MIB));
    for _ in 0..2 {
        assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
    }
    assert!(sent(&origin) < 2 * content.size_bytes(), "some of it was kept");
    let kept = relay.metric("swath_relay_cache_bytes");
    assert!(kept > MIB && kept <= 3 * MIB, "{kept}");
    assert_eq!(relay.metric("swath_relay_cache_size_bytes"), 3 * MIB);
    // Others take its place.
    let small = Content::random(7, 2 * MIB);
    let other = honest(&small);
    for _ in 0..2 {
        assert!(relay.get(&url(&other), "").is(200).body == whole(&small));
    }
    has_sent(&other, small.size_bytes());
    assert!(relay.metric("swath_relay_cache_bytes") <= 3 * MIB);
}

#[test]
fn who_leaves_stops_nobody_who_waits_for_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(8, 8 * MIB);
    let origin = stalls(&content, MIB);
    let relay = Relay::start(caching(folder.path()));
    // The one for whom it is fetched goes away.
    let first = begins(&relay, &origin);
    let mut second = begins(&relay, &origin);
    second.read_exact(&mut vec![0; 100_000]).unwrap();
    drop(first);
    origin.clear();
    let mut rest = vec![0; content.size_bytes() as usize - 100_000];
    second.read_exact(&mut rest).unwrap();
    assert!(rest == content.read(100_000, content.size_bytes()));
    assert!(sent(&origin) <= content.size_bytes() * 112 / 100, "{}", sent(&origin));
}

#[test]
fn with_the_last_who_wants_it_the_fetching_ends() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(9, 1024 * MIB);
    let origin = stalls(&content, 8 * MIB);
    // It keeps little, so that no disk is filled.
    let relay = Relay::start(caching_up_to(folder.path(), 64 * MIB));
    let mut only = begins(&relay, &origin);
    only.read_exact(&mut vec![0; 1 << 20]).unwrap();
    drop(only);
    until("it has left", || relay.noted().len() == 1);
    origin.clear();
    // By the time that somebody has all of another file, much of this one would have come.
    let other = Content::random(10, 64 * MIB);
    let flows = honest(&other);
    let mut taken = begins(&relay, &flows).take(other.size_bytes());
    assert_eq!(std::io::copy(&mut taken, &mut std::io::sink()).unwrap(), other.size_bytes());
    assert!(sent(&origin) < 16 * MIB, "{}", sent(&origin));
}

#[test]
fn no_more_is_fetched_than_is_taken_but_for_what_lies_just_ahead() {
    let (content, other) = (Content::random(9, 400 * MIB), Content::random(10, 100 * MIB));
    let (held, flows) = (honest(&content), honest(&other));
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(caching_up_to(folder.path(), 1024 * MIB));
    let mut waits = begins(&relay, &held);
    waits.read_exact(&mut vec![0; 1 << 20]).unwrap();
    // By the time that another one has all of another file, all of this could have come.
    let mut taken = begins(&relay, &flows).take(other.size_bytes());
    assert_eq!(std::io::copy(&mut taken, &mut std::io::sink()).unwrap(), other.size_bytes());
    let fetched = sent(&held);
    assert!(fetched < 80 * MIB, "{fetched}");
}

#[test]
fn hundreds_of_clients_are_one() {
    const CLIENTS: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(10, 4 * MIB);
    let origin = honest(&content);
    let relay = Relay::start(caching(folder.path()));
    let target = format!("/relay/{}", url(&origin));
    let mut all: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(relay.address)).collect();
    for (at, tcp) in all.iter_mut().enumerate() {
        let range = format!("bytes={}-{}", at * 4000, at * 4000 + 3999);
        write!(tcp, "GET {target} HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n").unwrap();
    }
    for (at, tcp) in (0u64..).zip(&mut all) {
        assert!(head_of(tcp).unwrap().starts_with("HTTP/1.1 206 "), "{at}");
        let mut came = vec![0; 4000];
        tcp.read_exact(&mut came).unwrap();
        assert!(came == content.read(at * 4000, at * 4000 + 4000), "{at}");
    }
    // What was on its way when the last who waited for it left may come twice.
    assert!(sent(&origin) <= content.size_bytes() * 11 / 10, "{}", sent(&origin));
}

#[tokio::test]
async fn a_folder_that_another_relay_has_open_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _relay = Relay::start(caching(folder.path()));
    let listening = swath_serve::Listening {
        at: vec!["127.0.0.1:0".parse().unwrap()],
        tls: swath_serve::Tls::Plain,
        max_connections: 9,
        congestion: swath_serve::Congestion::Auto,
    };
    let relay = caching(folder.path());
    let second = swath_relay::RelayServerOptions { relay, listening: listening.clone() };
    let error = swath_relay::bind(second, None).await.map(drop).unwrap_err();
    assert!(matches!(error, swath_relay::RelayError::Cache(_)), "{error}");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    let relay = options();
    swath_relay::bind(swath_relay::RelayServerOptions { relay, listening }, None).await.unwrap();
}

#[test]
fn a_cache_whose_folder_is_taken_away_passes_on_what_it_cannot_keep() {
    let folder = tempfile::tempdir().unwrap();
    let content = Content::random(6, 3 * MIB);
    let origin = honest(&content);
    let kept = folder.path().join("kept");
    let relay = Relay::start(caching(&kept));
    fs::remove_dir_all(&kept).unwrap();
    for _ in 0..2 {
        assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
    }
}
