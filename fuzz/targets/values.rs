//! Names, digests and saved hashes: whatever is accepted is what it claims to be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Component;
use swath_model::digest::{Algorithm, Digest, Hasher};
use swath_model::path::SafePath;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = str::from_utf8(bytes) {
        if let Ok(path) = SafePath::new(text) {
            assert_eq!(path.as_str(), text);
            assert!(path.as_path().components().all(|c| matches!(c, Component::Normal(_))));
        }
        if let Ok(digest) = text.parse::<Digest>() {
            assert_eq!(digest.to_string().parse(), Ok(digest));
        }
    }
    for algorithm in Algorithm::ALL {
        if let Ok(mut hasher) = Hasher::load(algorithm, bytes) {
            assert_eq!(hasher.save(), bytes);
            let _ = hasher.finish();
            if hasher.bytes() < 1 << 40 {
                hasher.update(&[7; 3000]);
                let _ = hasher.finish();
            }
        }
    }
});
