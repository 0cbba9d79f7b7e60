//! Looks at a target before anything is opened or contacted: whether a file can get its name, and
//! what an earlier run left there.

use std::fs::{File, Metadata};
use std::io::{self, BufReader};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::file_kind::FileKind;
use swath_model::{Range, RangeSet};

use crate::beneath::reach;
use crate::identity::{Identity, Verdict};
use crate::journal::{Recovery, State, recover};
use crate::names::{Names, folder_of, is_reserved};
use crate::open::OpenError;
use crate::sys;

/// What an earlier run left of a target, by its journal. Nothing is locked, and nothing trusted
/// yet: [`crate::Target::open`] judges it.
#[derive(Clone, Debug)]
pub struct Left {
    /// Size of the file in bytes, if it was known.
    pub size_bytes: Option<u64>,
    /// The known facts about the content.
    pub identity: Identity,
    /// Ranges that the journal vouches for and the part file is long enough to hold.
    pub durable: RangeSet,
}

impl Left {
    /// Compares it with the content now known as `identity`.
    pub fn compare(&self, identity: &Identity, size_bytes: Option<u64>) -> Verdict {
        self.identity.compare(self.size_bytes, identity, size_bytes)
    }

    /// Returns the first missing range, if the size is known.
    pub fn first_missing(&self) -> Option<Range> {
        let whole = Range::new(0, self.size_bytes?);
        self.durable.gaps_within(whole).first().copied()
    }
}

/// Looks at the place of a target: whether the file can be written there, and what an earlier run
/// left. No link below `beneath` is followed. Changes nothing; blocks.
///
/// # Errors
/// Whatever [`crate::Target::open`] would refuse the place for, so that it can be reported before
/// anything is fetched.
pub fn look(
    path: &Path,
    beneath: Option<&Path>,
    overwrite: bool,
) -> Result<Option<Left>, OpenError> {
    let reached = reach(path, beneath, None)?;
    look_at(&reached.path, overwrite).map_err(|error| reached.explain(error, path))
}

fn look_at(path: &Path, overwrite: bool) -> Result<Option<Left>, OpenError> {
    check_target(path, overwrite)?;
    let Ok(space) = sys::file_system(&folder_of(path)) else { return Ok(None) };
    let Some(names) = Names::of(path, space.name_bytes_max) else { return Ok(None) };
    let in_the_way = || OpenError::InTheWay(names.journal.clone());
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(&names.journal) {
        Ok(file) => file,
        Err(error) if is_no_file(&error) => return Err(in_the_way()),
        Err(_) => return Ok(None),
    };
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(in_the_way());
    }
    let part = names.part.symlink_metadata();
    match recover::<State>(BufReader::with_capacity(1 << 16, &file)) {
        Ok(Recovery::Journal { state, .. }) => Ok(part.ok().map(|part| Left {
            size_bytes: state.size_bytes,
            identity: state.identity,
            durable: state.durable.within(Range::new(0, part.len())).collect(),
        })),
        // Alone it is a user's file whose name happens to end like ours.
        Ok(Recovery::NotAJournal) if part.is_err() => Err(in_the_way()),
        _ => Ok(None),
    }
}

/// Returns the bytes that an earlier run of the target at `path` left for the next one. Blocks.
pub fn kept_bytes(path: &Path) -> u64 {
    look(path, None, true).ok().flatten().map_or(0, |left| left.durable.total_bytes())
}

/// Removes what an earlier run of the target at `path` left, unless another one writes there now. Blocks.
///
/// # Errors
/// The system's, if one of the files could not be removed.
pub fn discard_left(path: &Path) -> io::Result<()> {
    let Ok(space) = sys::file_system(&folder_of(path)) else { return Ok(()) };
    let Some(names) = Names::of(path, space.name_bytes_max) else { return Ok(()) };
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let (Ok(part), Ok(journal)) = (options.open(&names.part), options.open(&names.journal)) else {
        return Ok(());
    };
    let read = recover::<State>(BufReader::with_capacity(1 << 16, &journal));
    if !matches!(read, Ok(Recovery::Journal { .. })) || !sys::try_lock(&part)? {
        return Ok(());
    }
    // The journal first: alone it would vouch for a missing part file.
    std::fs::remove_file(&names.journal)?;
    std::fs::remove_file(&names.part)
}

/// Checks that the final name is free or belongs to an ordinary file that may be replaced. Devices,
/// pipes and sockets are more than their name, and a link may lead anywhere: none of them is ever
/// replaced or followed.
pub(crate) fn check_target(path: &Path, overwrite: bool) -> Result<(), OpenError> {
    if Names::of(path, usize::MAX).is_none() {
        return Err(OpenError::NoName(path.to_owned()));
    }
    if is_reserved(path) {
        return Err(OpenError::Reserved(path.to_owned()));
    }
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::ENAMETOOLONG) => Err(OpenError::NameTooLong(path.to_owned())),
                None => Err(OpenError::NoName(path.to_owned())),
                // Other problems show when the folder is opened.
                _ => Ok(()),
            };
        }
    };
    match FileKind::from(&found) {
        FileKind::File if overwrite => Ok(()),
        FileKind::File => Err(OpenError::Exists(path.to_owned())),
        FileKind::Folder => Err(OpenError::IsFolder(path.to_owned())),
        kind => Err(OpenError::NotAFile { path: path.to_owned(), kind }),
    }
}

/// Returns whether the name is not a file: opening hit a link, a folder or a socket.
pub(crate) fn is_no_file(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EISDIR | libc::ENXIO))
}

/// Returns whether another user put a side file into a shared folder (such as `/tmp`): a journal
/// could vouch for bytes of their choice. The kernel's `protected_regular` uses the same rule.
pub(crate) fn is_planted(found: &Metadata, folder: &Path) -> bool {
    let Ok(folder) = folder.metadata() else { return false };
    let is_shared = folder.mode() & STICKY_AND_FOR_ALL == STICKY_AND_FOR_ALL;
    let own = rustix::process::geteuid().as_raw();
    is_shared && found.uid() != own && found.uid() != folder.uid()
}

const STICKY_AND_FOR_ALL: u32 = 0o1002;
