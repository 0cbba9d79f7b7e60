//! A source that is asked only for a part of what it holds.

use std::sync::Arc;
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, RangeSet, SourceName};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use url::Url;

use crate::error::LaneError;
use crate::facts::Facts;
use crate::lane::LaneEvent;
use crate::source::{Expected, Lane, Limits, Pending, RelayMode, Relaying, Source, Trust};

/// What a source holds, as it changes.
pub type Holdings = watch::Receiver<RangeSet>;

/// A source that is asked only for what lies in a set that changes. It leaves when the sender of the set
/// ends.
#[derive(Debug)]
pub struct Narrowed {
    inner: Arc<dyn Source>,
    wanted: Holdings,
    holdings: Holdings,
}

impl Narrowed {
    /// Returns `inner`, to be asked only for what is `wanted`. Must be called within a tokio runtime.
    pub fn to(inner: Arc<dyn Source>, wanted: Holdings) -> Arc<dyn Source> {
        let holdings = match inner.holdings() {
            None => wanted.clone(),
            Some(held) => of_both(held, wanted.clone()),
        };
        Arc::new(Narrowed { inner, wanted, holdings })
    }
}

/// Follows both; ends with either.
fn of_both(mut one: Holdings, mut other: Holdings) -> Holdings {
    let both = |one: &mut Holdings, other: &mut Holdings| {
        intersection(&one.borrow_and_update(), &other.borrow_and_update())
    };
    let (sender, receiver) = watch::channel(both(&mut one, &mut other));
    tokio::spawn(async move {
        loop {
            let changed = tokio::select! {
                changed = one.changed() => changed,
                changed = other.changed() => changed,
                () = sender.closed() => return,
            };
            if changed.is_err() {
                return;
            }
            sender.send_replace(both(&mut one, &mut other));
        }
    });
    receiver
}

impl Source for Narrowed {
    fn name(&self) -> &SourceName {
        self.inner.name()
    }

    fn url(&self) -> &Url {
        self.inner.url()
    }

    fn trust(&self) -> Trust {
        self.inner.trust()
    }

    fn expect(&self, expected: Expected) {
        self.inner.expect(expected);
    }

    fn describe(&self) -> Pending<'_, Result<Facts, LaneError>> {
        self.inner.describe()
    }

    fn fetch_part(&self, range: Range) -> Pending<'_, Result<(Facts, Vec<u8>), LaneError>> {
        self.inner.fetch_part(range)
    }

    fn open_lane(
        self: Arc<Self>,
        lane: LaneId,
        pool: &Pool,
        events: UnboundedSender<LaneEvent>,
    ) -> Box<dyn Lane> {
        Arc::clone(&self.inner).open_lane(lane, pool, events)
    }

    fn renewed(&self) -> Arc<dyn Source> {
        Narrowed::to(self.inner.renewed(), self.wanted.clone())
    }

    fn holdings(&self) -> Option<Holdings> {
        Some(self.holdings.clone())
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn relaying(&self) -> Option<Relaying> {
        self.inner.relaying()
    }

    fn by_way_of(&self, relays: &[Url], mode: RelayMode, far: Duration) -> Option<Arc<dyn Source>> {
        Some(Narrowed::to(self.inner.by_way_of(relays, mode, far)?, self.wanted.clone()))
    }

    fn has_secrets(&self) -> bool {
        self.inner.has_secrets()
    }

    fn take_one_answer(&self) {
        self.inner.take_one_answer();
    }

    fn end_was_cut(&self) -> bool {
        self.inner.end_was_cut()
    }
}

/// Returns the bytes of `set` that lie in `within`.
fn intersection(set: &RangeSet, within: &RangeSet) -> RangeSet {
    within.iter().flat_map(|range| set.within(range).collect::<Vec<_>>()).collect()
}
