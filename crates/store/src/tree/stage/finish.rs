//! The end: what is left to make, attributes of folders, final names.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, StatxFlags, renameat, renameat_with, statx, unlinkat};
use rustix::io::Errno;
use swath_model::index::{Index, Item, Kind, Mtime, Top, Xattrs};

use super::building::{mode_here, set_mode, set_times, split, usual_mode};
use super::{OWN_NAME, Stage, StageError, refuse_own_names};
use crate::names::folder_of;
use crate::tree::root::{self, Root};
use crate::tree::trail::{Enter, Trail};
use crate::tree::xattrs::XattrLoss;

/// What became of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Files that have their final names now.
    pub files: u64,
    /// How much of another kind had to go for that.
    pub replaced: u64,
    /// Numbers of the entries that have none, ascending: files that are not right, and further names
    /// of theirs.
    pub lacking: Vec<u64>,
    /// Numbers of the entries whose extended attributes are not as they should be, ascending, if these
    /// were wanted.
    pub xattr_losses: Vec<(u64, XattrLoss)>,
}

/// What becomes of what is at the destination and of another kind than what gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InTheWay {
    /// Nobody has said that it may go.
    IsAnError,
    /// It goes.
    Goes,
    /// An earlier run's names are being given: it stays, and so does what is not in the stage any
    /// more, because that run has moved it. Whoever goes on compares all of it anew.
    Stays,
}

impl Finished {
    /// This one has not got its name: nothing was there to have it.
    fn lack(&mut self, item: &Item<'_>) {
        self.files -= u64::from(matches!(item.entry.kind, Kind::File { .. }));
        self.lacking.push(item.number);
    }
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

/// The folders that are open, innermost last, and the path of that one.
#[derive(Default)]
struct Opened {
    path: Vec<u8>,
    folders: Vec<Open>,
}

impl Stage {
    /// Make what has no bytes, and give everything its final name, but for the files with these
    /// numbers (ascending), which are not right and go. The index must be complete.
    ///
    /// # Errors
    /// [`StageError`]; what has its name by then keeps it, and the next run goes on.
    pub fn finish(&self, without: &[u64]) -> Result<Finished, StageError> {
        refuse_own_names(&self.index(), &self.place)?;
        self.make_skeleton()?;
        let without = self.with_further_names(without);
        self.remove_files(&without)?;
        self.set_xattrs(&without)?;
        self.link(&without)?;
        // Names must not be there before their bytes are.
        self.sync()?;
        if self.place.is_new && !self.place.is_taken()? {
            let (finished, _) = self.settle(None, &without, InTheWay::IsAnError)?;
            if self.become_destination()? {
                self.place.forget();
                return Ok(finished);
            }
        }
        if self.place.is_new {
            // Somebody has made the destination meanwhile.
            let root = Root::open(&self.place.destination);
            self.check_way_in(&root.map_err(|source| self.failed("open", b"", source))?)?;
        }
        let mut journal = super::lock(&self.journal);
        if journal.is_none() {
            self.begin_journal(&mut journal)?;
        }
        drop(journal);
        let begun = self.place.begin_moving(&self.index(), &without);
        begun.map_err(|source| self.failed("write the journal of", b"", source))?;
        let rule = if self.replaces.is_some() { InTheWay::Goes } else { InTheWay::IsAnError };
        self.finish_moving(&without, rule)
    }

    /// Everything that is still in the stage gets its final name.
    pub(super) fn finish_moving(
        &self,
        without: &[u64],
        rule: InTheWay,
    ) -> Result<Finished, StageError> {
        let failed = |doing, source| self.failed(doing, b"", source);
        let destination = Root::open(&self.place.destination);
        let destination = destination.map_err(|source| failed("open", source))?;
        let (finished, is_same_top) = self.settle(Some(&destination), without, rule)?;
        self.place.forget_journal();
        self.root.empty(&|| false).map_err(|source| failed("empty the stage of", source))?;
        self.place.give_back(&self.root);
        if let Some(mtime) = self.top_mtime.filter(|_| is_same_top) {
            // Nothing but the stage came there and went.
            let here = destination.fd().as_fd();
            root::set_mtime(here, b".", mtime)
                .map_err(|source| failed("set the time of", source))?;
        }
        Ok(finished)
    }

    /// With the further names of these files: they cannot be made either.
    fn with_further_names(&self, without: &[u64]) -> Vec<u64> {
        let mut all = without.to_vec();
        let index = self.index();
        if !all.is_empty() && index.counts().hard_links > 0 {
            let mut cursor = index.cursor();
            while let Some(item) = cursor.next() {
                if let Kind::HardLink(of) = item.entry.kind
                    && without.binary_search(&of).is_ok()
                {
                    all.push(item.number);
                }
            }
            all.sort_unstable();
        }
        all
    }

    /// One rename gives all their names; `false` if somebody has made the destination meanwhile.
    fn become_destination(&self) -> Result<bool, StageError> {
        let (from, to) = (&self.place.names.part, &self.place.destination);
        // Nobody else was to look into it before.
        let set_mode = |mode| {
            rustix::fs::fchmod(self.root.fd(), rustix::fs::Mode::from_raw_mode(mode))
                .map_err(|error| self.failed("set the mode of", b"", error.into()))
        };
        let mode = match self.top {
            Some(top) => mode_here(top.mode, self.preserve, FileType::Directory) | OWNERS,
            None => usual_mode(FileType::Directory),
        };
        set_mode(mode)?;
        // It is no entry, and what a source tells beside its index is no reason to fail.
        let set_times = |top: Top| set_times(self.root.fd(), top.mtime, self.preserve);
        if let Some(Err(error)) = self.top.map(set_times) {
            tracing::debug!(%error, "the folder itself cannot have its time");
        }
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let renamed = match renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags) {
            Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(from, to),
            other => other.map_err(io::Error::from),
        };
        match renamed {
            Err(error) if self.place.is_taken()? => {
                tracing::debug!(%error, "the destination is there now");
                set_mode(0o700)?;
                return Ok(false);
            }
            other => other.map_err(|source| self.failed("give its name to", b"", source))?,
        }
        let folder = Root::open(&folder_of(to));
        folder
            .and_then(|folder| Ok(rustix::fs::fsync(folder.fd())?))
            .map_err(|source| self.failed("sync the folder of", b"", source))?;
        Ok(true)
    }

    /// Files that are not what the index promised.
    fn remove_files(&self, without: &[u64]) -> Result<(), StageError> {
        let mut trail = Trail::new(&self.root, Enter::Open);
        let index = self.index();
        for &number in without {
            if let Some(item) = index.cursor_from(number).next() {
                self.remove(item.path, &mut trail)?;
            }
        }
        Ok(())
    }

    /// Remove what is at `path` in the stage: a file, a link or an empty folder, if it is there.
    pub(super) fn remove(&self, path: &[u8], trail: &mut Trail) -> Result<(), StageError> {
        let (folder, name) = split(path);
        let mut remove = || -> io::Result<()> {
            let folder = match trail.to(folder) {
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
                other => other?,
            };
            let Some(folder) = folder else { return Ok(()) };
            match unlinkat(folder, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => match unlinkat(folder, name, AtFlags::REMOVEDIR) {
                    // Something that belongs there is in it.
                    Err(Errno::NOTEMPTY) => Ok(()),
                    other => Ok(other?),
                },
                Err(Errno::NOENT) => Ok(()),
                other => Ok(other?),
            }
        };
        remove().map_err(|source| self.failed("remove", path, source))
    }

    /// Move everything to its destination, if that is another one, and give folders their
    /// attributes once all in them is there. Answers, too, whether there is nothing new right below
    /// the destination.
    fn settle(
        &self,
        destination: Option<&Root>,
        without: &[u64],
        rule: InTheWay,
    ) -> Result<(Finished, bool), StageError> {
        let mut is_same_top = true;
        let mut finished = Finished { lacking: without.to_vec(), ..Finished::default() };
        let mut from = Trail::new(&self.root, Enter::Open);
        // Where things are in the end.
        let mut to = Trail::new(destination.unwrap_or(&self.root), Enter::Make);
        let mut open = Opened::default();
        let index: &Index = &self.index();
        let mut cursor = index.cursor();
        while let Some(item) = cursor.next() {
            self.go_on()?;
            for _ in 0..item.entry.leaves {
                self.settle_folder(&mut open, &mut to)?;
            }
            let failed = |source| self.failed("give its name to", item.path, source);
            let (above, name) = split(item.path);
            match item.entry.kind {
                Kind::Folder => {
                    if above.is_empty() && is_same_top {
                        let top = to.folder(b"").map_err(failed)?;
                        let found = root::kind_of(top, name).map_err(failed)?;
                        is_same_top = found == Some(FileType::Directory);
                    }
                    let mut is_there = true;
                    if let Err(error) = to.folder(item.path) {
                        match rule {
                            InTheWay::Goes if is_no_folder(&error) => {
                                let place = to.folder(above).map_err(failed)?;
                                self.put_away(place, name, item.number).map_err(failed)?;
                                finished.replaced += 1;
                                to.folder(item.path).map_err(failed)?;
                            }
                            InTheWay::Stays if is_no_folder(&error) => is_there = false,
                            _ => return Err(failed(error)),
                        }
                    }
                    open.path.truncate(above.len());
                    open.path.extend_from_slice(&item.path[above.len()..]);
                    let (number, path_bytes) = (item.number, item.path.len());
                    let (mode, mtime) = (item.entry.mode, item.entry.mtime);
                    let xattrs = item.entry.xattrs.into_owned();
                    open.folders.push(Open { number, path_bytes, is_there, mode, mtime, xattrs });
                }
                Kind::Absent(_) => {}
                _ if open.folders.last().is_some_and(|folder| !folder.is_there) => {
                    finished.lacking.push(item.number);
                }
                _ if without.binary_search(&item.number).is_ok() => {}
                _ if self.kept.has(item.number) => {
                    finished.files += u64::from(matches!(item.entry.kind, Kind::File { .. }));
                    if destination.is_some() {
                        let folder = to.folder(above).map_err(failed)?;
                        match self.settle_kept(index, folder, name, &item) {
                            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                                finished.lack(&item);
                            }
                            settled => settled.map_err(failed)?,
                        }
                    }
                }
                _ => {
                    finished.files += u64::from(matches!(item.entry.kind, Kind::File { .. }));
                    is_same_top &= !above.is_empty();
                    if destination.is_some() {
                        let to = to.folder(above).map_err(failed)?;
                        let from = from.to(above).map_err(failed)?;
                        match (rename(from, to, name), rule) {
                            (Err(error), InTheWay::Goes) if is_folder(&error) => {
                                self.put_away(to, name, item.number).map_err(failed)?;
                                finished.replaced += 1;
                                rename(from, to, name).map_err(failed)?;
                            }
                            (Err(error), InTheWay::Stays) if is_folder(&error) => {
                                finished.lack(&item);
                            }
                            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {
                                let is_moved = rule == InTheWay::Stays
                                    && root::kind_of(to, name).map_err(failed)?.is_some();
                                if !is_moved {
                                    finished.lack(&item);
                                }
                            }
                            (renamed, _) => renamed.map_err(failed)?,
                        }
                    }
                }
            }
        }
        while !open.folders.is_empty() {
            self.settle_folder(&mut open, &mut to)?;
        }
        finished.lacking.sort_unstable();
        finished.lacking.dedup();
        finished.xattr_losses = self.xattr_losses();
        Ok((finished, is_same_top))
    }

    /// What stays where it was has its bytes, and gets the rest.
    fn settle_kept(
        &self,
        index: &Index,
        at: BorrowedFd<'_>,
        name: &[u8],
        item: &Item<'_>,
    ) -> io::Result<()> {
        let mut first_cursor;
        let first;
        let entry = match item.entry.kind {
            // What the file has.
            Kind::HardLink(_) if self.preserve.links => return Ok(()),
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
            self.put_xattrs_at(item.number, at, name, &entry.xattrs);
        }
        if self.preserve.mode && !is_link {
            root::set_mode(at, name, mode & 0o777)?;
        }
        if self.preserve.times && (self.kept.by_content || is_link) {
            root::set_mtime(at, name, mtime)?;
        }
        Ok(())
    }

    /// What is of another kind than the entry of this number goes into the stage, with all that lies
    /// in it, and from there with what else is left in it: until the name is free nothing is lost.
    fn put_away(&self, folder: BorrowedFd<'_>, name: &[u8], number: u64) -> io::Result<()> {
        let away = [OWN_NAME, format!(".away-{number}").as_bytes()].concat();
        let put = || renameat(folder, name, self.root.fd(), away.as_slice());
        match put() {
            // A folder into which its owner may not write does not go into another one.
            Err(Errno::ACCESS) => {
                let found = statx(folder, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MODE)?;
                root::set_mode(folder, name, u32::from(found.stx_mode) & 0o777 | 0o700)?;
                Ok(put()?)
            }
            other => Ok(other?),
        }
    }

    /// All that lies in the innermost folder is there.
    fn settle_folder(&self, open: &mut Opened, to: &mut Trail) -> Result<(), StageError> {
        let Some(of) = open.folders.pop() else { return Ok(()) };
        open.path.truncate(of.path_bytes);
        if !of.is_there {
            return Ok(());
        }
        // Once it has its mode nothing may lead through it any more.
        let settled = to.leave(&open.path).and_then(|folder| {
            self.put_xattrs(of.number, &folder, &of.xattrs);
            set_mode(&folder, of.mode, self.preserve, FileType::Directory)?;
            set_times(&folder, of.mtime, self.preserve)
        });
        settled.map_err(|source| self.failed("set the attributes of", &open.path, source))
    }
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

/// A folder in which its owner may not do all this could neither be copied into again, for which a
/// stage is made in it, nor be looked through when what had come is removed or vouched for.
const OWNERS: u32 = 0o700;
