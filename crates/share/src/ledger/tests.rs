use super::*;
use crate::pace::PATIENCE_AT_FIRST;

const UNITS: Unit = 400;

fn node(number: u8) -> NodeId {
    // Spread, as random ids are.
    NodeId([number.wrapping_mul(151); 16])
}

fn hash(unit: Unit) -> [u8; 32] {
    let mut hash = [7; 32];
    hash[..4].copy_from_slice(&unit.to_le_bytes());
    hash
}

fn ledger(number: u8) -> Ledger {
    let units = Units::of(u64::from(UNITS) * (256 << 10));
    Ledger::new(units, UNITS, node(number), u64::from(number))
}

fn in_ranges(ranges: &RangeSet) -> Vec<Unit> {
    ranges.iter().flat_map(|range| Units::of(100 << 20).around(range)).collect()
}

fn comes(
    ledger: &mut Ledger,
    verified: &mut RangeSet,
    unit: Unit,
    hash: [u8; 32],
    now: Time,
) -> bool {
    let from = match ledger.claims.contains_key(&unit) {
        true => CameFrom::Named,
        false => CameFrom::Found,
    };
    if ledger.judge(unit, hash, from) != Judgement::Right {
        return false;
    }
    let range = ledger.units.range(unit);
    verified.insert(range);
    assert!(ledger.verified(verified, range, now).is_empty());
    true
}

/// What a cluster came to.
#[derive(Debug)]
struct Outcome {
    /// Units that the origin sent, and when the last node was done.
    sent: u32,
    took_s: f64,
}

/// Runs nodes that fetch one content, in steps of 50 ms; the origin sends `per_step` units a step to
/// all of them together, each node takes at most 8 from others. A node joins when its time has come, and
/// one may leave.
fn cluster(
    nodes: u8,
    per_step: f64,
    joins_s: impl Fn(u8) -> f64,
    leaves: Option<(u8, f64)>,
) -> Outcome {
    let mut all: Vec<Ledger> = (0..nodes).map(ledger).collect();
    let mut verified = vec![RangeSet::new(); nodes as usize];
    let mut read = vec![vec![0u64; nodes as usize]; nodes as usize];
    let (mut sent, mut credit, mut step) = (0, 0.0, 0u32);
    loop {
        let now = Time::from_secs_f64(f64::from(step) * 0.05);
        let now_s = now.as_secs_f64();
        let has_left = |at: u8| leaves.is_some_and(|(who, when)| who == at && now_s > when);
        let live: Vec<u8> =
            (0..nodes).filter(|&at| joins_s(at) <= now_s && !has_left(at)).collect();
        for &at in &live {
            all[at as usize].turn(now);
            if let Some((who, when)) = leaves
                && now_s > when
            {
                all[at as usize].gone(node(who));
            }
        }
        // Everybody reads everybody's log.
        for &reader in &live {
            for &other in live.iter().filter(|&&other| other != reader) {
                let from = read[reader as usize][other as usize];
                let entries = all[other as usize].log(from, 4096).to_vec();
                all[other as usize].was_read(node(reader), from, now);
                all[reader as usize].hear(node(other), &entries, now);
                read[reader as usize][other as usize] += entries.len() as u64;
            }
        }
        // The origin's link is shared by all who ask.
        credit = (credit + per_step).min(per_step.max(1.0) * 2.0);
        let mut turn = live.clone();
        while credit >= 1.0 && !turn.is_empty() {
            turn.retain(|&at| {
                if credit < 1.0 {
                    return false;
                }
                let ledger = &mut all[at as usize];
                let Some(&unit) = in_ranges(&ledger.of_origin()).first() else {
                    return false;
                };
                (credit, sent) = (credit - 1.0, sent + 1);
                assert!(comes(ledger, &mut verified[at as usize], unit, hash(unit), now));
                true
            });
        }
        for &at in &live {
            let ledger = &mut all[at as usize];
            let mut wanted: BTreeSet<Unit> = BTreeSet::new();
            for &other in live.iter().filter(|&&other| other != at) {
                wanted.extend(in_ranges(&ledger.of_other(node(other))));
            }
            wanted.retain(|&unit| !ledger.here.has(unit));
            for unit in wanted.into_iter().take(8) {
                assert!(comes(ledger, &mut verified[at as usize], unit, hash(unit), now));
            }
        }
        if live.len() + usize::from(leaves.is_some()) == nodes as usize
            && live.iter().all(|&at| all[at as usize].here.count() == UNITS)
        {
            return Outcome { sent, took_s: now_s };
        }
        step += 1;
        assert!(step < 20_000, "{} of {UNITS}", all[0].here.count());
    }
}

#[test]
fn the_origin_sends_hardly_more_than_one_copy() {
    // 2 units in 50 ms: 10 s for one node alone.
    for nodes in [1, 2, 5, 16] {
        let outcome = cluster(nodes, 2.0, |_| 0.0, None);
        assert!(outcome.sent <= UNITS + UNITS / 20, "{nodes}: {outcome:?}");
        assert!(outcome.took_s < 11.5, "{nodes}: {outcome:?}");
    }
}

#[test]
fn whoever_joins_late_fetches_little_from_the_origin() {
    let outcome = cluster(8, 2.0, |at| f64::from(at) * 1.3, None);
    assert!(outcome.sent <= UNITS + UNITS / 20, "{outcome:?}");
}

#[test]
fn claims_of_a_node_that_leaves_are_taken_over() {
    let outcome = cluster(4, 2.0, |_| 0.0, Some((2, 3.0)));
    assert!(outcome.sent <= UNITS * 3 / 2, "{outcome:?}");
    assert!(outcome.took_s < 16.0, "{outcome:?}");
}

#[test]
fn a_claim_that_comes_to_nothing_is_taken_over() {
    let (mut ours, now) = (ledger(1), Time::ZERO);
    let all: Vec<Entry> = (0..UNITS).map(Entry::Claimed).collect();
    ours.hear(node(2), &all, now);
    ours.turn(now);
    assert!(ours.claims.is_empty(), "all is claimed by another node");
    let later = now + PATIENCE_AT_FIRST * 2;
    ours.turn(later);
    assert!(!ours.claims.is_empty());
}

#[test]
fn of_two_claims_on_one_unit_one_stands() {
    let now = Time::ZERO;
    for unit in 0..20 {
        let mut stand = 0;
        for (one, other) in [(1, 2), (2, 1)] {
            let mut ledger = ledger(one);
            ledger.claims.insert(unit, Claim { since: now, log_length: 0, counts: false });
            ledger.hear(node(other), &[Entry::Claimed(unit)], now);
            stand += u32::from(ledger.claims.contains_key(&unit));
        }
        assert_eq!(stand, 1, "unit {unit}");
    }
}

#[test]
fn a_claim_counts_once_others_have_read_it() {
    let mut ours = ledger(1);
    let now = Time::from_secs_f64(10.0);
    ours.hear(node(2), &[], now);
    ours.was_read(node(2), 0, now);
    ours.turn(now);
    assert!(ours.of_origin().is_empty());
    ours.was_read(node(2), ours.log_length(), now);
    ours.turn(now);
    assert!(!ours.of_origin().is_empty());
    // Or if they do not read.
    let mut ours = ledger(1);
    ours.hear(node(2), &[], now);
    ours.was_read(node(2), 0, now);
    ours.turn(now);
    ours.turn(now + READ_WITHIN + Duration::from_millis(1));
    assert!(!ours.of_origin().is_empty());
}

#[test]
fn what_the_origin_sent_tells_who_vouched_wrongly() {
    let now = Time::ZERO;
    let wrong = Vouch { hash: [0; 32], by: node(3) };
    let right = Vouch { hash: hash(5), by: node(2) };
    // A node passes on what another one vouched for.
    let mut ours = ledger(1);
    ours.hear(node(4), &[Entry::Held(5, wrong), Entry::Held(6, right)], now);
    let judged = ours.judge(5, hash(5), CameFrom::Found);
    assert_eq!(judged, Judgement::Wrong, "others' bytes must have the hash");
    assert_eq!(in_ranges(&ours.of_other(node(4))), [5, 6]);
    // Two nodes differ: only the origin can tell.
    ours.hear(node(2), &[Entry::Held(5, right)], now);
    assert_eq!(in_ranges(&ours.of_other(node(4))), [6]);
    // What a liar delivers meanwhile is not believed, whichever it has.
    for bytes in [hash(5), [0; 32], [9; 32]] {
        assert_eq!(ours.judge(5, bytes, CameFrom::Found), Judgement::Unknown);
    }
    assert_eq!(ours.judge(5, hash(5), CameFrom::Named), Judgement::Right);
    // Node 3 is not here, so whoever passed it on may have been deceived.
    assert_eq!(ours.newly_banned(), []);
    let mut ours = ledger(1);
    ours.hear(node(3), &[Entry::Held(5, wrong)], now);
    assert_eq!(ours.judge(5, hash(5), CameFrom::Named), Judgement::Right);
    assert_eq!(ours.newly_banned(), [node(3)]);
    assert!(!ours.hear(node(3), &[], now));
    // What it vouched for is not believed, whoever passes it on.
    ours.hear(node(4), &[Entry::Held(7, wrong)], now);
    assert!(!in_ranges(&ours.of_other(node(4))).contains(&7));
}

#[test]
fn nobody_is_banned_for_what_another_says_of_it() {
    let now = Time::ZERO;
    let mut ours = ledger(1);
    ours.hear(node(2), &[Entry::Held(6, Vouch { hash: hash(6), by: node(2) })], now);
    // Node 3 says that node 2 vouches for nonsense.
    let framed = Vouch { hash: [0; 32], by: node(2) };
    ours.hear(node(3), &[Entry::Held(5, framed)], now);
    assert_eq!(ours.judge(5, hash(5), CameFrom::Named), Judgement::Right);
    assert_eq!(ours.newly_banned(), [node(3)]);
    assert_eq!(in_ranges(&ours.of_other(node(2))), [6]);
}

#[test]
fn a_unit_of_which_the_origin_sent_a_part_is_settled_by_the_origin() {
    let now = Time::ZERO;
    let mut ours = ledger(1);
    let wrong = Vouch { hash: [0; 32], by: node(2) };
    ours.hear(node(2), &[Entry::Held(5, wrong), Entry::Held(6, wrong)], now);
    assert_eq!(ours.judge(5, [1; 32], CameFrom::Mixed), Judgement::Unknown);
    assert_eq!(in_ranges(&ours.of_other(node(2))), [6]);
    assert_eq!(ours.judge(5, [0; 32], CameFrom::Found), Judgement::Unknown, "not from it");
    assert_eq!(ours.judge(5, hash(5), CameFrom::Named), Judgement::Right);
    assert_eq!(ours.newly_banned(), [node(2)]);
}

#[test]
fn what_an_earlier_run_left_blames_nobody() {
    let now = Time::ZERO;
    let mut ours = ledger(1);
    assert_eq!(ours.judge(4, hash(4), CameFrom::EarlierRun), Judgement::Right);
    ours.hear(node(2), &[Entry::Held(5, Vouch { hash: hash(5), by: node(2) })], now);
    assert_eq!(ours.judge(5, [0; 32], CameFrom::EarlierRun), Judgement::Unknown);
    assert_eq!(ours.judge(5, hash(5), CameFrom::EarlierRun), Judgement::Right);
    assert_eq!(ours.newly_banned(), []);
}

#[test]
fn the_origin_is_asked_for_what_others_hold_and_do_not_deliver() {
    let now = Time::ZERO;
    let mut ours = ledger(1);
    let all: Vec<Entry> =
        (0..UNITS).map(|unit| Entry::Held(unit, Vouch { hash: hash(unit), by: node(2) })).collect();
    ours.hear(node(2), &all, now);
    ours.turn(now);
    assert!(ours.claims.is_empty());
    ours.turn(now + PATIENCE_AT_FIRST * 2);
    assert!(!ours.claims.is_empty());
    // Not while they deliver well.
    let mut ours = ledger(1);
    ours.hear(node(2), &all, now);
    let mut verified = RangeSet::new();
    let later = now + PATIENCE_AT_FIRST * 2;
    for unit in 0..UNITS / 2 {
        assert!(comes(&mut ours, &mut verified, unit, hash(unit), later));
    }
    ours.turn(later);
    assert!(ours.claims.is_empty());
}

#[test]
fn an_endless_log_is_not_read_to_its_end() {
    let mut ours = ledger(1);
    let entries = [Entry::Claimed(1), Entry::Released(1)].repeat(1000);
    let heard = (0..100).take_while(|_| ours.hear(node(2), &entries, Time::ZERO)).count();
    assert!(heard < 20, "{heard}");
    assert!(ours.is_banned(node(2)));
}

#[test]
fn a_wrong_whole_leaves_only_the_origin() {
    let now = Time::ZERO;
    let mut ours = ledger(1);
    let vouch = Vouch { hash: hash(5), by: node(2) };
    ours.hear(node(2), &[Entry::Held(5, vouch)], now);
    let mut verified = RangeSet::new();
    assert!(comes(&mut ours, &mut verified, 5, hash(5), now));
    assert!(ours.has(ours.units.range(5)));
    ours.refuted();
    assert!(!ours.has(ours.units.range(5)) && ours.of_other(node(2)).is_empty());
    assert_eq!(ours.of_origin().total_bytes(), ours.units.size_bytes());
    assert_eq!(ours.log(0, 9).last(), Some(&Entry::Cleared));
    ours.ban_vouchers(ours.units.range(5));
    assert_eq!(ours.newly_banned(), [node(2)]);
}

#[test]
fn nonsense_changes_nothing() {
    let mut ours = ledger(1);
    let vouch = Vouch { hash: [0; 32], by: node(2) };
    let odd = [
        Entry::Claimed(UNITS),
        Entry::Released(Unit::MAX),
        Entry::Held(Unit::MAX, vouch),
        Entry::Released(3),
        Entry::Claimed(4),
        Entry::Claimed(4),
        Entry::Cleared,
        Entry::Released(4),
    ];
    assert!(ours.hear(node(2), &odd, Time::ZERO));
    assert!(ours.held.iter().chain(&ours.claimed).all(|&count| count == 0));
    ours.gone(node(2));
    ours.gone(node(9));
    assert!(!ours.hear(node(1), &[], Time::ZERO), "that is us");
}

#[test]
fn what_was_here_before_is_neither_claimed_nor_passed_on() {
    let mut ours = ledger(1);
    let last = ours.units.range(UNITS - 1);
    let half = Range::new(last.start, last.start + 5);
    for range in [Range::new(0, last.start), half] {
        ours.has_unverified(&RangeSet::new(), range);
    }
    let at = Time::from_secs_f64;
    ours.turn(at(0.0));
    ours.turn(at(1.0));
    assert_eq!(ours.claims.keys().copied().collect::<Vec<_>>(), [UNITS - 1], "the rest is here");
    let rest = Range::new(half.end, last.end);
    let mut verified = RangeSet::new();
    verified.insert(rest);
    assert!(ours.verified(&verified, rest, at(2.0)).is_empty());
    ours.turn(at(3.0));
    assert!(ours.claims.is_empty() && !ours.has(rest));
    assert_eq!(ours.log(0, 9), [Entry::Claimed(UNITS - 1), Entry::Released(UNITS - 1)]);
}
