//! Following a feed: which version is the newest, and what was accepted once.

use std::sync::Arc;

use swath_formats::minisign::{SECRET_RANDOM_BYTES, SecretKey};
use swath_formats::torrent::metainfo::{Builder, Kind, NewFile};
use swath_jobs::{
    Address, Control, Disk, FollowError, FollowSpec, JobEvent, JobObserver, Look, Network, Note,
    Plan, Routes, SwarmSpec,
};
use swath_model::digest::{Algorithm, Hasher};
use swath_model::path::SafePath;
use swath_netlab::faulty::{Content, Server};
use swath_publish::{Index, IndexFile};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::{LONG, folder, jobs};

const PIECE: u64 = 64 << 10;

/// A publisher of `run7`, a file, and a folder that follows it.
struct Site {
    server: Server,
    data: TempDir,
    key: SecretKey,
}

/// A version in the feed: its name, and its date there.
type Item<'a> = (&'a str, &'a str);

impl Site {
    fn new() -> Site {
        let server = Server::builder().file("/none", Content::bytes(*b"")).start().unwrap();
        let key = SecretKey::from_random(&[7; SECRET_RANDOM_BYTES]).unwrap();
        Site { server, data: folder(), key }
    }

    fn content(version: &str) -> Content {
        Content::random(version.bytes().map(u64::from).sum(), 3 * PIECE + 5)
    }

    /// Puts a version on the server, with an index that was signed at this time.
    fn put(&self, version: &str, published: u64) {
        let content = Site::content(version);
        let bytes = content.read(0, content.size_bytes());
        let name = SafePath::new("run7").unwrap();
        let mut builder = Builder::new(Kind::V1, name.clone(), PIECE);
        builder.is_single_file = true;
        builder.files = vec![NewFile::new(name, content.size_bytes())];
        let digests = bytes.chunks(PIECE as usize).map(|it| Hasher::digest(Algorithm::Sha1, it));
        builder.pieces_v1 = digests.flat_map(|digest| digest.as_bytes().to_vec()).collect();
        let file = self.server.url(&format!("/{version}.bin"));
        builder.web_seeds = vec![file.parse().unwrap()];
        let metainfo = builder.build().unwrap();
        let index = Index {
            name: "run7".to_owned(),
            version: Some(version.to_owned()),
            published,
            btih: metainfo.info.hash_v1().map(|hash| hash.to_string()),
            btmh: None,
            files: vec![IndexFile {
                path: b"run7".to_vec(),
                bytes: content.size_bytes(),
                digest: Hasher::digest(Algorithm::Blake3, &bytes),
            }],
        };
        let text = index.write();
        let signature = self.key.sign(text.as_bytes(), "").unwrap().write();
        let put = |ending: &str, bytes: Vec<u8>| {
            self.server.put(&format!("/{version}.{ending}"), Content::bytes(bytes));
        };
        put("torrent", metainfo.write());
        put("index", text.into_bytes());
        put("index.minisig", signature.into_bytes());
        self.server.put(&format!("/{version}.bin"), content);
    }

    /// Announces these versions, in this order.
    fn announce(&self, items: &[Item<'_>]) {
        let item = |(version, date): &Item<'_>| {
            let files = ["torrent", "index", "index.minisig"];
            let files =
                files.map(|ending| format!("<enclosure url='{version}.{ending}'/>")).concat();
            format!(
                "<item><title>{version}</title><category>run7</category><pubDate>{date}</pubDate>{files}</item>"
            )
        };
        let items: String = items.iter().map(item).collect();
        let feed = format!("<rss version='2.0'><channel>{items}</channel></rss>");
        self.server.put("/feed.rss", Content::bytes(feed));
    }

    fn spec(&self) -> FollowSpec {
        FollowSpec {
            feed: Address::new(self.server.url("/feed.rss")),
            dir: self.data.path().to_owned(),
            datasets: Vec::new(),
            key: None,
            allows_older: false,
            network: Network::default(),
            routes: Routes::default(),
            disk: Disk::default(),
            plan: Plan::default(),
            swarm: SwarmSpec::default(),
        }
    }

    fn signed(&self) -> FollowSpec {
        FollowSpec { key: Some(self.key.public().clone()), ..self.spec() }
    }

    /// Looks once; returns what was found, and whether it was said that the feed went back.
    async fn look(&self, spec: FollowSpec) -> (Look, bool) {
        let went_back = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&went_back);
        let observer: Arc<dyn JobObserver> = Arc::new(move |event: JobEvent| {
            if matches!(event, JobEvent::Note(Note::FeedBackwards { .. })) {
                seen.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let observers = move || Arc::clone(&observer);
        let mut follower = jobs().follow(spec).unwrap();
        let control = Control::default();
        let look = timeout(LONG, follower.look(&observers, &control)).await.unwrap().unwrap();
        (look, went_back.load(std::sync::atomic::Ordering::Relaxed))
    }

    #[track_caller]
    fn has(&self, version: &str) {
        let content = Site::content(version);
        let there = std::fs::read(self.data.path().join("run7")).unwrap();
        assert!(there == content.read(0, content.size_bytes()), "not version {version}");
    }

    fn remove(&self) {
        std::fs::remove_file(self.data.path().join("run7")).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_once_counts_also_when_it_is_gone() {
    let site = Site::new();
    site.put("old", 1_000);
    site.put("new", 2_000);
    site.announce(&[("new", "")]);
    let (look, _) = site.look(site.signed()).await;
    assert_eq!(look.installed, ["run7"], "{look:?}");
    site.has("new");
    // A server shows the old version, with its signature.
    site.announce(&[("old", "")]);
    assert!(site.look(site.signed()).await.1, "it went back");
    site.has("new");
    site.remove();
    let (look, _) = site.look(site.signed()).await;
    assert!(matches!(look.failed[..], [(_, FollowError::Older { .. })]), "{look:?}");
    assert!(!site.data.path().join("run7").exists());
    // The same version comes again, and an older one if the user says so.
    site.announce(&[("new", "")]);
    assert_eq!(site.look(site.signed()).await.0.installed, ["run7"]);
    site.has("new");
    site.announce(&[("old", "")]);
    let spec = FollowSpec { allows_older: true, ..site.signed() };
    assert_eq!(site.look(spec).await.0.installed, ["run7"]);
    site.has("old");
}

#[tokio::test(flavor = "multi_thread")]
async fn dates_of_rfc_822_and_wrong_years_do_not_hold_the_next_version_up() {
    let site = Site::new();
    ["1", "2", "3"].iter().for_each(|version| site.put(version, 0));
    site.announce(&[("1", "Mon, 02 Nov 20 10:00 EST")]);
    assert_eq!(site.look(site.spec()).await.0.installed, ["run7"]);
    // Published with a wrong year, which is the newest all the same.
    let wrong = ("2", "Sat, 02 Nov 2986 10:00:00 GMT");
    site.announce(&[wrong, ("1", "Mon, 02 Nov 20 10:00 EST")]);
    assert_eq!(site.look(site.spec()).await.0.installed, ["run7"]);
    site.has("2");
    let next = ("3", "Wed, 04 Nov 20 10:00 PST");
    site.announce(&[next, wrong]);
    let (look, went_back) = site.look(site.spec()).await;
    assert!(look.installed == ["run7"] && !went_back, "{look:?}");
    site.has("3");
    // What really is older is not installed, and a date that was mended counts as it is now.
    site.announce(&[("1", "Mon, 02 Nov 20 10:00 EST")]);
    assert!(site.look(site.spec()).await.1, "it went back");
    site.has("3");
    site.announce(&[("2", "Tue, 03 Nov 20 10:00 CET"), ("3", "Mon, 02 Nov 20 10:00 UT")]);
    assert_eq!(site.look(site.spec()).await.0.installed, ["run7"]);
    site.has("2");
}
