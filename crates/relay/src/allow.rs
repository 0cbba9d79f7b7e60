//! The upstream servers that a relay may ask. Others are refused: a relay is never an open proxy.

use std::net::IpAddr;
use std::str::FromStr;

use swath_formats::Network;
use swath_source::Reach;
use url::{Host, Url};

/// One thing that a relay may ask: a host, all hosts below a domain, or a block of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    what: What,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// A host of just this name.
    Host(String),
    /// Whatever ends in this, with its dot.
    Below(String),
    Network(Network),
}

/// What names nothing that a relay could ask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Everything, in one way or another.
    #[error("'{0}' allows everything: a relay forwards only what is listed")]
    Everything(String),
    /// So much that a few of its kind would be everything.
    #[error(
        "'{0}' is too wide: a relay forwards only what is listed, in blocks of /8 at most (IPv6: /7)"
    )]
    Wide(String),
    /// Anything else.
    #[error(
        "'{0}' is neither a host (data.example.org, *.example.org, r2.example.org:8471) nor a block \
         of addresses (10.1.0.0/16)"
    )]
    Unreadable(String),
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Upstream, UpstreamError> {
        let unreadable = || UpstreamError::Unreadable(text.to_owned());
        let everything = || UpstreamError::Everything(text.to_owned());
        let block = |network: Network, port| match network {
            _ if network.is_everything() => Err(everything()),
            _ if network.is_wide() => Err(UpstreamError::Wide(text.to_owned())),
            _ => Ok(Upstream { what: What::Network(network), port }),
        };
        if let Ok(network) = text.parse::<Network>() {
            return block(network, None);
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| unreadable())?)),
            None => (text, None),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(network) = bare.parse::<Network>() {
            return block(network, port);
        }
        if host == "*" || host == "*." {
            return Err(everything());
        }
        let (is_below, name) = match host.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, host),
        };
        // As addresses have it: lower case, punycode.
        let name = match Host::parse(name) {
            Ok(Host::Domain(name)) if !name.contains('*') && !name.starts_with('.') => name,
            _ => return Err(unreadable()),
        };
        let what = if is_below { What::Below(format!(".{name}")) } else { What::Host(name) };
        Ok(Upstream { what, port })
    }
}

/// Everything that a relay may ask.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowed {
    all: Vec<Upstream>,
}

impl Allowed {
    pub fn new(all: Vec<Upstream>) -> Allowed {
        Allowed { all }
    }

    /// Whether the host of `url` is listed. Where names lead is judged when they are resolved.
    pub fn names(&self, url: &Url) -> bool {
        let Some(port) = url.port_or_known_default() else { return false };
        let on_port = self.all.iter().filter(|one| one.port.is_none_or(|own| own == port));
        match url.host() {
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                on_port.into_iter().any(|one| match &one.what {
                    What::Host(own) => own == name,
                    What::Below(end) => name.ends_with(end.as_str()),
                    What::Network(_) => false,
                })
            }
            Some(Host::Ipv4(address)) => Self::has(on_port, IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Self::has(on_port, IpAddr::V6(address).to_canonical()),
            None => false,
        }
    }

    fn has<'a>(mut some: impl Iterator<Item = &'a Upstream>, address: IpAddr) -> bool {
        some.any(|one| matches!(&one.what, What::Network(network) if network.contains(address)))
    }

    /// Where names may lead beside what is public: all of them to the blocks of addresses that are
    /// listed, and `localhost`, if it is, to this machine. What a name opens it opens for itself alone,
    /// or whoever has a name below a listed domain could have that lead there too.
    pub fn reach(&self) -> Vec<Reach> {
        let mut reach: Vec<Reach> = Vec::new();
        for one in &self.all {
            let on_port = |network, name| Reach { network, port: one.port, name };
            match &one.what {
                What::Network(network) => reach.push(on_port(*network, None)),
                // Everybody has it, and who lists it means it.
                What::Host(name) if name == "localhost" => {
                    let own = ["127.0.0.0/8", "::1"].iter();
                    let blocks = own.filter_map(|block| block.parse().ok());
                    reach.extend(blocks.map(|block| on_port(block, Some(name.clone()))));
                }
                _ => {}
            }
        }
        reach
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_allowed_and_nothing_else() {
        let listed = [
            "data.example.org",
            "*.lab.example.org",
            "r2.example.org:8471",
            "10.1.0.0/16",
            "192.0.2.7:80",
            "[2001:db8::7]:8080",
            "BÜCHER.example",
        ];
        let allowed = Allowed::new(listed.map(|text| text.parse().unwrap()).to_vec());
        for (url, expected) in [
            ("https://data.example.org/f", true),
            ("http://DATA.example.org:81/f", true),
            ("https://data.example.org./f", true),
            ("https://xdata.example.org/f", false),
            ("https://data.example.org.evil.net/f", false),
            ("https://a.lab.example.org/", true),
            ("https://a.b.lab.example.org/", true),
            ("https://lab.example.org/", false),
            ("https://evillab.example.org/", false),
            ("https://r2.example.org:8471/", true),
            ("https://r2.example.org/", false),
            ("http://10.1.2.3:99/", true),
            ("http://10.2.2.3/", false),
            ("http://192.0.2.7/", true),
            ("https://192.0.2.7/", false),
            ("http://[2001:db8::7]:8080/", true),
            ("http://[2001:db8::8]:8080/", false),
            ("http://[::ffff:10.1.2.3]/", true),
            ("https://b\u{fc}cher.example/", true),
            // Other ways to write 127.0.0.1, and one of the listed.
            ("http://2130706433/", false),
            ("http://0x0a010203/", true),
        ] {
            assert_eq!(allowed.names(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn everything_is_no_list() {
        for text in [
            "*",
            "*:443",
            "0.0.0.0/0",
            "::/0",
            "*.",
            "192.0.2.1/0",
            "0.0.0.0/0:80",
            "[::/0]:443",
            "::ffff:0:0/96",
        ] {
            let error = text.parse::<Upstream>();
            assert_eq!(error, Err(UpstreamError::Everything(text.to_owned())), "{text}");
        }
        // Two halves were no everything, and had loopback and all private networks in them.
        for text in ["0.0.0.0/1", "128.0.0.0/1", "0.0.0.0/7", "::/1", "2000::/3", "[8000::/1]:443"]
        {
            let error = text.parse::<Upstream>();
            assert_eq!(error, Err(UpstreamError::Wide(text.to_owned())), "{text}");
        }
        assert!(["10.0.0.0/8", "fc00::/7"].iter().all(|text| text.parse::<Upstream>().is_ok()));
        for text in ["", "http://host", "a b", "host:port", "*.*", "*.", "a.*", "host:70000"] {
            assert!(text.parse::<Upstream>().is_err(), "{text}");
        }
    }

    #[test]
    fn where_names_may_lead_is_listed_with_its_port() {
        let listed = ["*.example.org", "127.0.0.1:8080", "10.1.0.0/16", "localhost:81"];
        let allowed = Allowed::new(listed.map(|text| text.parse().unwrap()).to_vec());
        let leads = |name: &str, address: &str, port| {
            let (name, address) = (Host::Domain(name.to_owned()), address.parse().unwrap());
            allowed.reach().iter().any(|one| one.has(&name, address, Some(port)))
        };
        let may = |address: &str, port| leads("a.example.org", address, port);
        assert!(may("127.0.0.1", 8080));
        assert!(may("10.1.2.3", 9) && !may("10.2.2.3", 9));
        // Whoever has a name below example.org could have it lead to any service of this machine.
        assert!(!may("127.0.0.1", 6379) && !may("127.0.0.2", 8080) && !may("::1", 8080));
        // It led to all that `localhost` opened, too.
        assert!(!may("127.0.0.1", 81) && !may("::1", 81));
        assert!(["localhost", "localhost."].iter().all(|name| leads(name, "127.0.0.1", 81)));
        assert!(leads("localhost", "::1", 81) && !leads("localhost", "127.0.0.1", 82));
        assert!(!leads("localhost", "10.2.0.1", 81) && !leads("a.localhost", "::1", 81));
        // Written as addresses these are not listed at all.
        let on_81 = |host: &str| Url::parse(&format!("http://{host}:81/")).unwrap();
        assert!(allowed.names(&on_81("localhost")));
        assert!(!allowed.names(&on_81("127.0.0.1")) && !allowed.names(&on_81("[::1]")));
    }
}
