//! Files that others on this machine may read or change: secrets, and what says whom to trust.
//!
//! A file in a folder that others cannot pass is not exposed. Many systems give each user a group of his own:
//! the group that this process has counts as its user.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::exit::warn;
use crate::failure::Failure;

/// What others may do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Exposed {
    No,
    ToReaders,
    ToWriters,
}

/// Warns once of a file with a secret that others may read or change.
pub fn warn_of_secret(path: &Path) {
    static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let verb = match exposed(path) {
        Exposed::No => return,
        Exposed::ToReaders => "read",
        Exposed::ToWriters => "change",
    };
    if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned()) {
        let path = path.display();
        warn(&format!("others on this machine may {verb} the token in {path} (chmod 600 {path})"));
    }
}

/// Refuses a file that says whom to trust if others may change it; warns if it has secrets that others may
/// read.
///
/// # Errors
/// [`Failure`] with exit code 6.
pub fn check_tokens(path: &Path) -> Result<(), Failure> {
    if exposed(path) == Exposed::ToWriters {
        return Err(Failure::input(why(path)));
    }
    warn_of_secret(path);
    Ok(())
}

/// Returns why a file is not used, if others may change it.
pub fn refusal(path: &Path) -> Option<String> {
    (exposed(path) == Exposed::ToWriters).then(|| why(path))
}

fn why(path: &Path) -> String {
    let path = path.display();
    format!(
        "others on this machine may change {path}: it is not used (chmod go-w {path}, or give it to its user)"
    )
}

fn exposed(path: &Path) -> Exposed {
    let Ok(path) = path.canonicalize() else { return Exposed::No };
    let Ok(found) = path.metadata() else { return Exposed::No };
    // SAFETY: these have no preconditions and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if !found.is_file() {
        return Exposed::No;
    }
    // Root may use the files of whoever has become root.
    if user != 0 && found.uid() != user && found.uid() != 0 {
        return Exposed::ToWriters;
    }
    let may_pass = |folder: &Path| folder.metadata().is_ok_and(|it| it.mode() & 0o001 != 0);
    let of_others = if path.ancestors().skip(1).all(may_pass) { found.mode() & 0o007 } else { 0 };
    let of_group = if found.gid() == group { 0 } else { found.mode() >> 3 & 0o002 };
    match of_others | of_group {
        mode if mode & 0o002 != 0 => Exposed::ToWriters,
        mode if mode & 0o004 != 0 => Exposed::ToReaders,
        _ => Exposed::No,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_others_may_do_follows_from_modes_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let path = inner.join("file");
        fs::write(&path, "").unwrap();
        let set =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        // The folder of the test is one that all may pass, or not.
        set(folder.path(), 0o755);
        let is_open = folder.path().ancestors().all(|it| it.metadata().unwrap().mode() & 1 != 0);
        for (mode, wanted) in [
            (0o600, Exposed::No),
            (0o640, Exposed::No),
            (0o660, Exposed::No),
            (0o644, Exposed::ToReaders),
            (0o606, Exposed::ToWriters),
            (0o602, Exposed::ToWriters),
        ] {
            set(&path, mode);
            set(&inner, 0o755);
            assert_eq!(exposed(&path), if is_open { wanted } else { Exposed::No }, "{mode:o}");
            set(&inner, 0o700);
            assert_eq!(exposed(&path), Exposed::No, "{mode:o}");
        }
        assert_eq!(exposed(&inner), Exposed::No);
        assert_eq!(exposed(&inner.join("none")), Exposed::No);
    }
}
