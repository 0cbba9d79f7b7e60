//! Any text as a route and as what relays tell on it: addresses within addresses, reports of hops,
//! what went wrong. What is understood can be written again, and means the same then.
#![no_main]

use libfuzzer_sys::fuzz_target;
use swath_formats::relay::{HOPS_MAX, PREFIX, relays, route, through, upstream};
use swath_formats::{Hop, proxy_status};
use swath_transfer::Url;

fuzz_target!(|text: &str| {
    let _ = upstream(text);
    if let Some(Ok(url)) = upstream(&format!("{PREFIX}{text}")) {
        assert!(matches!(url.scheme(), "http" | "https") && url.host().is_some());
        assert!(url.username().is_empty() && url.password().is_none());
        assert!(relays(&url) < HOPS_MAX);
        let near = Url::parse("http://near/").expect("an address");
        let whole = through(&near, &url);
        let target = whole.as_str().strip_prefix("http://near").expect("it begins with the relay");
        assert_eq!(upstream(target), Some(Ok(url.clone())));
        let ((mut passed, end), (whole_passed, whole_end)) = (route(&url), route(&whole));
        passed.insert(0, near);
        assert_eq!((passed, end), (whole_passed, whole_end));
    }
    for hop in Hop::parse(text) {
        let numbers = [hop.rtt_ms, hop.rate, hop.held, hop.able];
        assert!(numbers.iter().flatten().all(|number| number.is_finite() && *number >= 0.0));
        assert_eq!(Hop::parse(&hop.write()).len(), 1);
    }
    if let Some(told) = proxy_status::read(text)
        && let Some(fault) = told.fault
    {
        let details = told.details.unwrap_or_default();
        let again = proxy_status::read(&proxy_status::write(&told.proxy, fault, None, &details));
        assert_eq!(again.and_then(|again| again.fault), Some(fault));
    }
});
