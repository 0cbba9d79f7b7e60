//! Any text as a `Content-Range` header; what is read is consistent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::content_range::parse;

fuzz_target!(|value: &str| {
    if let Ok(parsed) = parse(value) {
        assert!(parsed.range.is_some() || parsed.size_bytes.is_some());
        if let Some(range) = parsed.range {
            assert!(!range.is_empty());
            assert!(parsed.size_bytes.is_none_or(|size_bytes| range.end <= size_bytes));
        }
    }
});
