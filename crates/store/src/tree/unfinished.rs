//! Tells the files of unfinished copies from the user's own.
//!
//! Within its destination, a copy uses reserved names. Beside a destination that does not exist
//! yet, it uses names that a user's files may have too (`X.swath.part`, its journal `X.swath`, …).
//! Such a file belongs to a copy if there is a mark beside it.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::FileType;

use super::names::Names;
use super::partial::is_mark;
use super::root::{Root, file_in, kind_of};

/// Returns whether a name is reserved for an unfinished copy within its destination.
pub(super) fn is_own_name(name: &[u8]) -> bool {
    let begins = name.get(..OWN_NAME.len()).is_some_and(|it| it.eq_ignore_ascii_case(OWN_NAME));
    begins && matches!(name.get(OWN_NAME.len()), None | Some(b'.'))
}

/// Returns whether a name may belong to an unfinished copy.
pub(super) fn may_be_unfinished(name: &[u8]) -> bool {
    is_own_name(name) || mark_beside(name).is_some()
}

/// Returns whether an entry of a folder belongs to an unfinished copy. Looks into the folder only
/// if the names leave it open.
pub(super) fn is_unfinished(folder: BorrowedFd<'_>, names: &Names, name: &[u8]) -> bool {
    let is_marked = |mark: Vec<u8>| {
        names.has(&mark)
            && matches!(kind_of(folder, &mark), Ok(Some(FileType::RegularFile)))
            && file_in(folder, &mark).is_ok_and(|file| is_mark(&file))
    };
    is_own_name(name) || mark_beside(name).is_some_and(is_marked)
}

/// Returns the names in a folder, without files of unfinished copies.
pub(super) fn names_of_others(folder: BorrowedFd<'_>) -> rustix::io::Result<Names> {
    let mut names = Names::read(folder)?;
    let unfinished: Vec<bool> =
        (0..names.len()).map(|at| is_unfinished(folder, &names, names.name(at))).collect();
    names.retain(|at| !unfinished[at]);
    Ok(names)
}

impl Root {
    /// Returns whether a path below it is, or leads into, a file or folder of an unfinished copy.
    /// Blocks.
    pub fn leads_into_unfinished(&self, path: &[u8], follow_links: bool) -> bool {
        let open = |path: &[u8]| -> io::Result<File> {
            if follow_links { self.file_through_links(path) } else { self.file(path) }
        };
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let mut start = 0;
        path.split(|&byte| byte == b'/').any(|name| {
            let above = &path[..start];
            start += name.len() + 1;
            let is_marked = |mark: Vec<u8>| {
                let mark = open(&[above, &mark].concat());
                mark.is_ok_and(|mark| {
                    mark.metadata().is_ok_and(|it| it.is_file()) && is_mark(&mark)
                })
            };
            is_own_name(name) || mark_beside(name).is_some_and(is_marked)
        })
    }
}

/// Returns the name of the mark beside this name, if a copy may use the name.
fn mark_beside(name: &[u8]) -> Option<Vec<u8>> {
    ENDS.iter().find_map(|end| {
        let at = name.len().checked_sub(end.len()).filter(|&at| at > 0)?;
        let is_end = name[at..].eq_ignore_ascii_case(end.as_bytes());
        is_end.then(|| [&name[..at + JOURNAL_END.len()], b".mark"].concat())
    })
}

/// How the names of a copy's files within its destination begin.
pub(super) const OWN_NAME: &[u8] = b".swath-stage.swath";
/// How the name of a journal ends.
const JOURNAL_END: &str = ".swath";
/// How the names of a copy's files beside its destination end.
const ENDS: [&str; 8] = [
    JOURNAL_END,
    ".swath.part",
    ".swath.index",
    ".swath.mark",
    ".swath.moving",
    ".swath.new",
    ".swath.index.new",
    ".swath.moving.new",
];
