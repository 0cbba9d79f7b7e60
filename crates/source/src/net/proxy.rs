//! Proxies: which requests go through one, and which one.
//!
//! The variables are those of curl: `http_proxy` (lower case only, since `HTTP_PROXY` can be
//! set by a request header in CGI programs), `https_proxy`, `all_proxy` and `no_proxy`.

use std::net::IpAddr;

use url::{Host, Url};

use crate::target::Origin;

/// The proxies to use.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    exceptions: Vec<Exception>,
}

/// A proxy that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proxy in {variable} cannot be used: {reason}")]
pub struct ProxyError {
    /// The variable.
    pub variable: String,
    /// What is wrong with its value, which is not shown.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    Everything,
    /// This domain and all within it.
    Domain(String),
    /// Addresses whose first `bits` are those of `base`.
    Network {
        base: IpAddr,
        bits: u32,
    },
}

impl Proxies {
    /// As the environment says; `env` looks up a variable.
    ///
    /// # Errors
    /// [`ProxyError`] if one is set that cannot be used: where a proxy is the rule, contacting
    /// servers directly would break it.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Proxies, ProxyError> {
        let first = |names: &[&str]| {
            names
                .iter()
                .find_map(|&name| Some((name, env(name).filter(|value| !value.trim().is_empty())?)))
                .map(|(name, value)| address(name, &value))
                .transpose()
        };
        let exceptions = env("no_proxy").or_else(|| env("NO_PROXY")).unwrap_or_default();
        Ok(Proxies {
            http: first(&["http_proxy", "all_proxy", "ALL_PROXY"])?,
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])?,
            exceptions: exceptions.split([',', ' ']).filter_map(exception).collect(),
        })
    }

    /// Each proxy, and whether it is the one for plain http.
    pub(super) fn all(&self) -> impl Iterator<Item = (Url, bool)> {
        [(self.http.clone(), true), (self.https.clone(), false)]
            .into_iter()
            .filter_map(|(url, is_http)| Some((url?, is_http)))
    }

    /// The proxy for requests to `origin`.
    pub(crate) fn find(&self, origin: &Origin) -> Option<&Url> {
        let proxy = if origin.tls { &self.https } else { &self.http }.as_ref()?;
        let is_exception = self.exceptions.iter().any(|exception| exception.covers(&origin.host));
        (!is_exception).then_some(proxy)
    }
}

impl std::fmt::Debug for Proxies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |url: &Option<Url>| url.as_ref().map(crate::source::display_name);
        write!(f, "Proxies(http: {:?}, https: {:?})", shown(&self.http), shown(&self.https))
    }
}

impl Exception {
    fn covers(&self, host: &Host<String>) -> bool {
        let address = match host {
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
            Host::Domain(_) => None,
        };
        match (self, host) {
            (Exception::Everything, _) => true,
            (Exception::Domain(domain), Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                name.strip_suffix(domain.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Exception::Network { base, bits }, _) => {
                address.is_some_and(|address| shares(address, *base, *bits))
            }
            (Exception::Domain(_), _) => false,
        }
    }
}

fn address(variable: &str, text: &str) -> Result<Url, ProxyError> {
    let text = text.trim();
    let url =
        if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
    // The text itself is not shown: it may hold a password.
    let error = |reason: String| ProxyError { variable: variable.to_owned(), reason };
    let url = url.map_err(|reason| error(format!("it is no address ({reason})")))?;
    if !SCHEMES.contains(&url.scheme()) {
        let known = SCHEMES.join(", ");
        return Err(error(format!("its scheme is not supported ({known} are)")));
    }
    if url.has_host() { Ok(url) } else { Err(error("it names no host".to_owned())) }
}

/// What a proxy may speak.
const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

fn exception(text: &str) -> Option<Exception> {
    let text = text.trim();
    if text == "*" {
        return Some(Exception::Everything);
    }
    if let Some((base, bits)) = text.split_once('/') {
        let (base, bits) = (base.parse().ok()?, bits.parse().ok()?);
        return Some(Exception::Network { base, bits });
    }
    if let Ok(base) = text.trim_matches(['[', ']']).parse() {
        return Some(Exception::Network { base, bits: 128 });
    }
    let domain = text.trim_start_matches('*').trim_matches('.').to_ascii_lowercase();
    let domain = domain.rsplit_once(':').map_or(domain.as_str(), |(domain, _)| domain);
    (!domain.is_empty()).then(|| Exception::Domain(domain.to_owned()))
}

fn shares(address: IpAddr, base: IpAddr, bits: u32) -> bool {
    match (address, base) {
        (IpAddr::V4(address), IpAddr::V4(base)) => {
            (address.to_bits() ^ base.to_bits()).leading_zeros() >= bits.min(32)
        }
        (IpAddr::V6(address), IpAddr::V6(base)) => {
            (address.to_bits() ^ base.to_bits()).leading_zeros() >= bits.min(128)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(pairs: &[(&str, &str)]) -> Proxies {
        read(pairs).unwrap()
    }

    fn read(pairs: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        Proxies::from_env(|name| {
            pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_not_passed_by() {
        for value in ["ht!tp://x y", "http://", "ftp://proxy:21", "me:secret@:80:90"] {
            let error = read(&[("all_proxy", value)]).unwrap_err();
            assert_eq!(error.variable, "all_proxy");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(read(&[("http_proxy", " "), ("all_proxy", "socks5h://p:1")]).is_ok());
    }

    fn proxy(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.find(&Origin::of(&Url::parse(url).unwrap()).unwrap()).map(Url::to_string)
    }

    #[test]
    fn variables_mean_what_they_mean_to_curl() {
        let some = proxies(&[
            ("http_proxy", "proxy:3128"),
            ("ALL_PROXY", "socks5://sock:1080"),
            ("HTTP_PROXY", "http://ignored"),
            ("no_proxy", "example.org, .inner.net,10.0.0.0/8,::1,127.0.0.1"),
        ]);
        assert_eq!(proxy(&some, "http://a/").as_deref(), Some("http://proxy:3128/"));
        assert_eq!(proxy(&some, "https://a/").as_deref(), Some("socks5://sock:1080"));
        for direct in [
            "http://example.org/",
            "http://a.b.example.org:81/",
            "https://x.inner.net/",
            "http://10.9.8.7/",
            "http://[::1]/",
            "http://127.0.0.1:99/",
        ] {
            assert_eq!(proxy(&some, direct), None, "{direct}");
        }
        for through in
            ["http://notexample.org/", "http://11.0.0.1/", "http://127.0.0.2/", "http://[::2]/"]
        {
            assert!(proxy(&some, through).is_some(), "{through}");
        }
        assert_eq!(proxy(&proxies(&[("all_proxy", "p"), ("no_proxy", "*")]), "http://a/"), None);
        assert_eq!(proxy(&proxies(&[]), "http://a/"), None);
    }
}
