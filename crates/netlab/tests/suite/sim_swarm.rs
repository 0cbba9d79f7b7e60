//! Swarms in virtual time: every member has a real planner, sources come and go by the thousand,
//! and what they have grows and shrinks.

use crate::swarm::{Outcome, Swarm};
use swath_plan::PickerKind;

#[track_caller]
fn run(swarm: &Swarm) -> Outcome {
    let outcome = swarm.run().unwrap_or_else(|what| panic!("{what}\n{swarm:?}"));
    println!("{:?}, seed {}: {outcome}", swarm.picker, swarm.seed);
    outcome
}

fn with(picker: PickerKind, swarm: &Swarm) -> Swarm {
    Swarm { picker, ..swarm.clone() }
}

#[test]
fn rarest_first_spreads_faster_than_in_order() {
    // All come at once, and the origin has no more to give than each of them: in order, all have
    // the same and nothing for each other.
    for seed in 1..=3 {
        let crowd = Swarm { seed, ..Swarm::default() };
        let rarest = run(&with(PickerKind::RarestFirst, &crowd));
        let random = run(&with(PickerKind::Random, &crowd));
        let in_order = run(&with(PickerKind::Sequential, &crowd));
        assert_eq!([rarest.waiting, random.waiting, in_order.waiting], [0; 3]);
        assert!(rarest.mean_s < 0.7 * in_order.mean_s, "{rarest}\n{in_order}");
        assert!(rarest.mean_s < 1.1 * random.mean_s, "{rarest}\n{random}");
        assert!(rarest.origin_copies < 0.7 * in_order.origin_copies, "{rarest}\n{in_order}");
    }
}

#[test]
fn rarest_first_keeps_the_file_when_its_origin_leaves() {
    let mut in_order_finished = 0;
    for seed in 1..=3 {
        // The last ones come when it is about to leave. By then it has sent some copies, but in
        // order nobody may have got the end of any.
        let short = Swarm { arrivals_s: 30.0, origin_leaves_s: 32.0, seed, ..Swarm::default() };
        let short = Swarm { stays_s: 100.0, limit_s: 80.0, ..short };
        let rarest = run(&with(PickerKind::RarestFirst, &short));
        assert_eq!(rarest.finished, short.members, "{rarest}");
        in_order_finished += run(&with(PickerKind::Sequential, &short)).finished;
    }
    assert!(in_order_finished <= 30, "{in_order_finished} of 60 finished in order");
}

#[test]
fn thousands_come_and_go_and_what_they_have_changes() {
    let crowd = Swarm {
        members: 2000,
        arrivals_s: 200.0,
        pieces: 16,
        stays_s: 5.0,
        leaves_early: 0.2,
        drops_per_s: 0.5,
        origin_bytes_per_s: 4e6,
        ..Swarm::default()
    };
    for picker in [PickerKind::RarestFirst, PickerKind::Sequential] {
        let outcome = run(&with(picker, &crowd));
        assert_eq!(outcome.waiting, 0, "{outcome}");
        assert_eq!(outcome.finished + outcome.left, crowd.members);
        assert!(outcome.left > 100 && outcome.sources_peak < 400, "{outcome}");
    }
}

#[test]
fn equal_swarms_run_equally() {
    let crowd = Swarm { members: 60, arrivals_s: 30.0, drops_per_s: 1.0, ..Swarm::default() };
    assert_eq!(run(&crowd), run(&crowd));
}
