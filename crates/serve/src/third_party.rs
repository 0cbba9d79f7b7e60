//! Copies in which this server fetches from other servers, while whoever asks for it only watches.
//!
//! The client orders (`POST /path/?swath=fetch&job=ID`, with the sources as JSON) and reads lines, as the
//! sender of a tree does. The job runs whether anybody reads or not: its owner may look later
//! (`GET /?swath=job&job=ID`), list all jobs (`GET /?swath=jobs`) and cancel one
//! (`POST /?swath=cancel&job=ID`).

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use swath_model::digest::Digest;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::http::{Content, Made, Make, Response};
use crate::receive::Destination;
use crate::site::{Rights, Who};

/// Runs such copies; given by whoever runs the server.
pub trait ThirdParty: Send + Sync {
    /// Returns what a client must know before it orders, as JSON.
    fn terms(&self) -> String;

    /// Begins a job, or finds the one that this owner has ordered by the same name, or that is the same copy.
    fn order(&self, order: FetchOrder) -> Result<OrderedJob, Refused>;

    /// Begins a copy of one file. Dropping what it returns cancels it.
    fn copy(&self, order: CopyOrder) -> Result<Copying, Refused>;

    /// Returns the lines of a job: those that are kept, and those that come.
    fn lines(&self, owner: Who, id: &str) -> Result<JobLines, Refused>;

    /// Cancels a job.
    fn cancel(&self, owner: Who, id: &str) -> Result<(), Refused>;

    /// Returns the owner's jobs, as JSON.
    fn list(&self, owner: Who) -> Result<String, Refused>;

    /// Returns the names and paths of the jobs that an earlier run of the server has not ended.
    fn unfinished(&self) -> Vec<Unfinished>;

    /// Begins an unfinished job again, or ends it if there is no place for its data any more.
    fn resume(&self, id: &str, destination: Option<Destination>);
}

/// A copy that somebody who may write orders.
pub struct FetchOrder {
    /// Who orders it, and what they may do.
    pub rights: Rights,
    /// Its name, chosen by the client.
    pub id: String,
    /// Where it goes.
    pub destination: Destination,
    /// The path of that, as the client asked for it, without slashes at its ends.
    pub path: Vec<u8>,
    /// What the client wishes: names and values of the request's query.
    pub wishes: Vec<(String, String)>,
    /// The body of the request.
    pub sources: Vec<u8>,
}

/// The job of an order.
pub struct OrderedJob {
    /// Its name.
    pub id: String,
    /// Its lines.
    pub lines: JobLines,
}

/// A copy of one file that somebody orders by `COPY`.
pub struct CopyOrder {
    /// Who orders it.
    pub owner: Who,
    /// Which way it goes.
    pub way: CopyWay,
    /// The address at the other server.
    pub remote: String,
    /// Header fields for the other server, which may be secret.
    pub headers: Vec<(String, String)>,
    /// A file that is there already is replaced.
    pub overwrites: bool,
    /// Digests that the file must have.
    pub digests: Vec<Digest>,
}

/// Which way a file goes.
pub enum CopyWay {
    /// From the other server into this folder, under this name.
    Pull {
        /// The folder.
        folder: Destination,
        /// The name.
        name: String,
    },
    /// This file, to the other server.
    Push {
        /// The file.
        file: File,
    },
}

/// A copy that is under way.
pub struct Copying {
    /// Bytes that were transferred.
    pub bytes: watch::Receiver<u64>,
    /// Returns the addresses at the other server that connections were made to.
    pub remotes: Box<dyn Fn() -> Vec<SocketAddr> + Send>,
    /// How it ended: the error in words.
    pub end: oneshot::Receiver<Result<(), String>>,
    /// Cancels it when dropped.
    pub cancels: Box<dyn Send>,
}

/// A job that an earlier run of the server has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its name.
    pub id: String,
    /// The path of its destination, as its owner named it, without slashes at its ends.
    pub path: Vec<u8>,
    /// What its owner may do, as it was kept; `None` if that is not known.
    pub rights: Option<Rights>,
}

/// Lines of a job, without line ends.
pub type JobLines = Receiver<Arc<str>>;

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The order cannot be understood, or must not be carried out.
    Order(String),
    /// There is no such job.
    NoJob,
    /// The name is that of another job.
    Taken,
    /// Too much is under way.
    Busy(String),
    /// The server cannot keep jobs.
    Failed(String),
}

impl Refused {
    pub(crate) fn response(self) -> Response {
        match self {
            Refused::Order(why) => Response::text(400, why),
            Refused::NoJob => Response::text(404, "there is no such job here, or it has ended"),
            Refused::Taken => Response::text(409, "another job has this name"),
            Refused::Busy(why) => Response::text(503, why).with("retry-after", "5"),
            Refused::Failed(why) => Response::text(500, why),
        }
    }
}

/// Returns the answer with the lines of a job.
pub(crate) fn answer(lines: JobLines) -> Response {
    Response::empty(200)
        .with("content-type", "application/x-ndjson")
        .with("cache-control", "no-store")
        .containing(Content::Made(Box::new(LinesBody { lines })))
}

/// The lines of a job as a body. An empty line is a sign of life.
struct LinesBody {
    lines: JobLines,
}

impl Make for LinesBody {
    fn length(&self) -> Option<u64> {
        None
    }

    fn next(&mut self) -> Made<'_> {
        Box::pin(async {
            let first = match timeout(PULSE, self.lines.recv()).await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(Vec::new()),
                Err(_) => return Ok(b"\n".to_vec()),
            };
            let mut bytes = Vec::new();
            let mut next = Some(first);
            while let Some(line) = next {
                bytes.extend_from_slice(line.as_bytes());
                bytes.push(b'\n');
                let has_room = bytes.len() < PART_BYTES;
                next = has_room.then(|| self.lines.try_recv().ok()).flatten();
            }
            Ok::<_, io::Error>(bytes)
        })
    }
}

/// Whoever watches hears something so often.
const PULSE: Duration = Duration::from_secs(5);
/// Lines that wait are sent together up to about this size.
const PART_BYTES: usize = 16 << 10;
/// A longer list of sources is refused.
pub(crate) const SOURCES_BYTES_MAX: usize = 256 << 10;
