//! Extension messages: what is written is read, and what others write.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::torrent::{InfoHash, InfoHashV1, InfoHashV2};

#[test]
fn the_handshake_of_bep_10() {
    // As BEP 10 prints it, with the lengths put right.
    let told = ExtensionHandshake::decode(
        b"d1:md11:LT_metadatai1e6:ut_pexi2ee1:pi6881e1:v13:\xc2\xb5Torrent 1.2e",
    )
    .unwrap();
    assert_eq!(told.ids.id(Extension::PeerExchange), Some(2));
    assert_eq!(told.ids.id(Extension::Metadata), None);
    assert_eq!((told.port, told.client.as_deref()), (Some(6881), Some("µTorrent 1.2")));
}

#[test]
fn a_later_handshake_changes_what_it_mentions() {
    let decode = |text: &[u8]| ExtensionHandshake::decode(text).unwrap();
    let mut told = decode(b"d1:md11:ut_metadatai3e6:ut_pexi1ee13:metadata_sizei31235e4:reqqi250ee");
    told.update(decode(b"d1:md6:ut_pexi0eee"));
    assert_eq!(told.ids.id(Extension::Metadata), Some(3));
    assert_eq!(told.ids.id(Extension::PeerExchange), None);
    assert_eq!((told.metadata_bytes, told.requests_max), (Some(31235), Some(250)));
    told.update(decode(b"d1:md6:ut_pexi9ee4:reqqi10ee"));
    assert_eq!(told.ids.id(Extension::PeerExchange), Some(9));
    assert_eq!(told.requests_max, Some(10));
}

#[test]
fn strange_values_of_a_handshake_are_ignored() {
    for text in [
        &b"de"[..],
        b"d1:mi1e1:p5:porte1:v0:etail",
        b"d1:ei1e1:mle1:pi65536e4:reqqi-1e6:yourip3:abce",
        b"d4:ipv45:abcde13:metadata_sizei99999999999ee",
    ] {
        let told = ExtensionHandshake::decode(text).unwrap();
        assert_eq!((told.port, told.requests_max, told.your_address), (None, None, None));
        assert_eq!((told.ids, told.metadata_bytes), (ExtensionIds::default(), None));
    }
    let long = format!("d1:v200:{}e", "\x1b[2J".repeat(50));
    let client = ExtensionHandshake::decode(long.as_bytes()).unwrap().client.unwrap();
    assert!(client.starts_with("\\u{1b}[2J") && !client.chars().any(char::is_control));
    for text in [&b""[..], b"le", b"i1e", b"d", b"d1:m"] {
        assert!(ExtensionHandshake::decode(text).is_err());
    }
}

#[test]
fn the_messages_of_bep_9() {
    let read = |text: &[u8]| MetadataMessage::decode(text);
    let request = MetadataMessage::Request { piece: 0 };
    assert_eq!(request.encode(), b"d8:msg_typei0e5:piecei0ee");
    assert_eq!(read(b"d8:msg_typei0e5:piecei0ee"), Ok(Some(request)));
    let data = MetadataMessage::Data { piece: 0, total_bytes: 3425, data: b"xxxx".to_vec() };
    assert_eq!(data.encode(), b"d8:msg_typei1e5:piecei0e10:total_sizei3425eexxxx");
    assert_eq!(read(&data.encode()), Ok(Some(data)));
    let reject = MetadataMessage::Reject { piece: 7 };
    assert_eq!(read(&reject.encode()), Ok(Some(reject)));
    assert_eq!(read(b"d8:msg_typei3e5:piecei0ee"), Ok(None));
    for (text, error) in [
        (&b"d5:piecei0ee"[..], ExtensionError::Value("msg_type")),
        (b"d8:msg_typei0ee", ExtensionError::Value("piece")),
        (b"d8:msg_typei0e5:piecei-1ee", ExtensionError::Value("piece")),
        (b"d8:msg_typei1e5:piecei0eexxx", ExtensionError::Value("total_size")),
        (b"li0ee", ExtensionError::NoDictionary),
    ] {
        assert_eq!(read(text), Err(error));
    }
}

#[test]
fn metadata_is_believed_by_its_hash_only() {
    let metadata: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
    let info_hash_v1 = InfoHash::V1(InfoHashV1::of(&metadata));
    for info_hash in [info_hash_v1, InfoHash::V2(InfoHashV2::of(&metadata))] {
        let mut assembly = MetadataAssembly::new(info_hash, 40_000).unwrap();
        let part = |piece: u32| {
            let answer = MetadataMessage::answer(piece, &metadata);
            let MetadataMessage::Data { data, total_bytes: 40_000, .. } = answer else {
                panic!("{answer:?}")
            };
            data
        };
        assert_eq!(assembly.missing().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(assembly.insert(2, 40_000, &part(2)), Ok(None));
        assert_eq!(assembly.insert(2, 40_000, &part(2)), Ok(None));
        for (piece, total, data) in [
            (3, 40_000, part(0)),
            (u32::MAX, 40_000, part(0)),
            (0, 40_001, part(0)),
            (0, 40_000, part(2)),
            (0, 40_000, Vec::new()),
        ] {
            let misfit = Err(MetadataError::Piece { piece });
            assert_eq!(assembly.insert(piece, total, &data), misfit);
        }
        // If a peer sends one wrong byte, all pieces are dropped and requested again.
        let mut lie = part(0);
        lie[5] ^= 1;
        assert_eq!(assembly.insert(0, 40_000, &lie), Ok(None));
        assert_eq!(assembly.missing().collect::<Vec<_>>(), [1]);
        assert_eq!(assembly.insert(1, 40_000, &part(1)), Err(MetadataError::WrongHash));
        assert_eq!(assembly.missing().count(), 3);
        assert_eq!(assembly.insert(1, 40_000, &part(1)), Ok(None));
        assert_eq!(assembly.insert(0, 40_000, &part(0)), Ok(None));
        assert_eq!(assembly.insert(2, 40_000, &part(2)), Ok(Some(metadata.clone())));
    }
    for piece in [3, u32::MAX] {
        assert_eq!(MetadataMessage::answer(piece, &metadata), MetadataMessage::Reject { piece });
    }
    for total_bytes in [0, METADATA_BYTES_MAX + 1, u32::MAX] {
        let refused = MetadataAssembly::new(info_hash_v1, total_bytes).map(drop);
        assert_eq!(refused, Err(MetadataError::Length { total_bytes }));
    }
}

#[test]
fn peers_of_both_kinds_are_exchanged() {
    let peer = |address: &str, flags| ExchangedPeer { address: address.parse().unwrap(), flags };
    let seed = PeerFlags::SEED.with(PeerFlags::REACHABLE);
    let told = PeerExchange {
        added: vec![
            peer("127.0.0.1:6881", seed),
            peer("10.0.0.2:1", PeerFlags::default()),
            peer("[::1]:6882", PeerFlags::UTP),
        ],
        dropped: vec!["10.0.0.3:5".parse().unwrap(), "[2001:db8::1]:9".parse().unwrap()],
    };
    assert_eq!(PeerExchange::decode(&told.encode()), Ok(told.clone()));
    assert!(told.added[0].flags.has(PeerFlags::SEED) && !told.added[0].flags.has(PeerFlags::UTP));

    // Flags may be missing; no port is no address; a flood is cut.
    let few = PeerExchange::decode(b"d5:added12:\x7f\0\0\x01\x1a\xe1\x7f\0\0\x02\0\0e").unwrap();
    assert_eq!(few.added, [peer("127.0.0.1:6881", PeerFlags::default())]);
    let mut flood = b"d5:added60000:".to_vec();
    flood.extend([1; 60_000]);
    flood.push(b'e');
    assert_eq!(PeerExchange::decode(&flood).unwrap().added.len(), EXCHANGED_PEERS_MAX);
    assert_eq!(PeerExchange::decode(b"d5:added5:12345e"), Err(ExtensionError::Value("added")));
    assert_eq!(PeerExchange::decode(b"d6:added66:123456e"), Err(ExtensionError::Value("added6")));
}

proptest! {
    #[test]
    fn a_handshake_that_is_written_is_read(
        uses: [bool; 3],
        client in prop::option::of("[ -~µ]{0,64}"),
        numbers: [Option<u32>; 2],
        your_address: Option<IpAddr>,
        (ipv4, ipv6) in any::<(Option<std::net::Ipv4Addr>, Option<std::net::Ipv6Addr>)>(),
        port in prop::option::of(1u16..),
        flags: [Option<bool>; 2],
    ) {
        let told = ExtensionHandshake {
            ids: ExtensionIds::local(|extension| uses[extension as usize]),
            client,
            requests_max: numbers[0],
            metadata_bytes: numbers[1],
            your_address,
            ipv4,
            ipv6,
            port,
            upload_only: flags[0],
            prefers_encryption: flags[1],
        };
        let wire = told.encode();
        prop_assert!(bencode::read(&wire).unwrap().is_canonical());
        prop_assert_eq!(ExtensionHandshake::decode(&wire), Ok(told));
    }

    #[test]
    fn no_payload_can_do_harm(payload in "(d([0-9]:[a-z]{1,7}(i-?[0-9]{1,3}e|[0-9]{1,2}:.{0,20})){0,4}e?|.{0,40})") {
        let _ = ExtensionHandshake::decode(payload.as_bytes());
        let _ = MetadataMessage::decode(payload.as_bytes());
        let _ = PeerExchange::decode(payload.as_bytes());
    }
}
