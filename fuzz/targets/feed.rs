//! Any bytes as a feed: no panic, and what is read of it can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::feed;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(read) = feed::read(bytes) {
        let again = feed::read(feed::atom(&read).as_bytes()).unwrap();
        assert_eq!(again.entries.len(), read.entries.len());
        assert!(feed::read(feed::rss(&read).as_bytes()).is_ok());
    }
});
