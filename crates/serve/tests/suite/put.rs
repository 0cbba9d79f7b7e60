//! `PUT` of single files: what is taken, what is refused, and that no part of a file is ever seen.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Answer, Served, TOKEN, Tree, all_of, auth, bytes};

/// A server of `store` that takes files.
fn taking() -> (Tree, Served) {
    let tree = Tree::new();
    tree.folder("store");
    let server = tree.plan(&["store"]).writes().start();
    (tree, server)
}

/// Sends a body whose length is told.
#[track_caller]
fn put(server: &Served, path: &str, fields: &[&str], body: &[u8]) -> Answer {
    let fields: String = fields.iter().map(|field| format!("\r\n{field}")).collect();
    let length = body.len();
    let head = format!("PUT {path} HTTP/1.1\r\n{}\r\nContent-Length: {length}{fields}", auth());
    server.ask_with(&head, body)
}

#[test]
fn a_file_is_sent_and_sent_again() {
    let (tree, server) = taking();
    for size in [0, 1, 9, 700_000, 3_000_001] {
        let body = bytes(5, size);
        for expected in [201, 204] {
            put(&server, "/new.bin", &[], &body).is(expected);
            assert!(tree.read("store/new.bin") == body, "{size}");
        }
        std::fs::remove_file(tree.path("store/new.bin")).unwrap();
    }
    assert!(tree.names_in("store").is_empty());
}

#[test]
fn a_file_comes_in_chunks_of_any_size() {
    let (tree, server) = taking();
    let body = bytes(6, 300_000);
    for step in [1000, 65_536, 300_000] {
        let mut request = format!(
            "PUT /new HTTP/1.1\r\nHost: h\r\n{}\r\nConnection: close\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
            auth()
        )
        .into_bytes();
        for chunk in body.chunks(step) {
            request.extend_from_slice(format!("{:X};note=x\r\n", chunk.len()).as_bytes());
            request.extend_from_slice(chunk);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"0\r\nA-Trailer: x\r\n\r\n");
        let answer = Answer(server.raw(&request));
        assert_eq!(answer.status() / 100, 2, "{step}: {answer}");
        assert!(tree.read("store/new") == body, "{step}");
    }
}

#[test]
fn what_a_request_supposes_is_asked_for() {
    let (tree, server) = taking();
    tree.write("store/file", "old");
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(tree.path("store/file"), mode).unwrap();
    let tag = server.ask(&format!("HEAD /file HTTP/1.1\r\n{}", auth())).field("etag").unwrap();
    let right = format!("If-Match: {tag}");
    for (path, condition, expected) in [
        ("file", "If-None-Match: *", 412),
        ("file", "If-Match: \"other\"", 412),
        ("none", "If-Match: *", 412),
        ("file", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT", 412),
        ("file", right.as_str(), 204),
        ("file", right.as_str(), 412),
        ("other", "If-None-Match: *", 201),
        ("other", "If-None-Match: *", 412),
        ("other", "If-Match: *", 204),
    ] {
        let before = tree.read("store/file");
        put(&server, &format!("/{path}"), &[condition], b"new one").is(expected);
        if expected == 412 {
            assert_eq!(before, tree.read("store/file"), "{condition}");
        }
    }
    assert_eq!(tree.read("store/file"), b"new one");
    let mode = tree.path("store/file").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "it keeps who may read it");
    assert_eq!(tree.names_in("store"), ["file", "other"]);
}

#[test]
fn of_many_who_send_something_new_at_once_one_wins() {
    let (tree, server) = taking();
    let all: Vec<(u16, u16)> = std::thread::scope(|scope| {
        let server = &server;
        let senders: Vec<_> = (0..8)
            .map(|number: u16| {
                scope.spawn(move || {
                    let body = format!("{number}").repeat(100_000);
                    (number, put(server, "/one", &["If-None-Match: *"], body.as_bytes()).status())
                })
            })
            .collect();
        senders.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let won: Vec<u16> = all.iter().filter(|(_, code)| *code == 201).map(|(n, _)| *n).collect();
    assert_eq!(won.len(), 1, "{all:?}");
    assert!(all.iter().all(|(_, code)| matches!(code, 201 | 412)), "{all:?}");
    assert_eq!(tree.read("store/one"), format!("{}", won[0]).repeat(100_000).as_bytes());
    assert_eq!(tree.names_in("store"), ["one"]);
}

#[test]
fn a_digest_that_is_sent_has_to_be_right() {
    let (tree, server) = taking();
    // Of "hello\n".
    let right = "sha-256=:WJG1tSLV3whtD/CxEPvZ0hu0/HFjrzTQgoai6Eb2vgM=:";
    let wrong = "sha-256=:AJG1tSLV3whtD/CxEPvZ0hu0/HFjrzTQgoai6Eb2vgM=:";
    for (field, value, expected) in [
        ("Repr-Digest", wrong, 412),
        ("Content-Digest", wrong, 412),
        ("Repr-Digest", "unknown=:AAAA:", 400),
        ("Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA==", 412),
        ("Repr-Digest", right, 201),
        ("Content-Digest", right, 204),
        ("Repr-Digest", wrong, 412),
    ] {
        let before = tree.names_in("store");
        put(&server, "/file", &[&format!("{field}: {value}")], b"hello\n").is(expected);
        if expected >= 400 {
            assert_eq!(tree.names_in("store"), before, "{field}: {value}");
        }
    }
    assert_eq!(tree.read("store/file"), b"hello\n");
}

#[test]
fn only_who_may_write_sends_and_only_to_where_it_may() {
    let tree = Tree::new();
    tree.folder("store/folder");
    tree.folder("outside");
    tree.link("../outside", "store/out");
    tree.link("../outside/file", "store/link");
    let server = tree.plan(&["store"]).writes().tokens(&["reader"]).start();
    let status = |path: &str, token: &str, more: &str| {
        let head = format!(
            "PUT {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n{more}Content-Length: 1"
        );
        server.ask_with(&head, b"x").status()
    };
    for (path, token, more, expected) in [
        ("/new", "nobody", "", 401),
        ("/new", "reader", "", 403),
        ("/", TOKEN, "", 409),
        ("/folder", TOKEN, "", 409),
        ("/folder/", TOKEN, "", 409),
        ("/none/new", TOKEN, "", 409),
        ("/../new", TOKEN, "", 400),
        ("/%2e%2e/new", TOKEN, "", 400),
        ("/out/new", TOKEN, "", 403),
        ("/link", TOKEN, "", 409),
        ("/new.swath.part", TOKEN, "", 403),
        ("/.swath-stage.swath.put-1", TOKEN, "", 403),
        ("/new", TOKEN, "Content-Range: bytes 0-0/1\r\n", 400),
        ("/new", TOKEN, "Content-Encoding: gzip\r\n", 415),
        ("/new", TOKEN, "Expect: miracles\r\n", 417),
        ("/folder/new", TOKEN, "", 201),
    ] {
        assert_eq!(status(path, token, more), expected, "{path} {token} {more}");
    }
    assert!(tree.names_in("outside").is_empty());
    assert_eq!(tree.names_in("store"), ["folder", "link", "out"]);
    let reading = tree.plan(&["store"]).tokens(&[&format!("{TOKEN} write")]).start();
    put(&reading, "/new", &[], b"x").is(403).has(&["without --write"]);
}

#[test]
fn what_did_not_come_whole_has_no_name() {
    let (tree, server) = taking();
    tree.write("store/there", "as it was");
    for (framing, body, expected) in [
        ("Content-Length: 100", "too short", 400),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n", 400),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\nnonsense\r\n", 400),
        ("X: y", "", 411),
    ] {
        for name in ["there", "new"] {
            let head =
                format!("PUT /{name} HTTP/1.1\r\nHost: h\r\n{}\r\n{framing}\r\n\r\n", auth());
            let mut tcp = server.hold(&format!("{head}{body}"));
            tcp.shutdown(std::net::Shutdown::Write).unwrap();
            Answer(all_of(&mut tcp)).is(expected);
        }
    }
    assert_eq!(tree.read("store/there"), b"as it was");
    assert_eq!(tree.names_in("store"), ["there"]);
}

#[test]
fn while_a_file_comes_nothing_shows_and_its_connection_goes_on() {
    let (tree, server) = taking();
    tree.write("store/there", "as it was");
    let auth = auth();
    let mut tcp = server.hold(&format!(
        "PUT /there HTTP/1.1\r\nHost: h\r\n{auth}\r\nExpect: 100-continue\r\n\
         Content-Length: 300003\r\n\r\n"
    ));
    let mut leave = [0; 25];
    tcp.read_exact(&mut leave).unwrap();
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
    let body = bytes(7, 300_003);
    tcp.write_all(&body[..300_000]).unwrap();
    // What has come by now is counted: the server has taken some of it.
    crate::support::eventually("some of it", || {
        let page = server.ask(&format!("GET /metrics HTTP/1.1\r\n{auth}")).text();
        let line = page.lines().find_map(|line| line.strip_prefix("swath_received_bytes_total "));
        line.is_some_and(|bytes| bytes.trim() != "0")
    });
    assert_eq!(tree.read("store/there"), b"as it was");
    let list = server.ask(&format!("GET /?format=json HTTP/1.1\r\n{auth}")).text();
    assert_eq!(list.matches("\"name\"").count(), 1, "{list}");
    assert_eq!(tree.names_in("store"), ["there"]);
    tcp.write_all(&body[300_000..]).unwrap();
    let next = "HEAD /there HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
    tcp.write_all(format!("{next}{auth}\r\n\r\n").as_bytes()).unwrap();
    let answers = String::from_utf8(all_of(&mut tcp)).unwrap();
    assert!(answers.starts_with("HTTP/1.1 204"), "{answers}");
    assert!(answers.contains("\r\ncontent-length: 300003\r\n"), "it goes on: {answers}");
    assert!(tree.read("store/there") == body);
}

#[test]
fn what_finds_no_room_is_refused_before_it_is_sent() {
    // The system was asked to reserve it, which filled the disk before it said no.
    let (tree, server) = taking();
    let answer = server.ask(&format!(
        "PUT /huge HTTP/1.1\r\n{}\r\nExpect: 100-continue\r\nContent-Length: 4000000000000000",
        auth()
    ));
    assert!(matches!(answer.status(), 507 | 413), "{answer}");
    assert!(tree.names_in("store").is_empty());
}

#[test]
fn folders_above_a_file_are_made_for_those_who_ask_for_them() {
    let (tree, server) = taking();
    put(&server, "/none/b", &[], b"").is(409);
    put(&server, "/none/b", &["Swath-Folders: make", "If-Match: *"], b"").is(412);
    assert!(!tree.exists("store/none"));
    put(&server, "/new/deep/b", &["Swath-Folders: make"], b"x").is(201);
    assert_eq!(tree.read("store/new/deep/b"), b"x");
    // Not through a file, and not where copies keep what is theirs.
    for path in ["/new/deep/b/below/c", "/x.swath.part/c"] {
        let status = put(&server, path, &["Swath-Folders: make"], b"").status();
        assert!(matches!(status, 403 | 409), "{path}: {status}");
    }
    assert_eq!(tree.names_in("store"), ["new"]);
}

#[test]
fn the_time_that_a_client_tells_is_the_time_of_the_file() {
    let (tree, server) = taking();
    put(&server, "/e", &["X-OC-Mtime: 1000000000"], b"x").is(201);
    let modified = tree.path("store/e").metadata().unwrap().modified().unwrap();
    let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_secs(), 1_000_000_000);
}

/// Who sends a body that is refused and goes on with another request gets both answers.
#[test]
fn a_short_body_that_nobody_wants_ends_no_connection() {
    let (tree, server) = taking();
    tree.folder("store/folder");
    let auth = auth();
    let refused = format!(
        "PUT /folder HTTP/1.1\r\nHost: h\r\n{auth}\r\nContent-Length: 11\r\n\r\nGET /x HTTP"
    );
    let next = format!("GET /none HTTP/1.1\r\nHost: h\r\n{auth}\r\nConnection: close\r\n\r\n");
    let answers = String::from_utf8(server.raw(format!("{refused}{next}").as_bytes())).unwrap();
    let statuses: Vec<&str> =
        answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["409", "404"], "{answers}");
}
