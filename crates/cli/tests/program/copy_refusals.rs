//! `swath cp` where it cannot be: said before it costs anything, and nothing is left behind.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;

use crate::support::Home;
use crate::support::trees::top;
use swath_model::index::Index;

/// A server that answers every request with these bytes and closes, until the test ends.
fn answering(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        std::thread::scope(|scope| {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let answer = &answer;
                // A connection may stay without a request, and must not hold up the others.
                scope.spawn(move || {
                    let mut request = Vec::new();
                    let mut part = [0; 4096];
                    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                        match stream.read(&mut part) {
                            Ok(bytes @ 1..) => request.extend_from_slice(&part[..bytes]),
                            _ => break,
                        }
                    }
                    let _ = stream.write_all(answer);
                });
            }
        });
    });
    url
}

#[test]
fn an_index_that_is_none_leaves_nothing_behind() {
    let home = Home::new();
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.swath.index\r\n\
        swath-walk: 00112233\r\nconnection: close\r\n\r\nswathidx\x01"
        .to_vec();
    // A folder, and then something of no kind.
    answer.extend_from_slice(&[2, 0, 1, b'd', 0, 0, 7, 7, 7]);
    let ran = home.run(["cp", &answering(answer), "copy"]);
    ran.code_is(7).says(&["entry 1 of the index is of no kind"]);
    ran.never_says(&["kept"]);
    assert_eq!(home.names(), [""; 0]);
}

#[test]
fn what_a_server_says_of_its_folder_is_no_reason_to_fail() {
    let home = Home::new();
    fs::create_dir(home.path("usual")).unwrap();
    let usual = top(&home.path("usual")).0;
    let mut index = Index::new();
    index.complete();
    let very_long = format!("755 {}", "9".repeat(4000));
    for (told, mode) in [
        ("755", usual),
        ("", usual),
        ("rwx------ 1.000000000", usual),
        ("17777 1.000000000", usual),
        ("711 1.9999999999", usual),
        ("711 1e9", usual),
        ("711 1.000000000, 711 1.000000000", usual),
        (&very_long, usual),
        ("711 9223372036854775807.999999999", 0o711),
        ("711 -9223372036854775808.000000000", 0o711),
        ("7777 1.000000000", 0o1777),
        ("0 1.000000000", 0o700),
    ] {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.swath.index\r\n\
             swath-walk: 1\r\nswath-top: {told}\r\nconnection: close\r\n\r\n"
        );
        let answer = [head.as_bytes(), index.wire_from(0)].concat();
        home.run(["cp", &answering(answer), "copy"]).code_is(0);
        assert_eq!(top(&home.path("copy")).0, mode, "{told}");
        fs::remove_dir(home.path("copy")).unwrap();
    }
}

#[test]
fn a_receiver_that_says_nothing_has_kept_nothing() {
    let home = Home::new();
    home.write("tree/file", "x\n");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n";
    for said in ["", "{\"receiving\":\"abc\"}\n"] {
        let to = answering(format!("{head}{said}").into_bytes());
        let ran = home.run(["cp", "tree/", &format!("{to}new/")]);
        ran.code_is(7).says(&["the receiver ended without a message"]);
        ran.never_says(&["kept"]);
    }
}

#[test]
fn a_refusal_is_told_in_its_servers_own_words() {
    let home = Home::new();
    home.write("tree/file", "x\n");
    let refusal = "HTTP/1.1 507 Insufficient Storage\r\ncontent-type: text/plain\r\n\
        connection: close\r\n\r\nthe quota of \x1b[31myours\x07 is used up\r\nmore of it\r\n";
    let url = answering(refusal.as_bytes().to_vec());
    let ran = home.run(["cp", "tree/", &format!("{url}new/")]);
    ran.code_is(5).says(&["507 Insufficient Storage: the quota of [31myours is used up"]);
    ran.never_says(&["\x1b[31m", "more of it"]);
    let ran = home.run(["cp", &url, "copy"]);
    ran.code_is(7).says(&["the quota of [31myours is used up"]);
    assert_eq!(home.names(), ["tree"]);
}

#[test]
fn a_place_that_cannot_be_is_said_at_once() {
    let home = Home::new();
    home.write("tree/file", "x\n");
    let server = home.serve(&["tree", "--anonymous", "--plain"]);
    symlink("nowhere", home.path("dead")).unwrap();
    home.run(["cp", &server.url, "dead"])
        .code_is(5)
        .says(&["dead is a link that leads to nothing"]);
    let long = "n".repeat(256);
    home.run(["cp", &server.url, &long]).code_is(5).says(&["File name too long"]);
    home.run(["cp", &server.url, "tree/file/below"]).code_is(5).says(&["Not a directory"]);
    home.write("own.swath.part/thesis", "years of work\n");
    home.run(["cp", &server.url, "own"])
        .code_is(5)
        .says(&["own.swath.part exists", "was not created by swath"]);
    assert_eq!(home.read("own.swath.part/thesis"), b"years of work\n");
    fs::create_dir(home.path("store")).unwrap();
    symlink("nowhere", home.path("store/dead")).unwrap();
    let taking = home.serve(&["store", "--write", "--plain"]);
    home.write("token", taking.token());
    for to in ["dead/".to_owned(), format!("{long}/")] {
        let ran = home.run(["cp", "tree/", &taking.at(&to), "--bearer-file", "token"]);
        assert_ne!(ran.code(), 0, "{ran}");
        ran.never_says(&["kept", "/proc/"]);
    }
    assert_eq!(fs::read_dir(home.path("store")).unwrap().count(), 1);
    assert_eq!(home.names(), ["dead", "own.swath.part", "store", "token", "tree"]);
}

#[test]
fn programs_hear_of_every_end() {
    // Whoever failed before a byte was asked for told nothing on standard output.
    let home = Home::new();
    home.write("tree/file", "");
    home.write("wrong", "wrong");
    let server = home.serve(&["tree", "--write", "--plain"]);
    home.write("token", server.token());
    let (none, refused) = (server.at("none/"), server.at("new/"));
    for (from, to, token, code) in [
        ("http://127.0.0.1:1/", "copy", "token", 7),
        ("http://127.0.0.1:1/file", "copy", "token", 7),
        (&*none, "copy", "token", 7),
        ("tree/", &*refused, "wrong", 7),
        ("tree/file", &*refused, "wrong", 7),
        ("/dev/zero", "copy", "token", 6),
        ("tree/", "/dev/null", "token", 5),
    ] {
        let options = ["--json", "--timeout", "2", "--bearer-file", token];
        let ran = home.run(["cp", from, to].into_iter().chain(options));
        ran.code_is(code);
        let out = ran.out();
        let failed = out.lines().filter(|line| line.contains("\"failed\""));
        assert_eq!(failed.count(), 1, "{ran}");
        let last: serde_json::Value =
            serde_json::from_str(ran.out().lines().last().unwrap()).unwrap();
        assert!(last["error"].as_str().is_some_and(|error| !error.is_empty()), "{ran}");
    }
}
