//! What the planner makes of bytes that are here and wait behind a lost packet.

use swath_model::{LaneId, SourceId};
use swath_plan::{Action, Event, SourceStatus};

use crate::support::{Bench, Flow, MIB};

/// Bytes within 20 ms at 10 MB/s.
const STEP_BYTES: u64 = 200_000;

/// Lane 0 has been fed for a while.
fn running(sources: u32, size_bytes: u64) -> (Bench, Vec<Flow>) {
    let mut bench = Bench::new(sources, size_bytes);
    let mut flows: Vec<Flow> = (0..sources).map(Flow::of).collect();
    for _ in 0..50 {
        for flow in &mut flows {
            flow.carry(&mut bench, STEP_BYTES);
        }
        bench.wait_s(0.02);
    }
    (bench, flows)
}

#[test]
fn a_lane_is_asked_on_while_a_loss_holds_its_bytes_up() {
    // Nothing could be read for a round trip. What came meanwhile was not known of, so the next
    // request left only when all of it had been read, and the link stood idle.
    let (mut bench, mut flows) = running(1, 100 * MIB);
    flows[0].asked.extend(bench.fetches(0));
    let owed: u64 = flows[0].asked.iter().map(|(_, range)| range.len()).sum();
    let mut behind = 0;
    for _ in 0..(owed / STEP_BYTES) {
        behind += STEP_BYTES;
        bench.tell(Event::OutOfOrder { lane: LaneId(0), bytes: behind });
        bench.wait_s(0.02);
    }
    assert!(!bench.fetches(0).is_empty(), "{owed} bytes are here, and nothing is on its way");
    assert_eq!(bench.planner.source(SourceId(0)).unwrap().status, SourceStatus::Running);
    // Unknown, it is a silence.
    let (mut bench, _) = running(1, 100 * MIB);
    bench.fetches(0);
    bench.wait_s(0.02 * (owed / STEP_BYTES) as f64);
    assert_eq!(bench.fetches(0), []);
}

#[test]
fn a_lane_whose_bytes_wait_behind_a_loss_is_not_silent() {
    let (mut bench, _) = running(2, 400 * MIB);
    bench.actions.clear();
    for step in 1..40 {
        bench.tell(Event::OutOfOrder { lane: LaneId(0), bytes: 20_000 * step });
        bench.wait_s(0.1);
    }
    let gone = Action::CloseLane { lane: LaneId(0) };
    assert!(!bench.took(&gone), "{:?}", bench.actions);
    // The other one brought nothing for as long, and nothing waits there.
    assert!(bench.took(&Action::CloseLane { lane: LaneId(1) }));
    // An estimate that ceases to grow is no sign of life.
    bench.wait_s(10.0);
    assert!(bench.took(&gone));
}

#[test]
fn all_that_a_loss_holds_up_at_the_end_is_asked_for_elsewhere() {
    // Only the last of its ranges was, and only when nothing came any more: at the end of most
    // transfers over links with losses everybody waited for a lost packet.
    let (mut bench, mut flows) = running(2, 40 * MIB);
    let (mut behind, mut stopped_at) = (0, None);
    for _ in 0..400 {
        let [lost, helper] = &mut flows[..] else { unreachable!("two of them") };
        helper.carry(&mut bench, STEP_BYTES);
        lost.asked.extend(bench.fetches(0));
        if stopped_at.is_none() && bench.planner.undelivered().total_bytes() > 6 * MIB {
            lost.carry(&mut bench, STEP_BYTES);
        } else {
            // From now on a packet is missing, and the rest arrives behind it.
            stopped_at.get_or_insert(bench.now);
            let owed: u64 = lost.asked.iter().map(|(_, range)| range.len()).sum();
            behind = (behind + STEP_BYTES).min(owed - 1000);
            bench.tell(Event::OutOfOrder { lane: LaneId(0), bytes: behind });
        }
        bench.wait_s(0.02);
        if bench.took(&Action::Finished) {
            break;
        }
    }
    let took_s = stopped_at.map_or(f64::NAN, |at| bench.now.secs_since(at));
    // The other lane brings everything at its rate, and asks for it in time.
    let alone_s = 6.0 * MIB as f64 / (STEP_BYTES as f64 / 0.02);
    assert!(took_s < 1.1 * alone_s, "{took_s} s, alone {alone_s} s");
}
