//! Files of a test.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder for the files of a test, gone when dropped.
pub struct Tree(TempDir);

impl Tree {
    pub fn new() -> Tree {
        Tree(tempfile::Builder::new().prefix("swath-test-").tempdir().unwrap())
    }

    /// A tree with these files.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let tree = Tree::new();
        for (name, text) in files {
            tree.write(name, text);
        }
        tree
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and the folders above it.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Makes a file that takes no room on the disk.
    pub fn hollow(&self, name: &str, size_bytes: u64) {
        self.write(name, "");
        let file = std::fs::File::options().write(true).open(self.path(name)).unwrap();
        file.set_len(size_bytes).unwrap();
    }

    pub fn folder(&self, name: &str) {
        std::fs::create_dir_all(self.path(name)).unwrap();
    }

    pub fn link(&self, to: &str, name: &str) {
        std::os::unix::fs::symlink(to, self.path(name)).unwrap();
    }

    #[track_caller]
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// Names in a folder, sorted.
    pub fn names_in(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Bytes that are the same for the same number, and not the same anywhere.
pub fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
    };
    let mut all = Vec::with_capacity(count + 8);
    while all.len() < count {
        all.extend_from_slice(&next());
    }
    all.truncate(count);
    all
}
