//! Why a job, or one file of it, ended before its end.

use std::io;
use std::path::PathBuf;

use swath_formats::checksums::ChecksumProblem;
use swath_formats::list::ListError;
use swath_formats::listing::Refusal;
use swath_formats::metalink::{self, RefusedWhy, SkipReason};
use swath_model::digest::Digest;
use swath_model::path::PathError;
use swath_source::{LaneError, NetError};
use swath_transfer::{EngineError, GetError};

use crate::address::AddressError;
use crate::copy::CopyError;
use crate::kept::Leftover;
use crate::secret::SecretError;

/// Why a job ended before its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// It was cancelled before it had begun to transfer anything.
    #[error("stopped before anything was fetched")]
    Stopped,
    /// It cannot be done as it is specified.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// An address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A secret cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The engine cannot start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A Metalink cannot be used.
    #[error(transparent)]
    Metalink(#[from] MetalinkError),
    /// A list cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    List {
        /// The list.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// A checksum file cannot be used.
    #[error(transparent)]
    Checksums(#[from] ChecksumsError),
    /// The transfer of the only file failed.
    #[error("{name}: {error}")]
    Transfer {
        /// Where the file was to go.
        name: String,
        /// What happened.
        #[source]
        error: Box<GetError>,
        /// What is kept of it.
        kept: Leftover,
    },
    /// A copy failed.
    #[error(transparent)]
    Copy(Box<CopyError>),
    /// Some files of a list are not there.
    #[error("{} of the files failed", .0.failed)]
    Files(Files),
}

impl From<CopyError> for JobError {
    fn from(error: CopyError) -> JobError {
        JobError::Copy(Box::new(error))
    }
}

/// What became of the files of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Complete, or there before.
    pub complete: u64,
    /// Not there; the events said why.
    pub failed: u64,
    /// The job was cancelled before all of them had their turn.
    pub is_stopped: bool,
}

/// Why a job cannot be done as it is specified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// It names no source.
    #[error("no source was given")]
    NoSource,
    /// It needs a stream that was not handed over.
    #[error("the job has a stream for its list or its output, and none was handed over")]
    NoStream,
    /// A Metalink stands among replicas of a file.
    #[error("{name} is a Metalink: it is given alone, for it names the mirrors")]
    MetalinkAmongReplicas {
        /// The Metalink.
        name: String,
    },
    /// Several files cannot all have one name.
    #[error("{name} names {count} files: they need a folder")]
    SeveralToOne {
        /// The Metalink.
        name: String,
        /// How many it names.
        count: u64,
    },
    /// A digest is that of one file.
    #[error("{name} names {count} files: a digest is for one")]
    DigestOfSeveral {
        /// The Metalink.
        name: String,
        /// How many it names.
        count: u64,
    },
    /// A list may name several files.
    #[error("a list may hold several files: they need a folder")]
    ListToOne,
    /// The address of a file gives it no name.
    #[error("{name} does not name a file")]
    NoName {
        /// The address.
        name: String,
        /// Why its last part is no name; `None` if it is empty.
        why: Option<NoName>,
    },
    /// Two digests of one algorithm cannot both be right.
    #[error("two digests contradict each other: {one} and {other}")]
    Contradiction {
        /// One of them.
        one: Box<Digest>,
        /// The other.
        other: Box<Digest>,
    },
    /// A checksum file is for the addresses of a file.
    #[error("a checksum file is for the address of a file: a Metalink has digests of its own")]
    ChecksumsOfMetalink,
    /// A file would be written over a reserved path.
    #[error("{} would be written over {}, or over what is kept beside it", path.display(), target.display())]
    Reserved {
        /// The reserved path.
        path: PathBuf,
        /// Where the file would go.
        target: PathBuf,
    },
}

/// Why the last part of an address is no name for a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoName {
    /// It holds a `/`.
    #[error("ends in a name with '/' in it, which is refused")]
    Slash,
    /// It could do harm.
    #[error("ends in a name that is refused: {0}")]
    Refused(PathError),
}

/// Why a Metalink cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetalinkError {
    /// It cannot be read from the disk.
    #[error("cannot read {name}: {error}")]
    Read {
        /// The Metalink.
        name: String,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// It cannot be fetched.
    #[error("cannot fetch the Metalink {name}: {error}")]
    Fetch {
        /// The Metalink.
        name: String,
        /// What its server says.
        #[source]
        error: LaneError,
    },
    /// Nobody asked for it, and it took too long.
    #[error("the Metalink {name} has not come within {limit_s} s")]
    Late {
        /// The Metalink.
        name: String,
        /// How long it was waited for.
        limit_s: u64,
    },
    /// It is none.
    #[error("{name}: {error}")]
    Parse {
        /// The Metalink.
        name: String,
        /// What is wrong with it.
        #[source]
        error: metalink::MetalinkError,
    },
    /// It names no file.
    #[error("{name} names no file")]
    Empty {
        /// The Metalink.
        name: String,
    },
    /// All files that it names are refused.
    #[error("{name}: no file of it can be fetched: {file:?}: {error}")]
    AllRefused {
        /// The Metalink.
        name: String,
        /// The first file.
        file: String,
        /// Why it is refused.
        #[source]
        error: Box<EntryError>,
    },
    /// The only file that it names cannot be fetched.
    #[error("{name}: {file}: {error}")]
    File {
        /// The Metalink.
        name: String,
        /// The file.
        file: String,
        /// Why.
        #[source]
        error: Box<EntryError>,
    },
}

/// Why a checksum file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChecksumsError {
    /// It cannot be fetched.
    #[error("cannot fetch the checksum file {name}: {error}")]
    Fetch {
        /// The checksum file.
        name: String,
        /// What its server says.
        #[source]
        error: LaneError,
    },
    /// It cannot be read from the disk.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The checksum file.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// It does not name the file.
    #[error("{name} says nothing of {file}")]
    Silent {
        /// The checksum file.
        name: String,
        /// The file.
        file: String,
    },
    /// What it says of the file cannot be used.
    #[error("{name}: line {line}: what it says of {file}: {problem}")]
    Line {
        /// The checksum file.
        name: String,
        /// The line.
        line: u64,
        /// The file.
        file: String,
        /// What is wrong there.
        #[source]
        problem: ChecksumProblem,
    },
}

/// Why a file of a list is not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Its entry cannot be used.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// Its headers cannot be sent.
    #[error(transparent)]
    Headers(#[from] NetError),
    /// Its transfer failed.
    #[error("{error}")]
    Transfer {
        /// What happened.
        #[source]
        error: Box<GetError>,
        /// What is kept of it.
        kept: Leftover,
    },
    /// Its task ended by a mistake in this program.
    #[error("its transfer ended without a result")]
    Internal,
}

impl FileError {
    /// Whether an event of the file's transfer told of it.
    pub fn is_told(&self) -> bool {
        matches!(self, FileError::Transfer { kept, .. } if kept.is_told)
    }
}

/// Why the entry of a file in a list cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// The list cannot be read there.
    #[error(transparent)]
    List(#[from] ListError),
    /// Its addresses give it no name.
    #[error("it does not name a file: add a line '  out=NAME' below it")]
    NoName,
    /// Another file of the list is in its way.
    #[error(transparent)]
    Name(#[from] NameConflict),
    /// The Metalink's file is refused.
    #[error(transparent)]
    Refused(#[from] RefusedWhy),
    /// None of its mirrors can be used.
    #[error("no mirror of it can be used{}", .0.as_ref().map_or(String::new(), |why| format!(" ({why})")))]
    NoMirror(Option<SkipReason>),
    /// Nothing would prove it.
    #[error("its piece digests cannot be used, and nothing else would prove the file: {0}")]
    Pieces(SkipReason),
    /// Nothing would prove it.
    #[error("its digest cannot be used, and nothing else would prove the file: {0}")]
    Digest(SkipReason),
    /// Nothing would prove it.
    #[error("its size cannot be read, and nothing else would prove the file")]
    Size,
    /// Its path could do harm.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A folder's listing refuses it.
    #[error(transparent)]
    Listing(#[from] Refusal),
    /// The listing of a folder cannot be had.
    #[error(transparent)]
    Folder(#[from] LaneError),
    /// What a server sends is no listing of a folder.
    #[error("what it sends is no listing of a folder")]
    NoListing,
    /// A folder has more entries than are read of one page.
    #[error("it has more entries than are read of one page")]
    TooMany,
    /// A list in several parts does not go on.
    #[error("the list does not go on where it says it does")]
    NoNextPart,
    /// A list in several parts has no end.
    #[error("the list leads back to where it was")]
    Circle,
}

/// How two files of one list are in each other's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameConflict {
    /// They have one name.
    #[error("another file of this list has the same name and comes before it")]
    Same,
    /// Others lie below its name.
    #[error("its name is that of a folder which other files of this list lie in")]
    IsFolder,
    /// It lies below the name of another one.
    #[error("the folder that it lies in has the name of another file of this list")]
    BelowFile,
}
