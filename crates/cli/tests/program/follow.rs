//! `swath follow`: new versions are fetched, moved in whole, and cost what has changed.

use std::fs;
use std::io::Read as _;
use std::time::{Duration, Instant};

use swath_netlab::faulty::{Content, Server};

use crate::support::trees::bytes;
use crate::support::{Home, Ran};

const MIB: usize = 1 << 20;

/// A publisher, whose server has its dataset and its publications.
struct Site {
    home: Home,
    server: Server,
}

impl Site {
    fn new() -> Site {
        let home = Home::new();
        fs::create_dir_all(home.path("run7/detector")).unwrap();
        home.write("run7/detector/a.h5", bytes(1, 4 * MIB + 5));
        home.write("run7/b.txt", bytes(2, 70_000));
        home.run(["keys", "new", "-o", "lab.key"]).code_is(0);
        let server = Server::builder().file("/none", Content::bytes(*b"")).start().unwrap();
        Site { home, server }
    }

    /// Publishes a version of the dataset as it is, and puts everything on the server.
    fn publish(&self, version: &str, more: &[&str]) {
        let mirror = self.server.url("/run7/");
        let args = ["publish", "run7", "--version", version, "-o", "pub", "-q", "--piece", "64KiB"];
        self.home.run(args.iter().chain(&["--mirror", &mirror]).chain(more)).code_is(0);
        for name in ["run7/detector/a.h5", "run7/b.txt"] {
            self.put(&format!("/{name}"), self.home.read(name));
        }
        for name in self.home.names_in("pub") {
            self.put(&format!("/pub/{name}"), self.home.read(&format!("pub/{name}")));
        }
    }

    fn put(&self, path: &str, content: Vec<u8>) {
        self.server.put(path, Content::bytes(content));
    }

    /// Changes some bytes of the large file.
    fn change(&self) {
        let mut content = self.home.read("run7/detector/a.h5");
        content[MIB..MIB + 100].iter_mut().for_each(|byte| *byte ^= 0x55);
        self.home.write("run7/detector/a.h5", content);
    }

    fn args(&self) -> [String; 4] {
        ["follow", &self.server.url("/pub/feed.rss"), "-d", "data"].map(str::to_owned)
    }

    fn once(&self, more: &[&str]) -> Ran {
        let args = self.args();
        self.home.run(args.iter().map(String::as_str).chain(["--once"]).chain(more.iter().copied()))
    }

    /// What the server sent of the dataset since its log was cleared.
    fn moved_bytes(&self) -> u64 {
        let log = self.server.log();
        let of_data = log.records.iter().filter(|it| it.path.starts_with("/run7/"));
        of_data.map(|it| it.sent_bytes).sum()
    }

    fn is_up_to_date(&self) -> bool {
        ["detector/a.h5", "b.txt"].iter().all(|name| {
            let there = fs::read(self.home.path(format!("data/run7/{name}"))).ok();
            there == Some(self.home.read(&format!("run7/{name}")))
        })
    }

    /// The new version alone is left.
    #[track_caller]
    fn is_tidy(&self) {
        assert!(self.is_up_to_date());
        assert_eq!(self.home.names_in("data"), [".swath-follow", "run7"]);
        let names = self.home.names_in("data/.swath-follow");
        let is_torrent = |name: &String| name.ends_with(".torrent");
        assert!(names.len() == 2 && names.iter().any(is_torrent), "{names:?}");
        assert_eq!(self.home.names_in("data/run7"), ["b.txt", "detector"]);
    }
}

#[test]
fn a_new_version_moves_what_has_changed_and_open_files_stay() {
    let site = Site::new();
    site.publish("1", &[]);
    site.once(&[]).code_is(0).says(&["run7: version 1 is in data/run7"]);
    site.is_tidy();
    site.once(&[]).code_is(0).says(&["nothing new"]);
    let mut open = fs::File::open(site.home.path("data/run7/detector/a.h5")).unwrap();
    let old = site.home.read("run7/detector/a.h5");
    site.change();
    site.publish("2", &[]);
    site.server.clear_log();
    let ran = site.once(&[]);
    ran.code_is(0).says(&["the newest version of run7 is 2", "are unchanged", "version 2 is in"]);
    site.is_tidy();
    let moved = site.moved_bytes();
    assert!(moved <= 3 * (64 << 10), "{moved} bytes moved");
    let mut still = Vec::new();
    open.read_to_end(&mut still).unwrap();
    assert!(still == old, "a reader keeps the old version");
    // Whatever is added to a version is kept when it is replaced.
    site.home.write("data/run7/own.txt", "mine");
    site.home.write("run7/b.txt", bytes(3, 50_000));
    site.publish("3", &[]);
    site.once(&[]).code_is(0).says(&["kept 1 file that were added"]);
    assert!(site.is_up_to_date() && !site.home.exists("data/run7/own.txt"));
    let stage = site.home.names_in("data/.swath-follow");
    let stage = stage.iter().find(|name| name.starts_with("run7-3-")).unwrap();
    assert_eq!(site.home.read(&format!("data/.swath-follow/{stage}/run7/own.txt")), b"mine");
}

#[test]
fn a_follower_that_stays_takes_new_versions_and_ends_on_a_signal() {
    let site = Site::new();
    site.publish("1", &[]);
    let args = site.args();
    let running = site.home.swath(args.iter().map(String::as_str).chain(["--every", "1s"])).start();
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < LIMIT, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("version 1", &|| site.is_up_to_date());
    // Nobody else may follow there.
    site.once(&[]).code_is(5).says(&["another swath follows into data"]);
    // A server that fails is said once, and asked again.
    site.put("/pub/feed.rss", b"rubbish".to_vec());
    site.server.clear_log();
    until("questions", &|| site.server.log().on("/pub/feed.rss").count() > 2);
    site.change();
    site.publish("2", &[]);
    until("version 2", &|| site.is_up_to_date());
    running.signal(libc::SIGTERM);
    let ran = running.wait();
    ran.code_is(0);
    assert_eq!(ran.all().matches("feed.rss: ").count(), 1, "{}", ran.all());
    site.is_tidy();
}

/// Once in each state between two requests: the last ones are sent when the new version is moved in.
#[test]
fn a_kill_after_any_request_leaves_a_whole_version_and_the_next_run_goes_on() {
    let site = Site::new();
    site.publish("1", &[]);
    site.once(&[]).code_is(0);
    for round in 0..3 {
        let old = site.home.read("run7/detector/a.h5");
        let content = bytes(100 + round, 4 * MIB);
        site.home.write("run7/detector/a.h5", &content);
        site.publish(&format!("round-{round}"), &[]);
        for requests in (1..).step_by(2) {
            site.server.clear_log();
            let mut running = site.home.swath(site.args().iter().chain(&["--once".into()])).start();
            while site.server.log().len() < requests && !running.is_over() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if running.is_over() {
                running.wait().code_is(0);
                break;
            }
            running.signal(libc::SIGKILL);
            running.wait();
            let there = site.home.read("data/run7/detector/a.h5");
            assert!(there == old || there == content, "a whole version");
        }
        site.once(&[]).code_is(0);
        site.is_tidy();
    }
}

#[test]
fn only_what_is_signed_by_the_trusted_key_is_installed() {
    let site = Site::new();
    site.publish("1", &["--sign", "lab.key"]);
    site.home.run(["keys", "new", "-o", "other.key"]).code_is(0);
    let feed = site.server.url("/pub/feed.rss");
    let elsewhere = ["follow", &feed, "-d", "elsewhere", "--trust", "other.pub", "--once"];
    site.home.run(elsewhere).code_is(4).says(&["not by"]);
    assert!(!site.home.exists("elsewhere/run7"));
    site.once(&["--trust", "lab.pub"]).code_is(0);
    site.is_tidy();
    // The key is remembered.
    site.once(&["--trust", "other.pub"]).code_is(4).says(&["was followed with the key"]);
    let first = site.home.read("run7/detector/a.h5");
    let is_kept = || site.home.read("data/run7/detector/a.h5") == first;
    site.change();
    site.publish("2", &[]);
    site.once(&[]).code_is(4).says(&["run7: version 2 is not signed", "nothing was replaced"]);
    site.publish("2", &["--sign", "other.key"]);
    site.once(&[]).code_is(4).says(&["does not prove it", "nothing was replaced"]);
    assert!(is_kept());
    site.publish("2", &["--sign", "lab.key"]);
    // A signed index of another version.
    for ending in ["index", "index.minisig"] {
        site.put(&format!("/pub/run7-2.{ending}"), site.home.read(&format!("pub/run7-1.{ending}")));
    }
    site.once(&[]).code_is(4).says(&["is that of another dataset, version or torrent"]);
    // Another torrent than the signed one.
    site.publish("2", &[]);
    let torrent = site.home.read("pub/run7-1.torrent");
    site.put("/pub/run7-2.torrent", torrent);
    site.once(&[]).code_is(4).says(&["is that of another dataset, version or torrent"]);
    assert!(is_kept());
    site.publish("2", &[]);
    site.once(&[]).code_is(0);
    site.is_tidy();
}

#[test]
fn a_feed_that_goes_backwards_or_is_rubbish_changes_nothing() {
    let site = Site::new();
    site.publish("1", &[]);
    let first = String::from_utf8(site.home.read("pub/feed.rss")).unwrap();
    // The feed has times in whole seconds: that of the first version is an earlier one.
    let published = first.split("<item>").nth(1).and_then(|item| item.split("<pubDate>").nth(1));
    let published = published.and_then(|rest| rest.split('<').next()).expect("a time");
    let first = first.replace(published, "Sun, 06 Nov 1994 08:49:37 GMT").into_bytes();
    site.change();
    site.publish("2", &[]);
    site.once(&[]).code_is(0);
    site.is_tidy();
    site.put("/pub/feed.rss", first);
    site.once(&[]).code_is(0).says(&["the feed went back to version 1; version 2 stays"]);
    site.is_tidy();
    for (feed, code) in [(&b"rubbish"[..], 6), (b"", 6), (b"<rss><channel></channel></rss>", 6)] {
        site.put("/pub/feed.rss", feed.to_vec());
        site.once(&[]).code_is(code);
    }
    let item = |name: &str, href: &str| {
        format!(
            "<item><title>t</title><category>{name}</category>\
             <enclosure url=\"{href}\" type=\"application/x-bittorrent\" length=\"1\"/></item>"
        )
    };
    let feed =
        |items: String| format!("<rss version=\"2.0\"><channel>{items}</channel></rss>").into();
    for name in ["..", "../run8", "/etc", ".swath-follow", "a/b"] {
        site.put("/pub/feed.rss", feed(item(name, "run7-1.torrent")));
        site.once(&[]).code_is(6).says(&["a dataset cannot have this name"]);
    }
    site.put("/pub/feed.rss", feed(item("run8", "rubbish.torrent")));
    site.put("/pub/rubbish.torrent", b"rubbish".to_vec());
    site.once(&[]).code_is(6).says(&["run8: "]);
    site.once(&["--dataset", "run9"]).code_is(6).says(&["does not announce run9, but run8"]);
    site.server.die();
    site.once(&[]).code_is(7).says(&["cannot fetch the feed"]);
    site.is_tidy();
}

#[test]
fn what_others_put_in_the_way_is_not_replaced() {
    let site = Site::new();
    site.publish("1", &[]);
    fs::create_dir_all(site.home.path("data/run7")).unwrap();
    site.once(&[]).code_is(5).says(&["data/run7 exists, and was not fetched by following"]);
    fs::remove_dir(site.home.path("data/run7")).unwrap();
    site.once(&[]).code_is(0);
    // A version that was removed is fetched again.
    fs::remove_dir_all(site.home.path("data/run7")).unwrap();
    site.once(&[]).code_is(0);
    site.is_tidy();
    for more in [["--report", "x.html"], ["--ratio", "1"]] {
        site.once(&more).code_is(2).says(&["not for 'swath follow'"]);
    }
}

#[test]
fn a_feed_that_has_not_changed_is_not_sent_again() {
    let site = Site::new();
    site.publish("1", &[]);
    let tracker = site.home.track(&["--catalogue", "pub"]);
    let address = tracker.url.trim_end_matches("/announce");
    let feed = format!("{address}/feed.rss");
    let once = || site.home.run(["follow", &feed, "-d", "data", "--once"]);
    once().code_is(0);
    let state = String::from_utf8(site.home.read("data/.swath-follow/state.json")).unwrap();
    assert!(state.contains("\"etag\": \"\\\""), "{state}");
    once().code_is(0).says(&["nothing new"]);
    site.is_tidy();
}

/// Long, because other work may keep the machine busy.
const LIMIT: Duration = Duration::from_secs(90);
