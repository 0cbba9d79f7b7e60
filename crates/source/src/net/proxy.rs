//! Proxies: which requests go through one, and which one.
//!
//! The variables are those of curl: `http_proxy` (lower case only, since `HTTP_PROXY` can be
//! set by a request header in CGI programs), `https_proxy`, `all_proxy` and `no_proxy`.

use std::net::IpAddr;

use ipnet::IpNet;
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
    /// What is wrong with its value.
    pub reason: BadProxy,
}

/// What is wrong with a proxy's address, which is not shown: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProxy {
    /// It is none.
    #[error("it is no address ({0})")]
    NoAddress(url::ParseError),
    /// Of a kind that is not known here.
    #[error("its scheme is not supported (http, https, socks4, socks4a, socks5 and socks5h are)")]
    Scheme,
    /// Without a host.
    #[error("it names no host")]
    NoHost,
}

/// Hosts that are contacted directly, on one port of theirs or on all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exception {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Everything,
    /// This domain and all within it.
    Domain(String),
    Network(IpNet),
}

impl Proxies {
    /// Returns whether there is one, if only for some servers.
    pub(super) fn is_any(&self) -> bool {
        self.http.is_some() || self.https.is_some()
    }

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
                .map(|(name, value)| {
                    let error = |reason| ProxyError { variable: name.to_owned(), reason };
                    proxy_address(&value).map_err(error)
                })
                .transpose()
        };
        let exceptions = env("no_proxy").or_else(|| env("NO_PROXY")).unwrap_or_default();
        Ok(Proxies {
            http: first(&["http_proxy", "all_proxy", "ALL_PROXY"])?,
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])?,
            exceptions: exceptions
                .split([',', ';', ' ', '\t', '\n'])
                .filter_map(exception)
                .collect(),
        })
    }

    /// Returns the proxy for requests to `origin`.
    pub(crate) fn find(&self, origin: &Origin) -> Option<&Url> {
        let proxy = if origin.tls { &self.https } else { &self.http }.as_ref()?;
        let is_exception = self.exceptions.iter().any(|exception| exception.covers(origin));
        (!is_exception).then_some(proxy)
    }
}

impl std::fmt::Debug for Proxies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |url: &Option<Url>| url.as_ref().map(crate::shown::display_name);
        write!(f, "Proxies(http: {:?}, https: {:?})", shown(&self.http), shown(&self.https))
    }
}

impl Exception {
    fn covers(&self, origin: &Origin) -> bool {
        self.port.is_none_or(|port| port == origin.port) && self.hosts.cover(&origin.host)
    }
}

impl Hosts {
    fn cover(&self, host: &Host<String>) -> bool {
        let address = match host {
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            // An IPv4 address may be written as one of IPv6.
            Host::Ipv6(address) => Some(IpAddr::V6(*address).to_canonical()),
            Host::Domain(_) => None,
        };
        match (self, host) {
            (Hosts::Everything, _) => true,
            (Hosts::Domain(domain), Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                name.strip_suffix(domain.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Hosts::Network(block), _) => address.is_some_and(|address| block.contains(&address)),
            (Hosts::Domain(_), _) => false,
        }
    }
}

/// The address of a proxy, as curl takes it: without a scheme it is one of HTTP.
pub(super) fn proxy_address(text: &str) -> Result<Url, BadProxy> {
    let text = text.trim();
    let url =
        if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
    let url = url.map_err(BadProxy::NoAddress)?;
    if !SCHEMES.contains(&url.scheme()) {
        return Err(BadProxy::Scheme);
    }
    if url.has_host() { Ok(url) } else { Err(BadProxy::NoHost) }
}

/// What a proxy may speak.
const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

/// `example.org`, `.example.org`, `*.example.org`, an address, or a block of addresses, each perhaps
/// with a port (`example.org:8080`, `[::1]:8080`); addresses of IPv6 with or without brackets, their
/// zones do not count.
fn exception(text: &str) -> Option<Exception> {
    let text = text.trim();
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => match rest.strip_prefix(':') {
            Some(port) => (host.to_owned(), Some(port)),
            None => (format!("{host}{rest}"), None),
        },
        // More than one colon is an address of IPv6.
        None => match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host.to_owned(), Some(port)),
            _ => (text.to_owned(), None),
        },
    };
    let port = port.map(str::parse).transpose().ok()?;
    let address = |text: &str| {
        let alone = text.split('%').next().unwrap_or_default();
        alone.parse::<IpAddr>().ok().map(|address| address.to_canonical())
    };
    let hosts = if host == "*" {
        Hosts::Everything
    } else if let Some((base, bits)) = host.split_once('/') {
        let (base, bits) = (address(base)?, bits.trim_end_matches(']').parse().ok()?);
        Hosts::Network(IpNet::new(base, bits).unwrap_or(base.into()))
    } else if let Some(base) = address(&host) {
        Hosts::Network(base.into())
    } else {
        let domain = host.trim_start_matches('*').trim_matches('.').to_ascii_lowercase();
        Hosts::Domain(Some(domain).filter(|domain| !domain.is_empty())?)
    };
    Some(Exception { hosts, port })
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

    /// The port was cut off, so all ports of the host went past the proxy.
    #[test]
    fn exceptions_may_have_ports_blocks_and_zones() {
        let some = proxies(&[
            ("all_proxy", "p:1"),
            (
                "no_proxy",
                "a.example:8080 .b.example:443;[::1]:81,10.1.2.3:82\tfe80::1%eth0,[fd00::]/8,\
                 172.16.0.0/12,fe80::/10,*.c.example,d.example:x,::ffff:10.9.9.9",
            ),
        ]);
        for direct in [
            "http://a.example:8080/",
            "http://x.a.example:8080/",
            "https://x.b.example/",
            "http://[::1]:81/",
            "http://10.1.2.3:82/",
            "http://[fe80::1]:5/",
            "http://[fe80::2]/",
            "http://[fd12::3]/",
            "http://172.31.255.255/",
            "http://[::ffff:172.16.0.1]/",
            "http://x.c.example/",
            "http://10.9.9.9/",
        ] {
            assert_eq!(proxy(&some, direct), None, "{direct}");
        }
        for through in [
            "http://a.example/",
            "http://a.example:80800/",
            "http://b.example/",
            "http://[::1]/",
            "http://10.1.2.3/",
            "http://172.32.0.1/",
            "http://[fec0::1]/",
            "http://d.example/",
        ] {
            if let Ok(url) = Url::parse(through) {
                assert!(some.find(&Origin::of(&url).unwrap()).is_some(), "{through}");
            }
        }
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
