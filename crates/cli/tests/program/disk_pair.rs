//! Two replicas of one file, what proves it, and what tests of lives cut short read of both sides: for
//! the tests of the program and for those of the whole system.
#![allow(dead_code)]

use std::time::{Duration, Instant};

use swath_model::Range;
use swath_netlab::faulty::{Algorithm, Behaviour, Content, MetalinkFile, Scope, Server, metalink};

use crate::support::{Home, Ran};

pub const MIB: u64 = 1 << 20;

/// Not a multiple of anything.
pub const SIZE: u64 = 20 * MIB + 4711;

/// Of each of two servers.
pub const RATE: u64 = 4_000_000;

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(90), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What proves the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Proof {
    Nothing,
    Sha256,
    Blake3,
    Pieces,
}

pub const PROOFS: [Proof; 4] = [Proof::Nothing, Proof::Sha256, Proof::Blake3, Proof::Pieces];

/// Two replicas.
pub struct Pair(pub [Server; 2]);

impl Pair {
    pub fn start(content: &Content, rate: u64) -> Pair {
        Pair([(), ()].map(|()| {
            Server::builder()
                .file("/data.bin", content.clone())
                .behaviour(Behaviour::rate(rate))
                .start()
                .unwrap()
        }))
    }

    /// Replicas that fall silent for ever when each has sent so many bytes: nothing ends before it is
    /// ended.
    pub fn stalling(content: &Content, after_bytes: u64) -> Pair {
        let pair = Pair::start(content, 4 * RATE);
        for server in &pair.0 {
            let lasts = Duration::from_secs(3600);
            server.add(Behaviour::Stall { after_bytes, lasts, scope: Scope::Server });
        }
        pair
    }

    /// Both send at most so many bytes a second from now on.
    pub fn slow_down(&self, rate: u64) {
        self.0.iter().for_each(|server| server.set(Behaviour::rate(rate)));
    }

    pub fn sent_bytes(&self) -> u64 {
        self.0.iter().map(|server| server.sent_bytes()).sum()
    }

    /// What both were asked for of the file.
    pub fn asked(&self) -> Vec<Range> {
        let asked = |server: &Server| {
            let ranges = server.log().records.into_iter().filter_map(|record| record.range);
            ranges.map(|range| Range::new(range.start, range.end)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(asked).collect()
    }

    /// The same command with these mirrors.
    pub fn args(&self, home: &Home, content: &Content, proof: Proof) -> Vec<String> {
        let urls = self.0.each_ref().map(|server| server.url("/data.bin"));
        let mut args =
            vec!["get".to_owned(), "--json".to_owned(), "-o".to_owned(), "data.bin".to_owned()];
        match proof {
            Proof::Nothing => args.extend(urls),
            Proof::Sha256 | Proof::Blake3 => {
                let algorithm =
                    if proof == Proof::Sha256 { Algorithm::Sha256 } else { Algorithm::Blake3 };
                args.extend([
                    "--digest".to_owned(),
                    format!("{}:{}", algorithm.name(), content.digest_hex(algorithm)),
                ]);
                args.extend(urls);
            }
            Proof::Pieces => {
                let document = metalink(&[MetalinkFile {
                    name: "data.bin",
                    content,
                    urls: &urls,
                    digests: &[Algorithm::Sha256],
                    piece_bytes: Some(MIB),
                }]);
                args.push(home.write("data.meta4", document).display().to_string());
            }
        }
        args
    }
}

/// The last event of this kind.
pub fn event(ran: &Ran, kind: &str) -> serde_json::Value {
    ran.out()
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .rfind(|event| event["event"] == kind)
        .unwrap_or_else(|| panic!("no event {kind}:\n{ran}"))
}

pub fn number(event: &serde_json::Value, name: &str) -> u64 {
    event[name].as_u64().unwrap_or_else(|| panic!("{name} in {event}"))
}
