//! `swath cp` where it cannot be: said before it costs anything, and nothing is left behind.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;

use crate::support::Home;

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
        // Nobody is there at port 1, and it is tried again until then.
        let timeout = if from.contains(":1/") { "2" } else { "60" };
        let options = ["--json", "--timeout", timeout, "--bearer-file", token];
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
