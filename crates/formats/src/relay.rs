//! Addresses of data through relays: `https://RELAY/relay/` followed by the whole address that the
//! relay asks, which may be another relay's. So a route is just another URL, usable by any HTTP
//! client; each relay removes its own part.

use url::Url;

use crate::depot::letters;

/// The path under which a relay forwards requests.
pub const PREFIX: &str = "/relay/";
/// Most hops of a route from the receiver to the source; longer ones are refused …
pub const HOPS_MAX: usize = 8;
/// … and so are those with more relays than this.
pub const RELAYS_MAX: usize = HOPS_MAX - 1;

/// Why something is not an address that a relay could ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Not a whole HTTP address.
    #[error("{PREFIX} must be followed by a whole address (as in {PREFIX}https://host/path)")]
    NotWhole,
    /// It cannot be parsed.
    #[error("the address behind {PREFIX} cannot be read: {0}")]
    Unreadable(url::ParseError),
    /// It contains a user or a password, which every log on the way would show.
    #[error("the address behind {PREFIX} holds a user or a password")]
    Credentials,
    /// Too many relays.
    #[error("the address leads through {0} relays, at most {RELAYS_MAX} are passed")]
    TooLong(usize),
}

/// Returns the address at which `relay` forwards `upstream`. Drops paths and queries of the relay's
/// own address, which mean nothing, and credentials and fragments of both.
pub fn through(relay: &Url, upstream: &Url) -> Url {
    let mut address = relay.clone();
    let mut upstream = upstream.clone();
    for url in [&mut address, &mut upstream] {
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
    }
    address.set_query(None);
    // Not with `set_path`, which would encode the address again.
    let base = address.origin().ascii_serialization();
    Url::parse(&format!("{base}{PREFIX}{upstream}")).unwrap_or(address)
}

/// Returns the upstream address in a request's target, as it stands in the request line; `None` if
/// the request is not to be forwarded.
pub fn upstream(target: &str) -> Option<Result<Url, UpstreamError>> {
    let rest = target.strip_prefix(PREFIX)?;
    if rest.is_empty() || rest.starts_with('?') {
        return None;
    }
    Some(read(rest))
}

fn read(text: &str) -> Result<Url, UpstreamError> {
    let (scheme, rest) = text.split_once(":/").ok_or(UpstreamError::NotWhole)?;
    let scheme = scheme.to_ascii_lowercase();
    // Some servers and clients merge two slashes.
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    let is_http = scheme == "http" || scheme == "https";
    if !is_http || rest.is_empty() || rest.starts_with(['/', '?', '#']) {
        return Err(UpstreamError::NotWhole);
    }
    let mut url = Url::parse(&format!("{scheme}://{rest}")).map_err(UpstreamError::Unreadable)?;
    // Within another address these would be steps of its path and lead elsewhere.
    if matches!(url.host_str(), Some("." | "..")) {
        return Err(UpstreamError::NotWhole);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UpstreamError::Credentials);
    }
    url.set_fragment(None);
    match relays(&url) {
        passed if passed >= RELAYS_MAX => Err(UpstreamError::TooLong(passed + 1)),
        _ => Ok(url),
    }
}

/// Returns how many relays `url` leads through.
pub fn relays(url: &Url) -> usize {
    route(url).0.len()
}

/// Returns the relays that `url` leads through, the nearest first, each as scheme, host and port
/// only, and the address asked of the last one.
pub fn route(url: &Url) -> (Vec<Url>, Url) {
    let mut passed = Vec::new();
    let mut url = url.clone();
    loop {
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let Some(rest) = target.strip_prefix(PREFIX) else { return (passed, url) };
        let Some((scheme, rest)) = rest.split_once(":/") else { return (passed, url) };
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        let next = Url::parse(&format!("{scheme}://{rest}"));
        let Ok(next) = next.map_err(drop).and_then(|next| is_http(&next).then_some(next).ok_or(()))
        else {
            return (passed, url);
        };
        let mut relay = url;
        relay.set_path("/");
        relay.set_query(None);
        passed.push(relay);
        url = next;
    }
}

fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.host().is_some()
}

/// Returns an address, or the target of a request, in a form fit for logs: without queries, which
/// grant access if signed, and without users and passwords, also in nested addresses and in any
/// spelling (`%3f`, `%40`). If a password may follow, only the understood part before it is shown.
///
/// ```
/// use swath_formats::relay::shown;
/// assert_eq!(shown("/relay/https://h/f@2?X-Sig=1&by=me@h"), "/relay/https://h/f@2?");
/// assert_eq!(shown("/relay/https://user:password@h/f"), "/relay/...");
/// ```
pub fn shown(target: &str) -> String {
    let asks = letters(target).find(|(_, letter)| matches!(letter, '?' | '#'));
    let bare = asks.map_or(target, |(at, _)| &target[..at]);
    let whole = || format!("{bare}{}", if asks.is_some() { "?" } else { "" });
    // A password may stand before it.
    if letters(target).all(|(_, letter)| letter != '@') {
        return whole();
    }
    let mut understood = 0;
    loop {
        if bare[understood..].starts_with(PREFIX) {
            understood += PREFIX.len();
        }
        let is_open = |url: &Url| url.username().is_empty() && url.password().is_none();
        let read = Url::parse(&target[understood..]).ok().filter(is_http).filter(is_open);
        let begins = read.map(|url| format!("{}://", url.scheme())).unwrap_or_default();
        let Some(rest) = bare[understood..].strip_prefix(&begins).filter(|_| !begins.is_empty())
        else {
            break;
        };
        understood += begins.len() + rest.find(['/', '\\']).unwrap_or(rest.len());
        if !bare[understood..].starts_with(PREFIX) {
            break;
        }
    }
    let path: String = letters(&bare[understood..]).map(|(_, letter)| letter).collect();
    let has_address = path.contains("//") || path.contains(":/");
    let has_login = path.contains('@') && path.contains(':');
    if has_address || has_login || !(path.is_empty() || path.starts_with('/')) {
        return format!("{}...", &bare[..understood]);
    }
    whole()
}

/// Returns host and port of `url`, which name a site: `data.example.org:443`.
pub fn site(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn target(url: &Url) -> String {
        url.as_str()[url.origin().ascii_serialization().len()..].to_owned()
    }

    #[test]
    fn each_relay_takes_its_own_part_off() {
        let origin = url("https://data.example.org/a%2Fb/c%20d?x=1&y=%2F#frag");
        let (near, far) = (url("https://r1:8471"), url("http://user:pw@[2001:db8::2]/x?y#z"));
        let whole = through(&near, &through(&far, &origin));
        assert_eq!(
            whole.as_str(),
            "https://r1:8471/relay/http://[2001:db8::2]/relay/https://data.example.org/a%2Fb/c%20d?x=1&y=%2F"
        );
        let second = upstream(&target(&whole)).unwrap().unwrap();
        let third = upstream(&target(&second)).unwrap().unwrap();
        assert_eq!(third.as_str(), "https://data.example.org/a%2Fb/c%20d?x=1&y=%2F");
        assert!(upstream(&target(&third)).is_none());
        let (passed, end) = route(&whole);
        let passed: Vec<&str> = passed.iter().map(Url::as_str).collect();
        assert_eq!(passed, ["https://r1:8471/", "http://[2001:db8::2]/"]);
        assert_eq!(end, third);
        assert_eq!(site(&end).as_deref(), Some("data.example.org:443"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        assert!(upstream("/relay/").is_none() && upstream("/relay/?to=a").is_none());
        assert!(upstream("/relays/https://a/").is_none() && upstream("/").is_none());
        for (text, error) in [
            ("/relay/data.example.org/f", UpstreamError::NotWhole),
            ("/relay/ftp://host/f", UpstreamError::NotWhole),
            ("/relay/https:///f", UpstreamError::NotWhole),
            ("/relay/https://", UpstreamError::NotWhole),
            ("/relay/https://./", UpstreamError::NotWhole),
            ("/relay/https://../other.example.org/f", UpstreamError::NotWhole),
            ("/relay/https://%2e%2E/other.example.org/f", UpstreamError::NotWhole),
            ("/relay/https://u@host/f", UpstreamError::Credentials),
            ("/relay/https://u:p@host/f", UpstreamError::Credentials),
        ] {
            assert_eq!(upstream(text), Some(Err(error)), "{text}");
        }
        assert!(matches!(upstream("/relay/https://a b/"), Some(Err(UpstreamError::Unreadable(_)))));
        let merged = upstream("/relay/HTTPS:/host/f?q").unwrap().unwrap();
        assert_eq!(merged.as_str(), "https://host/f?q");
    }

    #[test]
    fn long_routes_are_refused() {
        let relay = url("http://r/");
        let mut whole = url("http://o/f");
        for passed in 0..RELAYS_MAX {
            assert_eq!(relays(&whole), passed);
            assert!(upstream(&target(&through(&relay, &whole))).unwrap().is_ok(), "{passed}");
            whole = through(&relay, &whole);
        }
        let error = upstream(&target(&through(&relay, &whole))).unwrap();
        assert_eq!(error, Err(UpstreamError::TooLong(RELAYS_MAX + 1)));
    }

    #[test]
    fn a_log_shows_where_and_nothing_that_opens_it() {
        for (target, expected) in [
            ("/relay/http://h/f?X-Sig=s", "/relay/http://h/f?"),
            ("/relay/http://h/f%3fX-Sig=s", "/relay/http://h/f?"),
            ("/relay/http://h/f%253FX-Sig=s", "/relay/http://h/f?"),
            ("//relay/http://h/f?X-Sig=s", "//relay/http://h/f?"),
            ("/Relay/http://h/f?X-Sig=s", "/Relay/http://h/f?"),
            ("/relay?to=http://u:s@h/f", "/relay?"),
            ("/relay/?u=http://h/f?X-Sig=s", "/relay/?"),
            ("http://r/relay/http://h/x?X-Sig=s", "http://r/relay/http://h/x?"),
            ("/relay/http://h:81/a@b/c@2:x/f", "/relay/http://h:81..."),
            ("/relay/http://h:81/a@b/f?c=me@h", "/relay/http://h:81/a@b/f?"),
            (
                "/relay/http://r/relay/https://[::1]:2/f@1",
                "/relay/http://r/relay/https://[::1]:2/f@1",
            ),
            ("/relay/http://r/relay/https://u:s@h/f", "/relay/http://r/relay/..."),
            ("/relay/http://r//relay/https://u:s@h/f", "/relay/http://r..."),
            ("http://u:s@h/f", "..."),
            ("http://u:s%40h/f", "..."),
            ("http://u:a?s@h/f", "..."),
            ("/relay/http:/u:s@h/f", "/relay/..."),
            ("/relay/u:s@h/f", "/relay/..."),
            ("//u:s@h/f", "..."),
            ("u:s@h:443", "..."),
            ("h:443", "h:443"),
            ("/f@2x.png", "/f@2x.png"),
            ("*", "*"),
        ] {
            assert_eq!(shown(target), expected, "{target}");
        }
    }

    proptest! {
        #[test]
        fn no_secret_is_shown(
            front in "(/{0,2}(relay|Relay)/{1,2}(https?:/{1,2}r(:1)?/relay/{1,2}){0,2})?",
            host in "[a-z.]{1,4}(:[0-9]{1,3})?(/[a-z@:%]{0,5}){0,2}",
            noise in "[ -~&&[^/?#\\\\]]{0,4}",
            is_query in proptest::bool::ANY,
        ) {
            let address = match is_query {
                true => format!("{front}http://{host}?{noise}SECRET{noise}"),
                false => format!("{front}http://u{noise}:{noise}SECRET{noise}@{host}"),
            };
            prop_assert!(!shown(&address).contains("SECRET"), "{address}: {}", shown(&address));
        }

        #[test]
        fn no_target_can_do_harm(text in "\\PC{0,80}") {
            let _ = upstream(&text);
            let _ = upstream(&format!("{PREFIX}{text}"));
            if let Some(Ok(read)) = upstream(&format!("{PREFIX}http://h/{text}")) {
                let again = upstream(&target(&through(&Url::parse("http://r/").unwrap(), &read)));
                prop_assert_eq!(again, Some(Ok(read)));
            }
        }
    }
}
