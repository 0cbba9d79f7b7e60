//! Gives final names: moves everything to its place and sets the attributes of folders.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use rustix::fs::{AtFlags, FileType, StatxFlags, renameat, statx};
use rustix::io::Errno;
use swath_model::index::{Index, Item, Kind, Mtime, Xattrs};

use super::building::{set_mode, set_times};
use super::finish::Finished;
use super::{OWN_NAME, PartialError, PartialTree};
use crate::tree::changes::rename_new;
use crate::tree::folder_cursor::{Enter, FolderCursor, split};
use crate::tree::grant::{Deed, Grant, NotPermitted};
use crate::tree::rights;
use crate::tree::root::{self, Root};

/// What to do with entries at the destination that have another kind than the new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InTheWay {
    /// Fail: nobody allowed removing them.
    IsAnError,
    /// Remove them.
    Goes,
    /// Keep them: the moves of an earlier run are being completed. Entries missing in the partial
    /// folder stay too, because that run has moved them. The next copy compares everything anew.
    Stays,
}

impl PartialTree {
    /// Moves everything to its destination and sets the attributes of folders. Also returns whether
    /// nothing is new directly below the destination.
    pub(super) fn settle_at(
        &self,
        destination: &Root,
        without: &[u64],
        rule: InTheWay,
    ) -> Result<(Finished, bool), PartialError> {
        let index: &Index = &self.index();
        let mut settling = Settling::new(self, index, Some(destination), without, rule);
        settling.entries(0..index.entries())?;
        settling.close_all()?;
        let is_same_top = settling.is_same_top;
        Ok((self.settled(settling.finished, without), is_same_top))
    }

    /// Sets the attributes of the folders of a partial folder that becomes the destination as a
    /// whole; uses a few threads for large trees.
    pub(super) fn settle_here(&self, without: &[u64]) -> Result<Finished, PartialError> {
        let index: &Index = &self.index();
        let entries = index.entries();
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let parts = (entries / ENTRIES_MIN).clamp(1, cores.min(THREADS_MAX));
        let settle = |part: u64| -> Result<Settling<'_>, PartialError> {
            let mut part_of = Settling::new(self, index, None, without, InTheWay::IsAnError);
            part_of.entries(entries * part / parts..entries * (part + 1) / parts)?;
            Ok(part_of)
        };
        let done: Vec<Result<Settling<'_>, PartialError>> = thread::scope(|scope| {
            let begin = |part| {
                let thread = thread::Builder::new().name("swath-settle".to_owned());
                (part, thread.spawn_scoped(scope, move || settle(part)))
            };
            let others: Vec<_> = (1..parts).map(begin).collect();
            let first = settle(0);
            let join = |(part, other): (u64, io::Result<ScopedJoinHandle<'_, _>>)| match other {
                Ok(other) => other.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => settle(part),
            };
            std::iter::once(first).chain(others.into_iter().map(join)).collect()
        });
        let mut all = Finished::default();
        let done: Vec<Settling<'_>> = done.into_iter().collect::<Result<_, _>>()?;
        // Folders that span several parts: the content in later parts comes first.
        for mut part in done.into_iter().rev() {
            part.close_all()?;
            all.files += part.finished.files;
        }
        Ok(self.settled(all, without))
    }

    fn settled(&self, mut finished: Finished, without: &[u64]) -> Finished {
        finished.lacking.extend_from_slice(without);
        finished.lacking.sort_unstable();
        finished.lacking.dedup();
        finished.xattr_losses = self.xattr_losses();
        finished
    }
}

/// Entries moving to their final names, in the order of the index.
struct Settling<'a> {
    tree: &'a PartialTree,
    index: &'a Index,
    /// The destination, unless the partial folder becomes it.
    destination: Option<&'a Root>,
    without: &'a [u64],
    rule: InTheWay,
    from: FolderCursor,
    /// The folders where entries end up.
    to: FolderCursor,
    open: Opened,
    finished: Finished,
    is_same_top: bool,
}

/// The open folders, innermost last, and the path of the innermost.
#[derive(Default)]
struct Opened {
    path: Vec<u8>,
    folders: Vec<Open>,
}

/// A folder whose attributes are set when its content is complete.
struct Open {
    number: u64,
    path_bytes: usize,
    /// Whether the folder exists; something else may be in its place.
    is_there: bool,
    /// Whether its attributes may be set.
    is_ours: bool,
    mode: u32,
    mtime: Mtime,
    xattrs: Xattrs<'static>,
}

impl<'a> Settling<'a> {
    fn new(
        tree: &'a PartialTree,
        index: &'a Index,
        destination: Option<&'a Root>,
        without: &'a [u64],
        rule: InTheWay,
    ) -> Settling<'a> {
        Settling {
            tree,
            index,
            destination,
            without,
            rule,
            from: FolderCursor::new(&tree.root, Enter::Open),
            to: FolderCursor::new(destination.unwrap_or(&tree.root), Enter::Make),
            open: Opened::default(),
            finished: Finished::default(),
            is_same_top: true,
        }
    }

    /// Handles the entries of these numbers. Folders that may get more content stay open.
    fn entries(&mut self, numbers: Range<u64>) -> Result<(), PartialError> {
        let mut cursor = self.index.cursor_from(numbers.start);
        while let Some(item) = cursor.next().filter(|item| item.number < numbers.end) {
            self.tree.go_on()?;
            // Folders opened before the first number belong to another part.
            for _ in 0..item.entry.leaves.min(self.open.folders.len()) {
                self.close()?;
            }
            let failed = |source| self.tree.failed("give its name to", item.path, source);
            self.entry(&item).map_err(failed)?;
        }
        Ok(())
    }

    fn entry(&mut self, item: &Item<'_>) -> io::Result<()> {
        let is_file = matches!(item.entry.kind, Kind::File { .. });
        let is_lost = self.open.folders.last().is_some_and(|folder| !folder.is_there);
        match item.entry.kind {
            Kind::Folder => self.open(item)?,
            Kind::Absent(_) => {}
            _ if is_lost => self.finished.lacking.push(item.number),
            _ if self.without.binary_search(&item.number).is_ok() => {}
            _ => {
                let is_kept = self.tree.unchanged.has(item.number);
                let is_there = match self.destination {
                    None => true,
                    Some(_) if is_kept => self.keep(item)?,
                    Some(_) => self.give_name(item)?,
                };
                self.is_same_top &= is_kept || item.path.contains(&b'/');
                match is_there {
                    true => self.finished.files += u64::from(is_file),
                    false => self.finished.lacking.push(item.number),
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, item: &Item<'_>) -> io::Result<()> {
        let (above, name) = split(item.path);
        if above.is_empty() && self.is_same_top {
            let found = root::kind_of(self.to.folder(b"")?, name)?;
            self.is_same_top = found == Some(FileType::Directory);
        }
        let mut is_there = true;
        let is_ours = self.grant().permits(Deed::Modify, item.path) || {
            let found = self.to.folder(above).and_then(|at| root::kind_of(at, name));
            found.is_ok_and(|found| found.is_none())
        };
        if let Err(error) = self.to.folder(item.path) {
            match self.rule {
                InTheWay::Goes if is_no_folder(&error) => {
                    self.put_away(item)?;
                    self.to.folder(item.path)?;
                }
                InTheWay::Stays if is_no_folder(&error) => is_there = false,
                InTheWay::Stays if is_closed(&error, above) => {
                    self.finished.closed += 1;
                    is_there = false;
                }
                _ => return Err(error),
            }
        }
        self.open.path.clear();
        self.open.path.extend_from_slice(item.path);
        let (number, path_bytes) = (item.number, item.path.len());
        let (mode, mtime) = (item.entry.mode, item.entry.mtime);
        let xattrs = item.entry.xattrs.clone().into_owned();
        self.open.folders.push(Open { number, path_bytes, is_there, is_ours, mode, mtime, xattrs });
        Ok(())
    }

    /// Moves an entry to its final name; returns false if there is nothing to move.
    fn give_name(&mut self, item: &Item<'_>) -> io::Result<bool> {
        let (above, name) = split(item.path);
        let grant = self.grant();
        let to = self.to.folder(above)?;
        let from = self.from.to(above)?;
        let may_replace =
            grant.check(Deed::Create, item.path).map(|()| grant.permits(Deed::Modify, item.path));
        let renamed = may_replace.and_then(|may_replace| match may_replace {
            true => rename(from, to, name),
            false => rename_if_free(from, to, name),
        });
        match (renamed, self.rule) {
            (Err(error), InTheWay::Goes) if is_folder(&error) => {
                self.put_away(item)?;
                rename(self.from.to(above)?, self.to.folder(above)?, name)?;
                Ok(true)
            }
            (Err(error), InTheWay::Stays) if is_folder(&error) => Ok(false),
            (Err(error), InTheWay::Stays) if is_closed(&error, above) => {
                self.finished.closed += 1;
                Ok(false)
            }
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {
                Ok(self.rule == InTheWay::Stays && root::kind_of(to, name)?.is_some())
            }
            (renamed, _) => renamed.map(|()| true),
        }
    }

    /// Returns what may be done where entries end up.
    fn grant(&self) -> &'a Grant {
        const OWN: &Grant = &Grant::everything();
        self.destination.map_or(OWN, Root::grant)
    }

    /// Sets the attributes of an entry that stays; returns false if it is gone.
    fn keep(&mut self, item: &Item<'_>) -> io::Result<bool> {
        let (above, name) = split(item.path);
        let may_modify = self.grant().permits(Deed::Modify, item.path);
        let at = self.to.folder(above)?;
        if !may_modify {
            return Ok(root::kind_of(at, name)?.is_some());
        }
        match keep_at(self.tree, self.index, at, name, item) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            unchanged => unchanged.map(|()| true),
        }
    }

    /// Moves an entry of another kind, with its content, into the partial folder, where it is
    /// removed with other leftovers. So nothing is lost until the name is free.
    fn put_away(&mut self, item: &Item<'_>) -> io::Result<()> {
        self.grant().check(Deed::Modify, item.path)?;
        let (above, name) = split(item.path);
        let folder = self.to.folder(above)?;
        let away = [OWN_NAME, format!(".away-{}", item.number).as_bytes()].concat();
        let put = || renameat(folder, name, self.tree.root.fd(), away.as_slice());
        match put() {
            // A folder that its owner may not write into cannot be moved.
            Err(Errno::ACCESS) => {
                let found = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MODE)?;
                root::set_mode(folder, name, u32::from(found.stx_mode) & 0o777 | 0o700)?;
                put()?;
            }
            other => other?,
        }
        self.finished.replaced += 1;
        Ok(())
    }

    fn close_all(&mut self) -> Result<(), PartialError> {
        while !self.open.folders.is_empty() {
            self.close()?;
        }
        Ok(())
    }

    /// Closes the innermost folder, whose content is complete.
    fn close(&mut self) -> Result<(), PartialError> {
        let (tree, path) = (self.tree, &mut self.open.path);
        let Some(of) = self.open.folders.pop() else { return Ok(()) };
        path.truncate(of.path_bytes);
        if !of.is_there || !of.is_ours {
            return Ok(());
        }
        // Once its mode is set, no access may lead through it any more.
        let settled = self.to.leave(path).and_then(|folder| {
            tree.put_xattrs(of.number, &folder, &of.xattrs);
            let set = set_mode(&folder, of.mode, tree.preserve, FileType::Directory)
                .and_then(|()| set_times(&folder, of.mtime, tree.preserve));
            but_for_others(set, folder.as_fd(), b".")
        });
        settled.map_err(|source| tree.failed("set the attributes of", path, source))
    }
}

fn keep_at(
    tree: &PartialTree,
    index: &Index,
    at: BorrowedFd<'_>,
    name: &[u8],
    item: &Item<'_>,
) -> io::Result<()> {
    let mut first_cursor;
    let first;
    let entry = match item.entry.kind {
        // It shares the file's attributes.
        Kind::HardLink(_) if tree.preserve.links => return Ok(()),
        Kind::HardLink(of) => {
            first_cursor = index.cursor_from(of);
            first = first_cursor.next();
            let Some(first) = &first else { return Ok(()) };
            &first.entry
        }
        _ => &item.entry,
    };
    let (mode, mtime) = (entry.mode, entry.mtime);
    let is_link = matches!(entry.kind, Kind::Symlink(_));
    if !is_link {
        tree.put_xattrs_at(item.number, at, name, &entry.xattrs);
    }
    if tree.preserve.mode && !is_link {
        but_for_others(root::set_mode(at, name, mode & 0o777), at, name)?;
    }
    if tree.preserve.times && (tree.unchanged.by_content || is_link) {
        but_for_others(root::set_mtime(at, name, mtime), at, name)?;
    }
    Ok(())
}

/// Ignores the error if an existing entry belongs to another user, who alone may change it.
fn but_for_others(set: io::Result<()>, folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let is_others = || {
        let found = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::UID);
        found.is_ok_and(|found| !rights::is_own(found.stx_uid))
    };
    match set {
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) && is_others() => {
            Ok(())
        }
        other => other,
    }
}

/// Returns whether we may not create names in that folder, or not this one. The destination itself is
/// an error: if this user may not write there, it is better to keep the received files.
fn is_closed(error: &io::Error, above: &[u8]) -> bool {
    if NotPermitted::of(error).is_some() {
        return true;
    }
    let refused = [Errno::ACCESS, Errno::PERM, Errno::ROFS].map(|it| Some(it.raw_os_error()));
    !above.is_empty() && refused.contains(&error.raw_os_error())
}

/// Returns whether a folder exists where none should be.
fn is_folder(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::IsADirectory
}

/// Returns whether a file or a link exists where a folder should be.
fn is_no_folder(error: &io::Error) -> bool {
    let refused = [Errno::NOTDIR, Errno::LOOP].map(|errno| Some(errno.raw_os_error()));
    refused.contains(&error.raw_os_error())
}

fn rename(from: Option<BorrowedFd<'_>>, to: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let renamed = match from {
        Some(from) => renameat(from, name, to, name),
        None => Err(Errno::NOENT),
    };
    Ok(renamed?)
}

/// Gives a name that nothing has.
fn rename_if_free(from: Option<BorrowedFd<'_>>, to: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let renamed = match from {
        Some(from) => rename_new((from, name), (to, name)),
        None => Err(Errno::NOENT),
    };
    match renamed {
        Err(Errno::EXIST) => Err(NotPermitted(Deed::Modify).into()),
        renamed => Ok(renamed?),
    }
}

/// Entries that make a thread of its own worth it.
const ENTRIES_MIN: u64 = 4096;
/// Two threads were measured; their work is short, and more are untested.
const THREADS_MAX: u64 = 4;
