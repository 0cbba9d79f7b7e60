//! What is passed on: the answers of any server, to any form of request, whole and in order.

use std::io::Write as _;

use swath_netlab::faulty::{Behaviour, Content, Server};

use crate::support::{
    Ear, FILE, Relay, connect, head_of, honest, options, saying, server, to_end, until, url, whole,
};

const SIZE: u64 = 300_017;

/// Servers that frame their answers in different ways.
fn origins(content: &Content) -> [(&'static str, Server); 5] {
    [
        ("plain", honest(content)),
        ("chunks", server(content, Behaviour::Chunked { chunk_bytes: 1000 })),
        ("up to the end", server(content, Behaviour::CloseDelimited)),
        ("HTTP/1.0", server(content, Behaviour::Http10)),
        ("one answer each", server(content, Behaviour::Close)),
    ]
}

#[test]
fn any_server_s_file_comes_to_any_form_of_request() {
    let content = Content::random(1, SIZE);
    let (near, far) = (Relay::start(options()), Relay::start(options()));
    for (name, origin) in &origins(&content) {
        let (once, twice) = (url(origin), far.through(&url(origin)));
        for told in [near.get(&once, ""), near.get(&twice, ""), near.proxied(&once, "")] {
            assert!(told.is(200).body == whole(&content), "{name}");
        }
        let part = near.get(&twice, "Range: bytes=100-1099\r\n").is(206);
        assert!(part.body == content.read(100, 1100), "{name}");
        let head = near.head(&twice, "").is(200);
        assert!(head.body.is_empty(), "{name}");
        assert_eq!(head.head.matches("server-timing: hop;").count(), 2, "{name}: {head:?}");
    }
}

#[test]
fn chunks_go_on_as_chunks_where_no_length_was_told() {
    let content = Content::random(1, SIZE);
    let relay = Relay::start(options());
    let origin = server(&content, Behaviour::CloseDelimited);
    let target = format!("/relay/{}", url(&origin));
    // The connection is kept: a second answer comes behind the first one.
    let one = format!("HEAD {target} HTTP/1.1\r\nHost: r\r\n\r\n");
    let two = format!("GET {target} HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n");
    let all = relay.raw(&(one + &two));
    let text = String::from_utf8_lossy(&all);
    assert_eq!(text.matches("HTTP/1.1 200 ").count(), 2);
    assert!(text.contains("transfer-encoding: chunked\r\n"));
    assert!(all.ends_with(b"\r\n0\r\n\r\n"));
    assert!(all.len() as u64 > SIZE);
}

#[test]
fn whoever_asks_ahead_is_answered_in_order() {
    let content = Content::random(1, SIZE);
    let origin = honest(&content);
    let relay = Relay::start(options());
    let request = |range: &str, last: &str| {
        let target = format!("/relay/{}", url(&origin));
        format!("GET {target} HTTP/1.1\r\nHost: a\r\nRange: bytes={range}\r\n{last}\r\n")
    };
    let all =
        request("0-9", "") + &request("10-29", "") + &request("30-59", "Connection: close\r\n");
    let answer = relay.raw(&all);
    let mut rest = answer.as_slice();
    for (at, bytes) in [(0, 10), (10, 20), (30, 30)] {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert!(rest.starts_with(b"HTTP/1.1 206 "), "{}", String::from_utf8_lossy(&rest[..end]));
        assert_eq!(rest[end..end + bytes], content.read(at, at + bytes as u64));
        rest = &rest[end + bytes..];
    }
    assert!(rest.is_empty());
}

#[test]
fn requests_of_one_client_share_a_connection_to_their_server() {
    let content = Content::random(1, SIZE);
    let origin = honest(&content);
    let relay = Relay::start(options());
    let target = format!("/relay/{}", url(&origin));
    let mut tcp = connect(relay.address);
    for at in 0..5 {
        let range = format!("Range: bytes={at}-{at}");
        write!(tcp, "GET {target} HTTP/1.1\r\nHost: a\r\n{range}\r\n\r\n").unwrap();
        assert!(head_of(&mut tcp).unwrap().starts_with("HTTP/1.1 206 "));
        std::io::Read::read_exact(&mut tcp, &mut [0]).unwrap();
    }
    assert_eq!((origin.log().len(), origin.connections()), (5, 1));
    // It is kept for the next client, too.
    drop(tcp);
    until("it is put aside", || {
        let before = origin.connections();
        relay.get(&url(&origin), "Range: bytes=0-0\r\n").is(206);
        origin.connections() == before
    });
}

#[test]
fn what_a_server_answers_is_not_the_relay_s_word() {
    let content = Content::random(1, 1000);
    let relay = Relay::start(options());
    for status in [401, 403, 404, 429, 500, 503] {
        let origin = server(&content, Behaviour::status(status));
        let told = relay.get(&url(&origin), "").is(status);
        assert_eq!(told.field("proxy-status"), None, "{told:?}");
        assert!(told.field("server-timing").is_some_and(|it| it.starts_with("hop;")), "{told:?}");
    }
}

#[test]
fn conditions_are_for_the_server() {
    let content = Content::random(1, 1000);
    let origin = honest(&content);
    let relay = Relay::start(options());
    let told = relay.head(&url(&origin), "").is(200);
    let etag = told.field("etag").unwrap().to_owned();
    let ask = |field: &str| relay.get(&url(&origin), &format!("{field}\r\n"));
    assert!(ask(&format!("If-None-Match: {etag}")).is(304).body.is_empty());
    ask("If-Match: \"other\"").is(412);
    ask("Range: bytes=5000-").is(416).says("content-range: bytes */1000");
}

#[test]
fn methods_that_change_something_are_not_passed_on() {
    let origin = honest(&Content::random(1, 1000));
    let relay = Relay::start(options());
    for method in ["POST", "DELETE", "OPTIONS", "PROPFIND"] {
        let target = format!("/relay/{}", url(&origin));
        let told = relay.ask(method, &target, "", b"").is(405);
        assert_eq!(told.field("allow"), Some("get, head"), "{told:?}");
        let told = relay.ask(method, &url(&origin), "", b"");
        assert!(matches!(told.status, 403 | 405), "{told:?}");
    }
    let with_body = format!("/relay/{}", url(&origin));
    relay.ask("PUT", &with_body, "", b"body").is(403).says("with a body");
    relay.ask("GET", &with_body, "Content-Length: 4\r\n", b"body").is(403).says("with a body");
    assert!(origin.log().is_empty());
}

#[test]
fn queries_and_odd_paths_pass_as_they_are_written() {
    let relay = Relay::start(options());
    let (tells, told) = std::sync::mpsc::channel();
    let tells = std::sync::Mutex::new(tells);
    let origin = saying(move |head| {
        let line = head.lines().next().unwrap().to_owned();
        tells.lock().unwrap().send(line).unwrap();
        Some("HTTP/1.1 204 None\r\n\r\n".to_owned())
    });
    for path in ["/", "/a%2Fb", "/a//b", "/%41?x=1&y=%20", "/a;b=c?d=/e?f", "/a+b?q=http://h/x"] {
        relay.get(&format!("http://{origin}{path}"), "").is(204);
        assert_eq!(told.recv().unwrap(), format!("GET {path} HTTP/1.1"));
    }
    // None of a fragment is anybody's business, and a host alone has a path.
    relay.get(&format!("http://{origin}"), "").is(204);
    assert_eq!(told.recv().unwrap(), "GET / HTTP/1.1");
}

#[test]
fn each_request_is_noted_with_what_was_answered() {
    let content = Content::random(1, SIZE);
    let origin = honest(&content);
    let relay = Relay::start(options());
    let is_noted = |count| until("it is noted", || relay.noted().len() == count);
    relay.get(&format!("{}?signature=secret", url(&origin)), "").is(200);
    is_noted(1);
    relay.get(&url(&origin), "Range: bytes=0-99\r\n").is(206);
    is_noted(2);
    relay.get("http://127.0.0.2/f", "").is(403);
    is_noted(3);
    let noted = relay.noted();
    let of = |at: usize| (noted[at].status, noted[at].bytes);
    assert_eq!((of(0), of(1)), ((200, SIZE), (206, 100)));
    assert_eq!((noted[2].status, &*noted[0].method), (403, "GET"));
    assert!(!noted[0].target.contains("secret"), "{noted:?}");
    assert!(relay.metric("swath_relay_bytes_total") >= SIZE + 100);
}

#[test]
fn a_client_that_says_nothing_of_its_version_gets_the_body_up_to_the_end() {
    let content = Content::random(1, SIZE);
    let relay = Relay::start(options());
    let origin = server(&content, Behaviour::Chunked { chunk_bytes: 777 });
    let told = relay.get(&url(&origin), "").is(200);
    assert_eq!((told.field("content-length"), told.field("transfer-encoding")), (None, None));
    assert_eq!(told.field("connection"), Some("close"));
    assert!(told.body == whole(&content));
}

#[test]
fn an_ear_before_the_server_hears_a_request_of_the_relay_s_own() {
    let content = Content::random(1, 1000);
    let origin = honest(&content);
    let ear = Ear::before(origin.address());
    let relay = Relay::start(options());
    let told = relay.get(&format!("http://{}{FILE}", ear.address), "X-Mine: 1\r\n").is(200);
    assert!(told.body == whole(&content));
    // Whom the client named is whom the server is called.
    let host = format!("Host: {}\r\n", ear.address);
    assert!(ear.heard(&host) && ear.heard("x-mine: 1\r\n") && !ear.heard("Host: r\r\n"));
    let mut tcp = connect(relay.address);
    tcp.write_all(b"no request at all\r\n\r\n").unwrap();
    let answer = String::from_utf8_lossy(&to_end(&mut tcp)).into_owned();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}
