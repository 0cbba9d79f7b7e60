//! One fetch of one depot, and the choice of its replica.

use swath_model::{LaneId, Range, SwathId};
use swath_source::{DepotError, DepotWish, Fetched, Net};
use tokio::sync::mpsc::Sender;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::Replica;

/// A report on a fetch.
#[derive(Debug)]
pub(super) struct DepotReport {
    pub lane: LaneId,
    pub swath: SwathId,
    pub word: Result<Fetched, DepotError>,
}

/// A fetch under way, which ends when dropped.
pub(super) struct DepotFetch {
    _task: AbortOnDropHandle<()>,
}

impl DepotFetch {
    /// Has a depot fetch `range` from a replica. Its reports go to `words`; the last one says that
    /// it is done, or has an error.
    pub fn begin(
        net: &Net,
        write: &Url,
        replica: &Replica,
        range: Range,
        (lane, swath): (LaneId, SwathId),
        words: Sender<DepotReport>,
    ) -> DepotFetch {
        let (net, write, replica) = (net.clone(), write.clone(), replica.clone());
        let task = tokio::spawn(async move {
            // The bounded channel slows down a depot that reports without end.
            let say = async |word| {
                let is_last = !matches!(word, Ok(Fetched::Came(_) | Fetched::Stored(_)));
                // The send fails if the round is over.
                words.send(DepotReport { lane, swath, word }).await.is_err() || is_last
            };
            let wish = DepotWish {
                write: &write,
                from: &replica.url,
                trust: replica.trust,
                range,
                etag: replica.version.etag.as_deref(),
                modified: replica.version.last_modified.as_deref(),
            };
            let mut fetch = match net.depot_fetch(wish).await {
                Ok(fetch) => fetch,
                Err(error) => {
                    say(Err(error)).await;
                    return;
                }
            };
            loop {
                let word = fetch.next().await;
                let is_done = matches!(word, Ok(Fetched::Done));
                if say(word).await {
                    if is_done {
                        fetch.put_aside().await;
                    }
                    return;
                }
            }
        });
        DepotFetch { _task: AbortOnDropHandle::new(task) }
    }
}

/// The replicas that one depot uses: it changes to the next one when the present one fails. The
/// caller limits how long that goes on by time: all lanes fail together when a server restarts, so
/// the number of failures means nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirrors {
    /// Whether each may be used.
    open: Vec<bool>,
    at: usize,
    /// Replicas that failed in a row since bytes last came.
    failed: usize,
}

impl Mirrors {
    /// Starts with a replica that depends on the depot, to spread depots over replicas.
    pub fn new(depot: usize, open: Vec<bool>) -> Mirrors {
        let at = depot % open.len().max(1);
        let mut mirrors = Mirrors { open, at, failed: 0 };
        if mirrors.present().is_none() {
            mirrors.turn();
        }
        mirrors
    }

    /// Returns the replica to fetch from.
    pub fn present(&self) -> Option<usize> {
        self.open.get(self.at).is_some_and(|is_open| *is_open).then_some(self.at)
    }

    /// Returns whether there is another replica than this.
    pub fn has_beside(&self, mirror: usize) -> bool {
        self.open.iter().enumerate().any(|(at, is_open)| *is_open && at != mirror)
    }

    /// Notes that bytes have come.
    pub fn brought(&mut self) {
        self.failed = 0;
    }

    /// Notes that a replica failed, for good unless it `may_pass`. Returns whether another one that
    /// has not failed since can be tried at once.
    pub fn failed(&mut self, mirror: usize, may_pass: bool) -> bool {
        if !may_pass && let Some(open) = self.open.get_mut(mirror) {
            *open = false;
        }
        // Otherwise another lane has changed the replica already.
        if mirror == self.at {
            self.failed += usize::from(may_pass);
            self.turn();
        }
        self.failed < self.open.iter().filter(|is_open| **is_open).count()
    }

    fn turn(&mut self) {
        let count = self.open.len();
        let next = (1..=count).map(|step| (self.at + step) % count).find(|&at| self.open[at]);
        self.at = next.unwrap_or(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depot_goes_on_to_the_next_replica_until_none_is_left() {
        let mut mirrors = Mirrors::new(4, vec![true, true, false]);
        assert_eq!(mirrors.present(), Some(1));
        assert!(mirrors.failed(1, true), "the other one has not failed");
        assert_eq!(mirrors.present(), Some(0));
        assert!(!mirrors.failed(0, true), "both have");
        assert_eq!(mirrors.present(), Some(1));
        mirrors.brought();
        assert!(mirrors.failed(1, false));
        assert_eq!(mirrors.present(), Some(0));
        assert!(!mirrors.failed(0, false));
        assert_eq!(mirrors.present(), None);
        assert_eq!(Mirrors::new(0, vec![false]).present(), None);
        assert_eq!(Mirrors::default().present(), None);
    }

    #[test]
    fn lanes_that_fail_together_close_no_replica() {
        // Six strikes did, of four lanes: a server that restarted had every depot given up.
        let mut mirrors = Mirrors::new(0, vec![true]);
        for _ in 0..100 {
            assert!(!mirrors.failed(0, true), "there is no other one");
            assert_eq!(mirrors.present(), Some(0));
        }
        let mut mirrors = Mirrors::new(0, vec![true, true]);
        for _ in 0..4 {
            assert!(mirrors.failed(0, true), "they were all at the first one");
            assert_eq!(mirrors.present(), Some(1));
        }
        // What one of them is to blame for closes no other.
        mirrors.brought();
        assert!(mirrors.failed(0, false));
        assert_eq!(mirrors.present(), Some(1));
    }
}
