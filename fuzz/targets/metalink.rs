//! Any bytes as a Metalink: no panic, and what was understood survives being written and read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::metalink::{self, Options};

fuzz_target!(|bytes: &[u8]| {
    let small = Options { document_bytes_max: 1 << 16, files_max: 100, ..Options::default() };
    match metalink::parse_with(bytes, small) {
        Err(error) => {
            // Counted in UTF-8, which may have more bytes.
            assert!(error.byte <= 3 * bytes.len() as u64);
            assert!(!error.to_string().contains('\x1b'));
        }
        Ok(mut metalink) => {
            metalink.files.iter_mut().for_each(|file| file.skipped.clear());
            metalink.refused.clear();
            let text = metalink::to_string(&metalink);
            assert_eq!(metalink::parse(text.as_bytes()), Ok(metalink), "{text}");
        }
    }
});
