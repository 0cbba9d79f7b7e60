//! A file whose length is still being found out.

use swath_model::{LaneId, Range, RangeSet, SourceId};
use swath_plan::{Action, Config, Event, Lanes};

use crate::support::{Bench, Flow, MIB};

const UNIT_BYTES: u64 = (256 << 10) + 32;

fn growing(sources: u32) -> Bench {
    let config = Config {
        lanes: Lanes::Fixed(1),
        grid_bytes: UNIT_BYTES,
        unit_bytes: UNIT_BYTES,
        ..Config::default()
    };
    let mut bench = Bench::with(config, 0, 0);
    bench.tell(Event::Grown { size_bytes: 0, missing: RangeSet::new(), more: true });
    for at in 0..sources {
        bench.tell(Event::SourceAdded { source: SourceId(at), max_lanes: None });
    }
    bench.wait_s(0.05);
    for at in 0..sources {
        bench.up(LaneId(at));
    }
    bench.actions.clear();
    bench
}

fn grow(bench: &mut Bench, from: u64, to: u64, more: bool) {
    let missing = RangeSet::from(Range::new(from, to));
    bench.tell(Event::Grown { size_bytes: to, missing, more });
}

#[test]
fn nothing_is_finished_before_the_length_is_known() {
    let mut bench = growing(1);
    bench.wait_s(10.0);
    assert!(!bench.took(&Action::Finished) && !bench.took(&Action::Exhausted));
    let size = 4 * UNIT_BYTES;
    grow(&mut bench, 0, size, true);
    let mut flow = Flow::of(0);
    let mut carry = |bench: &mut Bench| {
        for _ in 0..50 {
            flow.carry(bench, UNIT_BYTES);
            bench.wait_s(0.02);
        }
    };
    carry(&mut bench);
    assert!(bench.planner.undelivered().is_empty());
    bench.wait_s(10.0);
    assert!(!bench.took(&Action::Finished));
    // The last unit is shorter.
    grow(&mut bench, size, size + 1000, true);
    grow(&mut bench, size + 1000, size + 1000, false);
    carry(&mut bench);
    assert!(bench.took(&Action::Finished));
}

#[test]
fn what_grows_is_asked_for_in_whole_units() {
    let mut bench = growing(2);
    let mut flows = [Flow::of(0), Flow::of(1)];
    let mut size = 0;
    // A fast lane, and one for which a unit is long work.
    let mut asked = RangeSet::new();
    let mut look = |bench: &Bench| {
        for action in &bench.actions {
            let Action::Fetch { range, .. } = action else { continue };
            assert_eq!(range.start % UNIT_BYTES, 0, "{range:?}");
            asked.insert(*range);
        }
    };
    for step in 0..400 {
        if step < 100 {
            grow(&mut bench, size, size + 3 * UNIT_BYTES, true);
            size += 3 * UNIT_BYTES;
        }
        look(&bench);
        // Chunks are whole units: a lane counts what it has, and hands over what is complete.
        for (flow, units) in flows.iter_mut().zip([2, u64::from(step % 30 == 0)]) {
            flow.carry(&mut bench, units * UNIT_BYTES);
        }
        bench.wait_s(0.02);
    }
    assert_eq!(bench.planner.hedged_bytes(), 0, "what comes next is worth more");
    grow(&mut bench, size, size, false);
    for _ in 0..400 {
        look(&bench);
        for (flow, units) in flows.iter_mut().zip([2, 1]) {
            flow.carry(&mut bench, units * UNIT_BYTES);
        }
        bench.wait_s(0.02);
    }
    assert!(bench.took(&Action::Finished), "{:?}", bench.planner.undelivered().total_bytes());
    assert!(asked.covers(Range::new(0, size)));
    assert!(size > 64 * MIB);
}
