//! Sources around a source: limits and faults for any kind.
//!
//! A [`Wrapper`] says when more may come and may change what does; [`Wrapped`] is the source that obeys
//! it. Its lanes ask the lane inside for small parts, one behind the other, so that whatever is held up
//! holds neither buffers nor unread data.

mod faulty;
mod lane;
mod limited;
mod narrowed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, RangeSet, SourceName};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use url::Url;

pub use faulty::{Fault, FaultPeriod, Faults};
pub use limited::Limit;
pub use narrowed::{Holdings, Narrowed};

use crate::error::LaneError;
use crate::facts::Facts;
use crate::lane::LaneEvent;
use crate::source::{Expected, Lane, Limits, Pending, RelayMode, Relaying, Source, Trust};

/// What a wrapper does to the source inside.
pub trait Wrapper: fmt::Debug + Send + Sync + 'static {
    /// Its waiting in [`Wrapper::admit`] is our wish, and says nothing about the source.
    const IS_OURS: bool;

    /// Waits until up to `bytes` more bytes may be asked for, and returns how many.
    ///
    /// # Errors
    /// [`LaneError`] if none come; one that is [transient](crate::Class::Transient) ends the lane.
    fn admit(&self, bytes: u64) -> Pending<'_, Result<u64, LaneError>>;

    /// Waits for the answer to a description, a connection, or a request on an idle lane.
    ///
    /// # Errors
    /// [`LaneError`] if there is none.
    fn reach(&self) -> Pending<'_, Result<(), LaneError>> {
        Box::pin(async { Ok(()) })
    }

    /// Returns what it adds to the round trip.
    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Narrows what the source bears.
    fn limit(&self, _limits: &mut Limits) {}

    /// Changes what the source says of its file.
    fn change_facts(&self, _facts: &mut Facts) {}

    /// Changes bytes that came from `offset` on.
    fn change_bytes(&self, _offset: u64, _bytes: &mut [u8]) {}
}

/// A source with a wrapper around it.
#[derive(Debug)]
pub struct Wrapped<W> {
    inner: Arc<dyn Source>,
    wrapper: Arc<W>,
}

impl<W: Wrapper> Wrapped<W> {
    /// Puts `wrapper` around a source.
    pub fn around(inner: Arc<dyn Source>, wrapper: W) -> Arc<dyn Source> {
        Wrapped::with(inner, &Arc::new(wrapper))
    }

    fn with(inner: Arc<dyn Source>, wrapper: &Arc<W>) -> Arc<dyn Source> {
        Arc::new(Wrapped { inner, wrapper: Arc::clone(wrapper) })
    }
}

impl<W: Wrapper> Source for Wrapped<W> {
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
        Box::pin(async {
            self.wrapper.reach().await?;
            let mut facts = self.inner.describe().await?;
            self.wrapper.change_facts(&mut facts);
            Ok(facts)
        })
    }

    fn ask_for_digest(&self, work: Duration) -> Pending<'_, Result<Facts, LaneError>> {
        Box::pin(async move {
            self.wrapper.reach().await?;
            let mut facts = self.inner.ask_for_digest(work).await?;
            self.wrapper.change_facts(&mut facts);
            Ok(facts)
        })
    }

    fn fetch_part(&self, range: Range) -> Pending<'_, Result<(Facts, Vec<u8>), LaneError>> {
        Box::pin(async move {
            self.wrapper.reach().await?;
            let mut left = range.len();
            while left > 0 {
                left -= self.wrapper.admit(left).await?;
            }
            let (mut facts, mut bytes) = self.inner.fetch_part(range).await?;
            self.wrapper.change_facts(&mut facts);
            self.wrapper.change_bytes(range.start, &mut bytes);
            Ok((facts, bytes))
        })
    }

    fn open_lane(
        self: Arc<Self>,
        lane: LaneId,
        pool: &Pool,
        events: UnboundedSender<LaneEvent>,
    ) -> Box<dyn Lane> {
        lane::open(&self.inner, &self.wrapper, lane, pool, events)
    }

    fn renewed(&self) -> Arc<dyn Source> {
        Wrapped::with(self.inner.renewed(), &self.wrapper)
    }

    fn holdings(&self) -> Option<watch::Receiver<RangeSet>> {
        self.inner.holdings()
    }

    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        self.wrapper.limit(&mut limits);
        limits
    }

    fn relaying(&self) -> Option<Relaying> {
        self.inner.relaying()
    }

    fn by_way_of(&self, relays: &[Url], mode: RelayMode, far: Duration) -> Option<Arc<dyn Source>> {
        let routed = self.inner.by_way_of(relays, mode, far)?;
        Some(Wrapped::with(routed, &self.wrapper))
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
