//! The seam for sources: what is asked of anything that can deliver ranges of a file.
//!
//! A kind of source is one file that implements [`Source`], one line in `registry`, and a run of
//! [`crate::conformance`]. Whoever plans and executes transfers knows no kind.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use swath_model::{LaneId, Pool, Range, RangeSet, SourceName, SwathId};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use url::Url;

use crate::error::LaneError;
use crate::facts::Facts;
use crate::lane::{AfterTrim, LaneEvent, Meter};

/// One replica of a file: anything that can deliver ranges of it.
pub trait Source: fmt::Debug + Send + Sync {
    /// Its name as a user may see it: without credentials, query and fragment.
    fn name(&self) -> &SourceName;

    /// The address as given, credentials included: not for display.
    fn url(&self) -> &Url;

    /// Returns who named it.
    fn trust(&self) -> Trust;

    /// From now on every answer must fit this; a size that is `None` stays as it was.
    fn expect(&self, expected: Expected);

    /// Asks what it says of the file, beside all lanes and relays.
    ///
    /// # Errors
    /// [`LaneError`] if it does not answer, or has no such file.
    fn describe(&self) -> Pending<'_, Result<Facts, LaneError>>;

    /// Asks it for a digest of the whole file, as [`Source::describe`] does; it may work this long on one.
    fn ask_for_digest(&self, _work: Duration) -> Pending<'_, Result<Facts, LaneError>> {
        self.describe()
    }

    /// Fetches a small part of the file, beside all lanes and relays, with what the answer says of the
    /// whole.
    ///
    /// # Errors
    /// [`LaneError`] if that part, whole, does not come.
    fn fetch_part(&self, range: Range) -> Pending<'_, Result<(Facts, Vec<u8>), LaneError>>;

    /// Opens a lane, which reports to `events` under the number `lane`. Must be called within a tokio
    /// runtime.
    fn open_lane(
        self: Arc<Self>,
        lane: LaneId,
        pool: &Pool,
        events: UnboundedSender<LaneEvent>,
    ) -> Box<dyn Lane>;

    /// Returns the same source as if nothing were known of it yet.
    fn renewed(&self) -> Arc<dyn Source>;

    /// What it holds of the file, where that changes: it grows and shrinks with the value, and the end of
    /// the sender means that the source has left. `None` if it always has the whole file.
    fn holdings(&self) -> Option<watch::Receiver<RangeSet>> {
        None
    }

    /// Returns what it bears at a time, as far as is known.
    fn limits(&self) -> Limits {
        Limits::default()
    }

    /// How relays lead to it; `None` if it is reached directly.
    fn relaying(&self) -> Option<Relaying> {
        None
    }

    /// The same replica by way of `relays`, the nearest first; `far` is the round trip from the first of
    /// them to it, as far as known. `None` if no relay can lead to it.
    fn by_way_of(
        &self,
        _relays: &[Url],
        _mode: RelayMode,
        _far: Duration,
    ) -> Option<Arc<dyn Source>> {
        None
    }

    /// Returns whether its requests show what nobody but its origin may see.
    fn has_secrets(&self) -> bool {
        false
    }

    /// From now on each answer is a version of its own: the file is to come in one, from the start.
    fn take_one_answer(&self) {}

    /// Returns whether a connection that was cut was taken for the end of the file, as a digest will tell.
    fn end_was_cut(&self) -> bool {
        false
    }
}

/// A lane of a source: it carries swaths one behind the other. Dropping it closes it.
pub trait Lane: fmt::Debug + Send {
    /// Returns the number under which it reports.
    fn id(&self) -> LaneId;

    /// Asks for `range` as swath `swath`; an end of `u64::MAX` asks for everything from the start on.
    /// `false` if the lane has ended already.
    fn fetch(&self, swath: SwathId, range: Range) -> bool;

    /// Gives back the end of a swath: nothing from `end` on will be delivered. If that much (or more)
    /// was delivered already the swath is done at once.
    fn trim(&self, swath: SwathId, end: u64, then: AfterTrim);

    /// Ends the lane; its last event lists what is unfinished.
    fn close(&self);

    /// Its counters.
    fn meter(&self) -> &Arc<Meter>;
}

/// What is answered later.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who named a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The user, by hand or in a list of theirs: gets the user's credentials.
    Named,
    /// A file that the user has, but need not have written (a Metalink): may lead anywhere, but
    /// gets no credentials unless it has the origin of a named source.
    Listed,
    /// Something from the network: gets no credentials (unless it has the origin of a named
    /// source) and may not lead into networks that the user's own sources are not in.
    Discovered,
}

/// What every later answer is held against.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Expected {
    /// Size of the file in bytes.
    pub size_bytes: Option<u64>,
    /// A digest will prove the bytes, so that answers need not show the same version.
    pub proved: bool,
}

/// How relays pass on what they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RelayMode {
    /// Each asks the next one, and the last one the origin: they see what they pass on, and tell what
    /// their hops bring.
    #[default]
    Forward,
    /// They carry a connection with the origin itself, which they cannot read if it is encrypted.
    Tunnel,
}

/// How relays lead to a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relaying {
    /// How they pass on what comes.
    pub relay_mode: RelayMode,
    /// They could change what comes: they pass it on, or carry what is not encrypted.
    pub is_exposed: bool,
}

/// What a source bears at a time, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Most connections.
    pub connections: Option<u32>,
    /// Requests that one connection serves.
    pub requests_per_connection: Option<u64>,
}
