//! What the books say is here, may be fetched, and is told to others, whatever others say.

use std::collections::BTreeSet;

use proptest::prelude::*;
use swath_model::{Range, RangeSet};
use swath_share::log::{Entry, Vouch};
use swath_transfer::{CameFrom, Judgement};

use crate::support::{Node, UNITS, at, books, hash, held, in_ranges, node, units};

#[test]
fn what_is_here_is_told_with_the_node_that_vouches_for_it() {
    let mut ours = Node::new(books());
    ours.ledger.hear(node(2), &[held(5, 2)], at(0.0));
    ours.gets(5, CameFrom::Found, at(0.1));
    ours.gets(6, CameFrom::Named, at(0.2));
    assert_eq!(ours.ledger.log(0, 9), [held(5, 2), held(6, 1)]);
    assert_eq!(ours.ledger.log(1, 9), [held(6, 1)]);
    assert_eq!(ours.ledger.log(0, 1), [held(5, 2)]);
    assert_eq!(ours.ledger.log(99, 9), []);
}

#[test]
fn a_unit_is_here_when_all_of_its_bytes_are_verified() {
    let mut ours = books();
    let range = units().range(5);
    let (first, rest) = range.split_at(range.start + 1000);
    let mut verified = RangeSet::new();
    ours.judge(5, hash(5), CameFrom::Named);
    verified.insert(first);
    assert!(ours.verified(&verified, first, at(0.0)).is_empty());
    assert!(!ours.has(first) && ours.log_length() == 0);
    verified.insert(rest);
    ours.verified(&verified, rest, at(0.1));
    assert!(ours.has(first) && ours.has(range));
    assert!(!ours.has(Range::new(range.start, range.end + 1)), "the next unit is not here");
    assert_eq!(ours.log(0, 9), [held(5, 1)]);
}

#[test]
fn a_unit_whose_hash_nobody_told_is_to_be_hashed_first() {
    let mut ours = books();
    let range = Range::new(units().range(5).start, units().range(7).end);
    let mut verified = RangeSet::new();
    verified.insert(range);
    ours.judge(6, hash(6), CameFrom::Named);
    assert_eq!(ours.verified(&verified, range, at(0.0)), [5, 7]);
    assert_eq!(ours.log(0, 9), [held(6, 1)]);
    for unit in [5, 7] {
        assert_eq!(ours.judge(unit, hash(unit), CameFrom::Named), Judgement::Right);
        assert!(ours.verified(&verified, units().range(unit), at(0.1)).is_empty());
    }
    assert!(ours.has(range));
}

#[test]
fn the_last_unit_may_be_shorter() {
    let units = swath_share::units::Units::of(3 * (256 << 10) + 5);
    let mut ours = swath_share::ledger::Ledger::new(units, 4, node(1), 1);
    let last = units.range(3);
    assert_eq!(last.len(), 5);
    let mut verified = RangeSet::new();
    verified.insert(last);
    ours.judge(3, hash(3), CameFrom::Named);
    ours.verified(&verified, last, at(0.0));
    assert!(ours.has(last));
    assert!(!ours.has(Range::new(last.start, last.end + 1)), "there is nothing behind it");
}

#[test]
fn others_are_asked_for_what_they_hold_and_we_lack() {
    let mut ours = Node::new(books());
    ours.ledger.hear(node(2), &[held(1, 2), held(2, 2), held(9, 2)], at(0.0));
    ours.ledger.hear(node(3), &[held(2, 2)], at(0.0));
    assert_eq!(in_ranges(&ours.ledger.of_other(node(2))), [1, 2, 9]);
    assert_eq!(in_ranges(&ours.ledger.of_other(node(3))), [2]);
    assert!(ours.ledger.of_other(node(4)).is_empty(), "nobody knows it");
    ours.gets(2, CameFrom::Found, at(0.1));
    assert_eq!(in_ranges(&ours.ledger.of_other(node(2))), [1, 9]);
    assert!(ours.ledger.of_other(node(3)).is_empty());
}

#[test]
fn what_a_node_cleared_or_took_with_it_is_not_asked_for() {
    let mut ours = books();
    ours.hear(node(2), &[held(1, 2), Entry::Cleared, held(2, 2)], at(0.0));
    assert_eq!(in_ranges(&ours.of_other(node(2))), [2]);
    ours.gone(node(2));
    assert!(ours.of_other(node(2)).is_empty());
    // It begins again with an empty log.
    ours.hear(node(2), &[held(3, 2)], at(1.0));
    assert_eq!(in_ranges(&ours.of_other(node(2))), [3]);
}

#[test]
fn how_many_others_lack_something_is_counted() {
    let mut ours = books();
    assert_eq!(ours.others_lack(), (0, 0));
    ours.hear(node(2), &[], at(0.0));
    ours.hear(node(3), &[held(1, 3), held(2, 3)], at(0.0));
    assert_eq!(ours.others_lack(), (2, 2));
    let all: Vec<Entry> = (0..UNITS).map(|unit| held(unit, 2)).collect();
    ours.hear(node(2), &all, at(0.1));
    assert_eq!(ours.others_lack(), (1, u64::from(UNITS) + 2));
    ours.gone(node(3));
    assert_eq!(ours.others_lack(), (0, u64::from(UNITS)));
}

#[test]
fn a_transfer_that_begins_again_says_that_it_has_nothing() {
    let mut ours = Node::new(books());
    ours.ledger.clear();
    assert_eq!(ours.ledger.log_length(), 0, "it never said that it had something");
    ours.gets(5, CameFrom::Named, at(0.0));
    ours.ledger.clear();
    assert_eq!(ours.ledger.log(0, 9), [held(5, 1), Entry::Cleared]);
    assert!(!ours.ledger.has(units().range(5)));
    // The origin's hash is still known: the same bytes are right from anybody.
    assert_eq!(ours.ledger.judge(5, hash(5), CameFrom::Found), Judgement::Right);
    assert_eq!(ours.ledger.judge(5, [0; 32], CameFrom::Found), Judgement::Wrong);
}

#[test]
fn a_refuted_content_comes_from_the_origin_and_blames_its_vouchers() {
    let mut ours = Node::new(books());
    ours.ledger.hear(node(2), &[held(5, 2), held(6, 2)], at(0.0));
    ours.gets(5, CameFrom::Found, at(0.1));
    ours.ledger.refuted();
    assert!(ours.ledger.is_refuted() && !ours.ledger.has(units().range(5)));
    assert_eq!(ours.ledger.of_origin(), RangeSet::full(units().size_bytes()));
    assert!(ours.ledger.of_other(node(2)).is_empty());
    let length = ours.ledger.log_length();
    ours.ledger.turn(at(9.0));
    assert_eq!(ours.ledger.log_length(), length, "nothing is claimed any more");
    ours.ledger.ban_vouchers(units().range(7));
    assert!(!ours.ledger.is_banned(node(2)), "of other bytes");
    ours.ledger.ban_vouchers(units().range(6));
    assert!(ours.ledger.is_banned(node(2)));
}

#[test]
fn unverified_bytes_are_neither_claimed_nor_told() {
    let mut ours = books();
    let most = Range::new(0, units().range(UNITS - 1).start);
    ours.has_unverified(&RangeSet::new(), most);
    ours.turn(at(0.0));
    ours.turn(at(1.0));
    assert_eq!(ours.log(0, 9), [Entry::Claimed(UNITS - 1)]);
    assert!(!ours.has(units().range(0)));
    // The rest, too: its claim is given up.
    ours.has_unverified(&RangeSet::new(), units().range(UNITS - 1));
    assert_eq!(ours.log(1, 9), [Entry::Released(UNITS - 1)]);
    ours.turn(at(2.0));
    assert!(ours.of_origin().is_empty());
}

/// Anything that a node may say, of few units so that entries meet.
fn entry() -> impl Strategy<Value = Entry> {
    let unit = 0..12_u32;
    prop_oneof![
        unit.clone().prop_map(Entry::Claimed),
        unit.clone().prop_map(Entry::Released),
        (unit, 0..3_u8, 0..5_u8).prop_map(|(unit, value, by)| {
            let hash = if value == 0 { hash(unit) } else { [value; 32] };
            Entry::Held(unit, Vouch { hash, by: node(by) })
        }),
        Just(Entry::Cleared),
    ]
}

/// Something that happens to the books.
#[derive(Clone, Debug)]
enum Step {
    Hears(u8, Vec<Entry>),
    Reads(u8),
    Gets(u32),
    Leaves(u8),
    Passes(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..5_u8, prop::collection::vec(entry(), 0..8))
            .prop_map(|(from, all)| Step::Hears(from, all)),
        (0..5_u8).prop_map(Step::Reads),
        (0..12_u32).prop_map(Step::Gets),
        (0..5_u8).prop_map(Step::Leaves),
        (0..3000_u16).prop_map(Step::Passes),
    ]
}

proptest! {
    /// Nothing is fetched twice at a time, nothing that is here is fetched, and the log is what happened.
    #[test]
    fn whatever_others_say_the_books_stay_right(steps in prop::collection::vec(step(), 0..60)) {
        let units = swath_share::units::Units::of(12 * (256 << 10));
        let mut ours = swath_share::ledger::Ledger::new(units, 12, node(1), 1);
        let (mut now, mut verified) = (at(0.0), RangeSet::new());
        for step in steps {
            match step {
                Step::Hears(from, entries) => {
                    let is_heard = ours.hear(node(from), &entries, now);
                    prop_assert!(!is_heard || from != 1);
                }
                Step::Reads(by) => ours.was_read(node(by), ours.log_length(), now),
                Step::Gets(unit) => {
                    // The origin sends what we may ask it for.
                    let range = units.range(unit);
                    if ours.of_origin().covers(range) {
                        prop_assert_eq!(ours.judge(unit, hash(unit), CameFrom::Named), Judgement::Right);
                        verified.insert(range);
                        prop_assert!(ours.verified(&verified, range, now).is_empty());
                        prop_assert!(ours.has(range));
                    }
                }
                Step::Leaves(who) => ours.gone(node(who)),
                Step::Passes(ms) => now = now + std::time::Duration::from_millis(ms.into()),
            }
            ours.turn(now);
            let of_origin = ours.of_origin();
            for unit in 0..12 {
                let range = units.range(unit);
                prop_assert_eq!(ours.has(range), verified.covers(range));
                if ours.has(range) {
                    prop_assert_eq!(of_origin.bytes_within(range), 0);
                }
                for other in (0..5).filter(|other| *other != 1) {
                    let of_other = ours.of_other(node(other));
                    prop_assert!(!ours.is_banned(node(other)) || of_other.is_empty());
                    prop_assert!(of_other.bytes_within(range) == 0 || !ours.has(range));
                    prop_assert!(of_other.bytes_within(range) == 0 || of_origin.bytes_within(range) == 0);
                }
            }
            let mut said = BTreeSet::new();
            for entry in ours.log(0, usize::MAX) {
                if let Entry::Held(unit, _) = entry {
                    prop_assert!(said.insert(*unit), "unit {} is told twice", unit);
                }
            }
            prop_assert_eq!(said.len() as u64 * (256 << 10), verified.total_bytes());
        }
    }
}
