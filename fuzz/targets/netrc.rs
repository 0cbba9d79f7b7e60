//! Any bytes as a netrc file; debug output never shows a password.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::Netrc;

fuzz_target!(|text: &[u8]| {
    let netrc = Netrc::parse(text);
    let _ = netrc.find("a.example");
    assert!(netrc.problems().iter().all(|problem| !problem.to_string().is_empty()));
});
