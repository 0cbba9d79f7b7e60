//! Where redirects may lead.

use url::Url;

use crate::cookies::Cookies;
use crate::error::LaneError;
use crate::http::head::shortened;
use crate::shown::display_name;

/// More redirects than this for one request are a loop.
const REDIRECTS_LIMIT: usize = 10;

/// Where a request has been, and the cookies that it showed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    pub url: Url,
    pub cookies: String,
}

/// Returns the address that `location`, sent by the server at `from`, leads to. `visited` collects where
/// this request has been; an address in it is visited again only with other cookies than before,
/// as after a login.
pub(crate) fn follow(
    from: Visit,
    location: &str,
    visited: &mut Vec<Visit>,
    cookies: &Cookies,
) -> Result<Url, LaneError> {
    let invalid = |reason: String| LaneError::RedirectInvalid { reason };
    let mut url = from
        .url
        .join(location.trim())
        .map_err(|error| invalid(format!("{:?} is no address ({error})", shortened(location))))?;
    url.set_fragment(None);
    // Credentials come from the user, never from a server.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    match (from.url.scheme(), url.scheme()) {
        (_, "https") | ("http", "http") => {}
        ("https", "http") => return Err(LaneError::RedirectInsecure { to: display_name(&url) }),
        (_, other) => {
            return Err(invalid(format!("the scheme {:?} is not supported", shortened(other))));
        }
    }
    if !url.has_host() {
        return Err(invalid(format!("{:?} names no host", shortened(location))));
    }
    visited.push(from);
    let next = Visit { cookies: cookies.shown_to(&url), url: url.clone() };
    if visited.len() > REDIRECTS_LIMIT || visited.contains(&next) {
        return Err(LaneError::RedirectLoop { last: display_name(&url) });
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &str) -> Result<String, LaneError> {
        step(&Url::parse(from).unwrap(), location, &mut Vec::new()).map(String::from)
    }

    fn step(from: &Url, location: &str, visited: &mut Vec<Visit>) -> Result<Url, LaneError> {
        let from = Visit { url: from.clone(), cookies: String::new() };
        follow(from, location, visited, &Cookies::default())
    }

    #[test]
    fn redirects_are_resolved_and_judged() {
        assert_eq!(to("http://a/x/y", "../z?q#f").unwrap(), "http://a/z?q");
        assert_eq!(to("http://a/x", "https://b/y").unwrap(), "https://b/y");
        assert_eq!(to("https://a/x", "//b/y").unwrap(), "https://b/y");
        assert_eq!(to("http://a/x", "http://me:secret@b/y").unwrap(), "http://b/y");
        assert!(matches!(to("https://a/x", "http://a/x"), Err(LaneError::RedirectInsecure { .. })));
        for bad in ["file:///etc/passwd", "ftp://b/y", "http://", "javascript:alert(1)"] {
            assert!(
                matches!(to("http://a/x", bad), Err(LaneError::RedirectInvalid { .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn loops_and_endless_chains_end() {
        let mut visited = Vec::new();
        let a = Url::parse("http://h/a").unwrap();
        let b = step(&a, "/b", &mut visited).unwrap();
        assert!(matches!(step(&b, "/a", &mut visited), Err(LaneError::RedirectLoop { .. })));
        let mut visited = Vec::new();
        let mut at = a;
        let mut steps = 0;
        while let Ok(next) = step(&at, &format!("/{steps}x"), &mut visited) {
            at = next;
            steps += 1;
        }
        assert_eq!(steps, REDIRECTS_LIMIT);
    }
}
