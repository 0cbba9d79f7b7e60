//! `PUT` to `swath serve --write` onto a disk with little room, which only root can mount.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::small::Small;

/// A server of `store` that takes files.
fn taking(home: &Home, more: &[&str]) -> Served {
    fs::create_dir_all(home.path("store")).unwrap();
    home.serve(&[&["store", "--write"], more].concat())
}

/// The answer to a request that is written as it is, in which `{auth}` stands for the token.
fn raw(server: &Served, request: &str) -> String {
    let auth = format!("Host: h\r\nAuthorization: Bearer {}", server.token());
    let request = request.replace("{auth}", &auth);
    String::from_utf8_lossy(&server.raw(request.as_bytes())).into_owned()
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
