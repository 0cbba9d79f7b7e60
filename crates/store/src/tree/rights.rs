//! Checks what this user may do in a folder, before anything depends on it.

use std::os::fd::BorrowedFd;

use rustix::fs::{Access, AtFlags, accessat, fstat};
use rustix::io::Errno;

/// Checks whether the system allows it, as far as it tells. Modes of our own folders do not count:
/// they are changed while needed.
pub(super) fn check(folder: BorrowedFd<'_>, wanted: Access) -> Result<(), Errno> {
    match accessat(folder, c".", wanted, AtFlags::EACCESS) {
        Err(Errno::ACCESS) if fstat(folder).is_ok_and(|found| is_own(found.st_uid)) => Ok(()),
        // The kernel cannot tell.
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

/// Returns whether this owner is the effective user.
pub(super) fn is_own(owner: u32) -> bool {
    owner == rustix::process::geteuid().as_raw()
}

/// Permissions to open a folder and its content.
pub(super) const PASS: Access = Access::READ_OK.union(Access::EXEC_OK);
/// Permissions to create or remove names in a folder.
pub(super) const CHANGE: Access = Access::READ_OK.union(Access::WRITE_OK).union(Access::EXEC_OK);
