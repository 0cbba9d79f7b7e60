//! A request for one file: its replicas, its destination, its digests.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use std::sync::Arc;
use swath_model::digest::{Algorithm, Digest, DigestError};
use swath_model::pieces::Pieces;
use swath_model::{Range, RangeSet, SourceName};
use swath_plan::Config;
use swath_source::{Source, Trust, display_name};
use swath_store::tree::SetFile;
use tokio::io::AsyncWrite;
use url::Url;

use crate::discovery::Discovery;
use crate::observe::DigestFrom;

/// One replica of the file.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// Its address.
    pub url: Url,
    /// Smaller is better (Metalink's order); only a tie-break, speed is measured.
    pub priority: u32,
    /// Its origin: the user's own sources get the user's credentials, discovered ones do not.
    pub trust: Trust,
    /// The part of the file that it has, if not all.
    pub holds: Option<RangeSet>,
}

impl Mirror {
    /// Returns its name as shown to users.
    pub(crate) fn name(&self) -> SourceName {
        SourceName::direct(display_name(&self.url))
    }
}

/// The destination of the bytes.
pub enum Destination {
    /// Into this file, by way of `NAME.swath.part`.
    File(PathBuf),
    /// Files below this folder.
    Tree(PathBuf),
    /// These files below this folder: the bytes are theirs, end to end in this order.
    Files {
        /// The folder.
        folder: PathBuf,
        /// Its files and links.
        files: Arc<[SetFile]>,
    },
    /// In order to this writer, within bounded memory.
    Writer(Box<dyn AsyncWrite + Send + Unpin>),
    /// Nowhere: only their rate matters. Nothing is checked.
    Nowhere {
        /// The bytes to fetch, as far as the file has them. Only a source's first answer may bring
        /// others.
        range: Range,
    },
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "File({})", path.display()),
            Self::Tree(path) => write!(f, "Tree({})", path.display()),
            Self::Files { folder, files } => {
                write!(f, "Files({}, {} files)", folder.display(), files.len())
            }
            Self::Writer(_) => f.write_str("Writer"),
            Self::Nowhere { range } => write!(f, "Nowhere({range:?})"),
        }
    }
}

/// What to do with a file that has the final name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Keep it: if it is the wanted file, all is done, otherwise that is an error.
    #[default]
    Never,
    /// Keep it if it is the wanted file, and replace it otherwise.
    IfOther,
    /// Replace it.
    Always,
}

/// One file to fetch.
#[derive(Debug)]
pub struct Request {
    /// Its replicas.
    pub mirrors: Vec<Mirror>,
    /// Further replicas, of kinds without an address.
    pub sources: Vec<Arc<dyn Source>>,
    /// Finds more of them while the transfer runs.
    pub discovery: Option<Arc<dyn Discovery>>,
    /// Its destination.
    pub destination: Destination,
    /// Its digests from the user: each is checked.
    pub digests: Vec<Digest>,
    /// Its digests from a Metalink: mirrors must agree with each, and the strongest is checked.
    /// Without any digest or pieces, those of the first server.
    pub told_digests: Vec<Digest>,
    /// Who named `told_digests` and `pieces`.
    pub told_by: DigestFrom,
    /// Digests of its pieces.
    pub pieces: Option<Pieces>,
    /// Its size, if known beforehand.
    pub size_bytes: Option<u64>,
    /// The modification time to give it.
    pub modified: Option<SystemTime>,
    /// What to do with an existing file.
    pub overwrite: Overwrite,
    /// Ask the servers whether an existing file is theirs, if no digest of it is known. Otherwise
    /// its name, and its size if known, are enough.
    pub ask_if_present: bool,
    /// End with [`crate::GetError::NoDigest`] if nothing proves the file.
    pub require_digest: bool,
    /// Resume from the data of an earlier run.
    pub resume: bool,
    /// The user's folder above the destination, if a Metalink or a list chose the rest of the path:
    /// no link below it is followed.
    pub beneath: Option<PathBuf>,
    /// Leave blocks of zeros as holes in the file, and allocate no space in advance.
    pub sparse: bool,
    /// Use mirrors that an answer names (`Link: rel=duplicate`).
    pub discover: bool,
    /// End with [`crate::GetError::Metalink`] when the first answer is a Metalink or names one (RFC
    /// 6249), so that the caller can read it and ask again. Otherwise Metalinks are ignored.
    pub metalinks: bool,
    /// Leave out a source that redirects to the same address with a `/` at its end: it is a folder,
    /// and only its listing would come.
    pub refuses_folders: bool,
    /// The configuration of the planner.
    pub plan: Config,
    /// End with an error when no source has delivered a byte for this long, in seconds. The clock
    /// stops while this machine holds the sources up: by the rate limit, the disk, or the reader of
    /// an ordered stream.
    pub stall_s: f64,
}

/// An invalid request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Not a URL.
    #[error("'{text}' is not a URL: {reason}")]
    Url {
        /// As given.
        text: String,
        /// The error.
        reason: String,
    },
    /// Not a digest.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

impl Request {
    /// Requests a file to write to `path`; add at least one replica.
    pub fn to_file(path: impl Into<PathBuf>) -> Self {
        Self::to(Destination::File(path.into()))
    }

    /// Requests a file to write in order to `writer`.
    pub fn to_writer(writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self::to(Destination::Writer(Box::new(writer)))
    }

    /// Requests files to write below `folder`: the content is theirs, end to end in this order.
    pub fn to_files(folder: impl Into<PathBuf>, files: impl Into<Arc<[SetFile]>>) -> Self {
        Self::to(Destination::Files { folder: folder.into(), files: files.into() })
    }

    /// Requests a part of the same file from the same replicas, only to learn its size and how fast it
    /// comes; it costs hardly more than the bytes of `range`.
    pub fn sample_of(&self, range: Range) -> Self {
        let mut request = Self::to(Destination::Nowhere { range });
        request.mirrors.clone_from(&self.mirrors);
        request.sources.clone_from(&self.sources);
        request.plan.clone_from(&self.plan);
        request.metalinks = self.metalinks;
        request.stall_s = self.stall_s;
        request.costs_no_more()
    }

    /// Fetches nothing twice, and little before the size is known.
    pub(crate) fn costs_no_more(mut self) -> Self {
        (self.discover, self.refuses_folders) = (false, true);
        self.plan.initial_chunk_bytes = self.plan.grid_bytes;
        (self.plan.waste_fraction, self.plan.waste_limit_bytes) = (0.0, 0);
        self
    }

    pub(crate) fn to(destination: Destination) -> Self {
        Self {
            mirrors: Vec::new(),
            sources: Vec::new(),
            discovery: None,
            destination,
            digests: Vec::new(),
            told_digests: Vec::new(),
            told_by: DigestFrom::Server,
            pieces: None,
            size_bytes: None,
            modified: None,
            overwrite: Overwrite::Never,
            ask_if_present: true,
            require_digest: false,
            resume: true,
            beneath: None,
            sparse: false,
            discover: true,
            metalinks: false,
            refuses_folders: false,
            plan: Config::default(),
            stall_s: 60.0,
        }
    }

    /// Adds a replica that the user names.
    ///
    /// # Errors
    /// [`RequestError::Url`] if `text` is no URL.
    pub fn url(mut self, text: &str) -> Result<Self, RequestError> {
        let url = Url::parse(text).map_err(|error| RequestError::Url {
            text: text.to_owned(),
            reason: error.to_string(),
        })?;
        self.mirrors.push(Mirror { url, priority: 1, trust: Trust::Named, holds: None });
        Ok(self)
    }

    /// Adds a replica of any kind.
    #[must_use]
    pub fn source(mut self, source: Arc<dyn Source>) -> Self {
        self.sources.push(source);
        self
    }

    /// Adds a digest, as `sha-256:HEX`.
    ///
    /// # Errors
    /// [`RequestError::Digest`] if `text` is no digest.
    pub fn digest(mut self, text: &str) -> Result<Self, RequestError> {
        self.digests.push(text.parse()?);
        Ok(self)
    }

    /// Returns every known digest of the whole.
    pub fn known_digests(&self) -> impl Iterator<Item = Digest> + '_ {
        self.digests.iter().chain(&self.told_digests).copied()
    }

    /// Returns two digests of one algorithm that contradict each other, if there are any.
    pub(crate) fn contradiction(&self) -> Option<(Digest, Digest)> {
        let all: Vec<Digest> = self.known_digests().collect();
        all.iter().enumerate().find_map(|(at, one)| {
            let other = all[at + 1..]
                .iter()
                .find(|other| other.algorithm() == one.algorithm() && *other != one)?;
            Some((*one, *other))
        })
    }

    /// Returns the digests of the whole to check, the preferred one first.
    pub(crate) fn checked_digests(&self) -> Vec<Digest> {
        let told = self.told_digests.iter().max_by_key(|digest| preference(digest.algorithm()));
        let mut checked: Vec<Digest> = self.digests.iter().chain(told).copied().collect();
        checked.sort_by_key(|digest| std::cmp::Reverse(preference(digest.algorithm())));
        checked.dedup();
        checked
    }

    /// Returns the destination as shown to users.
    pub fn destination_name(&self) -> String {
        match &self.destination {
            Destination::File(path)
            | Destination::Tree(path)
            | Destination::Files { folder: path, .. } => path.display().to_string(),
            Destination::Writer(_) | Destination::Nowhere { .. } => "-".to_owned(),
        }
    }
}

/// Returns the rank of a digest: one that can be computed in any order first, then the stronger,
/// then the faster.
fn preference(algorithm: Algorithm) -> u32 {
    match algorithm {
        Algorithm::Blake3 => 7,
        Algorithm::Sha256 => 6,
        Algorithm::Sha512 => 5,
        Algorithm::Sha1 => 4,
        Algorithm::Md5 => 3,
        Algorithm::Crc32c => 2,
        Algorithm::Adler32 => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digest_given_and_the_strongest_told_are_checked() {
        let digest =
            |algorithm, byte| Digest::new(algorithm, &vec![byte; algorithm.digest_bytes()]);
        let of = |algorithm| digest(algorithm, 1).unwrap();
        let mut request = Request::to_file("x");
        request.digests = vec![of(Algorithm::Md5), of(Algorithm::Sha256), of(Algorithm::Md5)];
        request.told_digests = vec![of(Algorithm::Sha1), of(Algorithm::Sha256)];
        assert_eq!(request.checked_digests(), [of(Algorithm::Sha256), of(Algorithm::Md5)]);
        assert_eq!(request.contradiction(), None);
        let other = digest(Algorithm::Sha1, 2).unwrap();
        request.digests.push(other);
        assert_eq!(request.contradiction(), Some((other, of(Algorithm::Sha1))));
    }
}
