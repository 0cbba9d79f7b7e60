//! Fetches a file together with other machines of a cluster, which run the same job.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use swath_model::Range;
use swath_model::digest::Digest;
use swath_model::pieces::Pieces;
use swath_share::{Sameness, SharedContent, Sharing, Version};
use swath_source::{Facts, LaneError, Opening, Source};
use swath_transfer::{Destination, Discovery, Mirror, Overwrite, PickerKind, Request};
use tokio::time::timeout;

use super::GetJob;
use crate::cluster::{Membership, pass_on};
use crate::error::{JobError, NotShared};

/// This machine among those of the cluster.
pub struct Cluster<'a> {
    get_job: &'a GetJob<'a>,
    membership: Membership,
}

/// A file that is shared, and its place.
pub struct SharedFile {
    content: Arc<SharedContent>,
    path: PathBuf,
    /// Whether it was there before.
    is_old: bool,
}

/// A file that was there before the job.
pub struct Offer {
    path: PathBuf,
    mirrors: Vec<Mirror>,
    known: Known,
}

/// What is known of a file before any server is asked.
struct Known {
    digest: Option<Digest>,
    size_bytes: Option<u64>,
    piece_bytes: Option<u64>,
}

/// A mirror and its source.
type Opened = (Mirror, Arc<dyn Source>);

impl<'a> Cluster<'a> {
    /// Joins the cluster. Returns `None` if the job has no token, or if we cannot listen; the user then learns
    /// why.
    ///
    /// # Errors
    /// [`JobError::Engine`] if the network cannot be used, [`TorrentError::Tracker`] for an address that is
    /// none.
    pub async fn join(get_job: &'a GetJob<'a>) -> Result<Option<Cluster<'a>>, JobError> {
        let Some(token) = &get_job.cluster_token else { return Ok(None) };
        let membership = Membership::join(get_job.job, &get_job.get.swarm, token).await?;
        Ok(membership.map(|membership| Cluster { get_job, membership }))
    }

    /// Shares what this request fetches. Returns `None` if that is impossible; the user then learns why.
    pub async fn share(&self, request: &mut Request) -> Option<SharedFile> {
        let shared = self.shared(request).await;
        self.membership.tell(shared)
    }

    /// Shares a file that was there before.
    pub async fn offer(&self, offer: Offer) -> Option<SharedFile> {
        let Offer { path, mirrors, known } = offer;
        let opened = self.open(mirrors).0;
        let shared = self.sharing(&known, &opened).await.and_then(|sharing| {
            let whole = Some(path.clone());
            let content = self.membership.share(Sharing { whole, ..sharing })?;
            Ok(SharedFile { content, path, is_old: true })
        });
        let shared = self.membership.tell(shared)?;
        shared.content.meets_others(MEET_WITHIN).await;
        Some(shared)
    }

    async fn shared(&self, request: &mut Request) -> Result<SharedFile, NotShared> {
        let Destination::File(path) = &request.destination else {
            return Err(NotShared::Destination);
        };
        let path = path.clone();
        let (opened, unopened) = self.open(std::mem::take(&mut request.mirrors));
        // The transfer says why these cannot be used.
        request.mirrors = unopened;
        let content = self.sharing(&Known::of(request), &opened).await.and_then(|sharing| {
            request.size_bytes.get_or_insert(sharing.size_bytes);
            Ok(self.membership.share(sharing)?)
        });
        let content = match content {
            Ok(content) => content,
            Err(why) => {
                request.mirrors.extend(opened.into_iter().map(|(mirror, _)| mirror));
                return Err(why);
            }
        };
        let origins = opened.into_iter().map(|(_, source)| content.origin(source));
        request.sources.extend(origins);
        request.discovery = Some(Arc::clone(&content) as Arc<dyn Discovery>);
        request.plan.picker = PickerKind::RarestFirst;
        request.plan.seed = fastrand::u64(..);
        Ok(SharedFile { content, path, is_old: false })
    }

    /// Opens mirrors; those that cannot be opened come second.
    fn open(&self, mirrors: Vec<Mirror>) -> (Vec<Opened>, Vec<Mirror>) {
        let net = self.get_job.job.engine.net();
        let (mut opened, mut unopened) = (Vec::new(), Vec::new());
        for mirror in mirrors {
            let opening = Opening { net, url: &mirror.url, trust: mirror.trust, sealed: None };
            match swath_source::open(opening) {
                Ok(source) => opened.push((mirror, source)),
                Err(_) => unopened.push(mirror),
            }
        }
        (opened, unopened)
    }

    /// Returns what identifies the content: what the user knows of it, and the first server that answers.
    async fn sharing(&self, known: &Known, opened: &[Opened]) -> Result<Sharing, NotShared> {
        let of = |sameness, size_bytes, version| {
            let sharing = self.membership.sharing(sameness, size_bytes);
            Sharing { piece_bytes: known.piece_bytes, version, ..sharing }
        };
        let mut error = None;
        for (mirror, source) in opened {
            let facts = match described(&**source).await {
                Ok(facts) => facts,
                Err(failed) => {
                    error.get_or_insert(failed);
                    continue;
                }
            };
            let size_bytes = facts.size_bytes.ok_or(NotShared::NoSize)?;
            if !facts.ranges {
                return Err(NotShared::NoRanges);
            }
            let sameness = Sameness::find(known.digest, &mirror.url, &facts);
            let Facts { etag, last_modified, .. } = facts;
            let version = Version { etag, last_modified };
            return Ok(of(sameness.ok_or(NotShared::NoVersion)?, size_bytes, version));
        }
        // Perhaps others have it all.
        match (known.digest, known.size_bytes) {
            (Some(digest), Some(size_bytes)) => {
                Ok(of(Sameness::Digest(digest), size_bytes, Version::default()))
            }
            _ => Err(error.map_or(NotShared::NoMirror, NotShared::Unreached)),
        }
    }
}

impl SharedFile {
    /// The file is at its place: passes it on until the others are done, and for longer if that is wanted.
    pub async fn pass_on(&self, get_job: &GetJob<'_>) {
        self.content.completed(&self.path);
        let size_bytes = self.path.metadata().map_or(0, |about| about.len());
        let (swarm, has_fetched) = (&get_job.get.swarm, !self.is_old);
        pass_on(get_job.job, swarm, &self.content, size_bytes, has_fetched).await;
    }
}

impl Offer {
    /// Returns the file of a request if one with its name is there, which is to be kept.
    pub fn of(request: &Request) -> Option<Offer> {
        let Destination::File(path) = &request.destination else { return None };
        let is_kept = request.overwrite == Overwrite::Never && path.exists();
        is_kept.then(|| Offer {
            path: path.clone(),
            mirrors: request.mirrors.clone(),
            known: Known::of(request),
        })
    }
}

impl Known {
    fn of(request: &Request) -> Known {
        Known {
            digest: request.known_digests().max_by_key(|digest| digest.as_bytes().len()),
            size_bytes: request.size_bytes,
            piece_bytes: request.pieces.as_ref().map(Pieces::length_bytes),
        }
    }
}

/// Returns what a server says of its file. One that knows no digest reads all of the file for one; without
/// one it answers at once.
async fn described(source: &dyn Source) -> Result<Facts, LaneError> {
    match timeout(DESCRIBES_WITHIN, source.describe()).await {
        Ok(described) => described,
        Err(_) => Ok(source.fetch_part(Range::new(0, 1)).await?.0),
    }
}

/// Others are heard within this time, if they are there.
const MEET_WITHIN: Duration = Duration::from_secs(2);
/// A server that reads all of the file for its digest is not waited for any longer.
const DESCRIBES_WITHIN: Duration = Duration::from_secs(10);
