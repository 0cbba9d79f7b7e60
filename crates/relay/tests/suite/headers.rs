//! Fields of requests and answers: what is for both ends passes, what is for one connection or for the
//! relay ends there.

use std::net::SocketAddr;
use std::sync::{Mutex, mpsc};

use crate::support::{Relay, options, saying};

/// A server that answers so, and the heads that it was sent, in lower case.
fn hearing(fields: &str) -> (SocketAddr, mpsc::Receiver<String>) {
    let (tells, told) = mpsc::channel();
    let tells = Mutex::new(tells);
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{fields}\r\n");
    let server = saying(move |head| {
        tells.lock().unwrap().send(head.to_lowercase()).unwrap();
        Some(answer.clone())
    });
    (server, told)
}

#[test]
fn what_is_for_both_ends_goes_on() {
    let (server, heard) = hearing("");
    let relay = Relay::start(options());
    let fields = [
        "range: bytes=0-9",
        "if-match: \"a\"",
        "if-range: \"a\"",
        "want-digest: md5",
        "want-repr-digest: sha-256=1",
        "accept: text/x",
        "accept-encoding: identity",
        "user-agent: me/1",
        "x-own: of the client",
        "cache-control: no-cache",
    ];
    let sent = fields.join("\r\n") + "\r\n";
    relay.get(&format!("http://{server}/f"), &sent).is(200);
    let head = heard.recv().unwrap();
    for field in fields {
        assert!(head.contains(&format!("\r\n{field}\r\n")), "{field}: {head}");
    }
    assert!(head.contains("\r\nvia: 1.1 swath-"), "{head}");
}

#[test]
fn what_is_for_one_connection_or_for_the_relay_ends_there() {
    let (server, heard) = hearing("");
    let relay = Relay::start(options());
    let sent = "Authorization: Bearer for-the-relay\r\nProxy-Authorization: Bearer p\r\n\
                Cookie: c=1\r\nReferer: http://page/\r\nOrigin: http://page\r\n\
                TE: trailers\r\nUpgrade: h2c\r\nKeep-Alive: timeout=5\r\nExpect: 100-continue\r\n\
                Proxy-Connection: keep-alive\r\nConnection: x-named\r\nX-Named: n\r\n";
    relay.get(&format!("http://{server}/f"), sent).is(200);
    let head = heard.recv().unwrap();
    for name in [
        "authorization",
        "proxy-authorization",
        "cookie",
        "referer",
        "origin",
        "te",
        "upgrade",
        "keep-alive",
        "expect",
        "proxy-connection",
        "x-named",
    ] {
        assert!(!head.contains(&format!("\r\n{name}: ")), "{name}: {head}");
    }
}

#[test]
fn a_proxy_s_client_shows_the_server_what_it_shows() {
    let (server, heard) = hearing("");
    let relay = Relay::start(options());
    let sent = "Authorization: Bearer for-the-origin\r\nProxy-Authorization: Bearer p\r\n";
    relay.proxied(&format!("http://{server}/f"), sent).is(200);
    let head = heard.recv().unwrap();
    assert!(head.contains("\r\nauthorization: bearer for-the-origin\r\n"), "{head}");
    assert!(!head.contains("proxy-authorization"), "{head}");
}

#[test]
fn those_whom_a_request_came_by_are_told_to_the_next() {
    let (server, heard) = hearing("Via: 1.1 behind\r\n");
    let relay = Relay::start(options());
    let told = relay.get(&format!("http://{server}/f"), "Via: 1.0 a, 1.1 b\r\nVia: 1.1 c\r\n");
    let head = heard.recv().unwrap();
    assert!(head.contains("\r\nvia: 1.0 a, 1.1 b, 1.1 c, 1.1 swath-"), "{head}");
    let via = told.is(200);
    let via = via.field("via").unwrap();
    assert!(via.starts_with("1.1 behind, 1.1 swath-"), "{via}");
}

#[test]
fn what_would_be_taken_for_the_relay_s_own_does_not_come_back() {
    let (server, _heard) = hearing(
        "Set-Cookie: a=b\r\nStrict-Transport-Security: max-age=9\r\nAlt-Svc: h3=\":1\"\r\n\
         Clear-Site-Data: \"*\"\r\nService-Worker-Allowed: /\r\nPublic-Key-Pins: x\r\n\
         Proxy-Status: cdn; error=connection_refused\r\nProxy-Authenticate: Basic\r\n\
         Connection: x-named\r\nX-Named: n\r\nKeep-Alive: timeout=5\r\nX-Other: o\r\n\
         ETag: \"e\"\r\nContent-Type: a/b\r\nRepr-Digest: sha-256=:AA==:\r\n",
    );
    let relay = Relay::start(options());
    let told = relay.get(&format!("http://{server}/f"), "").is(200);
    for name in [
        "set-cookie",
        "strict-transport-security",
        "alt-svc",
        "clear-site-data",
        "service-worker-allowed",
        "public-key-pins",
        "proxy-status",
        "proxy-authenticate",
        "x-named",
        "keep-alive",
    ] {
        assert_eq!(told.field(name), None, "{told:?}");
    }
    for (name, value) in [
        ("x-other", "o"),
        ("etag", "\"e\""),
        ("content-type", "a/b"),
        ("repr-digest", "sha-256=:aa==:"),
    ] {
        assert_eq!(told.field(name), Some(value), "{told:?}");
    }
}

#[test]
fn a_reason_and_fields_of_any_sort_do_not_begin_another_line() {
    let server = saying(|_| {
        let odd = "X-Odd: a\r\n b\r\nLocation: http://127.0.0.1/\u{1}\r\n";
        Some(format!("HTTP/1.1 200 Very\tWell\r\nContent-Length: 0\r\n{odd}\r\n"))
    });
    let relay = Relay::start(options());
    let told = relay.get(&format!("http://{server}/f"), "");
    // Either it is nothing that HTTP knows, or it comes in one line.
    if told.status == 200 {
        assert!(told.head.lines().all(|line| !line.starts_with([' ', '\t'])), "{told:?}");
    } else {
        told.is(502);
    }
}

#[test]
fn what_a_server_tells_of_its_own_hops_stands_before_that_of_the_relay() {
    let (server, _heard) = hearing("Server-Timing: hop;desc=\"far\";dur=5\r\n");
    let relay = Relay::start(options());
    let told = relay.get(&format!("http://{server}/f"), "").is(200);
    let hops: Vec<&str> =
        told.head.lines().filter_map(|line| line.strip_prefix("server-timing: ")).collect();
    assert_eq!(hops.len(), 2, "{told:?}");
    assert_eq!(hops[0], "hop;desc=\"far\";dur=5");
    assert!(hops[1].starts_with("hop;desc="), "{told:?}");
}
