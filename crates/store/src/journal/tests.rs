//! The journal under damage: whatever is done to its bytes, what is recovered is the effect of a
//! prefix of the records that were appended.

use proptest::prelude::*;
use swath_model::{Range, Validators};

use super::frame::{Opening, PAYLOAD_BYTES_MAX};
use super::{Entry as _, HashState, Record, Recovery, State, Sum as _, recover};
use crate::Identity;

/// A journal of `records`, with where each frame ends and the state there.
fn journal(records: &[Record]) -> (Vec<u8>, Vec<(usize, State)>) {
    let opening = Opening::fresh::<State>();
    let (mut bytes, mut chain) = (opening.bytes().to_vec(), opening.chain());
    let mut state = State::default();
    let mut ends = vec![(bytes.len(), state.clone())];
    for record in records {
        assert!(chain.append(record, &mut bytes));
        state.apply(record);
        ends.push((bytes.len(), state.clone()));
    }
    (bytes, ends)
}

/// What `bytes` are believed to say, and how many of them are believed.
fn believed(bytes: &[u8]) -> (State, usize) {
    match recover::<State>(bytes).unwrap() {
        Recovery::Journal { state, valid_bytes, dropped_bytes, .. } => {
            assert_eq!(valid_bytes + dropped_bytes, bytes.len() as u64);
            (*state, valid_bytes as usize)
        }
        Recovery::Nothing | Recovery::NotAJournal => (State::default(), 0),
    }
}

fn some_records() -> Vec<Record> {
    let identity = Identity {
        digests: vec!["sha-256:00ff".into()],
        versions: vec![(
            "http://a/x".into(),
            Validators { etag: Some("\"tag\"".into()), last_modified: None },
        )],
        pieces: Some("sha-1:1024:beef".into()),
    };
    vec![
        Record::Identity { size_bytes: Some(1 << 40), identity },
        Record::Source { id: 0, name: "http://a/x".into() },
        Record::Source { id: 7, name: "https://b.example/ü".into() },
        Record::Durable { range: Range::new(0, 8192), source: 0 },
        Record::Durable { range: Range::new(65_536, 131_072), source: 7 },
        Record::Verified { range: Range::new(0, 4096) },
        Record::HashState(HashState {
            algorithm: "sha-256".into(),
            front: 4096,
            state: vec![1, 2, 3, 4],
        }),
        Record::Group { index: 3, range: Range::new(65_536, 66_560), cv: [9; 32] },
        Record::Bad { range: Range::new(65_536, 65_540) },
        Record::Durable { range: Range::new(8192, 12_288), source: 7 },
    ]
}

#[test]
fn a_cut_at_every_byte_leaves_the_records_before_it() {
    let (bytes, ends) = journal(&some_records());
    for cut in 0..=bytes.len() {
        let (state, valid_bytes) = believed(&bytes[..cut]);
        let expected = ends.iter().rev().find(|(end, _)| *end <= cut);
        assert_eq!(valid_bytes, expected.map_or(0, |(end, _)| *end), "cut at {cut}");
        assert_eq!(
            state,
            expected.map_or_else(State::default, |(_, state)| state.clone()),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_flip_of_any_bit_ends_the_believed_part_before_it() {
    let (bytes, ends) = journal(&some_records());
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            let (state, valid_bytes) = believed(&damaged);
            // Everything before the damaged frame; nothing at all if the opening is damaged, for
            // the first tag is made from it.
            let expected = ends.iter().rev().find(|(end, _)| *end <= position);
            let expected = expected.map_or_else(State::default, |(_, state)| state.clone());
            assert_eq!(state, expected, "bit {bit} of byte {position}");
            assert!(valid_bytes <= position.max(ends[0].0));
        }
    }
}

#[test]
fn frames_of_another_journal_do_not_continue_this_one() {
    let records = some_records();
    let ((one, ends), (other, _)) = (journal(&records), journal(&records));
    let cut = ends[4].0;
    let spliced = [&one[..cut], &other[cut..]].concat();
    assert_eq!(believed(&spliced), (ends[4].1.clone(), cut));
}

#[test]
fn a_state_written_down_and_read_again_is_the_same() {
    let (_, ends) = journal(&some_records());
    let state = &ends.last().unwrap().1;
    let (bytes, _) = journal(&state.records().collect::<Vec<_>>());
    assert_eq!(&believed(&bytes).0, state);
}

#[test]
fn nothing_made_from_distrusted_bytes_survives_them() {
    let (_, ends) = journal(&some_records());
    let mut state = ends.last().unwrap().1.clone();
    assert_eq!(state.hash_states.len(), 1);
    assert!(state.groups.is_empty(), "its bytes were bad");
    state.apply(&Record::Bad { range: Range::new(4000, 4001) });
    assert!(state.hash_states.is_empty());
    assert!(!state.verified.contains(4000) && !state.durable.contains(4000));
    // Nor is anything accepted that is not made from durable bytes.
    state.apply(&Record::Verified { range: Range::new(3999, 4002) });
    assert!(!state.verified.contains(4000));
    state.apply(&Record::HashState(HashState {
        algorithm: "md5".into(),
        front: 4096,
        state: vec![],
    }));
    assert!(state.hash_states.is_empty());
}

/// A second Metalink with pieces of another length made the verified bytes of the first count as
/// its own: nothing of them was hashed, and the file came out half the one and half the other.
#[test]
fn what_was_verified_holds_only_for_the_pieces_that_verified_it() {
    let (_, ends) = journal(&some_records());
    let mut state = ends.last().unwrap().1.clone();
    let pieces = |text: &str| {
        let identity = Identity { pieces: Some(text.into()), ..Identity::default() };
        Record::Identity { size_bytes: None, identity }
    };
    state.apply(&pieces("sha-1:1024:beef"));
    assert!(state.verified.contains(0));
    let durable = state.durable.clone();
    state.apply(&pieces("sha-1:2048:beef"));
    assert!(state.verified.is_empty());
    assert_eq!(state.durable, durable, "the bytes stay, to be hashed");
}

#[test]
fn after_a_mismatch_the_bytes_stay_and_no_digest_is_known() {
    let (_, ends) = journal(&some_records());
    let mut state = ends.last().unwrap().1.clone();
    let before = state.clone();
    state.apply(&Record::Mismatch);
    assert!(state.identity.digests.is_empty());
    assert_eq!((state.durable, state.hash_states), (before.durable, before.hash_states));
}

#[test]
fn a_record_larger_than_a_frame_is_refused() {
    let opening = Opening::fresh::<State>();
    let (mut chain, mut bytes) = (opening.chain(), Vec::new());
    let before = chain;
    let large = vec![0; PAYLOAD_BYTES_MAX];
    let record = Record::HashState(HashState { algorithm: "x".into(), front: 0, state: large });
    assert!(!chain.append(&record, &mut bytes));
    assert!(bytes.is_empty() && chain == before);
}

fn range() -> impl Strategy<Value = Range> {
    (0u64..64, 0u64..24).prop_map(|(start, len)| Range::of_len(start, len))
}

fn record() -> impl Strategy<Value = Record> {
    let text = "[a-c]{0,3}";
    prop_oneof![
        4 => (range(), 0u32..4).prop_map(|(range, source)| Record::Durable { range, source }),
        2 => range().prop_map(|range| Record::Verified { range }),
        1 => range().prop_map(|range| Record::Bad { range }),
        1 => Just(Record::Mismatch),
        1 => (0u32..4, text).prop_map(|(id, name)| Record::Source { id, name }),
        1 => (text, 0u64..64, proptest::collection::vec(any::<u8>(), 0..8))
            .prop_map(|(algorithm, front, state)| Record::HashState(HashState { algorithm, front, state })),
        1 => (0u64..4, range(), any::<[u8; 32]>())
            .prop_map(|(index, range, cv)| Record::Group { index, range, cv }),
        1 => (any::<Option<u64>>(), proptest::collection::vec(text, 0..3), proptest::option::of(text))
            .prop_map(|(size_bytes, digests, pieces)| {
                let identity = Identity { digests, pieces, ..Identity::default() };
                Record::Identity { size_bytes, identity }
            }),
    ]
}

proptest! {
    #[test]
    fn any_records_come_back_and_keep_the_invariants(records in proptest::collection::vec(record(), 0..40)) {
        let (bytes, ends) = journal(&records);
        let state = believed(&bytes).0;
        prop_assert_eq!(&state, &ends.last().unwrap().1);
        let covered = |range| state.durable.covers(range);
        prop_assert!(state.verified.iter().all(covered));
        prop_assert!(state.hash_states.values().all(|hash| covered(Range::new(0, hash.front))));
        prop_assert!(state.groups.values().all(|&(range, _)| covered(range)));
        prop_assert_eq!(state.delivered.iter().map(|(range, _)| range).collect::<swath_model::RangeSet>(), state.durable.clone());
        let (compact, _) = journal(&state.records().collect::<Vec<_>>());
        prop_assert_eq!(believed(&compact).0, state);
    }

    /// Several kinds of damage at once: still a prefix, and never a panic.
    #[test]
    fn damage_never_adds_anything(
        records in proptest::collection::vec(record(), 0..20),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        tail in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let (mut bytes, ends) = journal(&records);
        for (position, value) in damage {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        bytes.extend(tail);
        let (state, valid_bytes) = believed(&bytes);
        if valid_bytes == 0 {
            prop_assert_eq!(state, State::default());
        } else {
            prop_assert!(ends.contains(&(valid_bytes, state)));
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256), magic in any::<bool>()) {
        let bytes = if magic { [b"swath journal 2\n".as_slice(), &bytes].concat() } else { bytes };
        let _ = recover::<State>(bytes.as_slice()).unwrap();
        for kind in 0..10 {
            if let Some(record) = Record::decode(kind, &bytes) {
                let mut again = Vec::new();
                record.encode(&mut again);
                prop_assert_eq!(&again, &bytes);
            }
        }
    }
}
