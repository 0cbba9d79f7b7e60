//! `--limit-rate` of those who send: `swath serve`, and `swath cp` to a server.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::serve::{Served, succeeds};
use crate::support::trees::{assert_same, bytes};

/// What a second may bring in these tests.
const RATE_BYTES_PER_S: usize = 1_000_000;
/// So much may come before the clock counts: what was not used of the last 50 ms, and the last turn
/// (20 ms), all of which may be moved when it begins.
const BURST_S: f64 = 0.072;

/// A server of one file of that many bytes.
fn limited(home: &Home, size_bytes: usize, more: &[&str]) -> Served {
    home.write("tree/file", bytes(3, size_bytes));
    home.serve(&[&["tree", "--anonymous", "--limit-rate", "1M"], more].concat())
}

/// When how many bytes of the file were there.
fn fetch(address: SocketAddr) -> Vec<(Duration, usize)> {
    fetch_since(Instant::now(), address)
}

fn fetch_since(began: Instant, address: SocketAddr) -> Vec<(Duration, usize)> {
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.write_all(b"GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut steps = Vec::new();
    let (mut part, mut all) = (vec![0; 64 << 10], 0);
    loop {
        let bytes = tcp.read(&mut part).unwrap();
        if bytes == 0 {
            return steps;
        }
        all += bytes;
        steps.push((began.elapsed(), all));
    }
}

/// The least time that the limit leaves for so many bytes.
fn least(size_bytes: usize) -> Duration {
    Duration::from_secs_f64(size_bytes as f64 / RATE_BYTES_PER_S as f64 - BURST_S)
}

#[test]
fn a_file_comes_at_the_limit_and_smoothly() {
    let home = Home::new();
    let server = limited(&home, 2_000_000, &["--plain"]);
    let steps = fetch(server.address());
    let (took, all) = *steps.last().unwrap();
    assert!(all > 2_000_000, "all came: {all}");
    assert!(took >= least(2_000_000), "{took:?}");
    assert!(took < Duration::from_secs(8), "{took:?}");
    // What is sent once a second comes in steps of 1,000,000 bytes; 20 ms are a share here.
    for (at, &(from, before)) in steps.iter().enumerate() {
        let soon =
            steps[at..].iter().take_while(|(then, _)| *then < from + Duration::from_millis(100));
        let brought = soon.last().unwrap().1 - before;
        assert!(brought < RATE_BYTES_PER_S * 8 / 10, "{brought} bytes within 100 ms at {from:?}");
    }
}

#[test]
fn connections_share_it_evenly() {
    let home = Home::new();
    let server = limited(&home, 800_000, &["--plain"]);
    let address = server.address();
    // From one moment on, for they may begin one after the other.
    let began = Instant::now();
    let all: Vec<_> =
        (0..3).map(|_| std::thread::spawn(move || fetch_since(began, address))).collect();
    let all: Vec<_> = all.into_iter().map(|one| *one.join().unwrap().last().unwrap()).collect();
    let mut ends: Vec<Duration> = all.into_iter().map(|(end, _)| end).collect();
    ends.sort_unstable();
    assert!(ends[2] >= least(2_400_000), "{ends:?}");
    // One before the others it would have been there after 0.8 s.
    assert!(ends[0] >= least(1_800_000), "{ends:?}");
}

#[test]
fn encrypted_answers_are_limited_too() {
    let home = Home::new();
    let server = limited(&home, 1_500_000, &[]);
    for version in ["--http1.1", "--http2"] {
        let began = Instant::now();
        let args = ["-sSk", version, "-o", "got", &server.at("file")];
        if succeeds(&home.path(""), "curl", &args).is_none() {
            return;
        }
        assert!(began.elapsed() >= least(1_500_000), "{version}: {:?}", began.elapsed());
        assert_eq!(home.read("got"), bytes(3, 1_500_000), "{version}");
    }
}

#[test]
fn trees_are_sent_and_taken_at_the_limit() {
    let home = Home::new();
    for number in 0..40 {
        home.write(&format!("tree/file-{number}"), bytes(number, 40_000));
    }
    fs::create_dir(home.path("store")).unwrap();
    for (serve, copy) in [(&["--limit-rate", "1M"][..], &[][..]), (&[], &["--limit-rate", "1M"])] {
        let server = home.serve(&[&["store", "--write", "--plain"], serve].concat());
        home.write("token", server.token());
        let began = Instant::now();
        let to = server.at("new/");
        home.run([&["cp", "tree/", &to, "--bearer-file", "token"], copy].concat()).code_is(0);
        assert!(began.elapsed() >= least(1_600_000), "{:?}", began.elapsed());
        assert_same(&home.path("tree"), &home.path("store/new"));
        fs::remove_dir_all(home.path("store/new")).unwrap();
    }
}

#[test]
fn a_tree_is_fetched_at_the_servers_limit() {
    let home = Home::new();
    let server = limited(&home, 1_500_000, &["--plain"]);
    let began = Instant::now();
    home.run(["cp", &server.url, "got", "--quiet"]).code_is(0);
    assert!(began.elapsed() >= least(1_500_000), "{:?}", began.elapsed());
    assert_same(&home.path("tree"), &home.path("got"));
}
