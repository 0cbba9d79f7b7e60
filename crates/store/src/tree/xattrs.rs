//! Reads and writes the extended attributes of open files and folders.
//!
//! Only those of the `user.` namespace: the others are rights (`system.posix_acl_*`, which names
//! users of another machine), capabilities (`security.`) or an administrator's (`trusted.`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    Mode, XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat, listxattr,
};
use rustix::io::Errno;
use swath_model::index::{XATTR_PREFIX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX, Xattrs};

/// Why an entry does not have exactly the extended attributes of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XattrLoss {
    /// The source could not report them.
    Unknown,
    /// The file system does not support them.
    Unsupported,
    /// The file system has no room for them, or not for such large ones.
    NoRoom,
    /// They may not be set.
    Forbidden,
    /// The system refused them for another reason.
    Refused,
}

impl XattrLoss {
    pub(super) fn of(error: Errno) -> XattrLoss {
        match error {
            Errno::OPNOTSUPP => XattrLoss::Unsupported,
            Errno::NOSPC | Errno::DQUOT | Errno::TOOBIG | Errno::RANGE => XattrLoss::NoRoom,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => XattrLoss::Forbidden,
            _ => XattrLoss::Refused,
        }
    }
}

/// Reads those of a file or a folder.
pub(super) fn read(file: impl AsFd) -> Xattrs<'static> {
    let file = file.as_fd();
    names(file).and_then(|names| values(file, names)).unwrap_or(Xattrs::Unknown)
}

/// Reads those of an unreadable file opened as `O_PATH`: whether it has any can still be seen.
pub(super) fn at_place(place: &OwnedFd) -> Xattrs<'static> {
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    match listed(|buffer| listxattr(path.as_str(), buffer)) {
        Ok(names) if names.is_empty() => Xattrs::None,
        _ => Xattrs::Unknown,
    }
}

/// Gives a file or a folder exactly these attributes. Correct ones are left alone. Continues after
/// errors and returns the first.
pub(super) fn write(file: impl AsFd, wanted: &Xattrs<'_>) -> Result<(), Errno> {
    let file = file.as_fd();
    match write_as_it_is(file, wanted) {
        // An owner cannot write attributes if the file's mode forbids it.
        Err(Errno::ACCESS) => {
            let found = fstat(file)?;
            let set_mode = |mode| rustix::fs::fchmod(file, Mode::from_raw_mode(mode));
            let mode = found.st_mode & 0o7777;
            set_mode(mode | 0o600).map_err(|_| Errno::ACCESS)?;
            let written = write_as_it_is(file, wanted);
            set_mode(mode)?;
            written
        }
        other => other,
    }
}

fn write_as_it_is(file: BorrowedFd<'_>, wanted: &Xattrs<'_>) -> Result<(), Errno> {
    let there = names(file)?;
    let set = match wanted {
        Xattrs::Set(set) => Some(set),
        Xattrs::None => None,
        Xattrs::Unknown => return Ok(()),
    };
    let mut result = Ok(());
    let mut note = |done: Result<(), Errno>| {
        if result.is_ok() {
            result = done;
        }
    };
    // Removals make room for additions.
    for name in &there {
        if set.is_none_or(|set| set.value(name).is_none()) {
            match fremovexattr(file, full(name)) {
                Err(Errno::NODATA) => {}
                other => note(other),
            }
        }
    }
    for (name, value) in set.iter().flat_map(|set| set.iter()) {
        let is_there = there.iter().any(|there| there == name)
            && self::value(file, name).is_ok_and(|there| there.as_deref() == Some(value));
        if !is_there {
            note(fsetxattr(file, full(name), value, XattrFlags::empty()));
        }
    }
    result
}

/// Adds the prefix.
fn full(name: &[u8]) -> Vec<u8> {
    [XATTR_PREFIX, name].concat()
}

/// Returns their names without the prefix; none if the file system has no attributes.
fn names(file: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    listed(|buffer| flistxattr(file, buffer))
}

fn listed(
    mut list: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> Result<Vec<Vec<u8>>, Errno> {
    // Most files have none or few.
    let mut few = [0; 512];
    let mut many = Vec::new();
    let bytes = match list(&mut few) {
        Ok(length) => &few[..length],
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(Errno::RANGE) => {
            many.resize(LIST_BYTES_MAX, 0);
            let length = list(&mut many)?;
            &many[..length]
        }
        Err(error) => return Err(error),
    };
    let all = bytes.split(|&byte| byte == 0).filter_map(|name| name.strip_prefix(XATTR_PREFIX));
    Ok(all.map(<[u8]>::to_vec).collect())
}

/// Returns the attributes of these names, as far as an index can hold them.
fn values(file: BorrowedFd<'_>, names: Vec<Vec<u8>>) -> Result<Xattrs<'static>, Errno> {
    let mut all = Vec::with_capacity(names.len());
    let mut bytes = 0;
    for name in names {
        // It may have been removed meanwhile.
        let Some(value) = value(file, &name)? else { continue };
        bytes += name.len() + value.len();
        if bytes > XATTRS_BYTES_MAX {
            return Ok(Xattrs::Unknown);
        }
        all.push((name, value));
    }
    Ok(Xattrs::of(all))
}

fn value(file: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let name = full(name);
    let mut few = [0; 512];
    match fgetxattr(file, name.as_slice(), &mut few) {
        Ok(length) => Ok(Some(few[..length].to_vec())),
        Err(Errno::NODATA) => Ok(None),
        Err(Errno::RANGE) => {
            let mut many = vec![0; XATTR_VALUE_BYTES_MAX];
            let length = fgetxattr(file, name.as_slice(), &mut many)?;
            many.truncate(length);
            many.shrink_to_fit();
            Ok(Some(many))
        }
        Err(error) => Err(error),
    }
}

/// Linux lists at most this many bytes.
const LIST_BYTES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_become_what_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("file")).unwrap();
        let folder = std::fs::File::open(dir.path()).unwrap();
        let set = |all: &[(&str, &[u8])]| {
            Xattrs::of(all.iter().map(|&(name, value)| (name.into(), value.to_vec())).collect())
        };
        if write(&file, &set(&[("a", b"1")])) == Err(Errno::OPNOTSUPP) {
            println!("skipped: this file system takes no extended attributes");
            return;
        }
        let long = [b'v'; 1500];
        // Their names and values are more than one look takes.
        let names: Vec<String> =
            (0..40).map(|number| format!("a rather long name {number}")).collect();
        let many: Vec<(&str, &[u8])> =
            names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
        for wanted in [
            set(&[("b", b"\0\xff"), ("a", b"2"), ("empty", b""), ("\u{e9} =,", b"x")]),
            set(&[("b", &long)]),
            set(&[("b", &long[1..])]),
            set(&many),
            set(&[("b", b"")]),
            Xattrs::None,
            Xattrs::None,
        ] {
            write(&file, &wanted).unwrap();
            write(&folder, &wanted).unwrap();
            assert_eq!((read(&file), read(&folder)), (wanted.clone(), wanted.clone()));
            let place =
                rustix::fs::open(dir.path().join("file"), rustix::fs::OFlags::PATH, Mode::empty());
            // Whoever may not read it sees whether there are some.
            assert_eq!(at_place(&place.unwrap()) == Xattrs::None, wanted == Xattrs::None);
        }
        // What cannot be told changes nothing.
        write(&file, &set(&[("a", b"1")])).unwrap();
        write(&file, &Xattrs::Unknown).unwrap();
        assert_eq!(read(&file), set(&[("a", b"1")]));
    }

    #[test]
    fn others_are_neither_read_nor_touched() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("file")).unwrap();
        let flags = XattrFlags::empty();
        if fsetxattr(&file, "security.swath-test", b"1", flags).is_err()
            || fsetxattr(&file, "trusted.swath-test", b"1", flags).is_err()
        {
            println!("skipped: we may not set attributes of other kinds");
            return;
        }
        assert_eq!(read(&file), Xattrs::None);
        write(&file, &Xattrs::None).unwrap();
        write(&file, &Xattrs::of(vec![(b"a".to_vec(), b"1".to_vec())])).unwrap();
        let mut value = [0; 8];
        assert_eq!(fgetxattr(&file, "security.swath-test", &mut value), Ok(1));
        assert_eq!(fgetxattr(&file, "trusted.swath-test", &mut value), Ok(1));
    }
}
