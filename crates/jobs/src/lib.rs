//! Jobs: fetches and copies as data, and running them.
//!
//! A [`JobSpec`] has a stable JSON form. [`Jobs`] runs it in an [`Environment`]: [`Jobs::start`]
//! returns a [`JobHandle`] with a stream of typed events, pause, resume, cancel and the result;
//! [`Jobs::run`] runs it within the caller's task. A job that is started again, in this process or
//! another, resumes from the disk, so a queue only has to store specifications.
//!
//! The library prints nothing, reads no environment variables and never exits. Errors are types; the
//! caller adds hints.

mod address;
pub mod board;
mod cluster;
mod control;
pub mod copy;
mod environment;
mod error;
mod event;
mod follow;
mod forecast;
mod get;
mod handle;
mod history;
mod kept;
mod options;
mod run;
mod secret;
mod spec;
pub mod ssh;
mod text;
mod tune;

pub use address::{Address, AddressError, parse_url, shown_text};
pub use control::Control;
pub use environment::{Environment, Streams};
pub use error::{
    ChecksumsError, EntryError, FeedError, FileCounts, FileError, JobError, MetalinkError,
    NameConflict, NoName, NotShared, SpecError, TorrentError, WalkLimit,
};
pub use event::{JobEvent, JobObserver, ListWarning, Note, ThroughHere};
pub use follow::{FollowError, FollowSpec, Follower, Look, Observers};
pub use forecast::JobForecast;
pub use get::{ServerNames, UnknownServerNames, checked_file, name_of, one_value_each};
pub use handle::{CannotPause, Events, JobHandle, JobState, StreamItem};
pub use history::{
    Deadline, Forecasts, Help, ImportError, ImportedLog, SiteBegin, begins, import_log, is_tuned,
    open_log,
};
pub use kept::{KeptData, KeptRecorder};
pub use options::{CertificateFiles, Disk, Header, Network, Plan, Relay, RouteChoice, Routes};
pub use run::{CONNECTIONS_PER_HOST, Jobs, Outcome};
pub use secret::{SecretError, SecretRef};
pub use spec::{
    ChecksumsFrom, ClusterSpec, Compare, CopySpec, GetFrom, GetSpec, GetTo, JobSpec, OldVersion,
    Preserve, Ssh, SwarmSpec, TorrentAt, Work,
};
pub use tune::{Trial, Tuned};
