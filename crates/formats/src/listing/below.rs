//! Whether one address is below another, and its name there.
//!
//! The same address can be written in several ways: `%C3%A9` or `%c3%a9`, `~` or `%7E`, `[` or `%5B`.
//! Therefore decoded parts are compared (RFC 3986, section 6.2.2), but an escaped `/` stays part of a name.
//! Servers that double slashes in front of a name exist, so empty parts do not count there.

use url::Url;

use crate::percent;

/// Returns the path of `path` below the folder `folder` as written, empty for the folder itself; `None` if it
/// is not below it. Both are paths of addresses; `folder` may lack its final `/`.
pub fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    let mut wanted = folder.split('/').filter(|part| !part.is_empty()).peekable();
    let Some(mut next) = wanted.next() else { return Some(path.strip_prefix('/').unwrap_or(path)) };
    let mut rest = path;
    loop {
        rest = rest.trim_start_matches('/');
        let (part, after) = rest.split_once('/').unwrap_or((rest, ""));
        if !same_part(part, next) {
            return None;
        }
        rest = after;
        match wanted.next() {
            Some(more) => next = more,
            None => return Some(rest),
        }
    }
}

/// Returns whether two paths of addresses are the same, with or without a final `/`.
pub fn same_path(one: &str, other: &str) -> bool {
    below(one, other).is_some_and(|rest| rest.trim_matches('/').is_empty())
}

fn same_part(one: &str, other: &str) -> bool {
    one == other || percent::decode(one) == percent::decode(other)
}

/// Returns whether two addresses are of one server, by whichever of HTTP and HTTPS: pages behind a proxy
/// that speaks TLS for their server often have links to http.
pub fn same_server(one: &Url, other: &Url) -> bool {
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https");
    is_web(one)
        && is_web(other)
        && one.host() == other.host()
        && (one.port() == other.port()
            || one.port_or_known_default() == other.port_or_known_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_address_in_other_letters_is_the_same() {
        for (path, folder, rest) in [
            ("/d/a", "/d/", Some("a")),
            ("/d/a/b%20c/", "/d/", Some("a/b%20c/")),
            ("/mus%c3%a9e/a", "/mus%C3%A9e/", Some("a")),
            ("/%7Eada/[x]", "/~ada/", Some("[x]")),
            ("/home/%5BRef%5D/a", "/home/[Ref]/", Some("a")),
            ("/me%40site/a%2Fb", "/me@site/", Some("a%2Fb")),
            ("/a%2Fb/c", "/a/b/", None),
            ("/ds//a", "/ds/", Some("/a")),
            ("//ds/a", "/ds/", Some("a")),
            ("/ds/a", "//ds/", Some("a")),
            ("/ds", "/ds/", Some("")),
            ("/ds/", "/ds", Some("")),
            ("/", "/", Some("")),
            ("/a", "/", Some("a")),
            ("/", "/ds/", None),
            ("/dsx/a", "/ds/", None),
            ("/other/a", "/ds/", None),
        ] {
            assert_eq!(below(path, folder), rest, "{path} below {folder}");
        }
        assert!(same_path("/d/e", "/d/%65/") && !same_path("/d/e/f", "/d/e/"));
    }

    #[test]
    fn a_server_is_the_same_by_http_and_https() {
        let url = |text: &str| Url::parse(text).unwrap();
        for (one, other, same) in [
            ("https://h/a", "http://H/b", true),
            ("HTTP://h:80/a", "http://h/", true),
            ("https://h:8443/", "http://h:8443/", true),
            ("https://h/", "http://h:443/", true),
            ("https://h/", "https://h:8443/", false),
            ("https://h/", "https://o/", false),
            ("https://h/", "ftp://h/", false),
        ] {
            assert_eq!(same_server(&url(one), &url(other)), same, "{one} {other}");
        }
    }
}
