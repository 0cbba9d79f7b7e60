//! The files that say who may use the tracker, read again when they change.
//!
//! A changed file is read once it has stayed the same from one look to the next, so that a file that
//! is just being written is not taken for a short one. A file that cannot be read leaves all lists as
//! they are.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use swath_formats::Network;
use swath_formats::torrent::{Metainfo, MetainfoError};
use swath_formats::tracker::InfoHash;

use crate::lists::{LineError, Lists, Passkeys, Torrents, read_networks};
use crate::published::{ATOM, read_feed};
use crate::server::{Note, Notes};
use crate::tracker::Tracker;

/// Where the lists of a tracker come from.
#[derive(Clone, Debug, Default)]
pub struct ListFiles {
    /// Where the whitelist of torrents comes from; without one every torrent is tracked.
    pub torrents: Option<TorrentList>,
    /// Allowed networks of clients.
    pub networks: Vec<Network>,
    /// Files with more of them.
    pub network_files: Vec<PathBuf>,
    /// A list of passkeys; without one clients need none.
    pub passkeys: Option<PathBuf>,
}

/// Where a whitelist of torrents comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TorrentList {
    /// From a file of info-hashes.
    Whitelist(PathBuf),
    /// From a folder: all its `.torrent` files.
    Catalogue(PathBuf),
}

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}: {problem}", path.display())]
pub struct ListError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub problem: ListProblem,
}

/// What is wrong with a list.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListProblem {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// One of its lines is invalid.
    #[error(transparent)]
    Line(#[from] LineError),
    /// It is not a torrent.
    #[error(transparent)]
    Torrent(#[from] MetainfoError),
}

impl ListFiles {
    /// Reads all lists.
    ///
    /// # Errors
    /// [`ListError`] of the first file that cannot be used.
    pub fn read(&self) -> Result<Lists, ListError> {
        let mut networks = self.networks.clone();
        for path in &self.network_files {
            networks.extend(read(path, read_networks)?);
        }
        let torrents = self.torrents.as_ref().map(|list| match list {
            TorrentList::Whitelist(path) => read(path, Torrents::read),
            TorrentList::Catalogue(folder) => catalogue(folder),
        });
        let mut key = [0; 32];
        swath_serve::random(&mut key);
        let passkeys = self.passkeys.as_deref();
        let passkeys = passkeys.map(|path| read(path, |text| Passkeys::read(text, key)));
        // An empty file allows nobody, and must not allow everybody.
        if networks.is_empty() && !self.network_files.is_empty() {
            networks.extend(NOBODY.parse::<Network>());
        }
        Ok(Lists {
            torrents: torrents.transpose()?,
            feed: self.folder().and_then(read_feed).map(Arc::new),
            networks,
            passkeys: passkeys.transpose()?,
        })
    }

    /// Returns the folder of the catalogue, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        match &self.torrents {
            Some(TorrentList::Catalogue(folder)) => Some(folder),
            Some(TorrentList::Whitelist(_)) | None => None,
        }
    }

    /// The files whose change matters, and the folder of a catalogue, in which files come and go.
    fn paths(&self) -> Vec<PathBuf> {
        let torrents = self.torrents.iter().flat_map(|list| match list {
            TorrentList::Whitelist(path) => vec![path.clone()],
            TorrentList::Catalogue(folder) => {
                let files = torrent_files(folder).unwrap_or_default();
                [vec![folder.clone(), folder.join(ATOM)], files].concat()
            }
        });
        torrents.chain(self.network_files.iter().chain(&self.passkeys).cloned()).collect()
    }

    /// What changes when one of the files does.
    fn stamps(&self) -> Vec<Option<Stamp>> {
        let stamp = |path: PathBuf| path.metadata().ok().map(|it| Stamp::of(&it));
        self.paths().into_iter().map(stamp).collect()
    }
}

/// A version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    number: u64,
    bytes: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl Stamp {
    fn of(about: &fs::Metadata) -> Stamp {
        Stamp {
            number: about.ino(),
            bytes: about.len(),
            changed_s: about.mtime(),
            changed_ns: about.mtime_nsec(),
        }
    }
}

/// Replaces the lists of a tracker whenever a file changes. Never ends.
pub(crate) async fn watch(tracker: Arc<Tracker>, files: ListFiles, notes: Notes) {
    if files.paths().is_empty() {
        return;
    }
    let files = Arc::new(files);
    let mut used = files.stamps();
    let mut seen = used.clone();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let looking = Arc::clone(&files);
        let Ok(now) = tokio::task::spawn_blocking(move || looking.stamps()).await else { continue };
        let is_settled = now == seen;
        seen.clone_from(&now);
        if !is_settled || now == used {
            continue;
        }
        used = now;
        let reading = Arc::clone(&files);
        let Ok(read) = tokio::task::spawn_blocking(move || reading.read()).await else { continue };
        match read {
            Ok(lists) => {
                tracker.core().set_lists(lists.clone());
                notes(Note::ListsRead { lists });
            }
            Err(error) => notes(Note::ListsKept { error }),
        }
    }
}

fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, LineError>) -> Result<T, ListError> {
    let failed = |problem| ListError { path: path.to_owned(), problem };
    let text = || {
        let mut text = String::new();
        File::open(path)?.take(LIST_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = text().map_err(|error: io::Error| failed(error.into()))?;
    parse(&text).map_err(|error| failed(error.into()))
}

/// Reads the torrents of a folder. A hybrid torrent has two info-hashes.
fn catalogue(folder: &Path) -> Result<Torrents, ListError> {
    let failed = |path: &Path, problem| ListError { path: path.to_owned(), problem };
    let files = torrent_files(folder).map_err(|error| failed(folder, error.into()))?;
    let mut torrents = Torrents::default();
    for path in files {
        let read = || {
            let mut bytes = Vec::new();
            File::open(&path)?.take(LIST_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(Metainfo::read(&bytes)?.info)
        };
        let info = read().map_err(|problem: ListProblem| failed(&path, problem))?;
        let v1 = info.hash_v1().map(InfoHash::from);
        let v2 = info.hash_v2().map(InfoHash::from);
        for hash in v1.into_iter().chain(v2) {
            torrents.insert(hash, info.name().as_str());
        }
    }
    Ok(torrents)
}

/// The `.torrent` files of a folder, sorted.
fn torrent_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut files = entries.collect::<io::Result<Vec<PathBuf>>>()?;
    files.retain(|path| path.extension().is_some_and(|it| it == "torrent"));
    files.sort_unstable();
    Ok(files)
}

/// A network that nobody comes from (RFC 6666).
const NOBODY: &str = "100::/128";
/// Whoever has changed a list does not wait long for it to count.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A million torrents with their names.
const LIST_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_are_read_or_the_first_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let files = ListFiles {
            torrents: Some(TorrentList::Whitelist(write(
                "torrents",
                &format!("{} run 7\n", "ab".repeat(20)),
            ))),
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            network_files: vec![write("networks", "192.0.2.0/24\n")],
            passkeys: Some(write("passkeys", "0123456789abcdef\n")),
        };
        let lists = files.read().unwrap();
        assert_eq!((lists.torrents.unwrap().len(), lists.networks.len()), (1, 2));
        assert_eq!(lists.passkeys.unwrap().len(), 1);
        let before = files.stamps();
        write("networks", "192.0.2.0/33\n");
        assert_ne!(files.stamps(), before);
        let error = files.read().unwrap_err().to_string();
        assert!(error.contains("/networks: line 1: '192.0.2.0/33' is not"), "{error}");
        let torrents = Some(TorrentList::Whitelist("/none/such".into()));
        let none = ListFiles { torrents, ..ListFiles::default() };
        assert!(none.read().unwrap_err().to_string().starts_with("cannot use /none/such: No such"));
    }

    #[test]
    fn an_empty_file_of_networks_allows_nobody() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let network_files = vec![file.path().to_owned()];
        let lists = ListFiles { network_files, ..ListFiles::default() }.read().unwrap();
        assert!(!lists.allow("127.0.0.1".parse().unwrap()));
        assert!(!lists.allow("::1".parse().unwrap()));
    }
}
