//! Sources that have some of the file alone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::{Bench, MIB};
use swath_model::{LaneId, Range, RangeSet, Requests, SourceId, Time};
use swath_plan::{Action, Config, Event, Lanes, Loss, Planner};

#[test]
fn nobody_is_asked_for_what_it_lacks_whatever_is_allowed_later() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..40 {
        let (sources, size) = (random.u32(1..5), random.u64(1..12) * MIB + 17);
        let config = Config { lanes: Lanes::Fixed(1), ..Config::default() };
        let mut bench = Bench { planner: Planner::new(config), now: Time::ZERO, actions: vec![] };
        let mut held = RangeSet::new();
        let mut lacks = Vec::new();
        for at in 0..sources {
            bench.tell(Event::SourceAdded { source: SourceId(at), max_lanes: None });
            let mut own = RangeSet::new();
            for _ in 0..random.usize(1..4) {
                let start = random.u64(..size);
                own.insert(Range::new(start, random.u64(start..=size)));
            }
            let lacking = own.gaps_within(Range::new(0, u64::MAX));
            for &range in &lacking {
                bench.tell(Event::Lacks { source: SourceId(at), range });
            }
            held.union_with(&own);
            lacks.push(lacking.into_iter().collect::<RangeSet>());
        }
        bench.tell(Event::Layout { size_bytes: size, missing: RangeSet::full(size) });
        let mut lanes: BTreeMap<LaneId, (SourceId, u64)> = BTreeMap::new();
        let mut is_over = false;
        for _ in 0..4000 {
            for action in std::mem::take(&mut bench.actions) {
                match action {
                    Action::OpenLane { source, lane } => {
                        lanes.insert(lane, (source, 0));
                        bench.up(lane);
                    }
                    Action::Fetch { lane, swath, range } => {
                        let Some((source, total)) = lanes.get_mut(&lane) else { continue };
                        let own = &lacks[source.index()];
                        assert_eq!(own.bytes_within(range), 0, "{range} of {source:?}");
                        bench.deliver(lane.0, total, (swath, range));
                    }
                    Action::CloseLane { lane } => {
                        lanes.remove(&lane);
                        bench.tell(Event::LaneLost { lane, loss: Loss::Clean });
                    }
                    Action::Finished | Action::Exhausted => is_over = true,
                    Action::Trim { .. } => {}
                }
            }
            if is_over {
                break;
            }
            let range = Range::new(0, size);
            bench.tell(Event::Allowed { source: SourceId(random.u32(..sources)), range });
            bench.wait_s(0.05);
        }
        assert!(is_over);
        let left = bench.planner.undelivered().total_bytes();
        assert_eq!(left, size - held.total_bytes(), "all that anybody has was fetched");
    }
}

#[test]
fn what_a_source_has_is_what_it_is_asked_for_first() {
    // The size is not known yet, and the front of the file is not there.
    let mut planner = Planner::new(Config::default());
    let source = SourceId(0);
    planner.handle(Event::SourceAdded { source, max_lanes: None }, Time::ZERO);
    for range in [Range::new(0, 40 * MIB), Range::new(41 * MIB, u64::MAX)] {
        planner.handle(Event::Lacks { source, range }, Time::ZERO);
    }
    while planner.poll(Time::ZERO).is_some() {}
    let rtt = Duration::from_millis(1);
    planner
        .handle(Event::LaneUp { lane: LaneId(0), rtt, requests: Requests::Pipelined }, Time::ZERO);
    let asked: Vec<Action> = std::iter::from_fn(|| planner.poll(Time::ZERO)).collect();
    let range = Range::new(40 * MIB, 41 * MIB);
    let is_it = matches!(asked[..], [Action::Fetch { range: asked, .. }] if asked == range);
    assert!(is_it, "{asked:?}");
}
