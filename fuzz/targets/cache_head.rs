//! Any bytes as the head of a cached file: what is taken can be written down again and is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| swath_store::fuzzing::cache_head(bytes));
