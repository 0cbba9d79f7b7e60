//! Any bytes as an input list: every item has a mirror, and lines only go forward.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::list::List;

fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    let mut last = 0;
    for item in List::new(bytes) {
        match item {
            Ok(item) => {
                assert!(!item.mirrors.is_empty());
                assert!(item.line > last && item.line <= lines);
                last = item.line;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
