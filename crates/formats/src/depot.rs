//! Addresses of data in relays' depots: `https://RELAY/depot/CAPABILITY`. Anyone who knows one may
//! use it, so none is ever shown whole.

/// The path before a capability, encoded or not.
pub const PREFIX: &str = "/depot/";

/// Returns an address, or a part of one, for others to see: with just enough of each capability to
/// tell it from others, also behind relays and in any spelling of the path that servers accept
/// (`/depot//…`, `/depot/./…`, `/%64epot/…`): no run of as many digits behind the word stays whole.
///
/// ```
/// let capability = "0123456789abcdef".repeat(4);
/// let shown = swath_formats::depot::redacted(&format!("http://r3.example/depot/{capability}"));
/// assert_eq!(shown, "http://r3.example/depot/01234567...");
/// ```
pub fn redacted(address: &str) -> String {
    let mut text = String::with_capacity(address.len());
    let mut decoded = String::with_capacity(address.len());
    let mut is_named = false;
    let mut rest = address;
    while let Some((first, bytes)) = letter(rest) {
        let (mut digits, mut shown, mut end) = (0, 0, 0);
        let is_prefixed = decoded.ends_with(PREFIX);
        while let Some((digit, bytes)) = letter(&rest[end..]).filter(|it| it.0.is_ascii_hexdigit())
        {
            (digits, end) = (digits + 1, end + bytes);
            if digits <= SHOWN_DIGITS {
                shown = end;
            }
            decoded.push(digit);
        }
        if digits == 0 {
            (shown, end) = (bytes, bytes);
            decoded.push(first);
            is_named |= decoded.ends_with(PREFIX.trim_matches('/'));
        }
        let is_secret = (is_prefixed && digits > SHOWN_DIGITS) || (is_named && digits >= DIGITS);
        text.push_str(&rest[..if is_secret { shown } else { end }]);
        if is_secret {
            text.push_str("...");
        }
        rest = &rest[end..];
    }
    text
}

/// Returns the first character, decoded as often as it was encoded, and its length in bytes.
fn letter(address: &str) -> Option<(char, usize)> {
    let first = address.chars().next()?;
    let after = address.strip_prefix('%').unwrap_or_default();
    let percents = after.len() - after.trim_start_matches("25").len();
    let code = after.get(percents..percents + 2).and_then(|code| u8::from_str_radix(code, 16).ok());
    Some(match code {
        Some(code) => (char::from(code), 1 + percents + 2),
        None => (first, first.len_utf8()),
    })
}

/// Returns the characters of an address, decoded like [`letter`], and where each begins.
pub(crate) fn letters(address: &str) -> impl Iterator<Item = (usize, char)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (found, bytes) = letter(address.get(at..)?)?;
        at += bytes;
        Some((at - bytes, found))
    })
}

/// Returns whether a path belongs to something in a depot.
pub fn is_path(path: &str) -> bool {
    let name = path.strip_prefix(PREFIX).unwrap_or_default();
    name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the visible part of the capability at the end of a path, through relays or not and in
/// any spelling; `None` if there is none.
pub fn brief(path: &str) -> Option<String> {
    let letters: String = letters(path).map(|(_, letter)| letter).collect();
    let at = letters.len().checked_sub(DIGITS)?;
    let capability = letters.get(at..)?;
    let is_one = capability.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_prefixed = letters.get(..at)?.ends_with(PREFIX);
    (is_one && is_prefixed).then(|| capability[..SHOWN_DIGITS].to_owned())
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
        // Names that are digests stay whole where no depot is spoken of.
        let blob = format!("/blobs/sha256:{one}");
        assert_eq!(redacted(&blob), blob);
        assert_eq!(redacted("/depot/%"), "/depot/%");
        assert_eq!(redacted("/depot/%2"), "/depot/%2");
        assert_eq!(redacted("/dépôt/é%é"), "/dépôt/é%é");
        for path in [format!("/depot/{one}"), format!("/relay/http://a/%64epot/%30{}", &one[1..])] {
            assert_eq!(brief(&path).as_deref(), one.get(..8), "{path}");
        }
        for path in ["/depot/01", "/depot", "", &format!("/{one}"), &format!("/depot/{one}/f")] {
            assert_eq!(brief(path), None, "{path}");
        }
        assert!(is_path(&format!("/depot/{one}")) && !is_path("/depot/01") && !is_path("/f"));
    }
}
