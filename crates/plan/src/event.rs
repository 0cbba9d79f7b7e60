//! Events and actions of the planner.

use std::time::Duration;

use swath_model::{LaneId, Range, RangeSet, Requests, SourceId, SwathId};

/// An event for [`crate::Planner::handle`].
#[derive(Clone, Debug)]
pub enum Event {
    /// A new source. It counts as having the whole file; see [`Event::Lacks`].
    SourceAdded {
        /// Its number, never used before. Lower numbers come first.
        source: SourceId,
        /// Most lanes that it allows at once, if it said so.
        max_lanes: Option<u32>,
    },
    /// A source has left and will not be back: its lanes are closed, and what is known of it is
    /// forgotten.
    SourceLeft {
        /// The source.
        source: SourceId,
    },
    /// The size of the file and the missing bytes are known.
    Layout {
        /// Size of the file in bytes.
        size_bytes: u64,
        /// The bytes not yet here.
        missing: RangeSet,
    },
    /// The file is longer than known so far. Follows [`Event::Layout`] if the length is still being
    /// found out.
    Grown {
        /// Its size in bytes, as far as known now.
        size_bytes: u64,
        /// The missing bytes of the new part.
        missing: RangeSet,
        /// Whether it may grow further; the transfer does not finish before that ends.
        more: bool,
    },
    /// A lane requested by [`Action::OpenLane`] is connected.
    LaneUp {
        /// The lane.
        lane: LaneId,
        /// Its round trip.
        rtt: Duration,
        /// How it takes requests.
        requests: Requests,
    },
    /// Body bytes a lane has received in all, including drained ones; never decreases.
    Arrived {
        /// The lane.
        lane: LaneId,
        /// Total since the lane was opened.
        total_bytes: u64,
    },
    /// Nothing new arrived in order, but these bytes wait behind a lost packet that is being sent
    /// again: the lane lives and will bring them at once. An estimate.
    OutOfOrder {
        /// The lane.
        lane: LaneId,
        /// Bytes waiting now.
        bytes: u64,
    },
    /// Total time in which nothing arrived on a lane, counting gaps of some milliseconds or more;
    /// never decreases. Bursts with pauses between them show that a window or loss holds the sender
    /// up. More lanes may help.
    Paused {
        /// The lane.
        lane: LaneId,
        /// Total since the lane was opened.
        total: Duration,
    },
    /// The round trip of a lane is this now: longer than at first if packets wait in queues.
    RoundTrip {
        /// The lane.
        lane: LaneId,
        /// The newest estimate.
        rtt: Duration,
    },
    /// We hold this lane up ourselves, now or since the last such event: for a rate limit, or
    /// because the disk has not returned a buffer. Its source is not silent.
    HeldUp {
        /// The lane.
        lane: LaneId,
    },
    /// This machine woke from sleep: no source is to blame for the time since.
    Awoke,
    /// These bytes are in our hands and were still missing.
    Delivered {
        /// The swath that they belong to.
        swath: SwathId,
        /// The bytes.
        range: Range,
    },
    /// A lane has handed over the last byte of a swath (of what trimming left of it).
    SwathDone {
        /// The swath.
        swath: SwathId,
    },
    /// The answer to one swath was useless; its lane continues.
    SwathFailed {
        /// The swath.
        swath: SwathId,
        /// How the source failed.
        loss: Loss,
    },
    /// A lane is gone; what it had not delivered must be fetched again.
    LaneLost {
        /// The lane.
        lane: LaneId,
        /// The cause.
        loss: Loss,
    },
    /// Delivered bytes were wrong and must be fetched again.
    Reopened {
        /// The bytes.
        range: Range,
    },
    /// A source must not be asked for these bytes, or no longer.
    Forbidden {
        /// The source.
        source: SourceId,
        /// The bytes.
        range: Range,
    },
    /// A source does not have these bytes, or no longer, whatever is allowed later. Earlier
    /// requests for them may still be answered.
    Lacks {
        /// The source.
        source: SourceId,
        /// The bytes.
        range: Range,
    },
    /// A source has these bytes from now on; asking it for them may still be forbidden.
    Has {
        /// The source.
        source: SourceId,
        /// The bytes.
        range: Range,
    },
    /// A source may be asked for these bytes again, as far as it has them.
    Allowed {
        /// The source.
        source: SourceId,
        /// The bytes.
        range: Range,
    },
    /// A source answers only with the whole file from its beginning.
    StreamOnly {
        /// The source.
        source: SourceId,
    },
    /// A connection to this source serves at most this many requests.
    RequestLimit {
        /// The source.
        source: SourceId,
        /// The number of requests.
        requests: u32,
    },
    /// A source is not wanted for now, or is wanted again. A resting source gets no new requests,
    /// and its lanes are closed when they have brought what they owe.
    SourceRests {
        /// The source.
        source: SourceId,
        /// Whether it rests from now on.
        rests: bool,
    },
    /// Sets how many lanes a source may have from now on; `None`: no limit of its own.
    LaneLimit {
        /// The source.
        source: SourceId,
        /// The number of lanes.
        lanes: Option<u32>,
    },
    /// A source is out for good: it lied, or disagrees with the others.
    SourceBad {
        /// The source.
        source: SourceId,
    },
    /// A source that was given up may be tried once more; its trouble may be over.
    SourceAgain {
        /// The source.
        source: SourceId,
    },
    /// The consumer of an ordered stream has taken everything before this offset.
    Consumed {
        /// The offset.
        up_to: u64,
    },
}

/// Why a lane or a swath failed; decides when the source is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The source ended the connection in good order: open another at once.
    Clean,
    /// Refused, reset, truncated, timed out: try again after a back-off, a limited number of times.
    Broken,
    /// The same, but only a relay was reached, not the source itself.
    Unreached,
    /// The source asked for patience (429, 503): wait for this time.
    Busy(Duration),
    /// It will never work (404, wrong size, bad certificate): drop the source.
    Final,
}

impl Loss {
    /// Returns whether it is worth trying again after a back-off.
    pub fn is_break(self) -> bool {
        matches!(self, Loss::Broken | Loss::Unreached)
    }
}

/// An action from [`crate::Planner::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect one more lane to a source.
    OpenLane {
        /// The source.
        source: SourceId,
        /// The number of the new lane; numbers are never reused.
        lane: LaneId,
    },
    /// Request a range on a lane, behind its earlier requests.
    Fetch {
        /// The lane.
        lane: LaneId,
        /// The number of the new swath.
        swath: SwathId,
        /// The range.
        range: Range,
    },
    /// End a swath earlier than requested.
    Trim {
        /// The lane.
        lane: LaneId,
        /// The swath.
        swath: SwathId,
        /// The new end; at or before the current position: nothing more of it.
        end: u64,
        /// Whether to close the connection there, because draining the rest would take longer than
        /// opening another. Otherwise the rest is read and thrown away.
        drop_lane: bool,
    },
    /// Close a lane; [`Event::LaneLost`] (`Clean`) follows.
    CloseLane {
        /// The lane.
        lane: LaneId,
    },
    /// Every byte has been delivered.
    Finished,
    /// No remaining source can deliver what is missing.
    Exhausted,
}
