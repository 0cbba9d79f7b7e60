//! Addresses of what lies in the depots of relays: `https://RELAY/depot/CAPABILITY`. Whoever knows one
//! may use it, so that none is shown whole.

/// What precedes a capability in an address, encoded or not.
pub const PREFIX: &str = "/depot/";

/// An address, or a part of one, as others may see it: enough of each capability to tell one from
/// another, also behind relays.
///
/// ```
/// let capability = "0123456789abcdef".repeat(4);
/// let shown = swath_formats::depot::redacted(&format!("http://r3.example/depot/{capability}"));
/// assert_eq!(shown, "http://r3.example/depot/01234567...");
/// ```
pub fn redacted(address: &str) -> String {
    let mut text = String::with_capacity(address.len());
    let mut rest = address;
    while let Some(at) = rest.find(PREFIX) {
        let (before, after) = rest.split_at(at + PREFIX.len());
        let end = after.find(|it: char| !it.is_ascii_hexdigit()).unwrap_or(after.len());
        text.push_str(before);
        text.push_str(&after[..end.min(SHOWN_DIGITS)]);
        if end > SHOWN_DIGITS {
            text.push_str("...");
        }
        rest = &after[end..];
    }
    text + rest
}

/// Whether a path is that of something in a depot.
pub fn is_path(path: &str) -> bool {
    let name = path.strip_prefix(PREFIX).unwrap_or_default();
    name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// 32 of 256 bits.
const SHOWN_DIGITS: usize = 8;
/// 256 bits.
const DIGITS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_not_written_down_whole() {
        let one = "0123456789abcdef".repeat(4);
        for (target, expected) in [
            (format!("/depot/{one}?status"), "/depot/01234567...?status".to_owned()),
            (
                format!("/relay/http://r2/depot/{one}"),
                "/relay/http://r2/depot/01234567...".to_owned(),
            ),
            ("/depot".to_owned(), "/depot".to_owned()),
            ("/relay/http://a/depot/b".to_owned(), "/relay/http://a/depot/b".to_owned()),
        ] {
            assert_eq!(redacted(&target), expected);
        }
        assert!(is_path(&format!("/depot/{one}")) && !is_path("/depot/01") && !is_path("/f"));
    }
}
