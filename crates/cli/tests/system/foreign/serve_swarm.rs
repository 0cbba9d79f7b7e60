//! `swath serve --swarm` with the clients that people have, and how soon it ends.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::clients::has_peers;
use crate::support::seed::leecher;
use crate::support::serve::Served;
use crate::support::torrent::arrives;
use crate::support::trees::bytes;
use crate::support::{Home, on_time};
use swath_netlab::reserve_port;

/// `data/run7` of two files.
fn with_data() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("data/run7/detector")).unwrap();
    home.write("data/run7/detector/a.h5", bytes(1, 5_000_001));
    home.write("data/run7/b.txt", bytes(2, 70_000));
    home
}

impl Home {
    /// Publishes `data/NAME` as it is served on this port; returns the magnet link.
    fn publish_served(&self, name: &str, port: u16, more: &[&str]) -> String {
        let (path, url) = (format!("data/{name}"), format!("http://127.0.0.1:{port}/"));
        let args = ["publish", &path, "-o", "data/pub", "--piece", "64KiB", "--served-at", &url];
        let out = self.run(args.iter().chain(more)).code_is(0).out();
        let link = out.split_whitespace().find(|word| word.starts_with("magnet:"));
        link.unwrap_or_else(|| panic!("{out}")).to_owned()
    }

    fn serve_swarm(&self, port: u16, more: &[&str]) -> Served {
        let swarm = ["data", "--anonymous", "--plain", "--swarm", "data/pub"];
        let args = [&swarm[..], &["--listen-peers", "127.0.0.1:0"], more].concat();
        self.serve_at(&format!("127.0.0.1:{port}"), &args)
    }
}

/// The address at which a server accepts peers.
fn peers(server: &Served) -> String {
    let line = server.words.lines().find(|line| line.starts_with("peers ")).expect("a line");
    line.split_whitespace().last().unwrap().to_owned()
}

fn seeder_port(server: &Served) -> u16 {
    peers(server).rsplit(':').next().unwrap().parse().unwrap()
}

/// They were looked for when the server started, and never again.
#[test]
fn data_that_come_later_are_seeded() {
    let (home, port) = (with_data(), reserve_port());
    home.publish_served("run7", port, &[]);
    fs::rename(home.path("data/run7/detector"), home.path("away")).unwrap();
    let server = home.serve_swarm(port, &[]);
    server.says("verified run7: 2 of 79 pieces are right");
    server.says("run7: announced to ");
    fs::rename(home.path("away"), home.path("data/run7/detector")).unwrap();
    server.says("verified run7: 79 of 79 pieces are right");
    // The seeder alone has all of it: mirrors are not asked.
    let torrent = home.path("data/pub/run7.torrent");
    let client = leecher(&home.path("theirs"), &torrent, false, Some(seeder_port(&server)));
    let Some(_client) = client else { return };
    arrives(&home.path("theirs/run7/detector/a.h5"), &home.read("data/run7/detector/a.h5"));
}

/// Its own tracker did not answer any more when the seeder told it that it leaves.
#[test]
fn it_stops_at_once() {
    on_time(|| {
        let (home, port) = (with_data(), reserve_port());
        home.publish_served("run7", port, &[]);
        let server = home.serve_swarm(port, &[]);
        server.says("run7: announced to udp://");
        let began = Instant::now();
        server.signal(15);
        assert_eq!(server.wait(), Some(0));
        let took = began.elapsed();
        if took < Duration::from_secs(1) { Ok(()) } else { Err(format!("it took {took:?}")) }
    });
}

#[test]
fn transmission_fetches_from_it() {
    let (home, port) = (with_data(), reserve_port());
    home.publish_served("run7", port, &["--torrent", "v1"]);
    let server = home.serve_swarm(port, &[]);
    has_peers(&server, 1);
    fs::copy(home.path("data/pub/run7.torrent"), home.path("run7.torrent")).unwrap();
    let Some(_client) = home.transmission("run7", "got") else { return };
    for path in ["detector/a.h5", "b.txt"] {
        let expected = home.read(&format!("data/run7/{path}"));
        arrives(&home.path("got/run7").join(path), &expected);
    }
    has_peers(&server, 2);
}
