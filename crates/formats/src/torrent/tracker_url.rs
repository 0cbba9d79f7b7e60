//! Addresses of trackers, as metafiles and magnet links have them.

use url::Url;

/// Parses the address of a tracker; `None` if it is not one of HTTP, HTTPS or UDP (BEP 3, 15).
pub fn tracker_url(text: &str) -> Option<Url> {
    let text = text.trim();
    if text.len() > URL_BYTES_MAX || text.contains(char::is_control) {
        return None;
    }
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https" | "udp") && url.has_host()).then_some(url)
}

/// Passkeys make them long, but not longer than a request can be.
const URL_BYTES_MAX: usize = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trackers_pass() {
        for text in
            ["http://t.example:6969/announce?key=1", " udp://t.example:6969 ", "https://[::1]/a"]
        {
            let url = tracker_url(text).unwrap();
            assert_eq!(tracker_url(url.as_str()), Some(url));
        }
        let long = format!("http://t.example/{}", "x".repeat(9000));
        for text in
            ["", "t.example", "file:///a", "wss://t.example/", "udp:a", "http://a/\nb", &long]
        {
            assert_eq!(tracker_url(text), None, "{text}");
        }
    }
}
