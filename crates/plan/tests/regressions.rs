//! One test per bug that simulations found in the planner, each telling its story.

use std::time::Duration;

use swath_model::{LaneId, Range, RangeSet, SourceId, SwathId, Time};
use swath_plan::{Action, Config, Event, Lanes, Loss, Planner, SourceStatus};

const MIB: u64 = 1 << 20;

/// A planner, its clock, and what it has asked for.
struct Bench {
    planner: Planner,
    now: Time,
    actions: Vec<Action>,
}

impl Bench {
    /// `sources` sources whose lanes (numbered like them) are up, and a file of `size_bytes`.
    fn new(sources: u32, size_bytes: u64) -> Self {
        Self::with(Config { lanes: Lanes::Fixed(1), ..Config::default() }, sources, size_bytes)
    }

    fn with(config: Config, sources: u32, size_bytes: u64) -> Self {
        let mut bench =
            Self { planner: Planner::new(config), now: Time::ZERO, actions: Vec::new() };
        bench.tell(Event::Layout { size_bytes, missing: RangeSet::full(size_bytes) });
        for at in 0..sources {
            bench.tell(Event::SourceAdded { source: SourceId(at), max_lanes: None });
        }
        for at in 0..sources {
            bench.up(LaneId(at));
        }
        bench
    }

    fn tell(&mut self, event: Event) {
        self.planner.handle(event, self.now);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.planner.poll(self.now) {
            self.actions.push(action);
        }
        self.planner.audit().expect("the books agree");
    }

    fn up(&mut self, lane: LaneId) {
        self.tell(Event::LaneUp { lane, rtt: Duration::from_millis(10), pipelines: true });
    }

    /// Time passes, nothing happens.
    fn wait_s(&mut self, seconds: f64) {
        let until = self.now.plus_secs(seconds);
        while let Some(at) = self.planner.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.act();
        }
        self.now = until;
        self.act();
    }

    /// What `lane` was asked for since the last time, in order.
    fn fetches(&mut self, lane: u32) -> Vec<(SwathId, Range)> {
        let mut found = Vec::new();
        self.actions.retain(|action| match *action {
            Action::Fetch { lane: LaneId(of), swath, range } if of == lane => {
                found.push((swath, range));
                false
            }
            _ => true,
        });
        found
    }

    /// The whole swath arrives on its lane, `total` bytes of it so far.
    fn deliver(&mut self, lane: u32, total: &mut u64, (swath, range): (SwathId, Range)) {
        *total += range.len();
        self.tell(Event::Arrived { lane: LaneId(lane), total_bytes: *total });
        self.tell(Event::Delivered { swath, range });
        self.tell(Event::SwathDone { swath });
    }

    fn took(&self, wanted: &Action) -> bool {
        self.actions.contains(wanted)
    }
}

#[test]
fn a_lane_that_we_hold_up_ourselves_is_not_silent() {
    // With a low rate limit over many lanes each has its turn every few seconds. They were taken
    // for silent: their ranges went to others, which were held up as well, and connections closed.
    let mut bench = Bench::new(2, 100 * MIB);
    for lane in 0..2 {
        bench.tell(Event::Arrived { lane: LaneId(lane), total_bytes: 1000 });
    }
    bench.actions.clear();
    for _ in 0..100 {
        bench.wait_s(0.1);
        for lane in 0..2 {
            bench.tell(Event::HeldUp { lane: LaneId(lane) });
        }
    }
    let closed = bench.actions.iter().any(|action| matches!(action, Action::CloseLane { .. }));
    assert!(!closed, "{:?}", bench.actions);
    assert_eq!(bench.planner.source(SourceId(0)).unwrap().status, SourceStatus::Running);
    // When we let go, silence is silence again.
    bench.wait_s(10.0);
    assert!(bench.took(&Action::CloseLane { lane: LaneId(0) }));
}

#[test]
fn a_lane_that_answers_after_having_counted_as_silent_is_asked_again() {
    // A busy server took 1 s for its 503: the lane had been marked silent, and stayed so for ever.
    let mut bench = Bench::new(1, 8 * MIB);
    let first = bench.fetches(0)[0].0;
    bench.wait_s(1.0);
    bench.tell(Event::SwathFailed { swath: first, loss: Loss::Busy(Duration::from_secs(1)) });
    bench.wait_s(0.9);
    assert_eq!(bench.fetches(0), [], "it asked for patience");
    bench.wait_s(0.3);
    assert!(!bench.fetches(0).is_empty());
}

#[test]
fn what_only_a_slow_lane_may_fetch_is_fetched_by_it() {
    // The fast lane would have been done sooner, so the slow one was left idle; but what was left
    // was forbidden to the fast one, and nobody took it.
    let mut bench = Bench::new(2, 4 * MIB);
    let mut totals = [0, 0];
    bench.now = Time::from_millis(300);
    let fast = bench.fetches(0);
    for swath in fast {
        bench.deliver(0, &mut totals[0], swath);
    }
    let slow = bench.fetches(1)[0];
    bench.tell(Event::Arrived { lane: LaneId(1), total_bytes: 10_000 });
    bench.wait_s(0.1);
    bench.tell(Event::Forbidden { source: SourceId(0), range: Range::new(0, 4 * MIB) });
    bench.wait_s(0.05);
    // The fast one brings what it was asked for before, the slow one everything else.
    for _ in 0..2000 {
        bench.now = bench.now.plus_secs(0.05);
        for swath in bench.fetches(0) {
            bench.deliver(0, &mut totals[0], swath);
        }
        for swath in bench.fetches(1).into_iter().chain((totals[1] == 0).then_some(slow)) {
            bench.deliver(1, &mut totals[1], swath);
        }
        bench.wait_s(0.05);
    }
    assert!(bench.took(&Action::Finished), "left: {:?}", bench.planner.undelivered());
}

#[test]
fn when_the_rest_is_forbidden_everywhere_it_is_over() {
    // It waited for ever for a source that it might ask.
    let mut bench = Bench::new(2, 4 * MIB);
    for source in 0..2 {
        bench.tell(Event::Forbidden { source: SourceId(source), range: Range::new(0, 4 * MIB) });
        bench.tell(Event::LaneLost { lane: LaneId(source), loss: Loss::Clean });
    }
    bench.wait_s(0.1);
    assert!(bench.took(&Action::Exhausted));
}

#[test]
fn a_new_replica_goes_on_where_all_others_failed() {
    let mut bench = Bench::new(1, 4 * MIB);
    bench.tell(Event::SourceBad { source: SourceId(0) });
    bench.wait_s(0.1);
    assert!(bench.took(&Action::Exhausted));
    bench.tell(Event::SourceAdded { source: SourceId(1), max_lanes: None });
    bench.wait_s(0.1);
    assert!(bench.took(&Action::OpenLane { source: SourceId(1), lane: LaneId(1) }));
}

#[test]
fn connections_that_close_without_an_answer_are_not_tried_for_ever() {
    // Closed in good order each time, so a new one was opened at once, thousands a second.
    let mut bench = Bench::new(1, 4 * MIB);
    let mut opened = 0;
    for _ in 0..600 {
        let lanes: Vec<LaneId> = bench
            .actions
            .drain(..)
            .filter_map(|action| match action {
                Action::Fetch { lane, .. } => Some(lane),
                _ => None,
            })
            .collect();
        for lane in lanes {
            bench.tell(Event::LaneLost { lane, loss: Loss::Clean });
        }
        bench.wait_s(0.1);
        for action in bench.actions.clone() {
            if let Action::OpenLane { lane, .. } = action {
                opened += 1;
                bench.up(lane);
            }
        }
        bench.actions.retain(|action| !matches!(action, Action::OpenLane { .. }));
    }
    assert!(opened < 15, "{opened} connections in a minute");
}

#[test]
fn a_spare_takes_the_place_of_a_source_that_waits() {
    // The first source kept its place through its back-off, all 40 s of it.
    let config = Config { max_sources: 1, lanes: Lanes::Fixed(1), ..Config::default() };
    let mut bench = Bench::with(config, 2, 4 * MIB);
    assert!(!bench.took(&Action::OpenLane { source: SourceId(1), lane: LaneId(1) }));
    bench.tell(Event::LaneLost { lane: LaneId(0), loss: Loss::Broken });
    bench.wait_s(0.05);
    assert!(bench.took(&Action::OpenLane { source: SourceId(1), lane: LaneId(1) }));
}

#[test]
fn one_broken_lane_does_not_silence_its_source() {
    // The back-off of a reset connection also kept the healthy ones from being asked.
    let config = Config { lanes: Lanes::Fixed(2), ..Config::default() };
    let mut bench = Bench::with(config, 1, 64 << 30);
    bench.wait_s(0.05);
    bench.up(LaneId(1));
    let mut total = 0;
    bench.fetches(1);
    for _ in 0..20 {
        bench.now = bench.now.plus_secs(0.02);
        for swath in bench.fetches(0) {
            bench.deliver(0, &mut total, swath);
        }
    }
    bench.tell(Event::LaneLost { lane: LaneId(1), loss: Loss::Broken });
    bench.fetches(0).into_iter().for_each(|swath| bench.deliver(0, &mut total, swath));
    assert!(!bench.fetches(0).is_empty(), "asked again within no time");
}

#[test]
fn what_a_lost_helper_had_taken_over_returns() {
    // Doubtful bytes went to a helper; when that was lost they belonged to nobody but the lane
    // that was silent, and waited for its end.
    let mut bench = Bench::new(3, 3 * MIB);
    let all: u64 = (0..3)
        .map(|lane| bench.fetches(lane).iter().map(|(_, range)| range.len()).sum::<u64>())
        .sum();
    assert!(all > 0);
    bench.wait_s(0.8);
    bench.tell(Event::LaneLost { lane: LaneId(1), loss: Loss::Final });
    bench.tell(Event::LaneLost { lane: LaneId(2), loss: Loss::Final });
    bench.wait_s(60.0);
    bench.tell(Event::SourceBad { source: SourceId(0) });
    bench.wait_s(0.1);
    assert!(bench.took(&Action::Exhausted));
    assert_eq!(bench.planner.undelivered().total_bytes(), 3 * MIB);
}

#[test]
fn the_first_request_respects_the_window() {
    let config = Config { window_bytes: Some(MIB), ..Config::default() };
    let mut planner = Planner::new(config);
    planner.handle(Event::SourceAdded { source: SourceId(0), max_lanes: None }, Time::ZERO);
    while planner.poll(Time::ZERO).is_some() {}
    planner.handle(
        Event::LaneUp { lane: LaneId(0), rtt: Duration::from_millis(1), pipelines: true },
        Time::ZERO,
    );
    let first = planner.poll(Time::ZERO);
    assert!(matches!(first, Some(Action::Fetch { range, .. }) if range.end <= MIB), "{first:?}");
}

#[test]
fn the_late_bytes_of_a_closed_lane_relieve_whoever_was_asked_instead() {
    let mut bench = Bench::new(2, 2 * MIB);
    let (swath, range) = bench.fetches(0)[0];
    bench.fetches(1);
    bench.tell(Event::SourceBad { source: SourceId(0) });
    let mut total = 0;
    // The other lane is asked for everything, the closed one's share included.
    let mut asked = Vec::new();
    for _ in 0..50 {
        bench.wait_s(0.02);
        asked.extend(bench.fetches(1));
        total += 10_000;
        bench.tell(Event::Arrived { lane: LaneId(1), total_bytes: total });
        if asked.iter().any(|(_, other)| other.intersect(range).is_some()) {
            break;
        }
    }
    let taken_over = asked.iter().find(|(_, other)| other.intersect(range).is_some()).copied();
    if let Some((other, _)) = taken_over {
        bench.tell(Event::Delivered { swath, range });
        let relieved = bench
            .actions
            .iter()
            .any(|action| matches!(action, Action::Trim { swath, .. } if *swath == other));
        assert!(relieved, "{:?}", bench.actions);
    }
}

#[test]
fn an_answer_of_unknown_length_is_followed_not_repeated() {
    // The size stays unknown until such a stream ends; its beginning was asked for again and again.
    let mut planner = Planner::new(Config::default());
    let mut now = Time::ZERO;
    planner.handle(Event::SourceAdded { source: SourceId(0), max_lanes: None }, now);
    while planner.poll(now).is_some() {}
    planner.handle(
        Event::LaneUp { lane: LaneId(0), rtt: Duration::from_millis(1), pipelines: true },
        now,
    );
    let mut expected = 0;
    for _ in 0..5 {
        let Some(Action::Fetch { swath, range, .. }) = planner.poll(now) else {
            panic!("nothing asked")
        };
        assert_eq!(range.start, expected);
        expected = range.end;
        now = now.plus_secs(0.1);
        planner.handle(Event::StreamOnly { source: SourceId(0) }, now);
        planner.handle(Event::Delivered { swath, range }, now);
        planner.handle(Event::SwathDone { swath }, now);
        planner.handle(Event::Arrived { lane: LaneId(0), total_bytes: range.end }, now);
    }
    let missing = RangeSet::from(Range::new(expected, expected + 1000));
    planner.handle(Event::Layout { size_bytes: expected + 1000, missing }, now);
    while planner.poll(now).is_some() {}
    planner.audit().expect("the books agree");
}
