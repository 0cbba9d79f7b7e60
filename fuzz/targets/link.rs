//! Any text as a `Link` header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::link;

fuzz_target!(|value: &str| {
    for link in link::parse(value) {
        assert!(value.contains(&link.target));
        let _ = (link.is_duplicate(), link.is_metalink());
    }
});
