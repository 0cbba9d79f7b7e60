//! Any bytes as the journal of an allocation in a depot: what is believed of it stays within the
//! allocation, and can be written down again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| swath_store::fuzzing::lease(bytes));
