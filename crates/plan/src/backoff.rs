//! Failures of a source, and when it may be asked again.

use swath_model::Time;

use crate::event::Loss;

/// The failures and silences of one source, and the waits that follow.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Failures since the last useful byte: each makes the next back-off longer.
    failures: u32,
    /// Connections that failed while others of this source delivered, since one last succeeded.
    /// Bytes on the other connections do not reset this.
    turned_away: u32,
    /// When the first of the failures happened.
    failing_since: Option<Time>,
    /// Weighted sum of the failures, compared with our patience.
    strain: u32,
    /// Silences since bytes last arrived.
    silences: u32,
    /// No lane is opened before this time.
    pub retry_at: Time,
    /// The same while no source delivers anything.
    haste_at: Time,
    /// The source asked not to be contacted before this time.
    busy_until: Time,
    /// Nothing is requested before this time, on open lanes either.
    pub quiet_until: Time,
}

impl Backoff {
    /// Clears silences because bytes arrived, and failures if the bytes were useful (a whole-file
    /// answer may be cut each time before it gets that far).
    pub fn delivered(&mut self, is_useful: bool) {
        if is_useful {
            self.failures = 0;
            self.failing_since = None;
            self.strain = 0;
        }
        self.silences = 0;
    }

    /// Backs off after a failed lane or swath. Returns whether to give up: it failed often and for
    /// `give_up_s`. `is_beyond`: only a relay in front of the source was ever reached.
    pub fn lost(
        &mut self,
        loss: Loss,
        now: Time,
        jitter: f64,
        is_beyond: bool,
        give_up_s: f64,
    ) -> bool {
        match loss {
            Loss::Busy(_) => self.strain += STRAIN_BUSY,
            _ => self.strain += STRAIN_BROKEN,
        }
        self.failures += 1;
        let wait_s = (BACKOFF_FIRST_S * f64::from(1u32 << self.failures.min(8))).min(BACKOFF_MAX_S);
        self.pause(wait_s, now, jitter);
        let since = *self.failing_since.get_or_insert(now);
        // A relay may take half a minute to report that, so fewer tries are worth it.
        let strain_max = if is_beyond { STRAIN_BEYOND } else { STRAIN_MAX };
        self.strain >= strain_max && now.secs_since(since) >= give_up_s
    }

    /// Records that the source asked to be left alone until then.
    pub fn busy(&mut self, until: Time) {
        self.busy_until = self.busy_until.max(until);
    }

    /// Delays new lanes until the time the source asked for.
    pub fn wait_for_wish(&mut self) {
        self.retry_at = self.retry_at.max(self.busy_until);
    }

    /// Records that another connection failed while one of this source delivers: its server may
    /// allow no more. Each further one is tried later.
    pub fn turned_away(&mut self, now: Time, jitter: f64) {
        self.turned_away += 1;
        let doubled = f64::from(1u32 << self.turned_away.min(8));
        let wait_s = (BACKOFF_FIRST_S * doubled).min(BACKOFF_MAX_S) * (0.75 + 0.5 * jitter);
        self.retry_at = self.retry_at.max(now.plus_secs(wait_s));
    }

    /// Records that a connection has brought its first byte.
    pub fn let_in(&mut self) {
        self.turned_away = 0;
    }

    /// Records that we cut an answer short. The server counts that connection until it notices.
    pub fn cut_short(&mut self, now: Time) {
        self.retry_at = self.retry_at.max(now.plus_secs(NOTICED_S));
    }

    /// Forgets everything but the time the source asked for.
    pub fn again(&mut self) {
        let Backoff { turned_away, busy_until, .. } = *self;
        let (retry_at, haste_at, quiet_until) = (busy_until, busy_until, busy_until);
        *self = Backoff {
            turned_away,
            busy_until,
            retry_at,
            haste_at,
            quiet_until,
            ..Backoff::default()
        };
    }

    /// Restarts the time the source has to come back, because we were asleep since it failed.
    pub fn awoke(&mut self, now: Time) {
        self.failing_since = self.failing_since.map(|_| now);
    }

    /// Records that its lanes were closed after a long silence; it is probed again later.
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

    /// Shortens the waits because no source delivers, except a wait that this source asked for.
    pub fn make_haste(&mut self) {
        self.retry_at = self.retry_at.min(self.haste_at);
        self.quiet_until = self.quiet_until.min(self.haste_at);
    }

    /// Returns whether [`Backoff::make_haste`] would shorten a wait.
    pub fn is_hasty(&self) -> bool {
        self.retry_at > self.haste_at || self.quiet_until > self.haste_at
    }

    /// Returns whether it has not been failing for long.
    pub fn is_promising(&self) -> bool {
        self.strain < STRAIN_MAX
    }

    /// Returns whether its last try failed.
    pub fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Returns whether it is on probation: it fell silent and has delivered nothing since.
    pub fn on_probation(&self) -> bool {
        self.silences > 0
    }
}

/// Time within which a server notices that a connection is closed.
const NOTICED_S: f64 = 0.5;
/// The first retry comes after twice this.
const BACKOFF_FIRST_S: f64 = 0.1;
/// Longest time between later retries.
const BACKOFF_MAX_S: f64 = 10.0;
/// Longest wait for any source while no source delivers.
const HASTE_MAX_S: f64 = 1.5;
/// A source may be given up after ten failures in a row without a useful byte …
const STRAIN_MAX: u32 = 10 * STRAIN_BROKEN;
/// (or after two if a relay says that it cannot be reached) …
const STRAIN_BEYOND: u32 = 2 * STRAIN_BROKEN;
/// … of this weight …
const STRAIN_BROKEN: u32 = 3;
/// … or more of this weight: a server that asks for patience is alive.
const STRAIN_BUSY: u32 = 1;
/// The first probe of a silent source comes after twice this …
const PROBATION_FIRST_S: f64 = 0.25;
/// … and later ones at most this far apart, until the transfer ends.
const PROBATION_MAX_S: f64 = 8.0;
