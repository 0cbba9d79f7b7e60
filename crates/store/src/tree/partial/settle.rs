//! Gives final names: moves everything to its place, and sets the attributes of folders.

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
use crate::tree::folder_cursor::{Enter, FolderCursor, split};
use crate::tree::rights;
use crate::tree::root::{self, Root};

/// What becomes of what is at the destination and of another kind than what gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InTheWay {
    /// Nobody has said that it may go.
    IsAnError,
    /// It goes.
    Goes,
    /// An earlier run's names are being given: it stays, and so does what is not in the partial folder any
    /// more, because that run has moved it. Whoever goes on compares all of it anew.
    Stays,
}

impl PartialTree {
    /// Moves everything to its destination, and gives folders their attributes. Answers, too, whether
    /// there is nothing new right below the destination.
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

    /// Gives the folders of a partial folder that becomes the destination as it is their attributes:
    /// large trees by a few threads.
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
        // Folders that reach into several parts: what lies in others comes before them.
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

/// Entries on their way to their final names, in the order of the index.
struct Settling<'a> {
    tree: &'a PartialTree,
    index: &'a Index,
    /// Another place than the partial folder.
    destination: Option<&'a Root>,
    without: &'a [u64],
    rule: InTheWay,
    from: FolderCursor,
    /// Where things are in the end.
    to: FolderCursor,
    open: Opened,
    finished: Finished,
    is_same_top: bool,
}

/// The folders that are open, innermost last, and the path of that one.
#[derive(Default)]
struct Opened {
    path: Vec<u8>,
    folders: Vec<Open>,
}

/// A folder whose attributes are set when all that lies in it is there.
struct Open {
    number: u64,
    path_bytes: usize,
    /// Something else may be in its place.
    is_there: bool,
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

    /// The entries of these numbers. Folders in which more may lie stay open.
    fn entries(&mut self, numbers: Range<u64>) -> Result<(), PartialError> {
        let mut cursor = self.index.cursor_from(numbers.start);
        while let Some(item) = cursor.next().filter(|item| item.number < numbers.end) {
            self.tree.go_on()?;
            // Those that were open before the first number are somebody else's.
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
        if let Err(error) = self.to.folder(item.path) {
            match self.rule {
                InTheWay::Goes if is_no_folder(&error) => {
                    self.put_away(above, name, item.number)?;
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
        self.open.folders.push(Open { number, path_bytes, is_there, mode, mtime, xattrs });
        Ok(())
    }

    /// Moves it there; `false` if there is nothing that could have its name.
    fn give_name(&mut self, item: &Item<'_>) -> io::Result<bool> {
        let (above, name) = split(item.path);
        let to = self.to.folder(above)?;
        let from = self.from.to(above)?;
        match (rename(from, to, name), self.rule) {
            (Err(error), InTheWay::Goes) if is_folder(&error) => {
                self.put_away(above, name, item.number)?;
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

    /// What stays where it was has its bytes, and gets the rest; `false` if it is not there any more.
    fn keep(&mut self, item: &Item<'_>) -> io::Result<bool> {
        let (above, name) = split(item.path);
        let at = self.to.folder(above)?;
        match keep_at(self.tree, self.index, at, name, item) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            unchanged => unchanged.map(|()| true),
        }
    }

    /// What is of another kind than the entry of this number goes into the partial folder, with all that lies
    /// in it, and from there with what else is left in it: until the name is free nothing is lost.
    fn put_away(&mut self, above: &[u8], name: &[u8], number: u64) -> io::Result<()> {
        let folder = self.to.folder(above)?;
        let away = [OWN_NAME, format!(".away-{number}").as_bytes()].concat();
        let put = || renameat(folder, name, self.tree.root.fd(), away.as_slice());
        match put() {
            // A folder into which its owner may not write does not go into another one.
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

    /// All that lies in the innermost folder is there.
    fn close(&mut self) -> Result<(), PartialError> {
        let (tree, path) = (self.tree, &mut self.open.path);
        let Some(of) = self.open.folders.pop() else { return Ok(()) };
        path.truncate(of.path_bytes);
        if !of.is_there {
            return Ok(());
        }
        // Once it has its mode nothing may lead through it any more.
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
        // What the file has.
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

/// What was there and is somebody else's keeps the attributes that only they may set.
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

/// Whether we may not give a name in that folder. Into the destination itself this user may write, or
/// else had better keep what has come.
fn is_closed(error: &io::Error, above: &[u8]) -> bool {
    let refused = [Errno::ACCESS, Errno::PERM, Errno::ROFS].map(|it| Some(it.raw_os_error()));
    !above.is_empty() && refused.contains(&error.raw_os_error())
}

/// Whether a folder is there that should be none.
fn is_folder(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::IsADirectory
}

/// Whether something is there that should be a folder: a file, or a link.
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

/// A thread of its own is worth it for so many entries.
const ENTRIES_MIN: u64 = 4096;
/// Two were measured; what they do is short, and nothing is known of more.
const THREADS_MAX: u64 = 4;
