//! Trees with something of everything, and whether two of them are the same.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use swath_netlab::faulty::Content;

/// Bytes that are the same for the same number, and not the same anywhere.
pub fn bytes(seed: u64, count: usize) -> Vec<u8> {
    Content::random(seed, count as u64).read(0, count as u64)
}

/// Writes a file, and makes the folders on the way.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Gives a file or a folder this time, in seconds.
pub fn age(path: impl AsRef<Path>, at_s: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(at_s, 123_456_789);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Other bytes, with the same size and time.
pub fn spoil(path: impl AsRef<Path>, at: u64) {
    let path = path.as_ref();
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"spoilt", at).unwrap();
    file.set_modified(time).unwrap();
}

pub fn inode(path: impl AsRef<Path>) -> u64 {
    path.as_ref().symlink_metadata().unwrap().ino()
}

/// The files of the tree that is [`plant`]ed.
pub const FILES: u64 = 108;

/// A tree with something of everything.
pub fn plant(tree: &Path) {
    write(tree.join("large.bin"), bytes(1, 5_000_003));
    write(tree.join("page.bin"), bytes(2, 1 << 20));
    for n in 0..100 {
        let size = (n as usize * 7919) % 40_000;
        write(tree.join(format!("many/{}/{n}.dat", n % 7)), bytes(n, size));
    }
    write(tree.join("empty"), "");
    write(tree.join("a name, with #?%.dat"), "odd\n");
    write(tree.join("l".repeat(255)), "long\n");
    write(tree.join(OsStr::from_bytes(b"no\xFFtext")), "bytes\n");
    write(tree.join("deep/".repeat(60)).join("down"), "down\n");
    fs::create_dir(tree.join("nothing in it")).unwrap();
    symlink("large.bin", tree.join("link")).unwrap();
    symlink("../../elsewhere", tree.join("many/out")).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    sparse.write_all_at(b"within", 1 << 20).unwrap();
    chmod(tree.join("page.bin"), 0o751);
    chmod(tree.join("many/3"), 0o750);
    age(tree.join("page.bin"), 1_000_000_000);
    age(tree.join("many/3"), 1_000_000_000);
}

/// Every entry below a folder, in order.
pub fn entries(tree: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                folders.push(path.clone());
            }
            all.push(path.strip_prefix(tree).unwrap().to_owned());
        }
    }
    all.sort();
    all
}

/// The names of all files below a folder.
pub fn files(tree: &Path) -> Vec<String> {
    let is_file = |path: &PathBuf| !tree.join(path).symlink_metadata().unwrap().is_dir();
    let all = entries(tree).into_iter().filter(is_file);
    all.map(|path| path.to_string_lossy().into_owned()).collect()
}

/// The names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Everything that can be seen of a tree but the content, one line an entry.
pub fn seen(tree: &Path) -> Vec<String> {
    let line = |path: PathBuf| {
        let whole = tree.join(&path);
        let found = whole.symlink_metadata().unwrap();
        // The size of a folder is its file system's affair.
        let size = if found.is_dir() { 0 } else { found.len() };
        let target = fs::read_link(&whole).unwrap_or_default();
        let (mode, s, ns) = (found.mode(), found.mtime(), found.mtime_nsec());
        format!("{path:?} {mode:o} {size} {s}.{ns:09} {target:?}")
    };
    entries(tree).into_iter().map(line).collect()
}

/// The same, with inodes, numbers of names and the times of changes of any kind.
pub fn all_of(tree: &Path) -> Vec<String> {
    let more = |path: PathBuf| {
        let found = tree.join(&path).symlink_metadata().unwrap();
        match found.is_dir() {
            // Looking for what is there may leave a mark in folders.
            true => format!("{}", found.ino()),
            false => format!(
                "{} {} {}.{:09}",
                found.ino(),
                found.nlink(),
                found.ctime(),
                found.ctime_nsec()
            ),
        }
    };
    let more = entries(tree).into_iter().map(more);
    seen(tree).into_iter().zip(more).map(|(seen, more)| format!("{seen} {more}")).collect()
}

/// Mode and time of a folder itself, which is no part of what is [`seen`] of a tree.
pub fn top(tree: &Path) -> (u32, i64, i64) {
    let found = fs::metadata(tree).unwrap();
    (found.mode() & 0o7777, found.mtime(), found.mtime_nsec())
}

/// Both trees are the same, to the byte and to the nanosecond.
#[track_caller]
pub fn assert_same(one: &Path, other: &Path) {
    let (ours, theirs) = (seen(one), seen(other));
    for (our, their) in ours.iter().zip(&theirs) {
        assert_eq!(our, their);
    }
    assert_eq!(ours.len(), theirs.len());
    for path in entries(one) {
        if one.join(&path).symlink_metadata().unwrap().is_file() {
            let is_same =
                fs::read(one.join(&path)).unwrap() == fs::read(other.join(&path)).unwrap();
            assert!(is_same, "{path:?} differs");
        }
    }
}

/// Sets an extended attribute; `false` where the file system takes none.
pub fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

/// All extended attributes of users of a file, by name.
pub fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(path, &mut list[..]).unwrap();
    list.truncate(length);
    let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut all: Vec<_> = names
        .map(|name| {
            let name = String::from_utf8_lossy(name).into_owned();
            let mut value = vec![0; 1 << 16];
            let length = rustix::fs::lgetxattr(path, name.as_str(), &mut value[..]).unwrap();
            value.truncate(length);
            (name, value)
        })
        .filter(|(name, _)| name.starts_with("user."))
        .collect();
    all.sort();
    all
}
