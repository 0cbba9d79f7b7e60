//! What has been named is something else than it looks: a folder of a server that is none of ours,
//! replicas without a `/`, a place that cannot be used.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::support::Home;

/// A web server as there are many: `/sub` leads to `/sub/`, which is a page that lists the folder.
/// All else is a file. Answers its address.
fn other_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut tcp, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && tcp.read(&mut byte).is_ok_and(|n| n > 0) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split_whitespace().nth(1).unwrap_or_default();
                let path = path.split('?').next().unwrap_or_default();
                let (more, text) = match path {
                    "/sub" => ("301 Moved\r\nLocation: /sub/\r\n", ""),
                    "/moved" => ("301 Moved\r\nLocation: /file\r\n", ""),
                    "/sub/" => ("200 OK\r\nContent-Type: text/html\r\n", "<a href=one>one</a>"),
                    path if path.ends_with('/') => ("404 Not Found\r\n", ""),
                    _ => ("200 OK\r\nContent-Type: text/plain\r\n", "a file"),
                };
                let length = text.len();
                let rest = format!("Content-Length: {length}\r\nConnection: close\r\n\r\n{text}");
                let _ = write!(tcp, "HTTP/1.1 {more}{rest}");
            });
        }
    });
    url
}

#[test]
fn replicas_without_a_slash_are_told_what_they_lack() {
    let home = Home::new();
    let ran = home.run(["cp", "https://a/sub", "https://b/sub", "x"]);
    ran.code_is(2).says(&[
        "two sources are called 'sub': if they are replicas of one tree, end each with '/'",
        "': if they are replicas of one tree, end each with '/'",
    ]);
}

#[test]
fn where_nothing_came_no_rest_is_spoken_of_and_a_reason_is_told_once() {
    let home = Home::new();
    home.write("tree/a", "a\n");
    let server = home.serve(&["tree", "--anonymous"]);
    let url = server.url.clone();
    for command in [&["ls", &url][..], &["ls", "-R", &url], &["du", &url], &["cp", &url, "copy"]] {
        let ran = home.run(command);
        ran.code_is(7).says(&["--fingerprint trusts the certificate"]).never_says(&["the rest"]);
    }
    let other = other_server();
    let ran = home.run(["du", &other]);
    ran.code_is(7).never_says(&["no source"]);
    assert_eq!(ran.stderr.matches(&other).count(), 1, "{ran}");
}

#[test]
fn sizes_that_are_compared_are_told_in_the_units_of_all_others() {
    let home = Home::new();
    home.write("tree/a", vec![1; 3_000_000]);
    home.write("copy/a", vec![1; 3_000_000]);
    home.run(["cp", "tree/", "copy", "--checksum"])
        .code_is(0)
        .says(&["comparing the content of 3.00 MB on both sides"]);
}
