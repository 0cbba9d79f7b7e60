//! A new version of a torrent moves what has changed, and reads the rest from the old one.

use std::fs;
use std::path::{Path, PathBuf};

use swath_formats::torrent::metainfo::Kind;
use swath_jobs::{GetFrom, GetTo, OldVersion, Outcome, TorrentAt};
use swath_netlab::faulty::{Content, Server};
use swath_publish::{Content as Dataset, Output, Progress, Publication};
use swath_store::tree::Filter;
use tempfile::TempDir;
use url::Url;

use crate::support::{changed, folder, get, jobs};

const MIB: usize = 1 << 20;

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// A dataset of one file, its old version with its torrent, and a mirror of each new version.
struct Versions {
    folder: TempDir,
    kind: Kind,
    server: Server,
}

impl Versions {
    fn new(kind: Kind, content: &[u8]) -> Versions {
        let folder = folder();
        let server = Server::builder()
            .file("/run7/a", Content::bytes(*b""))
            .file("/run7/b", Content::bytes(*b"small"))
            .start()
            .unwrap();
        let versions = Versions { folder, kind, server };
        versions.publish("old", content);
        versions
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Publishes a version from the folder with its name; returns its torrent.
    fn publish(&self, version: &str, content: &[u8]) -> PathBuf {
        let dataset = self.path(version).join("run7");
        fs::create_dir_all(&dataset).unwrap();
        fs::write(dataset.join("a"), content).unwrap();
        fs::write(dataset.join("b"), "small").unwrap();
        let publication = Publication {
            name: "run7".to_owned(),
            version: Some(version.to_owned()),
            mirrors: vec![Url::parse(&self.server.url("/run7/")).unwrap()],
            trackers: Vec::new(),
            is_private: false,
            outputs: vec![Output::Torrent],
            kind: self.kind,
            piece_bytes: Some(64 << 10),
            segment_bytes: None,
            segment_mirrors: Vec::new(),
            comment: None,
            created_by: None,
            published: 1,
            key: None,
            address: None,
            replace: false,
        };
        let listed = Dataset::list(&dataset, Filter::default()).unwrap();
        publication.make(&listed, &self.path("pub"), &Progress::default()).unwrap();
        self.path("pub").join(format!("run7-{version}.torrent"))
    }

    /// Fetches new content beside the old version; returns how many bytes the mirror sent.
    async fn moved_bytes(&self, content: &[u8]) -> u64 {
        let torrent = self.publish("new", content);
        self.server.replace("/run7/a", Content::bytes(content));
        self.server.clear_log();
        let to = folder();
        let from = GetFrom::Torrent { torrent: TorrentAt::File(torrent), mirrors: Vec::new() };
        let spec = changed(get(from, GetTo::Folder(to.path().to_owned())), |get| {
            get.old_version = Some(OldVersion {
                torrent: self.path("pub/run7-old.torrent"),
                place: self.path("old/run7"),
            });
        });
        let outcome = jobs().start(spec).wait().await;
        assert!(matches!(outcome, Ok(Outcome::File(_))), "{outcome:?}");
        assert!(fs::read(to.path().join("run7/a")).unwrap() == content);
        let log = self.server.log();
        log.on("/run7/a").map(|record| record.sent_bytes).sum()
    }

    fn old_file(&self) -> PathBuf {
        self.path("old/run7/a")
    }
}

fn remove(path: &Path) {
    fs::remove_dir_all(path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_moves_what_has_changed() {
    let old = bytes(1, 64 * MIB);
    for kind in [Kind::V1, Kind::V2, Kind::Hybrid] {
        let versions = Versions::new(kind, &old);
        // One percent, in 20 places.
        let mut new = old.clone();
        for place in 0..20 {
            let at = place * 64 * MIB / 20 + 12_345;
            new[at..at + 64 * MIB / 2000].iter_mut().for_each(|byte| *byte ^= 1);
        }
        let moved = versions.moved_bytes(&new).await;
        println!("{kind:?}: {moved} of {} bytes moved", new.len());
        assert!(moved <= (64 * MIB * 3 / 100 + 40 * (64 << 10)) as u64, "{kind:?}: {moved}");
        // With a byte inserted before all others no piece is where it was, nor one of the old ones.
        remove(&versions.path("new"));
        remove(&versions.path("pub"));
        versions.publish("old", &old);
        let mut new = old.clone();
        new.insert(0, 7);
        let moved = versions.moved_bytes(&new).await;
        println!("{kind:?}: {moved} of {} bytes moved after an insertion", new.len());
        // Whole pieces inserted there shift pieces, which are found.
        remove(&versions.path("new"));
        remove(&versions.path("pub"));
        versions.publish("old", &old);
        let mut new = bytes(2, 64 << 10);
        new.extend_from_slice(&old);
        let moved = versions.moved_bytes(&new).await;
        println!("{kind:?}: {moved} of {} bytes moved after a piece was inserted", new.len());
        assert!(moved <= 4 * (64 << 10), "{kind:?}: {moved}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_version_that_is_wrong_or_gone_does_no_harm() {
    let old = bytes(3, 4 * MIB);
    let mut new = old.clone();
    new[1_000_000] ^= 1;
    let versions = Versions::new(Kind::Hybrid, &old);
    // A changed byte: its piece is fetched.
    let mut wrong = old.clone();
    wrong[3_000_000] ^= 1;
    fs::write(versions.old_file(), &wrong).unwrap();
    assert_eq!(versions.moved_bytes(&new).await, 2 * (64 << 10));
    // Another length, and no file at all.
    for content in [Some(&old[..100]), None] {
        match content {
            Some(content) => fs::write(versions.old_file(), content).unwrap(),
            None => fs::remove_file(versions.old_file()).unwrap(),
        }
        remove(&versions.path("new"));
        fs::remove_file(versions.path("pub/run7-new.torrent")).unwrap();
        fs::remove_file(versions.path("pub/catalogue.json")).unwrap();
        let _ = fs::remove_file(versions.path("pub/feed.rss"));
        let _ = fs::remove_file(versions.path("pub/feed.atom"));
        assert!(versions.moved_bytes(&new).await >= new.len() as u64);
    }
}
