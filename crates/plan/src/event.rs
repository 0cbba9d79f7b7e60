//! What goes into the planner and what comes out of it.

use std::time::Duration;

use swath_model::{LaneId, Range, RangeSet, SourceId, SwathId};

/// Something that happened, told to [`crate::Planner::handle`].
#[derive(Clone, Debug)]
pub enum Event {
    /// A source is known. It counts as one that has the whole file; see [`Event::Lacks`].
    SourceAdded {
        /// Its number: never one that was used before. The lower comes first.
        source: SourceId,
        /// Most lanes that it allows at once, if it has said so.
        max_lanes: Option<u32>,
    },
    /// A source has left and will not be back: its lanes are closed, and what is known of it is
    /// forgotten.
    SourceLeft {
        /// Which.
        source: SourceId,
    },
    /// The size is known, and which bytes are still to be fetched.
    Layout {
        /// Size of the file in bytes.
        size_bytes: u64,
        /// What is not yet here.
        missing: RangeSet,
    },
    /// The file is longer than was told so far. After [`Event::Layout`], for one whose length is
    /// still being found out.
    Grown {
        /// Its size in bytes, as far as is known now.
        size_bytes: u64,
        /// What is not yet here of what was not known before.
        missing: RangeSet,
        /// Whether it may grow further: nothing is finished before it does not.
        more: bool,
    },
    /// A lane asked for by [`Action::OpenLane`] is connected.
    LaneUp {
        /// Which.
        lane: LaneId,
        /// Its round trip.
        rtt: Duration,
        /// Whether a second request may leave before the first answer has ended.
        pipelines: bool,
    },
    /// How many body bytes a lane has received in all, drained ones included; never decreases.
    Arrived {
        /// Which.
        lane: LaneId,
        /// Total since the lane was opened.
        total_bytes: u64,
    },
    /// Nothing new has arrived in order, but so many bytes wait behind something that was lost and
    /// is on its way again: the lane lives, and will bring them at once. An estimate.
    OutOfOrder {
        /// Which.
        lane: LaneId,
        /// What waits now.
        bytes: u64,
    },
    /// How long, in all, nothing came on a lane between two arrivals some milliseconds apart or
    /// more; never decreases. Bursts with pauses between them are the sign of a sender that is
    /// held up by its window or by loss, which further lanes may relieve.
    Paused {
        /// Which.
        lane: LaneId,
        /// Total since the lane was opened.
        total: Duration,
    },
    /// We hold this lane up ourselves just now, or did since the last time: for a rate limit, or
    /// because the disk has not given a buffer back. Its waiting is no silence of its source.
    HeldUp {
        /// Which.
        lane: LaneId,
    },
    /// We were asleep, and hear again: nobody is to blame for what did not come meanwhile.
    Awoke,
    /// These bytes are in our hands and count (they were still missing).
    Delivered {
        /// The swath that they belong to.
        swath: SwathId,
        /// The bytes.
        range: Range,
    },
    /// A lane has handed over the last byte of a swath (of what was left of it after trimming).
    SwathDone {
        /// Which.
        swath: SwathId,
    },
    /// The answer to one swath was no use, its lane goes on.
    SwathFailed {
        /// Which.
        swath: SwathId,
        /// How the source failed.
        loss: Loss,
    },
    /// A lane is gone; whatever it had not delivered is to be fetched again.
    LaneLost {
        /// Which.
        lane: LaneId,
        /// How.
        loss: Loss,
    },
    /// Bytes that were delivered are no good and must be fetched again.
    Reopened {
        /// The bytes.
        range: Range,
    },
    /// A source must not be asked for these bytes (any more).
    Forbidden {
        /// Which.
        source: SourceId,
        /// The bytes.
        range: Range,
    },
    /// A source does not have these bytes (any more), whatever is allowed later. What it was asked
    /// for before may still come.
    Lacks {
        /// Which.
        source: SourceId,
        /// The bytes.
        range: Range,
    },
    /// A source has these bytes from now on; it may still be forbidden to ask it for them.
    Has {
        /// Which.
        source: SourceId,
        /// The bytes.
        range: Range,
    },
    /// A source may be asked for these bytes again, as far as it has them.
    Allowed {
        /// Which.
        source: SourceId,
        /// The bytes.
        range: Range,
    },
    /// A source answers only with the whole file from its beginning.
    StreamOnly {
        /// Which.
        source: SourceId,
    },
    /// A connection to this source serves at most this many requests.
    RequestLimit {
        /// Which.
        source: SourceId,
        /// How many.
        requests: u32,
    },
    /// A source is not wanted for now, or is wanted again: nothing new is asked of one that rests, and
    /// its lanes are closed when they have brought what they owe.
    SourceRests {
        /// Which.
        source: SourceId,
        /// Whether it rests from now on.
        rests: bool,
    },
    /// So many lanes a source may have from now on; `None`: as many as any.
    LaneLimit {
        /// Which.
        source: SourceId,
        /// How many.
        lanes: Option<u32>,
    },
    /// A source is out for good: it lied, or it disagrees with the others.
    SourceBad {
        /// Which.
        source: SourceId,
    },
    /// A source that was given up may be asked once more: what was the matter with it may have passed.
    SourceAgain {
        /// Which.
        source: SourceId,
    },
    /// The consumer of an ordered stream has taken everything before this offset.
    Consumed {
        /// The offset.
        up_to: u64,
    },
}

/// Why a lane or a swath came to nothing; decides when the source is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The source ended the connection in good order: open another at once.
    Clean,
    /// Refused, reset, truncated, timed out: try again after a back-off, a limited number of times.
    Broken,
    /// The same, and it is known that the source itself was not reached: by a relay that was.
    Unreached,
    /// The source asked for patience (429, 503): not before this time has passed.
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

/// Something to do, answered by [`crate::Planner::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect one more lane to a source.
    OpenLane {
        /// To whom.
        source: SourceId,
        /// The number of the new lane; numbers are never reused.
        lane: LaneId,
    },
    /// Let a lane's sender have no more than this under way; sent again when it changes.
    Window {
        /// Which.
        lane: LaneId,
        /// How much, in bytes; `None`: as much as the kernel sees fit, as for every new lane.
        bytes: Option<u64>,
    },
    /// Ask for a range on a lane, behind whatever was asked there before.
    Fetch {
        /// Where.
        lane: LaneId,
        /// The number of the new swath.
        swath: SwathId,
        /// What.
        range: Range,
    },
    /// Let a swath end earlier than it was asked for.
    Trim {
        /// Where.
        lane: LaneId,
        /// Which.
        swath: SwathId,
        /// The new end; at or before the current position means: nothing more of it.
        end: u64,
        /// Whether to give the connection up there, because draining the rest would take longer
        /// than opening another; otherwise the rest is read and thrown away.
        drop_lane: bool,
    },
    /// Close a lane; it answers with [`Event::LaneLost`] (`Clean`).
    CloseLane {
        /// Which.
        lane: LaneId,
    },
    /// Every byte has been delivered.
    Finished,
    /// No source is left that could deliver what is missing.
    Exhausted,
}
