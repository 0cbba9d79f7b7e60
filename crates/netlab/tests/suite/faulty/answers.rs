//! Answers that are wrong, unusual or unwelcome in their heads and framing.

use std::io::ErrorKind;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use swath_netlab::faulty::{
    Algorithm, Behaviour, Content, DigestField, MetalinkFile, Pipelining, RangeLie, Rule, Server,
    metalink,
};

use super::client::{Client, get};

const PART: &str = "Range: bytes=100-199";

fn content() -> Content {
    Content::random(9, 50_000)
}

fn server(rule: impl Into<Rule>) -> Server {
    Server::builder().file("/f", content()).behaviour(rule).start().unwrap()
}

#[test]
fn statuses_come_alone_with_retry_after_or_first_only() {
    for code in [401, 403, 404, 410, 500, 502] {
        let server = server(Behaviour::status(code));
        let answer = get(&server, "/f", &[]);
        assert_eq!(answer.status, code);
        assert_eq!(answer.header("retry-after"), None);
        assert_eq!(answer.header("www-authenticate").is_some(), code == 401);
    }
    let server = server(Behaviour::busy(503, 7).first(2));
    let answers: Vec<_> = (0..4).map(|_| get(&server, "/f", &[PART])).collect();
    assert_eq!(answers.iter().map(|a| a.status).collect::<Vec<_>>(), [503, 503, 206, 206]);
    assert_eq!(answers[0].header("retry-after"), Some("7"));
    server.set(Behaviour::status(416));
    let answer = get(&server, "/f", &[PART]);
    assert_eq!((answer.status, answer.header("content-range")), (416, Some("bytes */50000")));
}

#[test]
fn redirects() {
    for status in [301, 302, 303, 307, 308] {
        let to = "http://localhost:1/g".to_owned();
        let server = server(Behaviour::Redirect { status, to }.first(1));
        let answer = get(&server, "/f", &[]);
        assert_eq!(
            (answer.status, answer.header("location")),
            (status, Some("http://localhost:1/g"))
        );
        assert_eq!(get(&server, "/f", &[]).status, 200);
    }
    let server = server(Behaviour::RedirectLoop { status: 302 });
    let mut target = "/f".to_owned();
    for round in 1..5 {
        target = get(&server, &target, &[]).header("location").unwrap().to_owned();
        assert_eq!(target, format!("/f?round={round}"));
    }
}

#[test]
fn authorization_is_wanted_and_recorded() {
    let server = server(Behaviour::RequireAuthorization("Bearer abc".into()));
    assert_eq!(get(&server, "/f", &[]).status, 401);
    assert!(!server.log().has_credentials());
    assert_eq!(get(&server, "/f", &["Authorization: Bearer wrong"]).status, 401);
    assert_eq!(get(&server, "/f", &["authorization: Bearer abc"]).status, 200);
    assert!(server.log().records[2].has_credentials());
}

#[test]
fn methods_are_refused_one_by_one() {
    let server = server(Behaviour::RefuseMethod("HEAD".into()));
    let mut client = Client::to(&server);
    client.send("HEAD", "/f", &[]);
    assert!(client.head().unwrap().starts_with("HTTP/1.1 405 "));
    assert_eq!(client.get("/f", &[]).status, 200);
}

#[test]
fn no_ranges_means_the_whole_file_with_200() {
    let server = server(Behaviour::NoRanges);
    let answer = get(&server, "/f", &[PART]);
    assert_eq!((answer.status, answer.body.len()), (200, 50_000));
    assert_eq!(answer.header("accept-ranges"), None);
}

#[test]
fn content_range_lies_in_every_way() {
    let right = "bytes 100-199/50000";
    let cases = [
        (RangeLie::Header(7), Some("bytes 107-206/50000"), 100),
        (RangeLie::Both(7), Some("bytes 107-206/50000"), 107),
        (RangeLie::Bytes(-7), Some(right), 93),
        (RangeLie::Total(1), Some("bytes 100-199/50001"), 100),
        (RangeLie::UnknownTotal, Some("bytes 100-199/*"), 100),
        (RangeLie::Missing, None, 100),
        (RangeLie::Garbage, Some("bytes all of them"), 100),
    ];
    for (lie, header, start) in cases {
        let answer = get(&server(Behaviour::ContentRange(lie)), "/f", &[PART]);
        assert_eq!((answer.status, answer.header("content-range")), (206, header), "{lie:?}");
        assert_eq!(answer.body, content().read(start, start + 100), "{lie:?}");
    }
}

#[test]
fn chunked_and_close_delimited_bodies() {
    let server = server(Behaviour::Chunked { chunk_bytes: 40 });
    let mut client = Client::to(&server);
    client.send("GET", "/f", &[PART]);
    let head = client.head().unwrap();
    assert!(head.starts_with("HTTP/1.1 206") && head.contains("Transfer-Encoding: chunked"));
    assert!(!head.contains("Content-Length"));
    let mut expected = Vec::new();
    for (start, end) in [(100, 140), (140, 180), (180, 200)] {
        expected.extend(format!("{:x}\r\n", end - start).bytes());
        expected.extend(content().read(start, end));
        expected.extend(b"\r\n");
    }
    expected.extend(b"0\r\n\r\n");
    while client.buffer.len() < expected.len() {
        assert!(client.more());
    }
    assert_eq!(client.buffer, expected);

    server.clear();
    server.set(Behaviour::CloseDelimited);
    let mut client = Client::to(&server);
    client.send("GET", "/f", &[]);
    assert!(!client.head().unwrap().contains("Content-Length"));
    assert!(client.rest().unwrap() == content().read(0, 50_000));
}

#[test]
fn an_error_page_with_200() {
    let answer = get(&server(Behaviour::HtmlPage), "/f", &[PART]);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(answer.body.starts_with(b"<!DOCTYPE html>"));
}

#[test]
fn kept_connections_have_limits() {
    let kept = |timeout_s| Behaviour::KeepAlive {
        max_requests: 3,
        timeout: Duration::from_secs(timeout_s),
    };
    let server = server(kept(3600));
    let mut client = Client::to(&server);
    let first = client.get("/f", &[PART]);
    assert_eq!(first.header("keep-alive"), Some("timeout=3600, max=2"));
    assert_eq!(first.header("connection"), Some("keep-alive"));
    client.get("/f", &[PART]);
    let last = client.get("/f", &[PART]);
    assert_eq!(last.header("connection"), Some("close"));
    assert_eq!(client.rest(), Ok(vec![]));
    // Idle.
    let mut client = Client::to(&server);
    client.get("/f", &[PART]);
    server.set(kept(1));
    client.get("/f", &[PART]);
    assert_eq!(client.rest(), Ok(vec![]));

    server.clear();
    server.set(Behaviour::Close);
    let mut client = Client::to(&server);
    assert_eq!(client.get("/f", &[PART]).header("connection"), Some("close"));
    assert_eq!(client.rest(), Ok(vec![]));
}

#[test]
fn pipelines_break_in_three_ways() {
    for how in [Pipelining::Lose, Pipelining::Close, Pipelining::Reset] {
        let server = server(Behaviour::Pipelining(how));
        let mut client = Client::to(&server);
        // One at a time all is well.
        assert_eq!(client.get("/f", &[PART]).status, 206);
        // Together in one packet, so that the second is there when the first is answered.
        let one = "GET /f HTTP/1.1\r\nRange: bytes=0-9\r\n\r\n";
        std::io::Write::write_all(&mut client.socket, one.repeat(2).as_bytes()).unwrap();
        match how {
            Pipelining::Lose => {
                assert_eq!(client.answer().unwrap().status, 206);
                assert_eq!(client.get("/f", &[PART]).status, 206);
                assert!(client.buffer.is_empty() && client.has_nothing());
            }
            Pipelining::Close => {
                assert_eq!(client.answer().unwrap().status, 206);
                assert_eq!(client.rest(), Ok(vec![]));
            }
            // The reset may overtake the answer.
            Pipelining::Reset => assert_eq!(client.rest(), Err(ErrorKind::ConnectionReset)),
        }
        let requests = if how == Pipelining::Lose { 3 } else { 2 };
        assert_eq!(server.log().len(), requests, "{how:?}");
    }
}

#[test]
fn headers_are_added_and_digests_are_right_or_wrong() {
    let server = server(Behaviour::header("Link", "<http://a/f>; rel=duplicate; pri=1"));
    server.add(Behaviour::header("Link", "<http://b/f>; rel=duplicate; pri=2"));
    for (field, algorithm, right) in [
        (DigestField::ReprDigest, Algorithm::Sha256, true),
        (DigestField::Digest, Algorithm::Adler32, true),
        (DigestField::ContentMd5, Algorithm::Md5, false),
        (DigestField::OcChecksum, Algorithm::Sha1, true),
    ] {
        server.add(Behaviour::DigestHeader { field, algorithm, right });
    }
    let answer = get(&server, "/f", &[PART]);
    assert_eq!(answer.head.matches("Link: <http://").count(), 2);
    let adler = format!("adler32={}", content().digest_hex(Algorithm::Adler32));
    assert_eq!(answer.header("digest"), Some(adler.as_str()));
    let sha1 = format!("SHA1:{}", content().digest_hex(Algorithm::Sha1));
    assert_eq!(answer.header("oc-checksum"), Some(sha1.as_str()));
    let repr = answer.header("repr-digest").unwrap();
    // 32 bytes are 44 characters of base64.
    assert!(repr.starts_with("sha-256=:") && repr.ends_with("=:") && repr.len() == 9 + 44 + 1);
    let right = STANDARD.encode(content().digest(Algorithm::Md5));
    assert_ne!(answer.header("content-md5"), Some(right.as_str()));
}

#[test]
fn validators_are_replaced_or_missing() {
    let server = server(Behaviour::Etag("W/\"weak\"".into()));
    assert_eq!(get(&server, "/f", &[]).header("etag"), Some("W/\"weak\""));
    assert_eq!(get(&server, "/f", &[PART, "If-Range: W/\"weak\""]).status, 200);
    server.set(Behaviour::NoValidators);
    let answer = get(&server, "/f", &[]);
    assert_eq!((answer.header("etag"), answer.header("last-modified")), (None, None));
}

#[test]
fn heads_are_giant_garbage_old_or_preceded_by_others() {
    let server = server(Behaviour::GiantHead { bytes: 1 << 20 });
    assert!(get(&server, "/f", &[PART]).head.len() > 1 << 20);

    server.clear();
    server.set(Behaviour::GarbageStatus("ICY 200 OK".into()));
    let mut client = Client::to(&server);
    client.send("GET", "/f", &[]);
    assert!(client.head().unwrap().starts_with("ICY 200 OK\r\n"));

    server.clear();
    server.set(Behaviour::Http10);
    let mut client = Client::to(&server);
    assert!(client.get("/f", &[PART]).head.starts_with("HTTP/1.0 206 "));
    assert_eq!(client.rest(), Ok(vec![]));

    server.clear();
    server.set(Behaviour::Junk100);
    let mut client = Client::to(&server);
    client.send("GET", "/f", &[PART]);
    assert!(client.head().unwrap().starts_with("HTTP/1.1 100 "));
    assert!(client.head().unwrap().starts_with("HTTP/1.1 103 "));
    assert_eq!(client.answer().unwrap().status, 206);
}

#[test]
fn a_metalink_for_those_who_accept_it() {
    let content = content();
    let urls = ["http://127.0.0.1:9/f".to_owned()];
    let document = metalink(&[MetalinkFile {
        name: "f",
        content: &content,
        urls: &urls,
        digests: &[Algorithm::Sha256],
        piece_bytes: Some(20_000),
    }]);
    let server = server(Behaviour::Metalink(document.clone()));
    let answer = get(&server, "/f", &["Accept: application/metalink4+xml, */*;q=0.1"]);
    assert_eq!(answer.header("content-type"), Some("application/metalink4+xml"));
    assert_eq!(answer.body, document.as_bytes());
    assert_eq!(get(&server, "/f", &["Accept: */*"]).body.len(), 50_000);
}
