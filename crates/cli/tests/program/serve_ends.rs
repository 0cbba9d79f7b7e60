//! The end of `swath serve`: what is under way when the signal comes, and what is not.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::{assert_same, bytes};

/// A tree that takes some four seconds, in many answers.
fn tree(home: &Home) {
    home.write("tree/wide.bin", bytes(4, 24 << 20));
    for number in 0..100 {
        home.write(&format!("tree/small/{number}"), bytes(number, 40_000));
    }
}

fn text(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).into_owned()
}

fn get(server: &Served, target: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    text(&server.raw(request.as_bytes()))
}

#[test]
fn a_tree_that_is_being_fetched_comes_whole_before_the_server_ends() {
    // Answers ended, and no request was taken behind them: a curl and an upload were finished, and a
    // copy of a tree was cut off, within milliseconds and often without a word.
    for how in [&["--plain", "--anonymous"][..], &["--anonymous"]] {
        let home = Home::new();
        tree(&home);
        let server = home.serve(&[&["tree", "--limit-rate", "7M"], how].concat());
        let args = ["cp", &server.url, "copy/", "--insecure", "--timeout", "3s"];
        let args = if how.len() == 2 { [&args[..3], &args[4..]].concat() } else { args.to_vec() };
        let copy = home.swath(args).start();
        home.wait_for_bytes("copy.swath.part/wide.bin", 4 << 20);
        server.signal(libc::SIGTERM);
        server.says("stopping: waiting ");
        copy.wait().code_is(0);
        assert_eq!(server.wait(), Some(0));
        assert_same(&home.path("tree"), &home.path("copy"));
    }
}

#[test]
fn a_tree_under_way_is_answered_on_new_connections_and_nothing_else_is_begun() {
    let home = Home::new();
    tree(&home);
    let server = home.serve(&["tree", "--plain", "--anonymous", "--limit-rate", "2M"]);
    let index = get(&server, "/?swath=index");
    let walk = index.lines().find_map(|line| line.strip_prefix("swath-walk: ")).unwrap();
    let mut slow = TcpStream::connect(server.address()).unwrap();
    let all = format!("GET /?swath=sealed&walk={walk} HTTP/1.1\r\nHost: h\r\n\r\n");
    slow.write_all(all.as_bytes()).unwrap();
    slow.read_exact(&mut [0; 1000]).unwrap();
    server.signal(libc::SIGTERM);
    server.says("stopping: waiting ");
    let group_hashes = get(&server, &format!("/?swath=seals&walk={walk}&groups=0-3"));
    assert!(group_hashes.starts_with("HTTP/1.1 200 "), "{group_hashes}");
    for other in ["/small/1", "/?swath=index", "/", "/health", "/metrics"] {
        let answer = get(&server, other);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{other}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{other}: {answer}");
    }
    // Who wanted it has gone, and nobody waits for ten seconds.
    drop(slow);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    // It was heard by nobody: who typed Ctrl-C twice waited for ten seconds.
    let home = Home::new();
    tree(&home);
    let server = home.serve(&["tree", "--plain", "--anonymous", "--limit-rate", "2M"]);
    let mut slow = TcpStream::connect(server.address()).unwrap();
    slow.write_all(b"GET /wide.bin HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    slow.read_exact(&mut [0; 1000]).unwrap();
    server.signal(libc::SIGINT);
    server.says("stopping: waiting up to 10 s for 1 connection");
    server.signal(libc::SIGTERM);
    server.says("stopped by a second signal: open transfers were cut off");
    assert_eq!(server.wait(), Some(130));
}
