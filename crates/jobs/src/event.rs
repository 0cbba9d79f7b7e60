//! What a job tells while it runs.

use swath_formats::metalink::SkipReason;
use swath_formats::mirror_url::MirrorUrlError;
use swath_model::digest::Algorithm;
use swath_transfer::observe::Event;

use crate::error::{FileError, JobError, MetalinkError};

/// Something that happened in a job.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobEvent {
    /// The only transfer of the job, or the one that is under way, tells something.
    Transfer(Event),
    /// Something about the job that no transfer tells.
    Note(Note),
    /// It is known what is copied.
    CopyStarted {
        /// It is a single file.
        is_single: bool,
    },
    /// With `dry_run`: this would be done.
    Planned {
        /// So many bytes would be copied; `None`: it would be removed.
        bytes: Option<u64>,
        /// The path below the destination, as bytes.
        path: Vec<u8>,
        /// It is another name of this file.
        further_of: Option<Vec<u8>>,
    },
    /// Several files are fetched from now on.
    ListStarted {
        /// What the list is called.
        title: String,
        /// How many files it has, where that is known.
        count: Option<u64>,
    },
    /// The transfer of a file of the list tells something.
    File {
        /// Its place in the list, from 0.
        file: u64,
        /// What it tells.
        event: Event,
    },
    /// Something of a file's entry in the list is passed over.
    FileWarning {
        /// Its place in the list.
        file: u64,
        /// What is passed over.
        warning: ListWarning,
    },
    /// A file of the list is complete, or was there.
    FileDone {
        /// Its place in the list.
        file: u64,
    },
    /// A file of the list was under way when the job was cancelled.
    FileStopped {
        /// Its place in the list.
        file: u64,
    },
    /// A file of the list cannot be fetched.
    FileFailed {
        /// Its place in the list.
        file: u64,
        /// Its name, as far as it has one.
        name: String,
        /// Why.
        error: FileError,
    },
    /// No file of the list is under way any more.
    ListEnded {
        /// All of them had their turn.
        is_whole: bool,
    },
}

/// Something about a job that no transfer tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// A Metalink takes its time.
    WaitingForMetalink {
        /// Where it is, credentials removed.
        name: String,
    },
    /// What was named is a Metalink.
    Metalink {
        /// Its name.
        name: String,
        /// Files in it.
        files: u64,
        /// Addresses in it.
        mirrors: u64,
    },
    /// The server of the file names a Metalink of it.
    MetalinkBeside {
        /// Files in it.
        files: u64,
        /// Addresses in it.
        mirrors: u64,
    },
    /// Entries of a Metalink are left out.
    MetalinkSkipped {
        /// Its name.
        name: String,
        /// How many.
        count: u64,
        /// Why.
        reason: String,
    },
    /// The piece digests of some files of a Metalink cannot be used.
    MetalinkPieces {
        /// Its name.
        name: String,
        /// How many files.
        files: u64,
        /// Why those of the first cannot.
        reason: SkipReason,
    },
    /// A Metalink that a server names describes several files, and is not used.
    MetalinkOfSeveral {
        /// Its name.
        name: String,
    },
    /// A Metalink that a server names cannot be used; the job goes on without it.
    WithoutMetalink {
        /// Why.
        error: Box<JobError>,
    },
    /// A Metalink cannot be had from one of its addresses; the next one is tried.
    MetalinkElsewhere {
        /// Why.
        error: MetalinkError,
    },
    /// Digests come from a checksum file.
    Checksums {
        /// Its name.
        name: String,
        /// Which digests.
        algorithms: Vec<Algorithm>,
    },
    /// No checksum file beside a file names it.
    NoChecksums {
        /// The file.
        name: String,
    },
    /// This program was put on a machine that ssh leads to.
    Bootstrapped {
        /// The machine.
        host: String,
        /// Where it lies there.
        path: String,
    },
    /// The port of a server that was started by ssh cannot be reached: everything goes through ssh.
    OnlyBySsh {
        /// The machine.
        host: String,
        /// Its port.
        port: u16,
        /// By ssh's forwarding; otherwise sshd there forbids that.
        forwards: bool,
    },
    /// The kernel could not start workers for `io_uring`, so the disk was written with threads.
    DiskThreads,
}

/// What is passed over in a file's entry of a list. Each kind is told once, at the first file that
/// has it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListWarning {
    /// An option that means nothing here.
    Option {
        /// Its name.
        name: String,
        /// Where the file stands in the list.
        line: u64,
    },
    /// A mirror that cannot be fetched.
    Mirror {
        /// As it stands in the list.
        mirror: String,
        /// Where the file stands in the list.
        line: u64,
        /// Why.
        reason: MirrorUrlError,
    },
}

/// Whoever wants to know: a screen, a recorder, a queue of events.
pub trait JobObserver: Send + Sync {
    /// Called for each event. Those of one file come in order; it must return quickly.
    fn observe(&self, event: JobEvent);
}

impl<F: Fn(JobEvent) + Send + Sync> JobObserver for F {
    fn observe(&self, event: JobEvent) {
        self(event);
    }
}
