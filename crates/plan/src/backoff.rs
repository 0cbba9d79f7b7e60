//! What is held against a source, and when it may be asked again.

use swath_model::Time;

use crate::event::Loss;

/// The failures and silences of one source, and the waits that follow from them.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    /// Failures since the last useful byte: the more, the longer the next back-off.
    failures: u32,
    /// Connections that came to nothing while others of this source delivered, since one last
    /// succeeded: what the others bring says nothing about these.
    turned_away: u32,
    /// When the first of the failures was.
    failing_since: Option<Time>,
    /// What they used up of our patience.
    strain: u32,
    /// Silences since the last byte that was not followed by another.
    silences: u32,
    /// No lane is to be opened before.
    pub retry_at: Time,
    /// The same where nobody else delivers anything.
    haste_at: Time,
    /// The source has asked not to be asked before.
    busy_until: Time,
    /// Nothing is to be asked for before, on lanes that are open either.
    pub quiet_until: Time,
}

impl Backoff {
    /// Bytes came, useful ones perhaps: whatever was held against the source is forgotten, failures only
    /// if it was of use (a whole-file answer may be cut each time before it gets there).
    pub fn delivered(&mut self, is_useful: bool) {
        if is_useful {
            self.failures = 0;
            self.failing_since = None;
            self.strain = 0;
        }
        self.silences = 0;
    }

    /// A lane or a swath came to nothing, after which the source is asked again later. Answers whether it
    /// has failed often, and for `give_up_s`; `is_beyond` if nobody but a relay was ever reached.
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
        // Nor is each answer worth another try where it takes half a minute.
        let strain_max = if is_beyond { STRAIN_BEYOND } else { STRAIN_MAX };
        self.strain >= strain_max && now.secs_since(since) >= give_up_s
    }

    /// The source asks for patience until then.
    pub fn busy(&mut self, until: Time) {
        self.busy_until = self.busy_until.max(until);
    }

    /// No new lanes before the source's own wish.
    pub fn wait_for_wish(&mut self) {
        self.retry_at = self.retry_at.max(self.busy_until);
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
        self.retry_at = self.retry_at.max(now.plus_secs(NOTICED_S));
    }

    /// Everything but the source's own wish is forgotten.
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

    /// Returns whether a wait can be cut short by [`Backoff::make_haste`].
    pub fn is_hasty(&self) -> bool {
        self.retry_at > self.haste_at || self.quiet_until > self.haste_at
    }

    /// Returns whether it has not been failing for long.
    pub fn is_promising(&self) -> bool {
        self.strain < STRAIN_MAX
    }

    /// Returns whether it came to nothing when it was last tried.
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
/// The first probe of a silent source comes after twice this …
const PROBATION_FIRST_S: f64 = 0.25;
/// … and later ones at most this far apart, for as long as the transfer lasts.
const PROBATION_MAX_S: f64 = 8.0;
