//! Any bytes as the requests of a client.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| swath_serve::fuzzing::requests(bytes));
