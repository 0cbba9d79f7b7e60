//! `PUT` of single files to `swath serve --write`, as curl and others send them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::serve::{Served, other};
use crate::support::small::Small;
use crate::support::trees::bytes;

/// A server of `store` that takes files.
fn taking(home: &Home, more: &[&str]) -> Served {
    fs::create_dir_all(home.path("store")).unwrap();
    home.serve(&[&["store", "--write"], more].concat())
}

/// Send the file `file` by curl; answers the status. `None` without curl.
fn curl(home: &Home, server: &Served, path: &str, more: &[&str]) -> Option<String> {
    let (token, url) = (format!("Authorization: Bearer {}", server.token()), server.at(path));
    let mut args = vec!["-sSk", "-o", "/dev/null", "-w", "%{http_code}", "-H", &token];
    args.extend(["-T", "file"]);
    args.extend(more);
    args.push(&url);
    Some(other(&home.path(""), "curl", &args)?.1)
}

/// The answer to a request that is written as it is, in which `{auth}` stands for the token.
fn raw(server: &Served, request: &str) -> String {
    let auth = format!("Host: h\r\nAuthorization: Bearer {}", server.token());
    let request = request.replace("{auth}", &auth);
    String::from_utf8_lossy(&server.raw(request.as_bytes())).into_owned()
}

#[test]
fn curl_sends_a_file_and_sends_it_again() {
    let home = Home::new();
    for (server, versions) in [
        (taking(&home, &["--plain"]), &["--http1.1"][..]),
        (taking(&home, &[]), &["--http1.1", "--http2"]),
    ] {
        for version in versions {
            for (size, more) in [
                (3_000_001, &[][..]),
                (700_000, &["-H", "Transfer-Encoding: chunked"]),
                (0, &[]),
                (9, &["-H", "Expect: 100-continue"]),
            ] {
                home.write("file", bytes(5, size));
                for expected in ["201", "204"] {
                    let more = [&[*version], more].concat();
                    let Some(status) = curl(&home, &server, "new.bin", &more) else { return };
                    assert_eq!(status, expected, "{more:?}");
                    assert_eq!(home.read("store/new.bin"), bytes(5, size), "{more:?}");
                }
                fs::remove_file(home.path("store/new.bin")).unwrap();
            }
        }
    }
    assert!(home.names_in("store").is_empty());
}

#[test]
fn what_a_request_supposes_is_asked_for() {
    let home = Home::new();
    let server = taking(&home, &["--plain"]);
    home.write("store/file", "old");
    home.write("file", "new one");
    fs::set_permissions(home.path("store/file"), fs::Permissions::from_mode(0o640)).unwrap();
    let answer = raw(&server, "HEAD /file HTTP/1.1\r\n{auth}\r\nConnection: close\r\n\r\n");
    let tag = answer.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let right = format!("If-Match: {tag}");
    for (path, condition, expected) in [
        ("file", "If-None-Match: *", "412"),
        ("file", "If-Match: \"other\"", "412"),
        ("none", "If-Match: *", "412"),
        ("file", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT", "412"),
        ("file", right.as_str(), "204"),
        ("file", right.as_str(), "412"),
        ("other", "If-None-Match: *", "201"),
        ("other", "If-None-Match: *", "412"),
        ("other", "If-Match: *", "204"),
    ] {
        let before = home.exists("store/file").then(|| home.read("store/file"));
        let Some(status) = curl(&home, &server, path, &["-H", condition]) else { return };
        assert_eq!(status, expected, "{path} {condition}");
        if expected == "412" {
            assert_eq!(before, Some(home.read("store/file")), "{condition}");
        }
    }
    assert_eq!(home.read("store/file"), b"new one");
    let mode = home.path("store/file").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "it keeps who may read it");
    assert_eq!(home.names_in("store"), ["file", "other"]);
}

#[test]
fn of_many_who_send_something_new_at_once_one_wins() {
    let home = Home::new();
    let server = taking(&home, &["--plain"]);
    let auth = format!("Authorization: Bearer {}", server.token());
    let address = server.address();
    let sent: Vec<_> = (0..8)
        .map(|number| {
            let auth = auth.clone();
            std::thread::spawn(move || {
                let body = format!("{number}").repeat(100_000);
                let mut tcp = TcpStream::connect(address).unwrap();
                let head = format!(
                    "PUT /one HTTP/1.1\r\nHost: h\r\n{auth}\r\nIf-None-Match: *\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let _ = tcp.write_all(format!("{head}{body}").as_bytes());
                let mut answer = String::new();
                let _ = tcp.read_to_string(&mut answer);
                (number, answer[9..12].to_owned())
            })
        })
        .collect();
    let sent: Vec<_> = sent.into_iter().map(|one| one.join().unwrap()).collect();
    let won: Vec<_> = sent.iter().filter(|(_, status)| status == "201").collect();
    assert_eq!(won.len(), 1, "{sent:?}");
    assert!(sent.iter().all(|(_, status)| status == "201" || status == "412"), "{sent:?}");
    assert_eq!(home.read("store/one"), format!("{}", won[0].0).repeat(100_000).as_bytes());
    assert_eq!(home.names_in("store"), ["one"]);
}

#[test]
fn a_refusal_reaches_who_still_sends() {
    // With HTTP/2 the stream was reset as soon as the answer stood, because nobody read the body:
    // in every second run curl knew only "Stream error in the HTTP/2 framing layer", or had a part
    // of the answer.
    let home = Home::new();
    let server = taking(&home, &[]);
    fs::create_dir(home.path("store/folder")).unwrap();
    home.write("store/there", "x");
    home.write("small", "four");
    home.write("middle", bytes(1, 100_000));
    home.write("big", bytes(2, 30 << 20));
    let (right, url) = (format!("Authorization: Bearer {}", server.token()), &server.url);
    let (wrong, new) = ("Authorization: Bearer bad", "If-None-Match: *");
    let mut refusals = Vec::new();
    for file in ["small", "middle", "big"] {
        refusals.push((file, "401", "new", wrong, "X: y"));
        refusals.push((file, "412", "there", right.as_str(), new));
        refusals.push((file, "409", "folder", right.as_str(), "X: y"));
        refusals.push((file, "400", "new", right.as_str(), "Content-Range: bytes 0-0/1"));
    }
    // More than there is room for, though there is nothing in it.
    let huge = fs::File::create(home.path("huge")).unwrap();
    if huge.set_len(15 << 40).is_ok() {
        refusals.push(("huge", "507", "new", right.as_str(), "X: y"));
    }
    for (file, status, path, token, more) in refusals {
        let to = format!("{url}{path}");
        let args = ["-sSk", "--http2", "--max-time", "30", "-w", "%{http_code}", "-T", file];
        let args = [&args[..], &["-H", token, "-H", more, "-H", "Expect:", &to]].concat();
        for _ in 0..20 {
            let Some((code, said)) = other(&home.path(""), "curl", &args) else { return };
            assert_eq!(code, 0, "{file} {path}: {said}");
            assert!(said.ends_with(&format!("\n{status}")), "{file} {path}: {said}");
        }
    }
    assert_eq!(home.names_in("store"), ["folder", "there"]);
}

#[test]
fn a_digest_that_is_sent_has_to_be_right() {
    let home = Home::new();
    let server = taking(&home, &["--plain"]);
    home.write("file", "hello\n");
    // Of "hello\n".
    let right = "sha-256=:WJG1tSLV3whtD/CxEPvZ0hu0/HFjrzTQgoai6Eb2vgM=:";
    let wrong = "sha-256=:AJG1tSLV3whtD/CxEPvZ0hu0/HFjrzTQgoai6Eb2vgM=:";
    for (field, value, expected) in [
        ("Repr-Digest", wrong, "412"),
        ("Content-Digest", wrong, "412"),
        ("Repr-Digest", "unknown=:AAAA:", "400"),
        ("Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA==", "412"),
        ("Repr-Digest", right, "201"),
        ("Content-Digest", right, "204"),
        ("Repr-Digest", wrong, "412"),
    ] {
        let header = format!("{field}: {value}");
        let before = home.names_in("store");
        let Some(status) = curl(&home, &server, "file", &["-H", &header]) else { return };
        assert_eq!(status, expected, "{header}");
        if expected.starts_with('4') {
            assert_eq!(home.names_in("store"), before, "{header}");
        }
    }
    assert_eq!(home.read("store/file"), b"hello\n");
}

#[test]
fn only_who_may_write_sends_and_only_to_where_it_may() {
    let home = Home::new();
    fs::create_dir_all(home.path("store/folder")).unwrap();
    fs::create_dir(home.path("outside")).unwrap();
    home.write("tokens", "reader\nwriter write\n");
    home.write("file", "x");
    symlink("../outside", home.path("store/out")).unwrap();
    symlink("../outside/file", home.path("store/link")).unwrap();
    let server = home.serve(&["store", "--write", "--plain", "--token-file", "tokens"]);
    let status = |path: &str, token: &str, more: &str| {
        let text = format!(
            "PUT {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n{more}Content-Length: 1\r\n\r\nx"
        );
        String::from_utf8_lossy(&server.raw(text.as_bytes()))[9..12].to_owned()
    };
    for (path, token, more, expected) in [
        ("/new", "nobody", "", "401"),
        ("/new", "reader", "", "403"),
        ("/", "writer", "", "409"),
        ("/folder", "writer", "", "409"),
        ("/folder/", "writer", "", "409"),
        ("/none/new", "writer", "", "409"),
        ("/../new", "writer", "", "400"),
        ("/%2e%2e/new", "writer", "", "400"),
        ("/out/new", "writer", "", "403"),
        ("/link", "writer", "", "409"),
        ("/new.swath.part", "writer", "", "403"),
        ("/.swath-stage.swath.put-1", "writer", "", "403"),
        ("/new", "writer", "Content-Range: bytes 0-0/1\r\n", "400"),
        ("/new", "writer", "Content-Encoding: gzip\r\n", "415"),
        ("/new", "writer", "Expect: miracles\r\n", "417"),
        ("/folder/new", "writer", "", "201"),
    ] {
        assert_eq!(status(path, token, more), expected, "{path} {token} {more}");
    }
    assert_eq!(fs::read_dir(home.path("outside")).unwrap().count(), 0);
    assert_eq!(home.names_in("store"), ["folder", "link", "out"]);
    let reading = home.serve(&["store", "--plain"]);
    let answer = raw(
        &reading,
        "PUT /new HTTP/1.1\r\n{auth}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
    );
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn what_did_not_come_whole_has_no_name() {
    let home = Home::new();
    let server = taking(&home, &["--plain"]);
    home.write("store/there", "as it was");
    for (framing, body) in [
        ("Content-Length: 100", "too short"),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\n"),
        ("Transfer-Encoding: chunked", "5\r\nhello\r\nnonsense\r\n"),
        ("X: y", ""),
    ] {
        for name in ["there", "new"] {
            let mut tcp = TcpStream::connect(server.address()).unwrap();
            let auth = server.token();
            write!(tcp, "PUT /{name} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {auth}\r\n{framing}\r\n\r\n{body}").unwrap();
            tcp.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            let _ = tcp.read_to_string(&mut answer);
            let expected = if framing == "X: y" { "HTTP/1.1 411" } else { "HTTP/1.1 400" };
            assert!(answer.starts_with(expected), "{framing}: {answer}");
        }
    }
    assert_eq!(home.read("store/there"), b"as it was");
    assert_eq!(home.names_in("store"), ["there"]);
    // While it comes nothing shows either.
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    let auth = server.token();
    write!(tcp, "PUT /there HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {auth}\r\nExpect: 100-continue\r\nContent-Length: 7\r\n\r\n").unwrap();
    let mut leave = [0; 25];
    tcp.read_exact(&mut leave).unwrap();
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
    tcp.write_all(b"new").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(
        (home.read("store/there"), home.names_in("store")),
        (b"as it was".to_vec(), vec!["there".to_owned()])
    );
    tcp.write_all(b" oneGET /there HTTP/1.1\r\nHost: h\r\nConnection: close\r\n").unwrap();
    write!(tcp, "Authorization: Bearer {auth}\r\n\r\n").unwrap();
    let mut answers = String::new();
    tcp.read_to_string(&mut answers).unwrap();
    assert!(answers.starts_with("HTTP/1.1 204"), "{answers}");
    assert!(answers.ends_with("\r\n\r\nnew one"), "the connection goes on: {answers}");
}

/// A body that never ends filled the disk for everybody.
#[test]
fn a_file_that_tells_no_length_leaves_room_to_others() {
    let home = Home::new();
    let Some(_small) = Small::mount(&home.path("store"), 64 << 20) else { return };
    let server = taking(&home, &["--plain"]);
    let mut tcp = TcpStream::connect(server.address()).unwrap();
    let auth = format!("Authorization: Bearer {}", server.token());
    let head =
        format!("PUT /endless HTTP/1.1\r\nHost: h\r\n{auth}\r\nTransfer-Encoding: chunked\r\n\r\n");
    tcp.write_all(head.as_bytes()).unwrap();
    let chunk = [b"10000\r\n", &[7; 0x10000][..], b"\r\n"].concat();
    // It answers, and closes, before all of this has come.
    for _ in 0..2048 {
        if tcp.write_all(&chunk).is_err() {
            break;
        }
    }
    let mut answer = [0; 12];
    tcp.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 507");
    assert_eq!(home.names_in("store"), [""; 0]);
    let small = raw(
        &server,
        "PUT /small HTTP/1.1\r\n{auth}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfits",
    );
    assert!(small.starts_with("HTTP/1.1 201"), "{small}");
}

#[test]
fn what_finds_no_room_is_refused_before_it_is_sent() {
    // The system was asked to reserve it, which filled the disk before it said no.
    let home = Home::new();
    let server = taking(&home, &["--plain"]);
    let answer = raw(
        &server,
        "PUT /huge HTTP/1.1\r\n{auth}\r\nExpect: 100-continue\r\nContent-Length: 4000000000000000\r\n\r\n",
    );
    let status = &answer[9..12];
    assert!(status == "507" || status == "413", "{answer}");
    assert!(home.names_in("store").is_empty());
}

#[test]
fn files_come_at_the_limit() {
    let home = Home::new();
    home.write("file", bytes(1, 1_200_000));
    for (server, version) in [
        (taking(&home, &["--plain", "--limit-rate", "1M"]), "--http1.1"),
        (taking(&home, &["--limit-rate", "1M"]), "--http2"),
    ] {
        let began = Instant::now();
        let Some(status) = curl(&home, &server, "new", &[version]) else { return };
        assert!(status == "201" || status == "204", "{status}");
        assert!(began.elapsed() >= Duration::from_millis(1100), "{:?}", began.elapsed());
    }
    assert_eq!(home.read("store/new"), bytes(1, 1_200_000));
}
