//! Any bytes as each of the extension messages of peers, and as both sides of an encrypted
//! handshake: what is read can be written, and is read the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::peer::encryption::{Encryption, Methods};
use swath_formats::peer::{ExtensionHandshake, MetadataMessage, PeerExchange, WireInfoHash};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(told) = ExtensionHandshake::decode(bytes) {
        assert!(!told.client.as_deref().unwrap_or_default().chars().any(char::is_control));
        assert_eq!(ExtensionHandshake::decode(&told.encode()), Ok(told));
    }
    if let Ok(Some(message)) = MetadataMessage::decode(bytes) {
        assert_eq!(MetadataMessage::decode(&message.encode()), Ok(Some(message)));
    }
    if let Ok(peers) = PeerExchange::decode(bytes) {
        let again = PeerExchange::decode(&peers.encode()).expect("what was written");
        let sorted = |peers: &PeerExchange| {
            let mut added: Vec<_> = peers.added.iter().map(|peer| peer.address).collect();
            added.sort();
            added
        };
        assert_eq!(sorted(&again), sorted(&peers));
    }
    let (methods, torrent) = (Methods { plain: true, rc4: true }, WireInfoHash([7; 20]));
    for mut side in [
        Encryption::incoming([1; 20], Vec::new(), methods),
        Encryption::outgoing([1; 20], Vec::new(), torrent, methods, Vec::new()),
    ] {
        let mut at = 0;
        while let Ok(used @ 1..) = side.handle_input(&bytes[at..], &[torrent]) {
            at += used;
        }
    }
});
