//! Relays and routes, from the configuration file and the command line.

use std::path::PathBuf;

use swath_formats::relay::site;
use swath_model::digest::Digest;
use url::Url;

use super::Config;
use super::error::{ConfigProblem, RelayFault};
use crate::net::shown_text;

/// A relay for transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// Scheme, host and port, with the path `/`; optionally a user and a password.
    pub url: Url,
    /// The file with its token.
    pub token_file: Option<PathBuf>,
    /// SHA-256 of its certificate.
    pub fingerprint: Option<Digest>,
}

impl Relay {
    /// Returns its site: `host:port`.
    pub fn site(&self) -> String {
        site(&self.url).unwrap_or_default()
    }

    /// Whether its address has a user or a password.
    pub fn has_login(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    /// Adds the configuration file's fingerprint, and its token unless the address has a login. Fails for
    /// another scheme, which would send a token unencrypted.
    pub fn opened_by(&self, file: &[Relay]) -> Result<Relay, ConfigProblem> {
        let Some(own) = file.iter().find(|own| own.site() == self.site()) else {
            return Ok(self.clone());
        };
        if own.url.scheme() != self.url.scheme() {
            let [typed, known] = [self, own].map(|relay| relay.url.scheme().to_owned());
            return Err(ConfigProblem::Scheme { site: self.site(), typed, known });
        }
        if self.has_login() {
            return Ok(Relay { fingerprint: own.fingerprint, ..self.clone() });
        }
        Ok(own.clone())
    }
}

/// How the route of a transfer is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RouteOption {
    /// The best route, or several at once.
    #[default]
    Auto,
    /// Without relays.
    Direct,
    /// The widest route.
    Widest,
    /// Several at once.
    Multi,
    /// These relays, as written, from this machine to the source.
    Over(Vec<String>),
}

impl Config {
    /// Returns the positions of the route's relays, from this machine to the source.
    pub fn relays_of_the_route(&self) -> Result<Vec<usize>, ConfigProblem> {
        let Some(RouteOption::Over(names)) = &self.route else { return Ok(Vec::new()) };
        names.iter().map(|name| self.named(name)).collect()
    }

    /// Finds a relay by its address, site, host or the first label of its host.
    fn named(&self, name: &str) -> Result<usize, ConfigProblem> {
        let whole = |relay: &Relay| {
            relay.site().eq_ignore_ascii_case(name)
                || self::relay(name).is_ok_and(|named| named.site() == relay.site())
        };
        let host = |relay: &Relay| {
            relay.url.host_str().is_some_and(|host| host.eq_ignore_ascii_case(name))
        };
        let label = |relay: &Relay| {
            let first = relay.url.domain().and_then(|host| host.split('.').next());
            first.is_some_and(|first| first.eq_ignore_ascii_case(name))
        };
        let ways: [&dyn Fn(&Relay) -> bool; 3] = [&whole, &host, &label];
        for way in ways {
            let places = 0..self.relays.len();
            let found: Vec<usize> = places.filter(|at| way(&self.relays[*at])).collect();
            match found[..] {
                [] => {}
                [at] => return Ok(at),
                _ => {
                    let known = found.iter().map(|at| self.relays[*at].site()).collect();
                    return Err(ConfigProblem::Ambiguous { name: name.to_owned(), known });
                }
            }
        }
        let known = self.relays.iter().map(|relay| relay.site()).collect();
        Err(ConfigProblem::Unknown { name: name.to_owned(), known })
    }
}

/// Checks that no relay is listed twice.
pub(super) fn distinct(relays: &[Relay]) -> Result<(), ConfigProblem> {
    for (at, relay) in relays.iter().enumerate() {
        if relays[..at].iter().any(|other| other.site() == relay.site()) {
            return Err(ConfigProblem::Twice(relay.site()));
        }
    }
    Ok(())
}

/// Reads the address of a relay: http or https, a host, an optional port, nothing else.
pub fn relay(text: &str) -> Result<Relay, ConfigProblem> {
    let wrong = |fault| ConfigProblem::Relay { address: shown_text(text), fault };
    let is_bare = !text.contains("://");
    let url = match Url::parse(text) {
        // In "r1.example:443" the host looks like a scheme.
        Ok(_) if is_bare => {
            return Err(wrong(RelayFault::NoUrl("it has no http:// or https://".into())));
        }
        Ok(url) => url,
        Err(url::ParseError::RelativeUrlWithoutBase) => {
            return Err(wrong(RelayFault::NoUrl("it has no http:// or https://".into())));
        }
        Err(error) => return Err(wrong(RelayFault::NoUrl(error.to_string()))),
    };
    if !["http", "https"].contains(&url.scheme()) {
        return Err(wrong(RelayFault::Scheme(url.scheme().to_owned())));
    }
    if url.path() != "/" {
        return Err(wrong(RelayFault::Path(url.path().to_owned())));
    }
    for (part, sign) in [(url.query(), '?'), (url.fragment(), '#')] {
        if part.is_some() {
            return Err(wrong(RelayFault::Behind(sign)));
        }
    }
    Ok(Relay { url, token_file: None, fingerprint: None })
}

/// Reads a route.
pub fn route(text: &str) -> Result<RouteOption, ConfigProblem> {
    match text {
        "auto" => return Ok(RouteOption::Auto),
        "direct" => return Ok(RouteOption::Direct),
        "widest" => return Ok(RouteOption::Widest),
        "multi" => return Ok(RouteOption::Multi),
        _ => {}
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    let is_odd = |name: &String| name.is_empty() || name.contains(char::is_whitespace);
    if names.iter().any(is_odd) {
        return Err(ConfigProblem::Route(text.to_owned()));
    }
    let is_twice = |at: &usize| names[..*at].contains(&names[*at]);
    if let Some(at) = (0..names.len()).find(is_twice) {
        return Err(ConfigProblem::Again(shown_text(&names[at])));
    }
    if names.len() > RELAYS_MAX {
        return Err(ConfigProblem::Long(names.len()));
    }
    Ok(RouteOption::Over(names))
}

/// Relays refuse more than eight hops.
const RELAYS_MAX: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relays_address_is_a_scheme_and_a_host() {
        for (text, site) in [
            ("https://r1.example", "r1.example:443"),
            ("https://R1.example/", "r1.example:443"),
            ("http://10.0.0.1:8080", "10.0.0.1:8080"),
            ("https://[::1]:8443/", "[::1]:8443"),
        ] {
            assert_eq!(relay(text).unwrap().site(), site);
        }
        for (text, said) in [
            ("r1.example", "no http:// or https://"),
            ("r1.example:443", "no http:// or https://"),
            ("ftp://r1.example", "not ftp"),
            ("https://user:secret@r1.example/relay", "a path (/relay)"),
            ("https://r1.example/?x", "after '?'"),
            ("https://r1.example/#x", "after '#'"),
            ("https://", "empty host"),
            ("https://r1.example:99999", "invalid port"),
        ] {
            let error = relay(text).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn routes_are_words_or_relays_in_order() {
        let over = |names: &[&str]| {
            Ok(RouteOption::Over(names.iter().map(|name| (*name).to_owned()).collect()))
        };
        assert_eq!(route("auto"), Ok(RouteOption::Auto));
        assert_eq!(route("r1, r2"), over(&["r1", "r2"]));
        assert_eq!(route("a,b,c,d,e,f,g,h"), Err(ConfigProblem::Long(8)));
        // A relay that was named twice was said to be no route.
        assert_eq!(route("r1,r2,r1"), Err(ConfigProblem::Again("r1".to_owned())));
        for text in ["", "r1,", "r1,,r2", "r 1"] {
            assert_eq!(route(text), Err(ConfigProblem::Route(text.to_owned())), "{text}");
        }
    }
}
