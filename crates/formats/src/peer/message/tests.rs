//! Messages: their bytes, any cuts, lengths that are not allowed.

use proptest::prelude::*;

use super::*;

/// Reads all of `wire`, which arrives in parts of the given lengths (the last is repeated), and
/// skips the payloads of pieces; shows each message.
fn in_parts(wire: &[u8], parts: &[usize], limits: &Limits) -> Result<Vec<String>, PeerFault> {
    let (mut shown, mut buffer, mut skip) = (Vec::new(), Vec::new(), 0);
    let mut parts = parts.iter().copied().chain(std::iter::repeat(*parts.last().unwrap_or(&1)));
    let mut rest = wire;
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(parts.next().unwrap_or(1).clamp(1, rest.len()));
        rest = behind;
        buffer.extend_from_slice(part);
        let mut input = &buffer[..];
        loop {
            let skipped = skip.min(input.len());
            (input, skip) = (&input[skipped..], skip - skipped);
            if skip > 0 {
                break;
            }
            let Some(message) = Message::decode(&mut input, limits)? else { break };
            if let Message::Piece(block) = message {
                skip = block.length as usize;
            }
            shown.push(format!("{message:?}"));
        }
        buffer = input.to_vec();
    }
    Ok(shown)
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

#[test]
fn their_bytes() {
    let block = Block { piece: PieceIndex(1), begin: 0x4000, length: 0x4000 };
    let range =
        HashRange { pieces_root: [0xab; 32], base_layer: 1, index: 2, length: 2, proof_layers: 3 };
    let hash_fields = format!("{}{}", "ab".repeat(32), "00000001000000020000000200000003");
    let piece = PieceIndex(0x0102_0304);
    for (message, hex) in [
        (Message::KeepAlive, "00000000".to_owned()),
        (Message::Choke, "0000000100".to_owned()),
        (Message::Unchoke, "0000000101".to_owned()),
        (Message::Interested, "0000000102".to_owned()),
        (Message::NotInterested, "0000000103".to_owned()),
        (Message::Have(piece), "000000050401020304".to_owned()),
        (Message::Bitfield(&[0xf0, 0x80]), "0000000305f080".to_owned()),
        (Message::Request(block), "0000000d06000000010000400000004000".to_owned()),
        (Message::Piece(block), "00004009070000000100004000".to_owned()),
        (Message::Cancel(block), "0000000d08000000010000400000004000".to_owned()),
        (Message::Port(6881), "00000003091ae1".to_owned()),
        (Message::Suggest(piece), "000000050d01020304".to_owned()),
        (Message::HaveAll, "000000010e".to_owned()),
        (Message::HaveNone, "000000010f".to_owned()),
        (Message::Reject(block), "0000000d10000000010000400000004000".to_owned()),
        (Message::AllowedFast(piece), "000000051101020304".to_owned()),
        (Message::Extended { id: 3, payload: b"de" }, "00000004140364 65".replace(' ', "")),
        (Message::HashRequest(range), format!("0000003115{hash_fields}")),
        (
            Message::Hashes { range, hashes: &[0xcd; 64] },
            format!("0000007116{hash_fields}{}", "cd".repeat(64)),
        ),
        (Message::HashReject(range), format!("0000003117{hash_fields}")),
    ] {
        let wire = encoded(&message);
        let shown: String = wire.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown, hex, "{message:?}");
        let limits = Limits::default();
        for length in 0..wire.len() {
            let mut input = &wire[..length];
            assert_eq!(Message::decode(&mut input, &limits), Ok(None), "{message:?} {length}");
            assert_eq!(input.len(), length);
        }
        let more = [&wire[..], b"next"].concat();
        let mut input = &more[..];
        assert_eq!(Message::decode(&mut input, &limits), Ok(Some(message)));
        assert_eq!(input, b"next");
    }
}

#[test]
fn a_length_is_refused_before_the_body_comes() {
    let limits = Limits { pieces: Some(20), ..Limits::default() };
    let refused = |id: MessageId, length: u32| {
        let wire = [&length.to_be_bytes()[..], &[id.0]].concat();
        let result = Message::decode(&mut &wire[..], &limits);
        assert!(
            matches!(
                &result,
                Ok(None) | Ok(Some(_)) | Err(PeerFault { violation: Violation::Length(_), .. })
            ),
            "{result:?}"
        );
        result.is_err()
    };
    for (id, allowed) in [
        (MessageId::CHOKE, 1..=1),
        (MessageId::UNCHOKE, 1..=1),
        (MessageId::INTERESTED, 1..=1),
        (MessageId::NOT_INTERESTED, 1..=1),
        (MessageId::HAVE, 5..=5),
        (MessageId::BITFIELD, 4..=4),
        (MessageId::REQUEST, 13..=13),
        (MessageId::PIECE, 10..=(128 << 10) + 9),
        (MessageId::CANCEL, 13..=13),
        (MessageId::PORT, 3..=3),
        (MessageId::SUGGEST, 5..=5),
        (MessageId::HAVE_ALL, 1..=1),
        (MessageId::HAVE_NONE, 1..=1),
        (MessageId::REJECT, 13..=13),
        (MessageId::ALLOWED_FAST, 5..=5),
        (MessageId::EXTENDED, 2..=(1 << 20) + 2),
        (MessageId::HASH_REQUEST, 49..=49),
        (MessageId::HASH_REJECT, 49..=49),
        (MessageId(99), 1..=(64 << 10) + 1),
    ] {
        for length in (1..100).chain([*allowed.end(), allowed.end() + 1, 1 << 24, u32::MAX]) {
            assert_eq!(refused(id, length), !allowed.contains(&length), "{id} {length}");
        }
    }
    for (length, is_refused) in [
        (48, true),
        (49, false),
        (50, true),
        (81, false),
        (49 + 32 * 8256, false),
        (49 + 32 * 8257, true),
    ] {
        assert_eq!(refused(MessageId::HASHES, length), is_refused, "{length}");
    }
    // While the number of pieces is not known, the largest torrent sets the limit.
    for (length, is_refused) in [(1, false), (1 + (1 << 21), false), (2 + (1 << 21), true)] {
        let wire = [&u32::to_be_bytes(length)[..], &[5]].concat();
        let result = Message::decode(&mut &wire[..], &Limits::default());
        assert_eq!(result.is_err(), is_refused, "{length}");
    }
}

#[test]
fn blocks_must_have_a_possible_length() {
    let limits = Limits::default();
    for make in [Message::Request, Message::Cancel, Message::Reject] {
        for (length, is_refused) in
            [(0, true), (1, false), (128 << 10, false), ((128 << 10) + 1, true)]
        {
            let block = Block { piece: PieceIndex(0), begin: 0, length };
            let wire = encoded(&make(block));
            let expected = match is_refused {
                false => Ok(Some(make(block))),
                true => Err(Violation::BlockLength(block).by(MessageId(wire[4]))),
            };
            assert_eq!(Message::decode(&mut &wire[..], &limits), expected);
        }
    }
}

#[test]
fn a_fault_names_its_message() {
    let fault = Message::decode(&mut &b"\0\0\0\x02\0x"[..], &Limits::default()).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "the peer broke the protocol by its message \"choke\": 2 bytes is no length of it"
    );
}

#[test]
fn requests_for_hashes_follow_bep_52() {
    let valid =
        HashRange { pieces_root: [0; 32], base_layer: 0, index: 512, length: 512, proof_layers: 5 };
    assert!(valid.is_valid());
    for invalid in [
        HashRange { length: 0, ..valid },
        HashRange { length: 1, ..valid },
        HashRange { length: 3, ..valid },
        HashRange { length: 16384, index: 0, ..valid },
        HashRange { index: 256, ..valid },
        HashRange { base_layer: u32::MAX, proof_layers: u32::MAX, ..valid },
    ] {
        assert!(!invalid.is_valid(), "{invalid:?}");
    }
}

/// Any message, as its bytes and payload.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let number = || prop_oneof![0u32..4, any::<u32>()];
    let block = move || {
        (number(), number(), 1u32..=1 << 17).prop_map(|(piece, begin, length)| Block {
            piece: PieceIndex(piece),
            begin,
            length,
        })
    };
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    let range = move || {
        (any::<[u8; 32]>(), number(), number(), number(), number()).prop_map(
            |(pieces_root, base_layer, index, length, proof_layers)| HashRange {
                pieces_root,
                base_layer,
                index,
                length,
                proof_layers,
            },
        )
    };
    prop_oneof![
        (0usize..7).prop_map(|which| {
            encoded(
                &[
                    Message::KeepAlive,
                    Message::Choke,
                    Message::Unchoke,
                    Message::Interested,
                    Message::NotInterested,
                    Message::HaveAll,
                    Message::HaveNone,
                ][which],
            )
        }),
        (0usize..3, number()).prop_map(|(which, piece)| {
            encoded(&[Message::Have, Message::Suggest, Message::AllowedFast][which](PieceIndex(
                piece,
            )))
        }),
        (0usize..3, block()).prop_map(|(which, block)| {
            encoded(&[Message::Request, Message::Cancel, Message::Reject][which](block))
        }),
        (block(), 1u32..300).prop_map(|(block, length)| {
            let mut wire = encoded(&Message::Piece(Block { length, ..block }));
            wire.resize(wire.len() + length as usize, 7);
            wire
        }),
        bytes().prop_map(|wire| encoded(&Message::Bitfield(&wire))),
        any::<u16>().prop_map(|port| encoded(&Message::Port(port))),
        (any::<u8>(), bytes())
            .prop_map(|(id, payload)| encoded(&Message::Extended { id, payload: &payload })),
        (0usize..2, range()).prop_map(|(which, range)| {
            encoded(&[Message::HashRequest, Message::HashReject][which](range))
        }),
        (range(), prop::collection::vec(any::<[u8; 32]>(), 0..4)).prop_map(|(range, hashes)| {
            encoded(&Message::Hashes { range, hashes: hashes.as_flattened() })
        }),
    ]
}

proptest! {
    #[test]
    fn cuts_make_no_difference(
        messages in prop::collection::vec(any_message(), 0..12),
        parts in prop::collection::vec(1usize..60, 1..40),
    ) {
        let (wire, limits) = (messages.concat(), Limits::default());
        let whole = in_parts(&wire, &[wire.len()], &limits).unwrap();
        prop_assert_eq!(whole.len(), messages.len());
        prop_assert_eq!(&in_parts(&wire, &[1], &limits).unwrap(), &whole);
        prop_assert_eq!(&in_parts(&wire, &parts, &limits).unwrap(), &whole);
    }

    #[test]
    fn what_is_read_is_written_the_same(wire in any_message()) {
        let mut input = &wire[..];
        let message = Message::decode(&mut input, &Limits::default()).unwrap().unwrap();
        prop_assert!(input.is_empty() || matches!(message, Message::Piece(_)));
        prop_assert_eq!(&encoded(&message)[..], &wire[..wire.len() - input.len()]);
    }

    #[test]
    fn no_bytes_can_do_harm(
        messages in prop::collection::vec(any_message(), 0..3),
        noise in prop::collection::vec(any::<u8>(), 0..60),
        flip in any::<(prop::sample::Index, u8)>(),
        parts in prop::collection::vec(1usize..60, 1..9),
    ) {
        let mut wire = [messages.concat(), noise].concat();
        if !wire.is_empty() {
            let at = flip.0.index(wire.len());
            wire[at] ^= flip.1;
        }
        let limits = Limits::default();
        let whole = in_parts(&wire, &[wire.len().max(1)], &limits);
        prop_assert_eq!(in_parts(&wire, &parts, &limits), whole);
    }
}
