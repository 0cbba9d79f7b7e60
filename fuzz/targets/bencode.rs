//! Any bytes as a bencoded value: no panic, spans lie in the input, and what is canonical is the
//! same when written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::torrent::bencode::{self, Token, Writer};

fuzz_target!(|bytes: &[u8]| {
    let Ok(parsed) = bencode::read(bytes) else { return };
    let raw = parsed.value.raw();
    assert_eq!([raw, parsed.rest].concat(), bytes);
    let mut out = Writer::new();
    let mut cursor = parsed.value.cursor();
    while let Some(token) = cursor.token() {
        match token {
            Token::Int(value) => out.raw(format!("i{value}e").as_bytes()),
            Token::Bytes(bytes) => out.bytes(bytes),
            Token::List => out.list(),
            Token::Dict => out.dict(),
            Token::End => out.end(),
        };
    }
    let again = out.finish();
    if parsed.deviation.is_none() {
        assert_eq!(again, raw);
    }
    // The parts of a container are all of it.
    let list = parsed.value.list().map(|items| items.map(|item| item.raw().len()).sum::<usize>());
    if let Some(inside) = list {
        assert_eq!(inside + 2, raw.len());
    }
    for (key, value) in parsed.value.dict().into_iter().flatten() {
        assert!(
            parsed.value.get(key).is_some_and(|found| found == value || parsed.deviation.is_some())
        );
        let _ = (value.int(), value.text(), value.bytes(), value.list().map(Iterator::count));
    }
});
