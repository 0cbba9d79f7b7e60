//! Any bytes as the answers of a web server to a lane, in any cuts.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| swath_source::fuzzing::answers(bytes));
