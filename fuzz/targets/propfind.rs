//! Any bytes as the body of `PROPFIND`: no panic, and what it asks for can be answered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::webdav::{END, Resource, ResourceKind, START, read, write};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(asked) = read(bytes) {
        let kind = ResourceKind::File { size_bytes: 1, etag: "\"1\"", media_type: "text/plain" };
        let mut answer = START.to_owned();
        write(&mut answer, &asked, &Resource { path: bytes, kind, modified_s: Some(1) });
        answer.push_str(END);
        // Nothing in it is an element that was not meant.
        assert_eq!(answer.matches("<D:response>").count(), 1);
    }
});
