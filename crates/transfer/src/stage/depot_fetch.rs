//! One fetch of one depot, and from which replica.

use swath_model::{LaneId, Range, SwathId};
use swath_source::{DepotError, DepotWish, Fetched, Net};
use tokio::sync::mpsc::Sender;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::Replica;

/// What is heard of an errand.
#[derive(Debug)]
pub(super) struct DepotReport {
    pub lane: LaneId,
    pub swath: SwathId,
    pub word: Result<Fetched, DepotError>,
}

/// A fetch that is under way; dropped, it ends.
pub(super) struct DepotFetch {
    _task: AbortOnDropHandle<()>,
}

impl DepotFetch {
    /// Send a depot to a replica for `range`; what it tells goes to `words`, the last of which is that
    /// it is done, or an error.
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
            // A depot that talks without end is not read any faster than it is heard.
            let say = async |word| {
                let is_last = !matches!(word, Ok(Fetched::Came(_) | Fetched::Stored(_)));
                // Nobody hears it where the round is over.
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

/// The replicas as one depot knows them: it goes on to the next one when the present one fails it. For
/// how long it may go on so is told by whoever asks: its lanes fail together when a server restarts, so
/// that a number of failures says nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirrors {
    /// Which may be used.
    open: Vec<bool>,
    at: usize,
    /// How many have failed one after another since something came.
    failed: usize,
}

impl Mirrors {
    /// Depots begin with different ones.
    pub fn new(depot: usize, open: Vec<bool>) -> Mirrors {
        let at = depot % open.len().max(1);
        let mut mirrors = Mirrors { open, at, failed: 0 };
        if mirrors.present().is_none() {
            mirrors.turn();
        }
        mirrors
    }

    /// The one to fetch from.
    pub fn present(&self) -> Option<usize> {
        self.open.get(self.at).is_some_and(|is_open| *is_open).then_some(self.at)
    }

    /// Whether there is another one than this.
    pub fn has_beside(&self, mirror: usize) -> bool {
        self.open.iter().enumerate().any(|(at, is_open)| *is_open && at != mirror)
    }

    /// Something has come.
    pub fn brought(&mut self) {
        self.failed = 0;
    }

    /// This one could not be had, perhaps only now: whether there is one to ask at once that has not
    /// failed since.
    pub fn failed(&mut self, mirror: usize, may_pass: bool) -> bool {
        if !may_pass && let Some(open) = self.open.get_mut(mirror) {
            *open = false;
        }
        // Otherwise another lane has gone on already.
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
