//! What is remembered of the datasets of a folder, in `.swath-follow/state.json`, and the lock on it.
//!
//! The file is replaced as a whole and is on the disk before anything depends on it. Addresses may hold
//! secrets, so only its owner can read it. A tree that lies there may have brought links of these names:
//! everything below the user's folder is reached by way of a [`Root`], which follows none.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use swath_source::DocumentVersion;
use swath_store::tree::Root;

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
    /// The same folder, locked.
    root: Root,
}

impl Store {
    /// Opens the state of `dir`, and makes it if there is none.
    ///
    /// # Errors
    /// [`FollowError::Locked`], [`FollowError::State`] and [`FollowError::BadState`].
    pub fn open(dir: &Path) -> Result<(Store, State), FollowError> {
        let folder = dir.join(FOLDER);
        let failed = |path: &Path, error| FollowError::State { path: path.to_owned(), error };
        let opened = fs::create_dir_all(dir).and_then(|()| {
            // An empty path is this folder.
            let here = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            Root::open(here)?.made(FOLDER.as_bytes())
        });
        let root = opened.map_err(|error| failed(&folder, error))?;
        match root.try_lock() {
            Ok(true) => {}
            Ok(false) => return Err(FollowError::Locked(dir.to_owned())),
            Err(error) => return Err(failed(&folder, error)),
        }
        let path = folder.join(FILE);
        let read = root.file(FILE.as_bytes()).and_then(|mut file| {
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            Ok(text)
        });
        let state = match read {
            Ok(text) => serde_json::from_slice(&text)
                .ok()
                .filter(|state: &State| state.form == FORM && state.is_sound())
                .ok_or(FollowError::BadState(path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                State { form: FORM, ..State::default() }
            }
            Err(error) => return Err(failed(&path, error)),
        };
        Ok((Store { folder, root }, state))
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
        for entry in self.root.list(b"", false).into_iter().flatten() {
            let name = str::from_utf8(&entry.name).ok();
            let info_hash = name.and_then(|name| name.strip_suffix(".torrent"));
            if info_hash.is_some_and(|info_hash| !is_used(info_hash)) {
                let _ = self.root.remove(&entry.name, &|| false);
            }
        }
    }

    /// Returns the path of the folder for a version, whether it is there or not.
    ///
    /// # Errors
    /// [`FollowError::State`] if something else, such as a link, has its name.
    pub fn stage(&self, name: &str) -> Result<PathBuf, FollowError> {
        match self.root.below(name.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(name, error)),
            _ => Ok(self.folder.join(name)),
        }
    }

    /// Makes the folder for a version.
    ///
    /// # Errors
    /// As for [`Store::stage`].
    pub fn make_stage(&self, name: &str) -> Result<PathBuf, FollowError> {
        self.root.made(name.as_bytes()).map_err(|error| self.failed(name, error))?;
        Ok(self.folder.join(name))
    }

    /// Removes what has the name of a folder for a version, with all that is in it.
    ///
    /// # Errors
    /// [`FollowError::State`].
    pub fn remove_stage(&self, name: &str) -> Result<(), FollowError> {
        match fs::remove_dir_all(self.root.proc_path().join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(name, error)),
            _ => Ok(()),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), FollowError> {
        let written = || {
            let incoming = self.root.receive(name.as_bytes())?.private()?;
            incoming.file().write_all(bytes)?;
            incoming.finish(false).map(drop)
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
    fn links_that_a_tree_brought_lead_nowhere() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (at, kept) = (|path: &str| dir.path().join(path), dir.path().join("kept"));
        fs::write(&kept, "mine").unwrap();
        // The folder of the state is a link to another folder.
        fs::create_dir_all(at("a/other")).unwrap();
        symlink("other", at("a/.swath-follow")).unwrap();
        assert!(matches!(Store::open(&at("a")), Err(FollowError::State { .. })));
        assert_eq!(fs::read_dir(at("a/other")).unwrap().count(), 0);
        // So is what is in it.
        fs::create_dir_all(at("b/.swath-follow")).unwrap();
        for name in ["state.json.new", "x.torrent", "x.torrent.new", "v-1"] {
            symlink(&kept, at("b/.swath-follow").join(name)).unwrap();
        }
        symlink(at("a/other"), at("b/.swath-follow/v-2")).unwrap();
        let (store, state) = Store::open(&at("b")).unwrap();
        store.save(&state).unwrap();
        store.keep_torrent("x", b"metafile").unwrap();
        for stage in ["v-1", "v-2"] {
            assert!(store.stage(stage).is_err() && store.make_stage(stage).is_err(), "{stage}");
        }
        store.remove_stage("v-2").unwrap();
        assert_eq!(store.make_stage("v-2").unwrap(), at("b/.swath-follow/v-2"));
        assert_eq!(fs::read_to_string(&kept).unwrap(), "mine");
        assert!(at("a/other").is_dir());
        assert_eq!(fs::read_to_string(store.torrent("x")).unwrap(), "metafile");
        let mode = fs::metadata(at("b/.swath-follow/state.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Nor is the state read through one.
        drop(store);
        fs::rename(at("b/.swath-follow/state.json"), at("state")).unwrap();
        symlink(at("state"), at("b/.swath-follow/state.json")).unwrap();
        assert!(matches!(Store::open(&at("b")), Err(FollowError::State { .. })));
        // The folder that the user named may be a link.
        fs::create_dir(at("real")).unwrap();
        symlink("real", at("named")).unwrap();
        let (store, state) = Store::open(&at("named")).unwrap();
        store.save(&state).unwrap();
        assert!(at("real/.swath-follow/state.json").is_file());
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
