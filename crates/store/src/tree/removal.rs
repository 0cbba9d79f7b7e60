//! Removes what is in a folder, at any depth, with few descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::folder_cursor::{Chain, Enter, FOLDER, look, open_for_changes};
use super::names::Names;
use super::root::{Links, open_below};
use super::stat::{self, FileId};

/// Whether modes of folders that belong to this user keep it from changing what is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modes {
    /// They do.
    Count,
    /// They are changed first.
    Change,
}

/// Removes everything in a folder.
pub(super) fn remove_all(
    folder: BorrowedFd<'_>,
    modes: Modes,
    stop: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut chain = Chain::new(Enter::Open);
    // The rest to remove in each folder on the way, from its end.
    let mut left = vec![(Names::read(folder)?, 0)];
    while let Some((names, at)) = left.last_mut() {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let here = chain.last().unwrap_or(folder);
        if *at == names.len() {
            left.pop();
            let Some(gone) = chain.leave() else { break };
            gone?;
            let (above, Some((names, at))) = (chain.last().unwrap_or(folder), left.last_mut())
            else {
                break;
            };
            unlinkat(above, names.name(*at), AtFlags::REMOVEDIR)?;
            *at += 1;
            continue;
        }
        match unlinkat(here, names.name(*at), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => *at += 1,
            Err(Errno::ISDIR | Errno::PERM) => {
                let (inside, id) = match modes {
                    Modes::Change => open_for_changes(here, names.name(*at))?,
                    Modes::Count => open_with_id(here, names.name(*at))?,
                };
                left.push((Names::read(inside.as_fd())?, 0));
                chain.push(inside, id);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns whether anything below a folder has such a name.
pub(super) fn any_below(
    folder: BorrowedFd<'_>,
    is_such: &dyn Fn(&[u8]) -> bool,
    stop: &dyn Fn() -> bool,
) -> io::Result<bool> {
    let mut chain = Chain::new(Enter::Open);
    let mut left = vec![(Names::read(folder)?, 0)];
    while let Some((names, at)) = left.last_mut() {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if *at == names.len() {
            left.pop();
            chain.leave().transpose()?;
            continue;
        }
        let name = names.name(*at);
        if is_such(name) {
            return Ok(true);
        }
        let opened = open_with_id(chain.last().unwrap_or(folder), name);
        *at += 1;
        match opened {
            Ok((inside, id)) => {
                left.push((Names::read(inside.as_fd())?, 0));
                chain.push(inside, id);
            }
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn open_with_id(above: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<(OwnedFd, FileId)> {
    let folder = open_below(above, name, FOLDER, Links::Refuse)?;
    let id = stat::id(&look(&folder)?);
    Ok((folder, id))
}
