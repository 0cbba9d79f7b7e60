//! What the machines of a cluster tell each other: what is understood is written again as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| swath_share::fuzzing::log(bytes));
