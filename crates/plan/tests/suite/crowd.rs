//! Sources that come and go, and have more or less than before.

use std::collections::BTreeMap;

use swath_model::{LaneId, Range, RangeSet, SourceId, Time};
use swath_plan::{Action, Config, Event, Lanes, Loss, Planner};

use crate::support::{Bench, MIB};

fn empty_bench() -> Bench {
    let config = Config { lanes: Lanes::Fixed(1), max_sources: 2, ..Config::default() };
    Bench { planner: Planner::new(config), now: Time::ZERO, actions: vec![] }
}

#[test]
fn what_a_source_comes_to_have_is_asked_of_it_even_when_nobody_had_it_before() {
    let mut bench = empty_bench();
    let source = SourceId(0);
    bench.planner.handle(Event::SourceAdded { source, max_lanes: None }, bench.now);
    bench.tell(Event::Lacks { source, range: Range::new(0, u64::MAX) });
    bench.tell(Event::Layout { size_bytes: MIB, missing: RangeSet::full(MIB) });
    bench.wait_s(0.1);
    assert_eq!(bench.actions, [Action::Exhausted], "it has nothing, and is not contacted");
    let half = Range::new(0, MIB / 2);
    bench.tell(Event::Has { source, range: half });
    let lane = bench.opened()[0];
    bench.up(lane);
    let fetches = bench.fetches(lane.0);
    assert!(!fetches.is_empty() && fetches.iter().all(|it| half.intersect(it.1) == Some(it.1)));
    let mut total = 0;
    fetches.into_iter().for_each(|fetch| bench.deliver(lane.0, &mut total, fetch));
    bench.wait_s(0.1);
    bench.tell(Event::Has { source, range: Range::new(MIB / 2, MIB) });
    // What it lost again before it was asked for is not asked for.
    bench.tell(Event::Lacks { source, range: Range::new(MIB - 1000, MIB) });
    for _ in 0..100 {
        for fetch in bench.fetches(lane.0) {
            assert!(fetch.1.end <= MIB - 1000 || fetch.1.start < MIB / 2, "{fetch:?}");
            bench.deliver(lane.0, &mut total, fetch);
        }
        bench.wait_s(0.05);
    }
    assert!(bench.planner.undelivered().total_bytes() >= 1000);
}

#[test]
fn thousands_come_and_go_and_are_forgotten() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bench = empty_bench();
    let size = 1 << 40;
    bench.tell(Event::Layout { size_bytes: size, missing: RangeSet::full(size) });
    let mut present: Vec<SourceId> = Vec::new();
    let mut lanes: BTreeMap<LaneId, SourceId> = BTreeMap::new();
    for number in 0..5000 {
        let source = SourceId(number);
        bench.tell(Event::SourceAdded { source, max_lanes: None });
        present.push(source);
        while present.len() > random.usize(1..20) {
            let gone = present.swap_remove(random.usize(..present.len()));
            bench.tell(Event::SourceLeft { source: gone });
        }
        bench.wait_s(0.02);
        for action in std::mem::take(&mut bench.actions) {
            match action {
                Action::OpenLane { source, lane } => {
                    lanes.insert(lane, source);
                    bench.up(lane);
                }
                Action::CloseLane { lane } => {
                    lanes.remove(&lane);
                    bench.tell(Event::LaneLost { lane, loss: Loss::Clean });
                }
                Action::Fetch { lane, .. } => assert!(lanes.contains_key(&lane)),
                _ => {}
            }
        }
        let books = bench.planner.audit().unwrap();
        assert!(books.sources <= present.len() + books.lanes, "{books:?}");
    }
    let left = lanes.values().filter(|source| !present.contains(source)).count();
    assert_eq!(left, 0, "lanes to sources that have left are closed");
}
