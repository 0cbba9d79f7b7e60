//! The two files of a staged file: the Metalink, for everybody who fetches it, and the keys next to it,
//! for its owner. Both contain secrets, so that only their owner may read them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::{Value, json};
use swath_formats::{metalink, percent};
use swath_model::{Range, Validators};
use swath_transfer::stage::{Staged, StagedDepot};
use url::Url;

use super::source::Source;
use crate::exit::{Exit, chain};

/// The depots of a staged file, and the keys to manage them.
pub struct Keys {
    /// The name of the staged file.
    pub file: String,
    pub size_bytes: u64,
    pub depots: Vec<Key>,
}

/// One depot.
#[derive(Clone)]
pub struct Key {
    /// The relay.
    pub relay: Url,
    /// The address for extending and releasing the lease.
    pub manage: Option<Url>,
    /// The address for reading.
    pub read: Url,
}

impl Keys {
    /// Returns the text of the key file.
    pub fn text(&self) -> String {
        let key = |key: &Key| {
            let manage = key.manage.as_ref().map(Url::as_str);
            json!({"relay": key.relay.as_str(), "manage": manage, "read": key.read.as_str()})
        };
        let depots: Vec<Value> = self.depots.iter().map(key).collect();
        let keys = json!({"file": self.file, "size_bytes": self.size_bytes, "depots": depots});
        format!("{keys:#}\n")
    }

    fn of(text: &str) -> Option<Keys> {
        let keys: Value = serde_json::from_str(text).ok()?;
        let url = |key: &Value, name: &str| Url::parse(key.get(name)?.as_str()?).ok();
        let key = |key: &Value| {
            let manage = Some(url(key, "manage")?);
            Some(Key { relay: url(key, "relay")?, manage, read: url(key, "read")? })
        };
        Some(Keys {
            file: keys.get("file")?.as_str()?.to_owned(),
            size_bytes: keys.get("size_bytes")?.as_u64()?,
            depots: keys.get("depots")?.as_array()?.iter().map(key).collect::<Option<_>>()?,
        })
    }
}

/// Returns the path of the keys of a Metalink.
pub fn keys_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".keys");
    name.into()
}

/// A file that is written under a temporary name, and renamed when it is complete. One program at a time
/// holds the temporary name; after a crash the next one takes it over.
pub struct Draft {
    file: File,
    path: PathBuf,
    draft: PathBuf,
    overwrite: bool,
}

impl Draft {
    /// Creates the temporary file.
    pub fn begin(path: &Path, overwrite: bool) -> Result<Draft, Failure> {
        let target = |text: String| Failure::new(Exit::Target, text);
        let there = path.symlink_metadata();
        if there.as_ref().is_ok_and(fs::Metadata::is_dir) {
            return Err(target(format!("{} is a folder", path.display())));
        }
        if !overwrite && there.is_ok() {
            return Err(target(exists(path)));
        }
        let mut draft = path.as_os_str().to_owned();
        draft.push(".swath.new");
        let draft = PathBuf::from(draft);
        let file = match own(&draft) {
            Ok(Some(file)) => file,
            Ok(None) => {
                let text = format!("another 'swath stage' is writing {}", path.display());
                return Err(target(text).hint("choose another name with -o"));
            }
            Err(error) => return Err(target(format!("cannot write {}: {error}", draft.display()))),
        };
        Ok(Draft { file, path: path.to_owned(), draft, overwrite })
    }

    /// Writes and syncs the contents.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.file.sync_all()
    }

    /// Renames the file, durably where the file system can sync folders.
    fn name(&self) -> io::Result<()> {
        // A hard link does not replace a file that was created meanwhile; not every file system has them.
        match fs::hard_link(&self.draft, &self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !self.overwrite => {
                return Err(io::Error::new(error.kind(), exists(&self.path)));
            }
            Ok(()) => fs::remove_file(&self.draft)?,
            Err(_) => fs::rename(&self.draft, &self.path)?,
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            // Not every file system can sync folders.
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

fn exists(path: &Path) -> String {
    format!(
        "{} exists: use --overwrite to replace it, or choose another name with -o",
        path.display()
    )
}

/// Opens and locks an empty file; `None` if another program has it.
fn own(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    loop {
        let file = options.open(path)?;
        // Files that cannot be locked, as on some network drives, count as locked.
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Ok(None);
        }
        // The previous owner may have renamed or removed it …
        if !is_named(&file, path) {
            continue;
        }
        // … or was killed between link and removal: its file has its final name, and stays.
        if file.metadata()?.nlink() > 1 {
            fs::remove_file(path)?;
            continue;
        }
        // It will contain secrets, whoever created it.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.set_len(0)?;
        return Ok(Some(file));
    }
}

/// Whether the file still has this name.
fn is_named(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}

/// Renames both files, the keys first, so that leases can be released in any case. After an error the
/// keys of an earlier staging are restored.
pub fn name_both(keys: &Draft, metalink: &Draft) -> io::Result<()> {
    let earlier = keys.draft.with_extension("old");
    let moved =
        if keys.overwrite { fs::rename(&keys.path, &earlier).map(|()| true) } else { Ok(false) };
    let had_keys = match moved {
        Ok(had_keys) => had_keys,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let named = keys.name().and_then(|()| {
        metalink.name().inspect_err(|_| {
            let _ = fs::remove_file(&keys.path);
        })
    });
    if had_keys {
        let _ = match named {
            Ok(()) => fs::remove_file(&earlier),
            Err(_) => fs::rename(&earlier, &keys.path),
        };
    }
    named
}

/// Keys of leases that are neither released nor listed in another file, kept in `OUTPUT.left.keys` so
/// that they survive a crash.
pub struct KeyFile {
    /// `OUTPUT.left`: the name for `swath stage release`.
    pub file: PathBuf,
}

impl KeyFile {
    /// Writes the keys to a new file.
    pub fn new(output: &Path, keys: &Keys) -> Result<KeyFile, Failure> {
        let named = |count: u32| {
            let mut name = output.as_os_str().to_owned();
            name.push(if count == 1 { ".left".to_owned() } else { format!(".left{count}") });
            PathBuf::from(name)
        };
        let is_free = |file: &PathBuf| keys_of(file).symlink_metadata().is_err();
        let file = (1..).map(named).find(is_free).unwrap_or_else(|| named(1));
        KeyFile { file }.write(keys, false)
    }

    /// Replaces the keys by the remaining ones.
    pub fn reduced_to(self, keys: &Keys) -> Result<KeyFile, Failure> {
        self.write(keys, true)
    }

    /// Removes the file.
    pub fn remove(self) {
        // The keys are useless now.
        let _ = fs::remove_file(keys_of(&self.file));
    }

    fn write(self, keys: &Keys, overwrite: bool) -> Result<KeyFile, Failure> {
        let path = keys_of(&self.file);
        let mut draft = Draft::begin(&path, overwrite)?;
        draft.write(&keys.text()).and_then(|()| draft.name()).map_err(|error| {
            Failure::new(Exit::Target, format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(self)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Another program may own the name by now.
        if is_named(&self.file, &self.draft) {
            let _ = fs::remove_file(&self.draft);
        }
    }
}

/// Returns the Metalink of a staged file.
pub fn metalink(source: &Source, staged: &Staged) -> String {
    let mut file = metalink::File::new(source.name.clone());
    file.size_bytes = Some(staged.size_bytes);
    file.digests.clone_from(&staged.digests);
    file.pieces.clone_from(&source.pieces);
    let is_proved = !file.digests.is_empty() || file.pieces.is_some();
    let whole = Range::new(0, staged.size_bytes);
    for depot in &staged.depots {
        let url = read_by(depot, &staged.version, is_proved);
        if depot.held.covers(whole) {
            let mirror = metalink::Mirror { priority: 1, ..metalink::Mirror::new(url) };
            file.mirrors.push(mirror);
        } else {
            let ranges = depot.held.clone();
            file.held.push(metalink::Held { url, ranges, priority: 1 });
        }
    }
    // Depots are closer to clients than the origin.
    let origin = |url: &Url| metalink::Mirror { priority: 2, ..metalink::Mirror::new(url.clone()) };
    file.mirrors.extend(staged.origins.iter().map(origin));
    let generator = Some(concat!("swath/", env!("CARGO_PKG_VERSION")).to_owned());
    let header = metalink::Header { generator, ..metalink::Header::default() };
    metalink::to_string(&metalink::Metalink { header, files: vec![file], refused: Vec::new() })
}

/// Returns the address for reading from a depot. Without a digest it carries the origin's validators, so
/// that clients can compare versions.
fn read_by(depot: &StagedDepot, version: &Validators, is_proved: bool) -> Url {
    let mut url = depot.read.clone();
    if !is_proved {
        let etag = version.etag.as_deref().unwrap_or_default();
        let mut query = format!("etag={}", percent::encode(etag.as_bytes()));
        if let Some(modified) = &version.last_modified {
            query.push_str(&format!("&modified={}", percent::encode(modified.as_bytes())));
        }
        url.set_query(Some(&query));
    }
    url
}

/// Returns the keys of these depots.
pub fn keys<'a>(
    source: &Source,
    size_bytes: u64,
    depots: impl IntoIterator<Item = &'a StagedDepot>,
) -> Keys {
    let depots = depots.into_iter().map(|depot| Key {
        relay: without_login(&depot.relay),
        manage: Some(depot.manage.clone()),
        read: depot.read.clone(),
    });
    let file = source.name.as_str().to_owned();
    Keys { file, size_bytes, depots: depots.collect() }
}

/// Reads the keys of an earlier staging, if there are any.
pub fn earlier(output: &Path) -> Option<Keys> {
    Keys::of(&fs::read_to_string(keys_of(output)).ok()?)
}

/// Reads the keys of a staged file, or without them its Metalink.
pub fn read(file: &Path) -> Result<Keys, Failure> {
    let input = |path: &Path, text: String| {
        Failure::new(Exit::Input, format!("{}: {text}", path.display()))
    };
    let path = keys_of(file);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let keys = Keys::of(&text);
            return keys.ok_or_else(|| input(&path, "not written by 'swath stage'".to_owned()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(input(&path, error.to_string())),
    }
    let bytes = fs::read(file).map_err(|error| input(file, error.to_string()))?;
    let read = metalink::parse(&bytes).map_err(|error| input(file, chain(&error)))?;
    let Some(one) = read.files.first() else {
        return Err(input(file, "it lists no file".to_owned()));
    };
    let urls = one.mirrors.iter().map(|it| &it.url).chain(one.held.iter().map(|it| &it.url));
    let depots = urls.filter(|url| swath_formats::depot::is_path(url.path())).map(|url| {
        let mut relay = without_login(url);
        relay.set_path("/");
        relay.set_query(None);
        Key { relay, manage: None, read: url.clone() }
    });
    let depots: Vec<Key> = depots.collect();
    if depots.is_empty() {
        return Err(input(file, "it lists no depot: not written by 'swath stage'".to_owned()));
    }
    let (file, size_bytes) = (one.name.as_str().to_owned(), one.size_bytes.unwrap_or(0));
    Ok(Keys { file, size_bytes, depots })
}

fn without_login(url: &Url) -> Url {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_program_writes_under_a_name_at_a_time_and_replaces_nothing() {
        // Two of them did so, both ended well, and the second one gave up what the first had leased.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("staged.meta4");
        let why = |draft: Result<Draft, Failure>| draft.err().unwrap().what;
        let first = Draft::begin(&path, false).unwrap();
        assert!(why(Draft::begin(&path, true)).contains("another 'swath stage' is writing"));
        drop(first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

        let mut second = Draft::begin(&path, false).unwrap();
        second.write("second").unwrap();
        fs::write(&path, "another's").unwrap();
        assert!(second.name().unwrap_err().to_string().contains("exists"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
        drop(second);
        let mut third = Draft::begin(&path, true).unwrap();
        third.write("third").unwrap();
        third.name().unwrap();
        drop(third);
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_left_by_one_that_was_killed_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("staged.meta4");
        let left = folder.path().join("staged.meta4.swath.new");
        fs::write(&left, "half of something long").unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
        let mut draft = Draft::begin(&path, false).unwrap();
        assert_eq!(fs::metadata(&left).unwrap().mode() & 0o777, 0o600);
        draft.write("whole").unwrap();
        draft.name().unwrap();
        drop(draft);
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");

        // Killed between both names of one file.
        fs::hard_link(&path, &left).unwrap();
        drop(Draft::begin(&path, true).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert!(!left.exists());
    }

    #[test]
    fn keys_that_somebody_else_wrote_meanwhile_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("staged.meta4");
        for (overwrite, left) in [(false, "another's"), (true, "ours")] {
            let mut metalink = Draft::begin(&path, overwrite).unwrap();
            let mut keys = Draft::begin(&keys_of(&path), overwrite).unwrap();
            fs::write(keys_of(&path), "another's").unwrap();
            metalink.write("ours").unwrap();
            keys.write("ours").unwrap();
            assert_eq!(name_both(&keys, &metalink).is_ok(), overwrite);
            assert_eq!(fs::read_to_string(keys_of(&path)).unwrap(), left);
            assert_eq!(path.exists(), overwrite);
            fs::remove_file(keys_of(&path)).unwrap();
        }
    }
}
