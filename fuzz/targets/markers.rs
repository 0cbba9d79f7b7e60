//! Any bytes as the answer to a third-party copy.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::markers::Markers;

fuzz_target!(|bytes: &[u8]| {
    let mut whole = Markers::default();
    whole.take(bytes);
    whole.end();
    let mut cut = Markers::default();
    bytes.chunks(3).for_each(|part| cut.take(part));
    cut.end();
    assert_eq!(whole.copied_bytes(), cut.copied_bytes());
    assert_eq!(whole.outcome(), cut.outcome());
});
