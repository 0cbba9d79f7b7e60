//! A server without rules is a correct one.

use std::time::Duration;

use swath_netlab::faulty::{Content, Server};

use super::client::{Client, get};

const SIZE_BYTES: u64 = 300_000;

fn honest() -> (Server, Content) {
    let content = Content::random(3, SIZE_BYTES);
    (Server::builder().file("/f", content.clone()).start().unwrap(), content)
}

#[test]
fn whole_parts_and_suffixes_on_one_connection() {
    let (server, content) = honest();
    let mut client = Client::to(&server);
    let whole = client.get("/f", &[]);
    assert_eq!((whole.status, whole.body), (200, content.read(0, SIZE_BYTES)));
    for (spec, start, end) in
        [("0-0", 0, 1), ("10-99", 10, 100), ("299990-", 299_990, 300_000), ("-7", 299_993, 300_000)]
    {
        let part = client.get("/f", &[&format!("Range: bytes={spec}")]);
        assert_eq!(part.status, 206, "{spec}");
        assert_eq!(part.body, content.read(start, end), "{spec}");
        let said = format!("bytes {start}-{}/{SIZE_BYTES}", end - 1);
        assert_eq!(part.header("content-range"), Some(said.as_str()));
    }
    let several = client.get("/f", &["Range: bytes=0-1,5-6"]);
    assert_eq!((several.status, several.body.len() as u64), (200, SIZE_BYTES));
    let beyond = client.get("/f", &["Range: bytes=300000-"]);
    assert_eq!(beyond.status, 416);
    assert_eq!(beyond.header("content-range"), Some("bytes */300000"));
    assert_eq!(client.get("/none", &[]).status, 404);
    assert_eq!(server.connections(), 1);

    let log = server.log();
    assert_eq!((log.len(), log.connections(), log.count("GET")), (8, 1, 8));
    assert_eq!(log.records[2].range, Some(10..100));
    assert_eq!(log.records[2].sent_bytes, 90);
    assert_eq!(log.records[2].range_header(), Some("bytes=10-99"));
    assert!(log.records.iter().take(7).all(|record| record.complete && record.ended.is_some()));
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let (server, _) = honest();
    let mut client = Client::to(&server);
    client.send("HEAD", "/f", &[]);
    let head = client.head().unwrap();
    assert!(head.contains("Content-Length: 300000\r\n") && head.contains("Accept-Ranges: bytes"));
    assert!(head.contains("ETag: \"") && head.contains("Last-Modified: Mon, 01 Jan 2024"));
    // The next answer follows at once.
    assert_eq!(client.get("/f", &["Range: bytes=0-0"]).status, 206);
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let (server, content) = honest();
    let mut client = Client::to(&server);
    for start in (0..50).map(|number| number * 1000) {
        client.send("GET", "/f", &[&format!("Range: bytes={start}-{}", start + 999)]);
    }
    for start in (0..50).map(|number| number * 1000) {
        assert_eq!(client.answer().unwrap().body, content.read(start, start + 1000));
    }
    assert_eq!(server.log().repeated_bytes("/f"), 0);
}

#[test]
fn preconditions() {
    let (server, _) = honest();
    let mut client = Client::to(&server);
    let first = client.get("/f", &[]);
    let tag = first.header("etag").unwrap().to_owned();
    let date = first.header("last-modified").unwrap().to_owned();
    let mut status = |header: String| client.get("/f", &["Range: bytes=0-9", &header]).status;
    assert_eq!(status(format!("If-Range: {tag}")), 206);
    assert_eq!(status(format!("If-Range: {date}")), 206);
    assert_eq!(status("If-Range: \"other\"".into()), 200);
    assert_eq!(status(format!("If-Match: {tag}")), 206);
    assert_eq!(status("If-Match: \"other\"".into()), 412);
    assert_eq!(status(format!("If-None-Match: {tag}")), 304);
    assert_eq!(status("If-None-Match: \"other\"".into()), 206);
}

#[test]
fn replicas_share_their_validators_and_other_files_do_not() {
    let (one, _) = honest();
    let (two, _) = honest();
    let other = Server::builder().file("/f", Content::random(4, SIZE_BYTES)).start().unwrap();
    let tag = |server: &Server| get(server, "/f", &[]).header("etag").unwrap().to_owned();
    assert_eq!(tag(&one), tag(&two));
    assert_ne!(tag(&one), tag(&other));
}

#[test]
fn empty_files_files_on_disk_and_other_methods() {
    let dir = std::env::temp_dir().join(format!("netlab-honest-{}", std::process::id()));
    std::fs::write(&dir, b"on disk").unwrap();
    let server = Server::builder()
        .file("/empty", Content::bytes(Vec::new()))
        .file("/disk.txt", Content::file(&dir).unwrap())
        .start()
        .unwrap();
    std::fs::remove_file(&dir).unwrap();
    let mut client = Client::to(&server);
    let empty = client.get("/empty", &[]);
    assert_eq!((empty.status, empty.header("content-length")), (200, Some("0")));
    assert_eq!(client.get("/empty", &["Range: bytes=0-"]).status, 416);
    let disk = client.get("/disk.txt", &["Range: bytes=3-"]);
    assert_eq!((disk.status, disk.body.as_slice()), (206, b"disk".as_slice()));
    assert_eq!(disk.header("content-type"), Some("text/plain; charset=utf-8"));
    client.send("POST", "/empty", &["Content-Length: 3"]);
    std::io::Write::write_all(&mut client.socket, b"abc").unwrap();
    assert_eq!(client.answer().unwrap().status, 405);
    assert_eq!(client.get("/empty", &[]).status, 200);
}

#[test]
fn close_is_honoured_and_junk_is_refused() {
    let (server, _) = honest();
    let mut client = Client::to(&server);
    let answer = client.get("/f", &["Range: bytes=0-9", "Connection: close"]);
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(client.rest(), Ok(vec![]));
    let mut client = Client::to(&server);
    std::io::Write::write_all(&mut client.socket, b"\x16\x03\x01 hello\r\n\r\n").unwrap();
    assert_eq!(client.answer().unwrap().status, 400);
}

#[test]
fn a_dropped_server_leaves_nothing() {
    let start = |port| Server::builder().port(port).file("/f", Content::random(3, 10)).start();
    let server = start(swath_netlab::reserve_port()).unwrap();
    assert!(start(server.port()).is_err(), "one port, one server");
    let address = server.address();
    let mut client = Client::to(&server);
    client.get("/f", &["Range: bytes=0-0"]);
    drop(server);
    assert!(std::net::TcpStream::connect(address).is_err());
    assert_eq!(client.rest().unwrap_or_default(), Vec::<u8>::new());
    assert_eq!(start(address.port()).unwrap().port(), address.port());
}

#[test]
fn a_hundred_gibibytes_cost_nothing() {
    let content = Content::random(7, 100 << 30);
    let server = Server::builder().file("/huge", content.clone()).start().unwrap();
    let part = get(&server, "/huge", &["Range: bytes=-1000"]);
    assert_eq!(part.body, content.read((100 << 30) - 1000, 100 << 30));
    assert_eq!(part.header("content-range"), Some("bytes 107374181400-107374182399/107374182400"));
}

#[test]
fn open_connections_are_counted() {
    let (server, _) = honest();
    let clients: Vec<_> = (0..3).map(|_| Client::to(&server)).collect();
    let wait = super::client::HANG;
    assert!(server.wait_until(wait, |server| server.open_connections() == 3));
    drop(clients);
    assert!(server.wait_until(wait, |server| server.open_connections() == 0));
    assert_eq!(server.connections(), 3);
    assert!(!server.wait_until(Duration::ZERO, |server| server.connections() == 4));
}

#[test]
fn ipv6_too() {
    let server = Server::builder().ipv6().file("/f", Content::bytes("six")).start().unwrap();
    assert!(server.url("/f").starts_with("http://[::1]:"));
    assert_eq!(get(&server, "/f", &[]).body, b"six");
}
