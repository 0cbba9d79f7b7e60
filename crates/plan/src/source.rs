//! One source as the planner sees it: its lanes, its failures, when it may be asked again.
//!
//! States: `Spare` → `Probing` → `Running` ⇄ `Silent`; from each of them to `Waiting` (a back-off
//! or a server's wish) and back to `Probing`; from everywhere to `Bad`, and back to `Spare` only when that is asked for.

use std::time::Duration;

use swath_model::{LaneId, Time};

use crate::event::Loss;
use crate::holds::Holds;
use crate::paced::SourcePace;
use crate::source_table::{Filed, SourceKey};
use crate::tuner::Tuner;
use crate::view::{SourceStatus, SourceView};

#[derive(Debug)]
pub(crate) struct Source {
    pub key: SourceKey,
    /// What its table knows of its state.
    pub filed: Filed,
    pub status: SourceStatus,
    pub lanes: Vec<LaneId>,
    /// When the last of them was lost.
    pub left_at: Time,
    /// It is forgotten when its lanes are gone.
    has_left: bool,
    pub max_lanes: u32,
    /// Nothing new is to be asked of it.
    pub rests: bool,
    pub rtt_s: Option<f64>,
    pub stream_only: bool,
    pub request_limit: Option<u32>,
    pub holds: Holds,
    /// What its last lane brought, bytes per second: all that is known of a new one.
    pub lane_rate: Option<f64>,
    /// How long its lanes waited for connections and first bytes while there was work, in all.
    pub waited_s: f64,
    /// Failures since the last useful byte: the more, the longer the next back-off.
    pub failures: u32,
    /// Connections that came to nothing while others of this source delivered, since one last
    /// succeeded: what the others bring says nothing about these.
    turned_away: u32,
    /// When the first of them was.
    failing_since: Option<Time>,
    /// What they used up of our patience.
    strain: u32,
    /// Silences since the last byte that was not followed by another.
    pub silences: u32,
    /// No lane is to be opened before.
    pub retry_at: Time,
    /// The same where nobody else delivers anything.
    haste_at: Time,
    /// The source has asked not to be asked before.
    pub busy_until: Time,
    /// Nothing is to be asked for before, on lanes that are open either.
    pub quiet_until: Time,
    /// How long a lane waits for an answer to begin before it is given up.
    pub patience_s: f64,
    /// How long the quicker of its last two answers took to begin, and how long the last one.
    answers_s: Option<(f64, f64)>,
    /// Most lanes that delivered at once.
    pub served_most: u32,
    /// Sum of its lanes' rates at the last tick.
    pub rate: f64,
    pub best_rate: f64,
    pub delivered_bytes: u64,
    pub tuner: Tuner,
    /// How its server limits each answer, if it does.
    pub pace: Option<SourcePace>,
}

impl Source {
    /// A source that is asked for so many lanes at first, of which it allows `max_lanes`.
    pub fn new(key: SourceKey, max_lanes: u32, goal: u32) -> Self {
        Self {
            key,
            filed: Filed::default(),
            status: SourceStatus::Spare,
            lanes: Vec::new(),
            left_at: Time::ZERO,
            has_left: false,
            max_lanes: max_lanes.max(1),
            rests: false,
            rtt_s: None,
            stream_only: false,
            request_limit: None,
            holds: Holds::default(),
            lane_rate: None,
            waited_s: 0.0,
            failures: 0,
            turned_away: 0,
            failing_since: None,
            strain: 0,
            silences: 0,
            retry_at: Time::ZERO,
            haste_at: Time::ZERO,
            busy_until: Time::ZERO,
            quiet_until: Time::ZERO,
            patience_s: PATIENCE_FIRST_S,
            answers_s: None,
            served_most: 0,
            rate: 0.0,
            best_rate: 0.0,
            delivered_bytes: 0,
            tuner: Tuner::new(goal),
            pace: None,
        }
    }

    pub fn is_usable(&self) -> bool {
        self.status != SourceStatus::Bad
    }

    /// Whether it has no lane and might be given one.
    pub fn waits(&self) -> bool {
        self.is_usable() && !self.rests && self.lanes.is_empty()
    }

    /// What of its state is on file.
    pub fn filing(&self) -> Filed {
        let is_hasty = self.retry_at > self.haste_at || self.quiet_until > self.haste_at;
        Filed::of(self.is_usable(), self.is_promising(), is_hasty)
    }

    /// It has left for good.
    pub fn leave(&mut self) {
        self.status = SourceStatus::Bad;
        self.has_left = true;
    }

    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// One more lane to it is being opened.
    pub fn lane_opened(&mut self, lane: LaneId) {
        self.lanes.push(lane);
        self.asked();
    }

    /// Something is being asked of it.
    pub fn asked(&mut self) {
        if self.status == SourceStatus::Spare {
            self.status = SourceStatus::Probing;
        }
    }

    /// Its state, for display; `busy` if anything is asked for on any of its lanes.
    pub fn view(&self, busy: bool) -> SourceView {
        SourceView {
            source: self.key.id,
            status: self.status,
            rate_bytes_per_s: self.rate,
            best_rate_bytes_per_s: self.best_rate,
            delivered_bytes: self.delivered_bytes,
            rtt: self.rtt_s.map(Duration::from_secs_f64),
            lanes: self.lanes.len() as u32,
            busy,
            paced: self.pace.is_some(),
            on_probation: self.on_probation(),
            failing: self.has_failed(),
            retry_at: (self.lanes.is_empty() && self.retry_at > Time::ZERO)
                .then_some(self.retry_at),
        }
    }

    /// Bytes came, `bytes` of them useful: whatever was held against it is forgotten, failures only
    /// if it was of use (a whole-file answer may be cut each time before it gets there).
    pub fn delivered(&mut self, bytes: u64) {
        self.delivered_bytes += bytes;
        if bytes > 0 {
            self.failures = 0;
            self.failing_since = None;
            self.strain = 0;
        }
        self.silences = 0;
        if self.is_usable() {
            self.status = SourceStatus::Running;
        }
    }

    /// A lane or a swath came to nothing; decides when the source is asked again. One that has
    /// failed often, and for `give_up_s`, is given up.
    pub fn lost(&mut self, loss: Loss, now: Time, jitter: f64, give_up_s: f64) {
        match loss {
            Loss::Clean => return,
            Loss::Final => {
                self.status = SourceStatus::Bad;
                return;
            }
            Loss::Busy(wish) => {
                self.busy_until = self.busy_until.max(now + wish);
                self.quiet_until = self.quiet_until.max(now + wish);
                self.strain += STRAIN_BUSY;
            }
            Loss::Broken | Loss::Unreached => self.strain += STRAIN_BROKEN,
        }
        self.failures += 1;
        let wait_s = (BACKOFF_FIRST_S * f64::from(1u32 << self.failures.min(8))).min(BACKOFF_MAX_S);
        self.pause(wait_s, now, jitter);
        let since = *self.failing_since.get_or_insert(now);
        // A relay in front of it may well be there.
        let is_beyond = loss == Loss::Unreached && self.delivered_bytes == 0;
        let was_never_up = self.rtt_s.is_none() || is_beyond;
        let give_up_s = if was_never_up { give_up_s.min(NEVER_UP_S) } else { give_up_s };
        // Nor is each answer worth another try where it takes half a minute.
        let strain_max = if is_beyond { STRAIN_BEYOND } else { STRAIN_MAX };
        if self.strain >= strain_max && now.secs_since(since) >= give_up_s {
            self.status = SourceStatus::Bad;
        }
    }

    /// A further connection came to nothing while another one of this source delivers: its server may
    /// allow no more. The next is tried later each time.
    pub fn turned_away(&mut self, now: Time, jitter: f64) {
        self.turned_away += 1;
        let doubled = f64::from(1u32 << self.turned_away.min(8));
        let wait_s = (BACKOFF_FIRST_S * doubled).min(BACKOFF_MAX_S) * (0.75 + 0.5 * jitter);
        self.retry_at = self.retry_at.max(now.plus_secs(wait_s));
    }

    /// A connection has brought its first byte.
    pub fn let_in(&mut self) {
        self.turned_away = 0;
    }

    /// We have cut an answer short. A server that counts connections counts this one until it notices.
    pub fn cut_short(&mut self, now: Time) {
        if self.pace.is_some() {
            self.retry_at = self.retry_at.max(now.plus_secs(NOTICED_S));
        }
    }

    /// It was given up, and is to show once more what it brings.
    pub fn again(&mut self) {
        self.status = SourceStatus::Spare;
        (self.failures, self.strain, self.silences) = (0, 0, 0);
        self.failing_since = None;
        self.retry_at = self.busy_until;
        (self.haste_at, self.quiet_until) = (self.busy_until, self.busy_until);
    }

    /// We were asleep since it failed: its time to come back begins now.
    pub fn awoke(&mut self, now: Time) {
        self.failing_since = self.failing_since.map(|_| now);
    }

    /// It fell silent for so long that its lanes were closed; wait before it is probed again.
    pub fn fell_silent(&mut self, now: Time, jitter: f64) {
        self.silences += 1;
        let wait_s =
            (PROBATION_FIRST_S * f64::from(1u32 << self.silences.min(8))).min(PROBATION_MAX_S);
        self.pause(wait_s, now, jitter);
    }

    fn pause(&mut self, wait_s: f64, now: Time, jitter: f64) {
        let jitter = 0.75 + 0.5 * jitter;
        self.retry_at = self.retry_at.max(now.plus_secs(wait_s * jitter)).max(self.busy_until);
        self.haste_at =
            self.haste_at.max(now.plus_secs(wait_s.min(HASTE_MAX_S) * jitter)).max(self.busy_until);
    }

    /// Nobody delivers anything: there is nothing better to do than to try again soon, unless the
    /// source itself has asked for patience.
    pub fn make_haste(&mut self) {
        self.retry_at = self.retry_at.min(self.haste_at);
        self.quiet_until = self.quiet_until.min(self.haste_at);
    }

    /// An answer on an idle lane has begun `waited_s` after it was asked for. One late answer may be
    /// a link that was down meanwhile, two in a row are how the server is.
    pub fn answered(&mut self, waited_s: f64) {
        let other_s = self.answers_s.map_or(waited_s, |(_, last_s)| last_s);
        self.answers_s = Some((other_s.min(waited_s), waited_s));
        self.patience_s = PATIENCE_FIRST_S.max(2.0 * other_s.max(waited_s));
    }

    /// How long answers commonly take to begin: silence before that means nothing.
    pub fn answer_s(&self) -> f64 {
        self.answers_s.map_or(0.0, |(usual_s, _)| usual_s)
    }

    /// No answer within our patience: it may need more.
    pub fn unanswered(&mut self) {
        self.patience_s *= 2.0;
    }

    /// Whether it may be counted on: not given up, and not failing for long.
    pub fn is_promising(&self) -> bool {
        self.is_usable() && self.strain < STRAIN_MAX
    }

    /// Whether it came to nothing when it was last tried.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// On probation: it fell silent and has delivered nothing since.
    pub fn on_probation(&self) -> bool {
        self.silences > 0
    }
}

/// A server notices within this time that a connection is closed.
const NOTICED_S: f64 = 0.5;
/// The first retry comes after twice this.
const BACKOFF_FIRST_S: f64 = 0.1;
/// Later retries come at most this far apart.
const BACKOFF_MAX_S: f64 = 10.0;
/// While nobody delivers, every source is tried again after this at most.
const HASTE_MAX_S: f64 = 1.5;
/// A source may be given up after ten failures in a row without a useful byte …
const STRAIN_MAX: u32 = 10 * STRAIN_BROKEN;
/// (or after two where a relay says that nobody is there) …
const STRAIN_BEYOND: u32 = 2 * STRAIN_BROKEN;
/// … of this kind …
const STRAIN_BROKEN: u32 = 3;
/// … or more of this: a server that asks for patience is alive.
const STRAIN_BUSY: u32 = 1;
/// A host that has never let us connect (a wrong port, a server that is not there) is given up
/// after this; one that is only being restarted is back by then.
const NEVER_UP_S: f64 = 10.0;
/// A first answer may need work at the server: longer than this only if nobody else delivers.
const PATIENCE_FIRST_S: f64 = 3.4;
/// The first probe of a silent source comes after twice this …
const PROBATION_FIRST_S: f64 = 0.25;
/// … and later ones at most this far apart, for as long as the transfer lasts.
const PROBATION_MAX_S: f64 = 8.0;
