//! Copies a tree together with other machines of a cluster, which run the same job.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use swath_share::{Sameness, SharedContent, Sharing};
use swath_source::{UNIT_BYTES, sealed_bytes};
use swath_transfer::{Discovery, IndexedTree, TreeDiscovery};

use crate::cluster::{Membership, pass_on};
use crate::error::JobError;
use crate::run::{Job, Jobs};
use crate::spec::{ClusterSpec, SwarmSpec};

/// The trees of a job that are shared: one for each index, should the source change meanwhile.
pub struct SharedTrees {
    membership: Membership,
    swarm: SwarmSpec,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    trees: BTreeMap<[u8; 32], Arc<SharedContent>>,
    /// The size of the sealed file of the latest, and its index.
    latest: Option<(u64, [u8; 32])>,
}

impl SharedTrees {
    /// Joins the cluster. Returns `None` if we cannot listen; the user then learns why.
    ///
    /// # Errors
    /// As [`Membership::join`], and a token that cannot be read.
    pub async fn join(
        jobs: &Jobs,
        job: &Job<'_>,
        cluster: &ClusterSpec,
    ) -> Result<Option<Arc<SharedTrees>>, JobError> {
        let (token, swarm) = (jobs.secret(&cluster.token)?, cluster.swarm.clone());
        let membership = Membership::join(job, &swarm, &token).await?;
        let of = |membership| SharedTrees { membership, swarm, shared: Mutex::default() };
        Ok(membership.map(|membership| Arc::new(of(membership))))
    }

    /// The tree is complete: passes it on until the others are done, and for longer if that is wanted.
    /// `has_fetched` is whether some of it came in this run.
    pub async fn pass_on(&self, job: &Job<'_>, has_fetched: bool) {
        let latest = {
            let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            let latest = shared.latest;
            latest.and_then(|(size, digest)| Some((size, Arc::clone(shared.trees.get(&digest)?))))
        };
        if let Some((size_bytes, content)) = latest {
            pass_on(job, &self.swarm, &content, size_bytes, has_fetched).await;
        }
    }
}

impl TreeDiscovery for SharedTrees {
    fn of(&self, tree: IndexedTree) -> Option<Arc<dyn Discovery>> {
        let IndexedTree { index_digest, plain_bytes, length } = tree;
        let size_bytes = sealed_bytes(plain_bytes);
        // There is nothing to share.
        if size_bytes == 0 {
            return None;
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let content = match shared.trees.get(&index_digest) {
            Some(content) => Arc::clone(content),
            None => {
                let sharing = self.membership.sharing(Sameness::Index(index_digest), size_bytes);
                // A unit has whole groups.
                let (piece_bytes, sealed) = (Some(UNIT_BYTES), Some(length));
                let content = self.membership.share(Sharing { piece_bytes, sealed, ..sharing });
                self.membership.tell(content.map_err(Into::into))?
            }
        };
        shared.trees.insert(index_digest, Arc::clone(&content));
        shared.latest = Some((size_bytes, index_digest));
        Some(content)
    }
}

impl fmt::Debug for SharedTrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTrees").finish_non_exhaustive()
    }
}
