//! `swath seed`, `get` and `track` with the clients that people have.

use std::fs;

use crate::support::Home;
use crate::support::clients::has_peers;
use crate::support::serve::succeeds;
use crate::support::torrent::{arrives, arrives_by};
use crate::support::trees::bytes;

/// Files whose last block is not whole.
const FILES: [(&str, &str, usize); 3] =
    [("one", "v1", 300_001), ("two", "hybrid", 200_003), ("three", "v2", 250_007)];

fn with_data() -> Home {
    let home = Home::new();
    for (number, (name, _, length)) in (0..).zip(FILES) {
        home.write(name, bytes(number, length));
    }
    home
}

impl Home {
    /// Makes a torrent of each kind, with this tracker; returns their magnet links.
    fn torrents(&self, tracker: &str) -> Vec<String> {
        FILES.iter().map(|(name, kind, _)| self.link(name, kind, tracker)).collect()
    }

    /// Makes `NAME.torrent`; returns its magnet link.
    fn link(&self, name: &str, kind: &str, tracker: &str) -> String {
        let args = ["publish", name, "--torrent", kind, "--only", "torrent", "--piece", "32KiB"];
        let out = self.run(args.iter().chain(&["--tracker", tracker])).code_is(0).out();
        let link = out.split_whitespace().find(|word| word.starts_with("magnet:"));
        link.unwrap_or_else(|| panic!("{out}")).to_owned()
    }

    #[track_caller]
    fn all_arrive(&self, folder: &str, said: impl Fn() -> String) {
        for (name, ..) in FILES {
            arrives_by(&self.path(folder).join(name), &self.read(name), &said);
        }
    }

    fn all_are_in(&self, folder: &str) {
        for (name, ..) in FILES {
            assert!(self.read(&format!("{folder}/{name}")) == self.read(name), "{name}");
        }
    }
}

#[test]
fn qbittorrent_fetches_torrents_of_every_kind() {
    let home = with_data();
    let tracker = home.track(&[]);
    home.torrents(&tracker.url);
    let seeding = home.seed(&["one.torrent", "two.torrent", "three.torrent"]);
    has_peers(&tracker, 4);
    let Some(client) = home.qbittorrent(&["one", "two", "three"], "got", false) else { return };
    home.all_arrive("got", || client.said() + &seeding.said());
    assert!(!seeding.said().contains("not let in"), "{}", seeding.said());
}

#[test]
fn qbittorrent_that_demands_encryption_seeds_every_kind() {
    let home = with_data();
    let tracker = home.track(&[]);
    let links = home.torrents(&tracker.url);
    let Some(_client) = home.qbittorrent(&["one", "two", "three"], ".", true) else { return };
    has_peers(&tracker, 4);
    for (name, ..) in FILES {
        home.run(["get", &format!("{name}.torrent"), "-d", "got"]).code_is(0);
    }
    home.all_are_in("got");
    for (link, (name, ..)) in links.iter().zip(FILES) {
        home.run(["get", link, "-d", "by-link"]).code_is(0);
        assert!(home.read(name) == home.read(&format!("by-link/{name}")), "{name}");
    }
}

#[test]
fn libtorrent_2_0_fetches_by_magnet_links_of_every_kind() {
    let home = with_data();
    let tracker = home.track(&[]);
    let links = home.torrents(&tracker.url.replace("http://", "udp://"));
    let seeding = home.seed(&["one.torrent", "two.torrent", "three.torrent"]);
    has_peers(&tracker, 4);
    let Some(client) = home.libtorrent_by_links(&links, &home.path("got")) else { return };
    home.all_arrive("got", || client.said() + &seeding.said());
    assert!(!seeding.said().contains("not let in"), "{}", seeding.said());
}

#[test]
fn aria2_fetches_by_a_magnet_link() {
    let home = with_data();
    let tracker = home.track(&[]);
    let link = home.link("one", "v1", &tracker.url);
    let _seeding = home.seed(&["one.torrent"]);
    has_peers(&tracker, 1);
    let Some(_client) = home.aria2(&link, "got", &[]) else { return };
    arrives(&home.path("got/one"), &home.read("one"));
}

#[test]
fn aria2_that_demands_encryption_seeds() {
    let home = with_data();
    let tracker = home.track(&[]);
    let link = home.link("one", "v1", &tracker.url);
    let torrent = home.path("one.torrent").display().to_string();
    let more = ["-V", "--bt-require-crypto=true", "--bt-min-crypto-level=arc4"];
    let Some(_client) = home.aria2(&torrent, ".", &more) else { return };
    has_peers(&tracker, 1);
    for (what, folder) in [("one.torrent", "got"), (&*link, "by-link")] {
        home.run(["get", what, "-d", folder]).code_is(0);
        assert!(home.read("one") == home.read(&format!("{folder}/one")), "{folder}");
    }
}

#[test]
fn transmission_that_demands_encryption_fetches_a_private_torrent() {
    let home = with_data();
    let tracker = home.track(&[]);
    home.publish_torrent("one", "v1", &[&tracker.url], &["--private", "--piece", "32KiB"]);
    let Some(_client) = home.transmission("one", "got") else { return };
    has_peers(&tracker, 1);
    let _seeding = home.seed(&["one.torrent"]);
    arrives(&home.path("got/one"), &home.read("one"));
}

#[test]
fn anacrolix_fetches_torrents_of_every_kind() {
    let home = with_data();
    let tracker = home.track(&[]);
    let links = home.torrents(&tracker.url);
    home.write("four", bytes(4, 400_009));
    home.publish_torrent("four", "v1", &[&tracker.url], &["--private", "--piece", "32KiB"]);
    let torrents = ["one.torrent", "two.torrent", "three.torrent", "four.torrent"];
    let seeding = home.seed(&[&torrents[..], &["--require-encryption"]].concat());
    has_peers(&tracker, 5);
    let wanted = ["one.torrent", &links[1], "three.torrent", "four.torrent"];
    let Some(_client) = home.anacrolix(&wanted, "got", &[]) else { return };
    for (name, path) in [("one", "one"), ("two", "two/two"), ("three", "three/three")] {
        arrives(&home.path("got").join(path), &home.read(name));
    }
    arrives(&home.path("got/four"), &home.read("four"));
    let Some(_client) = home.anacrolix(&[&links[0]], "by-link", &[]) else { return };
    arrives(&home.path("by-link/one"), &home.read("one"));
    assert!(!seeding.said().contains("not let in"), "{}", seeding.said());
}

/// It lets nobody in who asks for a torrent of v2 alone (v1.59).
#[test]
fn anacrolix_seeds() {
    let home = with_data();
    let tracker = home.track(&[]);
    let links = home.torrents(&tracker.url.replace("http://", "udp://"));
    // Where it expects the data.
    home.write("data/one", home.read("one"));
    home.write("data/two/two", home.read("two"));
    let torrents = ["one.torrent", "two.torrent"];
    let Some(_client) = home.anacrolix(&torrents, "data", &["--verify"]) else { return };
    // The hybrid torrent counts twice.
    has_peers(&tracker, 3);
    for (link, name) in links.iter().zip(["one", "two"]) {
        home.run(["get", &format!("{name}.torrent"), "-d", "got"]).code_is(0);
        assert!(home.read(name) == home.read(&format!("got/{name}")), "{name}");
        home.run(["get", link, "-d", "by-link"]).code_is(0);
        assert!(home.read(name) == home.read(&format!("by-link/{name}")), "{name}");
    }
}

/// anacrolix takes the rarest pieces first, and looks at no more than some of them (64 MiB). While
/// swath super-seeds, these are pieces that nobody offers: it waited for ever.
#[test]
fn a_client_that_cannot_use_offers_of_a_super_seeder_is_shown_everything() {
    let home = Home::new();
    home.write("large", bytes(5, 4_000_003));
    let tracker = home.track(&[]);
    home.publish_torrent("large", "v1", &[&tracker.url], &["--piece", "32KiB"]);
    let _seeding = home.seed(&["large.torrent"]);
    has_peers(&tracker, 1);
    let few = ["--max-unverified-bytes", "64KiB"];
    let Some(_client) = home.anacrolix(&["large.torrent"], "got", &few) else { return };
    arrives(&home.path("got/large"), &home.read("large"));
}

#[test]
fn mktorrent_finds_the_same_info_hash() {
    let home = with_data();
    fs::create_dir(home.path("run7")).unwrap();
    home.write("run7/a.h5", bytes(8, 100_001));
    home.write("run7/c.txt", bytes(9, 77_777));
    let tracker = "http://127.0.0.1:1/announce";
    for name in ["one", "run7"] {
        let link = home.link(name, "v1", tracker);
        let args = ["-l", "15", "-a", tracker, "-o", "theirs.torrent", name];
        if succeeds(&home.work(), "mktorrent", &args).is_none() {
            return;
        }
        let theirs = home.read("theirs.torrent");
        let theirs = swath_formats::torrent::Metainfo::read(&theirs).unwrap();
        let hash = theirs.info.hash_v1().unwrap();
        assert!(link.contains(&format!("urn:btih:{hash}")), "{link} {hash}");
        fs::remove_file(home.path("theirs.torrent")).unwrap();
    }
}
