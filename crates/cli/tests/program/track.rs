//! `swath track`: what it tells its clients, whom it refuses, and what survives its end.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use crate::support::Home;
use crate::support::seed::{Seeding, Tracking};
use crate::support::serve::reserved_address;
use crate::support::trees::bytes;

/// One MiB as `data.bin`.
fn with_data() -> Home {
    let home = Home::new();
    home.write("data.bin", bytes(7, 1 << 20));
    home
}

/// Makes `data.bin.torrent` with these trackers; returns its info-hash.
fn make(home: &Home, trackers: &[&str]) -> String {
    home.publish_torrent("data.bin", "v1", trackers, &["--force"]);
    let metafile = home.read("data.bin.torrent");
    let info = swath_formats::torrent::Metainfo::read(&metafile).unwrap().info;
    info.hash_v1().unwrap().to_string()
}

/// A seeder of `data.bin`.
fn seeder(home: &Home) -> Seeding {
    home.seed(&["data.bin.torrent"])
}

/// Whoever asks the tracker finds the data.
#[track_caller]
fn is_found(home: &Home, folder: &str) {
    home.run(["get", "data.bin.torrent", "-d", folder]).code_is(0);
    assert!(home.read(&format!("{folder}/data.bin")) == home.read("data.bin"));
}

#[test]
fn clients_find_each_other_by_http_and_udp() {
    let home = with_data();
    let tracker = Tracking::start(&home, "127.0.0.1:0", &[]);
    tracker.served.says("anybody may use this tracker");
    for (folder, address) in [("http", tracker.served.url.clone()), ("udp", tracker.udp())] {
        make(&home, &[&address]);
        let seeding = seeder(&home);
        seeding.says("announced to ");
        tracker.has_peers(1);
        assert!(tracker.get("/").contains("1 peer"));
        is_found(&home, folder);
        seeding.signal(15);
        seeding.wait();
        tracker.has_peers(0);
    }
    let metrics = tracker.get("/metrics");
    assert!(metrics.contains("swath_tracker_refused_total{reason=\"torrent\"} 0"), "{metrics}");
}

#[test]
fn a_swarm_survives_the_death_of_its_tracker() {
    let home = with_data();
    let address = reserved_address();
    let tracker = Tracking::start(&home, &address, &["--state", "peers"]);
    make(&home, &[&tracker.served.url]);
    let saved = || home.path("peers").metadata().map_or(0, |it| it.len());
    let empty = saved();
    let seeding = seeder(&home);
    seeding.says("announced to ");
    let began = Instant::now();
    while saved() <= empty {
        assert!(began.elapsed() < LIMIT, "the peers are not saved");
        std::thread::sleep(Duration::from_millis(50));
    }
    tracker.served.signal(9);
    assert_eq!(tracker.served.wait(), None);
    let tracker = Tracking::start(&home, &address, &["--state", "peers"]);
    tracker.served.says("restored 1 peer of the last run");
    // The seeder does not announce itself again before half an hour is over.
    is_found(&home, "got");
    tracker.served.signal(15);
    assert_eq!(tracker.served.wait(), Some(0));
}

#[test]
fn a_client_that_is_refused_shows_why() {
    let home = with_data();
    home.write("networks", "192.0.2.0/24 # the lab\n");
    home.write("torrents", format!("{} another one\n", "ab".repeat(20)));
    for (args, reason) in [
        (["--allow", "networks"], "this tracker does not answer your address"),
        (["--allow", "192.0.2.7"], "this tracker does not answer your address"),
        (["--whitelist", "torrents"], "this tracker does not track this torrent"),
    ] {
        let tracker = Tracking::start(&home, "127.0.0.1:0", &args);
        for address in [tracker.served.url.clone(), tracker.udp()] {
            make(&home, &[&address]);
            seeder(&home).says(reason);
        }
    }
}

#[test]
fn a_whitelist_and_passkeys_admit_their_own() {
    let home = with_data();
    let key = "0123456789abcdef-Ada";
    home.write("passkeys", format!("# ours\n{key} Ada\n"));
    home.write("torrents", "");
    let args = ["--passkeys", "passkeys", "--whitelist", "torrents", "--log", "log"];
    let tracker = Tracking::start(&home, "127.0.0.1:0", &args);
    let http = format!("http://{}/{key}/announce", tracker.address);
    let udp = format!("udp://{}/{key}/announce", tracker.address);
    let hash = make(&home, &[&http]);
    home.write("torrents", format!("{hash} data of run 7\n"));
    tracker.served.says("reloaded: 1 torrent, 1 passkey");
    // Of the addresses of one torrent the first that answers is enough.
    let seeding = [(&udp, "udp://"), (&http, "http://")].map(|(address, scheme)| {
        assert_eq!(make(&home, &[address]), hash);
        let seeding = seeder(&home);
        seeding.says(&format!("announced to {scheme}"));
        assert!(!seeding.said().contains("warning"), "{}", seeding.said());
        seeding
    });
    is_found(&home, "got");
    let page = tracker.get(&format!("/{key}/"));
    assert!(page.contains("data of run 7") && page.contains(&hash), "{page}");
    assert!(tracker.get("/").contains("needs a passkey"));
    drop(seeding);
    tracker.served.signal(15);
    assert_eq!(tracker.served.wait(), Some(0));
    // Nowhere but in its own file, and where the user wrote it.
    let log = home.read("log");
    assert!(String::from_utf8_lossy(&log).contains("/-/announce?"));
    for kept in [log, fs::read(home.home().join(".local/state/swath/track/0.peers")).unwrap()] {
        assert!(!String::from_utf8_lossy(&kept).contains(key));
    }
}

#[test]
fn the_torrents_of_a_catalogue_are_tracked() {
    let home = with_data();
    fs::create_dir(home.path("catalogue")).unwrap();
    let tracker = Tracking::start(&home, "127.0.0.1:0", &["--catalogue", "catalogue"]);
    let hash = make(&home, &[&tracker.served.url]);
    seeder(&home).says("this tracker does not track this torrent");
    fs::copy(home.path("data.bin.torrent"), home.path("catalogue/run-7.torrent")).unwrap();
    tracker.served.says("reloaded: 1 torrent");
    let _seeding = seeder(&home);
    tracker.has_peers(1);
    let stats = tracker.get("/stats.json");
    assert!(stats.contains("\"data.bin\"") && stats.contains(&hash), "{stats}");
    is_found(&home, "got");
    // One that cannot be read changes nothing.
    home.write("catalogue/bad.torrent", "d4:info");
    tracker.served.says("keeping the old lists: cannot use catalogue/bad.torrent");
    tracker.has_peers(1);
}

#[test]
fn what_cannot_start_says_why() {
    let home = Home::new();
    home.write("bad", "not a hash\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (args, code, words) in [
        (&["--whitelist", "bad"][..], 6, "cannot use bad: line 1: an info-hash has 40"),
        (&["--passkeys", "none"], 6, "cannot use none: No such file"),
        (&["--allow", "10.0.0.0/33"], 2, "is not an address block"),
        (&["--allow", "none"], 6, "cannot use none: No such file"),
        (&["--interval", "1s"], 2, "between 10 seconds and 7 days"),
        (&["--state", "bad/peers"], 5, "cannot keep the peers in bad/peers"),
        (&["--listen", &address], 5, "cannot listen at"),
    ] {
        let args = [&["track", "--listen", "127.0.0.1:0"], args].concat();
        home.run(&args).code_is(code).says(&[words]);
    }
    let first = Tracking::start(&home, "127.0.0.1:0", &[]);
    let second = home.run(["track", "--listen", "127.0.0.1:0"]);
    second.code_is(5).says(&["in use by another tracker", "--state FILE"]);
    drop(first);
}

#[test]
fn a_catalogue_is_served_with_its_feeds_and_files() {
    let home = with_data();
    home.run(["keys", "new", "-o", "lab.key"]).code_is(0);
    let publish = |version: &str| {
        let args = ["publish", "data.bin", "--version", version, "--sign", "lab.key", "-o", "pub"];
        home.run(args).code_is(0);
    };
    publish("1");
    // The time of a file has seconds in HTTP: the next version has another one.
    let feed = fs::File::options().write(true).open(home.path("pub/feed.rss")).unwrap();
    feed.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
    let tracker = Tracking::start(&home, "127.0.0.1:0", &["--catalogue", "pub"]);
    for (name, kind) in [
        ("feed.rss", "application/rss+xml"),
        ("feed.atom", "application/atom+xml"),
        ("data.bin-1.torrent", "application/x-bittorrent"),
        ("data.bin-1.meta4", "application/metalink4+xml"),
        ("data.bin-1.index", "text/plain; charset=utf-8"),
        ("data.bin-1.index.minisig", "text/plain; charset=utf-8"),
    ] {
        let (head, body) = tracker.ask(&format!("/{name}"), "");
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(kind), "{head}");
        assert_eq!(body, String::from_utf8_lossy(&home.read(&format!("pub/{name}"))), "{name}");
    }
    let (head, _) = tracker.ask("/feed.rss", "");
    let field = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} {head}")).to_owned()
    };
    let (etag, modified) = (field("etag: "), field("last-modified: "));
    let ask_again = || {
        [format!("If-None-Match: {etag}\r\n"), format!("If-Modified-Since: {modified}\r\n")]
            .map(|line| tracker.ask("/feed.rss", &line))
    };
    for (head, body) in ask_again() {
        assert!(head.starts_with("HTTP/1.1 304 ") && head.contains(&etag), "{head}");
        assert_eq!(body, "");
    }
    for path in ["/catalogue.json", "/other.torrent", "/..%2flab.key", "/..%2fdata.torrent"] {
        let (head, _) = tracker.ask(path, "");
        assert!(head.starts_with("HTTP/1.1 404 "), "{path}: {head}");
    }
    publish("2");
    for (head, body) in ask_again() {
        assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("data.bin-2.torrent"), "{head}");
    }
    let began = Instant::now();
    let page = loop {
        let page = tracker.get("/");
        if page.contains("./data.bin-2.torrent") {
            break page;
        }
        assert!(began.elapsed() < LIMIT, "{page}");
        std::thread::sleep(Duration::from_millis(100));
    };
    for words in ["Datasets", "./data.bin-1.index.minisig", "feed.rss", ">2</td>"] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

/// Long, because other work may keep the machine busy.
const LIMIT: Duration = Duration::from_secs(90);
