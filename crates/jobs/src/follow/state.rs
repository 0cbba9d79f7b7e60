//! What is remembered of the datasets of a folder, in `.swath-follow/state.json`, and the lock on it.
//!
//! The file is replaced as a whole and is on the disk before anything depends on it. Addresses may hold
//! secrets, so only its owner can read it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use swath_source::DocumentVersion;

use super::FollowError;

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The form of the file: [`FORM`].
    #[serde(rename = "swath_follow")]
    form: u32,
    /// The feeds, by their addresses.
    pub feeds: BTreeMap<String, FeedState>,
    /// The installed versions, by the names of their datasets.
    pub datasets: BTreeMap<String, Installed>,
    /// A verified version that is being swapped in.
    #[serde(default)]
    pub swapping: Option<Swapping>,
    /// Old versions that are being removed.
    #[serde(default)]
    pub removing: Vec<Removing>,
    /// Folders with unfinished versions, by the names of their datasets.
    #[serde(default)]
    pub unfinished: BTreeMap<String, String>,
}

/// A feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FeedState {
    /// The key that signs its versions.
    pub key: Option<String>,
    /// The entity tag of the feed when all was up to date.
    pub etag: Option<String>,
    /// The modification time of the feed then.
    pub last_modified: Option<String>,
    /// The datasets that were followed then; none: all.
    pub datasets: Vec<String>,
}

/// An installed version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Installed {
    /// The address of the feed.
    pub feed: String,
    /// The version.
    pub version: String,
    /// When it was published, in seconds since 1970, if the feed tells.
    pub published: Option<u64>,
    /// When it was published as its signed index tells it, if that was verified.
    #[serde(default)]
    pub signed: Option<u64>,
    /// The address of its torrent.
    pub torrent: String,
    /// Its info-hash in hexadecimal digits; its metafile is kept under this name.
    pub info_hash: String,
}

/// A verified version that gets the name of its dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Swapping {
    /// The name of the dataset.
    pub dataset: String,
    /// What it will be.
    pub installed: Installed,
    /// The folder that it was fetched into, in the state folder.
    pub stage: String,
    /// Its name there.
    pub content: String,
    /// Its inode, which it keeps when it is renamed.
    pub inode: u64,
}

/// An old version that has lost its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removing {
    /// The name of the dataset.
    pub dataset: String,
    /// The folder that it is in, in the state folder.
    pub stage: String,
    /// Its info-hash, if there was an old version.
    pub info_hash: Option<String>,
}

impl FeedState {
    /// Returns the version of the feed as its server knows it.
    pub fn document(&self) -> DocumentVersion {
        DocumentVersion { etag: self.etag.clone(), last_modified: self.last_modified.clone() }
    }
}

/// The state of a folder, which nobody else follows meanwhile.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    _lock: File,
}

impl Store {
    /// Opens the state of `dir`, and makes it if there is none.
    ///
    /// # Errors
    /// [`FollowError::Locked`], [`FollowError::State`] and [`FollowError::BadState`].
    pub fn open(dir: &Path) -> Result<(Store, State), FollowError> {
        let folder = dir.join(FOLDER);
        let failed = |path: &Path, error| FollowError::State { path: path.to_owned(), error };
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        let lock = File::open(&folder).map_err(|error| failed(&folder, error))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            // Some network file systems have no locks.
            Ok(()) | Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOLCK) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(FollowError::Locked(dir.to_owned())),
            Err(error) => return Err(failed(&folder, error.into())),
        }
        let path = folder.join(FILE);
        let state = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .ok()
                .filter(|state: &State| state.form == FORM && state.is_sound())
                .ok_or(FollowError::BadState(path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                State { form: FORM, ..State::default() }
            }
            Err(error) => return Err(failed(&path, error)),
        };
        Ok((Store { folder, _lock: lock }, state))
    }

    /// Writes the state.
    ///
    /// # Errors
    /// [`FollowError::State`].
    pub fn save(&self, state: &State) -> Result<(), FollowError> {
        let text =
            serde_json::to_vec_pretty(state).map_err(|error| self.failed(FILE, error.into()))?;
        self.write(FILE, &text)
    }

    /// Keeps a metafile under its info-hash.
    ///
    /// # Errors
    /// [`FollowError::State`].
    pub fn keep_torrent(&self, info_hash: &str, metafile: &[u8]) -> Result<(), FollowError> {
        self.write(&format!("{info_hash}.torrent"), metafile)
    }

    /// Returns the path of the metafile with this info-hash.
    pub fn torrent(&self, info_hash: &str) -> PathBuf {
        self.folder.join(format!("{info_hash}.torrent"))
    }

    /// Removes the metafiles that are not used. Those that cannot be removed do no harm.
    pub fn forget_torrents(&self, is_used: impl Fn(&str) -> bool) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let info_hash = name.to_str().and_then(|name| name.strip_suffix(".torrent"));
            if info_hash.is_some_and(|info_hash| !is_used(info_hash)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Returns the path of a folder for a version.
    pub fn stage(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FollowError> {
        let (new, path) = (self.folder.join(format!("{name}.new")), self.folder.join(name));
        let written = || {
            let mut file =
                File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        written().map_err(|error| self.failed(name, error))
    }

    fn failed(&self, name: &str, error: io::Error) -> FollowError {
        FollowError::State { path: self.folder.join(name), error }
    }
}

impl State {
    /// Returns whether every name is one file name: they become paths.
    fn is_sound(&self) -> bool {
        let swapping = self.swapping.iter().flat_map(|it| [&it.dataset, &it.stage, &it.content]);
        let removing = self.removing.iter().flat_map(|it| [&it.dataset, &it.stage]);
        let hashes = self.datasets.values().map(|it| &it.info_hash);
        let hashes = hashes.chain(self.swapping.iter().map(|it| &it.installed.info_hash));
        let hashes = hashes.chain(self.removing.iter().filter_map(|it| it.info_hash.as_ref()));
        let mut names = swapping
            .chain(removing)
            .chain(hashes)
            .chain(self.datasets.keys())
            .chain(self.unfinished.iter().flat_map(|(dataset, stage)| [dataset, stage]));
        names.all(|name| is_file_name(name))
    }
}

/// Returns whether a name is a safe name of one file.
pub fn is_file_name(name: &str) -> bool {
    let is_safe = swath_model::path::SafePath::new(name).is_ok();
    is_safe && !name.contains('/') && name != FOLDER
}

/// The folder of the state, in the folder of the datasets.
pub const FOLDER: &str = ".swath-follow";
const FILE: &str = "state.json";
/// The form of the file that this version writes.
const FORM: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_there_again_and_locked_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let (store, mut state) = Store::open(dir.path()).unwrap();
        state.feeds.insert("https://a.example/feed".to_owned(), FeedState::default());
        state.unfinished.insert("a".to_owned(), "a-1".to_owned());
        store.save(&state).unwrap();
        assert!(matches!(Store::open(dir.path()), Err(FollowError::Locked(_))));
        drop(store);
        assert_eq!(Store::open(dir.path()).unwrap().1, state);
    }

    #[test]
    fn rubbish_and_names_that_lead_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (store, mut state) = Store::open(dir.path()).unwrap();
        drop(store);
        for name in ["..", "a/b", "/etc", "", ".swath-follow"] {
            state.unfinished = [("a".to_owned(), name.to_owned())].into();
            let (store, _) = Store::open(dir.path()).unwrap();
            store.save(&state).unwrap();
            drop(store);
            assert!(matches!(Store::open(dir.path()), Err(FollowError::BadState(_))), "{name}");
            fs::remove_file(dir.path().join(FOLDER).join(FILE)).unwrap();
        }
        for text in ["", "[]", "{\"swath_follow\":2,\"feeds\":{},\"datasets\":{}}"] {
            fs::write(dir.path().join(FOLDER).join(FILE), text).unwrap();
            assert!(matches!(Store::open(dir.path()), Err(FollowError::BadState(_))), "{text}");
        }
    }
}
