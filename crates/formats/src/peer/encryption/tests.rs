//! Two sides of the encrypted handshake, in any cuts, and what is no such handshake.

use proptest::prelude::*;

use super::*;

const BOTH: Methods = Methods { plain: true, rc4: true };
const PLAIN_ONLY: Methods = Methods { plain: true, rc4: false };
const RC4_ONLY: Methods = Methods { plain: false, rc4: true };
const TORRENT: WireInfoHash = WireInfoHash([9; 20]);

/// Lets both sides speak, at most `cut` bytes at a time; returns both connections.
fn connect(
    mut a: Encryption,
    mut b: Encryption,
    torrents: &[WireInfoHash],
    cut: usize,
) -> Result<(Encrypted, Encrypted), EncryptionError> {
    let (mut to_a, mut to_b) = (Vec::new(), Vec::new());
    let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
    for _ in 0..200_000 {
        a.poll_transmit(&mut to_b);
        b.poll_transmit(&mut to_a);
        if a.is_done() && b.is_done() {
            break;
        }
        assert!(!to_a.is_empty() || !to_b.is_empty(), "{:?} {:?}", a.state, b.state);
        at_a.extend(to_a.drain(..cut.min(to_a.len())));
        at_b.extend(to_b.drain(..cut.min(to_b.len())));
        let used = a.handle_input(&at_a, torrents)?;
        at_a.drain(..used);
        let used = b.handle_input(&at_b, torrents)?;
        at_b.drain(..used);
        assert!(at_a.len().max(at_b.len()) < KEY_BYTES + cut, "input piles up");
    }
    assert!(at_a.is_empty() && at_b.is_empty());
    Ok((a.finish().unwrap(), b.finish().unwrap()))
}

fn sides(a: Methods, b: Methods) -> (Encryption, Encryption) {
    let first = b"first".to_vec();
    (
        Encryption::outgoing([1; 20], vec![3; 100], TORRENT, a, first),
        Encryption::incoming([2; 20], vec![4; 200], b),
    )
}

#[test]
fn the_method_is_one_that_both_accept() {
    let other = WireInfoHash([8; 20]);
    for (a, b, expected) in [
        (BOTH, BOTH, Some(Method::Rc4)),
        (BOTH, PLAIN_ONLY, Some(Method::Plain)),
        (RC4_ONLY, BOTH, Some(Method::Rc4)),
        (PLAIN_ONLY, BOTH, Some(Method::Plain)),
        (PLAIN_ONLY, RC4_ONLY, None),
        (RC4_ONLY, PLAIN_ONLY, None),
    ] {
        let (a, b) = sides(a, b);
        match (connect(a, b, &[other, TORRENT], 1000), expected) {
            (Ok((a, b)), Some(method)) => {
                assert_eq!((a.method, b.method), (method, method));
                assert_eq!((a.info_hash, b.info_hash), (TORRENT, TORRENT));
                assert_eq!((&a.first[..], &b.first[..]), (&b""[..], &b"first"[..]));
                let is_encrypted = method == Method::Rc4;
                for cipher in [&a.receive, &a.send, &b.receive, &b.send] {
                    assert_eq!(cipher.is_some(), is_encrypted);
                }
            }
            (Err(EncryptionError::Method), None) => {}
            (result, _) => panic!("{result:?}"),
        }
    }
}

#[test]
fn a_torrent_that_is_not_here_is_refused() {
    let (a, b) = sides(BOTH, BOTH);
    let refused = connect(a, b, &[WireInfoHash([8; 20])], 50).map(drop);
    assert_eq!(refused, Err(EncryptionError::Torrent));
}

#[test]
fn padding_has_an_end() {
    for (mut side, _) in [sides(BOTH, BOTH), {
        let (a, b) = sides(BOTH, BOTH);
        (b, a)
    }] {
        let key = Secret::new([5; 20]).public();
        assert_eq!(side.handle_input(&key, &[TORRENT]), Ok(KEY_BYTES));
        let (mut input, mut taken, mut result) = (Vec::new(), 0, Ok(0));
        while let Ok(used) = result {
            input.drain(..used);
            assert!(taken < 600);
            input.extend([0x55; 30]);
            taken += 30;
            result = side.handle_input(&input, &[TORRENT]);
        }
        assert_eq!(result, Err(EncryptionError::NoHandshake));
    }
    let (mut a, _) = sides(BOTH, BOTH);
    assert_eq!(a.handle_input(&[0; 96], &[]), Err(EncryptionError::Key));
}

proptest! {
    #[test]
    fn both_sides_understand_each_other(
        secrets: [[u8; 20]; 2],
        padding in prop::array::uniform2(prop::collection::vec(any::<u8>(), 0..600)),
        first in prop::collection::vec(any::<u8>(), 0..300),
        cut in 1usize..900,
        methods in prop::sample::select(vec![BOTH, RC4_ONLY, PLAIN_ONLY]),
        text in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let [pad_a, pad_b] = padding;
        let a = Encryption::outgoing(secrets[0], pad_a, TORRENT, methods, first.clone());
        let b = Encryption::incoming(secrets[1], pad_b, BOTH);
        let (mut a, mut b) = connect(a, b, &[TORRENT], cut).unwrap();
        prop_assert_eq!(&b.first, &first);
        for (from, to) in [(&mut a.send, &mut b.receive), (&mut b.send, &mut a.receive)] {
            let mut sent = text.clone();
            from.iter_mut().for_each(|cipher| cipher.apply(&mut sent));
            if methods.rc4 && text.len() > 16 {
                prop_assert_ne!(&sent, &text);
            }
            to.iter_mut().for_each(|cipher| cipher.apply(&mut sent));
            prop_assert_eq!(&sent, &text);
        }
    }

    #[test]
    fn no_bytes_can_do_harm(
        input in prop::collection::vec(any::<u8>(), 0..1500),
        flip in any::<(prop::sample::Index, u8)>(),
        cut in 1usize..300,
    ) {
        for is_outgoing in [true, false] {
            let (a, b) = sides(BOTH, BOTH);
            let mut side = if is_outgoing { a } else { b };
            let mut at = Vec::new();
            for part in input.chunks(cut) {
                at.extend_from_slice(part);
                let Ok(used) = side.handle_input(&at, &[TORRENT]) else { break };
                at.drain(..used);
                prop_assert!(at.len() < KEY_BYTES + cut);
            }
        }
        // A good handshake with one wrong byte.
        let (mut a, mut b) = sides(RC4_ONLY, BOTH);
        let (mut to_a, mut to_b) = (Vec::new(), Vec::new());
        a.poll_transmit(&mut to_b);
        b.handle_input(&to_b, &[TORRENT]).unwrap();
        b.poll_transmit(&mut to_a);
        a.handle_input(&to_a, &[TORRENT]).unwrap();
        to_b.clear();
        a.poll_transmit(&mut to_b);
        let place = flip.0.index(to_b.len());
        to_b[place] ^= flip.1;
        let _ = b.handle_input(&to_b, &[TORRENT]);
    }
}
