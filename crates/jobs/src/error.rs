//! Errors of jobs and of the files of a list.

use std::io;
use std::path::PathBuf;

use swath_formats::checksums::ChecksumProblem;
use swath_formats::feed;
use swath_formats::list::ListError;
use swath_formats::listing::{self, Refusal};
use swath_formats::metalink::{self, RefusedWhy, SkipReason};
use swath_formats::torrent::MetainfoError;
use swath_formats::torrent::magnet::MagnetError;
use swath_model::digest::Digest;
use swath_model::path::PathError;
use swath_serve::ServeError;
use swath_share::ShareError;
use swath_source::peer::PeerError;
use swath_source::{LaneError, NetError};
use swath_swarm::AnnounceError;
use swath_transfer::{EngineError, FilterError, GetError};

use crate::address::AddressError;
use crate::copy::CopyError;
use crate::kept::KeptData;
use crate::secret::SecretError;

/// Why a job failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The job was cancelled before it transferred anything.
    #[error("stopped before anything was fetched")]
    Stopped,
    /// Invalid specification.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// Invalid address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Unavailable secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The engine cannot start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Unusable Metalink.
    #[error(transparent)]
    Metalink(#[from] MetalinkError),
    /// Unusable torrent.
    #[error(transparent)]
    Torrent(#[from] TorrentError),
    /// Unusable feed.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// Unreadable list.
    #[error("cannot read {}: {error}", path.display())]
    List {
        /// The list.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// Unusable checksum file.
    #[error(transparent)]
    Checksums(#[from] ChecksumsError),
    /// The transfer of the single file failed.
    #[error("{name}: {error}")]
    Transfer {
        /// The destination.
        name: String,
        /// The error.
        #[source]
        error: Box<GetError>,
        /// The kept data.
        kept: KeptData,
    },
    /// The source has no bytes that could show how fast it is.
    #[error("there is nothing to measure: the file is empty")]
    NothingToMeasure,
    /// A source fell silent while it was measured.
    #[error("nothing came within {within_s} seconds")]
    NothingCame {
        /// The limit.
        within_s: u64,
    },
    /// A copy failed.
    #[error(transparent)]
    Copy(Box<CopyError>),
    /// Some files of a list failed.
    #[error("{} of the files failed", .0.failed)]
    Files(FileCounts),
}

impl From<CopyError> for JobError {
    fn from(error: CopyError) -> JobError {
        JobError::Copy(Box::new(error))
    }
}

/// Results of the files of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Complete files.
    pub complete: u64,
    /// Failed files; their events have the errors.
    pub failed: u64,
    /// The job was cancelled before the end of the list.
    pub is_stopped: bool,
}

/// Why a specification is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No source.
    #[error("no source was given")]
    NoSource,
    /// A missing stream.
    #[error("the job needs a stream for its list or its output")]
    NoStream,
    /// A Metalink among replicas of a file.
    #[error("{0} is a Metalink: give it as the only source")]
    MetalinkAmongReplicas(String),
    /// Several files with one destination file.
    #[error("{name} lists {count} files: the destination must be a folder")]
    SeveralToOne {
        /// The Metalink.
        name: String,
        /// The number of its files.
        count: u64,
    },
    /// Several selected files of a torrent with one destination file.
    #[error("{count} files of {name} are selected: the destination must be a folder")]
    SelectedToOne {
        /// The torrent.
        name: String,
        /// How many are selected.
        count: u64,
    },
    /// A selected file of a torrent that is a link, with a destination file.
    #[error("{file} is a link to another file of the torrent: the destination must be a folder")]
    LinkToFile {
        /// Its path in the torrent.
        file: String,
    },
    /// A selected file whose pieces have bytes of other files, with a destination file.
    #[error(
        "the pieces of {file} also hold bytes of other files: the destination must be a folder"
    )]
    SharedPieces {
        /// Its path in the torrent.
        file: String,
    },
    /// A digest for several files.
    #[error("{name} lists {count} files: a digest is for a single file")]
    DigestOfSeveral {
        /// The Metalink.
        name: String,
        /// The number of its files.
        count: u64,
    },
    /// A list with one destination file.
    #[error("a list may contain several files: the destination must be a folder")]
    ListToOne,
    /// An address without a file name.
    #[error("{name} does not name a file")]
    NoName {
        /// The address.
        name: String,
        /// Why its last part is not a name; `None` if it is empty.
        why: Option<NoName>,
    },
    /// Two digests of one algorithm.
    #[error("two digests contradict each other: {one} and {other}")]
    Contradiction {
        /// One of them.
        one: Box<Digest>,
        /// The other.
        other: Box<Digest>,
    },
    /// A checksum file with a Metalink.
    #[error("a checksum file is for the address of a file: a Metalink has its own digests")]
    ChecksumsOfMetalink,
    /// Files are selected where there is no torrent.
    #[error("files can be selected of a torrent only")]
    SelectWithoutTorrent,
    /// The patterns that select files cannot be used.
    #[error(transparent)]
    Select(FilterError),
    /// A reserved path would be overwritten.
    #[error("{} would overwrite {} or its partial data", path.display(), target.display())]
    Reserved {
        /// The reserved path.
        path: PathBuf,
        /// The destination.
        target: PathBuf,
    },
}

/// Why a file is fetched without the other machines of a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotShared {
    /// Nobody could connect.
    #[error(transparent)]
    Listen(ServeError),
    /// The content.
    #[error(transparent)]
    Content(#[from] ShareError),
    /// No mirror answers.
    #[error(transparent)]
    Unreached(LaneError),
    /// No mirror can be used.
    #[error("no source can be opened")]
    NoMirror,
    /// Nothing says that others fetch the same version.
    #[error("its server gives it no strong entity tag and no digest: add --digest")]
    NoVersion,
    /// The size is unknown.
    #[error("its server does not say its size")]
    NoSize,
    /// Only all of it can be fetched.
    #[error("its server sends no parts of it")]
    NoRanges,
    /// Others cannot be served from there.
    #[error("it is not written to a file")]
    Destination,
}

/// Why the last part of an address is not a file name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoName {
    /// It contains `/`.
    #[error("ends in a name that contains '/'")]
    Slash,
    /// It is unsafe.
    #[error("ends in an invalid name: {0}")]
    Refused(PathError),
}

/// Why a Metalink is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetalinkError {
    /// It cannot be read.
    #[error("cannot read {name}: {error}")]
    Read {
        /// The Metalink.
        name: String,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// It cannot be fetched.
    #[error("cannot fetch the Metalink {name}: {error}")]
    Fetch {
        /// The Metalink.
        name: String,
        /// The server's error.
        #[source]
        error: LaneError,
    },
    /// A discovered Metalink took too long.
    #[error("the Metalink {name} did not arrive within {limit_s} s")]
    Late {
        /// The Metalink.
        name: String,
        /// The time limit.
        limit_s: u64,
    },
    /// It is invalid.
    #[error("{name}: {error}")]
    Parse {
        /// The Metalink.
        name: String,
        /// The error.
        #[source]
        error: metalink::MetalinkError,
    },
    /// It lists no file.
    #[error("{0} lists no file")]
    Empty(String),
    /// All its files are refused.
    #[error("{name}: none of its files can be fetched: {file:?}: {error}")]
    AllRefused {
        /// The Metalink.
        name: String,
        /// The first file.
        file: String,
        /// Its error.
        #[source]
        error: Box<EntryError>,
    },
    /// Its only file cannot be fetched.
    #[error("{name}: {file}: {error}")]
    File {
        /// The Metalink.
        name: String,
        /// The file.
        file: String,
        /// Its error.
        #[source]
        error: Box<EntryError>,
    },
}

/// Why a feed does not lead to a dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// It cannot be fetched.
    #[error("cannot fetch the feed {name}: {error}")]
    Fetch {
        /// The feed.
        name: String,
        /// The server's error.
        #[source]
        error: LaneError,
    },
    /// It is invalid.
    #[error("{name}: {error}")]
    Parse {
        /// The feed.
        name: String,
        /// The error.
        #[source]
        error: feed::FeedError,
    },
    /// It announces nothing that can be fetched.
    #[error("{0} announces no torrent and no Metalink")]
    Nothing(String),
    /// It announces other datasets.
    #[error("{name} does not announce {wanted}, but {}", datasets.join(", "))]
    Unknown {
        /// The feed.
        name: String,
        /// The wanted dataset.
        wanted: String,
        /// Those that it announces.
        datasets: Vec<String>,
    },
    /// It announces several datasets, and none was named.
    #[error("{name} announces several datasets: {}", datasets.join(", "))]
    Several {
        /// The feed.
        name: String,
        /// Those that it announces.
        datasets: Vec<String>,
    },
}

/// Why a torrent is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TorrentError {
    /// Its metafile cannot be read.
    #[error("cannot read {name}: {error}")]
    Read {
        /// The metafile.
        name: String,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// Its metafile is too large.
    #[error("{name} has {bytes} bytes, no torrent file is so large")]
    TooLarge {
        /// The metafile.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// Its metafile cannot be fetched.
    #[error("cannot fetch the torrent {name}: {error}")]
    Fetch {
        /// The metafile.
        name: String,
        /// The server's error.
        #[source]
        error: LaneError,
    },
    /// Not a magnet link.
    #[error("not a magnet link that can be used: {0}")]
    Magnet(#[source] MagnetError),
    /// Nobody can be asked for the metafile of a magnet link.
    #[error("the magnet link names no tracker and no peer, and no torrent file (xs)")]
    NoPeers,
    /// A magnet link, and no peer may be asked.
    #[error("a magnet link is described by peers, and no peers are asked")]
    MagnetWithoutPeers,
    /// Nobody can be asked for the content of a torrent.
    #[error("the torrent names no mirror, and no peers are asked")]
    NoSources,
    /// The metafile that a magnet link names is that of another torrent.
    #[error("the torrent file that the magnet link names is that of another torrent")]
    OtherTorrent,
    /// The two info-hashes of a magnet link are not those of one hybrid torrent.
    #[error("the torrent has the v1 info-hash of the magnet link, but another v2 info-hash")]
    OtherHash,
    /// No peer has sent the metafile of a magnet link.
    #[error("no peer has sent the description of the torrent{}", asked(last.as_ref(), silent, failed))]
    NoMetadata {
        /// The last error of a peer.
        last: Option<PeerError>,
        /// Trackers that have not answered.
        silent: Vec<String>,
        /// Trackers that could not be asked, or refused.
        failed: Vec<(String, AnnounceError)>,
    },
    /// Where a file has to be written, there is a folder with its segments.
    #[error("{} is a folder with {found} of the {count} segments of this file", path.display())]
    InSegments {
        /// Where the file has to be written.
        path: PathBuf,
        /// How many segments are there.
        found: usize,
        /// How many there should be.
        count: usize,
        /// The folder of the dataset.
        folder: PathBuf,
    },
    /// None of its files is selected.
    #[error("no file of {name} matches; it has {}", listed(files, *count))]
    NothingSelected {
        /// The torrent.
        name: String,
        /// The paths of some of its files.
        files: Vec<String>,
        /// The number of its files.
        count: usize,
    },
    /// The address of a tracker is not one.
    #[error("the address of a tracker is neither http, https nor udp")]
    Tracker,
    /// The address of a peer has no port.
    #[error("peer {0} has no port")]
    PeerPort(String),
    /// The address of a peer cannot be found.
    #[error("peer {peer}: {error}")]
    Peer {
        /// As given.
        peer: String,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// Its metafile is invalid.
    #[error("{name}: {error}")]
    Parse {
        /// The metafile.
        name: String,
        /// The error.
        #[source]
        error: MetainfoError,
    },
}

/// Returns what became of those who were asked for the description of a torrent.
fn asked(
    last: Option<&PeerError>,
    silent: &[String],
    failed: &[(String, AnnounceError)],
) -> String {
    let mut text = last.map(|it| format!("; the last one: {it}")).unwrap_or_default();
    if !silent.is_empty() {
        text.push_str(&format!("; no answer came from {}", silent.join(", ")));
    }
    for (tracker, error) in failed {
        text.push_str(&format!("; {tracker}: {error}"));
    }
    text
}

/// Returns these names, of `count` altogether, as a list.
fn listed(names: &[String], count: usize) -> String {
    let all = names.join(", ");
    match count - names.len().min(count) {
        0 => all,
        more => format!("{all} and {more} more"),
    }
}

/// Why a checksum file is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChecksumsError {
    /// It cannot be fetched.
    #[error("cannot fetch the checksum file {name}: {error}")]
    Fetch {
        /// The checksum file.
        name: String,
        /// The server's error.
        #[source]
        error: LaneError,
    },
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The checksum file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// It does not list the file.
    #[error("{name} does not list {file}")]
    Silent {
        /// The checksum file.
        name: String,
        /// The file.
        file: String,
    },
    /// Its line for the file is unusable.
    #[error("{name}: line {line}: {file}: {problem}")]
    Line {
        /// The checksum file.
        name: String,
        /// The line.
        line: u64,
        /// The file.
        file: String,
        /// The error.
        #[source]
        problem: ChecksumProblem,
    },
}

/// Why a file of a list failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Unusable entry.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// Invalid headers.
    #[error(transparent)]
    Headers(#[from] NetError),
    /// Failed transfer.
    #[error("{error}")]
    Transfer {
        /// The error.
        #[source]
        error: Box<GetError>,
        /// The kept data.
        kept: KeptData,
    },
    /// One server did not copy it from or to the other one, nor could it be sent through this machine.
    #[error("{0}")]
    Between(Box<CopyError>),
    /// The task panicked.
    #[error("internal error: the transfer ended without a result")]
    Internal,
}

impl FileError {
    /// Whether an event of the transfer reported it.
    pub fn is_reported(&self) -> bool {
        matches!(self, FileError::Transfer { kept, .. } if kept.is_reported)
    }
}

/// Why an entry of a list is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Unreadable list.
    #[error(transparent)]
    List(#[from] ListError),
    /// No file name.
    #[error("no file name in the address: add a line '  out=NAME' below it")]
    NoName,
    /// A name conflict with another file of the list.
    #[error(transparent)]
    Name(#[from] NameConflict),
    /// A refused file of a Metalink.
    #[error(transparent)]
    Refused(#[from] RefusedWhy),
    /// No usable mirror.
    #[error("no usable mirror{}", .0.as_ref().map_or(String::new(), |why| format!(" ({why})")))]
    NoMirror(Option<SkipReason>),
    /// Unusable piece digests, and no other digest.
    #[error("its piece digests are unusable, and there is no other digest: {0}")]
    Pieces(SkipReason),
    /// An unusable digest, and no other one.
    #[error("its digest is unusable, and there is no other one: {0}")]
    Digest(SkipReason),
    /// An invalid size, and no digest.
    #[error("its size is invalid, and there is no digest")]
    Size,
    /// An unsafe path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Refused in the listing of a folder.
    #[error(transparent)]
    Listing(#[from] Refusal),
    /// The listing of a folder failed.
    #[error(transparent)]
    Folder(#[from] LaneError),
    /// The answer is not the listing of a folder.
    #[error("the answer is not a folder listing")]
    NoListing,
    /// A listing with too many entries.
    #[error(
        "its listing is too long: of one folder at most {} entries are copied",
        listing::ENTRIES_MAX
    )]
    TooMany,
    /// A folder that another server has.
    #[error("it redirects to another server, which is not followed: copy {to} itself")]
    OtherServer {
        /// Its address there.
        to: String,
    },
    /// Folders with the same names inside one another.
    #[error(
        "{levels} folders above it have the same names in them, so links seem to lead in a circle: if they \
         do not, copy this folder itself"
    )]
    Repeats {
        /// The number of folders above it.
        levels: usize,
    },
    /// The walk through a web folder ended at a limit.
    #[error(transparent)]
    Limit(#[from] WalkLimit),
    /// A listing in several parts is incomplete.
    #[error("the next part of the listing is missing")]
    NoNextPart,
    /// A listing in several parts has a loop.
    #[error("the listing links back to itself")]
    Circle,
}

/// Limits of a walk through a web folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WalkLimit {
    /// Too many folders.
    #[error("its pages lead to more than {max} folders: copy its subfolders one by one")]
    Folders {
        /// The limit.
        max: u64,
    },
    /// Too many entries.
    #[error("its pages list more than {max} entries: copy its subfolders one by one")]
    Entries {
        /// The limit.
        max: u64,
    },
    /// A listing in too many parts.
    #[error("its listing has more than {max} parts: copy its subfolders one by one")]
    Parts {
        /// The limit.
        max: u64,
    },
    /// Too many folders wait to be read.
    #[error(
        "the names of its folders that are not read yet need more than {} MiB: copy its subfolders one by one",
        max_bytes >> 20
    )]
    Waiting {
        /// The limit.
        max_bytes: usize,
    },
}

/// Name conflicts between files of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameConflict {
    /// The same name.
    #[error("an earlier file of this list has the same name")]
    Same,
    /// A name that the file system takes for that of an earlier file.
    #[error(
        "the file system of its folder takes its name for that of an earlier file of this list: fetch it under another name, or into another folder"
    )]
    Alike,
    /// The name of a folder of other files.
    #[error("its name is that of a folder with other files of this list")]
    IsFolder,
    /// A folder with the name of another file.
    #[error("its folder has the name of another file of this list")]
    BelowFile,
}
