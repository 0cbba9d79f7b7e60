//! Any bytes as an order to fetch from other servers, and as the rights that are kept with one: what is understood can be said again, and means the same then.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_transfer::third_party::Sources;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(sources) = serde_json::from_slice::<Sources>(bytes) {
        let said = serde_json::to_vec(&sources).expect("it is text");
        let again: Sources = serde_json::from_slice(&said).expect("what was said is understood");
        assert!(again == sources);
    }
    swath_serve::fuzzing::kept_rights(&String::from_utf8_lossy(bytes));
});
