//! Any text as one of the small headers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::{Etag, accept, content_disposition, http_date, keep_alive, metalink, mirror_url};
use swath_model::index::Top;

fuzz_target!(|input: (&str, u64)| {
    let (value, now_s) = input;
    let _ = http_date::retry_after_s(value, now_s);
    let _ = keep_alive::parse(value);
    let _ = accept::prefers([value].into_iter(), "application/json", "text/html");
    let _ = (metalink::is_media_type(value), metalink::is_file_name(value));
    if let Some(etag) = Etag::parse(value) {
        assert!(etag.matches_weakly(&etag));
        assert_eq!(Etag::parse(etag.as_str()), Some(etag));
    }
    if let Some(name) = content_disposition::file_name(value) {
        assert!(!name.as_str().starts_with('.') && !name.as_str().contains(['/', '\\']));
    }
    if let Ok(top) = value.parse::<Top>() {
        assert_eq!(top.to_string(), value);
    }
    if let Ok(url) = mirror_url(value, None) {
        assert!(matches!(url.scheme(), "http" | "https"));
        assert!(url.host().is_some());
    }
});
