//! The catalogue of a folder with publications, `catalogue.json`: which versions of which datasets it
//! has. The feeds of the folder are made of it.
//!
//! A catalogue is changed under a lock on its folder, and every file gets its name when it is
//! complete: readers see the old one or the new one, and two publishers lose no version.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use swath_formats::feed::{self, Enclosure, Entry, Feed};
use swath_formats::{metalink, percent};
use url::Url;

/// What a folder has published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalogue {
    /// The form of the file: [`FORM`].
    #[serde(rename = "swath_catalogue")]
    form: u32,
    /// The title of the feeds.
    pub title: String,
    /// The address of the folder, if it is known. It ends with `/`.
    pub address: Option<String>,
    /// The versions of all datasets, in the order in which they were published.
    pub versions: Vec<Version>,
}

/// A version of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The name of the dataset.
    pub name: String,
    /// The version; a dataset may have one without.
    pub version: Option<String>,
    /// When it was published, in seconds since 1970.
    pub published: u64,
    /// A digest of its paths and bytes.
    pub content: String,
    /// How many files the dataset has.
    pub count: u64,
    /// Their length.
    pub bytes: u64,
    /// What was written for it.
    pub files: Vec<WrittenFile>,
}

/// A file of a publication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Its name in the folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// Why a catalogue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is another file of this name, or damaged.
    #[error("it is no catalogue of swath: {0}")]
    Invalid(String),
    /// A later version of swath wrote it.
    #[error("it is of a newer version of swath")]
    Newer,
}

/// Keeps other publishers out of a folder until it is dropped.
pub(crate) struct Lock {
    _folder: File,
}

impl Catalogue {
    /// Reads the catalogue of a folder; `None` if it has none.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn read(folder: &Path) -> Result<Option<Catalogue>, CatalogueError> {
        let mut bytes = Vec::new();
        match File::open(folder.join(FILE)) {
            Ok(file) => file.take(BYTES_MAX).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let invalid = |error: serde_json::Error| CatalogueError::Invalid(error.to_string());
        let catalogue: Catalogue = serde_json::from_slice(&bytes).map_err(invalid)?;
        if catalogue.form > FORM {
            return Err(CatalogueError::Newer);
        }
        // Files of replaced versions are removed: none of them may lie elsewhere.
        let mut names = catalogue.versions.iter().flat_map(|it| &it.files).map(|file| &file.name);
        let is_elsewhere =
            |name: &&String| matches!(&***name, "" | "." | "..") || name.contains('/');
        match names.find(is_elsewhere) {
            Some(name) => Err(CatalogueError::Invalid(format!("invalid name {name:?}"))),
            None => Ok(Some(catalogue)),
        }
    }

    /// Returns one without versions.
    pub fn new() -> Catalogue {
        let title = "Datasets".to_owned();
        Catalogue { form: FORM, title, address: None, versions: Vec::new() }
    }

    /// Returns a version, if it was published.
    pub fn version(&self, name: &str, version: Option<&str>) -> Option<&Version> {
        self.versions.iter().find(|it| it.name == name && it.version.as_deref() == version)
    }

    /// Adds a version, or replaces the one of the same name and version.
    pub fn insert(&mut self, version: Version) {
        let is_same = |it: &Version| it.name == version.name && it.version == version.version;
        self.versions.retain(|it| !is_same(it));
        self.versions.push(version);
    }

    /// Returns the names of all files that belong to the catalogue, with itself and its feeds.
    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        let written = self.versions.iter().flat_map(|version| &version.files);
        OWN_FILES.into_iter().chain(written.map(|file| &*file.name))
    }

    /// Writes the catalogue and its feeds into a folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), (PathBuf, io::Error)> {
        let feed = self.feed();
        let json = serde_json::to_string_pretty(self).map_err(io::Error::other);
        let json = json.map_err(|error| (folder.join(FILE), error))? + "\n";
        // The catalogue comes first: the feeds can be made of it again.
        for (name, text) in [(FILE, json), (RSS, feed::rss(&feed)), (ATOM, feed::atom(&feed))] {
            let path = folder.join(name);
            write(&path, text.as_bytes()).map_err(|error| (path, error))?;
        }
        Ok(())
    }

    /// Returns the feed: the newest version first.
    pub fn feed(&self) -> Feed {
        let mut versions: Vec<&Version> = self.versions.iter().rev().collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version.published));
        Feed {
            title: self.title.clone(),
            link: self.address.clone().unwrap_or_default(),
            entries: versions.into_iter().map(|version| self.entry(version)).collect(),
        }
    }

    fn entry(&self, version: &Version) -> Entry {
        let coded = |text: &str| percent::encode(text.as_bytes());
        let number = version.version.as_deref();
        let files = version.files.iter().map(|file| {
            let name = coded(&file.name);
            // Without `./` a name with a colon would be an address.
            let relative = format!("./{name}");
            let folder = self.address.as_ref().and_then(|address| Url::parse(address).ok());
            let address = folder.and_then(|folder| folder.join(&relative).ok());
            Enclosure {
                href: address.map_or(relative, |address| address.to_string()),
                media_type: media_type(&file.name).to_owned(),
                bytes: Some(file.bytes),
            }
        });
        Entry {
            // It stays when a version is replaced, so that readers do not take it for another one.
            id: format!("urn:x-swath:{}:{}", coded(&version.name), coded(number.unwrap_or(""))),
            title: match number {
                Some(number) => format!("{} version {number}", version.name),
                None => version.name.clone(),
            },
            dataset: version.name.clone(),
            version: version.version.clone(),
            published: Some(version.published),
            files: files.collect(),
        }
    }
}

impl Default for Catalogue {
    fn default() -> Catalogue {
        Catalogue::new()
    }
}

/// Waits until no other publisher changes the folder.
pub(crate) fn lock(folder: &Path) -> io::Result<Lock> {
    let folder = File::open(folder)?;
    match rustix::fs::flock(&folder, FlockOperation::LockExclusive) {
        // Some network file systems have no locks.
        Ok(()) | Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOLCK) => {
            Ok(Lock { _folder: folder })
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes a file under a temporary name, then gives it its own. Links of both names are replaced, not
/// followed: a tree may have brought them.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    // A killed run may have left it. Nobody else writes here meanwhile.
    let _ = fs::remove_file(&temporary);
    let mut file = File::create_new(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let named = written.and_then(|()| fs::rename(&temporary, path));
    if named.is_err() {
        // The error to report is the first one.
        let _ = fs::remove_file(&temporary);
    }
    named
}

fn media_type(name: &str) -> &'static str {
    let extension = name.rsplit('.').next().unwrap_or_default();
    match extension {
        "torrent" => feed::TORRENT_MEDIA_TYPE,
        "meta4" => metalink::MEDIA_TYPE,
        "index" => feed::INDEX_MEDIA_TYPE,
        "minisig" => feed::SIGNATURE_MEDIA_TYPE,
        _ => "application/octet-stream",
    }
}

/// The file of the catalogue.
const FILE: &str = "catalogue.json";
/// Its feeds.
const RSS: &str = "feed.rss";
const ATOM: &str = "feed.atom";
/// The files that belong to no version.
pub(crate) const OWN_FILES: [&str; 3] = [FILE, RSS, ATOM];
/// Behind the name of a file that is not complete.
pub(crate) const TEMPORARY: &str = ".new";
/// The form of the catalogue that this version writes.
const FORM: u32 = 1;
/// A hundred thousand versions.
const BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: &str, published: u64) -> Version {
        Version {
            name: "run:7".to_owned(),
            version: Some(number.to_owned()),
            published,
            content: format!("blake3:{number}"),
            count: 1,
            bytes: 2,
            files: vec![WrittenFile { name: format!("run:7-{number}.torrent"), bytes: 3 }],
        }
    }

    #[test]
    fn links_that_a_tree_brought_are_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("kept"), "mine").unwrap();
        for link in ["feed.rss", "feed.rss.new"] {
            std::os::unix::fs::symlink("kept", at(link)).unwrap();
        }
        write(&at("feed.rss"), b"feed").unwrap();
        assert_eq!(fs::read_to_string(at("kept")).unwrap(), "mine");
        assert!(at("feed.rss").symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read_to_string(at("feed.rss")).unwrap(), "feed");
    }

    #[test]
    fn a_catalogue_and_its_feeds_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Catalogue::read(folder.path()).unwrap().is_none());
        let mut catalogue = Catalogue::new();
        catalogue.insert(version("1", 1_764_158_400));
        catalogue.insert(version("2", 1_764_158_500));
        catalogue.insert(version("1", 1_764_158_400));
        assert_eq!(catalogue.versions.len(), 2);
        for address in [None, Some("https://a.example/pub/".to_owned())] {
            catalogue.address = address;
            catalogue.write(folder.path()).unwrap();
            assert_eq!(Catalogue::read(folder.path()).unwrap().as_ref(), Some(&catalogue));
            for name in [RSS, ATOM] {
                let read = feed::read(&fs::read(folder.path().join(name)).unwrap()).unwrap();
                assert_eq!(read, catalogue.feed());
                let numbers: Vec<_> =
                    read.entries.iter().filter_map(|it| it.version.as_deref()).collect();
                assert_eq!(numbers, ["2", "1"]);
            }
        }
        let entry = &catalogue.feed().entries[0];
        assert_eq!(entry.files[0].href, "https://a.example/pub/run%3A7-2.torrent");
        assert_eq!(entry.id, "urn:x-swath:run%3A7:2");
    }

    #[test]
    fn other_files_are_no_catalogue() {
        let folder = tempfile::tempdir().unwrap();
        for text in
            ["", "{}", "[1]", "{\"swath_catalogue\":1}", "{\"swath_catalogue\":1,\"title\":\"\"}"]
        {
            fs::write(folder.path().join(FILE), text).unwrap();
            let error = Catalogue::read(folder.path()).unwrap_err();
            assert!(matches!(error, CatalogueError::Invalid(_)), "{text}: {error}");
        }
        let mut catalogue = Catalogue::new();
        for name in ["", "..", "../x", "/x"] {
            catalogue.versions = vec![version("1", 1)];
            catalogue.versions[0].files[0].name = name.to_owned();
            catalogue.write(folder.path()).unwrap();
            let error = Catalogue::read(folder.path()).unwrap_err();
            assert!(matches!(error, CatalogueError::Invalid(_)), "{name}: {error}");
        }
        let later = "{\"swath_catalogue\":2,\"title\":\"\",\"address\":null,\"versions\":[]}";
        fs::write(folder.path().join(FILE), later).unwrap();
        assert!(matches!(Catalogue::read(folder.path()), Err(CatalogueError::Newer)));
    }
}
