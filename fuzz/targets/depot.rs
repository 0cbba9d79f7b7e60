//! Any bytes as a request for a relay's depot: what is understood of it is possible, and all else is
//! refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| swath_relay::fuzzing::depot(bytes));
