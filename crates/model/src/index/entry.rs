//! One entry of the index, as its writer passes it.

use super::xattrs::Xattrs;

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// Its size in bytes, holes included.
        size_bytes: u64,
        /// For a sparse file, its parts that are not holes: ascending, not empty, not touching. A
        /// single part as large as the file stands for holes too small to report. `None` if all of
        /// it is data.
        extents: Option<Vec<Extent>>,
    },
    /// A folder; its content follows.
    Folder,
    /// A symbolic link, with its target as written.
    Symlink(Vec<u8>),
    /// Another name of an earlier file, by that file's number in the index.
    HardLink(u64),
    /// Something that the dataset cannot contain; only its name and the reason.
    Absent(Absence),
}

impl Kind {
    /// Returns whether it is a file with holes, which a copy keeps as far as it can.
    pub fn is_sparse(&self) -> bool {
        matches!(self, Kind::File { extents: Some(_), .. })
    }

    /// Returns whether the other one has the same bytes at the same places of the virtual file,
    /// apart from small holes.
    pub fn is_laid_out_as(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::File { size_bytes, .. }, Kind::File { size_bytes: others, .. }) => {
                size_bytes == others && self.told_extents() == other.told_extents()
            }
            (one, other) => one == other,
        }
    }

    /// Returns the extents of a file, if they leave anything out.
    pub(super) fn told_extents(&self) -> Option<&[Extent]> {
        match self {
            Kind::File { size_bytes, extents: Some(extents) } => match extents.as_slice() {
                [all] if all.bytes == *size_bytes => None,
                extents => Some(extents),
            },
            _ => None,
        }
    }
}

/// A part of a sparse file that is not a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its offset in the file.
    pub offset: u64,
    /// Its length in bytes, at least 1.
    pub bytes: u64,
}

/// Why an entry is not part of its dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Absence {
    /// It may not be read.
    Forbidden,
    /// It disappeared during the walk.
    Vanished,
    /// A device, a socket or a pipe.
    Special,
    /// It could not be read for another reason.
    Unreadable,
    /// Another file system, which the walk does not enter.
    Elsewhere,
}

impl Absence {
    pub(super) fn code(self) -> u8 {
        match self {
            Absence::Forbidden => 1,
            Absence::Vanished => 2,
            Absence::Special => 3,
            Absence::Unreadable => 4,
            Absence::Elsewhere => 5,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Absence> {
        [
            Absence::Forbidden,
            Absence::Vanished,
            Absence::Special,
            Absence::Unreadable,
            Absence::Elsewhere,
        ]
        .into_iter()
        .find(|absence| absence.code() == code)
    }
}

/// Seconds and nanoseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// One entry of the index. Its place follows from the entry before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Number of folders to leave before it, counted from the last entry if that is a folder, or
    /// else from the folder that contains it.
    pub leaves: usize,
    /// The last component of its path: 1 to 255 bytes without `/` and NUL, not `.` or `..`. May not
    /// be text.
    pub name: &'a [u8],
    /// Its kind.
    pub kind: Kind,
    /// Permission bits, 12 of them; 0 if `kind` is absent or a hard link.
    pub mode: u32,
    /// Modification time; zero if `kind` is absent or a hard link.
    pub mtime: Mtime,
    /// Its extended attributes; only files and folders have any.
    pub xattrs: Xattrs<'a>,
}
