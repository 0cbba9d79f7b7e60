//! Events of jobs.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use swath_formats::metalink::SkipReason;
use swath_formats::mirror_url::MirrorUrlError;
use swath_formats::torrent::Unused;
use swath_model::digest::Algorithm;
use swath_source::LaneError;
use swath_source::peer::PeerError;
use swath_state::KeepError;
use swath_swarm::{AnnounceError, SwarmsError};
use swath_transfer::observe::Event;

use crate::copy::NotDelegated;
use crate::error::{FileError, JobError, MetalinkError, NotShared, TorrentError};
use crate::history::Deadline;

/// An event of a job.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobEvent {
    /// An event of the current transfer.
    Transfer(Event),
    /// A note about the job.
    Note(Note),
    /// A copy has begun.
    CopyStarted {
        /// Whether it is a single file.
        is_single: bool,
    },
    /// A planned change of a dry run.
    Planned {
        /// The bytes to copy; `None` if the path would be removed.
        bytes: Option<u64>,
        /// The path below the destination, as bytes.
        path: Vec<u8>,
        /// Whether it is a folder that would be made.
        is_folder: bool,
        /// The path that this is another hard link to.
        further_of: Option<Vec<u8>>,
    },
    /// A list has begun.
    ListStarted {
        /// The name of the list.
        title: String,
        /// The number of its files, if known.
        count: Option<u64>,
    },
    /// An event of the transfer of a file of the list.
    File {
        /// Its position in the list, from 0.
        file: u64,
        /// The event.
        event: Event,
    },
    /// A part of a list entry is ignored.
    FileWarning {
        /// Its position in the list.
        file: u64,
        /// The ignored part.
        warning: ListWarning,
    },
    /// A file of the list is complete.
    FileDone(u64),
    /// A file of the list was cancelled.
    FileStopped(u64),
    /// A file of the list failed.
    FileFailed {
        /// Its position in the list.
        file: u64,
        /// Its name, or its position in the list.
        name: String,
        /// The error.
        error: FileError,
    },
    /// The list has ended.
    ListEnded {
        /// Whether no file was left out.
        is_whole: bool,
    },
}

/// Why a copy between servers goes through this machine, though the user did not ask for that.
#[derive(Debug)]
pub enum ThroughHere {
    /// What opens a source cannot be given to the other server.
    NotDelegated {
        /// The source.
        address: String,
        /// Why.
        why: NotDelegated,
    },
    /// A server does not copy from or to others, or is not allowed to.
    NotOffered {
        /// The server.
        address: String,
        /// Its answer.
        error: Box<LaneError>,
    },
    /// A server did not copy from or to the other one.
    Failed {
        /// The server.
        address: String,
        /// In its words.
        why: String,
    },
    /// Neither server copies from or to the other one.
    Neither(Vec<ThroughHere>),
}

impl ThroughHere {
    /// Whether a token is missing, not the service.
    pub(crate) fn is_about_tokens(&self) -> bool {
        matches!(self, ThroughHere::NotDelegated { .. })
    }
}

/// Notes about a job.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// The history of transfers cannot be used; there is no forecast.
    NoHistory(KeepError),
    /// The transfer may end too late.
    Deadline(Deadline),
    /// The transfer took longer than its deadline allowed.
    DeadlineMissed {
        /// What it allowed, in seconds.
        within_s: f64,
        /// How long it took, in seconds.
        took_s: f64,
    },
    /// A Metalink is slow.
    WaitingForMetalink(String),
    /// The source is a Metalink.
    Metalink {
        /// Its name.
        name: String,
        /// The number of its files.
        files: u64,
        /// The number of its addresses.
        mirrors: u64,
    },
    /// No peer is connected yet, and there is no mirror.
    WaitingForPeers {
        /// The number of addresses that were not reached.
        failed: usize,
        /// The last of them, and why.
        last: Option<(SocketAddr, PeerError)>,
    },
    /// Options for peers change nothing: the source is no torrent with peers or trackers.
    NoTorrent,
    /// The peers that the user names are not asked: the torrent is private, and only its trackers name
    /// peers.
    PrivateTorrent,
    /// Peers are asked for the description of a torrent.
    WaitingForMetadata,
    /// The port at which peers were to reach us is not free; another one is used.
    OtherPort(SwarmsError),
    /// Peers cannot be used; the job continues with mirrors only.
    WithoutPeers(SwarmsError),
    /// A tracker does not answer, or refuses.
    TrackerFailed {
        /// Its scheme, host and port.
        tracker: String,
        /// The error.
        error: AnnounceError,
    },
    /// A tracker has something to say to users.
    TrackerWarns {
        /// Its scheme, host and port.
        tracker: String,
        /// In its words.
        text: String,
    },
    /// An address in a magnet link has no torrent file of it; others are asked.
    WithoutMetafile(TorrentError),
    /// A torrent file or a magnet link says things that are not used.
    TorrentUnused {
        /// Its name.
        name: String,
        /// These.
        unused: Vec<Unused>,
    },
    /// Names of a torrent are not UTF-8; bytes of them are written as `%DF`.
    OddNames {
        /// The torrent.
        name: String,
        /// The number of names.
        count: u64,
    },
    /// A peer is not let in any more.
    PeerBanned {
        /// Its address.
        address: IpAddr,
        /// What it did.
        why: String,
    },
    /// The file is fetched together with other machines, which connect here.
    Shared {
        /// The address.
        address: SocketAddr,
    },
    /// A machine is not known by this name, and is left out.
    NoSuchMachine {
        /// The name.
        name: String,
        /// The error of the system.
        error: io::Error,
    },
    /// No other machine with the token fetches the same.
    NobodyShares {
        /// Whether this machine fetched anything itself.
        has_fetched: bool,
    },
    /// A machine delivered wrong bytes, or vouched for wrong ones, and is asked for nothing any more.
    MachineBanned {
        /// Its address.
        address: SocketAddr,
    },
    /// The file is fetched without other machines.
    NotShared(NotShared),
    /// A copy between servers goes through this machine.
    ThroughHere(ThroughHere),
    /// Of several replicas only one is used, because the data goes through this machine.
    OneReplica {
        /// Its address.
        used: String,
    },
    /// A server was given the token for another one, so that it copies from or to it.
    TokenGiven {
        /// The server.
        given_to: String,
        /// What the token opens.
        opens: String,
    },
    /// A web folder is not copied again: its links lead to one that is copied.
    SameFolder {
        /// Its path below the copied folder.
        folder: String,
        /// The address of the other one.
        same_as: String,
    },
    /// The file is complete. Other machines of the cluster lack some of it, and get it from here.
    PassingOn {
        /// Their number.
        machines: u64,
    },
    /// All is complete, and is seeded.
    Seeding {
        /// Until so many sizes of the content were sent; without it until the job is cancelled.
        ratio: Option<f64>,
    },
    /// Seeding has ended.
    Seeded {
        /// Bytes sent, from the beginning of the job.
        uploaded_bytes: u64,
    },
    /// The feed announces this as the newest version.
    Announced {
        /// The dataset.
        dataset: String,
        /// Its version.
        version: String,
    },
    /// A new version has the name of its dataset.
    Installed {
        /// The dataset.
        dataset: String,
        /// Its version.
        version: String,
        /// Its place.
        place: PathBuf,
    },
    /// The feed announces an older version than the installed one as the newest. It is not installed.
    FeedBackwards {
        /// The dataset.
        dataset: String,
        /// The announced version.
        version: String,
        /// The installed version.
        installed: String,
    },
    /// Files that were added to an old version were kept when it was removed.
    OldFilesKept {
        /// The dataset.
        dataset: String,
        /// Their number.
        files: u64,
        /// Where they are now.
        place: PathBuf,
    },
    /// An old version has so much of the content, at most.
    Unchanged {
        /// Bytes that the old version has.
        bytes: u64,
        /// Bytes of the new one.
        of_bytes: u64,
    },
    /// The source is a torrent.
    Torrent {
        /// Its name.
        name: String,
        /// The number of its files.
        files: u64,
        /// The number of files that are fetched, if not all.
        selected: Option<u64>,
        /// The number of its mirrors.
        mirrors: u64,
    },
    /// The server of the file offers a Metalink.
    MetalinkBeside {
        /// The number of its files.
        files: u64,
        /// The number of its addresses.
        mirrors: u64,
    },
    /// Entries of a Metalink are skipped.
    MetalinkSkipped {
        /// Its name.
        name: String,
        /// Their number.
        count: u64,
        /// The reason.
        reason: String,
    },
    /// Some files of a Metalink have unusable piece digests.
    MetalinkPieces {
        /// Its name.
        name: String,
        /// The number of these files.
        files: u64,
        /// The reason for the first file.
        reason: SkipReason,
    },
    /// A discovered Metalink has several files and is not used.
    MetalinkOfSeveral(String),
    /// A discovered Metalink is unusable; the job continues without it.
    WithoutMetalink(Box<JobError>),
    /// A Metalink cannot be fetched from one of its addresses; the next one is tried.
    MetalinkElsewhere(MetalinkError),
    /// Digests come from a checksum file.
    Checksums {
        /// Its name.
        name: String,
        /// The algorithms.
        algorithms: Vec<Algorithm>,
    },
    /// No checksum file next to a file lists it.
    NoChecksums(String),
    /// This program was copied to a remote host.
    Bootstrapped {
        /// The host.
        host: String,
        /// Its path there.
        path: String,
    },
    /// The port of a server started by ssh is unreachable: all data goes through ssh.
    OnlyBySsh {
        /// The host.
        host: String,
        /// Its port.
        port: u16,
        /// Whether ssh forwards the port; otherwise sshd forbids that.
        forwards: bool,
    },
    /// A server carries out the copy, whether this machine stays or not.
    Ordered {
        /// Its name there.
        job: String,
        /// The address of its destination, without secrets.
        at: String,
        /// It was begun by another order.
        ran_already: bool,
    },
    /// The kernel could not start `io_uring` workers, so the disk was written with threads.
    DiskThreads,
}

/// Ignored parts of list entries. Each kind is reported once, for its first file.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListWarning {
    /// An unknown option.
    Option {
        /// Its name.
        name: String,
        /// The line of the file.
        line: u64,
    },
    /// An unusable mirror.
    Mirror {
        /// The mirror as written.
        mirror: String,
        /// The line of the file.
        line: u64,
        /// The reason.
        reason: MirrorUrlError,
    },
}

/// Receives the events of a job: a screen, a recorder, a queue.
pub trait JobObserver: Send + Sync {
    /// Called for each event. Those of one file come in order; it must return quickly.
    fn observe(&self, event: JobEvent);
}

impl<F: Fn(JobEvent) + Send + Sync> JobObserver for F {
    fn observe(&self, event: JobEvent) {
        self(event);
    }
}
