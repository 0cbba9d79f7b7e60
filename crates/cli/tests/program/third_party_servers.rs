//! What tests of copies between servers share: a dataset, a server that fetches, and the command.
#![allow(dead_code)]

use std::fs;
use std::time::{Duration, Instant};

use crate::support::Home;
use crate::support::serve::Served;
use crate::support::trees::bytes;

pub fn with_dataset(folder: &str) -> Home {
    let home = Home::new();
    for (path, seed, length) in FILES {
        home.write(&format!("{folder}/ds/{path}"), bytes(seed, length));
    }
    fs::create_dir(home.path("b")).unwrap();
    home
}

/// An address with the token of a server, whose certificate `--fingerprint` knows.
pub fn at(server: &Served, path: &str) -> String {
    let (scheme, rest) = server.url.split_once("://").unwrap();
    format!("{scheme}://x:{}@{rest}{path}", server.token())
}

pub fn fingerprint(server: &Served) -> String {
    let line = server.words.lines().find(|line| line.starts_with("fingerprint")).unwrap();
    line.split_whitespace().last().unwrap().to_owned()
}

/// A server that fetches from servers on this machine.
pub fn destination(home: &Home, address: &str, more: &[&str]) -> Served {
    let args = ["b", "--write", "--third-party", "--third-party-from", "127.0.0.0/8"];
    home.serve_at(address, &[&args[..], more].concat())
}

pub fn args(servers: &[&Served], places: &[String]) -> Vec<String> {
    let mut args = vec!["cp".to_owned()];
    args.extend_from_slice(places);
    for server in servers {
        args.extend(["--fingerprint".to_owned(), fingerprint(server)]);
    }
    args
}

pub const FILES: [(&str, u32, usize); 4] =
    [("x.h5", 1, 3_000_001), ("sub/y", 2, 70_000), ("sub/deep/z", 3, 9), ("empty", 4, 0)];

impl Home {
    pub fn has_dataset(&self, folder: &str) {
        for (path, seed, length) in FILES {
            assert!(self.read(&format!("{folder}/{path}")) == bytes(seed, length), "{path}");
        }
    }

    pub fn jobs(&self) -> Vec<u8> {
        let folder = self.path("../home/.local/state/swath/third-party");
        let all = fs::read_dir(folder).unwrap().map(|it| fs::read(it.unwrap().path()).unwrap());
        all.flatten().collect()
    }
}

pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(90), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first word of each job that a server lists, and its state.
pub fn states(home: &Home, b: &Served) -> Vec<(String, String)> {
    let listed = home.run(["jobs", &at(b, ""), "--fingerprint", &fingerprint(b)]);
    let words = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    };
    listed.code_is(0).out().lines().map(words).collect()
}
