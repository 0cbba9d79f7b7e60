//! Any text as a token of an issuer, as its claims, and as a set of keys.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::scope::{Act, Dialect, Scopes};

fuzz_target!(|text: &str| {
    swath_serve::fuzzing::issued_token(text);
    for dialect in [Dialect::Wlcg, Dialect::SciTokens] {
        let scopes = Scopes::read(text, dialect, b"base");
        for path in [&b""[..], b"a", b"bas", b"basement"] {
            assert!(!scopes.permit(Act::Read, path), "it leads out of its base");
        }
    }
});
