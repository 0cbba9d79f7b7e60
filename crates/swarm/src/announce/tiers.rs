//! Which tracker is asked when (BEP 12), without clock and sockets.
//!
//! One tracker is asked at a time: the first in order that has not failed lately. Trackers of a tier
//! begin in random order; one that answers moves to the front of its tier. A tracker that fails is
//! left alone for a while that doubles, and the next one is tried at once. Intervals that trackers
//! ask for are kept within bounds, because they may lie.

use std::time::Duration;

use swath_formats::tracker::{AnnounceAnswer, Event};
use swath_model::Time;

/// The number of a tracker, in the order in which they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackerIndex(pub usize);

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask this tracker.
    Ask(TrackerIndex),
    /// Nothing before this time; [`Time::MAX`] without trackers.
    Wait(Time),
}

/// The trackers of a torrent.
#[derive(Clone, Debug)]
pub struct Tiers {
    tiers: Vec<Vec<Tracker>>,
    /// When an announce is due.
    due: Time,
    /// The tracker that answered last.
    working: Option<TrackerIndex>,
    random: fastrand::Rng,
}

#[derive(Clone, Debug)]
struct Tracker {
    index: TrackerIndex,
    /// Failures in a row.
    failures: u32,
    /// It is left alone until then.
    not_before: Time,
    /// The bytes that we lacked when it answered last.
    told_left: Option<u64>,
}

impl Tiers {
    /// Returns tiers of these sizes, numbered through, of which one is to be asked at once.
    pub fn new(sizes: &[usize], seed: u64) -> Tiers {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut indices = (0..).map(TrackerIndex);
        let tier = |&size: &usize| {
            let fresh =
                |index| Tracker { index, failures: 0, not_before: Time::ZERO, told_left: None };
            let mut tier: Vec<_> = indices.by_ref().take(size).map(fresh).collect();
            random.shuffle(&mut tier);
            tier
        };
        let tiers = sizes.iter().map(tier).collect();
        Tiers { tiers, due: Time::ZERO, working: None, random }
    }

    /// Returns what to do now.
    pub fn poll(&self, now: Time) -> Next {
        if now < self.due {
            return Next::Wait(self.due);
        }
        let ready = self.all().find(|tracker| tracker.not_before <= now);
        let earliest = || self.all().map(|tracker| tracker.not_before).min();
        match ready {
            Some(tracker) => Next::Ask(tracker.index),
            None => Next::Wait(earliest().unwrap_or(Time::MAX)),
        }
    }

    /// Returns what an announce tells this tracker to have happened, while so many bytes are lacking.
    pub fn event(&self, index: TrackerIndex, left: u64) -> Event {
        let told = self.all().find(|tracker| tracker.index == index).and_then(|it| it.told_left);
        match told {
            None => Event::Started,
            Some(before) if before > 0 && left == 0 => Event::Completed,
            Some(_) => Event::None,
        }
    }

    /// A tracker has answered an announce that said that `left` bytes are lacking.
    pub fn answered(&mut self, index: TrackerIndex, left: u64, answer: &AnnounceAnswer, now: Time) {
        let seconds = |it: u32| Duration::from_secs(it.into());
        let shortest = answer.min_interval_s.map_or(Duration::ZERO, seconds);
        let shortest = shortest.clamp(INTERVAL_MIN, INTERVAL_MAX);
        let interval = seconds(answer.interval_s).clamp(shortest, INTERVAL_MAX);
        // Never too early, but not all at the same time.
        self.due = now + interval.mul_f64(1.0 + JITTER * self.random.f64());
        self.working = Some(index);
        for tier in &mut self.tiers {
            let Some(at) = tier.iter().position(|tracker| tracker.index == index) else { continue };
            tier[..=at].rotate_right(1);
            let told_left = Some(left);
            tier[0] = Tracker { index, failures: 0, not_before: now + shortest, told_left };
        }
    }

    /// A tracker has not answered, or has refused, perhaps with a time after which it may be asked
    /// again.
    pub fn failed(&mut self, index: TrackerIndex, retry_after: Option<Duration>, now: Time) {
        let share = 1.0 + JITTER * self.random.f64();
        let Some(tracker) = self.all_mut().find(|tracker| tracker.index == index) else { return };
        let doubled = BACK_OFF.saturating_mul(1 << tracker.failures.min(DOUBLINGS_MAX));
        let wait = doubled.max(retry_after.unwrap_or_default()).min(INTERVAL_MAX);
        tracker.failures += 1;
        tracker.not_before = now + wait.mul_f64(share);
    }

    /// More peers are wanted: asks the tracker that works as soon as it allows.
    pub fn hasten(&mut self, now: Time) {
        let working = self.all().find(|tracker| Some(tracker.index) == self.working);
        if let Some(not_before) = working.map(|tracker| tracker.not_before) {
            self.due = self.due.min(now.max(not_before));
        }
    }

    /// We have got the last byte: tells the tracker that works at once.
    pub fn complete(&mut self, now: Time) {
        let working = self.working;
        if let Some(tracker) = self.all_mut().find(|tracker| Some(tracker.index) == working) {
            tracker.not_before = now;
        };
        self.due = self.due.min(now);
    }

    /// Returns the trackers that know of us, and are to be told when we leave.
    pub fn know_us(&self) -> impl Iterator<Item = TrackerIndex> + '_ {
        self.all().filter(|tracker| tracker.told_left.is_some()).map(|tracker| tracker.index)
    }

    fn all(&self) -> impl Iterator<Item = &Tracker> {
        self.tiers.iter().flatten()
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Tracker> {
        self.tiers.iter_mut().flatten()
    }
}

/// Trackers for tests say so; others mean minutes.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Whoever says more would never hear of us again.
const INTERVAL_MAX: Duration = Duration::from_secs(6 * 3600);
/// The first wait after a failure …
const BACK_OFF: Duration = Duration::from_secs(30);
/// … doubles so often, to a bit more than an hour.
const DOUBLINGS_MAX: u32 = 7;
/// The most that is added to waits, as a share of them.
const JITTER: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: TrackerIndex = TrackerIndex(0);
    const SECOND: TrackerIndex = TrackerIndex(1);

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1000)
    }

    fn answer(interval_s: u32, min_interval_s: Option<u32>) -> AnnounceAnswer {
        AnnounceAnswer { interval_s, min_interval_s, ..AnnounceAnswer::default() }
    }

    fn waits_s(tiers: &Tiers, now: Time) -> f64 {
        match tiers.poll(now) {
            Next::Wait(until) => until.secs_since(now),
            Next::Ask(_) => 0.0,
        }
    }

    #[test]
    fn the_interval_is_kept_and_lies_are_bounded() {
        for (interval_s, min_s, wanted) in [
            (1800, None, 1800.0),
            (0, None, 10.0),
            (60, Some(300), 300.0),
            (u32::MAX, None, 21_600.0),
            (60, Some(u32::MAX), 21_600.0),
        ] {
            let mut tiers = Tiers::new(&[1], 1);
            assert_eq!(tiers.poll(at(5)), Next::Ask(FIRST));
            tiers.answered(FIRST, 0, &answer(interval_s, min_s), at(5));
            let waits = waits_s(&tiers, at(5));
            assert!((wanted..=wanted * 1.05).contains(&waits), "{interval_s}: {waits}");
        }
    }

    #[test]
    fn the_next_tier_helps_until_the_first_is_back() {
        let mut tiers = Tiers::new(&[1, 1], 1);
        assert_eq!(tiers.poll(at(0)), Next::Ask(FIRST));
        tiers.failed(FIRST, None, at(1));
        assert_eq!(tiers.poll(at(1)), Next::Ask(SECOND));
        tiers.answered(SECOND, 0, &answer(100, None), at(2));
        assert!(waits_s(&tiers, at(40)) > 60.0);
        // Its back-off is over, so the first tier is tried again.
        assert_eq!(tiers.poll(at(120)), Next::Ask(FIRST));
        tiers.answered(FIRST, 0, &answer(100, None), at(120));
        assert_eq!(tiers.know_us().collect::<Vec<_>>(), [FIRST, SECOND]);
    }

    #[test]
    fn trackers_that_fail_are_asked_ever_less() {
        let mut tiers = Tiers::new(&[2], 3);
        let mut now = at(0);
        let mut asked = 0;
        while now < at(24 * 3600) {
            match tiers.poll(now) {
                Next::Ask(index) => {
                    asked += 1;
                    tiers.failed(index, None, now);
                }
                Next::Wait(until) => now = until,
            }
        }
        assert!((50..80).contains(&asked), "{asked}");
        // One that says when it may be asked again is not asked before.
        let mut tiers = Tiers::new(&[1], 3);
        tiers.failed(FIRST, Some(Duration::from_secs(500)), at(0));
        assert!((500.0..=525.0).contains(&waits_s(&tiers, at(0))));
        assert_eq!(Tiers::new(&[], 1).poll(at(0)), Next::Wait(Time::MAX));
    }

    #[test]
    fn one_that_answers_comes_first_in_its_tier() {
        let mut tiers = Tiers::new(&[3], 9);
        for _ in 0..2 {
            let Next::Ask(index) = tiers.poll(at(0)) else { panic!() };
            tiers.failed(index, None, at(0));
        }
        let Next::Ask(last) = tiers.poll(at(0)) else { panic!() };
        tiers.answered(last, 0, &answer(200, None), at(0));
        assert_eq!(tiers.poll(at(300)), Next::Ask(last));
    }

    #[test]
    fn events_are_told_once() {
        let mut tiers = Tiers::new(&[1], 1);
        assert_eq!(tiers.event(FIRST, 5), Event::Started);
        tiers.failed(FIRST, None, at(0));
        assert_eq!(tiers.event(FIRST, 5), Event::Started);
        tiers.answered(FIRST, 5, &answer(1000, Some(600)), at(100));
        assert_eq!(tiers.event(FIRST, 5), Event::None);
        // More peers: not before the tracker allows. The end: at once.
        tiers.hasten(at(200));
        assert_eq!(tiers.poll(at(200)), Next::Wait(at(700)));
        tiers.complete(at(300));
        assert_eq!(tiers.poll(at(300)), Next::Ask(FIRST));
        assert_eq!(tiers.event(FIRST, 0), Event::Completed);
        tiers.answered(FIRST, 0, &answer(1000, None), at(300));
        assert_eq!(tiers.event(FIRST, 0), Event::None);
    }
}
