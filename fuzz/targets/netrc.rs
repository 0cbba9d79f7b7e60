//! Any text as a netrc file; debug output never shows a password.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::Netrc;

fuzz_target!(|text: &str| {
    match Netrc::parse(text) {
        Ok(netrc) => {
            let _ = (netrc.find("a.example"), netrc.find_login("a.example", "me"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
