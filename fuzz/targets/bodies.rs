//! Any bytes as the body of a file that is sent in chunks, in any cuts.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| swath_serve::fuzzing::bodies(bytes));
