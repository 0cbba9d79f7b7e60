//! One source as the planner sees it: its lanes, how it may be used, its record, its failures.
//!
//! States: `Spare` → `Probing` → `Running` ⇄ `Silent`; `Probing` may also become `Silent`. Any
//! state may change to `Bad`, and back to `Spare` only on request. `backoff` holds its waits.

use std::time::Duration;

use swath_model::{LaneId, Time};

use crate::backoff::Backoff;
use crate::event::Loss;
use crate::holds::Holds;
use crate::paced::SourcePace;
use crate::source_table::{Filed, SourceKey};
use crate::tuner::Tuner;
use crate::view::{SourceStatus, SourceView};

#[derive(Debug)]
pub(crate) struct Source {
    pub key: SourceKey,
    /// What its table has on file of its state.
    pub filed: Filed,
    pub status: SourceStatus,
    pub lanes: Vec<LaneId>,
    /// When its last lane was lost.
    pub left_at: Time,
    /// It is forgotten once its lanes are gone.
    has_left: bool,
    pub usage: Usage,
    pub holds: Holds,
    pub record: Record,
    pub backoff: Backoff,
    pub answers: Answers,
    pub tuner: Tuner,
}

/// How a source may be used.
#[derive(Debug)]
pub(crate) struct Usage {
    pub max_lanes: u32,
    /// Nothing new may be requested from it.
    pub rests: bool,
    pub stream_only: bool,
    pub request_limit: Option<u32>,
    /// It takes requests for blocks: it is a peer of a swarm.
    pub is_peer: bool,
}

/// What was measured of a source.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// The smallest round trip; `None` before the first connection.
    pub rtt_s: Option<f64>,
    /// Rate of its last lost lane in bytes per second: all that is known of a new one.
    pub lane_rate: Option<f64>,
    /// Total time its lanes waited for connections and first bytes while there was work.
    pub waited_s: f64,
    /// Most lanes that delivered at once.
    pub served_most: u32,
    /// Sum of its lanes' rates at the last tick.
    pub rate: f64,
    pub best_rate: f64,
    pub delivered_bytes: u64,
    /// How its server limits each answer, if it does.
    pub pace: Option<SourcePace>,
}

/// How long a source takes to begin its answers.
#[derive(Debug)]
pub(crate) struct Answers {
    /// How long a lane waits for an answer to begin before it is given up.
    pub patience_s: f64,
    /// Time until the answer began: the quicker of the last two, and the last one.
    took_s: Option<(f64, f64)>,
}

impl Source {
    /// Returns a source that begins with `goal` lanes and allows `max_lanes`.
    pub fn new(key: SourceKey, max_lanes: u32, goal: u32) -> Self {
        let max_lanes = max_lanes.max(1);
        Self {
            key,
            filed: Filed::default(),
            status: SourceStatus::Spare,
            lanes: Vec::new(),
            left_at: Time::ZERO,
            has_left: false,
            usage: Usage {
                max_lanes,
                rests: false,
                stream_only: false,
                request_limit: None,
                is_peer: false,
            },
            holds: Holds::default(),
            record: Record::default(),
            backoff: Backoff::default(),
            answers: Answers { patience_s: PATIENCE_FIRST_S, took_s: None },
            tuner: Tuner::new(goal),
        }
    }

    pub fn is_usable(&self) -> bool {
        self.status != SourceStatus::Bad
    }

    /// Returns whether it has no lane but might get one.
    pub fn waits(&self) -> bool {
        self.is_usable() && !self.usage.rests && self.lanes.is_empty()
    }

    /// Returns what its table keeps on file of its state.
    pub fn filing(&self) -> Filed {
        Filed::of(self.is_usable(), self.is_promising(), self.backoff.is_hasty())
    }

    /// Records that it has left for good.
    pub fn leave(&mut self) {
        self.status = SourceStatus::Bad;
        self.has_left = true;
    }

    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Records that another lane to it is being opened.
    pub fn lane_opened(&mut self, lane: LaneId) {
        self.lanes.push(lane);
        self.asked();
    }

    /// Records a request.
    pub fn asked(&mut self) {
        if self.status == SourceStatus::Spare {
            self.status = SourceStatus::Probing;
        }
    }

    /// Returns its state for display; `busy` if anything is requested on any of its lanes.
    pub fn view(&self, busy: bool) -> SourceView {
        SourceView {
            source: self.key.id,
            status: self.status,
            rate_bytes_per_s: self.record.rate,
            best_rate_bytes_per_s: self.record.best_rate,
            delivered_bytes: self.record.delivered_bytes,
            rtt: self.record.rtt_s.map(Duration::from_secs_f64),
            lanes: self.lanes.len() as u32,
            settled_lanes: self.tuner.settled(),
            busy,
            paced: self.record.pace.is_some(),
            on_probation: self.backoff.on_probation(),
            failing: self.backoff.has_failed(),
            retry_at: (self.lanes.is_empty() && self.backoff.retry_at > Time::ZERO)
                .then_some(self.backoff.retry_at),
        }
    }

    /// Records bytes that arrived, `bytes` of them useful.
    pub fn delivered(&mut self, bytes: u64) {
        self.record.delivered_bytes += bytes;
        self.backoff.delivered(bytes > 0);
        if self.is_usable() {
            self.status = SourceStatus::Running;
        }
    }

    /// Records a failed lane or swath and decides when the source is asked again. A source that
    /// failed often, and for `give_up_s`, is given up.
    pub fn lost(&mut self, loss: Loss, now: Time, jitter: f64, give_up_s: f64) {
        match loss {
            Loss::Clean => return,
            Loss::Final => {
                self.status = SourceStatus::Bad;
                return;
            }
            Loss::Busy(wish) => {
                self.backoff.busy(now + wish);
                self.backoff.quiet_until = self.backoff.quiet_until.max(now + wish);
            }
            Loss::Broken | Loss::Unreached => {}
        }
        // A relay in front of it may still work.
        let is_beyond = loss == Loss::Unreached && self.record.delivered_bytes == 0;
        let was_never_up = self.record.rtt_s.is_none() || is_beyond;
        let give_up_s = if was_never_up { give_up_s.min(NEVER_UP_S) } else { give_up_s };
        if self.backoff.lost(loss, now, jitter, is_beyond, give_up_s) {
            self.status = SourceStatus::Bad;
        }
    }

    /// Records that we cut an answer short.
    pub fn cut_short(&mut self, now: Time) {
        if self.record.pace.is_some() {
            self.backoff.cut_short(now);
        }
    }

    /// Resets a source that was given up, so that it is tried once more.
    pub fn again(&mut self) {
        self.status = SourceStatus::Spare;
        self.backoff.again();
    }

    /// Returns whether it can be relied on: not given up, and not failing for long.
    pub fn is_promising(&self) -> bool {
        self.is_usable() && self.backoff.is_promising()
    }
}

impl Answers {
    /// Records that an answer on an idle lane began after `waited_s`. One late answer may be due to
    /// a broken link; two in a row are typical of the server.
    pub fn began(&mut self, waited_s: f64) {
        let other_s = self.took_s.map_or(waited_s, |(_, last_s)| last_s);
        self.took_s = Some((other_s.min(waited_s), waited_s));
        self.patience_s = PATIENCE_FIRST_S.max(2.0 * other_s.max(waited_s));
    }

    /// Returns the usual time until an answer begins; silence before that means nothing.
    pub fn usual_s(&self) -> f64 {
        self.took_s.map_or(0.0, |(usual_s, _)| usual_s)
    }

    /// Doubles the patience after an answer that did not begin in time.
    pub fn missed(&mut self) {
        self.patience_s *= 2.0;
    }
}

/// A host that never let us connect (a wrong port, a server that is not there) is given up after
/// this. A server that is only restarting is back by then.
const NEVER_UP_S: f64 = 10.0;
/// Patience for a first answer, which may need work at the server; longer only in need.
const PATIENCE_FIRST_S: f64 = 3.4;
