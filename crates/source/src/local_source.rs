//! Sources that are read at an offset, without a protocol between: files of this machine, memory, and
//! whatever else implements [`ReadAt`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, RangeSet, SourceName};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use url::Url;

use crate::error::LaneError;
use crate::facts::Facts;
use crate::lane::LaneEvent;
use crate::lane::local::{self, SharedExpected};
use crate::source::{Expected, Lane, Pending, Source, Trust};

/// Something that is read at an offset.
pub trait ReadAt: fmt::Debug + Send + Sync + 'static {
    /// Connects to it, for a lane; answers with the round trip to it.
    ///
    /// # Errors
    /// [`LaneError`] if it cannot be reached.
    fn connect(&self) -> impl Future<Output = Result<Duration, LaneError>> + Send {
        async { Ok(NO_DISTANCE) }
    }

    /// Returns what it holds, where that changes; see [`Source::holdings`].
    fn holdings(&self) -> Option<watch::Receiver<RangeSet>> {
        None
    }

    /// Tells what is known of it now; asked before each swath.
    ///
    /// # Errors
    /// [`LaneError`] if it is not there (any more).
    fn facts(&self) -> impl Future<Output = Result<Facts, LaneError>> + Send;

    /// Returns the most bytes of one read: orders to a lane are heard between reads.
    fn part_bytes(&self) -> u64 {
        PART_BYTES
    }

    /// Reads into `space`, which is not empty, from `offset` on, and returns how many bytes that were.
    /// `offset` lies below the size that it has told.
    ///
    /// # Errors
    /// [`LaneError`] if nothing can be read there. One that is [transient](crate::Class::Transient) ends
    /// the lane, as where a connection breaks.
    fn read_at(
        &self,
        offset: u64,
        space: &mut [u8],
    ) -> impl Future<Output = Result<usize, LaneError>> + Send;
}

/// A replica that is read at an offset.
#[derive(Debug)]
pub struct LocalSource<R> {
    name: SourceName,
    url: Url,
    content: Arc<R>,
    expected: Arc<SharedExpected>,
}

impl<R: ReadAt> LocalSource<R> {
    /// Returns the replica at `url`, with this content.
    pub fn new(url: Url, content: Arc<R>) -> Arc<LocalSource<R>> {
        let name = SourceName::direct(crate::shown::display_name(&url));
        Arc::new(LocalSource { name, url, content, expected: Arc::default() })
    }
}

impl<R: ReadAt> Source for LocalSource<R> {
    fn name(&self) -> &SourceName {
        &self.name
    }

    fn url(&self) -> &Url {
        &self.url
    }

    fn trust(&self) -> Trust {
        Trust::Named
    }

    fn expect(&self, expected: Expected) {
        self.expected.set(&expected);
    }

    fn holdings(&self) -> Option<watch::Receiver<RangeSet>> {
        self.content.holdings()
    }

    fn describe(&self) -> Pending<'_, Result<Facts, LaneError>> {
        Box::pin(async {
            self.content.connect().await?;
            self.content.facts().await
        })
    }

    fn fetch_part(&self, range: Range) -> Pending<'_, Result<(Facts, Vec<u8>), LaneError>> {
        Box::pin(local::part(&*self.content, range))
    }

    fn open_lane(
        self: Arc<Self>,
        lane: LaneId,
        pool: &Pool,
        events: UnboundedSender<LaneEvent>,
    ) -> Box<dyn Lane> {
        local::open(Arc::clone(&self.content), Arc::clone(&self.expected), lane, pool, events)
    }

    fn renewed(&self) -> Arc<dyn Source> {
        LocalSource::new(self.url.clone(), Arc::clone(&self.content))
    }
}

/// There is nothing between: a round trip that the planner can reckon with.
const NO_DISTANCE: Duration = Duration::from_micros(50);
/// Read at a time, so that orders are heard meanwhile.
const PART_BYTES: u64 = 256 << 10;
