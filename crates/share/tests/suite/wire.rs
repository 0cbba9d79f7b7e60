//! The log of a node as bytes: what others of this version, and of none, send.

use swath_share::log::{BadPart, ENTRIES_MAX, Entry, NodeId, PART_BYTES_MAX, Part, Vouch};

fn part(entries: Vec<Entry>) -> Part {
    Part { node: NodeId([0xab; 16]), next: 0x0102_0304, entries }
}

#[test]
fn an_answer_has_the_bytes_that_the_table_names() {
    let vouch = Vouch { hash: [7; 32], by: NodeId([9; 16]) };
    let entries = vec![
        Entry::Claimed(5),
        Entry::Released(0x0001_0203),
        Entry::Held(6, vouch),
        Entry::Cleared,
    ];
    let wanted = [
        &[1][..],
        &[0xab; 16],
        &[0, 0, 0, 0, 1, 2, 3, 4],
        &[1, 0, 0, 0, 5],
        &[2, 0, 1, 2, 3],
        &[3, 0, 0, 0, 6],
        &[7; 32],
        &[9; 16],
        &[4],
    ]
    .concat();
    assert_eq!(part(entries.clone()).bytes(), wanted);
    assert_eq!(Part::read(&wanted), Ok(part(entries)));
}

#[test]
fn another_version_is_refused() {
    let mut bytes = part(Vec::new()).bytes();
    assert!(Part::read(&bytes).is_ok());
    for version in [0, 2, 255] {
        bytes[0] = version;
        assert_eq!(Part::read(&bytes), Err(BadPart));
    }
}

#[test]
fn an_unknown_kind_is_refused_although_the_rest_could_be_read() {
    for kind in [0, 5, 255] {
        let bytes = [part(vec![Entry::Cleared]).bytes(), vec![kind, 0, 0, 0, 1]].concat();
        assert_eq!(Part::read(&bytes), Err(BadPart), "{kind}");
    }
}

#[test]
fn an_answer_that_is_cut_within_an_entry_is_refused() {
    let vouch = Vouch { hash: [7; 32], by: NodeId([9; 16]) };
    let whole = part(vec![Entry::Held(6, vouch)]).bytes();
    // Without the entry it is an answer; with a part of it, it is none.
    assert_eq!(Part::read(&whole[..25]), Ok(part(Vec::new())));
    for length in (0..25).chain(26..whole.len()) {
        assert_eq!(Part::read(&whole[..length]), Err(BadPart), "{length} bytes");
    }
}

#[test]
fn the_longest_answer_fits_its_limit() {
    let vouch = Vouch { hash: [7; 32], by: NodeId([9; 16]) };
    let bytes = part(vec![Entry::Held(u32::MAX, vouch); ENTRIES_MAX]).bytes();
    assert_eq!(bytes.len(), PART_BYTES_MAX);
    assert!(Part::read(&bytes).is_ok());
    assert_eq!(Part::read(&[bytes, vec![4]].concat()), Err(BadPart));
}

#[test]
fn ids_are_shown_as_numbers() {
    assert_eq!(format!("{:?}", NodeId([0x1f; 16])), format!("NodeId({})", "1f".repeat(16)));
}
