//! Finds name conflicts between the files of a list.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use swath_store::tree::key;

use crate::error::NameConflict;

/// Names so far, as hashes, because a list may be long. Names beyond [`NAMES_MAX`] are not recorded; the
/// second of two such files then finds the first on the disk.
#[derive(Default)]
pub struct TakenNames {
    files: HashSet<u64>,
    /// The same by what some file systems tell apart.
    keys: HashMap<u64, u64>,
    folders: HashSet<u64>,
}

impl TakenNames {
    /// Adds a name, or returns its conflict. Returns whether an earlier name is so much alike that some file
    /// systems take the two for one.
    pub fn take(&mut self, path: &Path) -> Result<bool, NameConflict> {
        let file = hash(path);
        if self.files.contains(&file) {
            return Err(NameConflict::Same);
        }
        if self.folders.contains(&file) {
            return Err(NameConflict::IsFolder);
        }
        let folders = || path.ancestors().skip(1).filter(|path| path.components().next().is_some());
        if folders().any(|folder| self.files.contains(&hash(folder))) {
            return Err(NameConflict::BelowFile);
        }
        if self.files.len() < NAMES_MAX {
            self.files.insert(file);
            self.folders.extend(folders().map(hash));
            let alike: Vec<_> = path.iter().map(|name| key(name.as_bytes())).collect();
            let before = self.keys.insert(hash(&alike), file);
            return Ok(before.is_some_and(|before| before != file));
        }
        Ok(false)
    }
}

/// Hashes the components, so that `a//b` and `a/./b` are equal.
fn hash<T: Hash + ?Sized>(path: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// About 50 MiB of hashes.
const NAMES_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_each_others_way_are_refused() {
        let mut names = TakenNames::default();
        let mut take = |path: &str| names.take(Path::new(path)).is_ok();
        assert!(take("x/a") && take("x/b") && take("/data/x/a") && take("y"));
        assert!(!take("x/a") && !take("x//a") && !take("x/./a"));
        assert!(!take("x"), "a folder");
        assert!(!take("y/z"), "below a file");
        assert!(take("z"));
        let mut is_alike = |path: &str| names.take(Path::new(path)).unwrap();
        assert!(is_alike("X/A") && is_alike("Z") && !is_alike("x/c"));
    }
}
