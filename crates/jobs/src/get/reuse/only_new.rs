//! A source that is asked only for what the old version lacks.

use std::sync::Arc;
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, SourceName};
use swath_source::{
    Expected, Facts, Lane, LaneError, LaneEvent, Limits, Pending, RelayMode, Relaying, Source,
    Trust,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use url::Url;

use super::old_files::OldFiles;
use super::{Holdings, intersection};

/// A source beside an old version.
#[derive(Debug)]
pub struct OnlyNew {
    inner: Arc<dyn Source>,
    old: Arc<OldFiles>,
    holdings: Holdings,
}

impl OnlyNew {
    /// Returns `inner`, holding only what `old` lacks. Must be called within a tokio runtime.
    pub fn of(inner: Arc<dyn Source>, old: &Arc<OldFiles>) -> Arc<dyn Source> {
        let lacking = old.lacking();
        let holdings = match inner.holdings() {
            None => lacking,
            Some(held) => of_both(held, lacking),
        };
        Arc::new(OnlyNew { inner, old: Arc::clone(old), holdings })
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

impl Source for OnlyNew {
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
        OnlyNew::of(self.inner.renewed(), &self.old)
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
        Some(OnlyNew::of(self.inner.by_way_of(relays, mode, far)?, &self.old))
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
