//! Servers that limit the rate of each answer, as nginx does with `limit_rate`.
//!
//! Such a server sends a burst and then pauses until its bytes are due at the limit: as long as the
//! burst takes at the limit, mostly the same each time. So there is no rate over less than a few
//! periods, a pause is no silence, and each new answer begins with a burst that was not waited for.

use swath_model::Time;

/// The limit of each answer: a burst of `burst_bytes` every `period_s` seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    pub period_s: f64,
    pub burst_bytes: f64,
}

impl Pace {
    /// The rate of one answer, in bytes per second.
    pub fn rate_bytes_per_s(self) -> f64 {
        self.burst_bytes / self.period_s
    }

    /// Returns whether `other` shows the same limit, within measurement error.
    fn agrees(self, other: Pace) -> bool {
        let (rate, other_rate) = (self.rate_bytes_per_s(), other.rate_bytes_per_s());
        let spread = SPREAD + SPREAD_S / self.period_s.min(other.period_s);
        (rate - other_rate).abs() <= spread * rate.max(other_rate)
    }

    /// Returns whether the bursts are equally large, too.
    fn equals(self, other: Pace) -> bool {
        let (bytes, other_bytes) = (self.burst_bytes, other.burst_bytes);
        self.agrees(other) && (bytes - other_bytes).abs() <= SPREAD * bytes.max(other_bytes)
    }
}

/// Finds the pace of one lane from the arrival times of its bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PaceMeter {
    /// When the current burst began, and the meter's value then.
    began: Option<(Time, u64)>,
    /// The last burst and the pause behind it.
    last: Option<Pace>,
    /// Agreements in a row.
    agreements: u32,
    /// The pace they agreed on.
    own: Option<Pace>,
    /// The pace found by another lane of the same source.
    assumed: Option<Pace>,
    /// Bursts in a row that contradict the found pace, or one another.
    contradictions: u32,
    /// Until then, pauses are blamed on losses or a busy machine.
    odd_until: Time,
    /// When an answer last paused.
    paused: Option<Time>,
}

impl PaceMeter {
    /// Returns the limit of its answers, found by itself or by another lane of its source.
    pub fn found(&self) -> Option<Pace> {
        self.own.or(self.assumed)
    }

    /// Returns the limit that it found itself.
    pub fn own(&self) -> Option<Pace> {
        self.own
    }

    /// Returns the limit, or what the last pause may turn out to be.
    pub fn likely(&self) -> Option<Pace> {
        self.found().or(self.last.filter(|_| self.paused.is_some()))
    }

    /// Returns whether an answer paused lately and the cause is not known yet.
    pub fn suspects(&self) -> bool {
        self.paused.is_some() && self.found().is_none()
    }

    /// Returns the pause between bursts of such answers.
    pub fn pause_s(&self) -> f64 {
        self.likely().map_or(0.0, |pace| pace.period_s)
    }

    /// Returns the size of their bursts.
    pub fn burst_bytes(&self) -> u64 {
        self.likely().map_or(0, |pace| pace.burst_bytes as u64)
    }

    /// Returns the least length of an answer: shorter ones would not show a limit, and collect
    /// burst after burst. Zero if there is no limit.
    pub fn answer_least_bytes(&self) -> u64 {
        SHOWING_BURSTS * self.burst_bytes()
    }

    /// Adopts the pace found by another lane of its source.
    pub fn assume(&mut self, pace: Pace) {
        self.assumed.get_or_insert(pace);
    }

    /// Notes that a new answer begins: its burst comes on top of the last one's.
    pub fn answer_begins(&mut self) {
        self.began = None;
    }

    /// Records bytes that arrived at `now` after a pause of `pause_s`; the meter was at `before`.
    pub fn arrived(&mut self, now: Time, before: u64, pause_s: f64, rtt_s: f64) {
        let Some((since, from)) = self.began else {
            self.began = Some((now, before));
            return;
        };
        let lasted_s = now.secs_since(since);
        if pause_s >= PAUSE_MIN_S.max(PAUSE_ROUND_TRIPS * rtt_s) {
            self.began = Some((now, before));
            self.burst_ended(Pace {
                period_s: lasted_s,
                burst_bytes: before.saturating_sub(from) as f64,
            });
            if self.contradictions >= CONTRADICTIONS_BORNE {
                self.odd_until = now.plus_secs(ODD_S);
                self.contradictions = 0;
            }
            self.paused = (now >= self.odd_until).then_some(now);
        } else if self.found().is_some_and(|pace| lasted_s > LAPSE_PERIODS * pace.period_s) {
            // Bytes now arrive without pauses.
            *self = PaceMeter { began: Some((now, before)), ..PaceMeter::default() };
        } else if self.paused.is_some_and(|at| now.secs_since(at) > SUSPECTED_S) {
            self.paused = None;
        }
    }

    fn burst_ended(&mut self, burst: Pace) {
        let Some(last) = self.last.replace(burst) else { return };
        if !last.agrees(burst) && !self.found().is_some_and(|known| known.agrees(burst)) {
            self.agreements = 0;
            self.contradictions = self.contradictions.saturating_add(1);
            if self.contradictions >= CONTRADICTIONS_BORNE {
                (self.own, self.assumed) = (None, None);
            }
            return;
        }
        self.contradictions = 0;
        // Bursts of different sizes may have the same rate by chance.
        self.agreements += if last.equals(burst) { AGREEMENTS } else { 1 };
        match &mut self.own {
            // The rest of a second makes shorter bursts in between.
            Some(own) if own.agrees(burst) && own.burst_bytes > burst.burst_bytes => {}
            Some(own) => *own = burst,
            None if self.agreements >= AGREEMENTS => {
                (self.own, self.assumed) = (Some(burst), None);
            }
            None => {}
        }
    }
}

/// Shortest pause: losses are usually repaired sooner …
const PAUSE_MIN_S: f64 = 0.12;
/// … and at least this many round trips, in which a sender may wait for acknowledgements.
const PAUSE_ROUND_TRIPS: f64 = 3.0;
/// Rates and bursts that differ by no more than this part are equal …
const SPREAD: f64 = 0.06;
/// … and rates also within the error of this much time: meters are not read continuously.
const SPREAD_S: f64 = 0.03;
/// Agreements in a row that prove a limit.
const AGREEMENTS: u32 = 2;
/// A limit is forgotten after this many periods without a pause.
const LAPSE_PERIODS: f64 = 3.0;
/// Bursts in one answer that show whether it is limited.
const SHOWING_BURSTS: u64 = 4;
/// A pause not followed by another one within this time was no limit.
const SUSPECTED_S: f64 = 3.0;
/// After contradictory pauses, pauses do not count as a limit for this long.
const ODD_S: f64 = 5.0;
/// Contradictions borne, because a busy server or link delays some bursts.
const CONTRADICTIONS_BORNE: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// nginx with `limit_rate 3m`: 2 MiB at once every 667 ms.
    fn limited(meter: &mut PaceMeter, from_ms: u64, bursts: u64) {
        meter.answer_begins();
        for n in 0..bursts {
            let now = at(from_ms + 667 * n);
            meter.arrived(now, n * 2_097_152, if n == 0 { 0.0 } else { 0.66 }, 0.0001);
            meter.arrived(now.plus_secs(0.02), n * 2_097_152 + 1_000_000, 0.02, 0.0001);
        }
    }

    #[test]
    fn two_equal_bursts_and_pauses_are_a_limit() {
        let mut meter = PaceMeter::default();
        limited(&mut meter, 0, 2);
        assert_eq!(meter.found(), None, "one pause may be anything");
        limited(&mut meter, 3000, 3);
        let rate = meter.found().unwrap().rate_bytes_per_s();
        assert!((rate / 3_144_000.0 - 1.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn losses_are_not_a_limit() {
        let mut meter = PaceMeter::default();
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut now, mut total) = (Time::ZERO, 0);
        for _ in 0..200 {
            now = now.plus_secs(0.2 + 0.4 * rng.f64());
            meter.arrived(now, total, 0.2, 0.03);
            total += rng.u64(100_000..4_000_000);
        }
        assert_eq!(meter.own(), None);
    }

    #[test]
    fn a_limit_that_is_lifted_is_forgotten() {
        let mut meter = PaceMeter::default();
        limited(&mut meter, 0, 4);
        assert!(meter.found().is_some());
        for n in 0..200 {
            meter.arrived(at(3000 + 20 * n), 10_000_000 + n * 100_000, 0.02, 0.0001);
        }
        assert_eq!(meter.found(), None);
    }

    #[test]
    fn what_another_lane_found_counts_until_this_one_shows_otherwise() {
        let pace = Pace { period_s: 1.0, burst_bytes: 600_000.0 };
        let mut meter = PaceMeter::default();
        meter.assume(pace);
        assert_eq!((meter.found(), meter.own()), (Some(pace), None));
        for n in 0..3 {
            meter.arrived(at(2000 * n), n * 600_000, 1.9, 0.0001);
        }
        assert_eq!(meter.found().unwrap().rate_bytes_per_s(), 300_000.0);
    }
}
