//! Extended attributes of files in tests.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

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
