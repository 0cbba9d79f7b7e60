//! Cookies within the redirects of one transfer.
//!
//! Data portals log their users in by a redirect that sets a cookie and leads back. So cookies are
//! kept in memory for as long as a source is, and shown to the very server that set them (same host
//! and port, or the same host by https), whatever `Domain` it names. They are never written anywhere.

use std::time::{SystemTime, UNIX_EPOCH};

use swath_formats::http_date;
use url::Url;

use crate::http::head::Head;
use crate::http::request::is_field_safe;
use crate::target::Origin;

/// The cookies that servers have set.
#[derive(Debug, Default)]
pub(crate) struct Cookies(Vec<Cookie>);

struct Cookie {
    origin: Origin,
    path: String,
    secure: bool,
    name: String,
    value: String,
}

impl std::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cookie({}, …)", self.origin)
    }
}

impl Cookies {
    /// Takes in what the server at `from` sets.
    pub fn take(&mut self, from: &Url, head: &Head) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        for field in head.fields("set-cookie") {
            self.set(from, field, now_s);
        }
    }

    fn set(&mut self, from: &Url, field: &str, now_s: u64) {
        let Some(origin) = Origin::of(from) else { return };
        let mut parts = field.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
            return;
        };
        let (name, value) = (name.trim(), value.trim());
        let is_sound = !name.is_empty()
            && name.len() + value.len() <= COOKIE_BYTES_MAX
            && is_field_safe("cookie", value)
            && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        if !is_sound {
            return;
        }
        let (mut path, mut secure, mut ends_s) = (default_path(from), false, None);
        let mut age_s = None;
        for part in parts {
            let (attribute, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim();
            match attribute.trim().to_ascii_lowercase().as_str() {
                "path" if value.starts_with('/') => path = value.to_owned(),
                "secure" => secure = true,
                "max-age" => age_s = value.parse::<i64>().ok(),
                "expires" => ends_s = http_date::parse(value),
                _ => {}
            }
        }
        let is_over = match (age_s, ends_s) {
            (Some(age_s), _) => age_s <= 0,
            (None, Some(ends_s)) => ends_s <= now_s,
            (None, None) => false,
        };
        // What is set without encryption cannot claim to have been set with it.
        if secure && !origin.tls {
            return;
        }
        self.0.retain(|old| old.origin != origin || old.name != name || old.path != path);
        if !is_over && self.0.len() < COOKIES_MAX {
            let (name, value) = (name.to_owned(), value.to_owned());
            self.0.push(Cookie { origin, path, secure, name, value });
        }
    }

    /// What a request for `url` shows, as the value of `Cookie`; empty without any.
    pub fn shown_to(&self, url: &Url) -> String {
        let Some(origin) = Origin::of(url) else { return String::new() };
        let mut fitting: Vec<&Cookie> =
            self.0.iter().filter(|cookie| cookie.is_for(&origin, url.path())).collect();
        // The more telling path first (RFC 6265, section 5.4).
        fitting.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs: Vec<String> =
            fitting.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
        pairs.join("; ")
    }
}

impl Cookie {
    fn is_for(&self, origin: &Origin, path: &str) -> bool {
        let is_upgrade =
            origin.tls && !self.origin.tls && (self.origin.port, origin.port) == (80, 443);
        let is_same = self.origin == *origin || (is_upgrade && self.origin.host == origin.host);
        is_same && (!self.secure || origin.tls) && is_below(path, &self.path)
    }
}

/// RFC 6265, section 5.1.4.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || above.ends_with('/') || rest.starts_with('/'))
}

/// Returns the folder that the address lies in (RFC 6265, section 5.1.4).
fn default_path(url: &Url) -> String {
    match url.path().rsplit_once('/') {
        Some((folder, _)) if !folder.is_empty() => folder.to_owned(),
        _ => "/".to_owned(),
    }
}

/// More than any login sets.
const COOKIES_MAX: usize = 50;
/// As browsers have it.
const COOKIE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_cookie_is_shown_where_it_was_set_and_nowhere_else() {
        let mut cookies = Cookies::default();
        let from = url("https://a.example/login/in");
        for field in [
            "sid=1; Path=/; Secure; HttpOnly",
            "here=2",
            "wide=3; Domain=.example; Path=/data",
            "=x",
            "bad\u{1}=y",
            "none",
        ] {
            cookies.set(&from, field, 1_000);
        }
        let shown = |to: &str| cookies.shown_to(&url(to));
        assert_eq!(shown("https://a.example/f"), "sid=1");
        assert_eq!(shown("https://a.example/login/f"), "here=2; sid=1");
        assert_eq!(shown("https://a.example/database"), "sid=1");
        assert_eq!(shown("https://a.example/data/f"), "wide=3; sid=1");
        for other in ["http://a.example/f", "https://b.example/data/f", "https://a.example:8443/f"]
        {
            assert_eq!(shown(other), "", "{other}");
        }
        assert!(!format!("{cookies:?}").contains("sid=1"));
    }

    #[test]
    fn a_cookie_is_replaced_and_taken_back() {
        let mut cookies = Cookies::default();
        let at = url("http://a/x");
        cookies.set(&at, "sid=1", 1_000);
        cookies.set(&at, "sid=2", 1_000);
        cookies.set(&at, "spy=1; Secure", 1_000);
        assert_eq!(cookies.shown_to(&at), "sid=2");
        assert_eq!(cookies.shown_to(&url("https://a/x")), "sid=2");
        cookies.set(&at, "sid=; Expires=Thu, 01 Jan 1970 00:00:00 GMT", 1_000);
        assert_eq!(cookies.shown_to(&at), "");
        for number in 0..1_000 {
            cookies.set(&at, &format!("c{number}=1"), 1_000);
        }
        assert_eq!(cookies.0.len(), COOKIES_MAX);
    }
}
