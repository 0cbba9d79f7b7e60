//! The kind of file that a name refers to.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt as _;

use rustix::fs::FileType;
use swath_model::index::Kind;

/// The kind of an entry on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// An ordinary file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device.
    Device,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Folder => "folder",
            Self::Link => "symbolic link",
            Self::Pipe => "pipe",
            Self::Socket => "socket",
            Self::Device => "device",
        })
    }
}

impl From<&Metadata> for FileKind {
    fn from(found: &Metadata) -> FileKind {
        match found.file_type() {
            kind if kind.is_file() => FileKind::File,
            kind if kind.is_dir() => FileKind::Folder,
            kind if kind.is_symlink() => FileKind::Link,
            kind if kind.is_fifo() => FileKind::Pipe,
            kind if kind.is_socket() => FileKind::Socket,
            _ => FileKind::Device,
        }
    }
}

impl From<FileType> for FileKind {
    fn from(found: FileType) -> FileKind {
        match found {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Folder,
            FileType::Symlink => FileKind::Link,
            FileType::Fifo => FileKind::Pipe,
            FileType::Socket => FileKind::Socket,
            _ => FileKind::Device,
        }
    }
}

/// Returns the kind that an entry of an index gets on a disk.
impl From<&Kind> for FileKind {
    fn from(entry: &Kind) -> FileKind {
        match entry {
            Kind::Folder => FileKind::Folder,
            Kind::Symlink(_) => FileKind::Link,
            _ => FileKind::File,
        }
    }
}
