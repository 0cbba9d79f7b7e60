//! Any text as each of the headers that carry digests; what is read can be written and read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::digest_header::{parse, read};

fuzz_target!(|value: &str| {
    for name in ["Repr-Digest", "Content-Digest", "Digest", "Content-MD5", "OC-Checksum"] {
        let (_, digests) = read(name, value).unwrap();
        for digest in digests {
            let member = format!("{}=:{}:", digest.algorithm(), digest.to_base64());
            assert_eq!(parse(&member), [digest]);
        }
    }
});
