//! Any text as a magnet link: no panic, and what is understood survives being written and read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::torrent::Magnet;

fuzz_target!(|text: &str| {
    if let Ok(mut magnet) = text.parse::<Magnet>() {
        // What is not used is not written.
        magnet.unused.clear();
        let written = magnet.to_string();
        assert!(written.is_ascii() && Magnet::is_magnet(&written));
        assert_eq!(written.parse::<Magnet>(), Ok(magnet), "{written}");
    }
});
