//! `--limit-rate` of those who send: `swath serve`, and `swath cp` to a server. A limit makes a copy take at
//! least so long, however busy the machine is. (That limits are kept evenly and smoothly, and by every kind
//! of connection, is tested on a clock of its own in the suite of the crate `serve`.)

use std::fs;
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::trees::{assert_same, bytes};

/// What a second may bring in these tests.
const RATE_BYTES_PER_S: usize = 1_000_000;
/// So much may come before the clock counts: what was not used of the last 50 ms, and the last turn
/// (20 ms), all of which may be moved when it begins.
const BURST_S: f64 = 0.072;

/// The least time that the limit leaves for so many bytes.
fn least(size_bytes: usize) -> Duration {
    Duration::from_secs_f64(size_bytes as f64 / RATE_BYTES_PER_S as f64 - BURST_S)
}

#[test]
fn trees_are_sent_and_taken_at_the_limit() {
    let home = Home::new();
    for number in 0..20 {
        home.write(&format!("tree/file-{number}"), bytes(number, 40_000));
    }
    fs::create_dir(home.path("store")).unwrap();
    for (serve, copy) in [(&["--limit-rate", "1M"][..], &[][..]), (&[], &["--limit-rate", "1M"])] {
        let server = home.serve(&[&["store", "--write", "--plain"], serve].concat());
        home.write("token", server.token());
        let began = Instant::now();
        let to = server.at("new/");
        home.run([&["cp", "tree/", &to, "--bearer-file", "token"], copy].concat()).code_is(0);
        assert!(began.elapsed() >= least(800_000), "{:?}", began.elapsed());
        assert_same(&home.path("tree"), &home.path("store/new"));
        fs::remove_dir_all(home.path("store/new")).unwrap();
    }
}

#[test]
fn a_tree_is_fetched_at_the_servers_limit() {
    let home = Home::new();
    home.write("tree/file", bytes(3, 700_000));
    let server = home.serve(&["tree", "--anonymous", "--limit-rate", "1M", "--plain"]);
    let began = Instant::now();
    home.run(["cp", &server.url, "got", "--quiet"]).code_is(0);
    assert!(began.elapsed() >= least(700_000), "{:?}", began.elapsed());
    assert_same(&home.path("tree"), &home.path("got"));
}
