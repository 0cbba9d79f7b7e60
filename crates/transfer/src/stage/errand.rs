//! One fetch of one depot, and from which replica.

use swath_model::{LaneId, Range, SwathId};
use swath_source::{DepotError, DepotWish, Fetched, Net};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::Replica;

/// What is heard of an errand.
#[derive(Debug)]
pub(super) struct Said {
    pub lane: LaneId,
    pub swath: SwathId,
    pub word: Result<Fetched, DepotError>,
}

/// A fetch that is under way; dropped, it ends.
pub(super) struct Errand {
    _task: AbortOnDropHandle<()>,
}

impl Errand {
    /// Send a depot to a replica for `range`; what it tells goes to `words`, the last of which is that
    /// it is done, or an error.
    pub fn begin(
        net: &Net,
        write: &Url,
        replica: &Replica,
        range: Range,
        (lane, swath): (LaneId, SwathId),
        words: UnboundedSender<Said>,
    ) -> Errand {
        let (net, write, replica) = (net.clone(), write.clone(), replica.clone());
        let task = tokio::spawn(async move {
            let say = |word| {
                let is_last = !matches!(word, Ok(Fetched::Came(_) | Fetched::Stored(_)));
                // Nobody hears it where the round is over.
                words.send(Said { lane, swath, word }).is_err() || is_last
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
                    say(Err(error));
                    return;
                }
            };
            loop {
                let word = fetch.next().await;
                let is_done = matches!(word, Ok(Fetched::Done));
                if say(word) {
                    if is_done {
                        fetch.put_aside().await;
                    }
                    return;
                }
            }
        });
        Errand { _task: AbortOnDropHandle::new(task) }
    }
}

/// The replicas as one depot knows them: it goes on to the next one when the present one fails it.
#[derive(Clone, Debug, Default)]
pub(super) struct Mirrors {
    /// Which may be used.
    open: Vec<bool>,
    at: usize,
    strikes: u32,
}

impl Mirrors {
    /// Depots begin with different ones.
    pub fn new(depot: usize, open: Vec<bool>) -> Mirrors {
        let at = depot % open.len().max(1);
        let mut mirrors = Mirrors { open, at, strikes: 0 };
        if !mirrors.open.get(at).copied().unwrap_or(false) {
            mirrors.turn();
        }
        mirrors
    }

    /// The one to fetch from.
    pub fn present(&self) -> Option<usize> {
        self.open.get(self.at).is_some_and(|is_open| *is_open).then_some(self.at)
    }

    /// It has brought something.
    pub fn brought(&mut self) {
        self.strikes = 0;
    }

    /// It could not be had, perhaps only now.
    pub fn failed(&mut self, may_pass: bool) {
        self.strikes += 1;
        if !may_pass || self.strikes >= STRIKES {
            if let Some(open) = self.open.get_mut(self.at) {
                *open = false;
            }
            self.turn();
        } else if self.strikes > 1 {
            self.turn_to_another();
        }
    }

    fn turn(&mut self) {
        self.strikes = 0;
        self.turn_to_another();
    }

    fn turn_to_another(&mut self) {
        let count = self.open.len();
        let next = (1..=count).map(|step| (self.at + step) % count).find(|&at| self.open[at]);
        self.at = next.unwrap_or(self.at);
    }
}

/// A replica that a depot could not have so often in a row is none of its any more.
const STRIKES: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depot_goes_on_to_the_next_replica_until_none_is_left() {
        let mut mirrors = Mirrors::new(4, vec![true, true, false]);
        assert_eq!(mirrors.present(), Some(1));
        mirrors.failed(true);
        assert_eq!(mirrors.present(), Some(1), "once is bad luck");
        mirrors.brought();
        mirrors.failed(false);
        assert_eq!(mirrors.present(), Some(0));
        for _ in 0..STRIKES {
            assert_eq!(mirrors.present(), Some(0));
            mirrors.failed(true);
        }
        assert_eq!(mirrors.present(), None);
        assert_eq!(Mirrors::new(0, vec![false]).present(), None);
        assert_eq!(Mirrors::default().present(), None);
    }
}
