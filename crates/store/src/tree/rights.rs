//! Checks what this user may do in a folder, before anything depends on it.

use std::os::fd::BorrowedFd;

use rustix::fs::{Access, AtFlags, accessat, fstat};
use rustix::io::Errno;

/// Whether the system lets us, as far as it tells. What our own modes forbid us is no hindrance: they
/// are opened for the moment in which that is needed.
pub(super) fn check(folder: BorrowedFd<'_>, wanted: Access) -> Result<(), Errno> {
    match accessat(folder, c".", wanted, AtFlags::EACCESS) {
        Err(Errno::ACCESS) if fstat(folder).is_ok_and(|found| is_own(found.st_uid)) => Ok(()),
        // A kernel that cannot tell.
        Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

/// Whether this owner is the user whose rights count.
pub(super) fn is_own(owner: u32) -> bool {
    owner == rustix::process::geteuid().as_raw()
}

/// To open what lies in a folder, and the folder itself.
pub(super) const PASS: Access = Access::READ_OK.union(Access::EXEC_OK);
/// To give names in a folder, or to take them.
pub(super) const CHANGE: Access = Access::READ_OK.union(Access::WRITE_OK).union(Access::EXEC_OK);
