//! Files by GET and HEAD: wholes, ranges, conditions, digests, and where their Metalinks are.

use crate::support::{Served, Tree, auth, bytes};

/// `big.bin` and some smaller ones.
fn served() -> (Tree, Served) {
    let tree = Tree::of(&[
        ("tree/deep/a name, with #?%.dat", "odd\n"),
        ("tree/a.txt", "alpha\n"),
        ("tree/empty", ""),
    ]);
    tree.write("tree/big.bin", big());
    let server = tree.serve(&["tree"]);
    (tree, server)
}

fn big() -> Vec<u8> {
    bytes(1, BIG_BYTES)
}

const BIG_BYTES: usize = 300_000;

#[test]
fn wholes_come_as_they_are() {
    let (_tree, server) = served();
    let whole = server.get("/big.bin");
    assert_eq!(whole.is(200).field("content-length").as_deref(), Some("300000"));
    assert_eq!(whole.field("accept-ranges").as_deref(), Some("bytes"));
    assert!(whole.body() == big());
    let empty = server.get("/empty");
    assert_eq!(empty.is(200).field("content-length").as_deref(), Some("0"));
    assert_eq!(server.get("/deep/a%20name,%20with%20%23%3F%25.dat").text(), "odd\n");
    // What begins with a scheme and a host is the same address.
    assert_eq!(server.get("http://elsewhere.example:1/a.txt").text(), "alpha\n");
    let head = server.ask("HEAD /big.bin HTTP/1.1");
    assert_eq!(head.is(200).field("content-length").as_deref(), Some("300000"));
    assert!(head.body().is_empty());
}

#[test]
fn a_range_is_a_part_of_the_whole() {
    let (_tree, server) = served();
    for (range, from, to) in [
        ("0-0", 0, 1),
        ("0-99", 0, 100),
        ("1000-", 1000, BIG_BYTES),
        ("-77", BIG_BYTES - 77, BIG_BYTES),
        ("-99999999", 0, BIG_BYTES),
        ("299999-99999999", BIG_BYTES - 1, BIG_BYTES),
    ] {
        let part = server.ask(&format!("GET /big.bin HTTP/1.1\r\nRange: bytes={range}"));
        let said = format!("bytes {from}-{}/{BIG_BYTES}", to - 1);
        assert_eq!(part.is(206).field("content-range"), Some(said), "{range}");
        assert!(part.body() == big()[from..to], "{range}");
    }
}

#[test]
fn several_ranges_come_in_parts() {
    let (_tree, server) = served();
    let several = server.ask("GET /big.bin HTTP/1.1\r\nRange: bytes=0-1,100-101");
    let kind = several.is(206).field("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let body = several.body();
    let parts: Vec<&[u8]> = split(&body, format!("--{boundary}").as_bytes());
    assert_eq!(parts.len(), 4, "two between what is before and the end: {several}");
    for (part, from) in parts[1..3].iter().zip([0, 100]) {
        let at = part.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8_lossy(&part[..at]).to_lowercase();
        assert!(head.contains(&format!("content-range: bytes {from}-{}/300000", from + 1)));
        assert_eq!(&part[at..at + 2], &big()[from..from + 2]);
    }
    assert!(parts[3].starts_with(b"--"));
}

fn split<'a>(mut bytes: &'a [u8], by: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    while let Some(at) = bytes.windows(by.len()).position(|part| part == by) {
        parts.push(&bytes[..at]);
        bytes = &bytes[at + by.len()..];
    }
    parts.push(bytes);
    parts
}

#[test]
fn a_range_behind_the_end_is_refused_with_the_size() {
    let (_tree, server) = served();
    for range in ["300000-", "99999999-", "300000-300001", "-0"] {
        let past = server.ask(&format!("GET /big.bin HTTP/1.1\r\nRange: bytes={range}"));
        assert_eq!(past.is(416).field("content-range").as_deref(), Some("bytes */300000"));
    }
    server.ask("GET /empty HTTP/1.1\r\nRange: bytes=0-0").is(416);
}

#[test]
fn what_is_no_range_gets_the_whole() {
    let (_tree, server) = served();
    for field in ["bytes=", "bytes=x-y", "bytes=5-3", "lines=0-1", "0-1", "bytes=0-1,x"] {
        let whole = server.ask(&format!("GET /a.txt HTTP/1.1\r\nRange: {field}"));
        assert_eq!((whole.status(), whole.text().as_str()), (200, "alpha\n"), "{field}");
    }
}

/// A reader of vectors asks for hundreds of ranges, and got all of the file.
#[test]
fn hundreds_of_ranges_come_in_one_answer() {
    let tree = Tree::new();
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    tree.write("tree/data.bin", &bytes);
    let server = tree.serve(&["tree"]);
    let asked = |count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("{}-{}", 10 * n, 10 * n + 3)).collect();
        server.ask(&format!("GET /data.bin HTTP/1.1\r\nRange: bytes={}", all.join(",")))
    };
    let answer = asked(1024);
    let text = String::from_utf8_lossy(&answer.is(206).body()).into_owned();
    assert_eq!(text.matches("content-range: bytes ").count(), 1024);
    assert!(text.contains("content-range: bytes 10230-10233/100000\r\n\r\n"));
    // More are none at all, and what is too long for a head is refused before it is read.
    let answer = asked(1100);
    assert!(answer.is(200).body() == bytes);
    asked(1_000_000).is(431);
}

/// RFC 9110, section 14.2: a range is for GET alone.
#[test]
fn a_head_with_a_range_is_told_of_the_whole() {
    let (_tree, server) = served();
    for range in ["0-1", "100-", "0-0,3-3"] {
        let head = server.ask(&format!("HEAD /a.txt HTTP/1.1\r\nRange: bytes={range}"));
        assert_eq!(head.is(200).field("content-length").as_deref(), Some("6"), "{range}");
    }
}

#[test]
fn a_request_may_depend_on_what_is_there() {
    let (tree, server) = served();
    let head = server.ask("HEAD /big.bin HTTP/1.1");
    let etag = head.field("etag").unwrap();
    let modified = head.field("last-modified").unwrap();
    assert!(etag.starts_with('"'), "a strong one: {etag}");
    let status = |fields: &[&str]| {
        let fields: String = fields.iter().map(|field| format!("\r\n{field}")).collect();
        server.ask(&format!("GET /big.bin HTTP/1.1{fields}")).status()
    };
    assert_eq!(status(&[&format!("If-None-Match: {etag}")]), 304);
    assert_eq!(status(&[&format!("If-Modified-Since: {modified}")]), 304);
    assert_eq!(status(&["If-None-Match: \"x\""]), 200);
    assert_eq!(status(&[&format!("If-None-Match: \"x\", {etag}")]), 304);
    assert_eq!(status(&[&format!("If-Match: {etag}")]), 200);
    assert_eq!(status(&["If-Match: \"x\""]), 412);
    assert_eq!(status(&["If-Unmodified-Since: Mon, 01 Jan 2001 00:00:00 GMT"]), 412);
    assert_eq!(status(&["Range: bytes=0-9", &format!("If-Range: {etag}")]), 206);
    assert_eq!(status(&["Range: bytes=0-9", "If-Range: \"x\""]), 200);
    // Another version is another one.
    tree.write("tree/big.bin", "other");
    assert_eq!(status(&[&format!("If-None-Match: {etag}")]), 200);
    assert_eq!(status(&[&format!("If-Match: {etag}")]), 412);
    assert_eq!(status(&["Range: bytes=0-1", &format!("If-Range: {etag}")]), 200);
}

#[test]
fn an_answer_without_a_body_still_describes_the_file() {
    let (_tree, server) = served();
    let whole = server.get("/a.txt");
    let etag = whole.field("etag").unwrap();
    let same = server.ask(&format!("GET /a.txt HTTP/1.1\r\nIf-None-Match: {etag}"));
    assert!(same.is(304).body().is_empty() && same.field("content-length").is_none(), "{same}");
    assert_eq!(same.field("etag"), Some(etag));
    assert_eq!(same.field("last-modified"), whole.field("last-modified"));
}

/// The digest of 300,000 bytes, as `sha256sum` and `adler32` would have it.
fn digests() -> (String, String) {
    use swath_model::digest::{Algorithm, Hasher};
    let of = |algorithm| {
        let digest = Hasher::digest(algorithm, &big());
        digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    };
    (of(Algorithm::Sha256), of(Algorithm::Adler32))
}

#[test]
fn digests_are_told_to_whoever_wants_them() {
    let (_tree, server) = served();
    let (sha256, adler32) = digests();
    let head = |field: &str| server.ask(&format!("HEAD /big.bin HTTP/1.1\r\n{field}"));
    assert_eq!(head("Want-Digest: adler32").field("digest"), Some(format!("adler32={adler32}")));
    head("X: y").has_not(&["digest"]);
    let asked = head("Want-Repr-Digest: sha-256=9, md5=1");
    assert!(asked.field("repr-digest").unwrap().starts_with("sha-256=:"), "{asked}");
    assert!(asked.field("link").unwrap().contains("rel=describedby"), "{asked}");
    let metalink = server.get("/big.bin?metalink");
    metalink.is(200).has(&[
        &format!("<hash type=\"sha-256\">{sha256}</hash>"),
        "<size>300000</size>",
        ">http://h/big.bin</url>",
    ]);
    // One that is not known, or not wanted, is left out.
    head("Want-Repr-Digest: unknown=9").has_not(&["repr-digest"]);
    head("Want-Repr-Digest: sha-256=0").has_not(&["repr-digest"]);
}

/// A Metalink that proves nothing is offered to nobody: it cost six round trips.
#[test]
fn a_metalink_is_offered_once_it_proves_something() {
    let tree = Tree::new();
    tree.write("tree/large.bin", vec![7; 9 << 20]);
    let server = tree.serve(&["tree"]);
    let link = || server.ask("HEAD /large.bin HTTP/1.1").field("link").is_some();
    assert!(!link());
    server.ask("HEAD /large.bin HTTP/1.1\r\nWant-Repr-Digest: sha-512=1").is(200);
    assert!(link());
    server.get("/large.bin?metalink").has(&["<hash type=\"sha-512\">"]);
    // What was known of the version before is not told of the next one.
    tree.write("tree/large.bin", vec![8; 9 << 20]);
    assert!(!link());
}

/// Whoever could send files could have the server say that it is unwell, and tell its monitor what he
/// liked; a tree that merely had such a file did so too.
#[test]
fn what_the_server_says_of_itself_no_file_says() {
    let tree = Tree::of(&[
        ("tree/health", "ill\n"),
        ("tree/metrics", "swath_answers_total 99\n"),
        ("tree/sub/health", "below\n"),
    ]);
    let server = tree.plan(&["tree"]).writes().start();
    let with = |request: &str| server.ask(&format!("{request} HTTP/1.1\r\n{}", auth()));
    for path in ["/health", "/health?at=1", "//health", "/x/../health"] {
        assert_eq!(server.get(path).text(), "well\n", "{path}");
    }
    server.ask("HEAD /health HTTP/1.1").is(200);
    server.get("/metrics").is(401);
    with("GET /metrics").has(&["\nswath_answers_total{class="]);
    for own in ["health", "metrics"] {
        let put = format!("PUT /{own} HTTP/1.1\r\n{}\r\nContent-Length: 0", auth());
        server.ask(&put).is(403).has(&["'?file'"]);
    }
    // What is the user's own stays his own: in lists, and at an address.
    server.get("/health?file").is(401);
    assert_eq!(with("GET /health?file").text(), "ill\n");
    assert_eq!(with("GET /sub/health").text(), "below\n");
    with("GET /").has(&["<a href=\"./health?file\">health</a>"]);
    with("GET /sub/").has(&["<a href=\"./health\">health</a>"]);
    with("GET /?format=json").has(&["\"address\":\"metrics?file\""]);
    let digest = format!("HEAD /health?file HTTP/1.1\r\n{}\r\nWant-Repr-Digest: sha-256=1", auth());
    server.ask(&digest).has(&["repr-digest: sha-256="]);
    with("HEAD /health?file").has(&["link: </health?file&metalink>; "]);
    with("GET /health?file&metalink").has(&["/health?file</url>"]);
}

#[test]
fn what_was_received_is_counted() {
    let tree = Tree::of(&[("tree/kept", "")]);
    let server = tree.plan(&["tree"]).writes().start();
    let received = || {
        let page = server.ask(&format!("GET /metrics HTTP/1.1\r\n{}", auth())).text();
        let line = page.lines().find_map(|line| line.strip_prefix("swath_received_bytes_total "));
        line.unwrap_or_else(|| panic!("{page}")).trim().to_owned()
    };
    assert_eq!(received(), "0");
    let put = format!("PUT /by-put HTTP/1.1\r\nContent-Length: 300000\r\n{}", auth());
    server.ask_with(&put, &big()).is(201);
    assert_eq!(received(), "300000");
}

#[test]
fn answers_are_counted_by_their_class() {
    let (_tree, server) = served();
    server.get("/a.txt").is(200);
    server.get("/none").is(404);
    server.ask("GET /a.txt HTTP/1.1\r\nRange: bytes=0-2").is(206);
    let page = server.get("/metrics");
    page.has(&["swath_answers_total{class=\"2xx\"} 2", "swath_answers_total{class=\"4xx\"} 1"]);
    page.has(&["swath_body_bytes_total "]);
}
