//! Routes whose round trip is a good part of a transfer: how many lanes they get, and how they end.

use std::time::Duration;

use swath_model::{LaneId, Requests, SourceId};
use swath_plan::{Action, Config, Event, Lanes, Loss};

use crate::support::{Bench, Flow, MIB};

/// Bytes within 20 ms at 10 MB/s.
const STEP_BYTES: u64 = 200_000;
/// A round trip, in milliseconds.
const FAR_MS: u64 = 500;

fn far_up(bench: &mut Bench, lane: u32) {
    let rtt = Duration::from_millis(FAR_MS);
    bench.tell(Event::LaneUp { lane: LaneId(lane), rtt, requests: Requests::Pipelined });
}

/// A source nearby and a far one, with `lanes` lanes each, the near one's first; all together bring
/// 20 MB/s, until `left_bytes` are to be fetched.
fn running(lanes: u32, left_bytes: u64) -> (Bench, Vec<Flow>) {
    let config = Config { lanes: Lanes::Fixed(lanes), ..Config::default() };
    let mut bench = Bench::with(config, 0, 64 * MIB);
    for source in 0..2 {
        bench.tell(Event::SourceAdded { source: SourceId(source), max_lanes: None });
    }
    for lane in 0..lanes {
        bench.up(LaneId(lane));
        far_up(&mut bench, lanes + lane);
    }
    let mut flows: Vec<Flow> = (0..2 * lanes).map(Flow::of).collect();
    bench.wait_s(0.02);
    for _ in 0..1000 {
        if bench.planner.undelivered().total_bytes() <= left_bytes {
            break;
        }
        for flow in &mut flows {
            flow.carry(&mut bench, STEP_BYTES / u64::from(lanes));
        }
        bench.wait_s(0.02);
    }
    bench.opened();
    (bench, flows)
}

#[test]
fn the_longer_the_route_the_more_lanes_at_first() {
    // What senders keep under way on four lanes filled three quarters of a route of half a second,
    // and the trial that would have shown it came when most was over.
    // Whoever is alone has more of them at once: nobody else fills what one of them leaves.
    let of_three = [(10, 1), (40, 2), (120, 2), (200, 3), (300, 5), (FAR_MS, 8), (2000, 8)];
    let of_one = [(10, 1), (15, 1), (30, 2), (40, 6), (200, 6), (FAR_MS, 8), (2000, 8)];
    for (sources, expected) in [(3, &of_three[..]), (1, &of_one[..])] {
        for &(rtt_ms, lanes) in expected {
            let mut bench = Bench::with(Config::default(), 0, 1024 * MIB);
            for source in 0..sources {
                bench.tell(Event::SourceAdded { source: SourceId(source), max_lanes: None });
            }
            bench.wait_s(0.02);
            let others = bench.opened().len() - 1;
            assert_eq!(others, sources as usize - 1);
            let rtt = Duration::from_millis(rtt_ms);
            bench.tell(Event::LaneUp { lane: LaneId(0), rtt, requests: Requests::Pipelined });
            bench.wait_s(0.05);
            assert_eq!(1 + bench.opened().len(), lanes, "{rtt_ms} ms, {sources} sources");
            let config = Config::default();
            assert_eq!(config.lanes_at_first(rtt, sources) as usize, lanes);
        }
    }
}

#[test]
fn peers_have_fewer_lanes_once_there_are_many() {
    // Eight sites had about ten connections between any two of them, and announced every piece on each.
    for (rtt_ms, first, later) in [(10, 1, 1), (40, 6, 1), (120, 6, 2), (FAR_MS, 8, 8)] {
        let rtt = Duration::from_millis(rtt_ms);
        let up = |bench: &mut Bench, lane| {
            bench.tell(Event::LaneUp { lane, rtt, requests: Requests::Blocks });
        };
        let mut bench = Bench::with(Config::default(), 0, 1024 * MIB);
        let mut lanes = Vec::new();
        for source in 0..4 {
            bench.tell(Event::SourceAdded { source: SourceId(source), max_lanes: None });
            for _ in 0..10 {
                bench.wait_s(0.05);
                let opened = bench.opened();
                opened.iter().for_each(|&lane| up(&mut bench, lane));
                lanes.extend(opened);
            }
            if source == 0 {
                assert_eq!(lanes.len(), first, "{rtt_ms} ms, alone");
            }
        }
        let mut flows: Vec<Flow> = lanes.iter().map(|lane| Flow::of(lane.0)).collect();
        for _ in 0..20 {
            flows.iter_mut().for_each(|flow| flow.carry(&mut bench, MIB));
            bench.wait_s(0.05);
        }
        let is_close = |action: &&Action| matches!(action, Action::CloseLane { .. });
        let closed = bench.actions.iter().filter(is_close).count();
        assert_eq!(bench.opened(), [], "{rtt_ms} ms: no trials");
        assert_eq!(lanes.len() - closed, 4 * later, "{rtt_ms} ms, of four");
    }
}

#[test]
fn a_source_that_is_alone_begins_with_the_lanes_that_paid_before() {
    let config = Config { first_lanes: Some(5), ..Config::default() };
    for (sources, rtt_ms, lanes) in [(1, 10, 5), (1, 95, 5), (3, 10, 1)] {
        let rtt = Duration::from_millis(rtt_ms);
        assert_eq!(config.lanes_at_first(rtt, sources) as usize, lanes);
        let mut bench = Bench::with(config.clone(), 0, 1024 * MIB);
        for source in 0..sources {
            bench.tell(Event::SourceAdded { source: SourceId(source), max_lanes: None });
        }
        bench.wait_s(0.02);
        bench.opened();
        bench.tell(Event::LaneUp { lane: LaneId(0), rtt, requests: Requests::Pipelined });
        bench.wait_s(0.05);
        assert_eq!(1 + bench.opened().len(), lanes, "{rtt_ms} ms, {sources} sources");
    }
}

#[test]
fn no_further_lane_is_opened_that_would_come_too_late() {
    // Those opened in the last second of a route of half a second each kept some blocks, for which
    // everybody waited. 20 MB/s in all.
    for (left_mib, opened) in [(48, 1), (8, 0)] {
        let (mut bench, _) = running(2, left_mib * MIB);
        bench.tell(Event::LaneLost { lane: LaneId(3), loss: Loss::Clean });
        bench.wait_s(0.05);
        assert_eq!(bench.opened().len(), opened, "{left_mib} MiB left");
        // The first one of a source is, whatever the time.
        bench.tell(Event::LaneLost { lane: LaneId(2), loss: Loss::Clean });
        bench.wait_s(0.05);
        assert_eq!(bench.opened().len(), 1, "{left_mib} MiB left, none of its lanes there");
    }
}

#[test]
fn a_connection_for_one_answer_is_followed_by_the_next_however_late() {
    let (mut bench, _) = running(2, 8 * MIB);
    bench.tell(Event::RequestLimit { source: SourceId(1), requests: 1 });
    bench.tell(Event::LaneLost { lane: LaneId(3), loss: Loss::Clean });
    bench.wait_s(0.05);
    assert_eq!(bench.opened().len(), 1);
}

#[test]
fn a_lane_that_comes_too_late_is_asked_for_nothing() {
    for (left_mib, asked) in [(40, true), (6, false)] {
        let (mut bench, mut flows) = running(2, 48 * MIB);
        bench.tell(Event::LaneLost { lane: LaneId(3), loss: Loss::Clean });
        bench.wait_s(0.05);
        let lane = bench.opened()[0];
        for _ in 0..1000 {
            if bench.planner.undelivered().total_bytes() <= left_mib * MIB {
                break;
            }
            for flow in &mut flows[..3] {
                flow.carry(&mut bench, STEP_BYTES / 2);
            }
            bench.wait_s(0.02);
        }
        far_up(&mut bench, lane.0);
        assert_eq!(!bench.fetches(lane.0).is_empty(), asked, "{left_mib} MiB left");
    }
}
