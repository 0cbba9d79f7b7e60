//! The names of the files beside the target: data, journal, and the journal's replacement.
//!
//! `NAME.swath.part`, `NAME.swath` and `NAME.swath.new`. Where the longest of them would exceed
//! what the file system allows, NAME is cut and a hash of the whole name added, so that the same
//! target leads to the same side files in every run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The paths of a target's side files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// The final name, for system calls.
    pub(crate) target: PathBuf,
    /// The final name as the user knows it.
    pub(crate) shown: PathBuf,
    /// The folder that contains them.
    pub(crate) folder: PathBuf,
    /// The data until it is finished.
    pub(crate) part: PathBuf,
    /// The journal.
    pub(crate) journal: PathBuf,
    /// A rewritten journal before it takes the journal's name.
    pub(crate) journal_new: PathBuf,
}

impl Names {
    /// Returns the names for `target`; `None` if the path names no file.
    pub(crate) fn of(target: &Path, name_bytes_max: usize) -> Option<Names> {
        let name = target.file_name()?;
        // `a/b/..` has no file name; `a/b/.` and `a/b/` have one, `b`, but mean a folder.
        let last = target.as_os_str().as_bytes();
        if last.ends_with(b"/") || last.ends_with(b"/.") {
            return None;
        }
        let folder = folder_of(target);
        let stem = shortened(name, name_bytes_max.saturating_sub(SUFFIX_BYTES_MAX));
        let beside = |suffix: &str| {
            let mut name = stem.clone();
            name.push(suffix);
            folder.join(name)
        };
        Some(Names {
            target: target.to_owned(),
            shown: target.to_owned(),
            part: beside(".swath.part"),
            journal: beside(".swath"),
            journal_new: beside(".swath.new"),
            folder,
        })
    }
}

/// Returns whether a name ends like that of a side file. Such a file could be mistaken for another
/// target's side file, by swath and by people, also on file systems that ignore case.
pub fn is_reserved(target: &Path) -> bool {
    let Some(name) = target.file_name().map(OsStr::as_bytes) else { return false };
    SUFFIXES.iter().any(|suffix| {
        let from = name.len().saturating_sub(suffix.len());
        name[from..].eq_ignore_ascii_case(suffix.as_bytes())
    })
}

/// Returns the folder that contains `target`, never empty.
pub(crate) fn folder_of(target: &Path) -> PathBuf {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Returns `name` if it is short enough, otherwise its beginning, `~` and a hash of it.
fn shortened(name: &OsStr, bytes_max: usize) -> OsString {
    let bytes = name.as_bytes();
    if bytes.len() <= bytes_max {
        return name.to_owned();
    }
    let hash = blake3::hash(bytes).to_hex();
    let mut cut = bytes_max.saturating_sub(1 + HASH_DIGITS).min(bytes.len());
    // Do not cut within a character, if the name is text.
    while cut > 0 && bytes[cut] & 0xC0 == 0x80 {
        cut -= 1;
    }
    let mut short = bytes[..cut].to_vec();
    short.push(b'~');
    short.extend_from_slice(&hash.as_bytes()[..HASH_DIGITS]);
    OsString::from_vec(short)
}

/// Endings of the names of side files.
const SUFFIXES: [&str; 3] = [".swath", ".swath.part", ".swath.new"];
/// Length of `.swath.part`, the longest suffix.
const SUFFIX_BYTES_MAX: usize = 11;
const HASH_DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_files_lie_beside_the_target() {
        let names = Names::of(Path::new("d/a.bin"), 255).unwrap();
        assert_eq!(names.part, Path::new("d/a.bin.swath.part"));
        assert_eq!(names.journal, Path::new("d/a.bin.swath"));
        assert_eq!(Names::of(Path::new("a"), 255).unwrap().part, Path::new("./a.swath.part"));
        for no_file in ["", "/", "..", "a/..", "a/", "a/."] {
            assert_eq!(Names::of(Path::new(no_file), 255), None, "{no_file}");
        }
    }

    #[test]
    fn names_of_side_files_are_told() {
        for (name, reserved) in [
            ("d/a.swath", true),
            ("a.swath.part", true),
            ("a.SWATH.New", true),
            (".swath", true),
            ("a.swath.gz", false),
            ("swath", false),
            ("a.part", false),
            ("d.swath/a", false),
        ] {
            assert_eq!(is_reserved(Path::new(name)), reserved, "{name}");
        }
    }

    #[test]
    fn long_names_are_shortened_the_same_way_every_time_and_stay_apart() {
        let long = |last: char| format!("{}{last}", "ü".repeat(126));
        let names = |name: &str| Names::of(Path::new(name), 255).unwrap();
        let a = names(&long('a'));
        assert_eq!(a, names(&long('a')));
        assert_ne!(a.part, names(&long('b')).part);
        assert!(a.part.file_name().unwrap().len() <= 255);
        assert!(a.part.file_name().unwrap().to_str().is_some(), "cut between characters");
        assert_eq!(a.target, Path::new(&long('a')));
    }
}
