//! What can happen to bytes on their way: pace, silence, truncation, corruption, change, resets,
//! death.

use std::io::{ErrorKind, Read as _, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use swath_netlab::faulty::{Behaviour, Content, Death, Handle, Rule, Scope, Server, When};

use super::client::{Client, HANG, get, received};

const SIZE_BYTES: u64 = 1_000_000;

fn content() -> Content {
    Content::random(5, SIZE_BYTES)
}

fn server(rule: impl Into<Rule>) -> Server {
    Server::builder().file("/f", content()).behaviour(rule).start().unwrap()
}

/// Sends a GET and reads until the connection ends.
fn until_end(server: &Server, path: &str) -> (String, Result<Vec<u8>, ErrorKind>) {
    let mut client = Client::to(server);
    client.send("GET", path, &[]);
    let head = client.head().unwrap_or_default();
    (head, client.rest())
}

#[test]
fn a_rate_is_shared_by_all_connections() {
    let server = server(Behaviour::rate(2_000_000));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for start in [0, 400_000] {
            let server = &server;
            scope.spawn(move || {
                let range = format!("Range: bytes={start}-{}", start + 399_999);
                assert_eq!(get(server, "/f", &[&range]).body.len(), 400_000);
            });
        }
    });
    let took = started.elapsed();
    assert!(took > Duration::from_millis(340), "{took:?} is faster than the rate");
}

#[test]
fn a_connection_rate_is_each_connections_own_and_a_path_has_its_own_rate() {
    let server = Server::builder()
        .file("/f", content())
        .file("/slow", content())
        .behaviour(Behaviour::ConnectionRate { bytes_per_s: 500_000 })
        .behaviour_on("/slow", Behaviour::rate(100_000))
        .start()
        .unwrap();
    let started = Instant::now();
    get(&server, "/f", &["Range: bytes=0-199999"]);
    assert!(started.elapsed() > Duration::from_millis(350));
    let started = Instant::now();
    get(&server, "/slow", &["Range: bytes=0-49999"]);
    assert!(started.elapsed() > Duration::from_millis(440));
}

#[test]
fn a_rate_changes_in_the_middle_of_a_body() {
    let server = server(Behaviour::rate(100));
    let mut client = Client::to(&server);
    client.send("GET", "/f", &[]);
    client.head().unwrap();
    server.set(Behaviour::rate(0));
    let started = Instant::now();
    while client.buffer.len() < SIZE_BYTES as usize {
        assert!(client.more());
        assert!(started.elapsed() < HANG, "the old rate takes hours");
    }
}

#[test]
fn a_delay_is_paid_once_by_a_pipeline() {
    let delay = Duration::from_millis(400);
    let server = server(Behaviour::FirstByteDelay(delay));
    let mut client = Client::to(&server);
    let started = Instant::now();
    let requests = "GET /f HTTP/1.1\r\nHost: test\r\nRange: bytes=0-9\r\n\r\n".repeat(300);
    client.socket.write_all(requests.as_bytes()).unwrap();
    for _ in 0..300 {
        assert_eq!(client.answer().unwrap().status, 206);
    }
    let took = started.elapsed();
    assert!(took >= delay, "{took:?}");
    assert!(took < HANG, "{took:?}: paid by each of 300, for two minutes");
}

#[test]
fn a_stall_begins_at_its_byte_and_ends() {
    for scope in [Scope::Connection, Scope::Server] {
        let stall = |lasts| Behaviour::Stall { after_bytes: 1000, lasts, scope };
        let endless = server(stall(Duration::MAX));
        let mut client = Client::to(&endless);
        client.send("GET", "/f", &[]);
        client.head().unwrap();
        client.take(1000);
        let mut other = Client::to(&endless);
        other.send("GET", "/f", &["Range: bytes=0-9"]);
        if scope == Scope::Connection {
            assert_eq!(other.answer().unwrap().status, 206);
        } else {
            // It has received two more requests behind that of the other one, and answers none.
            Client::to(&endless).send("GET", "/f", &[]);
            received(&endless, 3);
            assert!(other.has_nothing(), "others pause too");
        }
        let sent_bytes = if scope == Scope::Connection { 1010 } else { 1000 };
        assert_eq!((client.buffer.len(), endless.sent_bytes()), (1000, sent_bytes), "{scope:?}");
        assert!(client.has_nothing(), "{scope:?}");

        let wait = Duration::from_millis(100);
        let short = server(stall(wait));
        let started = Instant::now();
        assert!(get(&short, "/f", &[]).body == content().read(0, SIZE_BYTES));
        assert!(started.elapsed() >= wait, "{scope:?}");
    }
}

/// Asks a silent server, and asserts that neither this nor the body on its way to `client` goes on, at
/// whatever rate.
fn assert_silent(server: &Server, client: &mut Client) -> Client {
    let requests = server.log().len();
    let mut other = Client::to(server);
    other.send("GET", "/f", &["Range: bytes=0-9"]);
    received(server, requests + 1);
    // What was on its way before the silence is counted already.
    let sent_bytes = server.sent_bytes();
    assert!(sent_bytes < SIZE_BYTES);
    client.take(sent_bytes);
    server.set(Behaviour::rate(0));
    Client::to(server).send("GET", "/f", &[]);
    received(server, requests + 2);
    assert_eq!(server.sent_bytes(), sent_bytes);
    assert!(client.has_nothing() && other.has_nothing());
    other
}

#[test]
fn silence_holds_bodies_and_new_requests_until_it_is_lifted() {
    let server = server(Behaviour::rate(200));
    let mut client = Client::to(&server);
    client.send("GET", "/f", &[]);
    client.head().unwrap();
    let silence = Behaviour::Silent { after: Duration::ZERO };
    server.set(silence.clone());
    let mut other = assert_silent(&server, &mut client);
    server.unset(&silence);
    assert_eq!(other.answer().unwrap().status, 206);
    client.take(SIZE_BYTES);
    assert_eq!(client.buffer, content().read(0, SIZE_BYTES));
}

#[test]
fn silence_comes_by_the_clock() {
    let server = server(Behaviour::rate(200));
    let mut client = Client::to(&server);
    client.send("GET", "/f", &[]);
    client.head().unwrap();
    let after = Duration::from_millis(200);
    let hour = Duration::from_secs(3600);
    server.set(Behaviour::Silent { after: hour });
    let mut other = Client::to(&server);
    other.send("HEAD", "/f", &[]);
    assert!(other.head().is_some());
    server.set(Behaviour::Silent { after });
    // The server has begun to count before this does.
    std::thread::sleep(after);
    assert_silent(&server, &mut client);
}

#[test]
fn a_slow_head_comes_byte_by_byte() {
    let server = server(Behaviour::SlowHead { byte_every: Duration::from_millis(3) });
    let mut client = Client::to(&server);
    let started = Instant::now();
    client.send("GET", "/f", &["Range: bytes=0-9"]);
    let bytes = client.head().unwrap().len() as u32;
    assert!(bytes > 100 && started.elapsed() >= Duration::from_millis(2) * bytes);
}

#[test]
fn truncated_bodies_end_in_fin_though_the_head_promised_more() {
    let server = server(Behaviour::Truncate { after_bytes: 12_345 });
    let (head, body) = until_end(&server, "/f");
    assert!(head.contains("Content-Length: 1000000"));
    assert_eq!(body, Ok(content().read(0, 12_345)));
    let record = &server.log().records[0];
    assert_eq!((record.complete, record.sent_bytes), (false, 12_345));
}

#[test]
fn a_lie_about_the_length_leaves_the_body_as_it_is() {
    let server = server(Behaviour::LengthLie { by: 10 });
    server.add(Behaviour::Close);
    let (head, body) = until_end(&server, "/f");
    assert!(head.contains("Content-Length: 1000010"));
    assert_eq!(body.unwrap().len(), 1_000_000);
    // Too short: what is over comes where the next answer should.
    server.clear();
    server.set(Behaviour::LengthLie { by: -4 });
    let mut client = Client::to(&server);
    let part = client.get("/f", &["Range: bytes=0-9"]);
    assert_eq!(part.body, content().read(0, 6));
    client.send("GET", "/f", &["Range: bytes=0-9"]);
    while client.buffer.len() < 8 {
        assert!(client.more());
    }
    assert_eq!(client.buffer[..4], content().read(6, 10));
    assert_eq!(client.buffer[4..8], *b"HTTP");
}

#[test]
fn corruption_stays_at_its_offset_whatever_is_asked() {
    let server = server(Behaviour::CorruptByte { at: 700_001 });
    server.add(Behaviour::CorruptByte { at: 5 });
    server.add(Behaviour::CorruptBlocks { block_bytes: 1000, every: 400 });
    let mut expected = content().read(0, SIZE_BYTES);
    for at in [5, 700_001, 399_000, 799_000] {
        expected[at] ^= 1;
    }
    assert!(get(&server, "/f", &[]).body == expected);
    let part = get(&server, "/f", &["Range: bytes=700000-700002"]).body;
    assert_eq!(part, expected[700_000..700_003]);
}

#[test]
fn the_file_changes_in_the_middle_of_a_body() {
    let new = Content::random(6, SIZE_BYTES);
    let server = server(Behaviour::ChangeAfter { bytes: 300_000, content: new.clone() });
    let before = get(&server, "/f", &["Range: bytes=0-0"]);
    let answer = get(&server, "/f", &[]);
    let mut expected = content().read(0, 299_999);
    expected.extend(new.read(299_999, SIZE_BYTES));
    assert!(answer.body == expected);
    assert_eq!(answer.header("etag"), before.header("etag"));
    let after = get(&server, "/f", &[]);
    assert!(after.body == new.read(0, SIZE_BYTES));
    assert_ne!(after.header("etag"), before.header("etag"));
    assert_ne!(after.header("last-modified"), before.header("last-modified"));
}

#[test]
fn replaced_files_finish_as_they_began_and_overwritten_ones_do_not() {
    for overwrite in [false, true] {
        let server = server(Behaviour::rate(200));
        let new = Content::random(6, if overwrite { 10_000 } else { SIZE_BYTES });
        let mut client = Client::to(&server);
        client.send("GET", "/f", &[]);
        client.head().unwrap();
        if overwrite {
            server.overwrite("/f", new.clone());
            server.set(Behaviour::rate(0));
            // The file became too short for the body: it cannot end well.
            let body = client.rest().unwrap();
            assert!(body.len() < SIZE_BYTES as usize);
        } else {
            server.replace("/f", new.clone());
            server.set(Behaviour::rate(0));
            while client.buffer.len() < SIZE_BYTES as usize {
                assert!(client.more());
            }
            assert!(client.buffer == content().read(0, SIZE_BYTES));
        }
        server.clear();
        assert!(get(&server, "/f", &[]).body == new.read(0, new.size_bytes()));
    }
}

#[test]
fn connections_drop_with_fin_or_reset_after_their_bytes() {
    let server = server(Behaviour::Drop { after_bytes: 150, reset: false });
    let mut client = Client::to(&server);
    assert_eq!(client.get("/f", &["Range: bytes=0-99"]).body.len(), 100);
    client.send("GET", "/f", &["Range: bytes=100-199"]);
    assert!(client.head().unwrap().contains("Content-Length: 100"));
    assert_eq!(client.rest().unwrap(), content().read(100, 150));

    server.set(Behaviour::Drop { after_bytes: 0, reset: true });
    let (_, body) = until_end(&server, "/f");
    assert_eq!(body, Err(ErrorKind::ConnectionReset));
}

#[test]
fn requests_stay_unanswered() {
    let server = server(Behaviour::Unanswered { reset: false }.after(1));
    let mut client = Client::to(&server);
    assert_eq!(client.get("/f", &["Range: bytes=0-9"]).status, 206);
    client.send("GET", "/f", &[]);
    assert_eq!(client.rest(), Ok(vec![]));
    server.set(Behaviour::Unanswered { reset: true });
    assert!(until_end(&server, "/f").0.is_empty());
    assert_eq!(server.log().records.last().unwrap().status, 0);
}

#[test]
fn a_server_dies_at_its_byte_and_comes_back_on_its_port() {
    let back_after = Some(Duration::from_millis(300));
    let server = server(Behaviour::Die { at: Death::Bytes(400_000), back_after });
    let (_, body) = until_end(&server, "/f");
    let body = body.unwrap();
    assert!(body == content().read(0, 400_000), "{} bytes", body.len());
    // It may be dying still, or dead.
    let is_back = |server: &Handle| {
        let Ok(mut tcp) = TcpStream::connect(server.address()) else { return false };
        let mut answer = Vec::new();
        let asked = tcp.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        asked.and_then(|()| tcp.read_to_end(&mut answer)).is_ok()
            && answer.ends_with(&content().read(0, SIZE_BYTES))
    };
    assert!(server.wait_until(HANG, is_back), "it does not come back");
}

#[test]
fn a_server_dies_by_the_clock_and_by_hand() {
    let server = server(Behaviour::rate(100));
    let mut client = Client::to(&server);
    client.send("GET", "/f", &[]);
    client.head().unwrap();
    let at = Death::Time(Duration::from_millis(200));
    server.set(Behaviour::Die { at, back_after: None });
    assert!(client.rest().unwrap_or_default().len() < SIZE_BYTES as usize);
    assert!(TcpStream::connect(server.address()).is_err());
    // The connections close a moment before the server says so.
    assert!(server.wait_until(HANG, |server| !server.is_alive()));
    server.revive();
    server.clear();
    assert!(server.is_alive());
    let mut kept = Client::to(&server);
    assert_eq!(kept.get("/f", &[]).status, 200);
    server.die();
    assert!(TcpStream::connect(server.address()).is_err());
    assert!(kept.rest().unwrap_or_default().is_empty());
    server.revive();
    assert_eq!(get(&server, "/f", &[]).status, 200);
}

#[test]
fn rules_choose_their_requests_and_can_be_taken_away() {
    let server = server(Behaviour::status(500).when(When::EveryNth(3)));
    let statuses = || -> Vec<u16> {
        let mut client = Client::to(&server);
        (0..6).map(|_| client.get("/f", &["Range: bytes=0-0"]).status).collect()
    };
    assert_eq!(statuses(), [206, 206, 500, 206, 206, 500]);
    server.set(Behaviour::status(503).when(When::Connection(1)));
    assert_eq!(statuses(), [503; 6]);
    assert_eq!(statuses(), [206; 6]);
    server.set(Behaviour::status(404).when(When::Method("HEAD".into())));
    assert_eq!(statuses(), [206; 6]);
    server.set(Behaviour::status(403).when(When::Ranged));
    assert_eq!(statuses(), [403; 6]);
    server.clear();
    server.set_on("/other", Behaviour::status(403));
    assert_eq!(statuses(), [206; 6]);
    server.set_on("/f", Behaviour::status(403));
    assert_eq!(statuses(), [403; 6]);
    server.clear_on("/f");
    assert_eq!(statuses(), [206; 6]);
    server.clear_log();
    assert_eq!(statuses(), [206; 6]);
    assert_eq!((server.log().len(), server.log().records[0].number), (6, 48));
}
