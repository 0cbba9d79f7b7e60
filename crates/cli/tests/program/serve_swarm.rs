//! `swath serve --swarm`: one server is web seed, tracker and seeder.

use std::fs;

use swath_netlab::reserve_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::support::Home;
use crate::support::clients::has_peers;
use crate::support::serve::Served;
use crate::support::torrent::arrives;
use crate::support::trees::bytes;

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

    fn has_run7(&self, folder: &str) {
        for path in ["detector/a.h5", "b.txt"] {
            let there = self.read(&format!("{folder}/run7/{path}"));
            assert!(there == self.read(&format!("data/run7/{path}")), "{folder}/{path}");
        }
    }
}

/// The address at which a server accepts peers.
fn peers(server: &Served) -> String {
    let line = server.words.lines().find(|line| line.starts_with("peers ")).expect("a line");
    line.split_whitespace().last().unwrap().to_owned()
}

#[test]
fn one_server_is_web_seed_tracker_and_seeder() {
    let (home, port) = (with_data(), reserve_port());
    home.publish_served("run7", port, &["--version", "1"]);
    let server = home.serve_swarm(port, &["--limit-rate", "3M"]);
    assert!(server.words.contains(&format!("tracker      udp://127.0.0.1:{port}/announce\n")));
    server.says("run7: announced to udp://");
    // It announces both info-hashes.
    has_peers(&server, 2);
    let torrent = server.at("pub/run7-1.torrent");
    let args = ["get", &torrent, "-d", "got", "--keep-seeding"];
    let got = home.swath(args).start();
    has_peers(&server, 4);
    arrives(&home.path("got/run7/b.txt"), &home.read("data/run7/b.txt"));
    got.signal(2);
    // Both its web server and its seeder have delivered something.
    got.wait().says(&[&format!("127.0.0.1:{port}"), &peers(&server)]);
    home.has_run7("got");
    let feed = server.at("pub/feed.rss");
    home.run(["get", &feed, "--latest", "run7", "-d", "by-feed"]).code_is(0);
    home.has_run7("by-feed");
    server.signal(15);
    server.says("sent ");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn versions_that_are_published_while_it_runs_are_seeded() {
    let (home, port) = (with_data(), reserve_port());
    home.publish_served("run7", port, &[]);
    let server = home.serve_swarm(port, &[]);
    server.says("run7: announced to ");
    home.write("data/run8", bytes(3, 300_001));
    let link = home.publish_served("run8", port, &[]);
    // The tracker would refuse what is announced before it knows it.
    server.says("reloaded: ");
    server.says("verified run8: ");
    server.says("run8: announced to ");
    // The description of the torrent comes from a peer.
    home.run(["get", &link, "-d", "got"]).code_is(0);
    assert!(home.read("got/run8") == home.read("data/run8"));
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
    let metrics = server.raw(b"GET /metrics HTTP/1.0\r\n\r\n");
    let metrics = String::from_utf8_lossy(&metrics);
    let figure = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {metrics}")).parse::<f64>().unwrap()
    };
    assert!(figure("swath_tracker_announces_total") >= 2.0);
    assert_eq!(figure("swath_tracker_torrents"), 2.0, "an info-hash each for v1 and v2");
    assert!(figure("swath_walks_total") >= 0.0, "and those of the server");
}

#[test]
fn allowed_networks_count_for_the_tracker_too() {
    let (home, port) = (with_data(), reserve_port());
    home.publish_served("run7", port, &[]);
    let server = home.serve_swarm(port, &["--allow", "192.0.2.0/24"]);
    // The seeder announces from an address of this machine, which need not be named.
    server.says("run7: announced to ");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ask = |path: &str| {
        let all = runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.3:0".parse().unwrap()).unwrap();
            let mut tcp = socket.connect(server.address()).await.unwrap();
            tcp.write_all(format!("GET /{path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
            let mut all = Vec::new();
            tcp.read_to_end(&mut all).await.unwrap();
            all
        });
        String::from_utf8_lossy(&all).into_owned()
    };
    let hash = "a".repeat(20);
    let announce = format!("announce?info_hash={hash}&peer_id={hash}&port=9&left=1");
    let answer = ask(&(announce + "&uploaded=0&downloaded=0"));
    assert!(answer.contains("does not answer your address"), "{answer}");
    assert!(ask("run7/b.txt").starts_with("HTTP/1.1 403 "));
}

#[test]
fn what_needs_a_token_is_not_seeded_to_everybody() {
    let home = with_data();
    home.publish_served("run7", 9, &[]);
    let refused = home.run(["serve", "data", "--swarm", "data/pub"]);
    refused.code_is(2).says(&["--anonymous"]);
    let args = ["serve", "data", "--anonymous", "--plain", "--swarm", "nowhere"];
    home.run(args).code_is(6).says(&["nowhere"]);
}
