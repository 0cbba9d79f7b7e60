//! Who fetches what from the origin: claims, when they count, and when they are given up.

use std::time::Duration;

use swath_model::Time;
use swath_share::ledger::Ledger;
use swath_share::log::Entry;
use swath_share::pace::{PATIENCE_AT_FIRST, Pace};
use swath_transfer::CameFrom;

use crate::support::{Node, UNITS, at, books, claimed, held, in_ranges, node, units};

/// Books that have heard of node 2, which reads our log, at this time.
fn beside_another(now: Time) -> Ledger {
    let mut ours = books();
    assert!(ours.hear(node(2), &[], now));
    ours.was_read(node(2), 0, now);
    ours
}

#[test]
fn a_node_waits_for_others_before_it_begins_alone() {
    let mut ours = books();
    for now in [0.0, 0.2, 0.39] {
        ours.turn(at(now));
        assert_eq!(ours.log_length(), 0, "at {now} s");
    }
    ours.turn(at(0.41));
    assert!(!claimed(&ours).is_empty());
}

#[test]
fn a_node_that_is_alone_may_fetch_everything_it_claims_at_once() {
    let mut ours = books();
    ours.turn(at(0.0));
    ours.turn(at(0.5));
    let claims = claimed(&ours);
    assert_eq!(in_ranges(&ours.of_origin()), claims);
    // As much as a fast origin sends while others come, and not everything.
    assert_eq!(claims.len(), 128);
}

#[test]
fn beside_others_a_node_claims_little_until_it_knows_its_rate() {
    let mut ours = beside_another(at(1.0));
    ours.turn(at(1.0));
    assert_eq!(claimed(&ours).len(), 2);
    for _ in 0..5 {
        ours.turn(at(1.1));
    }
    assert_eq!(claimed(&ours).len(), 2, "however often it is asked");
}

#[test]
fn claims_grow_with_the_rate_of_the_origin() {
    let mut ours = Node::new(beside_another(at(1.0)));
    let mut most = 0;
    for step in 0..40 {
        let now = at(1.0 + f64::from(step) * 0.05);
        ours.ledger.was_read(node(2), ours.ledger.log_length(), now);
        ours.ledger.turn(now);
        most = most.max(claimed(&ours.ledger).len());
        if let Some(&unit) = in_ranges(&ours.ledger.of_origin()).first() {
            ours.gets(unit, CameFrom::Named, now);
        }
    }
    // 20 units a second: 12 of them in the time that a claim may take to be read.
    assert!((8..=20).contains(&most), "{most}");
}

#[test]
fn what_was_claimed_alone_is_left_to_the_first_that_comes() {
    let mut ours = books();
    ours.turn(at(0.0));
    ours.turn(at(0.5));
    let before = claimed(&ours).len();
    assert!(before > 100);
    ours.hear(node(2), &[], at(1.0));
    let left = claimed(&ours);
    assert_eq!(left.len(), 2, "those that are being fetched");
    let entries = ours.log(0, usize::MAX);
    let released = entries.iter().filter(|entry| matches!(entry, Entry::Released(_))).count();
    assert_eq!(released, before - 2);
}

#[test]
fn what_another_claims_is_not_claimed() {
    let mut ours = beside_another(at(1.0));
    let theirs: Vec<Entry> = (0..UNITS - 3).map(Entry::Claimed).collect();
    ours.hear(node(2), &theirs, at(1.0));
    for step in 0..10 {
        ours.turn(at(1.0 + f64::from(step) * 0.1));
    }
    assert!(claimed(&ours).iter().all(|&unit| unit >= UNITS - 3), "{:?}", claimed(&ours));
    // What they release is free again.
    let released: Vec<Entry> = (0..UNITS - 3).map(Entry::Released).collect();
    ours.hear(node(2), &released, at(2.0));
    let mut ours = Node::new(ours);
    for unit in UNITS - 3..UNITS {
        ours.gets(unit, CameFrom::Named, at(2.0));
    }
    ours.ledger.turn(at(2.1));
    assert!(!claimed(&ours.ledger).is_empty());
}

#[test]
fn a_claim_counts_when_the_slowest_live_reader_has_read_it() {
    let mut ours = beside_another(at(1.0));
    ours.hear(node(3), &[], at(1.0));
    ours.was_read(node(3), 0, at(1.0));
    ours.turn(at(1.0));
    ours.was_read(node(2), ours.log_length(), at(1.1));
    ours.turn(at(1.1));
    assert!(ours.of_origin().is_empty(), "node 3 has not read it");
    ours.was_read(node(3), ours.log_length(), at(1.2));
    ours.turn(at(1.2));
    assert_eq!(in_ranges(&ours.of_origin()), claimed(&ours));
}

#[test]
fn a_reader_that_asks_no_more_is_not_waited_for() {
    let mut ours = books();
    ours.hear(node(2), &[], at(1.0));
    ours.hear(node(3), &[], at(1.0));
    ours.was_read(node(2), 0, at(1.0));
    // Two seconds later only node 3 still asks.
    ours.was_read(node(3), 0, at(3.1));
    ours.turn(at(3.1));
    ours.was_read(node(3), ours.log_length(), at(3.2));
    ours.turn(at(3.2));
    assert!(!ours.of_origin().is_empty());
}

#[test]
fn a_claim_counts_half_a_second_after_it_was_made_whoever_reads() {
    let mut ours = beside_another(at(1.0));
    ours.turn(at(1.0));
    for (now, counts) in [(1.3, false), (1.5, false), (1.51, true)] {
        ours.was_read(node(2), 0, at(now));
        ours.turn(at(now));
        assert_eq!(!ours.of_origin().is_empty(), counts, "at {now} s");
    }
}

#[test]
fn a_claim_that_does_not_count_yet_is_left_to_a_node_that_has_the_unit() {
    let mut ours = beside_another(at(1.0));
    ours.turn(at(1.0));
    let unit = claimed(&ours)[0];
    ours.hear(node(2), &[held(unit, 2)], at(1.1));
    assert!(!claimed(&ours).contains(&unit));
    assert_eq!(in_ranges(&ours.of_other(node(2))), [unit]);
}

#[test]
fn a_claim_that_counts_is_kept_although_another_node_has_the_unit() {
    let mut ours = beside_another(at(1.0));
    ours.turn(at(1.0));
    ours.was_read(node(2), ours.log_length(), at(1.1));
    ours.turn(at(1.1));
    let unit = claimed(&ours)[0];
    ours.hear(node(2), &[held(unit, 2)], at(1.2));
    assert!(in_ranges(&ours.of_origin()).contains(&unit), "it is being fetched");
    assert!(ours.of_other(node(2)).is_empty());
    // But not for ever: it takes much longer than usual.
    ours.turn(at(1.2) + PATIENCE_AT_FIRST * 2);
    assert!(!in_ranges(&ours.of_origin()).contains(&unit));
    assert_eq!(in_ranges(&ours.of_other(node(2))), [unit]);
}

#[test]
fn claims_of_a_node_that_leaves_are_free_at_once() {
    let mut ours = beside_another(at(1.0));
    let theirs: Vec<Entry> = (0..UNITS).map(Entry::Claimed).collect();
    ours.hear(node(2), &theirs, at(1.0));
    ours.turn(at(1.1));
    assert!(claimed(&ours).is_empty());
    ours.gone(node(2));
    ours.turn(at(2.0));
    assert!(!claimed(&ours).is_empty());
}

#[test]
fn a_node_that_has_everything_claims_nothing() {
    let mut ours = books();
    ours.is_whole();
    for step in 0..100 {
        ours.turn(at(f64::from(step) * 0.1));
    }
    assert_eq!(ours.log_length(), 0);
    // A transfer that begins again has nothing.
    ours.clear();
    ours.turn(at(20.0));
    ours.turn(at(20.5));
    assert!(!claimed(&ours).is_empty());
}

#[test]
fn patience_follows_how_long_claims_take() {
    let mut pace = Pace::default();
    assert_eq!(pace.patience(), PATIENCE_AT_FIRST);
    for second in 0..50 {
        pace.came(Duration::from_secs(3), at(f64::from(second)));
    }
    assert_eq!(pace.patience(), Duration::from_secs(12));
    // Never shorter than a held-up claim may take, and never for ever.
    for second in 50..150 {
        pace.came(Duration::from_millis(1), at(f64::from(second)));
    }
    assert_eq!(pace.patience(), Duration::from_secs(2));
    pace.came(Duration::from_secs(100_000), at(200.0));
    assert_eq!(pace.patience(), Duration::from_secs(60));
}

#[test]
fn others_are_slow_only_where_the_origin_is_much_faster_and_much_is_left() {
    let mut pace = Pace::default();
    for tenth in 0..20 {
        pace.came(Duration::from_millis(100), at(f64::from(tenth) * 0.1));
    }
    pace.turn(at(2.0));
    assert_eq!(pace.origin_per_s(), 10.0);
    assert!(pace.are_others_slow(1000), "nothing comes from them");
    // Two units a second: a fifth.
    for half in 0..4 {
        pace.passed(at(2.0 + f64::from(half) * 0.5));
    }
    pace.turn(at(3.9));
    assert!(pace.are_others_slow(1000));
    assert!(!pace.are_others_slow(20), "they are done in ten seconds");
    // Three a second are more than a quarter of what the origin sends at its best.
    pace.passed(at(3.9));
    pace.passed(at(3.9));
    assert!(!pace.are_others_slow(1000));
}

#[test]
fn all_nodes_agree_who_yields_when_they_claim_the_same() {
    // Each hears of the other's claim; exactly one of them gives up.
    let mut yielded = [0, 0];
    for seed in 0..30 {
        let mut both = [1, 2].map(|number| {
            let mut ledger = Ledger::new(units(), UNITS, node(number), seed);
            ledger.hear(node(3 - number), &[], at(1.0));
            ledger.turn(at(1.0));
            ledger
        });
        let [one, other] = [claimed(&both[0]), claimed(&both[1])];
        assert_eq!(one, other, "the same seed chooses the same units");
        let logs = both.each_ref().map(|ledger| ledger.log(0, 99).to_vec());
        both[0].hear(node(2), &logs[1], at(1.1));
        both[1].hear(node(1), &logs[0], at(1.1));
        let [one_kept, other_kept] = [claimed(&both[0]), claimed(&both[1])];
        for unit in one {
            assert!(one_kept.contains(&unit) != other_kept.contains(&unit), "unit {unit}");
            yielded[usize::from(one_kept.contains(&unit))] += 1;
        }
    }
    assert!(yielded.iter().all(|&times| times > 10), "neither always yields: {yielded:?}");
}
