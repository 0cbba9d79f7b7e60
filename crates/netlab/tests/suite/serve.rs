//! `netlab serve` as a script sees it: the URL on the first line, an end with standard input.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use swath_netlab::faulty::{Algorithm, Content};

#[test]
fn serves_until_standard_input_ends() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_netlab"))
        .args(["serve", "--size", "64KiB", "--seed", "5", "--until-eof", "--digest", "sha-256"])
        .args(["--path", "/file", "--header", "X-Lab: yes", "--die-after-bytes", "64KiB"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let content = Content::random(5, 64 << 10);
    let digest = format!("sha-256:{}", content.digest_hex(Algorithm::Sha256));
    assert_eq!(lines.next().unwrap().unwrap(), digest);

    let address = url.strip_prefix("http://").unwrap().strip_suffix("/file").unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"GET /file HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&content.read(0, 64 << 10)));
    assert!(String::from_utf8_lossy(&answer).contains("\r\nX-Lab: yes\r\n"));
    // It dies after its bytes, which may be a moment after it closed this connection.
    let ends = Instant::now() + Duration::from_secs(90);
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < ends, "it lives");
    }

    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
