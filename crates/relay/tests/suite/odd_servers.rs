//! Servers that break off, stall, speak no HTTP or say too much; and clients that leave.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use swath_netlab::faulty::{Behaviour, Content, Handle, Server};
use swath_relay::RelayOptions;

use crate::support::{FILE, HANG, Relay, connect, head_of, options, saying, server, url, whole};

#[test]
fn answers_that_are_cut_short_are_no_whole_ones() {
    let content = Content::random(3, 1 << 20);
    let relay = Relay::start(options());
    for (name, rule) in [
        ("told its length", Behaviour::Truncate { after_bytes: 300_000 }),
        ("dies", Behaviour::die_after(400_000)),
        ("reset", Behaviour::Drop { after_bytes: 200_000, reset: true }),
    ] {
        let origin = server(&content, rule);
        let told = relay.get(&url(&origin), "").is(200);
        assert_eq!(told.field("content-length"), Some("1048576"), "{name}");
        let come = told.body.len() as u64;
        assert!(come < content.size_bytes(), "{name}: {come}");
        assert!(told.body == content.read(0, come), "{name}");
    }
    // Where no length was told, the last chunk is missing.
    let rules =
        [Behaviour::Chunked { chunk_bytes: 1000 }, Behaviour::Truncate { after_bytes: 5000 }];
    let origin = Server::builder().file(FILE, content.clone());
    let origin = rules.into_iter().fold(origin, |it, rule| it.behaviour(rule)).start().unwrap();
    let target = format!("/relay/{}", url(&origin));
    let all = relay.raw(&format!("GET {target} HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n"));
    assert!(all.starts_with(b"HTTP/1.1 200 ") && !all.ends_with(b"\r\n0\r\n\r\n"));
}

#[test]
fn a_server_that_says_nothing_is_named_after_the_relay_s_timeout() {
    let content = Content::random(3, 1000);
    let timeout = Duration::from_millis(300);
    let relay = Relay::start(RelayOptions { timeout, ..options() });
    let silent = server(&content, Behaviour::Silent { after: Duration::ZERO });
    let told = relay.get(&url(&silent), "").is(504);
    let status = told.field("proxy-status").unwrap();
    assert!(status.contains("connection_read_timeout"), "{status}");
    assert!(told.text().contains(&format!("127.0.0.1:{}", silent.port())), "{}", told.text());
}

#[test]
fn a_server_that_falls_silent_in_the_middle_is_left() {
    let content = Content::random(3, 1 << 30);
    let timeout = Duration::from_millis(500);
    let relay = Relay::start(RelayOptions { timeout, ..options() });
    let lasts = Duration::from_secs(3600);
    let scope = swath_netlab::faulty::Scope::Server;
    let origin = server(&content, Behaviour::Stall { after_bytes: 100_000, lasts, scope });
    let told = relay.get(&url(&origin), "");
    // On a machine that stands still meanwhile the head may come too late, too.
    if told.status != 504 {
        let come = told.is(200).body;
        assert!(come.len() <= 100_000 && come == content.read(0, come.len() as u64));
    }
    // It would send the rest now, if anybody were there.
    origin.clear();
    let is_left = |it: &Handle| it.open_connections() == 0;
    assert!(origin.handle().wait_until(HANG, is_left), "it is still asked");
    assert!(origin.sent_bytes() < 1 << 29, "{}", origin.sent_bytes());
}

#[test]
fn what_is_no_http_is_no_answer() {
    let content = Content::random(3, 1000);
    let relay = Relay::start(options());
    for rule in [
        Behaviour::GarbageStatus("SSH-2.0-OpenSSH".to_owned()),
        Behaviour::GarbageStatus("HTTP/1.1 abc".to_owned()),
        Behaviour::LoneLineFeeds,
        Behaviour::GiantHead { bytes: 1 << 20 },
    ] {
        let origin = server(&content, rule);
        let told = relay.get(&url(&origin), "").is(502);
        assert!(told.field("proxy-status").unwrap().contains("http_protocol_error"), "{told:?}");
    }
    // One that closes without an answer is asked once more, and then named.
    let origin = server(&content, Behaviour::Unanswered { reset: false });
    let told = relay.get(&url(&origin), "").is(502);
    assert!(told.field("proxy-status").unwrap().contains("connection_terminated"), "{told:?}");
}

#[test]
fn words_before_an_answer_are_no_answer() {
    let content = Content::random(3, 100_000);
    let relay = Relay::start(options());
    let origin = server(&content, Behaviour::Junk100);
    for _ in 0..2 {
        assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
    }
}

#[test]
fn a_kept_connection_that_its_server_closed_is_opened_anew() {
    let content = Content::random(3, 1000);
    let timeout = Duration::from_secs(3600);
    let origin = server(&content, Behaviour::KeepAlive { max_requests: 1, timeout });
    let relay = Relay::start(options());
    for _ in 0..5 {
        assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
    }
    assert_eq!(origin.log().len(), 5);
}

/// A server whose answer for `/a` has something behind it, at once; all others are in order.
fn too_much(excess: &'static str) -> std::net::SocketAddr {
    saying(move |head| {
        let is_odd = head.starts_with("GET /a ");
        let (body, more) = if is_odd { ("fine\n", excess) } else { ("good\n", "") };
        Some(format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}{more}"))
    })
}

#[test]
fn what_comes_behind_an_answer_is_nobody_s() {
    // It was taken for the answer to what was asked next, which was a 502 for somebody who had done
    // nothing, or whatever the server liked.
    for excess in ["junk", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nevil\n"] {
        let relay = Relay::start(options());
        let origin = too_much(excess);
        for _ in 0..5 {
            // On one connection, one after the other, and on one that was kept.
            let mut tcp = connect(relay.address);
            for (path, body) in [("/a", b"fine\n"), ("/b", b"good\n"), ("/a", b"fine\n")] {
                let target = format!("/relay/http://{origin}{path}");
                write!(tcp, "GET {target} HTTP/1.1\r\nHost: r\r\n\r\n").unwrap();
                let head = head_of(&mut tcp).unwrap();
                assert!(head.starts_with("HTTP/1.1 200 "), "{excess}: {head}");
                let mut came = [0; 5];
                tcp.read_exact(&mut came).unwrap();
                assert_eq!(&came, body, "{excess}");
            }
            drop(tcp);
            let told = relay.get(&format!("http://{origin}/b"), "").is(200);
            assert_eq!(told.text(), "good\n", "{excess}");
        }
    }
}

#[test]
fn what_was_asked_ahead_behind_an_odd_answer_is_asked_once_more() {
    let relay = Relay::start(options());
    let origin = too_much("junk");
    let request = |path: &str, more: &str| {
        format!("GET /relay/http://{origin}{path} HTTP/1.1\r\nHost: r\r\n{more}\r\n")
    };
    let answers = relay.raw(&(request("/a", "") + &request("/b", "Connection: close\r\n")));
    let text = String::from_utf8_lossy(&answers);
    assert!(text.contains("\r\n\r\nfine\n") && text.ends_with("\r\n\r\ngood\n"), "{text}");
}

#[test]
fn whoever_leaves_is_left() {
    // Nothing more is taken from an origin for somebody who is gone.
    let content = Content::random(4, 1 << 40);
    let origin = crate::support::honest(&content);
    let relay = Relay::start(options());
    let mut tcp = connect(relay.address);
    write!(tcp, "GET /relay/{} HTTP/1.1\r\nHost: a\r\n\r\n", url(&origin)).unwrap();
    tcp.read_exact(&mut vec![0; 1 << 20]).unwrap();
    assert!(origin.open_connections() > 0);
    drop(tcp);
    let left = |it: &Handle| it.open_connections() == 0;
    assert!(origin.handle().wait_until(HANG, left), "it is still asked");
}

#[test]
fn for_whoever_takes_nothing_no_more_is_fetched_than_fits_between() {
    // What one does not take would have come while another one has far more than that.
    const OTHER: u64 = 200 << 20;
    let content = Content::random(4, 1 << 40);
    let (held, flows) = (crate::support::honest(&content), crate::support::honest(&content));
    let relay = Relay::start(options());
    let ask = |origin: &Server| {
        let mut tcp = connect(relay.address);
        write!(tcp, "GET /relay/{} HTTP/1.1\r\nHost: a\r\n\r\n", url(origin)).unwrap();
        assert!(head_of(&mut tcp).unwrap().starts_with("HTTP/1.1 200 "));
        tcp
    };
    let _waits = ask(&held);
    let mut taken = ask(&flows).take(OTHER);
    assert_eq!(std::io::copy(&mut taken, &mut std::io::sink()).unwrap(), OTHER);
    // What the kernel holds for four sockets, and a pipe.
    let fetched = held.sent_bytes();
    assert!(fetched < 64 << 20, "{fetched}");
}

#[test]
fn a_client_that_is_reset_leaves_its_server_to_others() {
    let content = Content::random(5, 1000);
    let origin = crate::support::honest(&content);
    let relay = Relay::start(options());
    for _ in 0..20 {
        let mut tcp = connect(relay.address);
        write!(tcp, "GET /relay/{} HTTP/1.1\r\nHost: a\r\n\r\n", url(&origin)).unwrap();
        // What has come and was not read makes it a reset.
        let _ = tcp.read(&mut [0]);
        drop(tcp);
    }
    assert!(relay.get(&url(&origin), "").is(200).body == whole(&content));
}

#[test]
fn half_a_request_is_no_request() {
    let origin = crate::support::honest(&Content::random(5, 1000));
    let relay = Relay::start(options());
    let mut tcp = connect(relay.address);
    write!(tcp, "GET /relay/{} HTTP/1.1\r\nHost: a\r\nRange: by", url(&origin)).unwrap();
    tcp.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = tcp.read_to_end(&mut Vec::new());
    assert_eq!(origin.connections(), 0);
}
