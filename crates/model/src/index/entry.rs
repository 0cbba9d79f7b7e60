//! One line of the index, as its writer hands it over.

use super::xattrs::Xattrs;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// Its size in bytes, holes included.
        size_bytes: u64,
        /// Of a sparse file the parts that are no holes, ascending, none of them empty and no two
        /// of them touching; a single one that is all of the file says that it has holes which are
        /// too small to be told. `None` if all of it is data.
        extents: Option<Vec<Extent>>,
    },
    /// A folder; what lies in it follows.
    Folder,
    /// A symbolic link, with its target as written.
    Symlink(Vec<u8>),
    /// Another name of an earlier file, by that file's number in the index.
    HardLink(u64),
    /// Something that the dataset cannot contain; it has a name and a reason.
    Absent(Absence),
}

impl Kind {
    /// Whether it is a file with holes, of which a copy has as much as it can.
    pub fn is_sparse(&self) -> bool {
        matches!(self, Kind::File { extents: Some(_), .. })
    }

    /// Whether the other one has the same bytes at the same places of the virtual file: small holes
    /// are of no account.
    pub fn is_laid_out_as(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::File { size_bytes, .. }, Kind::File { size_bytes: others, .. }) => {
                size_bytes == others && self.told_extents() == other.told_extents()
            }
            (one, other) => one == other,
        }
    }

    /// The extents of a file, if they leave out anything.
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

/// A part of a sparse file that is no hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes, at least one.
    pub bytes: u64,
}

/// Why an entry is no part of its dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Absence {
    /// It may not be read.
    Forbidden,
    /// It went away during the walk.
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

/// One line of the index. Where it stands is told by the entry before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// How many folders to leave before it, counted from the folder that the entry before it is,
    /// or lies in if it is none.
    pub leaves: usize,
    /// The last component of its path: 1 to 255 bytes, neither `/` nor NUL among them, not `.` or
    /// `..`. Not always text.
    pub name: &'a [u8],
    /// What it is.
    pub kind: Kind,
    /// Permission bits, 12 of them; 0 where `kind` is absent or a hard link.
    pub mode: u32,
    /// Time of its last change; zero where `kind` is absent or a hard link.
    pub mtime: Mtime,
    /// Its extended attributes; none but for files and folders.
    pub xattrs: Xattrs<'a>,
}
