//! Publishing again and again into one folder: what its catalogue and feeds say, what is replaced, kept and
//! refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use swath_formats::minisign::{SecretKey, Signature};
use swath_formats::torrent::metainfo::Kind;
use swath_publish::{
    Catalogue, CatalogueError, Content, Index, Output, Progress, Publication, PublishError,
    Published,
};
use swath_store::tree::Filter;

use crate::common::{publication, write_files};

/// A dataset, and the folder of its publications.
struct Site {
    folder: tempfile::TempDir,
    data: PathBuf,
    publication: Publication,
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let data = write_files(folder.path(), &[("a.h5", 100_001), ("b.txt", 3)]);
        let mut publication = publication("run7", Kind::Hybrid);
        publication.replace = false;
        Site { folder, data, publication }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("pub")
    }

    fn publish(&mut self, version: &str) -> Result<Published, PublishError> {
        self.publication.version = Some(version.to_owned());
        self.publication.published += 100;
        let content = Content::list(&self.data, Filter::default()).unwrap();
        self.publication.make(&content, &self.out(), &Progress::default())
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.out().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.out()).unwrap();
        let mut names: Vec<String> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn change(&self) {
        let mut bytes = fs::read(self.data.join("a.h5")).unwrap();
        bytes[5] ^= 1;
        fs::write(self.data.join("a.h5"), bytes).unwrap();
    }
}

fn key(seed: u8) -> Arc<SecretKey> {
    let random = [seed; swath_formats::minisign::SECRET_RANDOM_BYTES];
    Arc::new(SecretKey::from_random(&random).unwrap())
}

/// Where each of these stands; all must.
#[track_caller]
fn in_order(text: &str, words: &[&str]) {
    let places: Vec<usize> = words
        .iter()
        .map(|word| text.find(word).unwrap_or_else(|| panic!("{word}: {text}")))
        .collect();
    assert!(places.is_sorted(), "{text}");
}

#[test]
fn versions_are_announced_newest_first_with_all_their_files() {
    let mut site = Site::new();
    site.publication.address = Some("https://a.example/pub/".parse().unwrap());
    site.publish("1").unwrap();
    site.change();
    // The address of the folder is remembered.
    site.publication.address = None;
    site.publication.key = Some(key(1));
    site.publish("2").unwrap();
    let rss = site.text("feed.rss");
    in_order(
        &rss,
        &[
            "run7 version 2",
            "<category>run7</category>",
            "<enclosure url=\"https://a.example/pub/run7-2.torrent\"",
            "run7-2.meta4",
            "run7-2.index\"",
            "run7-2.index.minisig\"",
            "run7 version 1",
            "https://a.example/pub/run7-1.torrent",
        ],
    );
    let atom = site.text("feed.atom");
    let words = ["<id>urn:x-swath:run7:2</id>", "run7-2.torrent", "<id>urn:x-swath:run7:1</id>"];
    in_order(&atom, &words);
}

#[test]
fn the_catalogue_counts_what_each_version_has() {
    let mut site = Site::new();
    site.publish("1").unwrap();
    let catalogue = Catalogue::read(&site.out()).unwrap().expect("a catalogue");
    let version = catalogue.version("run7", Some("1")).expect("the version");
    assert_eq!((version.count, version.bytes), (2, 100_004));
    for file in &version.files {
        assert_eq!(site.read(&file.name).len() as u64, file.bytes, "{}", file.name);
    }
    assert!(catalogue.version("run7", None).is_none());
    assert!(catalogue.version("run8", Some("1")).is_none());
    let mut names: Vec<&str> = catalogue.file_names().collect();
    names.sort_unstable();
    assert_eq!(names, site.names());
}

#[test]
fn the_same_content_again_keeps_its_time_and_its_index() {
    let mut site = Site::new();
    site.publication.key = Some(key(1));
    site.publish("1").unwrap();
    let files = ["run7-1.torrent", "run7-1.index", "run7-1.index.minisig"];
    let [torrent, index, signature] = files.map(|name| site.read(name));
    // With a mirror, and without the key.
    site.publication.mirrors = vec!["http://m.example/run7/".parse().unwrap()];
    site.publication.key = None;
    site.publish("1").unwrap();
    assert_ne!(site.read("run7-1.torrent"), torrent);
    assert_eq!(site.read("run7-1.index"), index);
    assert_eq!(site.read("run7-1.index.minisig"), signature);
    assert!(site.text("feed.rss").contains("run7-1.index.minisig"));
    assert_eq!(site.text("feed.rss").matches("<item>").count(), 1);
}

#[test]
fn other_content_of_a_version_is_refused_and_changes_nothing() {
    let mut site = Site::new();
    site.publish("1").unwrap();
    let names = site.names();
    let before: Vec<Vec<u8>> = names.iter().map(|name| site.read(name)).collect();
    site.change();
    for shortens in [false, true] {
        if shortens {
            fs::write(site.data.join("a.h5"), "short").unwrap();
        }
        let refused = site.publish("1").unwrap_err();
        assert!(
            matches!(&refused, PublishError::Taken { title } if title == "run7 version 1"),
            "{refused:?}"
        );
        assert_eq!(site.names(), names);
        let now: Vec<Vec<u8>> = names.iter().map(|name| site.read(name)).collect();
        assert!(now == before);
    }
    // As another version it is welcome.
    assert!(site.publish("2").is_ok());
}

#[test]
fn what_is_replaced_leaves_nothing_of_the_old_content() {
    let mut site = Site::new();
    site.publication.key = Some(key(1));
    site.publish("1").unwrap();
    site.change();
    site.publication.replace = true;
    site.publication.key = None;
    site.publication.outputs = vec![Output::Index];
    site.publish("1").unwrap();
    assert_eq!(site.names(), ["catalogue.json", "feed.atom", "feed.rss", "run7-1.index"]);
    let rss = site.text("feed.rss");
    assert_eq!(rss.matches("<item>").count(), 1, "{rss}");
    assert!(!rss.contains("torrent"), "{rss}");
}

#[test]
fn files_of_others_are_not_replaced() {
    for name in ["run7-1.torrent", "run7-1.meta4", "run7-1.index", "feed.rss"] {
        let mut site = Site::new();
        fs::create_dir(site.out()).unwrap();
        fs::write(site.out().join(name), "mine").unwrap();
        let refused = site.publish("1").unwrap_err();
        let is_it = matches!(&refused, PublishError::Exists(path) if path.ends_with(name));
        assert!(is_it, "{refused:?}");
        assert_eq!(site.names(), [name]);
        assert_eq!(site.text(name), "mine");
    }
}

#[test]
fn a_catalogue_that_is_none_stops_everything() {
    for (text, is_newer) in [("{}", false), ("rubbish", false), ("{\"swath_catalogue\": 1}", false)]
    {
        let mut site = Site::new();
        fs::create_dir(site.out()).unwrap();
        fs::write(site.out().join("catalogue.json"), text).unwrap();
        site.publication.replace = true;
        let refused = site.publish("1").unwrap_err();
        let PublishError::Catalogue { error, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(matches!(error, CatalogueError::Newer), is_newer, "{error}");
        assert_eq!(site.names(), ["catalogue.json"]);
    }
}

#[test]
fn a_catalogue_cannot_name_files_elsewhere() {
    let mut site = Site::new();
    site.publish("1").unwrap();
    let text = site.text("catalogue.json");
    for name in ["../run7-1.torrent", "/etc/passwd", "a/b", "..", "."] {
        let wrong = text.replace("\"run7-1.torrent\"", &format!("{name:?}"));
        assert_ne!(wrong, text);
        fs::write(site.out().join("catalogue.json"), wrong).unwrap();
        let read = Catalogue::read(&site.out());
        assert!(matches!(read, Err(CatalogueError::Invalid(_))), "{name}: {read:?}");
    }
    fs::remove_file(site.out().join("catalogue.json")).unwrap();
    assert!(Catalogue::read(&site.out()).unwrap().is_none());
}

#[test]
fn a_folder_does_not_publish_its_own_publications() {
    for below in ["", "deep"] {
        let mut site = Site::new();
        let out = site.data.join(below);
        for version in ["1", "2"] {
            site.publication.version = Some(version.to_owned());
            let mut content = Content::list(&site.data, Filter::default()).unwrap();
            site.publication.leave_out_own_files(&mut content, &site.data, &out).unwrap();
            let paths: Vec<&[u8]> = content.files.iter().map(|file| &*file.path).collect();
            assert_eq!(paths, [&b"a.h5"[..], b"b.txt"], "{below} {version}");
            site.publication.make(&content, &out, &Progress::default()).unwrap();
        }
    }
}

#[test]
fn the_signature_is_of_the_index_and_names_what_it_signs() {
    let mut site = Site::new();
    let key = key(1);
    site.publication.key = Some(Arc::clone(&key));
    site.publish("1").unwrap();
    let (index, signature) = (site.read("run7-1.index"), site.text("run7-1.index.minisig"));
    let signature = Signature::read(&signature).unwrap();
    let comment = key.public().verify(&index, &signature).expect("it is right");
    assert!(comment.contains("file:run7-1.index\tname:run7\tversion:1\thashed"), "{comment}");
    assert!(self::key(2).public().verify(&index, &signature).is_err());
    let longer = [index, b"\n".to_vec()].concat();
    assert!(key.public().verify(&longer, &signature).is_err());
}

#[test]
fn a_new_index_does_not_keep_the_signature_of_the_old_one() {
    let mut site = Site::new();
    site.publication.key = Some(key(1));
    site.publish("1").unwrap();
    site.publication.key = None;
    // The same files in pieces of another length have another info-hash, which the index names.
    site.publication.piece_bytes = Some(64 << 10);
    let published = site.publish("1").unwrap();
    assert!(!site.out().join("run7-1.index.minisig").exists());
    let warnings = published.warnings.join("\n");
    for words in ["replaces a torrent with another info-hash", "removed ", "--sign KEY"] {
        assert!(warnings.contains(words), "{words}: {warnings}");
    }
}

#[test]
fn the_index_lists_the_files_and_the_torrent() {
    let mut site = Site::new();
    let published = site.publish("1").unwrap();
    let index = Index::read(&site.text("run7-1.index")).unwrap();
    assert_eq!((&*index.name, index.version.as_deref()), ("run7", Some("1")));
    assert_eq!(index.published, site.publication.published);
    let files: Vec<(&[u8], u64)> =
        index.files.iter().map(|file| (&*file.path, file.bytes)).collect();
    assert_eq!(files, [(&b"a.h5"[..], 100_001), (b"b.txt", 3)]);
    let info = published.torrent.unwrap().info;
    assert_eq!(index.btih, info.hash_v1().map(|hash| hash.to_string()));
    assert_eq!(index.btmh, info.hash_v2().map(|hash| hash.to_string()));
    for (output, path, bytes) in &published.written {
        assert_eq!(path.metadata().unwrap().len(), *bytes, "{output:?}");
    }
}

#[test]
fn what_cannot_be_published_leaves_no_folder() {
    let mut site = Site::new();
    for (name, version) in [("a/b", None), ("..", None), ("", None), ("run7", Some("../x"))] {
        site.publication.name = name.to_owned();
        site.publication.version = version.map(str::to_owned);
        let content = Content::list(&site.data, Filter::default()).unwrap();
        let refused = site.publication.make(&content, &site.out(), &Progress::default());
        assert!(matches!(refused, Err(PublishError::Name { .. })), "{name}: {refused:?}");
    }
    // All unusable names are in one error.
    let odd = site.folder.path().join("odd");
    fs::create_dir(&odd).unwrap();
    for name in [&b"Stra\xdfe"[..], b"a\nb", b"fine"] {
        use std::os::unix::ffi::OsStrExt as _;
        fs::write(odd.join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    let content = Content::list(&odd, Filter::default()).unwrap();
    let refused = publication("odd", Kind::V1).make(&content, &site.out(), &Progress::default());
    let refused = refused.unwrap_err();
    assert!(matches!(refused, PublishError::Paths { count: 2, .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("Stra") && text.contains("UTF-8") && text.contains("U+000A"), "{text}");
    let empty = site.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let content = Content::list(&empty, Filter::default()).unwrap();
    let refused = publication("run7", Kind::V1).make(&content, &site.out(), &Progress::default());
    assert!(matches!(refused, Err(PublishError::Empty)), "{refused:?}");
    assert!(!site.out().exists());
    assert!(Content::list(Path::new("/none/such"), Filter::default()).is_err());
}

/// libtorrent takes a v2 torrent with one file for a file without a folder.
#[test]
fn a_v2_torrent_of_a_folder_with_one_file_causes_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let one = write_files(&folder.path().join("one"), &[("a.h5", 100)]);
    let several = write_files(&folder.path().join("several"), &[("a.h5", 100), ("b", 1)]);
    for (kind, path, warns) in [
        (Kind::V2, one.parent().unwrap(), true),
        (Kind::Hybrid, one.parent().unwrap(), false),
        (Kind::V2, &*one, false),
        (Kind::V2, &*several, false),
    ] {
        let content = Content::list(path, Filter::default()).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let out = folder.path().join("pub");
        let made = publication(name, kind).make(&content, &out, &Progress::default()).unwrap();
        let warnings = made.warnings.join("\n");
        let words = format!("without the folder '{name}'");
        assert_eq!(warnings.contains(&words), warns, "{kind:?} {}: {warnings}", path.display());
    }
}
