//! What the user says of single servers: what opens them, how they are known, how they are reached.

use std::path::PathBuf;
use std::str::FromStr;

use swath_model::digest::Digest;
use url::{Host, Url};

use super::certificate::ClientCertificate;
use super::credentials::is_loopback;
use super::options::NetOptions;
use super::proxy::{BadProxy, proxy_address};
use super::token::Token;
use crate::target::Origin;

/// What is said of one server, or of all those of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAccess {
    /// Which servers.
    pub servers: HostPattern,
    /// A token, sent to these servers alone; in the clear only to this machine, and where the pattern
    /// says `http://`.
    pub token: Option<Token>,
    /// Said for this run, as a link says it: it comes before a token for all servers that was given for
    /// this run, which comes before what holds for all transfers.
    pub is_for_this_run: bool,
    /// SHA-256 of the certificate that is trusted of these servers, and of no others.
    pub fingerprint: Option<Digest>,
    /// Files with certificate authorities (PEM) that are trusted for these servers too.
    pub ca_files: Vec<PathBuf>,
    /// A certificate by which they know us, shown where they ask for one.
    pub certificate: Option<ClientCertificate>,
    /// How they are reached; `None`: as the environment says.
    pub proxy: Option<ProxyChoice>,
    /// Most connections to each of them; `None`: as to any other.
    pub connections: Option<u32>,
}

impl ServerAccess {
    /// With nothing said of them yet.
    pub fn to(servers: HostPattern) -> ServerAccess {
        ServerAccess {
            servers,
            token: None,
            is_for_this_run: false,
            fingerprint: None,
            ca_files: Vec::new(),
            certificate: None,
            proxy: None,
            connections: None,
        }
    }
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum ProxyChoice {
    /// Without a proxy, whatever the environment says.
    Direct,
    /// Through this one.
    Through(Url),
}

impl FromStr for ProxyChoice {
    type Err = BadProxy;

    fn from_str(text: &str) -> Result<ProxyChoice, BadProxy> {
        match text {
            "direct" => Ok(ProxyChoice::Direct),
            _ => proxy_address(text).map(ProxyChoice::Through),
        }
    }
}

impl std::fmt::Debug for ProxyChoice {
    /// Without what may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProxyChoice::Direct => write!(f, "direct"),
            ProxyChoice::Through(url) => write!(f, "{}", crate::shown::display_name(url)),
        }
    }
}

/// Servers as users name them: `HOST`, `HOST:PORT`, `*.DOMAIN`, perhaps with `http://` or `https://`
/// before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// `None`: by either scheme.
    tls: Option<bool>,
    host: HostIs,
    /// `None`: on every port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostIs {
    /// This one.
    Exactly(Host<String>),
    /// Within this domain, which begins with a dot.
    Within(String),
}

/// A text that names no servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("servers are named HOST, HOST:PORT or *.DOMAIN, perhaps with http:// or https:// before")]
pub struct PatternError;

impl HostPattern {
    /// Returns the one server of an `http` or `https` address.
    pub fn of(url: &Url) -> Option<HostPattern> {
        let Origin { tls, host, port } = Origin::of(url)?;
        Some(HostPattern { tls: Some(tls), host: HostIs::Exactly(host), port: Some(port) })
    }

    /// Returns whether the server of this address is one of them.
    pub fn is_of(&self, url: &Url) -> bool {
        Origin::of(url).is_some_and(|origin| self.matches(&origin))
    }

    /// Returns whether it names one host.
    pub(super) fn is_exact(&self) -> bool {
        matches!(self.host, HostIs::Exactly(_))
    }

    fn matches(&self, origin: &Origin) -> bool {
        let is_host = match (&self.host, &origin.host) {
            (HostIs::Exactly(own), host) => own == host,
            (HostIs::Within(domain), Host::Domain(name)) => {
                name.trim_end_matches('.').ends_with(domain.as_str())
            }
            (HostIs::Within(_), _) => false,
        };
        is_host
            && self.tls.is_none_or(|tls| tls == origin.tls)
            && self.port.is_none_or(|port| port == origin.port)
    }
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<HostPattern, PatternError> {
        let (scheme, rest) = text.split_once("://").map_or((None, text), |(s, r)| (Some(s), r));
        let tls = match scheme {
            None => None,
            Some("https") => Some(true),
            Some("http") => Some(false),
            Some(_) => return Err(PatternError),
        };
        let (wild, rest) = rest.strip_prefix("*.").map_or((false, rest), |rest| (true, rest));
        // The usual port of a scheme is left out of addresses when they are read, so it is looked for first.
        let named_port = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').and_then(|(_, behind)| behind.strip_prefix(':')),
            None => rest.split_once(':').map(|(_, port)| port),
        };
        let port = named_port.map(str::parse).transpose().map_err(|_| PatternError)?;
        let url = Url::parse(&format!("http://{rest}/")).map_err(|_| PatternError)?;
        let is_bare = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
            && !rest.contains(['/', '*', '@', '\\'])
            && rest.chars().all(|c| !c.is_whitespace() && !c.is_control());
        let host = match url.host().filter(|_| is_bare).ok_or(PatternError)? {
            Host::Domain(domain) if wild => HostIs::Within(format!(".{domain}")),
            _ if wild => return Err(PatternError),
            host => HostIs::Exactly(host.to_owned()),
        };
        // Without a port a scheme means its own one, as in an address.
        let usual = tls.map(|tls| if tls { 443 } else { 80 });
        Ok(HostPattern { tls, host, port: port.or(usual) })
    }
}

impl NetOptions {
    /// Returns what is said of the server at `origin`, the first word counting most.
    fn said_of(&self, origin: &Origin) -> impl Iterator<Item = &ServerAccess> {
        self.servers.iter().filter(|access| access.servers.matches(origin))
    }

    /// Returns the proxy for requests to `origin`.
    pub(crate) fn proxy(&self, origin: &Origin) -> Option<&Url> {
        match self.said_of(origin).find_map(|access| access.proxy.as_ref()) {
            Some(ProxyChoice::Direct) => None,
            Some(ProxyChoice::Through(url)) => Some(url),
            None => self.proxies.find(origin),
        }
    }

    /// Most connections to the host of `origin`.
    pub(crate) fn connections_to(&self, origin: &Origin) -> Option<u32> {
        self.said_of(origin).find_map(|access| access.connections).or(self.connections_per_host)
    }

    /// The token that was given for this server alone: for this run, or for all transfers.
    pub(super) fn own_token(&self, origin: &Origin, for_this_run: bool) -> Option<&Token> {
        let said = self.said_of(origin).filter(|it| it.is_for_this_run == for_this_run);
        let mut said = said;
        said.find_map(|access| {
            let is_safe =
                origin.tls || is_loopback(&origin.host) || access.servers.tls == Some(false);
            access.token.as_ref().filter(|_| is_safe)
        })
    }

    /// What TLS with the server or relay at `origin`, which the user has named if `is_named`, has and with others has not;
    /// `None` if there is nothing.
    pub(super) fn own_tls(&self, origin: &Origin, is_named: bool) -> Option<OwnTls> {
        let of_relays =
            self.relays.iter().filter(|it| Origin::of(&it.url).as_ref() == Some(origin));
        let of_relays: Vec<Digest> = of_relays.filter_map(|it| it.fingerprint).collect();
        let is_exact = !of_relays.is_empty()
            || self.said_of(origin).any(|it| it.servers.is_exact() && it.has_trust());
        let of_user = || self.certificate.clone().filter(|it| is_named && !it.is_for_swath());
        let certificate = self.said_of(origin).find_map(|it| it.certificate.clone());
        let certificate = certificate.or_else(of_user).filter(|_| origin.tls);
        let fingerprints = of_relays;
        let mut own = OwnTls { fingerprints, ca_files: Vec::new(), certificate, is_exact };
        for access in self.said_of(origin) {
            own.fingerprints.extend(access.fingerprint);
            own.ca_files.extend(access.ca_files.iter().cloned());
        }
        let has_trust = !own.fingerprints.is_empty() || !own.ca_files.is_empty();
        let has_any = has_trust || own.certificate.is_some();
        has_any.then_some(own)
    }
}

impl ServerAccess {
    fn has_trust(&self) -> bool {
        self.fingerprint.is_some() || !self.ca_files.is_empty()
    }
}

/// Certificates and authorities that are trusted of some servers alone, and the certificate that is shown to
/// them. All servers with the same share one configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnTls {
    pub fingerprints: Vec<Digest>,
    ca_files: Vec<PathBuf>,
    certificate: Option<ClientCertificate>,
    /// The user named the server itself, not only its domain.
    pub is_exact: bool,
}

impl OwnTls {
    /// Returns the options with this added.
    pub fn added_to(&self, options: &NetOptions) -> NetOptions {
        let mut options = options.clone();
        options.fingerprints.extend(&self.fingerprints);
        options.ca_files.extend(self.ca_files.iter().cloned());
        options
    }

    /// Returns the certificate that is shown to these servers.
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{Proxies, Secret};

    fn matches(pattern: &str, url: &str) -> bool {
        pattern.parse::<HostPattern>().unwrap().is_of(&Url::parse(url).unwrap())
    }

    #[test]
    fn servers_are_named_by_host_port_and_domain() {
        for (pattern, url) in [
            ("a.example", "https://a.example/x"),
            ("a.example", "http://A.example:8080/"),
            ("A.example:443", "https://a.example/"),
            ("a.example:80", "http://a.example/"),
            ("https://a.example", "https://a.example/"),
            ("http://a.example:8080", "http://a.example:8080/"),
            ("*.a.example", "https://x.y.a.example:7/"),
            ("*.a.example:7", "https://x.a.example:7/"),
            ("10.0.0.1", "http://10.0.0.1:9/"),
            ("[::1]:9", "http://[::1]:9/"),
            ("[::1]", "http://[::1]:9/"),
            ("bücher.example", "https://xn--bcher-kva.example/"),
        ] {
            assert!(matches(pattern, url), "{pattern} {url}");
        }
        for (pattern, url) in [
            ("a.example", "https://b.a.example/"),
            ("a.example:443", "https://a.example:8443/"),
            ("https://a.example", "http://a.example/"),
            ("https://a.example", "https://a.example:8443/"),
            ("*.a.example", "https://a.example/"),
            ("*.a.example", "https://xa.example/"),
        ] {
            assert!(!matches(pattern, url), "{pattern} {url}");
        }
        for odd in [
            "",
            "*",
            "*.",
            "a.*",
            "ftp://a",
            "a/b",
            "a?b",
            "a#b",
            "u@a",
            "a:99999",
            "a:x",
            "a b",
            "*.10.0.0.1",
            "::1",
            "a:",
        ] {
            assert_eq!(odd.parse::<HostPattern>(), Err(PatternError), "{odd}");
        }
    }

    fn origin(url: &str) -> Origin {
        Origin::of(&Url::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn the_first_word_about_a_server_counts() {
        let about = |pattern: &str| ServerAccess::to(pattern.parse().unwrap());
        let options = NetOptions {
            proxies: Proxies::from_env(|name| (name == "all_proxy").then(|| "p:1".to_owned()))
                .unwrap(),
            connections_per_host: Some(8),
            servers: vec![
                ServerAccess {
                    proxy: Some(ProxyChoice::Direct),
                    token: Some(Secret::new("own").into()),
                    ..about("a.example")
                },
                ServerAccess {
                    proxy: Some("socks5h://q:2".parse().unwrap()),
                    token: Some(Secret::new("all").into()),
                    connections: Some(2),
                    ..about("*.example")
                },
            ],
            ..NetOptions::default()
        };
        let (a, b, c) =
            (origin("https://a.example"), origin("http://b.example"), origin("https://c.org"));
        assert_eq!(options.proxy(&a), None);
        assert_eq!(options.proxy(&b).unwrap().as_str(), "socks5h://q:2");
        assert_eq!(options.proxy(&c).unwrap().as_str(), "http://p:1/");
        let connections = [&a, &b, &c].map(|origin| options.connections_to(origin));
        assert_eq!(connections, [Some(2), Some(2), Some(8)]);
        assert_eq!(options.own_token(&a, false).unwrap().now().expose(), "own");
        assert_eq!(options.own_token(&a, true), None, "it holds for all transfers");
        assert_eq!(options.own_token(&b, false), None, "in the clear");
        assert_eq!(options.own_token(&c, false), None);
    }
}
