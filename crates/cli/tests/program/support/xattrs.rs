//! Extended attributes of files in tests.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::Home;
use super::trees::plant;

fn c(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap()
}

/// Set one; `false` where the file system or the system does not let us.
pub fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    let (path, name) = (c(path.as_os_str().as_bytes()), c(name.as_bytes()));
    // SAFETY: both are strings, and the value is as long as it says.
    let set = unsafe {
        libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    set == 0
}

/// Remove one.
pub fn remove(path: &Path, name: &str) -> bool {
    let (path, name) = (c(path.as_os_str().as_bytes()), c(name.as_bytes()));
    // SAFETY: both are strings.
    unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) == 0 }
}

/// All that a file has, by name.
pub fn all(path: &Path) -> Vec<(String, Vec<u8>)> {
    let path = c(path.as_os_str().as_bytes());
    let mut list = vec![0u8; 1 << 16];
    // SAFETY: the buffer is as long as it says.
    let length = unsafe { libc::llistxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    list.truncate(usize::try_from(length).expect("they can be listed"));
    let mut all = Vec::new();
    for name in list.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 1 << 16];
        let of = c(name);
        // SAFETY: the buffer is as long as it says.
        let length = unsafe {
            libc::lgetxattr(path.as_ptr(), of.as_ptr(), value.as_mut_ptr().cast(), value.len())
        };
        value.truncate(usize::try_from(length).expect("it can be read"));
        all.push((String::from_utf8_lossy(name).into_owned(), value));
    }
    all.sort();
    all
}

/// The beginning of the command.
pub const ALL: [&str; 3] = ["cp", "--preserve", "mode,times,xattr"];

/// What of a tree has which extended attributes, one line an entry that has some.
pub fn seen(tree: &Path) -> Vec<String> {
    let mut seen = Vec::new();
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                folders.push(path.clone());
            }
            let mut line = path.strip_prefix(tree).unwrap().display().to_string();
            for (name, value) in all(&path) {
                let start = value[..value.len().min(20)].escape_ascii();
                line += &format!("  {name} {start} {}", value.len());
            }
            if line.contains("  ") {
                seen.push(line);
            }
        }
    }
    seen.sort();
    seen
}

#[track_caller]
pub fn assert_same_xattrs(one: &Path, other: &Path) {
    let (ours, theirs) = (seen(one), seen(other));
    let differs = ours.iter().zip(&theirs).find(|(our, their)| our != their);
    assert_eq!(differs, None);
    assert_eq!(ours.len(), theirs.len());
}

/// A tree with something of everything, of which some has extended attributes; `false`, with a
/// message, where the file system takes none.
pub fn planted(home: &Home) -> bool {
    plant(home);
    fs::hard_link(home.path("tree/page.bin"), home.path("tree/page once more.bin")).unwrap();
    let tree = home.path("tree");
    if !set(&tree.join("large.bin"), "user.origin", b"telescope 7") {
        println!("skipped: this file system takes no extended attributes");
        return false;
    }
    for n in 0..300 {
        let path = tree.join(format!("many/{}/{n}.dat", n % 7));
        assert!(set(&path, "user.origin", b"telescope 7"));
        if n % 10 == 0 {
            assert!(set(&path, "user.number", n.to_string().as_bytes()));
        }
    }
    for (name, value) in
        [("user.z", &b""[..]), ("user.a", b"\0\xff\n"), ("user.name, \u{e9}", b"x")]
    {
        for path in ["page.bin", "empty", "sparse", "many", "many/3", "nothing in it"] {
            assert!(set(&tree.join(path), name, value), "{path}");
        }
    }
    assert!(set(&tree.join("many/1/1.dat"), "user.long", &[b'v'; 2000]));
    true
}
