//! Hashes that nodes vouch for: which are believed, and who is banned for a wrong one.

use swath_model::Range;
use swath_share::log::{NodeId, Vouch};
use swath_share::vouches::{Told, Vouches};
use swath_transfer::{CameFrom, Judgement};

use crate::support::{at, books, hash, held, held_wrong, in_ranges, node, units};

fn told(value: u8, by: u8, teller: u8) -> Told {
    Told { vouch: Vouch { hash: [value; 32], by: node(by) }, teller: node(teller) }
}

/// Hashes of ten units, as node 1 knows them.
fn vouches() -> Vouches {
    Vouches::new(10, node(1))
}

fn blamed(wrong: &[Told]) -> Vec<NodeId> {
    wrong.iter().map(|told| told.teller).collect()
}

#[test]
fn an_untold_hash_is_settled_by_the_origin_alone() {
    let mut vouches = vouches();
    assert_eq!(vouches.of(3), None);
    for from in [CameFrom::Found, CameFrom::Mixed] {
        assert_eq!(vouches.judge(3, [5; 32], from).0, Judgement::Unknown, "{from:?}");
        assert_eq!(vouches.of(3), None);
    }
    assert_eq!(vouches.judge(3, [5; 32], CameFrom::Named).0, Judgement::Right);
    assert_eq!(vouches.of(3), Some(Vouch { hash: [5; 32], by: node(1) }));
}

#[test]
fn what_we_know_from_the_origin_convicts_whoever_says_otherwise() {
    let mut vouches = vouches();
    vouches.judge(3, [5; 32], CameFrom::Named);
    assert!(vouches.hear(3, told(5, 2, 2)).is_none(), "the same hash");
    let wrong = vouches.hear(3, told(6, 4, 4)).expect("another hash");
    assert_eq!(wrong.teller, node(4));
    assert_eq!(vouches.of(3).unwrap().hash, [5; 32], "ours stays");
}

#[test]
fn two_hashes_for_one_unit_are_believed_neither_until_the_origin_settles_it() {
    let mut vouches = vouches();
    assert!(vouches.hear(3, told(5, 2, 2)).is_none() && vouches.hear(3, told(6, 4, 4)).is_none());
    assert_eq!(vouches.of(3), None);
    for value in [5, 6, 7] {
        assert_eq!(vouches.judge(3, [value; 32], CameFrom::Found).0, Judgement::Unknown);
    }
    let (judgement, wrong) = vouches.judge(3, [6; 32], CameFrom::Named);
    assert_eq!((judgement, blamed(&wrong)), (Judgement::Right, vec![node(2)]));
    assert_eq!(vouches.of(3), Some(Vouch { hash: [6; 32], by: node(1) }));
}

#[test]
fn the_origin_may_contradict_both() {
    let mut vouches = vouches();
    vouches.hear(3, told(5, 2, 2));
    vouches.hear(3, told(6, 4, 4));
    let (judgement, wrong) = vouches.judge(3, [7; 32], CameFrom::Named);
    assert_eq!((judgement, blamed(&wrong)), (Judgement::Right, vec![node(2), node(4)]));
}

#[test]
fn a_third_hash_does_not_change_who_is_asked_about() {
    let mut vouches = vouches();
    vouches.hear(3, told(5, 2, 2));
    vouches.hear(3, told(6, 4, 4));
    assert!(vouches.hear(3, told(7, 5, 5)).is_none());
    let (_, wrong) = vouches.judge(3, [7; 32], CameFrom::Named);
    assert_eq!(blamed(&wrong), [node(2), node(4)]);
}

#[test]
fn what_a_node_says_itself_counts_more_than_what_is_said_of_it() {
    let mut vouches = vouches();
    vouches.hear(3, told(5, 2, 4));
    // Now node 2 can be blamed for it, and node 4 cannot.
    vouches.hear(3, told(5, 2, 2));
    let (_, wrong) = vouches.judge(3, [6; 32], CameFrom::Named);
    assert_eq!(blamed(&wrong), [node(2)]);
    assert!(wrong[0].is_first_hand());
}

#[test]
fn bytes_of_an_earlier_run_are_proved_by_a_hash_and_disprove_none() {
    let mut vouches = vouches();
    vouches.hear(3, told(5, 2, 2));
    let (judgement, wrong) = vouches.judge(3, [6; 32], CameFrom::EarlierRun);
    assert_eq!((judgement, wrong.len()), (Judgement::Unknown, 0));
    assert_eq!(vouches.of(3).unwrap().by, node(2), "it is still believed");
    assert_eq!(vouches.judge(3, [5; 32], CameFrom::EarlierRun).0, Judgement::Right);
    assert_eq!(vouches.judge(4, [9; 32], CameFrom::EarlierRun).0, Judgement::Right, "nobody told");
}

#[test]
fn a_unit_that_came_in_part_from_others_is_asked_of_the_origin_again() {
    let mut vouches = vouches();
    vouches.hear(3, told(5, 2, 2));
    assert_eq!(vouches.judge(3, [5; 32], CameFrom::Mixed).0, Judgement::Right);
    assert_eq!(vouches.judge(3, [6; 32], CameFrom::Mixed).0, Judgement::Unknown);
    // From then on its hash is in doubt.
    assert_eq!(vouches.of(3), None);
    assert_eq!(vouches.judge(3, [5; 32], CameFrom::Found).0, Judgement::Unknown);
}

#[test]
fn what_a_banned_node_said_is_forgotten_and_the_rest_stays() {
    let mut vouches = vouches();
    vouches.hear(1, told(5, 2, 2));
    vouches.hear(2, told(5, 2, 4));
    vouches.hear(3, told(5, 4, 4));
    vouches.hear(5, told(5, 2, 2));
    vouches.hear(5, told(6, 4, 4));
    vouches.forget(node(2));
    assert_eq!([1, 2].map(|unit| vouches.of(unit)), [None, None], "told or vouched by it");
    assert_eq!(vouches.of(3).unwrap().by, node(4));
    assert_eq!(vouches.of(5).unwrap().hash, [6; 32], "no dispute any more");
}

#[test]
fn units_that_are_none_are_nobodys() {
    let mut vouches = vouches();
    assert!(vouches.hear(10, told(5, 2, 2)).is_none());
    assert_eq!(vouches.of(10), None);
    assert_eq!(vouches.judge(10, [5; 32], CameFrom::Named).0, Judgement::Unknown);
    assert_eq!(vouches.of(10), None);
}

#[test]
fn whoever_told_of_any_of_these_bytes_is_found() {
    let mut vouches = vouches();
    vouches.hear(0, told(5, 2, 2));
    vouches.hear(1, told(5, 4, 4));
    vouches.hear(1, told(6, 5, 5));
    let units = units();
    let within = |start, end| blamed(&vouches.told_within(Range::new(start, end), &units));
    assert_eq!(within(0, 1), [node(2)]);
    assert_eq!(within(0, units.unit_bytes() + 1), [node(2), node(4), node(5)]);
    assert_eq!(within(2 * units.unit_bytes(), 3 * units.unit_bytes()), []);
}

#[test]
fn bans_are_told_once_and_take_away_all_that_the_node_held() {
    let mut ours = books();
    ours.hear(node(2), &[held_wrong(5, 2), held(6, 2)], at(0.0));
    ours.hear(node(3), &[held(6, 2), held(7, 3)], at(0.0));
    assert_eq!(ours.judge(5, hash(5), CameFrom::Named), Judgement::Right);
    assert!(ours.is_banned(node(2)) && !ours.is_banned(node(3)));
    assert_eq!(ours.newly_banned(), [node(2)]);
    assert_eq!(ours.newly_banned(), []);
    assert!(ours.of_other(node(2)).is_empty());
    // What node 2 vouched for proves nothing, whoever has it.
    assert_eq!(in_ranges(&ours.of_other(node(3))), [7]);
    assert!(!ours.hear(node(2), &[held(8, 2)], at(1.0)), "it is not heard any more");
    ours.ban(node(2));
    assert_eq!(ours.newly_banned(), []);
}

#[test]
fn nobody_can_have_us_ban_ourselves() {
    let mut ours = books();
    ours.judge(5, hash(5), CameFrom::Named);
    // Node 2 says that we vouch for something else.
    ours.hear(node(2), &[held_wrong(5, 1)], at(0.0));
    assert_eq!(ours.newly_banned(), [node(2)]);
    ours.ban(node(1));
    assert!(!ours.is_banned(node(1)));
}
